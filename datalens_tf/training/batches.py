"""Batches of records for Keras' `fit`."""

import math
from collections.abc import Iterator

import numpy as np
import tensorflow as tf

from datalens_tf import rng
from datalens_tf.data.datasets import Dataset, to_unit


class Batches:
    """Batches in stored order. Records stay as stored and are scaled by batch: uint8 takes a quarter of the memory."""

    def __init__(self, dataset: Dataset, batch_size: int):
        self._dataset, self._batch_size = dataset, batch_size

    def __len__(self) -> int:
        return math.ceil(len(self._dataset) / self._batch_size)

    def _order(self) -> np.ndarray:
        """Places of the records in the next pass."""
        return np.arange(len(self._dataset))

    def __iter__(self) -> Iterator[tuple[np.ndarray, np.ndarray]]:
        order = self._order()
        for start in range(0, len(order), self._batch_size):
            chosen = order[start:start + self._batch_size]
            yield to_unit(self._dataset.images[chosen]), self._dataset.labels[chosen]

    def stream(self) -> tf.data.Dataset:
        """Pairs of images float32 [B, H, W, C] in [0, 1] and labels [B]; each epoch is one pass.

        TensorFlow tunes streams in a thread of its own. The end of an epoch waits for that thread, for seconds in which
        nothing is computed. As there is nothing to tune here, tuning is switched off.
        """
        records = tf.data.Dataset.from_generator(lambda: self, output_signature=(
            tf.TensorSpec([None, *self._dataset.image_shape], tf.float32),
            tf.TensorSpec([None], self._dataset.labels.dtype)))
        options = tf.data.Options()
        options.autotune.enabled = False
        return records.apply(tf.data.experimental.assert_cardinality(len(self))).prefetch(1).with_options(options)


class ShuffledBatches(Batches):
    """Batches in a new order in every pass."""

    def __init__(self, dataset: Dataset, batch_size: int, seed: int):
        super().__init__(dataset, batch_size)
        self._stream = rng.stream(int(seed), "classifier order")

    def _order(self) -> np.ndarray:
        return self._stream.permutation(len(self._dataset))
