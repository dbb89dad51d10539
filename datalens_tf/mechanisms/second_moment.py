"""The second moments of records' pixels, released once, with noise; a linear autoencoder is computed from them.

Source: Dwork, Talwar, Thakurta and Zhang, "Analyze Gauss", STOC 2014, algorithm 1. The linear autoencoder with k
numbers in its code that restores images best (in squared error) projects on the k leading eigenvectors of this matrix.
"""

import dataclasses
import math
from collections.abc import Iterable
from typing import Any

import dp_accounting
import numpy as np
from numpy.typing import NDArray
from scipy import linalg

from datalens_tf import _validate
from datalens_tf.mechanisms.base import ADJACENCIES, gaussian_for
from datalens_tf.mechanisms.noise import NoiseSource

_STEPS = 2**13  # grid steps per clip_norm: products are integers up to 2^26, and sums over 2^27 records are exact


@dataclasses.dataclass(frozen=True, kw_only=True)
class SecondMoment:
    """Sum of x x^T over records x of at most a given length, with Gaussian noise: one release.

    Formal guarantee: records are shortened to `clip_norm` R and truncated towards zero to a grid of 2^-13 R, so none is
    longer than R, whatever it was, and sums are exact integers. As |x x^T - x' x'^T|^2 = |x|^4 + |x'|^4 - 2 <x, x'>^2,
    replacing one record changes the d^2 numbers by at most sqrt(2) R^2 in l2 norm, and adding or removing one by
    |x|^2 <= R^2. A record may be any d numbers; one with infinite numbers or NaN, or one that is too long, contributes
    zeros.

    Where units of several records are protected, a record of a unit with m records counts as x / sqrt(m), so a unit
    adds the average of its x x^T. This matrix has no negative eigenvalues, however many rows it comes from. Its trace,
    and so its l2 norm, is at most R^2. The inner product of two units' matrices is not negative, so both
    sensitivities are those of one record.

    Attributes:
      clip_norm: largest length R of a record, in pixel units.
      noise_multiplier: standard deviation of the noise divided by the sensitivity.
      adjacency: the relation that the sensitivity is for, `replace-one` or `add-or-remove-one`.
      discrete: whether the noise is discrete Gaussian, like that of several owners. Here this decides only the price.
    """

    clip_norm: float
    noise_multiplier: float
    adjacency: str = "replace-one"
    discrete: bool = False

    def __post_init__(self) -> None:
        _validate.positive("clip_norm", self.clip_norm)
        _validate.positive("noise_multiplier", self.noise_multiplier)
        _validate.one_of("adjacency", self.adjacency, ADJACENCIES)

    def sensitivity(self, adjacency: str) -> float:
        """Largest l2 change of the sum between neighbours by this relation, in units of the grid's square."""
        _validate.one_of("adjacency", adjacency, ADJACENCIES)
        return (1.0 if adjacency == "add-or-remove-one" else math.sqrt(2.0)) * _STEPS**2

    @property
    def l2_sensitivity(self) -> float:
        """`sensitivity` for the mechanism's own relation."""
        return self.sensitivity(self.adjacency)

    @property
    def stddev(self) -> float:
        """Standard deviation of the noise, in units of the grid's square."""
        return self.noise_multiplier * self.l2_sensitivity

    @property
    def largest(self) -> int:
        """The most that a record adds to any number, in units of the grid's square."""
        return _STEPS**2

    def contributions(self, images: NDArray[Any], sizes: NDArray[np.int64]) -> NDArray[np.float64]:
        """Records as they are counted, in units of the grid: float64 [n, d] of integers.

        Args:
          images: [n, ...].
          sizes: number of records of each record's unit, [n]; 1 where a record is a unit.
        """
        vectors = np.reshape(images, (len(images), math.prod(images.shape[1:]))).astype(np.float64) / self.clip_norm
        with np.errstate(over="ignore", invalid="ignore"):
            lengths = np.linalg.norm(vectors, axis=1, keepdims=True)
            units: NDArray[np.float64] = np.trunc(
                vectors / np.maximum(lengths, 1.0) * (_STEPS / np.sqrt(sizes))[:, None])
        units[~np.isfinite(units).all(1)] = 0
        units[np.square(units).sum(1) > _STEPS**2 // sizes] = 0  # Integers: the comparison is exact.
        return units

    def sums(self, batches: Iterable[tuple[NDArray[Any], NDArray[np.int64]]]) -> NDArray[np.float64]:
        """The exact, private sums, float64 [d, d] of integers.

        Args:
          batches: images [n, ...] and `contributions`' sizes [n], every record once.

        Raises:
          InvalidArgumentError: batches of different shapes; numpy would spread a small one over the others' numbers.
        """
        total: NDArray[np.float64] | None = None
        for images, sizes in batches:
            units = self.contributions(images, sizes)
            square: NDArray[np.float64] = units.T @ units
            _validate.require(total is None or total.shape == square.shape, "images.shape", units.shape,
                              "to have as many numbers as those before")
            total = square if total is None else total + square
        return _validate.known("batches", total, "to have records")

    def privatize(self, sums: NDArray[np.float64], noise: NoiseSource, index: int) -> NDArray[np.float64]:
        """Adds the noise: the one private step. Charge first; `index` is the index of the charge.

        Returns:
          float64 [d, d], in units of the grid's square; may be stored and published.
        """
        _validate.require(bool(np.all(sums == np.rint(sums))), "sums", "...", "to be integers, in units of the grid")
        drawn = noise.draw(sums.shape, self.stddev, index)
        _validate.require(drawn.shape == sums.shape, "noise.shape", drawn.shape, f"to be {sums.shape}")
        return sums + drawn

    def mean(self, noisy: NDArray[np.float64], count: float) -> tuple[NDArray[np.float64], float]:
        """The mean of x x^T over `count` records, float64 [d, d], symmetric; and the largest eigenvalue of its noise.

        That eigenvalue is the edge of the semicircle. Pairs of equal entries are averaged, which leaves noise of
        standard deviation s on them, and eigenvalues of at most 2 sqrt(d) times s. Post-processing.
        """
        unit = self.clip_norm**2 / _STEPS**2 / count
        stddev = self.noise_multiplier * self.l2_sensitivity * unit
        return (noisy + noisy.T) / 2 * unit, math.sqrt(2.0 * len(noisy)) * stddev

    @staticmethod
    def encoder(noisy: NDArray[np.float64], code_dim: int) -> NDArray[np.float32]:
        """Orthonormal columns that images are multiplied with, float32 [d, k]: post-processing."""
        return largest_eigenvectors((noisy + noisy.T) / 2, code_dim)[1].astype(np.float32)

    def dp_event(self, adjacency: str | None = None) -> dp_accounting.DpEvent:
        """One Gaussian mechanism; the sensitivity to a record or unit is inside the noise multiplier.

        Args:
          adjacency: relation to price the same noise for; None for the mechanism's own.
        """
        return gaussian_for(self, adjacency)


def largest_eigenvectors(matrix: NDArray[np.float64], count: int) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """The largest eigenvalues of a symmetric matrix [d, d], in descending order, and their vectors as columns.

    There are `count` of them, but at most d. For a large matrix, computing a few takes a tenth of the time of all.
    """
    count = min(count, len(matrix))
    if count == 0:
        return np.zeros(0), np.zeros((len(matrix), 0))
    values, vectors = linalg.eigh(matrix, subset_by_index=(len(matrix) - count, len(matrix) - 1))
    return values[::-1], vectors[:, ::-1]
