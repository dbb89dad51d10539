"""The release of DP-MERF (Harder, Adamczewski and Park 2021): class-wise means of random Fourier features, once.

TensorFlow is imported only where features are computed: pricing a mechanism must not take the seconds of its import.
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
from datalens_tf.mechanisms.base import ADJACENCIES, gaussian_for
from datalens_tf.mechanisms.noise import NoiseSource

if typing.TYPE_CHECKING:
    import tensorflow as tf

# Features are truncated towards zero to multiples of _GRID: sums are integers, exact in float64, and no norm grows.
_ONE = 2**24  # steps of the grid
_GRID = 1 / _ONE
_LARGEST_COUNT_ERROR = 50  # The noise on a number of records should be at most 1 / 50 of that number.


@dataclasses.dataclass(frozen=True, kw_only=True)
class RandomFourierFeatures:
    """phi(x) = [cos(W x), sin(W x)] / sqrt(D / 2): |phi(x)| = 1, and <phi(x), phi(x')> estimates a kernel.

    The kernel is a mean of Gaussian ones, of the given bandwidths (Rahimi and Recht 2007). W is public.

    Attributes:
      num_features: D, even.
      bandwidths: standard deviations of the Gaussian kernels, in units of the l2 distance between images.
      dimension: numbers per image.
      seed: seed of W.
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

    A record of class y adds (phi(x), 1) to row y of an array [Y, D + 1]. The noise on numbers is 1 / c times that on
    features, as if c were added in place of 1. Formal guarantee, where lengths are those of (features, c times number):

    - Replacing one record changes the array by at most 2. If the label stays, one row changes by
      |phi(x) - phi(x')| <= 2, and its number stays. If the label changes, one row changes by (phi(x), c) and another by
      (phi(x'), c), together by sqrt(2 (1 + c^2)) <= 2. With c = 1, the numbers of records per class cost nothing; the
      published implementations take these numbers as known.
    - Adding or removing one changes the array by at most sqrt(1 + c^2). Under this relation a smaller c costs less, and
      leaves the numbers noise of sqrt(1 + c^2) / c times the noise multiplier: see `count_weight_for`.

    A record may be anything. Features are truncated towards zero to a grid. If the features of a record are longer than
    1 after that, or not finite, they become zero, and the record counts. A record whose label is no class contributes
    nothing.

    Where units of several records are protected, a record of a unit with m records adds (phi(x), 1) / m, so a unit adds
    the average of its records. After rounding, a unit adds features f_y and a number n_y >= |f_y| to row y, with
    sum n_y <= 1, whether it has few records, many, or none. The square length of the change is therefore at most
    sum (n_y + n'_y)^2 + (n_y - n'_y)^2 = 2 sum (n_y^2 + n'_y^2) <= 4 when one unit is replaced, and at most
    (1 + c^2) sum n_y^2 <= 1 + c^2 when one is added. So the sensitivities are those of one record.

    Attributes:
      noise_multiplier: standard deviation of the noise divided by the sensitivity.
      adjacency: the relation that the sensitivity is for, `replace-one` or `add-or-remove-one`.
      discrete: whether the noise is discrete Gaussian, like that of several owners. Here this decides only the price.
      count_weight: c, in (0, 1].
    """

    noise_multiplier: float
    adjacency: str = "replace-one"
    count_weight: float = 1.0
    discrete: bool = False

    def __post_init__(self) -> None:
        _validate.positive("noise_multiplier", self.noise_multiplier)
        _validate.one_of("adjacency", self.adjacency, ADJACENCIES)
        _validate.between("count_weight", self.count_weight, 0, 1, open_low=True)

    def sensitivity(self, adjacency: str) -> float:
        """Largest l2 change of the array between neighbours by this relation, in units of features."""
        _validate.one_of("adjacency", adjacency, ADJACENCIES)
        return math.sqrt(1.0 + self.count_weight**2) if adjacency == "add-or-remove-one" else 2.0

    @property
    def l2_sensitivity(self) -> float:
        """`sensitivity` for the mechanism's own relation."""
        return self.sensitivity(self.adjacency)

    @property
    def stddev(self) -> float:
        """Standard deviation of the noise on features, in units of the grid."""
        return self.noise_multiplier * self.l2_sensitivity / _GRID

    @property
    def largest(self) -> int:
        """The most that a record adds to any number, in units of the grid."""
        return _ONE

    @staticmethod
    def contributions(features: NDArray[Any], sizes: NDArray[np.int64]) -> NDArray[np.float64]:
        """Contributions of records, in units of the grid: float64 [n, D + 1] of integers, the number last.

        Args:
          features: [n, D].
          sizes: number of records of each record's unit, [n]; 1 where a record is a unit.
        """
        numbers = (_ONE // sizes).astype(np.float64)[:, None]
        with np.errstate(over="ignore"):
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

        Raises:
          InvalidArgumentError: the arrays have other shapes, in which a record would have no row of its own.
        """
        total: NDArray[np.float64] | None = None
        for features, labels, sizes in batches:
            _validate.require(
                np.ndim(features) == 2 and np.shape(labels) == np.shape(sizes) == np.shape(features)[:1],
                "features.shape", np.shape(features), f"to be ({np.size(labels)}, D), one row for each label")
            rows = self.contributions(features, sizes)
            total = np.zeros((num_classes, rows.shape[1])) if total is None else total
            _validate.require(rows.shape[1] == total.shape[1], "features.shape", np.shape(features),
                              f"to have {total.shape[1] - 1} numbers, as those before")
            for label in np.intersect1d(labels, np.arange(num_classes)).astype(int):
                total[label] += rows[labels == label].sum(0)
        return _validate.known("batches", total, "to have records")

    def privatize(self, sums: NDArray[np.float64], noise: NoiseSource, index: int) -> NDArray[np.float64]:
        """Adds the noise: the one private step. Charge first; `index` is the index of the charge.

        Returns:
          float64 [Y, D + 1], in units of the grid; may be stored and published.
        """
        integers = bool(np.all(sums == np.rint(sums)))
        _validate.require(integers, "sums", "...", "to be integers, in units of the grid")
        if self.count_weight == 1:
            drawn = noise.draw(sums.shape, self.stddev, index)
        else:
            drawn = np.concatenate([noise.draw((len(sums), sums.shape[1] - 1), self.stddev, index),
                                    noise.draw((len(sums), 1), self.stddev / self.count_weight, index)], 1)
        _validate.require(drawn.shape == sums.shape, "noise.shape", drawn.shape, f"to be {sums.shape}")
        return sums + drawn

    @staticmethod
    def means(noisy: NDArray[np.float64]) -> NDArray[np.float32]:
        """Mean features per class, float32 [Y, D]: post-processing. A noisy number below 1 is taken as 1."""
        means: NDArray[np.float64] = noisy[:, :-1] / np.maximum(noisy[:, -1:], 1 / _GRID)
        return means.astype(np.float32)

    @staticmethod
    def counts(noisy: NDArray[np.float64]) -> NDArray[np.float64]:
        """Released numbers of records per class, float64 [Y], 1 at least: post-processing."""
        return np.maximum(noisy[:, -1] * _GRID, 1.0)

    def dp_event(self, adjacency: str | None = None) -> dp_accounting.DpEvent:
        """One Gaussian mechanism; the sensitivity to a record or unit is inside the noise multiplier.

        Args:
          adjacency: relation to price the same noise for; None for the mechanism's own.
        """
        return gaussian_for(self, adjacency)


def count_weight_for(dimension: int, records_per_class: float, noise_multiplier: float) -> float:
    """The weight c of numbers of records under `add-or-remove-one`: a function of public numbers alone.

    A mean's squared error is about (1 + c^2) (D + 1 / c^2) times a constant, and c = D^(-1/4) makes it smallest. This c
    is too small where records are few: the number's own noise, z sqrt(1 + c^2) / c, should stay below a fiftieth of the
    number of records in a class. c = 1 is enough in any case: a larger c would cost the sums more than it tells about
    the numbers.

    Args:
      dimension: D.
      records_per_class: what is publicly known about the number of records in a class.
      noise_multiplier: z of the release.
    """
    enough = _LARGEST_COUNT_ERROR * noise_multiplier / records_per_class
    return min(1.0, max(1.0 / math.sqrt(math.sqrt(dimension)), enough))
