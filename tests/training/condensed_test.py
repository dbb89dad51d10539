"""The network of condensed data sets: its shape, its augmentation in training alone, and what a seed decides."""

import numpy as np
import pytest
import tensorflow as tf

from datalens_tf.training import condensed


@pytest.mark.parametrize("shape, numbers", [((32, 32, 3), 4 * 4), ((28, 28, 1), 3 * 3), ((8, 8, 1), 1)])
def test_it_is_three_blocks_of_128_filters(shape, numbers):
    model = condensed.condensed_classifier(shape, 10)
    convolutions = [128 * (9 * channels + 1) for channels in (shape[2], 128, 128)]
    assert model.count_params() == sum(convolutions) + 3 * 2 * 128 + 10 * (128 * numbers + 1)
    assert model(np.zeros([2, *shape], np.float32), training=False).shape == (2, 10)


def test_images_are_moved_in_training_alone():
    images = np.random.default_rng(0).uniform(size=(4, 16, 16, 3)).astype(np.float32)
    model = condensed.condensed_classifier((16, 16, 3), 4)
    still = model(images, training=False)
    np.testing.assert_array_equal(still, model(images, training=False))
    first, second = (model(images, training=True).numpy() for _ in range(2))
    assert np.abs(first - second).max() > 0.01 and np.abs(first - still).max() > 0.01


@pytest.mark.parametrize("channels, mirrors", [(1, False), (3, True)])
def test_digits_are_never_mirrored(channels, mirrors):
    layers = condensed.condensed_classifier((16, 16, channels), 4).layers
    assert any(isinstance(layer, tf.keras.layers.RandomFlip) for layer in layers) is mirrors


def test_an_images_numbers_are_normalised_by_its_own_alone():
    images = np.random.default_rng(0).uniform(size=(4, 16, 16, 1)).astype(np.float32)
    model = condensed.condensed_classifier((16, 16, 1), 4)
    np.testing.assert_allclose(model(images, training=False)[:1], model(images[:1], training=False), atol=1e-5)


def test_the_normalisation_is_that_of_keras():
    inputs = tf.constant(np.random.default_rng(0).normal(2, 3, (4, 6, 5, 7)), tf.float32)
    values = []
    for layer in (condensed.InstanceNormalization(), tf.keras.layers.GroupNormalization(-1)):
        layer.build(inputs.shape)
        layer.set_weights([np.linspace(-1, 2, 7), np.linspace(3, 0, 7)])
        with tf.GradientTape() as tape:
            tape.watch(inputs)
            outputs = layer(inputs)
            weights = [inputs, *layer.trainable_variables]
            loss = tf.reduce_sum(tf.sin(outputs))
        values.append([outputs, *tape.gradient(loss, weights)])
    for own, theirs in zip(*values, strict=True):
        np.testing.assert_allclose(own, theirs, rtol=1e-4, atol=1e-4)


def test_the_seed_decides_weights_and_moves():
    images = np.random.default_rng(0).uniform(size=(4, 16, 16, 3)).astype(np.float32)
    one, again, other = (condensed.condensed_classifier((16, 16, 3), 4, seed)(images, training=True).numpy()
                         for seed in (1, 1, 2))
    np.testing.assert_array_equal(one, again)
    assert np.abs(one - other).max() > 0.01


def test_the_learning_rate_falls_after_half_of_the_steps():
    rate = condensed.condensed_optimizer(0.01, 100)._learning_rate
    assert float(rate(0)) == float(rate(50)) == pytest.approx(0.01) and float(rate(51)) == pytest.approx(0.001)
