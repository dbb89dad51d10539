"""A replaced record in a Poisson sample: the price against what can be computed from the definition."""

import math

import dp_accounting
import numpy as np
import pytest
from scipy import integrate, stats

from datalens_tf.accounting import accountants
from datalens_tf.bounds import poisson_sampling
from tests.accounting.true_delta import densities, least_delta

DELTA = 1e-5


def sampled(rate, multiplier):
    return dp_accounting.PoissonSampledDpEvent(rate, dp_accounting.GaussianDpEvent(multiplier))


def replaced(event, steps, accountant="pld", delta=DELTA):
    return accountants.epsilon(event, steps, delta, accountant, "replace-one")


def delta_of_step(losses, rate, shift):
    beyond, other = poisson_sampling.tails(losses, rate, shift)
    return beyond - np.exp(losses) * other


def delta_in_the_plane(rate, epsilon, u, v):
    """Of one step with unit noise, for a record whose vector is u [2] or v [2], by a sum over a grid."""
    step = 0.05
    axis = np.arange(-12, 12, step)
    nothing, here, there = (np.multiply.outer(stats.norm.pdf(axis - at), stats.norm.pdf(axis - across))
                            for at, across in ((0, 0), u, v))
    p, q = (1 - rate) * nothing + rate * here, (1 - rate) * nothing + rate * there
    return np.maximum(0, p - math.exp(epsilon) * q).sum() * step**2


@pytest.mark.parametrize("rate, shift, epsilon", [
    (0.01, 0.7, 0.01), (0.1, 2.0, 0.5), (0.5, 1.0, 0.0), (0.5, 1.0, 1.0), (0.9, 0.5, 0.7), (1.0, 1.5, 2.0)])
def test_no_two_vectors_are_told_apart_better_than_opposite_ones(rate, shift, epsilon):
    """Vectors of any length up to 1 at any angle; the bound is attained by the longest that are opposite."""
    bound = delta_of_step(np.array([epsilon]), rate, shift)[0]
    found = {}
    for angle in np.linspace(0, math.pi, 9):
        for first in (0.0, 0.5, 1.0):
            for second in (0.0, 0.6, 1.0):
                u, v = (shift * first, 0.0), shift * second * np.array([math.cos(angle), math.sin(angle)])
                found[first, second, angle] = delta_in_the_plane(rate, epsilon, u, v)
    assert max(found, key=found.get) == (1.0, 1.0, math.pi)
    assert max(found.values()) == pytest.approx(bound, rel=2e-3)


@pytest.mark.parametrize("rate, shift", [(1e-4, 0.3), (0.0085, 1.8), (0.3, 4.0), (0.999, 0.01), (1.0, 1.0)])
def test_the_curve_is_the_integral_that_defines_it(rate, shift):
    losses = np.linspace(0, poisson_sampling.curve(sampled(rate, 1 / shift)).largest, 300)
    curve = delta_of_step(losses, rate, shift)
    x = np.linspace(-14 - shift, 14 + shift, 400_001)
    p, q = densities(rate, (0, shift, -shift), x)
    for index in (0, 1, 5, 40, 150):
        exact = integrate.simpson(np.maximum(0, p - math.exp(losses[index]) * q), x=x)
        assert curve[index] == pytest.approx(exact, rel=1e-6, abs=1e-14)
    assert np.all(np.diff(curve) <= 1e-15) and curve[-1] < 1e-15
    beyond, other = poisson_sampling.tails(losses, rate, shift)
    assert np.all(np.diff(beyond) <= 0) and np.all(np.diff(other) <= 0) and beyond[-1] < 1e-18


@pytest.mark.parametrize("rate, multiplier, steps", [(0.5, 1.0, 3), (0.2, 0.7, 8), (0.05, 0.5, 10), (0.1, 2.0, 10)])
def test_composed_steps_cost_what_they_are_charged(rate, multiplier, steps):
    """The losses of the worst vectors, convolved."""
    epsilon, shift = replaced(sampled(rate, multiplier), steps), 1 / multiplier
    least = least_delta(rate, (0, shift, -shift), steps, epsilon, interval=5e-4)
    assert 0.95 * DELTA < least <= DELTA * (1 + 1e-6)


def test_steps_of_dp_gan_cost_less_than_twice_those_of_an_absent_record():
    """The presets' numbers. A finer grid gives 1.8294 and 11.7198."""
    for multiplier, absent, expected in ((1.452, 0.9999, 1.8294), (0.5517, 9.9957, 11.7198)):
        event = sampled(512 / 60_000, multiplier)
        assert accountants.epsilon(event, 1500, DELTA, "pld", "add-or-remove-one") == pytest.approx(absent, abs=1e-4)
        assert expected - 1e-4 < replaced(event, 1500) < expected + 1e-3
        assert replaced(event, 1500) < replaced(event, 1500, "rdp") < 1.15 * expected


@pytest.mark.parametrize("multiplier, steps", [(1.0, 1), (40.0, 100), (5.0, 3)])
def test_without_sampling_a_replaced_record_moves_the_sum_by_two(multiplier, steps):
    exact = accountants.epsilon(dp_accounting.GaussianDpEvent(multiplier / 2), steps, DELTA, "gdp")
    assert exact * (1 - 1e-9) <= replaced(sampled(1.0, multiplier), steps) <= exact * 1.001
    by_rdp = accountants.epsilon(dp_accounting.GaussianDpEvent(multiplier / 2), steps, DELTA, "rdp")
    assert replaced(sampled(1.0, multiplier), steps, "rdp") == pytest.approx(by_rdp)


def test_epsilon_is_finite_and_falls_with_noise_and_grows_with_steps_and_rate():
    for rate, steps in ((1.0, 1), (0.2, 30), (0.001, 20_000)):
        found = [replaced(sampled(rate, z), steps) for z in (0.01, 0.3, 1.0, 30.0, 1e4, 1e12)]
        assert all(math.isfinite(value) for value in found) and found == sorted(found, reverse=True)
    assert replaced(sampled(0.1, 1e-4), 1) == math.inf
    for costs in ([replaced(sampled(0.02, 1.0), steps) for steps in (1, 10, 100, 1000)],
                  [replaced(sampled(rate, 1.0), 10) for rate in (1e-9, 1e-4, 0.01, 0.1, 0.5, 0.999, 1.0)]):
        assert costs == sorted(costs) and costs[0] < costs[-1]


def test_samples_of_both_kinds_add_up():
    one_of_20 = dp_accounting.SampledWithoutReplacementDpEvent(20, 1, dp_accounting.GaussianDpEvent(2.0))
    both = [one_of_20, sampled(0.1, 2.0)]
    total = accountants.epsilon_of(both, DELTA, "pld")
    assert max(replaced(event, 1) for event in both) < total
    assert total < sum(replaced(event, 1, delta=DELTA / 2) for event in both)


def test_calibrated_noise_spends_the_budget():
    z = accountants.calibrate(lambda z: sampled(0.02, z), 200, 2.0, DELTA, "pld", precision=1e-6)
    assert 2.0 * (1 - 1e-4) < replaced(sampled(0.02, z), 200) <= 2.0
    assert accountants.max_steps(sampled(0.02, z), 2.0, DELTA, "pld") == 200


@pytest.mark.parametrize("multiplier, steps, delta", [
    (1000.0, 10**6, 1e-9), (150.0, 20_000, 1e-11), (30.0, 1000, 1e-12)])
def test_rounding_in_many_steps_takes_nothing_from_epsilon(multiplier, steps, delta):
    """Without sampling, the exact price is known."""
    exact = accountants.epsilon(dp_accounting.GaussianDpEvent(multiplier / 2), steps, delta, "gdp")
    assert exact * (1 - 1e-9) <= replaced(sampled(1.0, multiplier), steps, delta=delta) <= 1.05 * exact
    assert replaced(sampled(1.0, 1000.0), 10**6, delta=1e-10) == math.inf


def test_next_to_no_sampling_costs_next_to_nothing():
    """With a grid that is no finer than memory allows."""
    assert 0 <= replaced(sampled(1e-7, 0.5), 1000) < 1e-4
