"""The kept runs of the tables: `results/`, and the tables in the documents that are written from it.

    python run_scripts/reproduce/kept_runs.py [--collect RUNS] [--results_dir results] [--check]

RESULTS/runs/NAME has the privacy statement of a run, `privacy.json`, and its measurements, `measured.json`: no weights
and no pictures. RESULTS/results.csv has a row for every cell and measure, computed from these files; runs that differ
in their seed alone share a row. `--collect` copies what the queue (all.sh) has finished in its folder RUNS. Then the
rows and, for the results of this repository, the tables in its documents are written again. `--check` writes nothing,
and fails where a file differs from what would be written.
"""

import argparse
import csv
import io
import itertools
import json
import pathlib
import re
import statistics
import sys
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import paper_tables
from cells import Cell, costs_of

from datalens_tf import _files
from datalens_tf.accounting import accountants, verification, wording
from datalens_tf.accounting import statement as statements
from datalens_tf.evaluation import references
from datalens_tf.methods.registry import methods
from datalens_tf.training.results import result_file

PROJECT = paper_tables.PROJECT
RESULTS = PROJECT / "results"
COLUMNS = ("tables", "data", "classes", "n", "method", "variant", "budget", "epsilon_replace_one",
           "epsilon_add_or_remove", "delta", "accountant", "protocol", "measure", "seeds", "values", "mean", "sd",
           "sd_over", "paper", "minutes", "commit", "command", "runs")
# For the name of each measure in a row, its place in `metrics.json`, or in each classifier's part of it.
MEASURES = {"accuracy": ("accuracy",), "best_epoch_accuracy": ("best_epoch_accuracy",),
            "inception_score": ("quality", "inception_score", "mean"),
            "frechet_domain_classifier": ("quality", "frechet_domain_classifier", "value")}
_ACCURACIES = ("accuracy", "best_epoch_accuracy")
_MEASURED = "measured.json"
# For the images that quality was measured on, what the protocol says of them: images to learn from, unless a run says
# that it has others, to look at. Until commit a4fb441 these were moved as much as those to learn from, and
# until a20d070 light changed the black and white of grey ones.
_LEARNING = "training"
_IMAGES = {_LEARNING: "", "looking": ", images to look at", "looking, moved": ", images to look at, still moved",
           "looking, lit": ", images to look at, with backgrounds in changing light"}
_ADJACENCIES = {"epsilon_replace_one": "replace-one", "epsilon_add_or_remove": "add-or-remove-one"}
_DATA = {"mnist": "MNIST", "fashion_mnist": "Fashion-MNIST", "cifar10": "CIFAR-10",
         "tfds:cifar10_jpeg": "CIFAR-10 (JPEG)", "celeba_gender": "CelebA-Gender (part)",
         "celeba_hair": "CelebA-Hair (part)", "places365": "Places365 (part)"}


def keep(cell: Cell, folder: pathlib.Path, results: pathlib.Path) -> None:
    """Keeps what is not private of a finished run: its statement, and measurements on public test data.

    Args:
      cell: the cell of the run.
      folder: folder of the run, which is evaluated.
      results: a folder of results.

    Raises:
      CheckpointError, LedgerError: the statement is not that of the run, or does not follow from what was charged.
    """
    costs, metrics = costs_of(folder), json.loads(result_file(folder).read_text())
    classes = json.loads((folder / "generator/1/assets.extra/model.json").read_text())["class_names"]
    statement = (folder / verification.STATEMENT).read_bytes()
    made: tuple[str, ...] = ("datalens train", *cell.train)
    if cell.export_of is not None:
        whole = cell.export_of.startswith("checkpoints/")
        how = cell.export or (() if whole else (f"--step={json.loads(statement)['num_steps']}",))
        made = ("datalens export", f"--run_dir={cell.export_of}", *how)
    write_run(cell, statement, metrics, results, {
        "classes": classes, "commit": costs.get("commit", ""),
        "minutes": {what: round(costs[what]["seconds"] / 60, 1) for what in ("training", "evaluation")
                    if what in costs},
        "command": " ".join((*made, "&& datalens evaluate", *cell.evaluate))})


def write_run(cell: Cell, statement: bytes, metrics: Mapping[str, Any], results: pathlib.Path,
              more: Mapping[str, Any]) -> None:
    """Writes the two files of a run.

    Args:
      cell: the cell of the run.
      statement: content of its `privacy.json`.
      metrics: content of its `metrics.json`.
      results: a folder of results.
      more: further entries of `measured.json`.

    Raises:
      LedgerError: the statement does not follow from the charges that it names.
    """
    utility = metrics["utility"]
    verification.check_alone(statements.parse_statement(statement), cell.name)
    measured = {
        "tables": cell.tables, "dataset": cell.dataset, "method": cell.method, "variant": cell.variant,
        "epsilon_budget": cell.epsilon, "seed": cell.seed, "protocol": utility["protocol_name"],
        "num_synthetic": utility["num_synthetic"], "epochs": utility["epochs"],
        "follows_protocol": utility["follows_protocol"],
        "accuracy_by_classifier": [one["accuracy"] for one in utility["per_seed"]],
        "measures": {name: value for name in MEASURES if (value := _measure_of(metrics, name)) is not None},
        "quality_of": _at(metrics, ("quality", "purpose")) or _LEARNING,
        **more}
    folder = results / "runs" / cell.name
    folder.mkdir(parents=True, exist_ok=True)
    _files.atomic_write(folder / verification.STATEMENT, statement)
    _files.atomic_write(folder / _MEASURED, json.dumps(measured, indent=1) + "\n")


def _measure_of(metrics: Mapping[str, Any], name: str) -> float | None:
    """A measure of a run; accuracies are averaged over its classifiers."""
    if name not in _ACCURACIES:
        return _at(metrics, MEASURES[name])
    found = [_at(one, MEASURES[name]) for one in metrics["utility"]["per_seed"]]
    return None if None in found else statistics.fmean(found)


def _at(metrics: Mapping[str, Any], path: Sequence[str]) -> Any:
    """An entry of nested dictionaries; None where there is none."""
    value: Any = metrics
    for name in path:
        value = value.get(name) if isinstance(value, dict) else None
    return value


def has(cell: Cell, results: pathlib.Path) -> bool:
    """Whether a run is kept in a folder of results."""
    return (results / "runs" / cell.name / _MEASURED).exists()


def minutes_taken(name: str, results: pathlib.Path) -> list[float]:
    """What the training and the evaluation of a kept run took; empty where it is not kept, or did not note it."""
    measured = results / "runs" / name / _MEASURED
    return list(json.loads(measured.read_text())["minutes"].values()) if measured.exists() else []


def rows(results: pathlib.Path) -> list[dict[str, str]]:
    """The rows of the kept runs, as text."""
    runs = []
    for path in sorted(results.glob(f"runs/*/{_MEASURED}")):
        measured = json.loads(path.read_text())
        statement = statements.parse_statement((path.parent / verification.STATEMENT).read_bytes())
        runs.append({"name": path.parent.name, "statement": statement, **measured})

    def key(run):
        budget = float("inf") if run["epsilon_budget"] is None else run["epsilon_budget"]
        return (_place(run["dataset"]), run["dataset"], run["method"], run["variant"], budget)

    groups = itertools.groupby(sorted(runs, key=lambda run: (*key(run), run["seed"])), key)
    return [row for _, group in groups for row in _rows_of(list(group))]


def _rows_of(runs: Sequence[Mapping[str, Any]]) -> Iterator[dict[str, str]]:
    """Rows of runs that differ in their seed: one for each measure, and for each kind of images that it is of."""
    for measure in MEASURES:
        for images in _IMAGES:
            mine = [run for run in runs if measure in run["measures"]
                    and (_LEARNING if measure in _ACCURACIES else run.get("quality_of", _LEARNING)) == images]
            if mine:
                yield _row(mine, measure, images)


def _row(runs: Sequence[Mapping[str, Any]], measure: str, images: str) -> dict[str, str]:
    first, statement = runs[0], runs[0]["statement"]
    private = statement["private"]
    minutes = [run["minutes"]["training"] for run in runs if "training" in run["minutes"]]
    protocol = f"domain classifier{_IMAGES[images]}"
    if measure in _ACCURACIES:
        protocol = first["protocol"] if first["follows_protocol"] else (
            f"{first['protocol']}, but {first['num_synthetic']} images and {first['epochs']} epochs")
    values = [run["measures"][measure] for run in runs]
    spread, over = values, f"{len(runs)} runs"
    if len(runs) == 1 and measure == "accuracy":
        spread, over = first["accuracy_by_classifier"], f"{len(first['accuracy_by_classifier'])} classifiers"
    epsilon = max(run["statement"]["epsilon"] for run in runs) if private else None
    cells = {
        "tables": first["tables"] if measure in _ACCURACIES else ["3"], "data": first["dataset"],
        "classes": first["classes"], "n": wording.how_many(statement), "method": first["method"],
        "variant": first["variant"], "budget": "inf" if epsilon is None else f"{first['epsilon_budget']:g}",
        **{column: "inf" if epsilon is None else _guaranteed([run["statement"] for run in runs], adjacency)
           for column, adjacency in _ADJACENCIES.items()},
        "delta": f"{statement['delta']:g}" if private else "",
        "accountant": statement["accountant"] if private else "",
        "protocol": protocol, "measure": measure,
        "seeds": [run["seed"] for run in runs], "values": [f"{value:.4f}" for value in values],
        "mean": f"{statistics.fmean(values):.4f}",
        "sd": f"{statistics.stdev(spread):.4f}" if len(spread) > 1 else "",
        "sd_over": over if len(spread) > 1 else "", "paper": _published(first, measure),
        "minutes": f"{statistics.fmean(minutes):.0f}" if minutes else "",
        "commit": sorted({run["commit"] for run in runs}), "command": _whole(first["command"]),
        "runs": [run["name"] for run in runs]}
    row = {name: " ".join(map(str, value)) if isinstance(value, list | tuple) else str(value)
           for name, value in cells.items()}
    return row | {"classes": "; ".join(first["classes"])}


def _whole(command: str) -> str:
    """A command line with the flags that name folders, which a kept run leaves out."""
    made, results = ("EXPORT", " --output_dir=RESULTS") if command.startswith("datalens export") else ("RUN", "")
    command = re.sub("^datalens (train|export) ", rf"datalens \1 --output_dir={made} ", command)
    return command.replace("datalens evaluate ", f"datalens evaluate --samples={made}{results} ", 1)


def _guaranteed(proofs: Sequence[Mapping[str, Any]], adjacency: str) -> str:
    """The epsilon that all these statements prove under this relation; empty where one of them proves none."""
    if proofs[0]["adjacency"] == adjacency:
        return accountants.round_up(max(proof["epsilon"] for proof in proofs))
    others = [_for_other_neighbours(proof) for proof in proofs]
    if not all(other.get("is_guarantee") and other["adjacency"] == adjacency
               and proof["accountant"] in other["epsilon_by_accountant"] for proof, other in zip(proofs, others)):
        return ""
    return accountants.round_up(max(other["epsilon_by_accountant"][proof["accountant"]]
                                   for proof, other in zip(proofs, others)))


def _for_other_neighbours(proof: Mapping[str, Any]) -> Mapping[str, Any]:
    """A statement's price for other neighbours; empty where there is none. Older statements lack some."""
    charges = verification.charges_of(proof) or []
    return proof.get("other_adjacency") or statements.price_for_others(
        charges, proof["delta"], proof["adjacency"]).get("other_adjacency", {})


def _published(run: Mapping[str, Any], measure: str) -> str:
    """The DataLens paper's number for this method, data and budget; empty without one, or for other settings.

    Accuracies of the paper are of the best epoch. They stand beside ours of the last one, but in the table of its own
    protocol beside ours of the best one.
    """
    if paper_tables.AS_THE_PAPER in run["tables"]:
        if measure == "accuracy":
            return ""
    elif not _is_usual(run["variant"]):
        return ""
    if measure in _ACCURACIES:
        value = references.published(run["method"], run["dataset"], run["epsilon_budget"]).get("DataLens paper")
    else:
        name = methods()[run["method"]].published_as or ""
        value = None
        if measure == "inception_score":
            value = references.INCEPTION_SCORE.get(run["dataset"], {}).get(name, {}).get(run["epsilon_budget"])
    return "" if value is None else f"{value:g}"


def csv_text(found: Sequence[Mapping[str, str]]) -> str:
    """Rows as `results.csv` has them."""
    text = io.StringIO()
    writer = csv.DictWriter(text, COLUMNS, lineterminator="\n")
    writer.writeheader()
    writer.writerows(found)
    return text.getvalue()


def write(results: pathlib.Path) -> None:
    """Writes `results.csv` from the kept runs."""
    _files.atomic_write(results / "results.csv", csv_text(rows(results)))


# Document -> name of its table, which stands between the lines `<!-- results: NAME -->` and `<!-- end of results -->`.
DOCUMENTS = {"README.md": "headline", "docs/research/tables.md": "all"}


def documents(found: Sequence[Mapping[str, str]]) -> dict[pathlib.Path, str]:
    """Documents with their tables written from the rows.

    Raises:
      ValueError: a document has no place for its table.
    """
    texts = {}
    for name, table in DOCUMENTS.items():
        path = PROJECT / name
        before, opening, rest = path.read_text().partition(f"<!-- results: {table} -->\n")
        _, closing, after = rest.partition("<!-- end of results -->")
        if not (opening and closing):
            raise ValueError(f"{name} has no place for the table {table}.")
        written = {"headline": headline, "all": all_tables}[table](found)
        texts[path] = f"{before}{opening}\n{written}\n{closing}{after}"
    return texts


def headline(found: Sequence[Mapping[str, str]]) -> str:
    """Accuracies of a few methods, a row for each data set and each of two budgets, also by the paper's protocol."""
    cells: dict[tuple[str, str], dict[tuple[str, str], str]] = {}
    best = {row["runs"]: row["mean"] for row in found if row["measure"] == "best_epoch_accuracy"}
    # Where a method has a released generator and newer runs, the newer runs are shown; all epochs before a tenth.
    for row in sorted(found, key=lambda row: (_place(row["data"]), float(row["budget"]), not _is_released(row),
                                              row["protocol"] == "paper")):
        if float(row["budget"]) not in paper_tables.BUDGETS:
            continue
        if row["measure"] == "accuracy" and (how := _column(row)) is not None:
            by_epoch = f" ({best[row['runs']]})" if how == paper_tables.AS_THE_PAPER else ""
            cells.setdefault((row["data"], row["budget"]), {})[row["method"], how] = _accuracy(row) + by_epoch
    columns = [(method, how) for method in paper_tables.HEADLINE for how in _HEADS
               if any((method, how) in known for known in cells.values())]
    lines = [(_DATA.get(data, data), budget, *(known.get(column, "-") for column in columns))
             for (data, budget), known in cells.items() if any(column in known for column in columns)]
    return _table(("data", "epsilon", *(_HEADS[how].format(_shown(method)) for method, how in columns)), lines)


# What the headline says of a method's runs: as they are; posed; posed, and judged as the paper judges.
_HEADS = {"": "{}", paper_tables.POSED: f"{{}}, {paper_tables.POSED}",
          paper_tables.AS_THE_PAPER: f"{{}}, {paper_tables.POSED}, by the paper's protocol"}


def _column(row: Mapping[str, str]) -> str | None:
    if row["tables"] == paper_tables.AS_THE_PAPER:
        return paper_tables.AS_THE_PAPER if paper_tables.POSED in row["variant"].split(", ") else None
    if _is_posed(row):
        return paper_tables.POSED
    return "" if _is_usual(row["variant"]) else None


def all_tables(found: Sequence[Mapping[str, str]]) -> str:
    """All rows, in a table for each table of the paper."""
    parts = []
    numbers = {number for row in found for number in row["tables"].split()}
    for number in sorted(numbers, key=lambda number: (not number.isdigit(), number)):
        mine = [row for row in found if number in row["tables"].split()]
        measures = {_measure(row) for row in mine}
        head = ("data", "n", "method", "variant", "epsilon, one replaced", "epsilon, one added or removed",
                *(("measure",) if len(measures) > 1 else ()), "mean", "seeds", "paper", "minutes")
        lines = [(_DATA.get(row["data"], row["data"]), _thousands(row["n"]), f"`{row['method']}`",
                  row["variant"] or "-", row["epsilon_replace_one"] or "-", row["epsilon_add_or_remove"] or "-",
                  *((_measure(row),) if len(measures) > 1 else ()), _accuracy(row), row["seeds"],
                  row["paper"] or "-", row["minutes"] or "-") for row in mine]
        title = _TITLES.get(number, f"Table {number}")
        parts.append(f"## {title}\n\n{_table(head, lines)}")
    return "\n".join(parts)


_TITLES = {paper_tables.ADJACENCY: "Replaced, or added and removed",
           paper_tables.AS_THE_PAPER: "Judged as the paper judges",
           paper_tables.OTHER_BUDGETS: "DataLens+ at other budgets",
           paper_tables.BEST_VOTES: "DataLens with the best votes",
           paper_tables.PHOTOGRAPHS: "Photographs, by other methods",
           paper_tables.NETWORKS: "Released generators, judged by other networks"}


def _thousands(count: str) -> str:
    """A number of records with commas; it may begin with `at most`."""
    return re.sub("[0-9]+", lambda found: f"{int(found[0]):,}", count)


def _is_released(row: Mapping[str, str]) -> bool:
    return row["variant"].startswith("checkpoints/")


def _is_posed(row: Mapping[str, str]) -> bool:
    return row["variant"] == paper_tables.POSED or (_is_released(row) and row["variant"].endswith(paper_tables.POSED))


def _is_usual(variant: str) -> bool:
    """Whether a row is of the method as the paper has it: not posed, and not of Tables 4, 5 and 7."""
    return variant in ("", paper_tables.SLIM) or (
        variant.startswith("checkpoints/") and not variant.endswith(paper_tables.POSED))


def _measure(row: Mapping[str, str]) -> str:
    _, _, images = row["protocol"].partition(", ")
    return row["measure"].replace("_", " ") + (f", {images}" if row["measure"] not in _ACCURACIES and images else "")


def _accuracy(row: Mapping[str, str]) -> str:
    return row["mean"] + (f" ± {row['sd']}" if row["sd"] else "")


def _place(data: str) -> int:
    return list(_DATA).index(data) if data in _DATA else len(_DATA)


def _shown(method: str) -> str:
    return methods()[method].published_as or f"`{method}`"


def _table(head: Sequence[str], lines: Sequence[Sequence[str]]) -> str:
    return "".join(f"| {' | '.join(line)} |\n" for line in (head, ["---"] * len(head), *lines))


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--collect", type=pathlib.Path, default=None, metavar="RUNS", help="folder of the queue")
    parser.add_argument("--results_dir", type=pathlib.Path, default=RESULTS)
    parser.add_argument("--check", action="store_true", help="write nothing; fail where something is out of date")
    args = parser.parse_args()
    if args.collect is not None:
        for measured in sorted(args.collect.glob(f"results/runs/*/{_MEASURED}")):  # It is written last.
            kept = args.results_dir / "runs" / measured.parent.name
            kept.mkdir(parents=True, exist_ok=True)
            for name in (verification.STATEMENT, _MEASURED):
                _files.atomic_write(kept / name, (measured.parent / name).read_bytes())
    found = rows(args.results_dir)
    texts = {args.results_dir / "results.csv": csv_text(found)}
    if args.results_dir == RESULTS:
        texts |= documents(found)
    changed = [path for path, text in texts.items() if not path.exists() or path.read_text() != text]
    for path in changed:
        print(path.relative_to(PROJECT) if path.is_relative_to(PROJECT) else path)
        if not args.check:
            _files.atomic_write(path, texts[path])
    return int(args.check and bool(changed))


if __name__ == "__main__":
    sys.exit(main())
