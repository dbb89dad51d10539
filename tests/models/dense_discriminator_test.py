"""Dense discriminators: vectorised equals a loop, and every pixel is seen once."""

import numpy as np
import pytest
import tensorflow as tf

from datalens_tf.models.discriminator import EnsembleDenseDiscriminator, EnsembleDiscriminator
from datalens_tf.models.ensemble import conv_patches

SHAPE, CLASSES = (8, 12, 2), 3


def inputs(teachers=2, count=5):
    stream = np.random.default_rng(0)
    return (tf.constant(stream.uniform(size=(teachers, count, *SHAPE)), tf.float32),
            tf.one_hot(stream.integers(0, CLASSES, (teachers, count)), CLASSES))


def test_vectorised_equals_a_loop():
    """Each teacher's logits by hand: its pixels in blocks of 2x2, beside the one-hot label."""
    model, (images, labels) = EnsembleDenseDiscriminator(2, SHAPE, CLASSES, units=7), inputs()
    for variable in model.trainable_variables:
        variable.assign(tf.random.stateless_normal(variable.shape, [1, len(variable.name)]))
    got = model((images, labels)).numpy()
    for t in range(2):
        blocks = images[t].numpy().reshape(5, 4, 2, 6, 2, 2).transpose(0, 1, 3, 2, 4, 5).reshape(5, -1)
        one, two = model.dense_1, model.dense_2
        hidden = blocks @ one.kernel[t] + labels[t] @ (one.label_kernel[t] + one.bias[t])
        hidden = np.where(hidden > 0, hidden, 0.2 * hidden)
        want = hidden @ two.kernel[t] + labels[t] @ (two.label_kernel[t] + two.bias[t])
        np.testing.assert_allclose(got[t], np.asarray(want)[:, 0], rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize("kind", [EnsembleDiscriminator, EnsembleDenseDiscriminator])
def test_all_judge_the_same_images(kind):
    model, (images, labels) = kind(3, SHAPE, CLASSES, units=7), inputs(1)
    got = model.logits_of_each(images[0], labels[0])
    np.testing.assert_allclose(got, model((tf.tile(images, [3, 1, 1, 1, 1]), tf.tile(labels, [3, 1, 1]))), atol=1e-6)
    assert got.shape == (3, 5)


def test_bfloat16_products_are_close():
    full, (images, labels) = EnsembleDenseDiscriminator(2, SHAPE, CLASSES, units=7), inputs()
    half = EnsembleDenseDiscriminator(2, SHAPE, CLASSES, units=7, precision="mixed_bfloat16")
    for mine, theirs in zip(half.trainable_variables, full.trainable_variables):
        mine.assign(tf.cast(theirs, mine.dtype))
    logits = half.from_patches(conv_patches(images), labels, groups=1)
    assert logits.dtype == tf.float32
    np.testing.assert_allclose(logits, full((images, labels)), rtol=0.05, atol=0.01)
