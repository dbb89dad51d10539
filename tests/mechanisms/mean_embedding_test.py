"""The sensitivity of mean embeddings, on neighbouring data; and their noise."""

import dp_accounting
import numpy as np
import pytest
import tensorflow as tf
from scipy import stats

from datalens_tf.errors import InvalidArgumentError
from datalens_tf.mechanisms.base import ADJACENCIES
from datalens_tf.mechanisms.mean_embedding import (
    _GRID,
    MeanEmbedding,
    RandomFourierFeatures,
    count_weight_for,
)
from datalens_tf.mechanisms.noise import RoundedGaussianNoise
from tests.mechanisms.conformance import sizes_of, with_odd_rows

MECHANISM = MeanEmbedding(noise_multiplier=3.0)
VARIANTS = [MeanEmbedding(noise_multiplier=3.0, adjacency=adjacency, count_weight=weight)
            for adjacency in ADJACENCIES for weight in (1.0, 0.3, 1 / 3)]
D = 6


def rows(random, count):
    """Features: of length 1, and what no image has: zero, huge, infinite, NaN, slightly too long."""
    found = random.normal(size=(count, D)).astype(np.float32)
    found /= np.linalg.norm(found, axis=1, keepdims=True)
    odd = [np.zeros(D), np.full(D, 1e30), np.full(D, np.inf), np.full(D, np.nan), [1 + 1e-6, 0, 0, 0, 0, 0],
           [-1, 0, 0, 0, 0, 0], [1, 0, 0, 0, 0, 0]]
    return with_odd_rows(found, odd, random)


def sums(features, labels, units=None):
    """Sums of records, each its own unit, or of the given units."""
    return MECHANISM.sums([(features, labels, sizes_of(units, len(labels)))], 3)


def length(change, mechanism):
    """Length that the noise is compared with: it is larger on numbers, as if these were smaller."""
    return np.linalg.norm(change * np.append(np.ones(D), mechanism.count_weight)) * _GRID


@pytest.mark.parametrize("mechanism", VARIANTS, ids=str)
def test_neighbours_differ_by_at_most_the_sensitivity(mechanism):
    random, largest = np.random.default_rng(0), 0.0
    for _ in range(400):
        features, labels = rows(random, 8), random.integers(-1, 4, 8)  # Some are of no class.
        position = random.integers(8)
        if mechanism.adjacency == "add-or-remove-one":
            other = np.delete(features, position, 0), np.delete(labels, position)
        else:
            other = features.copy(), labels.copy()
            other[0][position] = -features[position] if random.random() < 0.3 else rows(random, 1)[0]
            if random.random() < 0.5:
                other[1][position] = random.integers(-1, 4)
        largest = max(largest, length(sums(features, labels) - sums(*other), mechanism))
    assert largest <= mechanism.l2_sensitivity == mechanism.sensitivity(mechanism.adjacency)
    assert largest > 0.999 * mechanism.l2_sensitivity  # It is attained, so it cannot be smaller.


def test_the_sensitivities_are_the_formulas():
    for weight in (1.0, 0.25):
        mechanism = MeanEmbedding(noise_multiplier=1.0, count_weight=weight)
        assert mechanism.sensitivity("add-or-remove-one") == np.sqrt(1 + weight**2)
        assert mechanism.sensitivity("replace-one") == 2.0
    with pytest.raises(InvalidArgumentError, match="adjacency='remove-one'"):
        mechanism.sensitivity("remove-one")


@pytest.mark.parametrize("mechanism", VARIANTS, ids=str)
def test_the_same_noise_has_a_price_for_each_relation(mechanism):
    stddev = mechanism.noise_multiplier * mechanism.l2_sensitivity
    for adjacency in ADJACENCIES:
        assert mechanism.dp_event(adjacency).noise_multiplier == pytest.approx(
            stddev / mechanism.sensitivity(adjacency), rel=1e-12)
    assert mechanism.dp_event() == mechanism.dp_event(mechanism.adjacency) == dp_accounting.GaussianDpEvent(3.0)


def test_a_record_of_no_class_contributes_nothing_and_odd_shapes_are_refused():
    features, labels = np.eye(D, dtype=np.float32)[:3], np.array([0, 1, 2])
    whole = sums(features[:1], labels[:1])
    for strange in (-1, 3, 10**9, np.nan, 0.5):
        np.testing.assert_array_equal(sums(features, np.array([0, strange, strange])), whole)
    for bad in ((features, labels[:2]), (features[0], labels[:1]), (features, labels[:, None]),
                (features[..., None], labels)):
        with pytest.raises(InvalidArgumentError, match="features.shape"):
            sums(*bad)
    sizes = np.ones(3, int)
    with pytest.raises(InvalidArgumentError, match="to have 6 numbers"):
        MECHANISM.sums([(features, labels, sizes), (features[:, :1], labels, sizes)], 3)


def test_the_weight_of_numbers_follows_from_public_numbers():
    assert count_weight_for(10**4, 6000, 1.0) == pytest.approx(0.1)
    # 1,000 records of ten classes, a twentieth of the budget epsilon 1: the numbers would drown in less.
    assert count_weight_for(10**4, 100, 15.0) == 1.0
    assert count_weight_for(10**4, 6000, 30.0) == pytest.approx(0.25)  # and keeps the noise within a fiftieth
    assert count_weight_for(2, 1e-30, 1e30) == 1.0


def test_replacing_one_unit_of_any_number_of_records_changes_the_sums_by_at_most_the_sensitivity():
    random, largest = np.random.default_rng(3), 0.0
    others = rows(random, 5), random.integers(0, 3, 5), np.array([1, 1, 2, 3, 3])

    def with_unit(count, aligned):
        """Sums of data whose unit 0 has so many records, of one direction and label, or any."""
        features = np.repeat(rows(random, 1), count, 0) if aligned else rows(random, count)
        labels = np.full(count, random.integers(3)) if aligned else random.integers(0, 3, count)
        mine = (features, labels, np.zeros(count, int)), others
        return features, labels, sums(*(np.concatenate(parts) for parts in zip(*mine)))

    for _ in range(600):
        counts = random.choice([0, 1, 2, 3, 7, 31], 2)
        features, labels, before = with_unit(counts[0], random.random() < 0.7)
        if counts[0] and random.random() < 0.3:  # The same records turned round, as often as others are.
            mine = (np.repeat(-features[:1], counts[1], 0), np.repeat(labels[:1], counts[1]), np.zeros(counts[1], int))
            after = sums(*(np.concatenate(parts) for parts in zip(mine, others)))
        else:
            after = with_unit(counts[1], random.random() < 0.7)[2]
        change = before - after  # Integers below 2^25: the comparison is exact.
        largest = max(largest, np.sqrt(np.square(change).sum()) * _GRID)
        assert np.square(change).sum() <= MECHANISM.l2_sensitivity**2 / _GRID**2
        added = before - with_unit(0, True)[2]
        for mechanism in VARIANTS:
            assert length(change, mechanism) <= 2.0
            assert length(added, mechanism) <= mechanism.sensitivity("add-or-remove-one") * (1 + 1e-15)
    assert largest > 0.999 * MECHANISM.l2_sensitivity


def test_a_unit_counts_as_the_average_of_its_records():
    random = np.random.default_rng(4)
    features = random.normal(size=(12, D)).astype(np.float32)
    features /= 1.01 * np.linalg.norm(features, axis=1, keepdims=True)
    labels, units = random.integers(0, 3, 12), np.array([0] * 7 + [1] * 4 + [2])
    loop = np.zeros((3, D + 1))
    for unit in range(3):
        mine = np.flatnonzero(units == unit)
        for record in mine:
            loop[labels[record]] += np.append(features[record], 1) / len(mine)
    np.testing.assert_allclose(sums(features, labels, units) * _GRID, loop, atol=12 * _GRID)
    np.testing.assert_array_equal(sums(features, labels, np.arange(12)), sums(features, labels))


def test_a_label_change_alone_costs_no_more():
    features = np.eye(D, dtype=np.float32)[:1]
    change = sums(features, np.array([0])) - sums(features, np.array([1]))
    assert np.linalg.norm(change) * _GRID == pytest.approx(2.0, rel=1e-6)


def test_sums_are_exact_integers_whatever_the_chunks():
    random = np.random.default_rng(1)
    features, labels, sizes = rows(random, 30), random.integers(0, 3, 30), np.ones(30, int)
    whole = sums(features, labels)
    parts = MECHANISM.sums([(features[i:i + 7], labels[i:i + 7], sizes[i:i + 7]) for i in range(0, 30, 7)], 3)
    np.testing.assert_array_equal(whole, parts)
    assert np.all(whole == np.rint(whole))
    np.testing.assert_array_equal(whole[:, -1] * _GRID, np.bincount(labels, minlength=3))


@pytest.mark.parametrize("factor, accepted", [(1.0, True), (2 / 3, False), (1.5, False)])
@pytest.mark.parametrize("mechanism", [VARIANTS[0], VARIANTS[4]], ids=str)
def test_the_noise_has_the_scale_that_is_charged_for(factor, accepted, mechanism):
    drawn = mechanism.privatize(np.zeros((4000, 2)), RoundedGaussianNoise(), 0)
    scale = factor * mechanism.noise_multiplier * mechanism.l2_sensitivity / _GRID
    for column, weight in ((0, 1.0), (1, mechanism.count_weight)):
        assert (stats.kstest(drawn[:, column], stats.norm(0, scale / weight).cdf).pvalue > 1e-7) == accepted
    assert np.all(drawn == np.rint(drawn))
    assert mechanism.dp_event() == dp_accounting.GaussianDpEvent(3.0)


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
    noisy = sums(np.eye(D, dtype=np.float32)[:1], np.array([0]))
    noisy[2, -1] = -5 / _GRID
    means = MECHANISM.means(noisy)
    np.testing.assert_allclose(means[0], np.eye(D)[0], atol=1e-6)
    assert np.all(means[1:] == 0)
