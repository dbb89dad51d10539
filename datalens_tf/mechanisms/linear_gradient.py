"""Gradients of a linear softmax classifier, summed over all records, with Gaussian noise."""

from __future__ import annotations

import dataclasses
import typing
from typing import Iterable

import dp_accounting
import numpy as np

from datalens_tf import _validate
from datalens_tf.mechanisms.base import add_noise
from datalens_tf.mechanisms.noise import NoiseSource

# Features and errors are truncated towards zero to multiples of this: sums of their products are integers, exact in
# float64 for two million records, and no norm grows.
_STEPS = 2**16
MAX_RECORDS = 2**21


@dataclasses.dataclass(frozen=True, kw_only=True)
class LinearGradient:
    """sum over records of f e^T, for features f and errors e = softmax(W^T f) - onehot(y), shortened: one release.

    The gradient of a record's cross-entropy in W is the outer product of its features and its error, so shortening
    both shortens it, and no per-record gradient is ever formed.

    Formal guarantee: features are truncated towards zero to a grid of 2^-16, errors are shortened to `clip_norm` C and
    truncated to a grid of 2^-16 C; rows that are then longer than 1 or C, or that were not finite, are zero. Norms of
    outer products are products of norms, so no record's matrix is longer than C. Replacing one record, label included,
    changes the sum by at most 2 C in l2 norm. Sums are exact integers in units of the grids' product.

    Attributes:
      clip_norm: largest length C of a record's error, at most sqrt(2) without any effect.
      noise_multiplier: standard deviation of the noise divided by the sensitivity.
    """

    clip_norm: float
    noise_multiplier: float

    # In units of the grid.
    L2_SENSITIVITY: typing.ClassVar[float] = 2.0 * _STEPS**2

    def __post_init__(self):
        _validate.positive("clip_norm", self.clip_norm)
        _validate.positive("noise_multiplier", self.noise_multiplier)

    @staticmethod
    def grid(features: np.ndarray) -> np.ndarray:
        """Features [n, D] in units of the grid, as they are counted: float32 [n, D] of integers."""
        with np.errstate(invalid="ignore", over="ignore"):
            return _rows_within_grid(np.trunc(np.asarray(features, np.float64) * _STEPS)).astype(np.float32)

    def errors(self, features: np.ndarray, labels: np.ndarray, weights: np.ndarray) -> np.ndarray:
        """Errors of records as they are counted, in units of the grid: float64 [n, Y] of integers.

        Args:
          features: from `grid`, [n, D].
          labels: integers [n] in [0, Y).
          weights: W, float [D, Y].
        """
        with np.errstate(invalid="ignore", over="ignore", divide="ignore"):
            logits = (features @ (weights / np.float32(_STEPS)).astype(np.float32)).astype(np.float64)
            odds = np.exp(logits - logits.max(1, keepdims=True))
            errors = odds / odds.sum(1, keepdims=True)
            errors[np.arange(len(labels)), labels] -= 1.0
            lengths = np.linalg.norm(errors, axis=1, keepdims=True)
            units = np.trunc(errors / np.maximum(lengths, self.clip_norm) * _STEPS)
        return _rows_within_grid(units)

    def sums(self, batches: Iterable[tuple[np.ndarray, np.ndarray]], weights: np.ndarray) -> np.ndarray:
        """The exact, private sum, in units of the grid: float64 [D, Y] of integers.

        Args:
          batches: features from `grid` and labels, every record once.
          weights: W, float [D, Y].
        """
        total, count = np.zeros(weights.shape), 0
        for features, labels in batches:
            count += len(labels)
            _validate.require(count <= MAX_RECORDS, "number of records", count, f"<= {MAX_RECORDS}, for exact sums")
            total += features.astype(np.float64).T @ self.errors(features, labels, weights)
        return total

    def privatize(self, sums: np.ndarray, noise: NoiseSource, index: int) -> np.ndarray:
        """Adds the noise: the one private step. Charge first; `index` is the charge's.

        Returns:
          float64 [D, Y], the noisy sum of gradients in their own units; may be stored and published.
        """
        _validate.require(bool(np.all(sums == np.rint(sums))), "sums", "...", "to be integers, in units of the grid")
        noisy = add_noise(sums, self.noise_multiplier * self.L2_SENSITIVITY, noise, index)
        return noisy * (self.clip_norm / _STEPS**2)

    def dp_event(self) -> dp_accounting.DpEvent:
        """One Gaussian mechanism; the sensitivity to replacing one record is inside the noise multiplier."""
        return dp_accounting.GaussianDpEvent(self.noise_multiplier)


def _rows_within_grid(units: np.ndarray) -> np.ndarray:
    """Rows of integers, with those that are not finite, or longer than the grid allows, zero."""
    units[~np.isfinite(units).all(1)] = 0
    # Integers below 2^53: the comparison is exact.
    units[np.square(units).sum(1) > _STEPS**2] = 0
    return units
