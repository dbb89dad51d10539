"""Images of class Gaussians: drawn as the moments say, warped within bounds, chosen by the classifier."""

import numpy as np
import pytest
import tensorflow as tf

from datalens_tf.models.factor_generator import FactorGenerator, affine_warp, latent_dim, matrices

SHAPE = (8, 8, 1)


def generator(num_factors=3, num_candidates=1, warp=0.0):
    made = FactorGenerator(SHAPE, 2, num_factors=num_factors, num_candidates=num_candidates)
    made.warp = warp
    random = np.random.default_rng(0)
    made.means.assign(random.uniform(0.4, 0.6, (2, 64)))
    made.factors.assign(random.normal(0, 0.01, (2, num_factors, 64)))
    return made


def latents(made, count, seed=1):
    return tf.constant(np.random.default_rng(seed).standard_normal((count, made.latent_dim)), tf.float32)


def test_images_have_the_moments_of_their_class():
    made, count = generator(), 20_000
    images = made([latents(made, count), tf.ones([count], tf.int32)]).numpy().reshape(count, -1)
    factors = made.factors.numpy()[1]
    np.testing.assert_allclose(images.mean(0), made.means.numpy()[1], atol=6 * 0.03 / np.sqrt(count))
    np.testing.assert_allclose(np.cov(images.T), factors.T @ factors, atol=6e-5)


def test_each_image_is_its_own_latents_and_label():
    made = generator(num_candidates=2, warp=1.0)
    random = np.random.default_rng(2)
    made.classifier.assign(random.normal(size=made.classifier.shape))
    drawn, labels = latents(made, 6), tf.constant([0, 1, 0, 1, 1, 0])
    alone = [made([drawn[i:i + 1], labels[i:i + 1]])[0] for i in range(6)]
    np.testing.assert_allclose(made([drawn, labels]), alone, atol=1e-5)


def test_no_warp_is_no_warp():
    images = tf.constant(np.random.default_rng(0).random((3, 12, 8, 2)), tf.float32)
    np.testing.assert_allclose(affine_warp(images, matrices(tf.zeros([3, 6]), (12, 8, 2))), images, atol=1e-6)


@pytest.mark.parametrize("moves, expected", [
    ([0, 0, 0, 0, 28 / 0.8 / 8, 0], lambda image: np.concatenate([image[:, 1:], image[:, -1:]], 1)),
    ([0, 0, 0, 0, 0, 28 / 0.8 / 8], lambda image: np.concatenate([image[1:], image[-1:]], 0)),
    ([np.pi / 2 / 0.1, 0, 0, 0, 0, 0], np.rot90)])
def test_shifts_and_turns_are_what_they_are_called(moves, expected):
    image = np.random.default_rng(1).random((8, 8, 1)).astype(np.float32)
    warped = affine_warp(tf.constant(image[None]), matrices(tf.constant([moves], tf.float32), SHAPE))[0]
    np.testing.assert_allclose(warped, expected(image), atol=1e-4)


def test_warped_images_stay_within_bounds():
    made = generator(warp=20.0)
    images = made([latents(made, 200), tf.zeros([200], tf.int32)]).numpy()
    assert np.all(np.isfinite(images)) and images.min() >= 0 and images.max() <= 1


def test_the_first_candidate_that_the_classifier_takes_for_the_label_is_chosen():
    made = generator(num_candidates=5)
    made.classifier.assign(np.random.default_rng(5).normal(size=made.classifier.shape))
    drawn, found = latents(made, 40), []
    single = generator(num_candidates=1)
    chosen = made([drawn, tf.zeros([40], tf.int32)]).numpy()
    for row, image in zip(drawn.numpy().reshape(40, 5, latent_dim(3, 1)), chosen):
        candidates = single([tf.constant(row), tf.zeros([5], tf.int32)])
        likelihood = tf.nn.softmax(made.scattering(candidates) @ made.classifier).numpy()
        right = np.flatnonzero(likelihood[:, 0] > 0.5)
        expected = right[0] if len(right) else np.argmax(likelihood[:, 0])
        np.testing.assert_allclose(image, candidates[expected], atol=1e-6)
        found.append(expected)
    assert len(set(found)) > 2
