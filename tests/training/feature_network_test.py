"""Features learned from synthetic images: how long they are, what they tell apart, that they can be kept."""

import numpy as np
import pytest
import tensorflow as tf

from datalens_tf.training.feature_network import FeatureNetwork

SHAPE = (8, 12, 1)


def stripes(count, seed=0):
    """Class 0 lies, class 1 stands, class 2 is grey; with much noise."""
    random, labels = np.random.default_rng(seed), np.arange(count) % 3
    pattern = np.zeros((3, *SHAPE))
    pattern[0, ::2], pattern[1, :, ::2], pattern[2] = 1, 1, 0.5
    images = pattern[labels] * 0.4 + random.uniform(0, 0.6, (count, *SHAPE))
    return np.round(255 * images).astype(np.uint8), labels


@pytest.fixture(name="network", scope="module")
def fixture_network():
    network = FeatureNetwork(SHAPE, 3, seed=0)
    network.fit(*stripes(600), epochs=3)
    return network


def unit(images):
    return tf.constant(images / 255, tf.float32)


def test_no_image_has_longer_features_than_one(network):
    random = np.random.default_rng(1)
    odd = np.stack([np.zeros(SHAPE), np.ones(SHAPE), random.integers(0, 2, SHAPE), np.eye(8, 12)[..., None]])
    images = np.concatenate([odd, stripes(60, seed=2)[0] / 255, random.uniform(0, 1, (200, *SHAPE))])
    lengths = np.linalg.norm(network(tf.constant(images, tf.float32)).numpy().astype(np.float64), axis=1)
    assert lengths.max() <= 1 and lengths.max() > 0.999
    assert np.median(lengths[4:64]) == pytest.approx(1 / 1.3, abs=0.15)


def test_layers_have_their_shares_and_no_mean_over_what_was_learned_from(network):
    features = network(unit(stripes(600)[0])).numpy()
    np.testing.assert_allclose(features.mean(0), 0, atol=5e-3)  # Few are shortened.
    sizes = [2 * 3 * 32, 1 * 1 * 64, 128, 3]
    squares = [part.var(0).sum() * 1.3**2 for part in np.split(features, np.cumsum(sizes)[:-1], axis=1)]
    np.testing.assert_allclose(squares, [0.3, 0.35, 0.25, 0.1], rtol=0.1)


def test_new_images_of_different_classes_lie_apart(network):
    images, labels = stripes(300, seed=3)
    features = network(unit(images)).numpy()
    means = np.stack([features[labels == label].mean(0) for label in range(3)])
    nearest = np.linalg.norm(features[:, None] - means, axis=2).argmin(1)
    assert np.mean(nearest == labels) > 0.95


def test_an_images_features_are_its_own(network):
    images = unit(stripes(5, seed=4)[0])
    alone = np.concatenate([network(images[i:i + 1]) for i in range(5)])
    np.testing.assert_allclose(network(images), alone, atol=1e-6)


def test_the_seed_decides_and_arrays_bring_it_back(network):
    images = unit(stripes(5, seed=5)[0])
    same, other, restored = (FeatureNetwork(SHAPE, 3, seed=seed) for seed in (0, 1, 2))
    for made in (same, other):
        made.fit(*stripes(600), epochs=3)
    restored.restore(network.arrays())
    np.testing.assert_allclose(same(images), network(images), atol=1e-5)
    np.testing.assert_array_equal(restored(images), network(images))
    assert np.abs(other(images) - network(images)).max() > 1e-3


def test_it_can_be_differentiated(network):
    images = unit(stripes(2, seed=6)[0])
    with tf.GradientTape() as tape:
        tape.watch(images)
        total = tf.reduce_sum(tf.square(network(images)))
    found = tape.gradient(total, images).numpy()
    assert np.isfinite(found).all() and np.abs(found).max() > 0
