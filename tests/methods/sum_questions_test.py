"""Features of large images are those of their squares' means, and of nothing else."""

import numpy as np
import tensorflow as tf

from datalens_tf.data.datasets import as_dataset
from datalens_tf.facts import DataSpec
from datalens_tf.mechanisms.correct_counts import CorrectCounts
from datalens_tf.methods import sum_questions
from datalens_tf.training.classifier import QuickClassifier
from datalens_tf.training.feature_network import FeatureNetwork


def feature_map(square):
    """Of images that are 16 x 12 pixels after they are averaged."""
    data, random = DataSpec((16, 12, 3), 2), np.random.default_rng(0)
    network = FeatureNetwork(*data, seed=0)
    network.fit(random.integers(0, 256, (40, *data.image_shape), np.uint8), np.arange(40) % 2, epochs=1)
    frequencies = random.standard_normal((10, 16 * 12 * 3)).astype(np.float32)
    return sum_questions.FeatureMap(frequencies=frequencies, square=square, network=network.arrays(),
                                    learned_share=0.75, data=data)


def test_features_say_nothing_of_what_is_within_a_square():
    random = np.random.default_rng(1)
    images = random.random((4, 16, 3, 12, 3, 3), np.float32)
    mixed = random.permuted(images.transpose(0, 1, 3, 5, 2, 4).reshape(-1, 9), axis=1)
    mixed = mixed.reshape(4, 16, 12, 3, 3, 3).transpose(0, 1, 4, 2, 5, 3)
    features = feature_map(3).made()
    found = features(tf.constant(images.reshape(4, 48, 36, 3)))
    np.testing.assert_allclose(features(tf.constant(mixed.reshape(4, 48, 36, 3))), found, atol=1e-4)
    assert np.ptp(found, axis=0).max() > 0.01 and np.all(np.linalg.norm(found, axis=1) <= 1)


def test_learned_features_of_a_large_image_are_those_of_a_smaller_one():
    small = np.random.default_rng(2).random((4, 16, 12, 3), np.float32)
    large = small.repeat(2, 1).repeat(2, 2)
    of_small, of_large = feature_map(1).made()(tf.constant(small)), feature_map(2).made()(tf.constant(large))
    np.testing.assert_allclose(of_large[:, 20:], of_small[:, 20:], atol=1e-5)


def test_a_smaller_image_has_the_means_of_squares_and_black_beside_those_at_the_end():
    images = np.zeros((2, 5, 4, 1), np.uint8)
    images[0, :2, :2, 0], images[1, 4] = [[1, 2], [3, 6]], 100
    found = sum_questions.smaller(images, 2)
    assert found.dtype == np.uint8 and found[..., 0].tolist() == [
        [[3, 0], [0, 0], [0, 0]], [[0, 0], [0, 0], [50, 50]]]
    assert sum_questions.smaller(images, 1) is images


def test_numbers_between_0_and_1_stay_such():
    images = np.random.default_rng(3).random((1, 4, 4, 1), np.float32)
    found = sum_questions.smaller(images, 2)
    assert found.dtype == np.float32
    np.testing.assert_allclose(found[0, 0, 0, 0], images[0, :2, :2, 0].mean(), rtol=1e-6)


def test_classifiers_that_choose_see_records_as_small_as_what_they_learned_from():
    small = np.random.default_rng(4).integers(0, 256, (30, 8, 8, 1), np.uint8)
    data, labels = DataSpec((8, 8, 1), 3), np.arange(30) % 3
    judge = QuickClassifier(*data, 0)
    judge.fit(small, labels, 2)
    mechanism = CorrectCounts(num_candidates=1, noise_multiplier=1.0)
    of_small, of_large = (
        sum_questions.Votes(classifiers=[judge.weights()], data=data, square=square).answer(
            mechanism, as_dataset(small.repeat(square, 1).repeat(square, 2), labels, 3)) for square in (1, 2))
    np.testing.assert_array_equal(of_large, of_small)
    assert of_small.tolist() == [2 * (judge.predict(small) == labels).sum() - len(labels)]
