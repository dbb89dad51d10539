"""The second moments of records' pixels, once, with noise: what a linear autoencoder is computed from.

Source: Dwork, Talwar, Thakurta and Zhang, "Analyze Gauss", STOC 2014, algorithm 1. The linear autoencoder with k
numbers in its code that restores images best (in squared error) projects on the k leading eigenvectors of this matrix.
"""

import dataclasses
import math
import typing
from collections.abc import Iterable
from typing import Any

import dp_accounting
import numpy as np
from numpy.typing import NDArray

from datalens_tf import _validate
from datalens_tf.mechanisms.noise import NoiseSource

_STEPS = 2**13  # of the grid, per clip_norm: a record's products are integers up to 2^26, a billion records' exact


@dataclasses.dataclass(frozen=True, kw_only=True)
class SecondMoment:
    """sum of x x^T over records x of at most a given length, with Gaussian noise: one release.

    Formal guarantee: records are shortened to `clip_norm` R and truncated towards zero to a grid of 2^-13 R, so none is
    longer than R, whatever it was, and sums are exact integers. |x x^T - x' x'^T|^2 = |x|^4 + |x'|^4 - 2 <x, x'>^2, so
    replacing one record changes the d^2 numbers by at most sqrt(2) R^2 in l2 norm.

    Attributes:
      clip_norm: largest length R of a record, in pixel units.
      noise_multiplier: standard deviation of the noise divided by the sensitivity.
    """

    clip_norm: float
    noise_multiplier: float

    # In units of the grid's square.
    L2_SENSITIVITY: typing.ClassVar[float] = math.sqrt(2.0) * _STEPS**2

    def __post_init__(self) -> None:
        _validate.positive("clip_norm", self.clip_norm)
        _validate.positive("noise_multiplier", self.noise_multiplier)

    def contributions(self, images: NDArray[Any]) -> NDArray[np.float64]:
        """Records as they are counted, in units of the grid: float64 [n, d] of integers, for images [n, ...]."""
        vectors = np.reshape(images, (len(images), math.prod(images.shape[1:]))).astype(np.float64) / self.clip_norm
        with np.errstate(over="ignore", invalid="ignore"):
            lengths = np.linalg.norm(vectors, axis=1, keepdims=True)
            units: NDArray[np.float64] = np.trunc(vectors / np.maximum(lengths, 1.0) * _STEPS)
        units[~np.isfinite(units).all(1)] = 0
        units[np.square(units).sum(1) > _STEPS**2] = 0  # Integers: the comparison is exact.
        return units

    def sums(self, batches: Iterable[NDArray[Any]]) -> NDArray[np.float64]:
        """The exact, private sums, float64 [d, d] of integers, for images in batches, every record once."""
        total = np.zeros(())
        for units in map(self.contributions, batches):
            total = total + units.T @ units
        return total

    def privatize(self, sums: NDArray[np.float64], noise: NoiseSource, index: int) -> NDArray[np.float64]:
        """Adds the noise: the one private step. Charge first; `index` is the charge's.

        Returns:
          float64 [d, d], in units of the grid's square; may be stored and published.
        """
        _validate.require(bool(np.all(sums == np.rint(sums))), "sums", "...", "to be integers, in units of the grid")
        drawn = noise.draw(sums.shape, self.noise_multiplier * self.L2_SENSITIVITY, index)
        _validate.require(drawn.shape == sums.shape, "noise.shape", drawn.shape, f"to be {sums.shape}")
        return sums + drawn

    def mean(self, noisy: NDArray[np.float64], count: float) -> tuple[NDArray[np.float64], float]:
        """The mean of x x^T over so many records, float64 [d, d], symmetric; and the largest eigenvalue of its noise.

        The latter is the edge of the semicircle: pairs of equal entries are averaged, which leaves noise of standard
        deviation s on them, and eigenvalues of s times at most 2 sqrt(d). Post-processing.
        """
        unit = self.clip_norm**2 / _STEPS**2 / count
        stddev = self.noise_multiplier * self.L2_SENSITIVITY * unit
        return (noisy + noisy.T) / 2 * unit, math.sqrt(2.0 * len(noisy)) * stddev

    @staticmethod
    def encoder(noisy: NDArray[np.float64], code_dim: int) -> NDArray[np.float32]:
        """Orthonormal columns that images are multiplied with, float32 [d, k]: post-processing."""
        values, vectors = np.linalg.eigh((noisy + noisy.T) / 2)
        return vectors[:, np.argsort(values)[::-1][:code_dim]].astype(np.float32)

    def dp_event(self) -> dp_accounting.DpEvent:
        """One Gaussian mechanism; the sensitivity to replacing one record is inside the noise multiplier."""
        return dp_accounting.GaussianDpEvent(self.noise_multiplier)
