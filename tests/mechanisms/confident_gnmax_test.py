"""Confident-GNMax: sensitivity over all neighbouring votes, both noises, the joint price, and what is done with it."""

import itertools
import math

import dp_accounting
import numpy as np
import pytest
import tensorflow as tf
from scipy import stats

from datalens_tf.accounting import accountants
from datalens_tf.errors import InvalidArgumentError
from datalens_tf.mechanisms import NoiseSource, RoundedGaussianNoise
from datalens_tf.mechanisms.confident_gnmax import BinnedGradients, RealOrFake
from tests.mechanisms.conformance import BroadcastNoise, seeds_of, worst_cases

SHARED = dict(num_teachers=3, noise_stddev=2.0, threshold_noise_ratio=1.5, vote_threshold=0.5)


def bins(**changes):
    return BinnedGradients(**{**SHARED, "num_bins": 3, "projection_dim": 2, "clip": 1.0, "dimension": 16, "seed": 0,
                              **changes})


def real_or_fake(**changes):
    return RealOrFake(**{**SHARED, **changes})


class NoNoise(NoiseSource):
    """Shows what noise would be added to."""

    is_secure = False

    def draw(self, shape, stddev, index):
        return np.zeros(shape)


def released(mechanism, votes):
    """What is released of votes [..., m, pB], without noise, in units of the noise of each number: [..., m, p(1+B)]."""
    flat = mechanism.privatize(votes.reshape(-1, votes.shape[-1]), NoNoise(), 0)
    flat[:, :mechanism.num_questions] /= mechanism.threshold_noise_ratio
    return flat.reshape(*votes.shape[:-1], -1) / mechanism.noise_stddev


@pytest.mark.parametrize("mechanism", [bins(), bins(threshold_noise_ratio=0.3), real_or_fake()])
def test_the_sensitivity_is_attained_and_never_exceeded(mechanism):
    """All votes of two teachers on an image, and all that a third can give, and give instead; abstention included."""
    each = list(itertools.product(range(-1, mechanism.num_bins), repeat=mechanism.num_questions))
    own = mechanism.one_hot(tf.constant(each)[:, None]).numpy().astype(np.float64)
    others = (own[:, None] + own[None]).reshape(-1, 1, 1, own.shape[-1])
    points = released(mechanism, others + own)[:, :, 0]
    changes = np.linalg.norm(points[:, :, None] - points[:, None], axis=-1)
    # The price is that of one Gaussian mechanism with this change and unit noise.
    mu = mechanism.l2_sensitivity(1) / mechanism.noise_stddev
    assert changes.max() == pytest.approx(mu, rel=1e-12)
    assert mechanism.dp_event(1).noise_multiplier == pytest.approx(1 / mu, rel=1e-12)


@pytest.mark.parametrize("mechanism, questions", [(bins(), 2), (real_or_fake(), 1)])
def test_the_price_is_that_of_all_questions_and_both_noises(mechanism, questions):
    m, sigma_1, sigma_2 = 5, 3.0, 2.0
    event = mechanism.dp_event(m)
    assert event.noise_multiplier**-2 == pytest.approx(m * questions * (1 / sigma_1**2 + 2 / sigma_2**2), rel=1e-12)
    # As if every number were released by a mechanism of its own.
    parts = [dp_accounting.SelfComposedDpEvent(dp_accounting.GaussianDpEvent(sigma_1), m * questions),
             dp_accounting.SelfComposedDpEvent(dp_accounting.GaussianDpEvent(sigma_2 / math.sqrt(2)), m * questions)]
    assert accountants.epsilon_of([event], 1e-5, "gdp") == pytest.approx(
        accountants.epsilon_of(parts, 1e-5, "gdp"), rel=1e-9)
    assert mechanism.l2_sensitivity(9) == pytest.approx(3 * mechanism.l2_sensitivity(1), rel=1e-12)


@pytest.mark.parametrize("factor, accepted", [(1.0, True), (2 / 3, False), (1.5, False)])
def test_both_noises_have_the_promised_scale_and_are_independent(factor, accepted):
    mechanism = real_or_fake(noise_stddev=7000.0, num_teachers=50)
    votes = np.tile([20.0, 30.0], (4000, 1))
    noise = mechanism.privatize(votes, RoundedGaussianNoise(), 0) - [30, 20, 30]
    for column, sigma in zip(noise.T, (10500.0, 7000.0, 7000.0)):
        assert (stats.kstest(column, stats.norm(0, sigma * factor).cdf).pvalue > 1e-7) == accepted
    assert np.abs(np.corrcoef(noise.T) - np.eye(3)).max() < 0.1


def test_only_confident_answers_count():
    mechanism = real_or_fake(num_teachers=10, vote_threshold=0.7)
    noisy = np.array([[7.0, 2.0, 1.0], [6.99, 2.0, 8.0], [9.0, -3.0, -2.5]])
    np.testing.assert_array_equal(mechanism.answers(noisy), [[0], [-1], [1]])
    np.testing.assert_array_equal(mechanism.postprocess(noisy), [[-1], [0], [1]])
    assert mechanism.postprocess(noisy).dtype == np.float32


def test_answers_of_networks():
    logits = np.array([[[2.0], [0.0], [-1.0], [np.nan], [np.inf]]], np.float32)
    np.testing.assert_array_equal(
        real_or_fake().compress(logits, seeds_of(1))[0], [[0, 1], [1, 0], [1, 0], [1, 0], [0, 1]])
    projections = np.array([[[-7.0, -0.4], [0.0, 0.4], [7.0, np.nan], [np.inf, -1.0]]], np.float32)
    np.testing.assert_array_equal(
        bins().compress(projections, seeds_of(1))[0],
        [[1, 0, 0, 1, 0, 0], [0, 1, 0, 0, 0, 1], [0, 0, 1, 0, 0, 0], [0, 0, 0, 1, 0, 0]])


@pytest.mark.parametrize("clip", [1e-5, 1.0, 1e30])
def test_any_gradient_gives_at_most_one_vote_per_question(clip):
    mechanism = bins(clip=clip, num_bins=10)
    gradients = np.stack(list(worst_cases(3, 2).values()))
    votes = mechanism.compress(gradients, seeds_of(len(gradients))).numpy()
    counts = votes.reshape(-1, 3, 2, 10)
    assert set(np.unique(votes)) <= {0.0, 1.0} and counts.sum(-1).max() == 1
    np.testing.assert_array_equal(mechanism.compress(worst_cases(3, 2)["random"][None], seeds_of(1))[0],
                                  votes[0])  # Whatever the other teachers have.


def test_directions_are_public_fresh_and_of_length_one():
    mechanism = bins(dimension=400, projection_dim=50)
    first = mechanism.directions(1).numpy()
    np.testing.assert_allclose(tf.function(mechanism.directions)(tf.constant(1)), first, rtol=1e-6)
    assert np.abs(np.corrcoef(first.ravel(), mechanism.directions(2).numpy().ravel())[0, 1]) < 0.05
    assert not np.array_equal(first, bins(dimension=400, projection_dim=50, seed=1).directions(1))
    np.testing.assert_allclose(np.linalg.norm(first, axis=0), 1, atol=0.2)


def test_images_move_along_the_gradient_that_teachers_agree_on():
    mechanism = bins(num_bins=10, clip=0.05, projection_dim=8)
    gradient = np.random.default_rng(0).normal(0, 0.02, (2, 16)).astype(np.float32)
    total = np.zeros((2, 16))
    for step in range(60):
        projected = tf.constant(gradient) @ mechanism.directions(step)
        votes = tf.reduce_sum(mechanism.compress(tf.tile(projected[None], [3, 1, 1]), seeds_of(3)), 0)
        direction = mechanism.direction(mechanism.privatize(votes.numpy(), NoNoise(), 0), step)
        assert direction.shape == (2, 16) and direction.dtype == np.float32
        total += direction
    cosine = np.sum(total * gradient, 1) / np.linalg.norm(total, axis=1) / np.linalg.norm(gradient, axis=1)
    assert np.all(cosine > 0.95)
    unsure = mechanism.privatize(np.zeros((2, 80)), NoNoise(), 0)
    assert not np.any(mechanism.direction(unsure, 1))


@pytest.mark.parametrize("bad", [[[np.nan, 0]], [[0.5, 0]], [[4, 0]], [[2, 2]], [[-1, 0]]])
def test_sums_that_no_votes_can_give_are_refused_without_printing_them(bad):
    with pytest.raises(InvalidArgumentError, match="num_teachers=3 to bound integer vote sums"):
        real_or_fake().privatize(np.array(bad, float), RoundedGaussianNoise(), 0)


def test_what_cannot_be_right_is_refused():
    with pytest.raises(InvalidArgumentError, match="noise.shape"):
        real_or_fake().privatize(np.zeros((3, 2)), BroadcastNoise(), 0)
    with pytest.raises(InvalidArgumentError, match="share=0.5 == 1"):
        real_or_fake().privatize(np.zeros((3, 2)), RoundedGaussianNoise(), 0, share=0.5)
    for changes, message in (({"noise_stddev": 0}, "noise_stddev=0 > 0"), ({"num_bins": 1}, "num_bins=1 >= 2"),
                             ({"threshold_noise_ratio": 0}, "threshold_noise_ratio=0 > 0"), ({"clip": 0}, "clip=0 > 0"),
                             ({"vote_threshold": 2}, "vote_threshold=2"), ({"projection_dim": 0}, "projection_dim=0")):
        with pytest.raises(InvalidArgumentError, match=message):
            bins(**changes)
    with pytest.raises(InvalidArgumentError, match="num_bins=3 == 2"):
        real_or_fake(num_bins=3)
