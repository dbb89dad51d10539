"""Images of Gaussians, drawn as the moments say."""

import numpy as np
import pytest
import tensorflow as tf

from datalens_tf.models.factor_generator import FactorGenerator
from tests.models.factor_generators import SHAPE, generator, latents


def test_images_have_the_moments_of_their_class():
    made, count = generator(), 20_000
    images = made([latents(made, count), tf.ones([count], tf.int32)]).numpy().reshape(count, -1)
    factors = made.factors.numpy()[1] @ made.directions.numpy()
    np.testing.assert_allclose(images.mean(0), made.means.numpy()[1], atol=6 * 0.1 / np.sqrt(count))
    np.testing.assert_allclose(np.cov(images.T), factors.T @ factors, atol=2e-4)


def test_clusters_are_drawn_by_their_weights_and_have_their_own_images():
    made, count = generator(weights=((1.0, 1.0, 1.0), (3.0, 0.0, 1.0))), 20_000
    for label, shares in enumerate([(1 / 3, 1 / 3, 1 / 3), (0.75, 0.0, 0.25)]):
        images = made([latents(made, count, label), tf.fill([count], label)]).numpy().reshape(count, 1, -1)
        means = made.means.numpy().reshape(2, 3, 64)[label]
        nearest = np.square(images - np.clip(means, 0, 1)).sum(2).argmin(1)
        found = np.bincount(nearest, minlength=3) / count
        np.testing.assert_allclose(found, shares, atol=6 * 0.5 / np.sqrt(count))
        assert (found[1] == 0) == (shares[1] == 0)


def test_factors_that_no_cluster_has_are_left_out():
    factors = np.zeros((2, 1, 4, 1))
    factors[0, 0, 2], factors[1, 0, 1] = 0.125, 0.25

    def made(factors):
        return FactorGenerator(SHAPE, np.full((2, 1, 64), 0.5), factors, np.full((1, 64), 1.0), np.ones((2, 1)))

    images = made(factors)([tf.constant([[5.0, 1.0, 2.0, 0.0]] * 2), tf.constant([0, 1])]).numpy()
    np.testing.assert_array_equal(images, np.broadcast_to([[[[0.75]]], [[[0.75]]]], images.shape))
    assert made(0 * factors).latent_dim == 2


def test_means_beyond_half_precision_are_black_and_white():
    means = np.full((2, 1, 64), 1e9) * np.array([-1, 1])[:, None, None]
    made = FactorGenerator(SHAPE, means, np.full((2, 1, 1, 1), 1e9), np.zeros((1, 64)), np.ones((2, 1)))
    images = made([tf.ones([2, 2]), tf.constant([0, 1])]).numpy()
    assert np.all(images[0] == 0) and np.all(images[1] == 1)


@pytest.mark.parametrize("weights", [((1.0,), (1.0,)), ((1.0, 2.0), (5.0, 1.0))])
def test_each_image_is_its_own_latents_and_label(weights):
    made = generator(weights=weights)
    drawn, labels = latents(made, 6), tf.constant([0, 1, 0, 1, 1, 0])
    alone = [made([drawn[i:i + 1], labels[i:i + 1]])[0] for i in range(6)]
    np.testing.assert_allclose(made([drawn, labels]), alone, atol=1e-5)


def test_images_are_cut_off_at_black_and_white():
    made = FactorGenerator(SHAPE, np.full((2, 1, 64), 0.5), np.full((2, 1, 1, 1), 1.0), np.full((1, 64), 1.0),
                           np.ones((2, 1)))
    images = made([tf.constant([[-5.0, 0.0], [5.0, 0.0]]), tf.constant([0, 1])]).numpy()
    assert np.all(images[0] == 0) and np.all(images[1] == 1)
