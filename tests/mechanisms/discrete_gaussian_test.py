"""Discrete Gaussian noise: its law, its exactness, and the price of a sum of shares of it."""

import math
import os
import random

import dp_accounting
import numpy as np
import pytest
from scipy import stats

from datalens_tf.accounting import accountants
from datalens_tf.accounting.ledger import PrivacyLedger, decode_event, encode_event
from datalens_tf.errors import InvalidArgumentError
from datalens_tf.events import DiscreteGaussianDpEvent
from datalens_tf.mechanisms import discrete_gaussian
from datalens_tf.mechanisms.discrete_gaussian import SLACK, DiscreteGaussianNoise, check_shares, excess


def probabilities(stddev, largest=400):
    """Of the integers from -largest to largest, by the definition."""
    weights = np.exp(-np.arange(-largest, largest + 1, dtype=float)**2 / (2 * stddev**2))
    return weights / weights.sum()


def renyi(order, p, shift, stddev):
    """The Renyi divergence of a distribution on integers about 0, shifted, from itself, where it is not negligible."""
    middle, reach = len(p) // 2, int(order * shift + 9 * stddev) + 1
    here, there = (np.log(p[middle - reach - by:middle + reach - by]) for by in (shift, 0))
    return math.log(np.sum(np.exp(order * here + (1 - order) * there))) / (order - 1)


@pytest.mark.parametrize("stddev,count", [(0.5, 4000), (1.0, 20_000), (3.3, 100_000), (40.0, 100_000)])
def test_it_has_the_probabilities_of_the_definition(stddev, count):
    drawn = DiscreteGaussianNoise().draw((count,), stddev, 0)
    assert drawn.dtype == np.float64 and np.all(drawn == np.rint(drawn))
    edge = max(1, int(2 * stddev))
    observed = [np.sum(drawn <= -edge), *(np.sum(drawn == n) for n in range(1 - edge, edge)), np.sum(drawn >= edge)]
    inner = probabilities(stddev)[400 + 1 - edge:400 + edge]
    expected = np.array([(1 - inner.sum()) / 2, *inner, (1 - inner.sum()) / 2]) * count
    assert stats.chisquare(observed, expected * sum(observed) / expected.sum()).pvalue > 1e-7


def test_it_is_not_rounded_gaussian_noise():
    """The draws of this size tell one from the other: the variances differ by 1/12."""
    squares = np.square(DiscreteGaussianNoise().draw((20_000,), 0.6, 0)).mean()
    discrete = np.sum(probabilities(0.6) * np.arange(-400, 401)**2)
    assert abs(squares - discrete) < 0.03 < 0.36 + 1 / 12 - discrete - 0.03


@pytest.mark.parametrize("stddev", [0.5, 2.0, 30.0, 1e9])
def test_the_fast_way_is_the_exact_one_wherever_it_is_sure(stddev, monkeypatch):
    public = np.random.default_rng(0)
    proposed = np.rint(public.normal(0, stddev, 200))
    words = np.concatenate([public.integers(0, 2**64, 150, np.uint64), public.integers(2**63, 2**64, 50, np.uint64)])
    monkeypatch.setattr(os, "urandom", lambda count: words.tobytes() if count == 1600 else public.bytes(count))
    fast = discrete_gaussian._accepted(proposed, stddev)
    exact = [discrete_gaussian._accepts(int(word), int(k), stddev) for word, k in zip(words, proposed)]
    assert np.array_equal(fast, exact)


def test_how_often_a_proposal_is_taken_follows_the_ratio_of_the_probabilities():
    stddev, k = 1.3, 3
    low, high = 0, 2**64 - 1
    while high - low > 1:  # The largest word that is accepted, by bisection.
        middle = (low + high) // 2
        low, high = (middle, high) if discrete_gaussian._accepts(middle, k, stddev) else (low, middle)
    threshold = low * 2.0**-64
    rounded = stats.norm.cdf([(k + 0.5) / stddev, (k - 0.5) / stddev, 0.5 / stddev, -0.5 / stddev])
    expected = math.exp(-k**2 / (2 * stddev**2)) * (rounded[2] - rounded[3]) / (rounded[0] - rounded[1])
    assert threshold == pytest.approx(expected, rel=1e-9)


def test_no_seed_has_a_say():
    draws = []
    for _ in range(2):
        np.random.seed(0)
        random.seed(0)
        draws.append(DiscreteGaussianNoise().draw((50,), 1000.0, 3))
    assert np.sum(draws[0] == draws[1]) < 8


def test_zero_is_no_noise_and_what_is_no_number_is_refused():
    assert not np.any(DiscreteGaussianNoise().draw((2, 3), 0.0, 0))
    for stddev in (-1.0, math.nan, math.inf, None, 1e16):
        with pytest.raises(InvalidArgumentError, match="stddev="):
            DiscreteGaussianNoise().draw((2,), stddev, 0)


@pytest.mark.parametrize("order", [1.1, 2, 8])
@pytest.mark.parametrize("stddev,shift", [(0.6, 1), (2.0, 3), (7.0, 4)])
def test_its_renyi_divergences_are_at_most_those_of_the_gaussian(stddev, shift, order):
    found = renyi(order, probabilities(stddev, int(37 * stddev)), shift, stddev)
    assert 0 < found <= order * shift**2 / (2 * stddev**2) + 1e-9


@pytest.mark.parametrize("order", [1.1, 2, 8])
@pytest.mark.parametrize("num_shares,stddev,shift", [(2, 0.5, 1), (3, 0.6, 1), (3, 0.9, 2), (6, 0.7, 2)])
def test_a_sum_of_shares_keeps_to_the_published_bound(num_shares, stddev, shift, order):
    p = total = probabilities(stddev, int(37 * stddev))
    for _ in range(num_shares - 1):
        total = np.convolve(total, p)
    bound = order * shift**2 / (2 * num_shares * stddev**2) + excess(num_shares, stddev)
    assert 0 < renyi(order, total, shift, stddev * num_shares**0.5) <= bound + 1e-9


def test_excess_by_hand_and_never_zero():
    tau = 10 * (math.exp(-math.pi**2) + math.exp(-4 * math.pi**2 / 3))
    assert tau <= excess(3, 1.0) <= tau * (1 + 1e-9)
    assert excess(1, 1.0) == 0.0
    assert 0 < excess(2, 1e7) < 1e-300
    with pytest.raises(InvalidArgumentError, match=r"stddev=0.4 >= 0.5 of a share"):
        excess(2, 0.4)


def test_shares_that_are_too_small_are_refused():
    check_shares(3.0, 5, 3.0, 1000)
    for num_shares, stddev in ((5, 1.0), (2, 0.1)):
        with pytest.raises(InvalidArgumentError, match="nearly a discrete Gaussian: take fewer owners"):
            check_shares(3.0, num_shares, stddev, 1000)
    check_shares(3.0, 1, 0.5, 10**9)  # One share is a discrete Gaussian.
    assert SLACK == 1e-6


def test_only_renyi_accountants_price_it_and_as_a_gaussian():
    event, gaussian = DiscreteGaussianDpEvent(4.0), dp_accounting.GaussianDpEvent(4.0)
    assert accountants.applicable(event) == ("classic_rdp", "rdp")
    for name in ("classic_rdp", "rdp"):
        assert accountants.epsilon(event, 7, 1e-5, name) == accountants.epsilon(gaussian, 7, 1e-5, name)
    for name in ("pld", "gdp"):
        with pytest.raises(InvalidArgumentError):
            accountants.epsilon(event, 1, 1e-5, name)
    assert accountants.noise_multiplier(event) == 4.0


def test_a_ledger_keeps_it(tmp_path):
    event = DiscreteGaussianDpEvent(4.0)
    assert decode_event(encode_event(event)) == event
    ledger = PrivacyLedger.create(tmp_path / "ledger.jsonl", epsilon=2.0, delta=1e-5, accountant="rdp",
                                  config_digest="x", step_event=event)
    ledger.spend(dp_accounting.SelfComposedDpEvent(event, 2), step=1)
    assert PrivacyLedger.read(ledger.path).charges[0].unit == event
    assert ledger.spent() == accountants.epsilon(event, 2, 1e-5, "rdp")
