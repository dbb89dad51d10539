"""FetchSGD: its sketch, and that its sensitivity counts rows and collisions."""

import math

import dp_accounting
import numpy as np
import pytest
import tensorflow as tf

from datalens_tf.errors import InvalidArgumentError
from datalens_tf.mechanisms import FetchSgd
from tests.mechanisms.conformance import MechanismConformance, seeds_of


def make(**changes):
    return FetchSgd(**{"num_teachers": 6, "dimension": 24, "top_k": 6, "clip": 1e-5, "noise_stddev": 1.0,
                       "sketch_rows": 1, "sketch_columns": 8, **changes})


def aligned(mechanism, num_images):
    """A gradient whose votes fill whole buckets of the first row, with signs that add up there."""
    buckets, signs = mechanism._hashes
    gradient = np.zeros(mechanism.dimension, np.float32)
    chosen = np.argsort(buckets[0], kind="stable")[:mechanism.top_k]
    gradient[chosen] = signs[0, chosen]
    return np.tile(gradient, (num_images, 1))


class TestThreeRowsConform(MechanismConformance):
    num_votes = 24

    def cases(self):
        gradient = aligned(self.make(noise_stddev=1.0), self.num_images)
        return super().cases() | {"aligned": gradient, "opposite aligned": -gradient}

    def make(self, *, noise_stddev):
        return make(sketch_rows=3, noise_stddev=noise_stddev)


class OneRow(TestThreeRowsConform):
    __test__ = False  # But for its sensitivity, as the next.

    def make(self, *, noise_stddev):
        return make(noise_stddev=noise_stddev)


class NoCollisions(TestThreeRowsConform):
    __test__ = False

    def make(self, *, noise_stddev):
        return make(sketch_rows=2, sketch_columns=50, noise_stddev=noise_stddev)


def slightly_less(mechanism):
    return 0.99 * mechanism.l2_sensitivity(3)


def without_collisions(mechanism):
    return 2 * math.sqrt(mechanism.sketch_rows * mechanism.top_k * 3)


def without_rows(mechanism):
    return 2 * math.sqrt(mechanism.top_k * 3)


@pytest.mark.parametrize("suite, wrongs", [
    (OneRow, [slightly_less, without_collisions]), (TestThreeRowsConform, [without_collisions]),
    (NoCollisions, [without_rows, slightly_less])])
def test_the_sensitivity_holds_and_a_smaller_one_would_be_caught(suite, wrongs):
    right, votes = suite().make(noise_stddev=1.0), {}

    class Remembering(suite):
        def votes(self, gradients, first_seed=0):
            """Which do not depend on the sensitivity."""
            key = gradients.tobytes(), first_seed
            if key not in votes:
                votes[key] = super().votes(gradients, first_seed)
            return votes[key]

    Remembering().test_swapping_one_teacher_moves_the_sum_by_at_most_the_sensitivity()
    for wrong in wrongs:
        class Wrong(FetchSgd):
            def l2_sensitivity(self, num_images, wrong=wrong):
                return wrong(right)

        class Caught(Remembering):
            def make(self, *, noise_stddev, wrong=Wrong):
                return wrong(**{name: getattr(right, name) for name in right.__dataclass_fields__})

        with pytest.raises(AssertionError):
            Caught().test_swapping_one_teacher_moves_the_sum_by_at_most_the_sensitivity()


def test_the_sketch_is_the_loop_as_it_is_read_and_adds_up():
    mechanism = make(sketch_rows=3, sketch_columns=7)
    votes = np.random.default_rng(0).integers(-1, 2, (2, 24)).astype(np.float32)
    buckets, signs = mechanism._hashes
    expected = np.zeros((2, 3, 7))
    for image in range(2):
        for row in range(3):
            for coordinate in range(24):
                expected[image, row, buckets[row, coordinate]] += signs[row, coordinate] * votes[image, coordinate]
    np.testing.assert_array_equal(mechanism.sketch(votes), expected.reshape(2, 21))
    np.testing.assert_array_equal(mechanism.sketch(votes) + mechanism.sketch(2 * votes), mechanism.sketch(3 * votes))
    assert np.bincount(buckets[0]).max() == mechanism.largest_bucket == 4


def test_heavy_coordinates_survive_the_sketch():
    mechanism = make(dimension=784, top_k=10, sketch_rows=7, sketch_columns=200, num_teachers=1000)
    total = np.random.default_rng(1).integers(-20, 21, (2, 784)).astype(np.float32)
    heavy = np.random.default_rng(2).choice(784, 10, replace=False)
    total[:, heavy] = np.where(np.arange(10) % 2, 900, -800)
    direction = mechanism.postprocess(mechanism.sketch(total).numpy().astype(np.float64))
    assert set(np.flatnonzero(direction[0])) == set(heavy)
    np.testing.assert_allclose(direction[:, heavy], total[:, heavy] / 1000, atol=0.15)


def test_without_collisions_the_sketch_loses_nothing():
    mechanism = make(sketch_columns=24, top_k=24)
    total = np.random.default_rng(3).integers(-6, 7, (2, 24)).astype(np.float64)
    np.testing.assert_allclose(mechanism.postprocess(mechanism.sketch(total.astype(np.float32)).numpy()), total / 6,
                               rtol=1e-6)


def test_the_price_counts_rows_and_collisions():
    mechanism = FetchSgd(num_teachers=4000, dimension=784, top_k=200, clip=None, noise_stddev=5000.0, sketch_rows=3,
                         sketch_columns=400)
    assert mechanism.dp_event(15) == dp_accounting.GaussianDpEvent(5000 / (2 * math.sqrt(3 * 200 * 2 * 15)))


@pytest.mark.parametrize("changes, message", [
    (dict(top_k=25), "top_k=25 <= 24"), (dict(sketch_rows=0), "sketch_rows=0 >= 1"), (dict(clip=-1.0), "clip=-1.0"),
    (dict(sketch_columns=0), "sketch_columns=0 >= 1"), (dict(noise_stddev=-1.0), "noise_stddev=-1.0 >= 0")])
def test_bad_settings(changes, message):
    with pytest.raises(InvalidArgumentError, match=message):
        make(**changes)


def test_gradients_of_another_dimension():
    with pytest.raises(InvalidArgumentError, match="dimension=24 to be 12"):
        make().compress(tf.zeros([1, 1, 12]), seeds_of(1))
