"""What every mechanism must satisfy. Inherit `MechanismConformance` and say how to make one."""

import math
import random

import dp_accounting
import numpy as np
import pytest
import tensorflow as tf
from scipy import stats

from datalens_tf.accounting import accountants
from datalens_tf.errors import InvalidArgumentError
from datalens_tf.mechanisms import (
    InsecureSeededNoise,
    Mechanism,
    NoiseSource,
    RoundedGaussianNoise,
    SecureGaussianNoise,
)


def worst_cases(num_images: int, dimension: int) -> dict[str, np.ndarray]:
    """Gradients [m, d] of one teacher that an attacker, a dead network or an overflow could produce."""
    shape = (num_images, dimension)
    random_gradient = np.random.default_rng(0).normal(size=shape) * 1e-5
    one_nan, one_inf = random_gradient.copy(), random_gradient.copy()
    one_nan[0, -1], one_inf[-1, 0] = np.nan, -np.inf
    cases = {
        "random": random_gradient,
        "opposite": -random_gradient,
        "zeros": np.zeros(shape),
        "ties": np.ones(shape),
        "opposite ties": -np.ones(shape),
        "one non-zero": np.eye(num_images, dimension),
        "opposite non-zero": -np.eye(num_images, dimension),
        "huge": np.full(shape, np.finfo(np.float32).max) * np.sign(random_gradient),
        "denormal": np.full(shape, 1e-42),
        "one NaN": one_nan,
        "one infinity": one_inf,
        "NaN": np.full(shape, np.nan),
        "infinite": np.full(shape, np.inf),
        "opposite infinities": np.where(random_gradient > 0, np.inf, -np.inf),
    }
    return {name: gradient.astype(np.float32) for name, gradient in cases.items()}


def with_odd_rows(rows: np.ndarray, odd: list, random: np.random.Generator) -> np.ndarray:
    """The rows, four in ten of them replaced by odd ones, in place."""
    for index in range(len(rows)):
        if random.random() < 0.4:
            rows[index] = odd[random.integers(len(odd))]
    return rows


def sizes_of(units: np.ndarray | None, count: int) -> np.ndarray:
    """Number of records of each of `count` records' units; 1 where each is its own."""
    return np.ones(count, int) if units is None else np.bincount(units)[units]


def seeds_of(num_teachers: int, first: int = 0) -> np.ndarray:
    """Distinct stateless seeds, int32 [T, 2]."""
    return np.stack([np.arange(first, first + num_teachers), np.full(num_teachers, 17)], axis=1).astype(np.int32)


class BroadcastNoise(NoiseSource):
    """A broken source: one number for the whole release."""

    is_secure, description = True, "broken"

    def draw(self, shape, stddev, index):
        return np.array([[stddev]])


class MechanismConformance:
    """Tests of the promises in `Mechanism`'s docstring, with `num_images` images of `dimension` numbers, on each of
    which a teacher has `num_votes` votes."""

    num_teachers = 6
    num_images = 3
    dimension = 24

    @property
    def num_votes(self) -> int:
        """Votes of a teacher per image."""
        return self.dimension

    def cases(self) -> dict[str, np.ndarray]:
        """Gradients [m, d] of one teacher that could be worst."""
        return worst_cases(self.num_images, self.dimension)

    def make(self, *, noise_stddev: float) -> Mechanism:
        """A mechanism for `num_teachers` teachers whose noise on the vote sum has this standard deviation."""
        raise NotImplementedError

    def votes(self, gradients: np.ndarray, first_seed: int = 0) -> np.ndarray:
        """Votes of gradients [T, m, d], in float64."""
        return self.make(noise_stddev=1.0).compress(
            gradients, seeds_of(len(gradients), first_seed)).numpy().astype(np.float64)

    def test_swapping_one_teacher_moves_the_sum_by_at_most_the_sensitivity(self):
        cases = self.cases()
        others = np.stack([cases["random"]] * (self.num_teachers - 1))
        sum_of_others = self.votes(others, 50).sum(axis=0)
        sums = {
            (name, seed): self.votes(np.concatenate([gradient[np.newaxis], others]), seed)[0] + sum_of_others
            for name, gradient in cases.items() for seed in (0, 99)}
        bound = self.make(noise_stddev=1.0).l2_sensitivity(self.num_images)
        for first, sum_1 in sums.items():
            for second, sum_2 in sums.items():
                assert np.linalg.norm(sum_1 - sum_2) <= bound * (1 + 1e-12), (first, second)

    def test_votes_are_finite_integers_of_the_right_shape_and_type(self):
        gradients = np.stack(list(worst_cases(self.num_images, self.dimension).values()))
        votes = self.make(noise_stddev=1.0).compress(gradients, seeds_of(len(gradients)))
        assert votes.dtype == tf.float32 and votes.shape == (*gradients.shape[:2], self.num_votes)
        assert np.all(np.isfinite(votes)) and np.all(votes.numpy() == np.rint(votes))

    def test_votes_of_a_teacher_do_not_depend_on_the_other_teachers_or_on_chunks(self):
        gradients = np.stack(list(worst_cases(self.num_images, self.dimension).values()))
        together = self.votes(gradients)
        chunks = [self.votes(gradients[start:start + 4], start) for start in range(0, len(gradients), 4)]
        np.testing.assert_array_equal(np.concatenate(chunks), together)
        alone = [self.votes(gradients[i:i + 1], i)[0] for i in range(len(gradients))]
        np.testing.assert_array_equal(alone, together)

    def test_votes_in_a_compiled_graph_equal_eager_votes(self):
        gradients = np.stack(list(worst_cases(self.num_images, self.dimension).values()))
        graph = tf.function(self.make(noise_stddev=1.0).compress, input_signature=[
            tf.TensorSpec([None, None, self.dimension], tf.float32), tf.TensorSpec([None, 2], tf.int32)])
        np.testing.assert_array_equal(graph(gradients, seeds_of(len(gradients))), self.votes(gradients))

    def test_without_noise_the_sum_is_released_as_it_is_and_costs_infinity(self):
        mechanism = self.make(noise_stddev=0.0)
        vote_sum = self.vote_sum()
        np.testing.assert_array_equal(mechanism.privatize(vote_sum, SecureGaussianNoise(), 0), vote_sum)
        event = mechanism.dp_event(self.num_images)
        assert all(accountants.epsilon(event, 1, 1e-5, name) == math.inf for name in accountants.ACCOUNTANTS)

    @pytest.mark.parametrize("share", [1.0, 0.25])
    @pytest.mark.parametrize("factor, accepted", [(1.0, True), (2 / 3, False), (3 / 2, False)])
    def test_noise_has_the_promised_scale(self, factor, accepted, share):
        # Accepting wrongly or rejecting wrongly has probability below 1e-6 with 20,000 draws.
        sigma = 7000.0  # Rounding to integers does not show.
        mechanism = self.make(noise_stddev=sigma)
        vote_sum = self.vote_sum()
        repeats = 20_000 // vote_sum.size
        noise = np.concatenate([(mechanism.privatize(vote_sum, RoundedGaussianNoise(), i, share) - vote_sum).ravel()
                                for i in range(repeats)])
        assert (stats.kstest(noise, stats.norm(0, sigma * factor * share**0.5).cdf).pvalue > 1e-7) == accepted

    def test_noise_is_independent_between_coordinates_and_releases(self):
        mechanism = self.make(noise_stddev=1.0)
        vote_sum = self.vote_sum()
        first, second = (mechanism.privatize(vote_sum, SecureGaussianNoise(), 0) - vote_sum for _ in range(2))
        assert len(np.unique(np.concatenate([first.ravel(), second.ravel()]))) == 2 * first.size

    def test_dp_event_is_noise_over_sensitivity(self):
        for num_images in (1, self.num_images):
            mechanism = self.make(noise_stddev=11.0)
            assert mechanism.dp_event(num_images) == dp_accounting.GaussianDpEvent(
                11.0 / mechanism.l2_sensitivity(num_images))

    def test_sensitivity_is_joint_over_the_images(self):
        mechanism = self.make(noise_stddev=1.0)
        assert mechanism.l2_sensitivity(9) == pytest.approx(3 * mechanism.l2_sensitivity(1), rel=1e-12)

    def test_seeding_every_generator_does_not_fix_the_noise(self):
        mechanism = self.make(noise_stddev=1.0)
        releases = []
        for _ in range(2):
            random.seed(1)
            np.random.seed(1)
            tf.keras.utils.set_random_seed(1)
            releases.append(mechanism.privatize(self.vote_sum(), SecureGaussianNoise(), 0))
        assert not np.any(releases[0] == releases[1])

    def test_test_noise_is_a_function_of_seed_and_charge(self):
        mechanism = self.make(noise_stddev=1.0)
        release = {(seed, index): mechanism.privatize(self.vote_sum(), InsecureSeededNoise(seed), index)
                   for seed in (1, 2) for index in (0, 1)}
        np.testing.assert_array_equal(
            release[1, 0], mechanism.privatize(self.vote_sum(), InsecureSeededNoise(1), 0))
        for other in ((1, 1), (2, 0)):
            assert not np.any(release[1, 0] == release[other])

    @pytest.mark.parametrize("bad", [np.nan, np.inf, 0.5, 1e9])
    def test_sums_that_no_votes_can_give_are_refused_without_printing_them(self, bad):
        vote_sum = self.vote_sum()
        vote_sum[0, 0] = bad
        with pytest.raises(InvalidArgumentError, match="integer vote sums") as error:
            self.make(noise_stddev=1.0).privatize(vote_sum, SecureGaussianNoise(), 0)
        assert str(bad) not in str(error.value)

    def test_noise_that_would_be_shared_by_coordinates_is_refused(self):
        with pytest.raises(InvalidArgumentError, match="noise.shape"):
            self.make(noise_stddev=1.0).privatize(self.vote_sum(), BroadcastNoise(), 0)

    def test_direction_is_finite_float32_of_the_same_shape(self):
        noisy = self.make(noise_stddev=1.0).privatize(self.vote_sum(), SecureGaussianNoise(), 0)
        direction = self.make(noise_stddev=1.0).postprocess(noisy)
        assert direction.dtype == np.float32 and np.all(np.isfinite(direction))
        assert direction.shape == (self.num_images, self.dimension)

    def vote_sum(self) -> np.ndarray:
        """A vote sum that real votes gave."""
        gradient = worst_cases(self.num_images, self.dimension)["random"]
        return self.votes(np.stack([gradient] * self.num_teachers)).sum(axis=0)
