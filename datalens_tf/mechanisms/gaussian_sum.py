"""A noisy sum of clipped vectors, one per record: what DP-SGD releases (Abadi et al. 2016, algorithm 1).

TensorFlow is imported only where vectors are clipped: pricing a mechanism must not take the seconds of its import.
"""

from __future__ import annotations

import dataclasses
import typing

import dp_accounting
import numpy as np
from numpy.typing import NDArray

from datalens_tf import _validate
from datalens_tf.mechanisms.base import ADJACENCIES
from datalens_tf.mechanisms.noise import NoiseSource

if typing.TYPE_CHECKING:
    import tensorflow as tf

_STEPS = 2**20  # grid steps per clip_norm


@dataclasses.dataclass(frozen=True, kw_only=True)
class GaussianSum:
    """Vectors clipped to an l2 norm, summed over records, with Gaussian noise.

    Formal guarantee: a clipped vector is truncated towards zero to a grid of 2^-20 clip norms, so sums are exact
    integers. No clipped vector is longer than `clip_norm`, whatever it was: vectors that are not finite, and those that
    float32 left too long, become zero. Adding or removing a record therefore changes the sum by at most `clip_norm`,
    and replacing one by at most twice that. A record's vector may be any d numbers. Noise is exact and rounded to the
    grid as well (`RoundedGaussianNoise`).

    Attributes:
      clip_norm: largest l2 norm C of one record's vector.
      noise_multiplier: standard deviation of the noise divided by `record_norm`; 0 for none, and then `dp_event` is a
        non-private event.
      adjacency: `replace-one` or `add-or-remove-one`.
      sampling_probability: probability with which each record is in the sum, independently (Poisson sampling); 1 for
        all records.
    """

    clip_norm: float
    noise_multiplier: float
    adjacency: str
    sampling_probability: float = 1.0

    def __post_init__(self) -> None:
        _validate.positive("clip_norm", self.clip_norm)
        _validate.real("noise_multiplier", self.noise_multiplier)
        _validate.require(self.noise_multiplier >= 0, "noise_multiplier", self.noise_multiplier, ">= 0")
        _validate.one_of("adjacency", self.adjacency, ADJACENCIES)
        _validate.between("sampling_probability", self.sampling_probability, 0, 1, open_low=True)

    @property
    def record_norm(self) -> float:
        """Largest l2 norm of what one record adds to the sum."""
        return self.clip_norm

    @property
    def l2_sensitivity(self) -> float:
        """Largest l2 change of the sum between neighbouring data sets."""
        return self.record_norm * (2.0 if self.adjacency == "replace-one" else 1.0)

    @property
    def noise_stddev(self) -> float:
        """Standard deviation of the noise on every coordinate, in the vectors' units."""
        return self.noise_multiplier * self.record_norm

    def clip(self, vectors: tf.Tensor) -> tf.Tensor:
        """Vectors float32 [n, d], clipped: integers in units of the grid, float32 [n, d], each at most 2^20 long.

        Works in a `tf.function`. Sum them with `tf.reduce_sum` in float64.
        """
        import tensorflow as tf

        finite = tf.reduce_all(tf.math.is_finite(vectors), axis=1, keepdims=True)
        vectors = tf.where(finite, vectors, 0.0)
        # Divided by the largest magnitude first: squares of huge numbers are infinite.
        largest = tf.maximum(tf.reduce_max(tf.abs(vectors), axis=1, keepdims=True), 1e-30)
        norms = largest * tf.norm(vectors / largest, axis=1, keepdims=True)
        scale = tf.minimum(1.0 / self.clip_norm, (1.0 - 1e-4) / norms)
        units = tf.cast(tf.cast(vectors * scale * _STEPS, tf.int32), tf.float32)  # Casts truncate towards zero.
        # Integers below 2^20, squared and summed in float64: the comparison is exact.
        squares = tf.reduce_sum(tf.square(tf.cast(units, tf.float64)), axis=1, keepdims=True)
        return tf.where(squares <= float(_STEPS) ** 2, units, 0.0)

    def clip_sparse(self, vector: NDArray[np.float32]) -> tuple[NDArray[np.int64], NDArray[np.float32]]:
        """`clip` of one vector with many zeros, like a gradient through ReLUs; quicker where vectors are long.

        Args:
          vector: float32 [d].

        Returns:
          Positions int64 [m], each once, and the integers there, float32 [m]; they are 0 elsewhere.
        """
        positions = np.flatnonzero(vector != 0)  # Finding them in booleans is ten times as quick.
        values = vector[positions].astype(np.float64)  # in which squares and their sum are finite
        norm = np.sqrt(values @ values)
        if not np.isfinite(norm):
            return positions[:0], np.zeros(0, np.float32)
        # A product that was rounded up is truncated to an integer next to it, and the squares are integers as well.
        units = np.trunc(values * (_STEPS / max(self.clip_norm, norm)))
        if units @ units > float(_STEPS)**2:
            units = np.zeros_like(units)
        return positions, units.astype(np.float32)

    def privatize(self, total: NDArray[np.float64], noise: NoiseSource, index: int) -> NDArray[np.float64]:
        """Adds the noise to a sum of clipped vectors, in units of the grid: the one private step.

        Args:
          total: float64 [d] of integers.
          noise: where the noise comes from.
          index: index of the ledger charge that pays for this release; charge first, then call.

        Returns:
          float64 [d], the noisy sum of vectors in their own units; may be published.
        """
        total = np.asarray(total, np.float64)
        _validate.require(bool(np.all(total == np.rint(total))), "total", "...", "to be integers, in units of the grid")
        drawn = noise.draw(total.shape, self.noise_stddev / self.clip_norm * _STEPS, index)
        _validate.require(drawn.shape == total.shape, "noise.shape", drawn.shape, f"to be {total.shape}")
        return (total + drawn) * (self.clip_norm / _STEPS)

    def dp_event(self) -> dp_accounting.DpEvent:
        """The cost of one release, for an accountant that knows its adjacency; see `accounting.accountants`."""
        if self.noise_multiplier == 0:
            return dp_accounting.NonPrivateDpEvent()
        if self.sampling_probability == 1:
            return dp_accounting.GaussianDpEvent(self.noise_stddev / self.l2_sensitivity)
        return dp_accounting.PoissonSampledDpEvent(
            self.sampling_probability, dp_accounting.GaussianDpEvent(self.noise_multiplier))
