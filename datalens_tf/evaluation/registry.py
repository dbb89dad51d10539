"""All metrics by the name that `--metrics` takes: a metric is a module of the folder `metrics`.

A module is a metric if it has a constant `SUMMARY`, which says in a few words what it measures. The module's name is
also the name of the metric, and of its section in `metrics.json`. The module also has

- `POSITION`, a number: metrics with smaller ones come first, in help, in `metrics.json` and in the report;
- `NEEDS_TRAIN`, whether it asks for the records that the generator was trained on;
- `costs(context)`, which returns how long each part of its work takes, in relation to others, for progress;
- `compute(context)`, which does the work, part by part through `context.stages`, and returns a `Section`;
- `headline(values)`, which returns the line that `datalens evaluate` prints of its section; None for no line.

The report shows a section by `templates/NAME.html.j2`, or else its numbers in a table. The template
`templates/NAME_tiles.html.j2` is for what stands in large type at the report's top. Nothing else lists metrics.
"""

from __future__ import annotations

import dataclasses
import importlib
import typing
from typing import Any, Protocol, cast

from datalens_tf import _folders
from datalens_tf.evaluation import metrics as _folder

if typing.TYPE_CHECKING:  # to list metrics must not take TensorFlow's seconds of import
    from datalens_tf.evaluation.context import Context, Section


class Metric(Protocol):
    """The module of a metric."""

    def costs(self, context: Context) -> list[float]:
        """Rough seconds, on any one machine, of each call of `context.stages.run` that `compute` will make."""
        ...

    def compute(self, context: Context) -> Section:
        """Measures."""
        ...

    def headline(self, values: dict[str, Any]) -> str | None:
        """One line of the section, without its newline; None for no line."""
        ...


@dataclasses.dataclass(frozen=True)
class Declared:
    """Declaration of a metric by its module, read without running it.

    Attributes:
      summary: what it measures.
      needs_train: whether it asks for the records that the generator was trained on.
    """

    summary: str
    needs_train: bool


def declared() -> dict[str, Declared]:
    """All metrics by name, in their order."""
    found = _folders.declarations(tuple(_folder.__path__), "SUMMARY")
    ordered = sorted(found.items(), key=lambda item: (item[1].constants["POSITION"], item[0]))
    return {name: Declared(module.constants["SUMMARY"], module.constants["NEEDS_TRAIN"]) for name, module in ordered}


def metric(name: str) -> Metric:
    """The module of a metric that is declared."""
    return cast(Metric, importlib.import_module(f"{_folder.__name__}.{name}"))
