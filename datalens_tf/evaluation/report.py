"""`report.html`: one file that says what was trained, what is guaranteed, and how good the synthetic data is.

Everything is inside the file: it makes no request and runs no script. The quality of the data was measured on real
records, so the public report is the same page without those measurements.
"""

import base64
import dataclasses
import itertools
import json
import pathlib
import shlex
import statistics
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import dp_accounting
import numpy as np

from datalens_tf import __version__, _files, _text
from datalens_tf.accounting import accountants, verification
from datalens_tf.accounting.accountants import round_up
from datalens_tf.accounting.ledger import Charge
from datalens_tf.accounting.wording import caveat, guaranteed, neighbours, render_text
from datalens_tf.config import MethodConfig
from datalens_tf.data.image_grid import image_grid, png_bytes
from datalens_tf.errors import CheckpointError
from datalens_tf.evaluation import charts, references, registry
from datalens_tf.evaluation.evaluate import Evaluation
from datalens_tf.methods.registry import DEFAULT, config_from_json, preset, presets

PER_CLASS = 12  # synthetic images that a report shows
_CURVE_POINTS = 40  # of epsilon over steps: a near-exact epsilon takes a while


@dataclasses.dataclass(frozen=True, kw_only=True)
class RunFacts:
    """Facts that a run folder, or an exported generator, states about itself.

    Attributes:
      config: its settings; None for an exported generator, which has none.
      statement, statement_text: of its privacy.
      charged: the charges in its ledger; None where they are not known.
      losses: student's loss by step; empty where there are no logs.
      seconds_per_step: median time between two steps, from the private log. It is as private as the log, because it may
        depend on records. None where there is no such log.
    """

    config: MethodConfig | None
    statement: Mapping[str, Any]
    statement_text: str
    charged: Sequence[Charge] | None
    losses: Mapping[int, float]
    seconds_per_step: float | None

    @classmethod
    def read(cls, folder: pathlib.Path) -> "RunFacts":
        """Reads a run folder or a released checkpoint.

        Raises:
          CheckpointError: a file is missing or damaged.
          LedgerError: the statement does not follow from the ledger.
        """
        statement = verification.run_statement(folder)
        try:
            config = config_from_json((folder / "config.json").read_text(encoding="utf-8"))
            text = (folder / "privacy.txt").read_text(encoding="utf-8")
        except (OSError, ValueError) as error:
            raise CheckpointError(
                f"Cannot read the settings and the privacy statement of {folder}: {error}.") from error
        name = _text.without_folders(statement["dataset"])  # In older runs, this is a place.
        config, text = config.public(), text.replace(statement["dataset"], name)
        statement = dict(statement) | {"dataset": name}
        return cls(config=config, statement=statement, statement_text=text,
                   charged=verification.charged(folder, statement), losses=training_log(folder / "logs"),
                   seconds_per_step=seconds_per_step(folder / "private" / "training.jsonl"))

    @classmethod
    def read_export(cls, folder: pathlib.Path) -> "RunFacts | None":
        """Reads the statement in a SavedModel; None where it has none.

        Raises:
          CheckpointError: the statement is damaged.
          LedgerError: it does not follow from what was charged.
        """
        statement = verification.export_statement(folder)
        if statement is None:
            return None
        return cls(config=None, statement=statement, statement_text=render_text(statement),
                   charged=verification.charged(folder / "assets.extra", statement), losses={}, seconds_per_step=None)


def write_report(folder: pathlib.Path, evaluation: Evaluation, facts: RunFacts | None,
                 samples: tuple[np.ndarray, np.ndarray]) -> pathlib.Path:
    """Writes `report.html` and `charts/` with all that was found into the folder; returns the report's path.

    Args:
      folder: exists.
      evaluation: what was found.
      facts: of the run, or None where only samples are known.
      samples: synthetic images and labels, of which some are shown.
    """
    figures = evaluation.charts | ({} if facts is None else run_charts(facts, evaluation.metrics))
    with _files.clear_os_errors(folder):
        (folder / "charts").mkdir(exist_ok=True)
    for name, figure in figures.items():
        _files.atomic_write(folder / "charts" / f"{name}.png", charts.png_bytes(figure))
    return _write_page(folder, evaluation.metrics, figures, facts, samples)


def write_public_report(folder: pathlib.Path, facts: RunFacts, samples: tuple[np.ndarray, np.ndarray]) -> pathlib.Path:
    """Writes a `report.html` of what the run may tell everybody. Nothing in it was measured on real records."""
    facts = dataclasses.replace(facts, seconds_per_step=None)
    return _write_page(folder, None, run_charts(facts, {}), facts, samples)


def _write_page(folder, metrics, figures, facts, samples) -> pathlib.Path:
    page = render_report(metrics, figures, facts, png_bytes(_class_rows(*samples), scale=2))
    _files.atomic_write(folder / "report.html", page)
    return folder / "report.html"


def _class_rows(images: np.ndarray, labels: np.ndarray, columns: int = PER_CLASS) -> np.ndarray:
    """The first images of each class, one row per class; at most 20 classes."""
    rows = []
    for label in np.unique(labels)[:20]:
        mine = images[labels == label]
        row = np.zeros((columns, *images.shape[1:]), images.dtype)
        row[:len(mine)] = mine[:columns]
        rows.append(row)
    picture = image_grid(np.stack(rows))
    return picture if picture.dtype == np.uint8 else np.rint(picture * 255).astype(np.uint8)


def training_log(logs: pathlib.Path) -> dict[int, float]:
    """The student's loss by step, from TensorBoard's files; an empty dictionary where there are none."""
    if not logs.is_dir():
        return {}
    from tensorboard.backend.event_processing.event_accumulator import TENSORS, EventAccumulator
    from tensorboard.util import tensor_util

    events = EventAccumulator(str(logs), size_guidance={TENSORS: 0}).Reload()
    if "student_loss" not in events.Tags()["tensors"]:
        return {}
    told = {event.step: event for event in events.Tensors("student_loss")}  # A resumed run may tell a step twice.
    return {step: float(tensor_util.make_ndarray(told[step].tensor_proto)) for step in sorted(told)}


def seconds_per_step(private_log: pathlib.Path) -> float | None:
    """The median time between two lines of `training.callbacks.PrivateLog`; None where there are not two."""
    try:
        rows = list(map(_files.parse_json, private_log.read_text(encoding="utf-8").splitlines()))
        pauses = [(after["seconds"] - before["seconds"]) / (after["step"] - before["step"])
                  for before, after in itertools.pairwise(rows) if after["step"] > before["step"]
                  and after["seconds"] > before["seconds"]]  # A resumed run begins to count again.
    except (OSError, ValueError, KeyError, TypeError):  # A line cut off by a crash, for example.
        return None
    return statistics.median(pauses) if pauses else None


def run_charts(facts: RunFacts, metrics: Mapping[str, Any]) -> dict[str, Any]:
    """Charts of the run: its budget, its training, its accuracy beside published ones."""
    statement, made = facts.statement, {}
    if statement["private"]:
        if statement["num_charges"] > 1 and facts.charged is not None:
            made["budget"] = _budget_chart(statement, facts.charged)
        if "utility" in metrics:
            utility = metrics["utility"]
            made["accuracy"] = charts.accuracy_chart(
                [{"label": "this run", "epsilon": statement["epsilon"], "accuracy": utility["accuracy_mean"],
                  "std": utility["accuracy_std"]}],
                references.ACCURACY.get(statement["dataset"], {}), utility.get("real", {}).get("accuracy"))
    if facts.losses:
        made["training"] = charts.training_chart(list(facts.losses), list(facts.losses.values()))
    return made


def _budget_chart(statement: Mapping[str, Any], charged: Sequence[Charge]) -> Any:
    """Epsilon after each charge, by each accountant."""
    count = statement["num_charges"]
    every = max(1, -(-count // _CURVE_POINTS))
    steps = sorted({1, *range(every, count + 1, every), count})
    curves = {name: _filled(steps, [
        accountants.epsilon_of(_first_charges(charged, step), statement["delta"], name, statement["adjacency"])
        for step in steps])
              for name in statement["epsilon_by_accountant"]}
    return charts.budget_chart(curves, statement["epsilon_budget"], statement["accountant"])


def _first_charges(charged, count):
    """Events of the first `count` charges."""
    events = []
    for equal in charged:
        events.append(dp_accounting.SelfComposedDpEvent(equal.unit, min(equal.count, count)))
        count -= min(equal.count, count)
    return events


def _filled(steps, values):
    """Values at 1, 2, 3, ..., linear between the steps."""
    return np.interp(np.arange(1, steps[-1] + 1), steps, values).tolist()


def render_report(metrics: Mapping[str, Any] | None, figures: Mapping[str, Any], facts: RunFacts | None,
                  sample_picture: bytes) -> str:
    """The page.

    Args:
      metrics: content of `metrics.json`; None for a page that only has the run's facts.
      figures: name -> matplotlib Figure.
      facts: of the run, or None where only samples are known.
      sample_picture: PNG with one row of synthetic images per class.
    """
    import jinja2

    environment = jinja2.Environment(loader=jinja2.PackageLoader("datalens_tf.evaluation"), autoescape=True,
                                     undefined=jinja2.StrictUndefined, trim_blocks=True, lstrip_blocks=True,
                                     finalize=_text.finalize)
    environment.filters |= {"up": round_up, "number": _number, "percent": lambda value: f"{100 * value:.1f} %",
                            "numbers": _numbers, "neighbours": neighbours, "caveat": caveat, "guaranteed": guaranteed}
    images = {name: _data_uri(charts.svg_bytes(figure), "image/svg+xml") for name, figure in figures.items()
              if name not in ("pca", "tsne")}
    # Thousands of marks take fewer bytes as pixels.
    images |= {name: _data_uri(charts.png_bytes(figures[name]), "image/png") for name in ("pca", "tsne")
               if name in figures}
    metrics = metrics or {}
    dataset = facts.statement["dataset"] if facts is not None and not metrics else metrics["dataset"]
    return environment.get_template("report.html.j2").render(
        version=__version__, dataset=dataset, metrics=metrics, facts=facts, images=images,
        samples=_data_uri(sample_picture, "image/png"),
        sections={name: metric.summary for name, metric in registry.declared().items() if name in metrics},
        published=_published(dataset, facts), rerun=references.RERUN.get(dataset),
        published_classifiers=references.CLASSIFIERS.get(dataset, {}),
        published_real_score=references.REAL_INCEPTION_SCORE.get(dataset),
        command=None if facts is None or facts.config is None else training_command(facts.config),
        settings=None if facts is None or facts.config is None else json.loads(facts.config.to_json()))


def training_command(config: MethodConfig) -> str:
    """The command line that trains with these settings, as short as the presets allow."""
    known = {name for name, _ in presets()}
    # These settings are known from the data, or only tests can set them.
    hidden = {"image_shape", "num_classes", "classes", "insecure_noise_seed", "method"}
    words = [] if config.method == DEFAULT else [f"--method {config.method}"]
    if config.dataset in known:
        base = preset(config.dataset, config.epsilon, config.method)
        words += [f"--preset {config.dataset}"] + ([] if config.epsilon is None else [f"--epsilon {config.epsilon:g}"])
    else:
        base = type(config)()
    for field in dataclasses.fields(config):
        value = getattr(config, field.name)
        if field.name not in hidden and value != getattr(base, field.name):
            words.append(f"--{field.name}" if value is True else
                         f"--{field.name} {'none' if value is None else shlex.quote(str(value))}")
    return " ".join(["datalens train --output_dir RUN", *dict.fromkeys(words)])


def _published(dataset: str, facts: RunFacts | None) -> dict[str, Any] | None:
    """The paper's numbers for this data set at the epsilon nearest to the run's budget."""
    of_dataset = references.ACCURACY.get(dataset)
    if of_dataset is None or facts is None or not facts.statement["private"]:
        return None
    nearest = min(of_dataset["DataLens"], key=lambda epsilon: abs(epsilon - facts.statement["epsilon_budget"]))
    return {"epsilon": nearest, "accuracy": of_dataset["DataLens"][nearest],
            "inception_score": references.INCEPTION_SCORE.get(dataset, {}).get("DataLens", {}).get(nearest),
            "others": {name: values[nearest] for name, values in of_dataset.items()
                       if name != "DataLens" and nearest in values}}


def _numbers(values: Mapping[str, Any], inside: str = "") -> Iterator[tuple[str, float]]:
    """All numbers of a section, and of what is nested in it, with their names."""
    for name, value in values.items():
        if isinstance(value, Mapping):
            yield from _numbers(value, f"{inside}{name}, ")
        elif isinstance(value, (int, float)) and not isinstance(value, bool):
            yield f"{inside}{name}".replace("_", " "), value


def _number(value: float | None, digits: int = 4) -> str:
    return "-" if value is None else f"{value:.{digits}f}"


def _data_uri(data: bytes, kind: str) -> str:
    return f"data:{kind};base64,{base64.b64encode(data).decode()}"
