"""The generator works at every promised size, and one image does not depend on its neighbours."""

import numpy as np
import pytest
import tensorflow as tf

from datalens_tf.models.generator import Generator


def make(shape=(8, 8, 1), classes=3, latent_dim=4, **options):
    tf.keras.utils.set_random_seed(0)
    return Generator(shape, classes, latent_dim, units=16, filters=8, **options)


@pytest.mark.parametrize("shape", [(8, 8, 1), (28, 28, 1), (12, 20, 3), (64, 64, 3), (10, 9, 1), (27, 50, 3)])
def test_images_have_the_promised_shape_and_range(shape):
    images = make(shape)([tf.random.normal([5, 4]), tf.constant([0, 1, 2, 0, 1])]).numpy()
    assert images.shape == (5, *shape)
    assert images.dtype == np.float32 and 0 <= images.min() <= images.max() <= 1


def test_an_image_of_another_size_is_the_upper_left_part_of_one_that_two_strided_layers_make():
    inputs = [tf.random.normal([5, 4]), tf.constant([0, 1, 2, 0, 1])]
    np.testing.assert_allclose(make((10, 9, 1))(inputs), make((12, 12, 1))(inputs)[:, :10, :9], rtol=1e-6)


@pytest.mark.parametrize("shape, times", [((40, 24, 3), 2), ((41, 26, 1), 3)])
def test_an_enlarged_image_is_a_smaller_one_with_pixels_between(shape, times):
    inputs = [10 * tf.random.normal([5, 4]), tf.constant([0, 1, 2, 0, 1])]
    small = make((-(-shape[0] // times), -(-shape[1] // times), shape[2]))(inputs)
    expected = tf.image.resize(small, [times * small.shape[1], times * small.shape[2]], "bicubic").numpy().clip(0, 1)
    np.testing.assert_allclose(make(shape, enlarge=times)(inputs), expected[:, :shape[0], :shape[1]], atol=1e-5)


def test_label_and_latents_both_matter():
    generator, latents = make(), tf.random.normal([2, 4], seed=1)
    generator.set_statistics(tf.random.normal([300, 4], seed=2), tf.constant(np.arange(300) % 3))
    images = generator([latents, tf.constant([0, 0])]).numpy()
    assert not np.allclose(images[0], images[1])
    assert not np.allclose(images, generator([latents, tf.constant([1, 2])]).numpy())


def test_one_image_alone_equals_the_same_image_among_many():
    generator = make()
    latents, labels = tf.random.normal([300, 4], seed=2), tf.constant(np.arange(300) % 3)
    generator.set_statistics(latents, labels)
    together = generator([latents, labels]).numpy()
    alone = generator([latents[:1], labels[:1]]).numpy()
    np.testing.assert_allclose(alone[0], together[0], atol=1e-6)


def test_set_statistics_reproduces_the_batch_it_was_given():
    generator = make()
    latents, labels = tf.random.normal([300, 4], seed=3), tf.constant(np.arange(300) % 3)
    generator.set_statistics(latents, labels)
    np.testing.assert_allclose(
        generator([latents, labels]), generator([latents, labels], training=True), atol=2e-3)
    before = [norm.moving_mean.numpy() for norm in generator.norms]
    generator([latents + 1, labels])
    for norm, mean in zip(generator.norms, before):
        np.testing.assert_array_equal(norm.moving_mean, mean)


def test_contrast_stretches_the_image_and_cuts_it_off_at_black_and_white():
    inputs = [10 * tf.random.normal([50, 4], seed=4), tf.constant(np.arange(50) % 3)]
    plain, stretched = make()(inputs).numpy(), make(contrast=500.0)(inputs).numpy()
    np.testing.assert_allclose(stretched, np.clip(0.5 + 500 * (plain - 0.5), 0, 1), atol=1e-4)
    assert stretched.min() == 0 and stretched.max() == 1
    np.testing.assert_array_equal(plain, make(contrast=1.0)(inputs))


def test_a_pixel_that_is_cut_off_can_still_learn():
    generator, gradients = make(contrast=500.0), []
    for contrast in (500.0, 1.0):
        generator.contrast = contrast
        with tf.GradientTape() as tape:
            images = generator([10 * tf.ones([3, 4]), tf.constant([0, 1, 2])], training=True)
        gradients.append(tape.gradient(images, generator.deconv_4.bias))
    assert gradients[0].numpy() != 0
    np.testing.assert_allclose(*gradients)
