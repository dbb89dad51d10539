"""GS-WGAN's release: its joint sensitivity, its noise, and that its price is honest where the published one is not."""

import math

import dp_accounting
import numpy as np
import pytest
import tensorflow as tf
from scipy import stats

from datalens_tf.accounting import accountants
from datalens_tf.errors import InvalidArgumentError
from datalens_tf.mechanisms.noise import RoundedGaussianNoise
from datalens_tf.mechanisms.sanitized_gradients import SanitizedGradients
from tests.accounting.true_delta import least_delta
from tests.mechanisms.odd_vectors import vectors

C, M, D = 0.7, 3, 5
STEP = SanitizedGradients(clip_norm=C, noise_multiplier=0.8, num_images=M, num_discriminators=10)


class NoNoise(RoundedGaussianNoise):
    def draw(self, shape, stddev, index):
        return np.zeros(shape)


def released(gradients):
    return STEP.privatize(STEP.clip(tf.constant(gradients)).numpy(), NoNoise(), 0)


def test_any_two_answers_are_at_most_the_sensitivity_apart():
    """Jointly over all images, whatever the gradients are; and that is attained."""
    random, largest = np.random.default_rng(0), 0.0
    for _ in range(300):
        first = vectors(random, M)
        second = -first if random.random() < 0.5 else vectors(random, M)
        largest = max(largest, np.linalg.norm(released(first) - released(second)))
    ends = np.full((M, D), 50, np.float32)
    largest = max(largest, np.linalg.norm(released(ends) - released(-ends)))
    assert STEP.l2_sensitivity == pytest.approx(2 * C * math.sqrt(M))
    assert 0.999 * STEP.l2_sensitivity < largest <= STEP.l2_sensitivity


def test_each_image_is_clipped_by_itself():
    gradients = np.array([[0.1, 0, 0.2, 0, 0], [30, 0, -40, 0, 0], [np.nan, 1, 1, 1, 1]], np.float32)
    found = released(gradients)
    np.testing.assert_allclose(found[0], gradients[0], atol=2**-19)
    np.testing.assert_allclose(found[1], [0.6 * C, 0, -0.8 * C, 0, 0], rtol=2e-4)
    assert not np.any(found[2])


@pytest.mark.parametrize("factor, accepted", [(1.0, True), (2 / 3, False), (1.5, False)])
def test_the_noise_has_the_scale_that_is_charged_for(factor, accepted):
    drawn = STEP.privatize(np.zeros((M, 1500)), RoundedGaussianNoise(), 0)
    scale = STEP.dp_event().event.noise_multiplier * STEP.l2_sensitivity * factor
    assert (stats.kstest(drawn.reshape(-1), stats.norm(0, scale).cdf).pvalue > 1e-7) == accepted
    assert STEP.noise_stddev == pytest.approx(0.8 * STEP.l2_sensitivity)


def test_off_means_off():
    off = SanitizedGradients(clip_norm=100.0, noise_multiplier=0.0, num_images=M, num_discriminators=10)
    gradients = np.random.default_rng(0).normal(size=(M, D)).astype(np.float32)
    found = off.privatize(off.clip(tf.constant(gradients)).numpy(), RoundedGaussianNoise(), 0)
    np.testing.assert_allclose(found, gradients, atol=100 * 2**-20)
    assert off.dp_event() == dp_accounting.NonPrivateDpEvent()


def test_the_price_is_that_of_one_sample_for_the_whole_batch():
    assert STEP.dp_event() == dp_accounting.SampledWithoutReplacementDpEvent(
        10, 1, dp_accounting.GaussianDpEvent(0.8))


def test_the_published_settings_do_not_cost_what_is_published():
    """sigma = 1.07 (times 2C), 32 images, 1,000 discriminators, 20,000 steps: published as epsilon = 10."""
    paper = SanitizedGradients(clip_norm=1.0, noise_multiplier=1.07 / math.sqrt(32), num_images=32,
                               num_discriminators=1000)
    assert paper.noise_stddev == pytest.approx(2.14)
    published = accountants.epsilon(paper.event_as_published(), 20_000, 1e-5, "rdp")
    assert 9 < published < 10
    assert accountants.epsilon(paper.dp_event(), 20_000, 1e-5, "pld") == pytest.approx(346.7, abs=0.1)


def test_the_published_accounting_is_violated_and_ours_is_not():
    """True outputs, in the direction of the joint change: a lower bound of their delta at either epsilon."""
    count, steps, images, delta = 100, 3, 32, 1e-5
    step = SanitizedGradients(clip_norm=1.0, noise_multiplier=1.07 / math.sqrt(images), num_images=images,
                              num_discriminators=count)
    published = accountants.epsilon(step.event_as_published(), steps, delta, "rdp")
    honest = accountants.epsilon(step.dp_event(), steps, delta, "pld")
    shift = 1 / step.noise_multiplier
    means = (0.0, shift, 0.0)  # The picked one gives C sqrt(m) one way or the other; the others all one of both.
    assert published < honest
    assert least_delta(1 / count, means, steps, published) > 100 * delta
    assert least_delta(1 / count, means, steps, honest) <= delta


def test_what_cannot_be_right_is_refused():
    with pytest.raises(InvalidArgumentError, match=r"clipped.shape=\(2, 5\) to be \(3, d\)"):
        STEP.privatize(np.zeros((2, 5)), NoNoise(), 0)
    with pytest.raises(InvalidArgumentError, match="to be integers"):
        STEP.privatize(np.full((M, 5), 0.5), NoNoise(), 0)
    for name in ("num_images", "num_discriminators"):
        with pytest.raises(InvalidArgumentError, match=f"{name}=0 >= 1"):
            SanitizedGradients(**{"clip_norm": 1.0, "noise_multiplier": 1.0, "num_images": 1, "num_discriminators": 1,
                                  name: 0})


def test_the_only_discriminator_is_no_sample():
    alone = SanitizedGradients(clip_norm=C, noise_multiplier=0.8, num_images=M, num_discriminators=1)
    assert alone.dp_event() == dp_accounting.GaussianDpEvent(0.8) and alone.noise_stddev == STEP.noise_stddev
