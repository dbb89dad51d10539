"""Noisy counts of the records that each of several classifiers gets right, to choose one of them by."""

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
from datalens_tf.mechanisms.base import add_noise
from datalens_tf.mechanisms.noise import NoiseSource


@dataclasses.dataclass(frozen=True, kw_only=True)
class CorrectCounts:
    """Per candidate, the number of records that it classifies right: one release of K numbers.

    Formal guarantee: a record adds 0 or 1 to each number, so replacing one, label included, changes the K numbers by at
    most sqrt(K) in l2 norm. Candidates must have been made without the records, or from earlier releases.

    Where units of several records are protected, a record of a unit with m records adds 0 or 1/m, rounded down to
    whole steps of 1/steps. So a unit adds a number in [0, 1] to each, the share of its records that are right, and
    replacing one unit, be its records few, many, or none, costs as much as one record.

    Attributes:
      num_candidates: K.
      noise_multiplier: standard deviation of the noise divided by the sensitivity.
      steps: in which a unit is counted: 1 where it has one record.
    """

    num_candidates: int
    noise_multiplier: float
    steps: int = 1

    STEPS_OF_UNITS: typing.ClassVar[int] = 2**20  # where units may have several records

    def __post_init__(self) -> None:
        _validate.integer("steps", self.steps, at_least=1)
        _validate.integer("num_candidates", self.num_candidates, at_least=1)
        _validate.positive("noise_multiplier", self.noise_multiplier)

    @property
    def l2_sensitivity(self) -> float:
        """sqrt(K), in units."""
        return math.sqrt(self.num_candidates)

    def sums(self, predictions: Sequence[NDArray[Any]], labels: NDArray[Any], sizes: NDArray[np.int64]
             ) -> NDArray[np.float64]:
        """The exact, private numbers, in steps: float64 [K] of integers.

        Args:
          predictions: of each candidate, integers [n]; what is no class is wrong.
          labels: integers [n].
          sizes: number of records of each record's unit, [n]; 1 where a record is a unit.
        """
        _validate.require(len(predictions) == self.num_candidates, "predictions", len(predictions),
                          f"candidates to be {self.num_candidates}")
        counted = self.steps // sizes
        return np.array([counted[np.asarray(guess) == labels].sum() for guess in predictions], np.float64)

    def privatize(self, sums: NDArray[np.float64], noise: NoiseSource, index: int) -> NDArray[np.float64]:
        """Adds the noise: the one private step. Charge first; `index` is the charge's.

        Returns:
          float64 [K], noisy numbers of units; may be stored and published.
        """
        _validate.require(bool(np.all(sums == np.rint(sums))), "sums", "...", "to be integers")
        return add_noise(sums, self.noise_multiplier * self.l2_sensitivity * self.steps, noise, index) / self.steps

    def dp_event(self) -> dp_accounting.DpEvent:
        """One Gaussian mechanism; the sensitivity to replacing one record or unit is inside the noise multiplier."""
        return dp_accounting.GaussianDpEvent(self.noise_multiplier)
