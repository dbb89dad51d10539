"""The sensitivity of numbers of right answers, on neighbouring data, and their noise."""

import math

import dp_accounting
import numpy as np
import pytest
from scipy import stats

from datalens_tf.errors import InvalidArgumentError
from datalens_tf.mechanisms.correct_counts import CorrectCounts
from datalens_tf.mechanisms.noise import RoundedGaussianNoise
from tests.mechanisms.conformance import sizes_of

MECHANISM = CorrectCounts(num_candidates=4, noise_multiplier=3.0)


def sums(guesses, labels, mechanism=MECHANISM):
    """Sums of records, each its own unit."""
    return mechanism.sums(guesses, labels, np.ones(len(labels), int))


@pytest.mark.parametrize("adjacency, sensitivity", [("replace-one", 4.0), ("add-or-remove-one", 2.0)])
def test_neighbours_differ_by_at_most_the_sensitivity(adjacency, sensitivity):
    random, largest = np.random.default_rng(0), 0.0
    mechanism = CorrectCounts(num_candidates=4, noise_multiplier=3.0, adjacency=adjacency)
    for _ in range(300):
        labels, guesses = random.integers(0, 3, 6), random.integers(-1, 3, (4, 6))
        other_labels, other_guesses = labels.copy(), guesses.copy()
        # Another image: every candidate may answer differently. Another label: so may what is right.
        place = random.integers(6)
        other_labels[place], other_guesses[:, place] = random.integers(0, 3), random.integers(-1, 3, 4)
        if random.random() < 0.2:
            guesses[:, place], other_guesses[:, place] = labels[place], -1
        if adjacency == "add-or-remove-one":
            other_labels, other_guesses = np.delete(labels, place), np.delete(guesses, place, 1)
        change = sums(guesses, labels, mechanism) - sums(other_guesses, other_labels, mechanism)
        largest = max(largest, np.linalg.norm(change))
    assert largest == mechanism.l2_sensitivity == sensitivity  # Attained, and never exceeded.


def test_the_one_with_most_right_answers_has_most_votes():
    labels = np.array([0, 1, 2, 1])
    guesses = [labels, np.zeros(4), np.array([0, 1, 0, 0]), np.full(4, np.nan)]
    np.testing.assert_array_equal(sums(guesses, labels), [4, -2, 0, -4])
    assert MECHANISM.dp_event("add-or-remove-one") == dp_accounting.GaussianDpEvent(6.0)


@pytest.mark.parametrize("shape", [(4, 1), (1,), ()])
def test_answers_of_other_shapes_are_refused(shape):
    """numpy would compare each with every label, so that one record had many votes."""
    with pytest.raises(InvalidArgumentError, match="predictions.shape"):
        sums([np.zeros(shape)] * 4, np.zeros(4))


def test_replacing_one_unit_of_any_number_of_records_changes_the_numbers_by_at_most_the_sensitivity():
    random, largest = np.random.default_rng(1), 0.0
    mechanism = CorrectCounts(num_candidates=4, noise_multiplier=3.0, steps=CorrectCounts.STEPS_OF_UNITS)
    others = random.integers(-1, 3, (4, 5)), random.integers(0, 3, 5), np.array([1, 1, 2, 3, 3])

    def with_unit(count, all_right):
        labels = random.integers(0, 3, count)
        guesses = np.tile(labels if all_right else -1, (4, 1)) if random.random() < 0.5 and count else (
            random.integers(-1, 3, (4, count)))
        guesses = np.broadcast_to(guesses, (4, count))
        units = np.append(np.zeros(count, int), others[2])
        return mechanism.sums(np.concatenate([guesses, others[0]], 1), np.append(labels, others[1]),
                              sizes_of(units, len(units)))

    for _ in range(300):
        before, after = (with_unit(random.choice([0, 1, 2, 3, 7, 31]), right) for right in (True, False))
        assert np.square(before - with_unit(0, True)).sum() <= 4 * mechanism.steps**2  # Added or removed.
        assert np.square(before - after).sum() <= 16 * mechanism.steps**2  # Integers: the comparison is exact.
        largest = max(largest, np.linalg.norm(before - after) / mechanism.steps)
    assert largest == mechanism.l2_sensitivity == 4.0
    # Two of three records right, and one of one; noise is on units.
    sums_of_two = mechanism.sums([np.array([1, 1, 0, 1])] * 4, np.ones(4, int), np.array([3, 3, 3, 1]))
    np.testing.assert_allclose(sums_of_two / mechanism.steps, 4 / 3, atol=1e-5)


@pytest.mark.parametrize("steps", [1, CorrectCounts.STEPS_OF_UNITS])
@pytest.mark.parametrize("factor, accepted", [(1.0, True), (0.5, False), (1.5, False)])
def test_the_noise_has_the_scale_that_is_charged_for(factor, accepted, steps):
    mechanism = CorrectCounts(num_candidates=4000, noise_multiplier=30.0, steps=steps)
    drawn = mechanism.privatize(np.full(4000, 7.0 * steps), RoundedGaussianNoise(), 0) - 7.0
    scale = 30.0 * 2 * math.sqrt(4000)
    assert (stats.kstest(drawn, stats.norm(0, scale * factor).cdf).pvalue > 1e-7) == accepted
    assert mechanism.dp_event() == dp_accounting.GaussianDpEvent(30.0)


def test_what_is_no_number_of_records_is_refused():
    with pytest.raises(InvalidArgumentError, match="to be integers"):
        MECHANISM.privatize(np.full(4, 0.5), RoundedGaussianNoise(), 0)
    with pytest.raises(InvalidArgumentError, match="candidates to be 4"):
        sums([np.zeros(3)], np.zeros(3))


@pytest.mark.parametrize("changes", [{"num_candidates": 0}, {"noise_multiplier": 0.0}, {"steps": 0}])
def test_bad_settings_are_refused(changes):
    with pytest.raises(InvalidArgumentError):
        CorrectCounts(**{"num_candidates": 2, "noise_multiplier": 1.0} | changes)
