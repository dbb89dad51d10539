"""Gaussians of classes and of clusters: what is found in records, with hardly any noise."""

import dataclasses

import numpy as np
import pytest
import scipy.stats
import tensorflow as tf

from datalens_tf.data.datasets import Units, as_dataset
from datalens_tf.mechanisms.mean_embedding import MeanEmbedding
from datalens_tf.mechanisms.noise import noise_source
from datalens_tf.mechanisms.second_moment import SecondMoment
from datalens_tf.methods import moments, sum_questions
from datalens_tf.methods.datalens_plus_config import DataLensPlusConfig

CONFIG = DataLensPlusConfig(epsilon=10.0, image_shape=(28, 28, 1), num_classes=10).resolved(60_000).replace(
    noise_multiplier=None, image_shape=(8, 8, 1), num_classes=2, num_clusters=3, num_directions=6, num_factors=4,
    mean_clip=40.0, covariance_clip=20.0, cluster_clip=20.0, insecure_noise_seed=1)

ONE_GAUSSIAN = CONFIG.replace(num_clusters=1, direction_charges=0, cluster_charges=0)


class Exact:
    """Releases with noise of a millionth of the sensitivity."""

    def __init__(self):
        self.made = []

    def get(self, mechanism, sums):
        made = mechanism(noise_multiplier=1e-6)
        self.made.append(type(made))
        return made, made.privatize(sums(made), noise_source(CONFIG), len(self.made))


def blobs(num_records=3000, seed=0):
    """Two classes of three kinds of images: one bright eighth of the image each, of varying brightness."""
    random = np.random.default_rng(seed)
    labels, kinds = np.arange(num_records) % 2, random.integers(0, 3, num_records)
    images = np.full((num_records, 8, 8, 1), 40.0)
    for record, row in enumerate(kinds + 3 * labels):
        images[record, row] += random.normal(150, 15)
    return as_dataset(np.round(images).astype(np.uint8), labels, 2), kinds


def test_clusters_are_found_and_vary_as_their_records_do():
    data, kinds = blobs()
    releases = Exact()
    made, means = moments.cluster_gaussians(CONFIG, data, releases)
    expected = [data.images[data.labels == label].mean(0) / 255 for label in range(2)]
    np.testing.assert_allclose(means, expected, atol=2e-3)
    assert releases.made == [MeanEmbedding, SecondMoment, *5 * [MeanEmbedding], SecondMoment]
    for label in range(2):
        rows = np.round(made.means.numpy().reshape(2, 3, 8, 8)[label].mean(-1), 2)
        assert sorted(rows.argmax(1)) == [3 * label, 3 * label + 1, 3 * label + 2]
        bounds = scipy.stats.norm.cdf(made.bounds.numpy()[label])
        for cluster, row in enumerate(rows.argmax(1)):
            share = bounds[cluster] - (bounds[cluster - 1] if cluster else 0)
            mine = data.images[(data.labels == label) & (kinds == row - 3 * label)].reshape(-1, 64) / 255
            assert share == pytest.approx(len(mine) / np.sum(data.labels == label), abs=1e-3)
            values, vectors = np.linalg.eigh(np.cov(mine.T))
            along = made.factors.numpy().reshape(2, 3, 4, 6)[label, cluster] @ made.directions.numpy() @ vectors[:, -1]
            assert np.square(along).sum() == pytest.approx(values[-1], rel=0.02)


def test_one_gaussian_per_class_takes_two_releases():
    data, _ = blobs()
    releases = Exact()
    made, means = moments.class_gaussians(ONE_GAUSSIAN, data, releases)
    halves = sum_questions.smaller(data.images / 255, 2)
    np.testing.assert_allclose(means, [halves[data.labels == label].mean(0) for label in range(2)], atol=2e-3)
    assert releases.made == [MeanEmbedding, SecondMoment] and made.means.shape == (2, 64)
    for label in range(2):
        mine = data.images[data.labels == label].reshape(-1, 64) / 255
        assert np.linalg.norm(made.means.numpy()[label] - mine.mean(0)) < 0.3 * np.linalg.norm(mine.mean(0))


def test_few_records_share_their_mean_and_their_covariance():
    data, _ = blobs()
    releases, config = Exact(), ONE_GAUSSIAN.replace(centre_charges=1, share_covariance=True, class_clip=20.0)
    made, _ = moments.class_gaussians(config, data, releases)
    assert releases.made == [MeanEmbedding, MeanEmbedding, SecondMoment]
    halves = sum_questions.averaged(data.images / 255, 2)
    means = np.stack([halves[data.labels == label].mean(0) for label in range(2)])
    np.testing.assert_allclose(made.means.numpy(), means @ moments._upscaling((8, 8, 1), 2), atol=1e-3)
    differences = halves - means[data.labels]
    values = np.linalg.eigvalsh(differences.T @ differences / len(halves))[::-1]
    for factors in made.factors.numpy().reshape(2, -1, 16).astype(np.float64):
        np.testing.assert_allclose(np.square(factors).sum(1), values[:len(factors)], rtol=5e-3, atol=1e-4)  # The grid.
        assert values[len(factors)] < 1e-4


def test_means_of_images_that_were_shortened_become_as_bright_as_the_images_were():
    stream = np.random.default_rng(1)
    means, factors = stream.uniform(0.2, 1, (3, 16)) * [[1], [2], [4]], stream.normal(0, 0.2, (3, 4, 16))
    images = means[:, None] + stream.standard_normal((3, 20_000, 4)) @ factors
    clip = 1.05 * np.linalg.norm(means[1])  # Many images of the second class are longer, and all of the third.
    released = np.stack([clip * sum_questions.shortened(own, clip).mean(0) for own in images])
    assert np.linalg.norm(released[1]) < 0.98 * np.linalg.norm(means[1])
    found = moments.unshortened(released, factors, clip, stream)
    np.testing.assert_allclose(found[:2], means[:2], rtol=0.01)
    assert np.all((found[2] / released[2] > 1.3) & (found[2] / released[2] <= 1.5))  # Nobody knows how long they were.
    np.testing.assert_array_equal(moments.unshortened(0 * released, factors, clip, stream), 0 * released)


class Kept:
    """Means of zero and classes of twenty are released, whatever the exact sums, which are kept."""

    def __init__(self):
        self.sums, self.sensitivities = [], []

    def get(self, mechanism, sums):
        made = mechanism(noise_multiplier=1e-6)
        self.sums.append(sums(made))
        noisy = np.zeros_like(self.sums[-1])
        if isinstance(made, MeanEmbedding):
            noisy[:, -1] = 20 * 2.0**24
        self.sensitivities.append(made.l2_sensitivity * (2.0**24 if isinstance(made, MeanEmbedding) else 1))
        return made, noisy


@pytest.mark.parametrize("fit, config", [
    (moments.class_gaussians, ONE_GAUSSIAN.replace(centre_charges=1, share_covariance=True)),
    (moments.class_gaussians, ONE_GAUSSIAN), (moments.cluster_gaussians, CONFIG.replace(cluster_rounds=2))])
def test_a_replaced_unit_moves_each_release_by_its_sensitivity_at_most_which_is_attained(fit, config):
    """A unit has any number of pictures before and after, of any classes; its pictures are bright or dark, or any."""
    config = config.replace(mean_clip=1.0, class_clip=0.2, covariance_clip=0.1, cluster_clip=0.1)
    stream, largest = np.random.default_rng(0), 0.0
    bright, dark = np.zeros((2, 8, 8, 1), np.uint8)
    bright[:4], dark[4:] = 255, 255
    others = stream.integers(0, 256, (12, 8, 8, 1)).astype(np.uint8), np.arange(12) % 2, np.arange(12) % 5 + 1

    def sums(count, picture):
        mine = np.repeat(picture[None], count, 0)
        if stream.random() < 0.3:
            mine[stream.random(count) < 0.5] = stream.integers(0, 256, (8, 8, 1))
        labels = stream.integers(0, 2, count) if stream.random() < 0.3 else np.full(count, stream.integers(2))
        units = np.append(np.zeros(count, int), others[2])
        data = as_dataset(np.concatenate([mine, others[0]]), np.append(labels, others[1]), 2, units=units)
        releases = Kept()
        fit(config, data, releases)
        return releases

    for _ in range(10):
        mine, theirs = (sums(stream.choice([1, 2, 3, 9]), picture) for picture in (bright, dark))
        moved = [np.linalg.norm(before - after) for before, after in zip(mine.sums, theirs.sums)]
        share = np.array(moved) / mine.sensitivities
        assert np.all(share <= 1)
        largest = np.maximum(largest, share)
    # Images are not negative: two of one row are at right angles at most.
    assert min(largest) > 0.7 and max(largest) > 0.99


def test_without_units_sums_are_those_of_records_to_the_bit():
    data, _ = blobs(40)
    alone = dataclasses.replace(data, units=Units.named("unit", np.arange(40)))
    for fit, config in ((moments.class_gaussians, ONE_GAUSSIAN), (moments.cluster_gaussians, CONFIG)):
        found = []
        for dataset in (data, alone):
            releases = Kept()
            fit(config, dataset, releases)
            found.append(releases.sums)
        for mine, theirs in zip(*found):
            np.testing.assert_array_equal(mine, theirs)


def test_a_replaced_record_moves_what_classes_share_by_the_sensitivity_at_most_which_is_attained():
    """Its label is replaced as well, so that its difference is from another released mean, and as long as can be."""
    config = ONE_GAUSSIAN.replace(centre_charges=1, share_covariance=True, mean_clip=1.0, class_clip=0.2,
                                  covariance_clip=0.1)

    def sums(images, labels):
        releases = Kept()
        moments.class_gaussians(config, as_dataset(images, labels, 2), releases)
        return releases.sums

    stream, largest = np.random.default_rng(0), np.zeros(3)
    upper, lower = np.zeros((2, 8, 8, 1), np.uint8)
    upper[:4], lower[4:] = 255, 255
    for trial in range(12):
        images, labels = stream.integers(0, 256, (20, 8, 8, 1)).astype(np.uint8), np.arange(20) % 2
        other, relabelled = images.copy(), labels.copy()
        images[3], relabelled[3] = upper, trial % 2
        other[3] = lower if trial < 2 else stream.integers(0, 256, (8, 8, 1))
        moved = [np.linalg.norm(mine - theirs)
                 for mine, theirs in zip(sums(images, labels), sums(other, relabelled))]
        largest = np.maximum(largest, np.array(moved) / (2.0 * 2**24, 2.0 * 2**24, 2**0.5 * 2**26))
    # Images are not negative: the first, which are of one row, are at right angles at most.
    assert np.all(largest <= 1) and largest[0] > 0.7 and min(largest[1:]) > 0.999


def test_a_cluster_varies_as_its_class_where_noise_hides_how():
    moment, sizes = SecondMoment(clip_norm=1.0, noise_multiplier=0.02), np.array([10.0, 10.0, 1.0])
    sums = np.stack([np.diag([9.0, 0.01, 4.0]), np.diag([0.0, 6.0, 0.0]), np.zeros((3, 3))])
    factors = moments._cluster_factors(moment, 2.0**26 * sums, sizes, 3)
    shared = np.diag(sums.sum(0)) / 21
    expected = [np.diag([0.9, shared[1], 0.4]), np.diag([shared[0], 0.6, shared[2]]), np.diag(shared)]
    np.testing.assert_allclose(np.einsum("krd,kre->kde", factors, factors), expected, atol=1e-9)


@pytest.mark.parametrize("shape, square", [((8, 12, 3), 2), ((9, 10, 1), 3), ((9, 10, 1), 4), ((5, 5, 1), 1)])
def test_averaged_images_are_sums_over_squares_and_keep_their_lengths(shape, square):
    images = np.random.default_rng(0).uniform(size=(2, *shape))
    rows, columns = -(-shape[0] // square), -(-shape[1] // square)
    vectors = sum_questions.averaged(images, square).reshape(2, rows, columns, shape[2])
    for row, column in np.ndindex(vectors.shape[1:3]):
        part = images[:, row * square:(row + 1) * square, column * square:(column + 1) * square]
        np.testing.assert_allclose(vectors[:, row, column], part.sum((1, 2)) / square)
    pooled = sum_questions.averaged_images(tf.constant(images, tf.float32), square)
    np.testing.assert_allclose(pooled, vectors, rtol=1e-5)
    assert (np.linalg.norm(vectors, axis=(1, 2)) <= np.linalg.norm(images, axis=(1, 2)) * (1 + 1e-12)).all()


def test_averaged_images_come_back():
    smooth = np.full((2, 8, 12, 3), 0.3)
    for square in (1, 2, 4):
        vectors = sum_questions.averaged(smooth, square)
        np.testing.assert_allclose(np.linalg.norm(vectors, axis=1), np.linalg.norm(smooth.reshape(2, -1), axis=1))
        back = vectors @ moments._upscaling((8, 12, 3), square)
        np.testing.assert_allclose(back.reshape(smooth.shape), smooth, atol=1e-6)


def test_large_images_are_described_by_as_many_numbers_as_smaller_ones():
    def of(side, num_clusters=1, **more):
        return ONE_GAUSSIAN.replace(image_shape=(side, side, 3), num_clusters=num_clusters, **more).moments_dimension

    assert [of(side) for side in (28, 32, 64, 65, 128)] == [3 * 14**2, 3 * 16**2, 3 * 32**2, 3 * 22**2, 3 * 32**2]
    assert [of(side, moments_side=16) for side in (28, 32, 64, 128)] == [3 * 14**2, 3 * 16**2, 3 * 16**2, 3 * 16**2]
    more = {"direction_charges": 1, "cluster_charges": 1}
    assert [of(side, 4, **more) for side in (28, 32, 64)] == [3 * 28**2, 3 * 32**2, 3 * 32**2]


def test_directions_that_noise_alone_explains_are_left_out():
    covariance = np.diag([5.0, 0.1, 3.0, 0.4])
    factors = moments._factors(covariance, 0.5, 3)
    np.testing.assert_allclose(factors.T @ factors, np.diag([5.0, 0, 3.0, 0]), atol=1e-9)
    assert moments._factors(covariance, 0.5, 1).shape == (1, 4)
