"""Batches for `fit`: every record once a pass, in a new order where it is shuffled, and nothing sleeps at the end."""

import numpy as np
import tensorflow as tf

from datalens_tf.training.batches import Batches, ShuffledBatches
from tests.training import tiny


def numbered(count):
    """Records whose labels are their places."""
    return tiny.as_dataset(np.zeros((count, 8, 8, 1), np.uint8), np.arange(count), count)


def places(batches):
    """Places of the records of one pass, by batch."""
    return [labels.numpy().tolist() for _, labels in batches]


def test_stored_order_and_a_last_batch_that_is_short():
    stream = Batches(numbered(7), 3).stream()
    assert places(stream) == places(stream) == [[0, 1, 2], [3, 4, 5], [6]]
    assert int(stream.cardinality()) == 3


def test_every_pass_has_every_record_once_in_a_new_order():
    stream = ShuffledBatches(numbered(50), 8, seed=1).stream()
    passes = [[place for batch in places(stream) for place in batch] for _ in range(3)]
    assert all(sorted(one) == list(range(50)) for one in passes)
    assert len({tuple(one) for one in passes}) == 3
    again = ShuffledBatches(numbered(50), 8, seed=1)
    assert [[place for _, labels in again for place in labels.tolist()] for _ in range(3)] == passes


def test_pixels_are_scaled_to_0_and_1():
    data = numbered(4)
    data.images[1] = 255
    (images, _), = Batches(data, 4).stream()
    assert images.dtype == tf.float32 and images.shape == (4, 8, 8, 1)
    assert images[0].numpy().max() == 0.0 and images[1].numpy().min() == 1.0


def test_no_thread_tunes_the_stream():
    """The end of every epoch would wait for it."""
    assert Batches(numbered(4), 2).stream().options().autotune.enabled is False
