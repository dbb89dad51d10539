"""D2P-Fed: its rotation, its levels, and that its sensitivity is what it says."""

import math

import dp_accounting
import numpy as np
import pytest
import tensorflow as tf
from scipy import linalg

from datalens_tf.errors import InvalidArgumentError
from datalens_tf.mechanisms import D2PFed
from tests.mechanisms.conformance import MechanismConformance, seeds_of, worst_cases


def make(**changes):
    return D2PFed(**{"num_teachers": 6, "dimension": 24, "num_levels": 5, "clip": 1e-5, "noise_stddev": 1.0,
                     "vote_threshold": 0.3, **changes})


class TestFiveLevelsConform(MechanismConformance):
    num_votes = 32

    def make(self, *, noise_stddev):
        return make(noise_stddev=noise_stddev)


class TwoLevels(TestFiveLevelsConform):
    __test__ = False  # But for its sensitivity.

    def make(self, *, noise_stddev):
        return make(num_levels=2, clip=None, noise_stddev=noise_stddev)


@pytest.mark.parametrize("suite", [TestFiveLevelsConform, TwoLevels])
def test_the_sensitivity_holds_and_a_smaller_one_would_be_caught(suite):
    class Wrong(D2PFed):
        def l2_sensitivity(self, num_images):
            return 0.99 * super().l2_sensitivity(num_images)

    class Caught(suite):
        def make(self, *, noise_stddev):
            right = super().make(noise_stddev=noise_stddev)
            return Wrong(**{name: getattr(right, name) for name in right.__dataclass_fields__})

    suite().test_swapping_one_teacher_moves_the_sum_by_at_most_the_sensitivity()
    with pytest.raises(AssertionError):
        Caught().test_swapping_one_teacher_moves_the_sum_by_at_most_the_sensitivity()


@pytest.mark.parametrize("dimension, padded", [(1, 1), (2, 2), (24, 32), (784, 1024), (12_288, 16_384)])
def test_the_rotation_is_the_hadamard_transform_of_random_signs(dimension, padded):
    mechanism = make(dimension=dimension)
    assert mechanism.padded_dimension == padded
    values = np.random.default_rng(0).normal(size=(3, padded)).astype(np.float32)
    rotated = mechanism.rotate(values).numpy()
    np.testing.assert_allclose(np.linalg.norm(rotated, axis=1), np.linalg.norm(values, axis=1), rtol=1e-5)
    np.testing.assert_allclose(mechanism.unrotate(rotated), values, atol=1e-4)
    if padded <= 1024:
        expected = (values * mechanism._signs()) @ linalg.hadamard(padded) / math.sqrt(padded)
        np.testing.assert_allclose(rotated, expected, atol=1e-4)
    assert not np.array_equal(rotated, make(dimension=dimension, rotation_seed=3).rotate(values)) or padded < 3


@pytest.mark.parametrize("num_teachers, num_images", [(1, 1), (1, 3), (5, 1), (5, 3)])
def test_a_batch_is_rotated_as_each_of_its_gradients(num_teachers, num_images):
    mechanism = make(dimension=784)
    values = np.random.default_rng(0).normal(size=(num_teachers, num_images, 1024)).astype(np.float32)
    single = [[mechanism.rotate(gradient) for gradient in of_teacher] for of_teacher in values]
    np.testing.assert_allclose(mechanism.rotate(values), single, atol=1e-5)
    np.testing.assert_allclose(mechanism.unrotate(mechanism.rotate(values)), values, atol=1e-5)


@pytest.mark.parametrize("num_levels", [2, 3, 4, 9])
def test_levels_are_centred_and_right_on_average(num_levels):
    """A teacher's votes, rotated back, point along its gradient; none of its gradient, none of its votes."""
    mechanism = make(num_levels=num_levels, clip=None)
    gradient = np.random.default_rng(1).normal(size=(1, 24)).astype(np.float32)
    votes = mechanism.compress(np.tile(gradient, (1, 20_000, 1)), seeds_of(1)).numpy()[0]
    assert set(np.unique(votes)) <= set(range(-(num_levels - 1), num_levels, 2))
    rotated = mechanism.rotate(np.pad(gradient, [[0, 0], [0, 8]])).numpy()
    expected = rotated / np.abs(rotated).max() * (num_levels - 1)
    # A vote moves by less than one step of 2: its mean over 20,000 has standard deviation below 0.0071 (K - 1).
    np.testing.assert_allclose(votes.mean(axis=0), expected[0], atol=0.04 * (num_levels - 1))
    for name in ("zeros", "NaN", "infinite"):
        assert not np.any(mechanism.compress(worst_cases(1, 24)[name][None], seeds_of(1)))


def test_without_noise_and_threshold_the_direction_is_the_teachers():
    mechanism = make(num_levels=65, clip=None, vote_threshold=0.0, num_teachers=1)
    gradient = np.zeros((1, 24), np.float32)
    gradient[0, 5] = -3.0
    votes = mechanism.compress(gradient[None], seeds_of(1)).numpy()[0]
    direction = mechanism.postprocess(votes.astype(np.float64))
    assert np.argmin(direction) == 5 and np.abs(np.delete(direction, 5)).max() < 1e-4


def test_the_price_is_sigma_over_levels_and_padded_dimension():
    mechanism = D2PFed(num_teachers=4000, dimension=784, num_levels=4, clip=None, noise_stddev=5000.0,
                       vote_threshold=0.5)
    assert mechanism.dp_event(15) == dp_accounting.GaussianDpEvent(5000 / (2 * 3 * math.sqrt(1024 * 15)))


@pytest.mark.parametrize("changes, message", [
    (dict(num_levels=1), "num_levels=1 >= 2"), (dict(dimension=0), "dimension=0 >= 1"), (dict(clip=0.0), "clip=0.0"),
    (dict(num_levels=2**24 // 6 + 2), "num_levels=2796204 <= 2796203, because float32 sums of 6 teachers"),
    (dict(noise_stddev=-1.0), "noise_stddev=-1.0 >= 0"), (dict(vote_threshold=2.0), "vote_threshold=2.0")])
def test_bad_settings(changes, message):
    with pytest.raises(InvalidArgumentError, match=message):
        make(**changes)


def test_gradients_of_another_dimension():
    with pytest.raises(InvalidArgumentError, match="dimension=24 to be 12"):
        make().compress(tf.zeros([1, 1, 12]), seeds_of(1))
