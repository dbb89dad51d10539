"""TopAgg, or any other mechanism of this package, as a TensorFlow-Privacy `DPQuery`.

Importing this module imports TensorFlow-Privacy, which takes seconds; nothing else in the package does.
"""

import collections
from typing import Any

import dp_accounting
import tensorflow as tf
import tensorflow_privacy as tfp

from datalens_tf import _validate
from datalens_tf.mechanisms.base import Mechanism
from datalens_tf.mechanisms.noise import NoiseSource, RoundedGaussianNoise

TopAggGlobalState = collections.namedtuple("TopAggGlobalState", ["num_releases"])


class TopAggSumQuery(tfp.SumAggregationDPQuery):
    """Sums compressed records, adds the mechanism's noise and returns the direction with its `DpEvent`.

    A record is one teacher's gradients, float32 [m, d]. The result is the direction, float32 [m, d]. The global state
    counts releases. Votes are drawn from TensorFlow's global generator, the noise from the `NoiseSource`, on the host,
    in eager mode and in a `tf.function` alike. The query charges no ledger: compose the events it returns.

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
        """Adds the votes of many teachers, gradients [T, m, d], at once: the fast way to `accumulate_record` each."""
        votes = self._votes(tf.convert_to_tensor(records, tf.float32))
        return self.accumulate_preprocessed_record(sample_state, tf.reduce_sum(votes, axis=0))

    def get_noised_result(
        self, sample_state: tf.Tensor, global_state: TopAggGlobalState
    ) -> tuple[tf.Tensor, TopAggGlobalState, dp_accounting.DpEvent]:
        """Returns (direction [m, d], new global state, the event of one release of m images).

        Raises:
          InvalidArgumentError: the number of images m is not known, so that the event would not be either.
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

    def _release(self, vote_sum, index):
        """Noise and threshold, in numpy float64."""
        return self._mechanism.postprocess(self._mechanism.privatize(vote_sum, self._noise, int(index)))
