"""All methods by the name that `--method` takes: a method is a module of this folder that says when to choose it.

A module is a method if it has a constant `CHOOSE_WHEN`, a sentence. Its name is the method's, the first line of its
docstring says what it is, and it defines a `RunSynthesizer` whose settings, its `config_class`, have the method's name.
Nothing else lists methods.
"""

import dataclasses
import importlib
import inspect
from typing import Any

from datalens_tf import _folders, _validate
from datalens_tf import methods as _folder
from datalens_tf.config import MethodConfig
from datalens_tf.methods.base import RunSynthesizer
from datalens_tf.settings import json_fields

DEFAULT = "datalens"  # Where no method is named. The first version knew no other, and its `config.json` names none.


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


def methods() -> dict[str, Method]:
    """All methods by name, in alphabetical order."""
    found = _folders.declarations(tuple(_folder.__path__), "CHOOSE_WHEN")
    return {name: Method(name, module.summary, module.constants["CHOOSE_WHEN"], module.constants.get("PUBLISHED_AS"))
            for name, module in found.items()}


def synthesizer(method: str) -> type[RunSynthesizer[Any]]:
    """The class for a method; raises InvalidArgumentError for an unknown one."""
    _validate.one_of("method", method, list(methods()))
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
    """Settings of whatever method from the text of a `config.json`; raises InvalidArgumentError on anything else."""
    fields = json_fields(text)
    method = fields.get("method", DEFAULT)
    _validate.require(isinstance(method, str), "method", method, "to be text")
    return config_class(method).from_json(text)
