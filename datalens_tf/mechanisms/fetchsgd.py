"""FetchSGD for teachers: top-k stochastic signs in a Count Sketch (DataLens paper, Algorithm 7; Rothchild et al. 2020).

One deviation is necessary. The algorithm as printed takes the k largest coordinates of the *summed* votes and adds
noise to those. The choice of coordinates is then released without noise, and the values move with all teachers, so 2
sqrt(k) is not its sensitivity. Here the noise is on the summed sketch; unsketching and selecting the k largest are
post-processing. The sketch of one teacher is longer in l2 norm than its votes, because r rows repeat them and
coordinates that share a bucket (q at most) add up. This costs utility: for the same epsilon the noise is sqrt(r q)
times TopAgg's, and the median over r rows takes back less than sqrt(r) of this factor.
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
from datalens_tf.mechanisms.topagg import topk_stochastic_sign

if typing.TYPE_CHECKING:
    import tensorflow as tf


@dataclasses.dataclass(frozen=True, kw_only=True)
class FetchSgd(Mechanism):
    """Top-k stochastic signs, sketched, summed over the teachers, with Gaussian noise; then unsketched.

    Attributes:
      num_teachers: number of teachers N.
      dimension: numbers per image d.
      top_k: coordinates each teacher votes on, per image, and coordinates of the direction.
      clip: per-coordinate gradient clip; None for none. Does not affect privacy.
      noise_stddev: standard deviation sigma of the noise on the summed sketch, in votes; 0 switches the noise off, and
        then `dp_event` is a non-private event.
      sketch_rows: number of independent hashes r.
      sketch_columns: buckets per row w.
      hash_seed: seed of the public hashes.

    Raises:
      InvalidArgumentError: a value outside its domain.
    """

    num_teachers: int
    dimension: int
    top_k: int
    clip: float | None
    noise_stddev: float
    sketch_rows: int = 3
    sketch_columns: int = 512
    hash_seed: int = 0

    def __post_init__(self) -> None:
        for name, least in (("num_teachers", 1), ("dimension", 1), ("top_k", 1), ("sketch_rows", 1),
                            ("sketch_columns", 1), ("hash_seed", 0)):
            _validate.integer(name, getattr(self, name), at_least=least)
        _validate.top_k(self.top_k, self.dimension)
        if self.clip is not None:
            _validate.positive("clip", self.clip)
        _validate.real("noise_stddev", self.noise_stddev)
        _validate.require(self.noise_stddev >= 0, "noise_stddev", self.noise_stddev, ">= 0")

    @functools.cached_property
    def _hashes(self) -> tuple[NDArray[np.int64], NDArray[np.float32]]:
        """Buckets and signs of the coordinates, [r, d] each: coordinates are dealt out evenly, in a random order."""
        stream = rng.stream(self.hash_seed, "count sketch")
        dealt = np.arange(self.dimension) % self.sketch_columns
        buckets = np.stack([stream.permutation(dealt) for _ in range(self.sketch_rows)])
        return buckets, stream.choice(np.array([-1, 1], np.float32), buckets.shape)

    @property
    def largest_bucket(self) -> int:
        """Largest number q of coordinates that share a bucket."""
        return -(-self.dimension // self.sketch_columns)

    def compress(self, gradients: tf.Tensor, seeds: tf.Tensor) -> tf.Tensor:
        """Sketches float32 [T, m, r w] of `topk_stochastic_sign`; see `Mechanism.compress`."""
        import tensorflow as tf

        gradients = tf.convert_to_tensor(gradients, tf.float32)
        _validate.require(gradients.shape[-1] == self.dimension, "dimension", self.dimension,
                          f"to be {gradients.shape[-1]}, the numbers per image")
        row = [tf.shape(gradients)[1], self.top_k]
        uniforms = tf.map_fn(
            lambda seed: tf.random.stateless_uniform(row, seed), seeds, fn_output_signature=tf.float32)
        return self.sketch(topk_stochastic_sign(gradients, uniforms, self.top_k, self.clip))

    def sketch(self, votes: tf.Tensor) -> tf.Tensor:
        """The Count Sketch [..., r w] of votes [..., d]: each bucket of a row has the signed sum of its coordinates."""
        import tensorflow as tf

        buckets, signs = self._hashes
        places = np.stack([(buckets + self.sketch_columns * np.arange(self.sketch_rows)[:, None]).ravel(),
                           np.tile(np.arange(self.dimension), self.sketch_rows)], axis=1)
        order = np.lexsort(places.T[::-1])
        matrix = tf.SparseTensor(places[order], signs.ravel()[order],
                                 [self.sketch_rows * self.sketch_columns, self.dimension])
        flat = tf.reshape(votes, [-1, self.dimension])
        sketches = tf.transpose(tf.sparse.sparse_dense_matmul(matrix, flat, adjoint_b=True))
        return tf.reshape(sketches, tf.concat([tf.shape(votes)[:-1], [tf.shape(sketches)[-1]]], 0))

    def unsketch(self, sketches: NDArray[np.float64]) -> NDArray[np.float64]:
        """Estimates [m, d] of what was sketched [m, r w]: the median over the rows."""
        buckets, signs = self._hashes
        rows = np.reshape(sketches, [-1, self.sketch_rows, self.sketch_columns])
        found = [rows[:, row, buckets[row]] * signs[row] for row in range(self.sketch_rows)]
        estimates: NDArray[np.float64] = np.median(found, axis=0)
        return estimates

    def l2_sensitivity(self, num_images: int) -> float:
        """2 sqrt(r k min(q, k) m).

        In one row, bucket b has n_b of a teacher's k non-zeros, each +1 or -1, so its magnitude is at most
        n_b <= min(q, k). The squares of a row add up to at most min(q, k) times the sum of all n_b, which is k. Two
        sketches differ by at most twice the length of the longest.
        """
        _validate.integer("num_images", num_images, at_least=1)
        shared = min(self.largest_bucket, self.top_k)
        return 2.0 * math.sqrt(self.sketch_rows * self.top_k * shared * num_images)

    def privatize(self, vote_sum: NDArray[np.float64], noise: NoiseSource, index: int, share: float = 1.0
                  ) -> NDArray[np.float64]:
        """Summed sketch [m, r w] plus noise; see `Mechanism.privatize`."""
        largest = self.num_teachers * min(self.largest_bucket, self.top_k)
        return noisy_vote_sum(vote_sum, largest, self.noise_stddev, noise, index, share)

    def postprocess(self, noisy: NDArray[np.float64]) -> NDArray[np.float32]:
        """The k largest estimates of every image, in votes per teacher; the others are 0: float32 [m, d]."""
        estimates = self.unsketch(noisy)
        smallest = np.argsort(-np.abs(estimates), axis=1, kind="stable")[:, self.top_k:]
        np.put_along_axis(estimates, smallest, 0.0, axis=1)
        return (estimates / self.num_teachers).astype(np.float32)

    def dp_event(self, num_images: int) -> dp_accounting.DpEvent:
        """One Gaussian mechanism with noise multiplier sigma / (2 sqrt(r k min(q, k) m))."""
        return gaussian_event(self.noise_stddev, self.l2_sensitivity(num_images))
