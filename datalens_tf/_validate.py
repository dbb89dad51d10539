"""Checks of named arguments. Messages read `Expected name=value condition.`, which tests and users rely on."""

import collections.abc
import difflib
import importlib
import numbers
import sys
from collections.abc import Collection, Iterable
from typing import Any, TypeVar

from datalens_tf.errors import InvalidArgumentError

_T = TypeVar("_T")


def require(condition: bool, name: str, value: Any, what: str) -> None:
    """Raises InvalidArgumentError `Expected name=value what.` unless the condition holds."""
    if not condition:
        raise InvalidArgumentError(f"Expected {name}={_shown(value)} {what}.")


def known(name: str, value: _T | None, what: str = "to be known: resolve the settings first") -> _T:
    """Returns the value; raises InvalidArgumentError `Expected name=None what.` where it is None."""
    if value is None:
        raise InvalidArgumentError(f"Expected {name}=None {what}.")
    return value


def installed(subject: str, extra: str, packages: Iterable[str]) -> None:
    """Raises InvalidArgumentError if a package of an extra is missing; the message begins `SUBJECT PACKAGE`."""
    for package in packages:
        try:
            importlib.import_module(package)
        except ImportError as error:
            raise InvalidArgumentError(f"{subject} {package}: install datalens_tf with its extra {extra}, pip install "
                                       f"'datalens_tf[{extra}]'.") from error


def _shown(value: Any, length: int = 200) -> str:
    """A value for a message, cut off so that an absurd value does not flood it."""
    if isinstance(value, int) and abs(value) >= 10**length:  # Python refuses to print the longest of them.
        return f"{'-' if value < 0 else ''}(more than {length} digits)"
    text = repr(value)
    return text if len(text) <= length else f"{text[:length]}..."


def real(name: str, value: Any) -> None:
    """A finite real number (bool excluded)."""
    # Not math.isfinite, which has no answer for integers beyond a float's range.
    is_number = isinstance(value, numbers.Real) and not isinstance(value, bool)
    ok = is_number and abs(value) <= sys.float_info.max
    require(ok, name, value, "to be a finite number")


def positive(name: str, value: Any) -> None:
    """A finite number > 0."""
    real(name, value)
    require(value > 0, name, value, "> 0")


def between(name: str, value: Any, low: float, high: float, *, open_low: bool = False, open_high: bool = False) -> None:
    """A finite number in the interval from low to high, either end included unless open."""
    real(name, value)
    ok = (low < value if open_low else low <= value) and (value < high if open_high else value <= high)
    interval = f"{'(' if open_low else '['}{low}, {high}{')' if open_high else ']'}"
    require(ok, name, value, f"in {interval}")


def integer(name: str, value: Any, *, at_least: int | None = None, at_most: int | None = None) -> None:
    """An integer (bool excluded), not below `at_least` and not above `at_most`."""
    ok = isinstance(value, numbers.Integral) and not isinstance(value, bool)
    require(ok, name, value, "to be an integer")
    if at_least is not None:
        require(value >= at_least, name, value, f">= {at_least}")
    if at_most is not None:
        require(value <= at_most, name, value, f"<= {at_most:,}")


def boolean(name: str, value: Any) -> None:
    """True or False."""
    require(isinstance(value, bool), name, value, "to be true or false")


def one_of(name: str, value: Any, choices: Collection[Any]) -> None:
    """A value that is one of the named choices."""
    if not (isinstance(value, collections.abc.Hashable) and value in choices):
        raise InvalidArgumentError(f"Expected {name}={_shown(value)} to be one of {', '.join(map(str, choices))}."
                                   f"{did_you_mean(value, choices)}")


def did_you_mean(value: Any, choices: Iterable[Any]) -> str:
    """A question that follows an error's full stop, ` Did you mean mnist?`; empty where no choice is close."""
    if not isinstance(value, str) or len(value) > 100:
        return ""
    close = difflib.get_close_matches(value, map(str, choices), 1)
    return f" Did you mean {close[0]}?" if close else ""


def top_k(value: int | None, dimension: int | None) -> None:
    """A number of an image's coordinates.

    Args:
      value: how many; None for all.
      dimension: how many there are; None where this is not known yet.
    """
    require(value is None or dimension is None or value <= dimension, "top_k", value,
            f"<= {dimension}, the numbers in one image")
