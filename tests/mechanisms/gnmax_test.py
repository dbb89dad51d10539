"""LNMax, GNMax, Confident-GNMax and Interactive-GNMax on label votes: the shared promises, and each one's own."""

import math

import dp_accounting
import numpy as np
import pytest
from scipy import stats

from datalens_tf.accounting import accountants
from datalens_tf.errors import InvalidArgumentError
from datalens_tf.mechanisms.gnmax import ConfidentGNMax, GNMax, InteractiveGNMax, LNMax, count_votes
from tests.mechanisms.label_votes import LabelVotesConformance, NoNoise

SHARED = dict(num_votes=4, num_classes=3, noise_stddev=2.0)
TESTED = dict(threshold_noise_ratio=1.5, vote_threshold=0.0, max_answers=1)


class TestGNMax(LabelVotesConformance):
    def make(self, **changes):
        return GNMax(**SHARED | changes)


class TestLNMax(LabelVotesConformance):
    norm_order = 1

    def make(self, **changes):
        return LNMax(**SHARED | changes)

    def in_units_of_noise(self, mechanism, noisy):
        return noisy / (mechanism.noise_stddev / math.sqrt(2))

    def priced_change(self, event):
        return event.count / event.event.noise_multiplier


class TestConfidentGNMax(LabelVotesConformance):
    kind, settings = ConfidentGNMax, TESTED

    def make(self, **changes):
        return self.kind(**SHARED | self.settings | {"max_answers": 3} | changes)

    def answering(self, num_queries):
        return self.make(max_answers=num_queries)

    def in_units_of_noise(self, mechanism, noisy):
        scale = np.array([mechanism.threshold_noise_ratio, *[1.0] * mechanism.num_classes])
        return noisy / (scale * mechanism.noise_stddev)

    @pytest.mark.parametrize("record_votes", [1, 2])
    def test_the_priced_change_is_attained_and_never_exceeded(self, record_votes):
        mechanism = self.make(record_votes=record_votes, max_answers=1)
        priced = self.priced_change(mechanism.dp_event(1))
        assert self.largest_change(mechanism, record_votes) == pytest.approx(priced, rel=1e-12)

    def test_a_wrong_sensitivity_is_caught(self):
        mechanism = self.make(record_votes=1, max_answers=1)
        assert self.largest_change(mechanism, 2) > 1.5 * self.priced_change(mechanism.dp_event(1))


class TestInteractiveGNMax(TestConfidentGNMax):
    kind, settings = InteractiveGNMax, TESTED | {"min_confidence": 0.9}


def test_what_is_no_class_is_no_vote():
    answers = np.array([[0, 1], [0, -1], [7, 1], [-3, 2]])
    np.testing.assert_array_equal(count_votes(answers, 3), [[2, 0, 0], [0, 2, 1]])
    np.testing.assert_array_equal(count_votes(answers.astype(float) + np.nan, 3), np.zeros((2, 3)))
    for weights in ([1, 1, 1], [1, 1, 1, 0], [1, 1, 1, 1.5]):
        with pytest.raises(InvalidArgumentError, match="weights="):
            count_votes(answers, 3, np.array(weights))


def test_gnmax_is_priced_as_the_papers_say():
    """Order alpha costs alpha / sigma^2 per query: Papernot et al. 2018, Proposition 8."""
    event = GNMax(num_votes=250, num_classes=10, noise_stddev=40.0).dp_event(100)
    assert event == dp_accounting.GaussianDpEvent(40.0 / math.sqrt(200))
    assert event.noise_multiplier**-2 / 2 == pytest.approx(100 / 40.0**2)


def test_confident_gnmax_is_priced_as_test_and_answers_apart():
    mechanism = ConfidentGNMax(num_votes=250, num_classes=10, noise_stddev=40.0, threshold_noise_ratio=3.75,
                               vote_threshold=0.8, max_answers=30, record_votes=2)
    parts = [dp_accounting.SelfComposedDpEvent(dp_accounting.GaussianDpEvent(150.0 / 2), 100),
             dp_accounting.SelfComposedDpEvent(dp_accounting.GaussianDpEvent(40.0 / (2 * math.sqrt(2))), 30)]
    assert accountants.epsilon_of([mechanism.dp_event(100)], 1e-5, "gdp") == pytest.approx(
        accountants.epsilon_of(parts, 1e-5, "gdp"), rel=1e-9)


def test_lnmax_is_within_pure_privacy():
    """Scale b: 2 / b per query, however many queries."""
    event = LNMax(num_votes=250, num_classes=10, noise_stddev=20 * math.sqrt(2)).dp_event(3)
    assert accountants.epsilon(event, 1, 1e-9, "pld") <= 3 * 2 / 20 * (1 + 1e-6)
    assert accountants.epsilon(event, 1, 1e-12, "pld") > 0.9 * 3 * 2 / 20


@pytest.mark.parametrize("factor,accepted", [(1.0, True), (2 / 3, False), (1.5, False)])
@pytest.mark.parametrize("make,law", [(GNMax, "norm"), (LNMax, "laplace")])
def test_noise_has_the_promised_law_and_scale(make, law, factor, accepted):
    mechanism = make(**SHARED | {"noise_stddev": 7000.0})
    noise = mechanism.privatize(np.tile([3, 1, 0], (4000, 1)), mechanism.noise_class(), 0) - [3, 1, 0]
    scale = 7000.0 * factor / (math.sqrt(2) if law == "laplace" else 1)
    assert (stats.kstest(noise.ravel(), getattr(stats, law)(0, scale).cdf).pvalue > 1e-7) == accepted


@pytest.mark.parametrize("factor,accepted", [(1.0, True), (2 / 3, False), (1.5, False)])
def test_both_noises_of_confident_gnmax_have_the_promised_scale(factor, accepted):
    mechanism = ConfidentGNMax(**SHARED | TESTED | {"noise_stddev": 7000.0, "max_answers": 4000})
    noisy = mechanism.privatize(np.tile([3, 1, 0], (8000, 1)), mechanism.noise_class(), 0)
    noise = noisy - [3, 3, 1, 0]
    assert (stats.kstest(noise[:, 0], stats.norm(0, 10500 * factor).cdf).pvalue > 1e-7) == accepted
    answered = noise[~np.isnan(noise[:, 1]), 1:]
    assert (stats.kstest(answered.ravel(), stats.norm(0, 7000 * factor).cdf).pvalue > 1e-7) == accepted


def test_only_queries_that_pass_are_answered_and_no_more_than_are_paid_for():
    mechanism = ConfidentGNMax(**SHARED | TESTED | {"num_votes": 10, "vote_threshold": 0.7, "max_answers": 2})
    counts = np.array([[8, 1, 1], [4, 3, 3], [0, 7, 3], [0, 0, 10]])
    noisy = mechanism.privatize(counts, NoNoise(), 0)
    np.testing.assert_array_equal(noisy[:, 0], [8, 4, 7, 10])
    np.testing.assert_array_equal(np.isnan(noisy[:, 1:]).any(1), [False, True, False, True])  # Nothing of those leaks.
    np.testing.assert_array_equal(np.isnan(noisy[:, 1:]).all(1), [False, True, False, True])
    np.testing.assert_array_equal(mechanism.answers(noisy), [0, -1, 1, -1])


def test_teachers_are_asked_where_they_surprise_the_student():
    mechanism = InteractiveGNMax(**SHARED | TESTED | {"num_votes": 10, "vote_threshold": 0.5, "max_answers": 9,
                                                      "min_confidence": 0.8})
    counts = np.array([[9, 1, 0], [9, 1, 0], [5, 5, 0], [9, 1, 0]])
    predictions = np.array([[0.95, 0.05, 0], [0, 0.95, 0.05], [0.4, 0.4, 0.2], [0.7, 0.3, 0]])
    noisy = mechanism.privatize(counts, NoNoise(), 0, predictions)
    np.testing.assert_array_equal(noisy[:, 0], [1, 9, 1, 2])
    # Reinforced; new; no answer; no answer, for the student is not sure.
    np.testing.assert_array_equal(mechanism.answers(noisy, predictions), [0, 0, -1, -1])
    np.testing.assert_array_equal(mechanism.answers(mechanism.privatize(counts, NoNoise(), 0)), [0, 0, 0, 0])


@pytest.mark.parametrize("predictions", [np.full((1, 3), np.nan), np.full((1, 3), 2.0), np.full((1, 2), 0.5)])
def test_predictions_that_are_no_probabilities_are_refused(predictions):
    mechanism = InteractiveGNMax(**SHARED | TESTED | {"min_confidence": 0.8})
    with pytest.raises(InvalidArgumentError, match="predictions"):
        mechanism.privatize(np.array([[3, 1, 0]]), NoNoise(), 0, predictions)


@pytest.mark.parametrize("changes,message", [
    ({"threshold_noise_ratio": 0}, "threshold_noise_ratio=0 > 0"), ({"vote_threshold": 2}, "vote_threshold=2"),
    ({"max_answers": 0}, "max_answers=0 >= 1"), ({"min_confidence": -1}, "min_confidence=-1")])
def test_bad_values_of_tests_are_named(changes, message):
    with pytest.raises(InvalidArgumentError, match=message):
        InteractiveGNMax(**SHARED | TESTED | {"min_confidence": 0.8} | changes)
