"""Questions about records, whose answers are sums of integers over any number of data sets.

A question holds what is public (settings, and what earlier releases told) and no record. Its answer is a sum over
records, so the answers of several holders of records add up to the answer of all. They do so to the bit, because all
are integers that float64 holds. A holder of records answers with the mechanism's own `sums`, which bound what each
record adds, whatever the question is.
"""

from __future__ import annotations

import abc
import typing
from collections.abc import Callable
from typing import Any

if typing.TYPE_CHECKING:
    import numpy as np

    from datalens_tf.data.datasets import Dataset


class Question(abc.ABC):
    """A question about records: a frozen dataclass of public values that can be sent."""

    @abc.abstractmethod
    def answer(self, mechanism: Any, dataset: Dataset) -> np.ndarray:
        """The exact, private sums, in units of the mechanism's grid: float64 of integers.

        Args:
          mechanism: the mechanism whose `sums` these are.
          dataset: the records, all of them usable.
        """


class Elsewhere(abc.ABC):
    """Records that are not in this process."""

    @property
    @abc.abstractmethod
    def num_units(self) -> int:
        """The public n, as in a `Dataset`."""

    @property
    @abc.abstractmethod
    def identity(self) -> dict[str, Any]:
        """Identity by which a resumed run recognises its data; private."""

    @abc.abstractmethod
    def close(self) -> None:
        """Ends what was started to reach the records."""

    @abc.abstractmethod
    def answer(self, mechanism: Any, question: Question) -> Any:
        """Sum of all holders' answers, or what stands for it where the holders add the noise for `Releases`."""


def asked(question: Question, records: Dataset | Elsewhere) -> Callable[[Any], Any]:
    """Function from a mechanism to the answer of the records, wherever they are."""
    if isinstance(records, Elsewhere):
        return lambda mechanism: records.answer(mechanism, question)
    return lambda mechanism: question.answer(mechanism, records)
