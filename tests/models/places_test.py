"""What is computed of a record does not depend on its place, on other records, or on luck."""

import numpy as np
import pytest
import tensorflow as tf

from datalens_tf.errors import InvalidArgumentError
from datalens_tf.models import places


def by_place(images):
    """Means, rounded by the place in the batch, as some convolutions do."""
    return tf.reduce_mean(images, [1, 2, 3]) * (1 + 1e-6 * tf.cast(tf.range(tf.shape(images)[0]) % 3, tf.float32))


def test_where_places_matter_records_are_computed_one_at_a_time():
    of, batch = places.anywhere(by_place, (12, 4, 4, 1), name="means"), np.random.default_rng(0).random((12, 4, 4, 1))
    batch = batch.astype(np.float32)
    np.testing.assert_array_equal(of(np.roll(batch, 5, 0)), np.roll(of(batch), 5))
    np.testing.assert_allclose(of(batch), batch.mean((1, 2, 3)), rtol=1e-6)
    assert not np.array_equal(by_place(np.roll(batch, 5, 0)), np.roll(by_place(batch), 5))


def test_where_they_do_not_a_batch_is_computed_at_once():
    sizes = []
    places.anywhere(lambda images: sizes.append(images.shape[0]) or images, (12, 4, 4, 1), name="images")
    assert sizes == [12]


def test_further_arguments_move_with_their_records():
    def labelled(images, labels):
        return by_place(images) * tf.cast(labels, tf.float32)

    labels = np.arange(12) % 5
    of = places.anywhere(labelled, (12, 4, 4, 1), labels, name="products")
    batch = np.random.default_rng(0).random((12, 4, 4, 1)).astype(np.float32)
    np.testing.assert_allclose(of(batch, labels), batch.mean((1, 2, 3)) * labels, rtol=1e-6)


@pytest.mark.parametrize("compute, message", [
    (lambda images: images - tf.reduce_mean(images, 0), "sums to keep records apart"),
    (lambda images: images + tf.random.uniform(tf.shape(images)), "sums to compute the same of a record wherever")])
def test_records_that_mix_and_results_of_luck_are_refused(compute, message):
    with pytest.raises(InvalidArgumentError, match=message):
        places.anywhere(compute, (12, 4, 4, 1), name="sums")


def test_what_depends_on_the_place_even_alone_is_refused(monkeypatch):
    monkeypatch.setattr(places, "_one_by_one", lambda compute: compute)
    with pytest.raises(InvalidArgumentError, match="means to compute the same of a record wherever"):
        places.anywhere(by_place, (12, 4, 4, 1), name="means")
