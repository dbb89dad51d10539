"""Runs side by side: one table and one plot.

Everything that a comparison needs is a column, and rows that lack it are refused.

Runs that differ in nothing but seeds become one row, with mean and standard deviation over the runs.
"""

import csv
import dataclasses
import io
import json
import math
import pathlib
import statistics
import sys
from collections.abc import Mapping, Sequence
from typing import Any

from datalens_tf import _files, _text, _validate
from datalens_tf.accounting import verification
from datalens_tf.accounting.accountants import round_up
from datalens_tf.errors import DataError, InvalidArgumentError
from datalens_tf.evaluation import charts, references
from datalens_tf.training.results import METRICS, result_file

SCHEMA_VERSION = 1  # of the metrics.json that can be read


@dataclasses.dataclass(frozen=True, kw_only=True)
class Result:
    """One evaluated run.

    Attributes:
      method, dataset: which method was trained on which data set.
      epsilon, delta, accountant, adjacency: the guarantee; epsilon is the largest float for a run that is not private.
      protocol: how the accuracy was measured; with a remark where it was not followed.
      accuracy, accuracy_std, num_classifiers: over the classifiers of this run.
      others: further numbers, by column.
      settings: all settings but the seeds, as text; None where there are none.
      source: the folder.
      guarantee: whether the statement was `checked` against a ledger, or is taken `as stated`.
    """

    method: str
    dataset: str
    epsilon: float
    delta: float
    accountant: str
    adjacency: str
    protocol: str
    accuracy: float
    accuracy_std: float | None
    num_classifiers: int
    others: Mapping[str, float]
    settings: str | None
    source: str
    guarantee: str = "checked"

    @property
    def group(self) -> tuple:
        """Key that rows are grouped by: equal for runs that differ in seeds only."""
        return (self.dataset, self.method, self.epsilon, self.delta, self.accountant, self.adjacency, self.guarantee,
                self.protocol,
                self.settings if self.settings is not None else self.source)


_TEXTS = ("method", "accountant", "adjacency")
_NUMBERS = {"epsilon": math.inf, "delta": 1.0}  # with the largest value there can be


def read_result(folder: pathlib.Path) -> Result:
    """Reads statement and metrics of a run folder, or `privacy.json` and `metrics.json` of a folder from elsewhere.

    A statement beside a ledger is checked against it. A folder from elsewhere has no ledger, and its statement is taken
    as stated.

    Raises:
      CheckpointError, LedgerError: the statement does not follow from the ledger, or from the run's settings.
      DataError: a file or an entry that a fair comparison needs is missing, or cannot be understood.
    """
    statement, metrics = _read(folder / "privacy.json"), _read(result_file(folder))
    is_run = any((folder / name).exists() for name in (verification.LEDGER, "private"))
    if is_run:
        statement = verification.run_statement(folder)
    if statement.get("private") is False:  # A run that admits this may stand beside others, as epsilon = infinity.
        statement = statement | {"epsilon": sys.float_info.max}
    missing = [name for name in (*_TEXTS, *_NUMBERS) if name not in statement]
    if missing:
        raise DataError(f"{folder}: privacy.json states no {', '.join(missing)}, so it cannot be compared with others. "
                        "docs/reference/metrics.md has an example.")
    for name in (*_TEXTS, *_NUMBERS):
        try:
            if name in _NUMBERS:
                _validate.between(name, statement.get(name), 0, _NUMBERS[name])
            else:
                _validate.require(isinstance(statement.get(name), str), name, statement.get(name), "to be text")
        except InvalidArgumentError as error:
            raise DataError(f"{folder}: privacy.json states no {name} ({error}), so it cannot be compared with "
                            "others.") from error
    if metrics.get("schema_version") != SCHEMA_VERSION:
        raise DataError(f"{folder}: expected metrics.json of schema_version {SCHEMA_VERSION}, got "
                        f"{metrics.get('schema_version')!r}: evaluate it again.")
    utility: Any = metrics.get("utility")
    try:
        protocol = utility["protocol_name"]
        if not utility["follows_protocol"]:
            unequal = "" if utility.get("uniform_labels", True) else " of unequal classes"
            protocol += f", but {utility['num_synthetic']} images{unequal} and {utility['epochs']} epochs"
        quality, thirteen = metrics.get("quality", {}), metrics.get("classifiers", {})
        others = {
            "average of 13": thirteen["average"]["synthetic"] if thirteen else None,
            "calibrated": thirteen["average"]["calibrated"] if thirteen else None,
            "inception score": quality["inception_score"]["mean"] if quality else None,
            "Frechet distance, domain classifier": quality["frechet_domain_classifier"]["value"] if quality else None,
            "FID, Keras InceptionV3": quality.get("fid_inception_v3_keras", {}).get("value"),
        }
        others = {name: value for name, value in others.items() if value is not None}
        for name, value in others.items():
            _validate.real(name, value)
        _validate.between("accuracy_mean", utility["accuracy_mean"], 0, 1)
        if utility["accuracy_std"] is not None:
            _validate.between("accuracy_std", utility["accuracy_std"], 0, 1)
        return Result(
            method=statement["method"], epsilon=float(statement["epsilon"]), delta=float(statement["delta"]),
            accountant=statement["accountant"], adjacency=_neighbours(statement),
            dataset=_text.without_folders(str(metrics["dataset"])),
            protocol=protocol, accuracy=utility["accuracy_mean"], num_classifiers=len(utility["per_seed"]),
            accuracy_std=utility["accuracy_std"], others=others, settings=_settings(folder), source=str(folder),
            guarantee="checked" if is_run else "as stated")
    except (AttributeError, KeyError, TypeError, ValueError, OverflowError) as error:
        raise DataError(f"{folder}: metrics.json has no accuracy with its protocol ({error!r} is missing or wrong), so "
                        "it cannot be compared with others. Evaluate it with the metric utility.") from error


def _neighbours(statement: Mapping[str, Any]) -> str:
    """The adjacency of a statement, with its unit where this is not the method's own."""
    unit, adjacency = statement.get("unit_setting"), str(statement["adjacency"])
    return adjacency if unit is None else f"{adjacency} (unit: {_text.printable(str(unit))})"


def table(results: Sequence[Result]) -> list[dict[str, str]]:
    """One row per group, columns in order, everything as text.

    The standard deviation is over the runs if there are several, else over the classifiers of the only run. The column
    `spread over` says which.
    """
    groups: dict[tuple, list[Result]] = {}
    for result in results:
        groups.setdefault(result.group, []).append(result)
    columns = list(dict.fromkeys(name for result in results for name in result.others))
    rows = []
    for _, runs in sorted(groups.items(), key=lambda item: (item[0][:3], item[1][0].source)):
        first, accuracies = runs[0], [run.accuracy for run in runs]
        several = len(runs) > 1
        std = statistics.stdev(accuracies) if several else first.accuracy_std
        row = {
            "data": first.dataset, "method": first.method, "epsilon": round_up(first.epsilon),
            "delta": f"{first.delta:g}", "accountant": first.accountant, "adjacency": first.adjacency,
            "guarantee": first.guarantee, "protocol": first.protocol, "accuracy": f"{statistics.fmean(accuracies):.4f}",
            "std": "" if std is None else f"{std:.4f}",
            "spread over": f"{len(runs)} runs" if several else f"{first.num_classifiers} classifiers of 1 run"}
        for name in columns:
            values = [run.others[name] for run in runs if name in run.others]
            row[name] = f"{statistics.fmean(values):.4f}" if len(values) == len(runs) else ""
        rows.append(row | {"runs": " ".join(run.source for run in runs)})
    return rows


def markdown(rows: Sequence[Mapping[str, str]]) -> str:
    """Rows as a markdown table, in which texts that others wrote are never markup."""
    names = list(rows[0])
    lines = [list(map(_text.markdown, names)), ["---"] * len(names),
             *([_text.markdown(row[name]) for name in names] for row in rows)]
    return "\n".join("| " + " | ".join(line) + " |" for line in lines) + "\n"


def csv_text(rows: Sequence[Mapping[str, str]]) -> str:
    """Rows as CSV, in which no cell is a formula."""
    buffer = io.StringIO()
    writer = csv.DictWriter(buffer, list(rows[0]), lineterminator="\n")
    writer.writeheader()
    writer.writerows({name: _text.cell(value) for name, value in row.items()} for row in rows)
    return buffer.getvalue()


def accuracy_charts(rows: Sequence[Mapping[str, str]]) -> dict[str, Any]:
    """Data set -> epsilon against accuracy, beside published numbers."""
    made = {}
    for dataset in dict.fromkeys(row["data"] for row in rows):
        mine = [row for row in rows if row["data"] == dataset and row["epsilon"] != "inf"]
        if not mine:
            continue
        made[dataset] = charts.accuracy_chart(
            [{"label": f"{row['method']} ({row['adjacency']}; {row['protocol']})", "epsilon": float(row["epsilon"]),
              "accuracy": float(row["accuracy"]), "std": float(row["std"]) if row["std"] else None} for row in mine],
            {f"{name} ({references.ADJACENCY[name]})": points
             for known in (references.ACCURACY, references.DPIMAGEBENCH)
             for name, points in known.get(dataset, {}).items() if name in references.ADJACENCY})
    return made


def _settings(folder: pathlib.Path) -> str | None:
    """All settings but the seeds."""
    if not (folder / "config.json").is_file():
        return None
    settings = _read(folder / "config.json")
    return json.dumps({name: value for name, value in settings.items() if name not in ("seed", "partition_seed")},
                      sort_keys=True)


def _read(path: pathlib.Path) -> dict[str, Any]:
    folder, name = path.parent, path.name
    try:
        value = _files.parse_json(path.read_text(encoding="utf-8"))
    except FileNotFoundError as error:
        made_by = "evaluate it first" if name == METRICS else "a run folder has one"
        raise DataError(f"{folder}: has no {name}; {made_by}.") from error
    except (OSError, ValueError) as error:
        raise DataError(f"{folder}: cannot read {name}: {error}.") from error
    if not isinstance(value, dict):
        raise DataError(f"{folder}: expected {name} to hold one JSON object.")
    return value
