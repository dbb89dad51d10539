"""Features are those of squares' means and of nothing else, and no removed record changes those of others."""

import numpy as np
import pytest
import tensorflow as tf

from datalens_tf.data.datasets import as_dataset
from datalens_tf.facts import DataSpec
from datalens_tf.mechanisms.correct_counts import CorrectCounts
from datalens_tf.mechanisms.mean_embedding import MeanEmbedding
from datalens_tf.methods import sum_questions
from datalens_tf.models import places
from datalens_tf.training.classifier import QuickClassifier
from datalens_tf.training.feature_network import FeatureNetwork
from datalens_tf.training.untrained_networks import UntrainedNetworks


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


def sparse_records(count):
    """Images of few white pixels, whose features in untrained networks are rounded most."""
    random = np.random.default_rng(5)
    images = (255 * (random.random((count, 8, 8, 1)) < 0.1)).astype(np.uint8)
    return as_dataset(images, np.arange(count) % 2, 2, name="few")


def without_the_first(records):
    return as_dataset(records.images[1:], records.labels[1:], 2, name="fewer")


@pytest.mark.parametrize("filters", [12, 9])
def test_a_removed_record_changes_no_features_of_others(filters):
    """All places shift, by which convolutions of these widths round on some processors."""
    records = sparse_records(1003)
    networks = UntrainedNetworks.for_images(records.images / np.float32(255), records.labels, seed=0, num_networks=2,
                                            filters=filters, clip=0.8)
    question = sum_questions.Embeddings(features=sum_questions.NetworkMap(networks=networks), num_rows=2)
    mechanism = MeanEmbedding(noise_multiplier=1.0, adjacency="add-or-remove-one", count_weight=0.5)
    whole, fewer, alone = (question.answer(mechanism, data) for data in (
        records, without_the_first(records), as_dataset(records.images[:1], records.labels[:1], 2, name="one")))
    np.testing.assert_array_equal(whole - fewer, alone)
    assert 0 < np.linalg.norm(alone[:, :-1]) <= 2**24 == alone[:, -1].sum()


@pytest.mark.parametrize("count", [33, 40, 50, 79, 100])
def test_a_removed_record_changes_no_directions_of_others(count):
    directions = np.random.default_rng(6).standard_normal((count, 64))
    points, records = sum_questions.Points(square=1, directions=directions), sparse_records(1003)

    def vectors(data):
        return np.concatenate([vectors for vectors, _, _ in points.of(data)])

    np.testing.assert_array_equal(vectors(without_the_first(records)), vectors(records)[1:])
    np.testing.assert_allclose(vectors(records)[0], directions @ (records.images[0].ravel() / 255), rtol=1e-6)


@pytest.mark.parametrize("adjacency, asked", [("add-or-remove-one", 1), ("replace-one", 0)])
def test_classifiers_that_choose_are_asked_whether_places_matter_where_they_shift(monkeypatch, adjacency, asked):
    seen, same = [], places.same_anywhere
    monkeypatch.setattr(places, "same_anywhere", lambda *args, name: seen.append(name) or same(*args, name=name))
    votes = sum_questions.Votes(classifiers=[QuickClassifier((8, 8, 1), 2, 0).weights()], data=DataSpec((8, 8, 1), 2))
    found = votes.answer(CorrectCounts(num_candidates=1, noise_multiplier=1.0, adjacency=adjacency), sparse_records(9))
    assert seen == ["classifiers"] * asked and abs(found[0]) <= 9
