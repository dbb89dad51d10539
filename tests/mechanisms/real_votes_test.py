"""The number of teachers that take an image for real: the shared promises of mechanisms, and its own."""

import itertools

import numpy as np
import pytest
import tensorflow as tf

from datalens_tf.errors import InvalidArgumentError
from datalens_tf.mechanisms.real_votes import RealVotes
from tests.mechanisms.conformance import MechanismConformance, seeds_of


def make(num_teachers=6, noise_stddev=1.0):
    return RealVotes(num_teachers=num_teachers, noise_stddev=noise_stddev)


class TestRealVotes(MechanismConformance):
    num_images, dimension = 24, 1

    def make(self, *, noise_stddev):
        return make(self.num_teachers, noise_stddev)


def test_the_sensitivity_is_attained_and_never_exceeded():
    """All answers that three teachers can give to three images, and all that one of them can give instead."""
    answers = [np.array(a, np.float32)[:, None] for a in itertools.product([-1, 1], repeat=3)]
    votes = make(3).compress(np.stack(answers), seeds_of(8)).numpy().astype(np.float64)
    largest = max(np.linalg.norm(one - other) for one, other in itertools.product(votes, repeat=2))
    assert largest == pytest.approx(make(3).l2_sensitivity(3), rel=1e-12) and len(np.unique(votes, axis=0)) == 8


def test_a_logit_above_zero_is_a_vote_and_nan_is_none():
    logits = np.array([[[2.0], [0.0], [-1.0], [np.nan], [np.inf], [-np.inf]]], np.float32)
    np.testing.assert_array_equal(make().compress(logits, seeds_of(1))[0, :, 0], [1, 0, 0, 0, 1, 0])
    assert make().compress(tf.constant(logits), seeds_of(1)).dtype == tf.float32


def test_the_majority_of_noisy_votes_decides():
    np.testing.assert_array_equal(make(6).postprocess(np.array([[3.0], [2.99], [-5.0], [40.0]])),
                                  [[1], [-1], [-1], [1]])


@pytest.mark.parametrize("changes, message", [
    ({"num_teachers": 0}, "num_teachers=0 >= 1"), ({"noise_stddev": -1.0}, "noise_stddev=-1.0 >= 0"),
    ({"noise_stddev": np.nan}, "noise_stddev=nan")])
def test_bad_values_are_named(changes, message):
    with pytest.raises(InvalidArgumentError, match=message):
        make(**changes)
