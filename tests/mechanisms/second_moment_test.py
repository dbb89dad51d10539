"""The sensitivity of second moments, on neighbouring data; their noise; and the autoencoder that they give."""

import math

import dp_accounting
import numpy as np
import pytest

from datalens_tf.errors import InvalidArgumentError
from datalens_tf.mechanisms.noise import NoiseSource, RoundedGaussianNoise
from datalens_tf.mechanisms.second_moment import _STEPS, SecondMoment
from tests.mechanisms.conformance import sizes_of, with_odd_rows

D = 4
MECHANISM = SecondMoment(clip_norm=2.0, noise_multiplier=3.0)


def records(random, count):
    """Short ones, long ones, and what no image is: zero, huge, infinite, NaN."""
    found = random.normal(size=(count, D)) * random.choice([0.1, 1.0, 5.0], (count, 1))
    odd = [np.zeros(D), np.full(D, 1e300), np.full(D, np.inf), np.full(D, np.nan), 2 * np.eye(D)[0], 2 * np.eye(D)[1]]
    return with_odd_rows(found, odd, random)


def sums(images, units=None, mechanism=MECHANISM):
    """Sums of records, each its own unit, or of the given units."""
    return mechanism.sums([(images, sizes_of(units, len(images)))])


@pytest.mark.parametrize("adjacency, squares", [("replace-one", math.sqrt(2)), ("add-or-remove-one", 1.0)])
def test_neighbours_differ_by_at_most_the_sensitivity(adjacency, squares):
    random, largest = np.random.default_rng(0), 0.0
    mechanism = SecondMoment(clip_norm=2.0, noise_multiplier=3.0, adjacency=adjacency)
    for _ in range(400):
        mine, place = records(random, 6), random.integers(6)
        other = np.delete(mine, place, 0)
        if adjacency == "replace-one":
            other = np.insert(other, place, records(random, 1)[0], 0)
        largest = max(largest, np.linalg.norm(sums(mine, mechanism=mechanism) - sums(other, mechanism=mechanism)))
    assert largest <= mechanism.l2_sensitivity == mechanism.sensitivity(adjacency) == squares * _STEPS**2
    assert largest > 0.999 * mechanism.l2_sensitivity  # It is attained, so it cannot be smaller.


def test_the_same_noise_has_a_price_for_each_relation():
    assert MECHANISM.dp_event() == MECHANISM.dp_event("replace-one") == dp_accounting.GaussianDpEvent(3.0)
    assert MECHANISM.dp_event("add-or-remove-one").noise_multiplier == pytest.approx(3.0 * math.sqrt(2))


def test_batches_of_other_shapes_are_refused():
    with pytest.raises(InvalidArgumentError, match="to have as many numbers as those before"):
        MECHANISM.sums([(np.ones((2, D)), np.ones(2, int)), (np.ones((2, 1)), np.ones(2, int))])


def test_replacing_one_unit_of_any_number_of_records_changes_all_rows_by_at_most_the_sensitivity():
    """The rows are those of classes or clusters, which records of one unit may be in at once."""
    random, largest = np.random.default_rng(3), 0.0
    others = records(random, 5), np.array([1, 1, 2, 3, 3]), random.integers(0, 3, 5)

    def with_unit(count, aligned):
        mine = np.repeat(records(random, 1), count, 0) if aligned else records(random, count)
        rows = np.full(count, random.integers(3)) if aligned else random.integers(0, 3, count)
        images, units, rows = (np.concatenate(parts) for parts in zip((mine, np.zeros(count, int), rows), others))
        sizes = sizes_of(units, len(units))
        return np.stack([MECHANISM.sums([(images[rows == row], sizes[rows == row])]) for row in range(3)])

    for _ in range(600):
        before, after, none = (with_unit(count, random.random() < 0.7)
                               for count in (*random.choice([0, 1, 2, 3, 7, 31], 2), 0))
        assert np.square(before - none).sum() <= _STEPS**4  # Added or removed.
        # Integers below 2^53: the comparison is exact.
        assert np.square(before - after).sum() <= 2 * _STEPS**4
        largest = max(largest, np.linalg.norm(before - after))
    assert largest > 0.999 * MECHANISM.l2_sensitivity


def test_a_unit_counts_as_the_average_of_its_records():
    random = np.random.default_rng(4)
    mine, units = random.normal(size=(12, D)), np.array([0] * 7 + [1] * 4 + [2])
    loop = np.zeros((D, D))
    for unit in range(3):
        for record in mine[units == unit]:
            short = record / max(2.0, np.linalg.norm(record))
            loop += np.outer(short, short) / np.sum(units == unit)
    np.testing.assert_allclose(sums(mine, units) / _STEPS**2, loop, atol=0.002)
    np.testing.assert_array_equal(sums(mine, np.arange(12)), sums(mine))


def test_sums_are_exact_integers_whatever_the_chunks():
    mine, sizes = records(np.random.default_rng(1), 30), np.ones(30, int)
    whole = sums(mine)
    np.testing.assert_array_equal(whole, MECHANISM.sums((mine[i:i + 7], sizes[i:i + 7]) for i in range(0, 30, 7)))
    units = MECHANISM.contributions(mine, sizes)
    loop = np.zeros((D, D))
    for row in units:
        loop += np.outer(row, row)
    np.testing.assert_array_equal(whole, loop)
    assert np.all(whole == np.rint(whole))


def test_short_records_are_counted_as_they_are():
    units = MECHANISM.contributions(np.array([[0.5, -0.25, 0.0, 1.0]]), np.ones(1, int))
    np.testing.assert_array_equal(units, [[0.25 * _STEPS, -0.125 * _STEPS, 0, 0.5 * _STEPS]])


def test_noise_has_the_stated_size_and_the_price_is_one_gaussian():
    noisy = SecondMoment(clip_norm=2.0, noise_multiplier=3.0).privatize(
        np.zeros((300, 300)), RoundedGaussianNoise(), 0)
    expected = 3.0 * MECHANISM.l2_sensitivity
    assert noisy.std() == pytest.approx(expected, rel=6 / math.sqrt(2 * noisy.size))
    assert MECHANISM.dp_event() == dp_accounting.GaussianDpEvent(3.0)


def test_noise_that_would_broadcast_is_refused():
    class Narrow(NoiseSource):
        is_secure, description, caveat = False, "", ""

        def draw(self, shape, stddev, index):
            return np.zeros((1, 1))

    with pytest.raises(InvalidArgumentError, match="noise.shape"):
        MECHANISM.privatize(np.zeros((D, D)), Narrow(), 0)
    with pytest.raises(InvalidArgumentError, match="to be integers"):
        MECHANISM.privatize(np.full((D, D), 0.5), RoundedGaussianNoise(), 0)


def test_the_encoder_is_that_of_principal_components():
    random = np.random.default_rng(2)
    images = random.normal(size=(500, 2)) @ random.normal(size=(2, 6)) * 0.1 + 0.001 * random.normal(size=(500, 6))
    mechanism = SecondMoment(clip_norm=10.0, noise_multiplier=1.0)
    encoder = mechanism.encoder(mechanism.sums([(images, np.ones(500, int))]), 2)
    np.testing.assert_allclose(encoder.T @ encoder, np.eye(2), atol=1e-6)
    assert np.linalg.norm(images - images @ encoder @ encoder.T) < 0.05 * np.linalg.norm(images)


@pytest.mark.parametrize("changes", [{"clip_norm": 0.0}, {"noise_multiplier": 0.0}, {"clip_norm": math.inf}])
def test_bad_settings_are_refused(changes):
    with pytest.raises(InvalidArgumentError):
        SecondMoment(**{"clip_norm": 1.0, "noise_multiplier": 1.0} | changes)
