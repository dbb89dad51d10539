"""Ensemble layers compute what a loop over ordinary Keras layers computes, and keep teachers apart."""

import numpy as np
import pytest
import tensorflow as tf

from datalens_tf.models.discriminator import EnsembleDiscriminator
from datalens_tf.models.ensemble import EnsembleBatchNormalization, EnsembleConv2D, EnsembleDense, conv_patches
from tests.models.keras_layers import keras_conv, keras_dense, label_planes

TEACHERS, BATCH, CLASSES = 3, 4, 5


def one_hot_labels(rng, batch=BATCH):
    return tf.one_hot(rng.integers(0, CLASSES, (TEACHERS, batch)), CLASSES)


def randomized(layer, rng):
    """Gives every weight random values, so that no term is tested at zero."""
    layer.set_weights([rng.normal(size=w.shape).astype(np.float32) for w in layer.get_weights()])
    return layer


@pytest.mark.parametrize("shape", [(8, 8, 1), (28, 28, 1), (12, 20, 3)])
@pytest.mark.parametrize("use_bias", [True, False])
def test_conv_equals_a_loop_of_keras_convolutions_with_label_planes(shape, use_bias):
    rng = np.random.default_rng(0)
    images = tf.constant(rng.normal(size=(TEACHERS, BATCH, *shape)), tf.float32)
    labels = one_hot_labels(rng)
    layer = EnsembleConv2D(TEACHERS, 6, use_bias=use_bias)
    layer.build([images.shape, labels.shape])
    randomized(layer, rng)
    with tf.GradientTape() as tape:
        tape.watch(images)
        output = layer((images, labels))
        loss = tf.reduce_sum(tf.sin(output))
    image_gradient, kernel_gradient, label_gradient = tape.gradient(loss, [images, layer.kernel, layer.label_kernel])
    for t in range(TEACHERS):
        conv, image = keras_conv(layer, t), images[t]
        with tf.GradientTape() as tape:
            tape.watch(image)
            expected = conv(tf.concat([image, label_planes(labels[t], *shape[:2])], -1))
            loss = tf.reduce_sum(tf.sin(expected))
        expected_image, expected_kernel = tape.gradient(loss, [image, conv.kernel])
        np.testing.assert_allclose(output[t], expected, rtol=1e-4, atol=1e-4)
        np.testing.assert_allclose(image_gradient[t], expected_image, rtol=1e-3, atol=1e-3)
        got = np.concatenate([kernel_gradient[t], label_gradient[t]], 1).reshape(expected_kernel.shape)
        np.testing.assert_allclose(got, expected_kernel, rtol=1e-3, atol=1e-3)


def test_conv_from_patches_and_image_gradient_agree_with_the_call():
    rng = np.random.default_rng(1)
    images = tf.constant(rng.normal(size=(TEACHERS, BATCH, 8, 8, 2)), tf.float32)
    labels = one_hot_labels(rng)
    layer = EnsembleConv2D(TEACHERS, 6)
    with tf.GradientTape() as tape:
        tape.watch(images)
        output = layer((images, labels))
    upstream = tf.constant(rng.normal(size=output.shape), tf.float32)
    np.testing.assert_allclose(layer.from_patches(conv_patches(images), labels), output, atol=1e-6)
    np.testing.assert_allclose(
        layer.image_gradient(upstream), tape.gradient(output, images, upstream), rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("use_bias", [True, False])
def test_dense_equals_a_loop_of_keras_layers(use_bias):
    rng = np.random.default_rng(2)
    features = tf.constant(rng.normal(size=(TEACHERS, BATCH, 7)), tf.float32)
    labels = one_hot_labels(rng)
    layer = EnsembleDense(TEACHERS, 6, use_bias=use_bias)
    layer.build([features.shape, labels.shape])
    randomized(layer, rng)
    output = layer((features, labels))
    for t in range(TEACHERS):
        expected = keras_dense(layer, t)(tf.concat([features[t], labels[t]], -1))
        np.testing.assert_allclose(output[t], expected, rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("shape", [(6,), (4, 4, 3)])
def test_batch_normalization_equals_a_loop_of_keras_layers_over_teachers_and_groups(shape):
    rng = np.random.default_rng(3)
    inputs = tf.constant(rng.normal(1, 3, size=(TEACHERS, 2 * BATCH, *shape)), tf.float32)
    upstream = tf.constant(rng.normal(size=inputs.shape), tf.float32)
    layer = EnsembleBatchNormalization(TEACHERS)
    layer.build(inputs.shape)
    randomized(layer, rng)
    with tf.GradientTape() as tape:
        tape.watch(inputs)
        output = layer(inputs, groups=2)
    gradients = tape.gradient(output, [inputs, layer.gamma, layer.beta], upstream)
    for t in range(TEACHERS):
        norm = tf.keras.layers.BatchNormalization(epsilon=1e-5)
        norm.build((None, *shape))
        norm.set_weights([layer.gamma[t], layer.beta[t], *norm.get_weights()[2:]])
        with tf.GradientTape() as tape:
            mine = inputs[t]
            tape.watch(mine)
            expected = tf.concat([norm(group, training=True) for group in tf.split(mine, 2)], 0)
        expected_gradients = tape.gradient(expected, [mine, norm.gamma, norm.beta], upstream[t])
        np.testing.assert_allclose(output[t], expected, rtol=1e-4, atol=1e-4)
        for got, want in zip(gradients, expected_gradients):
            np.testing.assert_allclose(got[t], want, rtol=1e-3, atol=1e-3)


def test_label_planes_matter_at_the_border():
    # A constant bias would be exact inside the image only: zero padding cuts the plane's taps off at the border.
    labels = tf.one_hot([[1]] * TEACHERS, CLASSES)
    layer = EnsembleConv2D(TEACHERS, 2, use_bias=False)
    output = layer((tf.zeros([TEACHERS, 1, 8, 8, 1]), labels)).numpy()[0, 0]
    assert not np.allclose(output[0, 0], output[1, 1])
    np.testing.assert_allclose(output[1, 1], output[1, 2], atol=1e-6)


@pytest.mark.parametrize("layer", [
    EnsembleConv2D(TEACHERS, 6, use_bias=False, dtype="mixed_bfloat16"), EnsembleDense(TEACHERS, 4),
    EnsembleBatchNormalization(TEACHERS, epsilon=1e-3)])
def test_config_round_trip(layer):
    config = layer.get_config()
    assert type(layer).from_config(config).get_config() == config


def test_teachers_start_different_within_a_layer_and_between_layers():
    layers = [EnsembleDense(2, 5) for _ in range(2)]
    for layer in layers:
        layer.build([(2, None, 5), (2, None, CLASSES)])
    kernels = [layer.kernel.numpy()[t] for layer in layers for t in range(2)]
    assert len({kernel.tobytes() for kernel in kernels}) == 4


def test_discriminator_gives_one_logit_per_image_and_gradients_that_point_to_higher_logits():
    rng = np.random.default_rng(4)
    model = EnsembleDiscriminator(TEACHERS, (8, 8, 1), CLASSES, filters=4, units=8)
    images = tf.constant(rng.uniform(size=(BATCH, 8, 8, 1)), tf.float32)
    labels = tf.one_hot(rng.integers(0, CLASSES, BATCH), CLASSES)
    gradients = model.image_gradients(images, labels)
    assert gradients.shape == (TEACHERS, BATCH, 8, 8, 1)

    def mean_log_real(x):
        return tf.reduce_mean(tf.math.log_sigmoid(model((x, tf.tile(labels[None], [TEACHERS, 1, 1])))), 1)

    tiled = tf.tile(images[None], [TEACHERS, 1, 1, 1, 1])
    with tf.GradientTape() as tape:
        tape.watch(tiled)
        total = tf.reduce_sum(mean_log_real(tiled))
    np.testing.assert_allclose(gradients, tape.gradient(total, tiled), rtol=1e-3, atol=1e-7)
    scale = 1e-2 / tf.norm(gradients)
    assert np.all(mean_log_real(tiled + scale * gradients) > mean_log_real(tiled))
