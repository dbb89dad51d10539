"""The sensitivity of mean embeddings, on neighbouring data; and their noise."""

import dp_accounting
import numpy as np
import pytest
import tensorflow as tf
from scipy import stats

from datalens_tf.errors import InvalidArgumentError
from datalens_tf.mechanisms.mean_embedding import _GRID, MeanEmbedding, RandomFourierFeatures
from datalens_tf.mechanisms.noise import RoundedGaussianNoise
from tests.mechanisms.conformance import with_odd_rows

MECHANISM = MeanEmbedding(noise_multiplier=3.0)
D = 6


def rows(random, count):
    """Features: of length 1, and what no image has: zero, huge, infinite, NaN, slightly too long."""
    found = random.normal(size=(count, D)).astype(np.float32)
    found /= np.linalg.norm(found, axis=1, keepdims=True)
    odd = [np.zeros(D), np.full(D, 1e30), np.full(D, np.inf), np.full(D, np.nan), [1 + 1e-6, 0, 0, 0, 0, 0],
           [-1, 0, 0, 0, 0, 0], [1, 0, 0, 0, 0, 0]]
    return with_odd_rows(found, odd, random)


def test_replacing_one_record_changes_the_sums_by_at_most_the_sensitivity():
    random, largest = np.random.default_rng(0), 0.0
    for _ in range(400):
        features, labels = rows(random, 8), random.integers(0, 3, 8)
        other_features, other_labels = features.copy(), labels.copy()
        position = random.integers(8)
        other_features[position] = -features[position] if random.random() < 0.3 else rows(random, 1)[0]
        if random.random() < 0.5:
            other_labels[position] = random.integers(0, 3)
        change = MECHANISM.sums([(features, labels)], 3) - MECHANISM.sums([(other_features, other_labels)], 3)
        largest = max(largest, np.linalg.norm(change) * _GRID)
    assert largest <= MECHANISM.L2_SENSITIVITY
    assert largest > 0.999 * MECHANISM.L2_SENSITIVITY  # It is attained, so it cannot be smaller.


def test_a_label_change_alone_costs_no_more():
    features = np.eye(D, dtype=np.float32)[:1]
    change = MECHANISM.sums([(features, np.array([0]))], 2) - MECHANISM.sums([(features, np.array([1]))], 2)
    assert np.linalg.norm(change) * _GRID == pytest.approx(2.0, rel=1e-6)


def test_sums_are_exact_integers_whatever_the_chunks():
    random = np.random.default_rng(1)
    features, labels = rows(random, 30), random.integers(0, 3, 30)
    whole = MECHANISM.sums([(features, labels)], 3)
    parts = MECHANISM.sums([(features[i:i + 7], labels[i:i + 7]) for i in range(0, 30, 7)], 3)
    np.testing.assert_array_equal(whole, parts)
    assert np.all(whole == np.rint(whole))
    np.testing.assert_array_equal(whole[:, -1] * _GRID, np.bincount(labels, minlength=3))


@pytest.mark.parametrize("factor, accepted", [(1.0, True), (2 / 3, False), (1.5, False)])
def test_the_noise_has_the_scale_that_is_charged_for(factor, accepted):
    zeros = np.zeros((40, 100))
    drawn = MECHANISM.privatize(zeros, RoundedGaussianNoise(), 0)
    scale = MECHANISM.noise_multiplier * MECHANISM.L2_SENSITIVITY / _GRID
    assert (stats.kstest(drawn.ravel(), "norm", args=(0, scale * factor)).pvalue > 1e-7) == accepted
    assert np.all(drawn == np.rint(drawn))
    assert MECHANISM.dp_event() == dp_accounting.GaussianDpEvent(3.0)


def test_what_is_no_sum_of_contributions_is_refused():
    with pytest.raises(InvalidArgumentError, match="to be integers"):
        MECHANISM.privatize(np.full((2, 3), 0.5), RoundedGaussianNoise(), 0)


def test_features_have_length_one_and_estimate_the_kernel():
    random = np.random.default_rng(2)
    images = tf.constant(random.random((5, 4, 4, 1)), tf.float32)
    features = RandomFourierFeatures(num_features=40_000, bandwidths=(1.0, 3.0), dimension=16, seed=0)
    found = RandomFourierFeatures.of(images, tf.constant(features.frequencies())).numpy()
    np.testing.assert_allclose(np.linalg.norm(found, axis=1), 1, rtol=1e-5)
    flat = images.numpy().reshape(5, -1)
    squares = np.square(flat[:, None] - flat).sum(-1)
    kernel = (np.exp(-squares / 2) + np.exp(-squares / 18)) / 2
    np.testing.assert_allclose(found @ found.T, kernel, atol=6 / np.sqrt(20_000))


def test_means_of_empty_classes_stay_bounded():
    noisy = MECHANISM.sums([(np.eye(D, dtype=np.float32)[:1], np.array([0]))], 3)
    noisy[2, -1] = -5 / _GRID
    means = MECHANISM.means(noisy)
    np.testing.assert_allclose(means[0], np.eye(D)[0], atol=1e-6)
    assert np.all(means[1:] == 0)
