"""TopAgg, or any other mechanism of this package, and NormTopK, as TensorFlow-Privacy `DPQuery`s.

Importing this module imports TensorFlow-Privacy, which takes seconds. TensorFlow-Privacy is the extra `tf-privacy`,
which does not exist for Python 3.12.
"""

import collections
import math
from typing import Any

import dp_accounting
import numpy as np
import tensorflow as tf
from numpy.typing import NDArray

from datalens_tf import _validate
from datalens_tf.errors import InvalidArgumentError
from datalens_tf.mechanisms.base import Mechanism
from datalens_tf.mechanisms.noise import NoiseSource, RoundedGaussianNoise
from datalens_tf.mechanisms.norm_topk import norm_topk

try:
    import tensorflow_privacy as tfp
except ImportError as error:
    raise InvalidArgumentError(f"Expected tensorflow-privacy for mechanisms.dp_query ({error}): pip install "
                               "'datalens_tf[tf-privacy]', with Python 3.11, brings it.") from error

TopAggGlobalState = collections.namedtuple("TopAggGlobalState", ["num_releases"])


class TopAggSumQuery(tfp.SumAggregationDPQuery):
    """Sums compressed records, adds the mechanism's noise and returns the direction with its `DpEvent`.

    A record is one teacher's gradients, float32 [m, d]. The result is the direction, float32 [m, d]. The global state
    counts releases. Votes are drawn from TensorFlow's global generator. Noise is drawn from the `NoiseSource`, on the
    host, in eager mode and in a `tf.function` alike. The query charges no ledger: compose the events it returns.

    Args:
      mechanism: holds compression, sensitivity, noise and threshold; its `num_teachers` is the number of records.
      noise: where the noise comes from; the operating system's entropy by default.
    """

    def __init__(self, mechanism: Mechanism, noise: NoiseSource | None = None):
        self._mechanism = mechanism
        self._noise = noise or RoundedGaussianNoise()

    def initial_global_state(self) -> TopAggGlobalState:
        """No releases yet."""
        return TopAggGlobalState(num_releases=tf.constant(0, tf.int64))

    def preprocess_record(self, params: Any, record: tf.Tensor) -> tf.Tensor:
        """Compresses one teacher's gradients [m, d] to votes [m, d]."""
        return self._votes(tf.convert_to_tensor(record, tf.float32)[tf.newaxis])[0]

    def accumulate_records(self, params: Any, sample_state: tf.Tensor, records: tf.Tensor) -> tf.Tensor:
        """Adds the votes of many teachers, gradients [T, m, d], at once: faster than `accumulate_record` for each."""
        votes = self._votes(tf.convert_to_tensor(records, tf.float32))
        return self.accumulate_preprocessed_record(sample_state, tf.reduce_sum(votes, axis=0))

    def get_noised_result(
        self, sample_state: tf.Tensor, global_state: TopAggGlobalState
    ) -> tuple[tf.Tensor, TopAggGlobalState, dp_accounting.DpEvent]:
        """Returns (direction [m, d], new global state, the event of one release of m images).

        Raises:
          InvalidArgumentError: the number of images m is not known, so the event is not known either.
        """
        num_images = sample_state.shape[0]
        _validate.require(num_images is not None, "sample_state.shape", sample_state.shape, "to be known")
        direction = tf.numpy_function(self._release, [sample_state, global_state.num_releases], tf.float32)
        direction.set_shape(sample_state.shape)
        new_state = TopAggGlobalState(num_releases=global_state.num_releases + 1)
        return direction, new_state, self._mechanism.dp_event(num_images)

    def _votes(self, gradients: tf.Tensor) -> tf.Tensor:
        """Votes [T, m, d] of gradients [T, m, d], with fresh quantisation seeds."""
        _validate.require(gradients.shape.rank == 3, "record.shape", gradients.shape[1:], "to be (images, numbers)")
        seeds = tf.random.uniform([tf.shape(gradients)[0], 2], 0, tf.int32.max, tf.int32)
        return self._mechanism.compress(gradients, seeds)

    def _release(self, vote_sum: NDArray[np.float64], index: np.int64) -> NDArray[np.float32]:
        """Noise and threshold, in numpy float64."""
        return self._mechanism.postprocess(self._mechanism.privatize(vote_sum, self._noise, int(index)))


class NormTopKSumQuery(tfp.GaussianSumQuery):
    """Sums clipped records that keep their largest coordinates (`mechanisms.norm_topk`), with Gaussian noise.

    This query is for tensorflow_privacy's Keras optimizers that take a query, `GenericDPSGDOptimizer` for example. A
    record is a gradient, of any structure of float32 tensors; norms and coordinates are of all tensors together. With
    k = 1 this is the library's `GaussianSumQuery` to the bit, except that records that are not finite become 0. It is
    not for XLA.

    Formal guarantee: with k < 1, a preprocessed record's l2 norm is at most sqrt(k) l2_norm_clip, whatever the record
    is; with k = 1 at most l2_norm_clip up to float32's rounding, as in the library. This bound is the sensitivity to
    adding or removing a record, and the event is for that relation. The noise is the library's: floats from
    TensorFlow's generator. `datalens classify` has exact noise.

    Args:
      l2_norm_clip: C.
      noise_multiplier: standard deviation of the noise divided by sqrt(k) C.
      k: in (0, 1], the largest part of the squared norm that is kept.
    """

    def __init__(self, l2_norm_clip: float, noise_multiplier: float, k: float):
        _validate.positive("l2_norm_clip", l2_norm_clip)
        _validate.real("noise_multiplier", noise_multiplier)
        _validate.require(noise_multiplier >= 0, "noise_multiplier", noise_multiplier, ">= 0")
        _validate.between("k", k, 0, 1, open_low=True)
        super().__init__(l2_norm_clip, math.sqrt(k) * l2_norm_clip * noise_multiplier)
        self._noise_multiplier, self._k = noise_multiplier, k

    def preprocess_record_impl(self, params: tf.Tensor, record: Any) -> tuple[Any, tf.Tensor]:
        """The clipped and selected record, and its norm before clipping."""
        clipped, norm = super().preprocess_record_impl(params, record)
        parts = tf.nest.flatten(clipped)
        whole = tf.concat([tf.reshape(part, [-1]) for part in parts], 0)
        selected = tf.numpy_function(self._select, [whole, params], tf.float32)
        sizes = [tf.size(part) for part in parts]
        selected = [tf.ensure_shape(tf.reshape(new, tf.shape(part)), part.shape)
                    for new, part in zip(tf.split(selected, sizes), parts)]
        return tf.nest.pack_sequence_as(clipped, selected), norm

    def get_noised_result(self, sample_state: Any, global_state: Any) -> tuple[Any, Any, dp_accounting.DpEvent]:
        """The noisy sum, the global state, and what one release costs."""
        result, global_state, _ = super().get_noised_result(sample_state, global_state)
        return result, global_state, (dp_accounting.GaussianDpEvent(self._noise_multiplier)
                                      if self._noise_multiplier else dp_accounting.NonPrivateDpEvent())

    def _select(self, vector: NDArray[np.float32], clip_norm: np.float32) -> NDArray[np.float32]:
        """Selects on the host; the norm bound is slightly below C, for the rounding of sums of squares."""
        return norm_topk(vector, self._k, norm_bound=float(clip_norm) * (1 - 1e-9))
