"""Features of images by fixed filters: what they see, and what they must not depend on."""

import numpy as np
import pytest
import tensorflow as tf

from datalens_tf.errors import InvalidArgumentError
from datalens_tf.models.scattering import Scattering, gabor_filters


def pictures(count, shape, seed=0):
    return tf.constant(np.random.default_rng(seed).random((count, *shape)), tf.float32)


@pytest.mark.parametrize("shape, size", [((28, 28, 1), 3969), ((32, 32, 3), 15552), ((8, 8, 1), 324)])
def test_features_have_length_one(shape, size):
    scattering = Scattering(shape)
    features = scattering(pictures(4, shape))
    assert features.shape == (4, size) and scattering.num_features == size
    np.testing.assert_allclose(np.linalg.norm(features, axis=1), 1, atol=1e-5)


def test_features_of_an_image_do_not_depend_on_its_neighbours():
    scattering, images = Scattering((12, 12, 3)), pictures(6, (12, 12, 3))
    alone = tf.concat([scattering(images[i:i + 1]) for i in range(6)], 0)
    np.testing.assert_allclose(scattering(images), alone, atol=1e-6)


def test_images_without_contrast_have_finite_features_and_gradients():
    scattering = Scattering((8, 8, 1))
    images = tf.Variable(tf.concat([tf.zeros([1, 8, 8, 1]), tf.ones([1, 8, 8, 1])], 0))
    with tf.GradientTape() as tape:
        features = scattering(images)
    assert np.all(np.isfinite(features)) and np.all(np.linalg.norm(features, axis=1) <= 1 + 1e-5)
    assert np.all(np.isfinite(tape.gradient(features, images)))


def test_filters_are_blind_to_brightness_and_tell_orientations_apart():
    bank = gabor_filters()[:, :, 0]
    np.testing.assert_allclose(bank.sum((0, 1)), 0, atol=1e-6)
    stripes = np.cos(3 * np.pi / 4 * (np.arange(7) - 3))
    strength = [np.hypot((bank[..., i] * image).sum(), (bank[..., i + 8] * image).sum())
                for image in (np.tile(stripes, (7, 1)), np.tile(stripes, (7, 1)).T) for i in range(8)]
    assert np.argmax(strength[:8]) == 0 and np.argmax(strength[8:]) == 4


def test_other_sizes_are_refused():
    with pytest.raises(InvalidArgumentError, match="divisible by 4"):
        Scattering((30, 28, 1))
