"""All methods by the name that `--method` takes: a method is a module of this folder that says when to choose it.

A module is a method if it has a constant `CHOOSE_WHEN`, a clause. The module has the method's name, the first line of
its docstring says what the method is, and it defines a `RunSynthesizer` whose settings, its `config_class`, have the
method's name. Nothing else lists methods.
"""

import dataclasses
import html
import importlib
import inspect
import itertools
import textwrap
from collections.abc import Collection, Mapping
from typing import Any

from datalens_tf import _folders, _text, _validate
from datalens_tf import methods as _folder
from datalens_tf.config import MethodConfig
from datalens_tf.errors import InvalidArgumentError
from datalens_tf.facts import DataFacts, Suitability
from datalens_tf.methods.base import RunSynthesizer
from datalens_tf.settings import declared, json_fields

DEFAULT = "datalens"  # Of presets, and of `config.json` files that name none: the first version had no other.
# Data that are assumed where nothing is said about them.
STATED = DataFacts(num_records=60_000, image_shape=(28, 28, 1), num_classes=10)


@dataclasses.dataclass(frozen=True)
class Method:
    """Declaration of a method by its module, read without running it: TensorFlow takes seconds to import.

    Attributes:
      name: what `--method` takes.
      summary: what it is, the first line of the module's docstring.
      choose_when: when to choose it.
      published_as: its name in tables that others published, where it is in any.
    """

    name: str
    summary: str
    choose_when: str
    published_as: str | None = None


class Table(tuple[Method, ...]):
    """Methods in alphabetical order, which print as a table."""

    def text(self, width: int | None = None) -> str:
        """A row per method: its name, when to choose it, and what it is.

        Args:
          width: columns of the table; None takes those of the terminal, up to 100.
        """
        width = _text.terminal_width() if width is None else width
        name_width = 2 + max(len(method.name) for method in self)
        half = (width - name_width - 2) // 2
        lines = []
        for name, *texts in self._rows():
            when, what = (textwrap.wrap(text, half) for text in texts)
            lines += [f"{left:<{name_width}}{middle:<{half + 2}}{right}".rstrip()
                      for left, middle, right in itertools.zip_longest([name], when, what, fillvalue="")]
        return "\n".join(lines)

    def _rows(self) -> list[tuple[str, str, str]]:
        return [("METHOD", "CHOOSE THIS WHEN", "WHAT IT IS"),
                *((method.name, method.choose_when, method.summary.removesuffix(".")) for method in self)]

    def __repr__(self) -> str:
        return self.text()

    __str__ = __repr__

    def _repr_html_(self) -> str:
        """The table, for notebooks."""
        rows = ("".join(f"<td>{html.escape(cell)}</td>" for cell in row) for row in self._rows())
        return f"<table>{''.join(f'<tr>{row}</tr>' for row in rows)}</table>"


def table() -> Table:
    """All methods, as a table."""
    return Table(methods().values())


def methods() -> dict[str, Method]:
    """All methods by name, in alphabetical order."""
    found = _folders.declarations(tuple(_folder.__path__), "CHOOSE_WHEN")
    return {name: Method(name, module.summary, module.constants["CHOOSE_WHEN"], module.constants.get("PUBLISHED_AS"))
            for name, module in found.items()}


def synthesizer(method: str) -> type[RunSynthesizer[Any]]:
    """The class for a method; raises InvalidArgumentError for an unknown one."""
    if method not in methods():
        raise InvalidArgumentError(f"Unknown method {method!r:.99}: `datalens methods` lists them."
                                   f"{_validate.did_you_mean(method, methods())}")
    module = importlib.import_module(f"{_folder.__name__}.{method}")
    return next(kind for kind in vars(module).values()
                if inspect.isclass(kind) and issubclass(kind, RunSynthesizer)
                and hasattr(kind, "config_class") and kind.config_class.method == method)


def config_class(method: str) -> type[MethodConfig]:
    """The settings of a method; raises InvalidArgumentError for an unknown one."""
    return synthesizer(method).config_class


def config_classes() -> dict[str, type[MethodConfig]]:
    """The settings of all methods, by name."""
    return {method: config_class(method) for method in methods()}


@dataclasses.dataclass(frozen=True)
class Choice:
    """The method that is taken for data where none is named.

    Attributes:
      method: its name.
      why: the reason, as a clause.
    """

    method: str
    why: str


def having(settings: Collection[str]) -> dict[str, type[MethodConfig]]:
    """The methods that have all of these settings.

    Raises:
      InvalidArgumentError: there is no such method.
    """
    found = {name: kind for name, kind in config_classes().items() if set(settings) <= set(declared(kind))}
    if not found:
        single = [f"--{name} ({', '.join(having([name]))})" for name in sorted(settings)]
        raise InvalidArgumentError(f"Expected settings of one method, got some that no method has together: "
                                   f"{', '.join(single)}.")
    return found


def usual() -> tuple[str, ...]:
    """The methods whose errors are reported where no method is named: the one for most data, and that of presets."""
    return best(STATED, 1.0).method, DEFAULT


def best(facts: DataFacts, epsilon: float | None, settings: Collection[str] = ()) -> Choice:
    """The method that suits data best, according to what each method says of itself (`MethodConfig.suits`).

    Args:
      facts: what is public about the data.
      epsilon: the budget; None takes 1.
      settings: the settings that are given, which the method must have.

    Raises:
      InvalidArgumentError: no method has all these settings, or those that have them must be named.
    """
    def suitable(kinds: Mapping[str, type[MethodConfig]]) -> dict[str, Suitability]:
        told = {name: kind.suits(facts, 1.0 if epsilon is None else epsilon) for name, kind in kinds.items()}
        return {name: answer for name, answer in told.items() if answer is not None}

    able = having(settings)
    found, everywhere = suitable(able), suitable(config_classes())
    if not found:
        asked = sorted(name for name in settings if any(name not in declared(config_class(other))
                                                        for other in everywhere))
        raise InvalidArgumentError(f"Missing --method: no method with {', '.join(f'--{name}' for name in asked)} is "
                                   f"taken unless it is named. Name one of {', '.join(able)}.")
    chosen = max(found, key=lambda name: found[name].usefulness)
    passed = sorted(name for name in everywhere if everywhere[name].usefulness > found[chosen].usefulness)
    why = found[chosen].why
    if passed:
        asked = sorted(name for name in settings if any(name not in declared(config_class(other)) for other in passed))
        why = f"{', '.join(f'--{name}' for name in asked)} asks for it"
    return Choice(chosen, why)


def preset(name: str, epsilon: float | None = 1.0, method: str = DEFAULT) -> MethodConfig:
    """Settings for a data set, with this budget; see `MethodConfig.preset`.

    Raises:
      InvalidArgumentError: no such preset or method, or epsilon <= 0.
    """
    return config_class(method).preset(name, epsilon)


def presets() -> tuple[tuple[str, float], ...]:
    """Data sets and budgets that settings were published or made for: those of the default method."""
    return config_class(DEFAULT).presets()


def config_from_json(text: str) -> MethodConfig:
    """Settings of any method from the text of a `config.json`; raises InvalidArgumentError on anything else."""
    fields = json_fields(text)
    method = fields.get("method", DEFAULT)
    _validate.require(isinstance(method, str), "method", method, "to be text")
    return config_class(method).from_json(text)
