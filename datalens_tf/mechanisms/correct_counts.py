"""Noisy counts of the records that each of several classifiers gets right, to choose one of them by."""

from __future__ import annotations

import dataclasses
import math
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

    Attributes:
      num_candidates: K.
      noise_multiplier: standard deviation of the noise divided by the sensitivity.
    """

    num_candidates: int
    noise_multiplier: float

    def __post_init__(self) -> None:
        _validate.integer("num_candidates", self.num_candidates, at_least=1)
        _validate.positive("noise_multiplier", self.noise_multiplier)

    @property
    def l2_sensitivity(self) -> float:
        """sqrt(K), in records."""
        return math.sqrt(self.num_candidates)

    def sums(self, predictions: Sequence[NDArray[Any]], labels: NDArray[Any]) -> NDArray[np.float64]:
        """The exact, private numbers, float64 [K].

        Args:
          predictions: of each candidate, integers [n]; what is no class is wrong.
          labels: integers [n].
        """
        _validate.require(len(predictions) == self.num_candidates, "predictions", len(predictions),
                          f"candidates to be {self.num_candidates}")
        return np.array([np.count_nonzero(np.asarray(guess) == labels) for guess in predictions], np.float64)

    def privatize(self, sums: NDArray[np.float64], noise: NoiseSource, index: int) -> NDArray[np.float64]:
        """Adds the noise: the one private step. Charge first; `index` is the charge's.

        Returns:
          float64 [K], noisy numbers of records; may be stored and published.
        """
        _validate.require(bool(np.all(sums == np.rint(sums))), "sums", "...", "to be integers")
        return add_noise(sums, self.noise_multiplier * self.l2_sensitivity, noise, index)

    def dp_event(self) -> dp_accounting.DpEvent:
        """One Gaussian mechanism; the sensitivity to replacing one record is inside the noise multiplier."""
        return dp_accounting.GaussianDpEvent(self.noise_multiplier)
