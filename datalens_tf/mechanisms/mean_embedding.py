"""The release of DP-MERF (Harder, Adamczewski and Park 2021): class-wise means of random Fourier features, once.

TensorFlow is imported where features are computed: to price a mechanism must not take its seconds of import.
"""

from __future__ import annotations

import dataclasses
import math
import typing
from collections.abc import Iterable
from typing import Any

import dp_accounting
import numpy as np
from numpy.typing import NDArray

from datalens_tf import _validate, rng
from datalens_tf.mechanisms.noise import NoiseSource

if typing.TYPE_CHECKING:
    import tensorflow as tf

# Features are truncated towards zero to multiples of this: sums are integers, exact in float64, and no norm grows.
_ONE = 2**24  # of its steps
_GRID = 1 / _ONE
_CHUNK = 1000  # records whose features are in memory at once


@dataclasses.dataclass(frozen=True, kw_only=True)
class RandomFourierFeatures:
    """phi(x) = [cos(W x), sin(W x)] / sqrt(D / 2): |phi(x)| = 1, and <phi(x), phi(x')> estimates a kernel.

    The kernel is a mean of Gaussian ones, of the given bandwidths (Rahimi and Recht 2007). W is public.

    Attributes:
      num_features: D, even.
      bandwidths: standard deviations of the Gaussian kernels, in units of the l2 distance between images.
      dimension: numbers per image.
      seed: of W.
    """

    num_features: int
    bandwidths: tuple[float, ...]
    dimension: int
    seed: int

    def __post_init__(self) -> None:
        _validate.integer("num_features", self.num_features, at_least=2)
        _validate.require(self.num_features % 2 == 0, "num_features", self.num_features, "to be even")
        for bandwidth in self.bandwidths:
            _validate.positive("bandwidths", bandwidth)

    def frequencies(self) -> NDArray[np.float32]:
        """W, float32 [D / 2, d]; its rows take the bandwidths in turn."""
        stream = rng.stream(self.seed, "random features")
        rows = stream.standard_normal((self.num_features // 2, self.dimension), np.float32)
        return rows / np.resize(np.asarray(self.bandwidths, np.float32), len(rows))[:, None]

    @staticmethod
    def of(images: tf.Tensor, frequencies: tf.Tensor) -> tf.Tensor:
        """Features phi of images [n, ...] in [0, 1]: float32 [n, D]. Differentiable."""
        import tensorflow as tf

        angles = tf.matmul(tf.reshape(images, [tf.shape(images)[0], -1]), frequencies, transpose_b=True)
        scale = 1.0 / math.sqrt(frequencies.shape[0])
        return scale * tf.concat([tf.cos(angles), tf.sin(angles)], 1)


@dataclasses.dataclass(frozen=True, kw_only=True)
class MeanEmbedding:
    """Per class, the sum of its records' features and their number, with Gaussian noise: one release.

    A record of class y adds (phi(x), 1) to row y of an array [Y, D + 1]. Formal guarantee: replacing one record changes
    the array by at most 2 in l2 norm: in one row by |phi(x) - phi(x')| <= 2, the number stays; or, where the label
    changes, by (phi(x), 1) in one row and (phi(x'), 1) in another, sqrt(2 (1 + 1)) = 2. So the numbers of records per
    class, which the published implementations take as known, cost nothing here. Features are truncated towards zero
    to a grid, whatever they are; those of a record that would be longer than 1 after it, or not finite, are zero.

    Where units of several records are protected, a record of a unit with m records adds (phi(x), 1) / m, so a unit adds
    the average of its records. Rounded, it adds features f_y and a number c_y >= |f_y| to row y, with sum c_y <= 1, be
    its records few, many, or none. So replacing one unit changes the array's square length by at most
    sum (c_y + c'_y)^2 + (c_y - c'_y)^2 = 2 sum (c_y^2 + c'_y^2) <= 4: the sensitivity is that of one record.

    Attributes:
      noise_multiplier: standard deviation of the noise divided by the sensitivity.
    """

    noise_multiplier: float

    L2_SENSITIVITY: typing.ClassVar[float] = 2.0

    def __post_init__(self) -> None:
        _validate.positive("noise_multiplier", self.noise_multiplier)

    @staticmethod
    def contributions(features: NDArray[Any], sizes: NDArray[np.int64]) -> NDArray[np.float64]:
        """Contributions of records, in units of the grid: float64 [n, D + 1] of integers, the number last.

        Args:
          features: [n, D].
          sizes: number of records of each record's unit, [n]; 1 where a record is a unit.
        """
        numbers = (_ONE // sizes).astype(np.float64)[:, None]
        units = np.trunc(np.asarray(features, np.float64) * numbers)
        valid = np.isfinite(units).all(1)
        units[~valid] = 0
        # Integers below 2^53: the comparison is exact.
        units[np.square(units).sum(1) > np.square(numbers[:, 0])] = 0
        return np.concatenate([units, numbers], 1)

    def sums(self, batches: Iterable[tuple[NDArray[Any], NDArray[Any], NDArray[np.int64]]], num_classes: int
             ) -> NDArray[np.float64]:
        """The exact, private sums, in units of the grid: float64 [Y, D + 1] of integers.

        Args:
          batches: features [n, D], labels [n] and `contributions`' sizes [n], every record once.
          num_classes: Y.
        """
        total: NDArray[np.float64] | None = None
        for features, labels, sizes in batches:
            rows = self.contributions(features, sizes)
            total = np.zeros((num_classes, rows.shape[1])) if total is None else total
            for label in np.unique(labels):
                total[label] += rows[labels == label].sum(0)
        return _validate.known("batches", total, "to have records")

    def privatize(self, sums: NDArray[np.float64], noise: NoiseSource, index: int) -> NDArray[np.float64]:
        """Adds the noise: the one private step. Charge first; `index` is the charge's.

        Returns:
          float64 [Y, D + 1], in units of the grid; may be stored and published.
        """
        integers = bool(np.all(sums == np.rint(sums)))
        _validate.require(integers, "sums", "...", "to be integers, in units of the grid")
        drawn = noise.draw(sums.shape, self.noise_multiplier * self.L2_SENSITIVITY / _GRID, index)
        _validate.require(drawn.shape == sums.shape, "noise.shape", drawn.shape, f"to be {sums.shape}")
        return sums + drawn

    @staticmethod
    def means(noisy: NDArray[np.float64]) -> NDArray[np.float32]:
        """Mean features per class, float32 [Y, D]: post-processing. A class whose noisy number is below 1 counts 1."""
        means: NDArray[np.float64] = noisy[:, :-1] / np.maximum(noisy[:, -1:], 1 / _GRID)
        return means.astype(np.float32)

    @staticmethod
    def counts(noisy: NDArray[np.float64]) -> NDArray[np.float64]:
        """Released numbers of records per class, float64 [Y], 1 at least: post-processing."""
        return np.maximum(noisy[:, -1] * _GRID, 1.0)

    def dp_event(self) -> dp_accounting.DpEvent:
        """One Gaussian mechanism; the sensitivity to replacing one record or unit is inside the noise multiplier."""
        return dp_accounting.GaussianDpEvent(self.noise_multiplier)
