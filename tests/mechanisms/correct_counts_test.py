"""The sensitivity of numbers of right answers, on neighbouring data, and their noise."""

import math

import dp_accounting
import numpy as np
import pytest
from scipy import stats

from datalens_tf.errors import InvalidArgumentError
from datalens_tf.mechanisms.correct_counts import CorrectCounts
from datalens_tf.mechanisms.noise import RoundedGaussianNoise

MECHANISM = CorrectCounts(num_candidates=4, noise_multiplier=3.0)


def test_replacing_one_record_changes_the_numbers_by_at_most_the_sensitivity():
    random, largest = np.random.default_rng(0), 0.0
    for _ in range(300):
        labels, guesses = random.integers(0, 3, 6), random.integers(-1, 3, (4, 6))
        other_labels, other_guesses = labels.copy(), guesses.copy()
        # Another image: every candidate may answer differently. Another label: so may what is right.
        place = random.integers(6)
        other_labels[place], other_guesses[:, place] = random.integers(0, 3), random.integers(-1, 3, 4)
        if random.random() < 0.2:
            guesses[:, place], other_guesses[:, place] = labels[place], -1
        change = MECHANISM.sums(guesses, labels) - MECHANISM.sums(other_guesses, other_labels)
        largest = max(largest, np.linalg.norm(change))
    assert largest == MECHANISM.l2_sensitivity == 2.0  # Attained, and never exceeded.


@pytest.mark.parametrize("factor, accepted", [(1.0, True), (0.5, False), (1.5, False)])
def test_the_noise_has_the_scale_that_is_charged_for(factor, accepted):
    mechanism = CorrectCounts(num_candidates=4000, noise_multiplier=30.0)
    drawn = mechanism.privatize(np.full(4000, 7.0), RoundedGaussianNoise(), 0) - 7.0
    scale = 30.0 * math.sqrt(4000)
    assert (stats.kstest(drawn, "norm", args=(0, scale * factor)).pvalue > 1e-7) == accepted
    assert mechanism.dp_event() == dp_accounting.GaussianDpEvent(30.0)


def test_what_is_no_number_of_records_is_refused():
    with pytest.raises(InvalidArgumentError, match="to be integers"):
        MECHANISM.privatize(np.full(4, 0.5), RoundedGaussianNoise(), 0)
    with pytest.raises(InvalidArgumentError, match="candidates to be 4"):
        MECHANISM.sums([np.zeros(3)], np.zeros(3))


@pytest.mark.parametrize("changes", [{"num_candidates": 0}, {"noise_multiplier": 0.0}])
def test_bad_settings_are_refused(changes):
    with pytest.raises(InvalidArgumentError):
        CorrectCounts(**{"num_candidates": 2, "noise_multiplier": 1.0} | changes)
