"""Images of class Gaussians, drawn as the moments say."""

import numpy as np
import tensorflow as tf

from datalens_tf.models.factor_generator import FactorGenerator

SHAPE = (8, 8, 1)


def generator(num_factors=3):
    random = np.random.default_rng(0)
    return FactorGenerator(SHAPE, random.uniform(0.4, 0.6, (2, 64)), random.normal(0, 0.01, (2, num_factors, 64)))


def latents(made, count, seed=1):
    return tf.constant(np.random.default_rng(seed).standard_normal((count, made.latent_dim)), tf.float32)


def test_images_have_the_moments_of_their_class():
    made, count = generator(), 20_000
    images = made([latents(made, count), tf.ones([count], tf.int32)]).numpy().reshape(count, -1)
    factors = made.factors.numpy()[1]
    np.testing.assert_allclose(images.mean(0), made.means.numpy()[1], atol=6 * 0.03 / np.sqrt(count))
    np.testing.assert_allclose(np.cov(images.T), factors.T @ factors, atol=6e-5)


def test_each_image_is_its_own_latents_and_label():
    made = generator()
    drawn, labels = latents(made, 6), tf.constant([0, 1, 0, 1, 1, 0])
    alone = [made([drawn[i:i + 1], labels[i:i + 1]])[0] for i in range(6)]
    np.testing.assert_allclose(made([drawn, labels]), alone, atol=1e-5)


def test_images_are_cut_off_at_black_and_white():
    made = FactorGenerator(SHAPE, np.full((2, 64), 0.5), np.full((2, 1, 64), 1.0))
    images = made([tf.constant([[-5.0], [5.0]]), tf.constant([0, 1])]).numpy()
    assert np.all(images[0] == 0) and np.all(images[1] == 1)
