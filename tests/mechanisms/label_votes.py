"""What every aggregator of label votes must satisfy. Inherit `LabelVotesConformance` and say how to make one."""

import dataclasses
import itertools
import math
import random

import dp_accounting
import numpy as np
import pytest

from datalens_tf.accounting import accountants
from datalens_tf.errors import InvalidArgumentError
from datalens_tf.mechanisms import InsecureSeededNoise, NoiseSource
from datalens_tf.mechanisms.gnmax import LabelVotes, count_votes
from tests.mechanisms.conformance import BroadcastNoise


class NoNoise(NoiseSource):
    """Shows what noise would be added to."""

    is_secure = False

    def draw(self, shape, stddev, index):
        return np.zeros(shape)


class LabelVotesConformance:
    """Tests of the promises in `LabelVotes`' docstring."""

    num_classes = 3

    def make(self, **changes) -> LabelVotes:
        """A mechanism for 4 votes on `num_classes` classes that answers every query, with these changes."""
        raise NotImplementedError

    def in_units_of_noise(self, mechanism: LabelVotes, noisy: np.ndarray) -> np.ndarray:
        """What `privatize` returns, every number divided by the standard deviation of its noise."""
        return noisy / mechanism.noise_stddev

    def priced_change(self, event: dp_accounting.DpEvent) -> float:
        """The largest change that the event pays for, in units of the noise."""
        return 1 / event.noise_multiplier

    norm_order = 2  # In which noise of this kind is priced.

    def largest_change(self, mechanism: LabelVotes, record_votes: int) -> float:
        """Of one query's release over all votes of two teachers and of those with the record, and all they can change
        to; abstention and labels that are no class included. In units of the noise."""
        answers = [-1, *range(self.num_classes), 99]
        largest = 0.0
        for others in itertools.combinations_with_replacement(range(self.num_classes), 2):
            options = np.array(list(itertools.product(answers, repeat=record_votes)))
            each = [count_votes(np.array([*others, *own])[:, None], self.num_classes) for own in options]
            released = np.concatenate([mechanism.privatize(counts, NoNoise(), 0) for counts in each])
            points = self.in_units_of_noise(mechanism, released)
            changes = np.linalg.norm(points[:, None] - points, ord=self.norm_order, axis=-1)
            largest = max(largest, float(changes.max()))
        return largest

    @pytest.mark.parametrize("record_votes", [1, 2])
    def test_the_priced_change_is_attained_and_never_exceeded(self, record_votes):
        mechanism = self.make(record_votes=record_votes)
        priced = self.priced_change(mechanism.dp_event(1))
        assert self.largest_change(mechanism, record_votes) == pytest.approx(priced, rel=1e-12)

    def test_a_wrong_sensitivity_is_caught(self):
        """A record in two teachers that is priced as in one."""
        mechanism = self.make(record_votes=1)
        assert self.largest_change(mechanism, 2) > 1.5 * self.priced_change(mechanism.dp_event(1))

    def test_a_teachers_weight_is_that_of_as_many_teachers(self):
        answers = np.array([[0, 1], [2, 2], [1, -1]])
        np.testing.assert_array_equal(count_votes(answers, 3, np.array([1, 2, 1])),
                                      count_votes(np.repeat(answers, [1, 2, 1], axis=0), 3))

    def test_votes_only_decide_what_they_are_about(self):
        """Another query's votes change nothing in this one's release; and the order of teachers nothing at all."""
        counts = np.array([[3, 1, 0], [0, 1, 2], [1, 1, 1]])
        mechanism = self.make()
        together = mechanism.privatize(counts, NoNoise(), 0)
        for row, alone in zip(together, counts):
            np.testing.assert_array_equal(mechanism.privatize(alone[None], NoNoise(), 0)[0], row)

    def test_without_noise_the_majority_is_released_and_costs_infinity(self):
        mechanism = self.make(noise_stddev=0.0)
        counts = np.array([[3, 1, 0], [0, 1, 2]])
        noisy = mechanism.privatize(counts, mechanism.noise_class(), 0)
        np.testing.assert_array_equal(mechanism.answers(noisy), [0, 2])
        assert accountants.epsilon(mechanism.dp_event(2), 1, 1e-5, "rdp") == math.inf

    def test_queries_are_one_joint_release(self):
        together, apart = (accountants.epsilon(self.answering(num_queries).dp_event(num_queries), count, 1e-5, "rdp")
                           for num_queries, count in ((8, 1), (2, 4)))
        assert together == pytest.approx(apart, rel=1e-12)

    def answering(self, num_queries: int) -> LabelVotes:
        """A mechanism that can answer so many queries."""
        del num_queries
        return self.make()

    def test_the_price_depends_on_settings_alone(self):
        mechanism = self.make()
        event = mechanism.dp_event(3)
        mechanism.privatize(np.array([[4, 0, 0]] * 3), mechanism.noise_class(), 0)
        assert mechanism.dp_event(3) == event == dataclasses.replace(mechanism).dp_event(3)

    def test_two_votes_cost_as_half_the_noise(self):
        one, two = (self.make(record_votes=1, noise_stddev=5.0), self.make(record_votes=2, noise_stddev=10.0))
        assert one.dp_event(3) == two.dp_event(3)

    def test_noise_is_independent_between_numbers_and_releases(self):
        mechanism = self.make(noise_stddev=1e9)
        counts = np.array([[3, 1, 0], [0, 1, 2]])
        drawn = np.concatenate([mechanism.privatize(counts, mechanism.noise_class(), 0).ravel() for _ in range(2)])
        drawn = drawn[~np.isnan(drawn)]  # Of queries that did not pass.
        assert len(drawn) >= 4 and np.all(np.isfinite(drawn)) and len(np.unique(drawn)) == len(drawn)

    def test_seeding_every_generator_does_not_fix_the_noise(self):
        mechanism = self.make(noise_stddev=1e9)
        releases = []
        for _ in range(2):
            random.seed(1)
            np.random.seed(1)
            releases.append(mechanism.privatize(np.array([[3, 1, 0]]), mechanism.noise_class(), 0))
        assert not np.any(releases[0] == releases[1])

    def test_test_noise_is_a_function_of_seed_and_charge(self):
        mechanism, counts = self.make(), np.array([[3, 1, 0]])
        first, again, other = (mechanism.privatize(counts, InsecureSeededNoise(1), index) for index in (0, 0, 1))
        np.testing.assert_array_equal(first, again)
        assert not np.any(first == other)

    def test_noise_of_another_kind_is_refused(self):
        class Foreign(NoNoise):
            is_secure = True

        with pytest.raises(InvalidArgumentError, match="noise='Foreign' to be Rounded"):
            self.make().privatize(np.array([[3, 1, 0]]), Foreign(), 0)

    @pytest.mark.parametrize("bad", [np.nan, np.inf, 0.5, -1, 1e9])
    def test_counts_that_no_votes_can_give_are_refused_without_printing_them(self, bad):
        with pytest.raises(InvalidArgumentError, match="integer vote sums") as error:
            self.make().privatize(np.array([[bad, 0, 0]]), NoNoise(), 0)
        assert str(bad) not in str(error.value)

    def test_more_votes_than_there_are_are_refused(self):
        with pytest.raises(InvalidArgumentError, match="num_votes=4"):
            self.make().privatize(np.array([[3, 1, 1]]), NoNoise(), 0)

    def test_counts_of_another_shape_are_refused(self):
        with pytest.raises(InvalidArgumentError, match="counts.shape"):
            self.make().privatize(np.array([[3, 1]]), NoNoise(), 0)

    def test_noise_that_would_be_shared_is_refused(self):
        class Shared(BroadcastNoise):
            is_secure = False

        with pytest.raises(InvalidArgumentError, match="noise.shape"):
            self.make().privatize(np.array([[3, 1, 0]] * 2), Shared(), 0)

    @pytest.mark.parametrize("changes,message", [
        ({"num_votes": 0}, "num_votes=0 >= 1"), ({"num_classes": 1}, "num_classes=1 >= 2"),
        ({"noise_stddev": -1.0}, "noise_stddev=-1.0 >= 0"), ({"noise_stddev": math.nan}, "noise_stddev=nan"),
        ({"record_votes": 0}, "record_votes=0 >= 1"), ({"record_votes": 5}, "record_votes=5 <= num_votes=4")])
    def test_bad_values_are_named(self, changes, message):
        with pytest.raises(InvalidArgumentError, match=message):
            self.make(**changes)
