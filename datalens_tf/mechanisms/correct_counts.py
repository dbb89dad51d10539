"""Noisy counts of the records that several classifiers get right and wrong, for choosing one of the classifiers."""

from __future__ import annotations

import dataclasses
import math
import typing
from collections.abc import Sequence
from typing import Any

import dp_accounting
import numpy as np
from numpy.typing import NDArray

from datalens_tf import _validate
from datalens_tf.mechanisms.base import ADJACENCIES, add_noise, gaussian_for
from datalens_tf.mechanisms.noise import NoiseSource


@dataclasses.dataclass(frozen=True, kw_only=True)
class CorrectCounts:
    """Per candidate, how many more records it classifies right than wrong: one release of K numbers.

    Formal guarantee: a record adds 1 or -1 to each number. So replacing one, label included, changes the K numbers by
    at most 2 sqrt(K) in l2 norm, and adding or removing one changes them by sqrt(K). (Numbers of right answers alone
    would change by sqrt(K) under either relation. For the second one, that is twice as much relative to the differences
    that decide.) A record may be anything: each candidate classifies it right or wrong. Candidates must have been made
    without the records, or from earlier releases.

    Where units of several records are protected, a record of a unit with m records adds 1/m or -1/m, rounded towards
    zero to whole steps of 1/steps. So a unit adds a number in [-1, 1] to each of the K numbers, and both sensitivities
    are those of one record, whether the unit has few records, many, or none.

    Attributes:
      num_candidates: K.
      noise_multiplier: standard deviation of the noise divided by the sensitivity.
      adjacency: the relation that the sensitivity is for, `replace-one` or `add-or-remove-one`.
      discrete: whether the noise is discrete Gaussian, like that of several owners. Here this decides only the price.
      steps: number of steps that the 1 of a unit is divided into; 1 where every unit has one record.
    """

    num_candidates: int
    noise_multiplier: float
    adjacency: str = "replace-one"
    steps: int = 1
    discrete: bool = False

    STEPS_OF_UNITS: typing.ClassVar[int] = 2**20  # where units may have several records

    def __post_init__(self) -> None:
        _validate.integer("steps", self.steps, at_least=1)
        _validate.integer("num_candidates", self.num_candidates, at_least=1)
        _validate.positive("noise_multiplier", self.noise_multiplier)
        _validate.one_of("adjacency", self.adjacency, ADJACENCIES)

    def sensitivity(self, adjacency: str) -> float:
        """Largest l2 change of the numbers between neighbours by this relation."""
        _validate.one_of("adjacency", adjacency, ADJACENCIES)
        return (1.0 if adjacency == "add-or-remove-one" else 2.0) * math.sqrt(self.num_candidates)

    @property
    def l2_sensitivity(self) -> float:
        """`sensitivity` for the mechanism's own relation."""
        return self.sensitivity(self.adjacency)

    @property
    def stddev(self) -> float:
        """Standard deviation of the noise, in units of the steps."""
        return self.noise_multiplier * self.l2_sensitivity * self.steps

    @property
    def largest(self) -> int:
        """The most that a record adds to any number, in units of the steps."""
        return self.steps

    def sums(self, predictions: Sequence[NDArray[Any]], labels: NDArray[Any], sizes: NDArray[np.int64]
             ) -> NDArray[np.float64]:
        """The exact, private numbers, in steps: float64 [K] of integers.

        Args:
          predictions: of each candidate, integers [n]; a number that is not a class is wrong.
          labels: integers [n].
          sizes: number of records of each record's unit, [n]; 1 where a record is a unit.

        Raises:
          InvalidArgumentError: the arrays have other shapes, with which numpy would let a record answer more than once.
        """
        _validate.require(len(predictions) == self.num_candidates, "predictions", len(predictions),
                          f"candidates to be {self.num_candidates}")
        for guess in predictions:
            _validate.require(np.ndim(labels) == 1 and np.shape(guess) == np.shape(labels) == np.shape(sizes),
                              "predictions.shape", np.shape(guess), f"to be {np.shape(labels)}, one for each label")
        counted = self.steps // sizes
        return np.array([np.where(np.asarray(guess) == labels, counted, -counted).sum() for guess in predictions],
                        np.float64)

    def privatize(self, sums: NDArray[np.float64], noise: NoiseSource, index: int) -> NDArray[np.float64]:
        """Adds the noise: the one private step. Charge first; `index` is the index of the charge.

        Returns:
          float64 [K], noisy differences, in units; may be stored and published.
        """
        _validate.require(bool(np.all(sums == np.rint(sums))), "sums", "...", "to be integers")
        return add_noise(sums, self.stddev, noise, index) / self.steps

    def dp_event(self, adjacency: str | None = None) -> dp_accounting.DpEvent:
        """One Gaussian mechanism; the sensitivity to a record or unit is inside the noise multiplier.

        Args:
          adjacency: relation to price the same noise for; None for the mechanism's own.
        """
        return gaussian_for(self, adjacency)
