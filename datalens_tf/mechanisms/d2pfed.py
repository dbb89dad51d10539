"""D2P-Fed for teachers: rotation and stochastic levels for votes (DataLens paper, Algorithms 5 and 6).

Deviations from the paper: levels are centred, b[r] = r - (K - 1)/2. The printed levels, -k/2 + 2r, are not centred, and
a teacher with a zero gradient would vote. The printed algorithms leave out the rotation; here it is that of D2P-Fed
(Wang et al. 2020). Random public signs and a Hadamard transform spread a gradient over all coordinates, so that levels
suit all of them. The price is that every coordinate votes: the noise multiplier is sigma / (2 (K - 1) sqrt(d' m)), with
d' the smallest power of two >= d, where TopAgg's is sigma / (2 sqrt(k m)).
"""

from __future__ import annotations

import dataclasses
import functools
import math
import typing

import dp_accounting
import numpy as np
from numpy.typing import NDArray

from datalens_tf import _validate, rng
from datalens_tf.mechanisms.base import Mechanism, gaussian_event, noisy_vote_sum
from datalens_tf.mechanisms.noise import NoiseSource

if typing.TYPE_CHECKING:
    import tensorflow as tf

_LARGEST_SUM = 2**24  # up to which float32 has all integers


@dataclasses.dataclass(frozen=True, kw_only=True)
class D2PFed(Mechanism):
    """Rotated gradients in K stochastic levels, summed over the teachers, with Gaussian noise and a threshold.

    Votes are twice the levels, integers from -(K - 1) to K - 1 in steps of two. N (K - 1) is at most 2^24, so that
    float32 sums of them are exact.

    Attributes:
      num_teachers: number of teachers N.
      dimension: numbers per image d.
      num_levels: levels per coordinate K, at least 2; two levels are signs.
      clip: per-coordinate gradient clip; None for none. Does not affect privacy.
      noise_stddev: standard deviation sigma of the noise on the sum, in votes, which is twice that on levels; 0
        switches the noise off, and then `dp_event` is a non-private event.
      vote_threshold: fraction beta, in [0, 1], of the largest possible sum N (K - 1) that a noisy sum must reach to
        count.
      rotation_seed: seed of the public rotation.

    Raises:
      InvalidArgumentError: a value outside its domain.
    """

    num_teachers: int
    dimension: int
    num_levels: int
    clip: float | None
    noise_stddev: float
    vote_threshold: float
    rotation_seed: int = 0

    def __post_init__(self) -> None:
        for name, least in (("num_teachers", 1), ("dimension", 1), ("num_levels", 2), ("rotation_seed", 0)):
            _validate.integer(name, getattr(self, name), at_least=least)
        _validate.require(self.num_teachers * (self.num_levels - 1) <= _LARGEST_SUM, "num_levels", self.num_levels,
                          f"<= {_LARGEST_SUM // self.num_teachers + 1}, because float32 sums of {self.num_teachers} "
                          "teachers' larger votes are not exact")
        if self.clip is not None:
            _validate.positive("clip", self.clip)
        _validate.real("noise_stddev", self.noise_stddev)
        _validate.require(self.noise_stddev >= 0, "noise_stddev", self.noise_stddev, ">= 0")
        _validate.between("vote_threshold", self.vote_threshold, 0, 1)

    @property
    def padded_dimension(self) -> int:
        """d', the smallest power of two that is at least d."""
        return 1 << (self.dimension - 1).bit_length()

    def compress(self, gradients: tf.Tensor, seeds: tf.Tensor) -> tf.Tensor:
        """Votes float32 [T, m, d'], in the rotated basis; see `Mechanism.compress`."""
        import tensorflow as tf

        gradients = tf.convert_to_tensor(gradients, tf.float32)
        _validate.require(gradients.shape[-1] == self.dimension, "dimension", self.dimension,
                          f"to be {gradients.shape[-1]}, the numbers per image")
        finite = tf.reduce_all(tf.math.is_finite(gradients), axis=-1, keepdims=True)
        values = tf.where(finite, gradients, 0.0)
        if self.clip is not None:
            values = tf.clip_by_value(values, -self.clip, self.clip)
        # Scaled before the rotation as well, because sums of huge numbers are infinite.
        padded = tf.pad(_scaled(values), [[0, 0], [0, 0], [0, self.padded_dimension - self.dimension]])
        values = _scaled(self.rotate(padded))
        shape = tf.shape(values)[1:]
        uniforms = tf.map_fn(
            lambda seed: tf.random.stateless_uniform(shape, seed), seeds, fn_output_signature=tf.float32)
        steps = tf.cast(self.num_levels - 1, tf.float32)
        levels = tf.clip_by_value(tf.floor((values + 1.0) / 2.0 * steps + uniforms), 0.0, steps)
        votes = 2.0 * levels - steps
        return tf.where(tf.reduce_any(values != 0.0, axis=-1, keepdims=True), votes, 0.0)

    def rotate(self, values: tf.Tensor) -> tf.Tensor:
        """The public rotation of [..., d'] with l2 norms kept: random signs, then a Hadamard transform."""
        return _hadamard(values * self._signs())

    def unrotate(self, values: tf.Tensor) -> tf.Tensor:
        """Inverse of `rotate`."""
        return _hadamard(values) * self._signs()

    def _signs(self) -> NDArray[np.float32]:
        stream = rng.stream(self.rotation_seed, "rotation")
        return stream.choice(np.array([-1, 1], np.float32), self.padded_dimension)

    def l2_sensitivity(self, num_images: int) -> float:
        """2 (K - 1) sqrt(d' m): every coordinate of one teacher goes from one end to the other."""
        _validate.integer("num_images", num_images, at_least=1)
        return 2.0 * (self.num_levels - 1) * math.sqrt(self.padded_dimension * num_images)

    def privatize(self, vote_sum: NDArray[np.float64], noise: NoiseSource, index: int, share: float = 1.0
                  ) -> NDArray[np.float64]:
        """Sum [m, d'] plus noise, in votes, in the rotated basis; see `Mechanism.privatize`."""
        return noisy_vote_sum(vote_sum, self.num_teachers * (self.num_levels - 1), self.noise_stddev, noise, index,
                              share)

    def postprocess(self, noisy: NDArray[np.float64]) -> NDArray[np.float32]:
        """Algorithm 6's threshold in the rotated basis, and the inverse rotation: float32 [m, d], of any sign."""
        bar = self.vote_threshold * self.num_teachers * (self.num_levels - 1)
        kept = np.where(noisy >= bar, 1.0, np.where(noisy <= -bar, -1.0, 0.0)).astype(np.float32)
        return np.asarray(self.unrotate(kept))[:, :self.dimension]

    def dp_event(self, num_images: int) -> dp_accounting.DpEvent:
        """One Gaussian mechanism with noise multiplier sigma / (2 (K - 1) sqrt(d' m))."""
        return gaussian_event(self.noise_stddev, self.l2_sensitivity(num_images))


def _scaled(values: tf.Tensor) -> tf.Tensor:
    """Rows divided by their largest magnitude; zero rows stay."""
    import tensorflow as tf

    return tf.math.divide_no_nan(values, tf.reduce_max(tf.abs(values), axis=-1, keepdims=True))


def _hadamard(values: tf.Tensor) -> tf.Tensor:
    """The Hadamard transform of [..., n], n a power of two, divided by sqrt(n): its own inverse.

    The matrix for n = a b is the Kronecker product of those for a and b, so two products with small matrices suffice.
    The tensors have three dimensions: with oneDNN, `matmul` of four dimensions with two corrupts memory in TensorFlow
    2.20 and 2.21 (its issue 117700).
    """
    import tensorflow as tf

    size = values.shape[-1]
    rows = 2 ** (size.bit_length() // 2)
    grid = tf.reshape(values, [-1, rows, size // rows])
    grid = tf.matmul(tf.matmul(_matrix(rows), grid), _matrix(size // rows))
    return tf.reshape(grid, tf.shape(values))


@functools.lru_cache(None)
def _matrix(size: int) -> NDArray[np.float32]:
    from scipy import linalg

    matrix: NDArray[np.float64] = linalg.hadamard(size) / math.sqrt(size)
    return matrix.astype(np.float32)
