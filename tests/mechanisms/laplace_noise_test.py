"""Rounded Laplace noise: its law, its exactness, and that rounding costs no privacy."""

import math
import os
import random

import numpy as np
import pytest
from scipy import stats

from datalens_tf.errors import InvalidArgumentError
from datalens_tf.mechanisms import noise
from datalens_tf.mechanisms.laplace_noise import RoundedLaplaceNoise, _laplace_tail, laplace_scale


def rounded_probability(integer, scale):
    """P[round(X) = integer] for Laplace X of this scale."""
    if integer == 0:
        return -math.expm1(-0.5 / scale)
    return math.exp(-abs(integer) / scale) * math.sinh(0.5 / scale)


@pytest.mark.parametrize("scale", [0.2, 1.0, 3.3])
def test_it_has_the_probabilities_of_a_rounded_laplace(scale):
    drawn = RoundedLaplaceNoise().draw((100_000,), scale * math.sqrt(2), 0)
    assert drawn.dtype == np.float64 and np.all(drawn == np.rint(drawn))
    edge = max(1, int(4 * scale))
    observed = [np.sum(drawn <= -edge), *(np.sum(drawn == n) for n in range(1 - edge, edge)), np.sum(drawn >= edge)]
    inner = [rounded_probability(n, scale) for n in range(1 - edge, edge)]
    expected = np.array([(1 - sum(inner)) / 2, *inner, (1 - sum(inner)) / 2]) * len(drawn)
    assert stats.chisquare(observed, expected * sum(observed) / expected.sum()).pvalue > 1e-7


@pytest.mark.parametrize("scale", [0.01, 0.7, 12.5, 5000.0, 1e9])
def test_the_fast_way_is_the_exact_one_wherever_it_is_sure(scale):
    bits = np.concatenate([np.random.default_rng(0).integers(0, 2**63, 100, np.uint64),
                           np.array([0, 1, 2**10, 2**40, 2**62, 2**63 - 1], np.uint64)])
    fast, certain = noise._rounded_quantiles(bits, scale, lambda tail: -np.log(2 * tail), 40)
    exact = [noise._exact_quantile(int(word), scale, os.urandom, _laplace_tail) for word in bits]
    assert np.array_equal(fast[certain], np.array(exact)[certain])
    assert not certain[100] and (scale > 1e6 or np.mean(certain) > 0.9)


@pytest.mark.parametrize("byte", [0x00, 0xFF])
def test_extreme_words_are_finite(monkeypatch, byte):
    left = [bytes([byte]) * 32]
    original = os.urandom
    monkeypatch.setattr(os, "urandom", lambda n: left.pop() if left else original(n))
    drawn = RoundedLaplaceNoise().draw((4,), math.sqrt(2), 0)
    # A tail probability below 2^-64 is beyond 43 scales; one of 1/2 is 0.
    assert np.all((np.abs(drawn) >= 43) & (np.abs(drawn) < 90)) if byte == 0 else np.all(drawn == 0)


@pytest.mark.parametrize("scale,shift", [(0.5, 1), (3.0, 1), (3.0, 7), (20.0, 9)])
def test_rounding_never_costs_privacy(scale, shift):
    """The privacy loss is nowhere above shift / scale, and reaches it."""
    here = np.array([rounded_probability(n, scale) for n in range(-60, 61)])
    there = np.array([rounded_probability(n - shift, scale) for n in range(-60, 61)])
    assert np.max(np.abs(np.log(there / here))) == pytest.approx(shift / scale, rel=1e-9)


def test_no_seed_has_a_say_and_the_systems_entropy_has(monkeypatch):
    draws = []
    for _ in range(2):
        np.random.seed(0)
        random.seed(0)
        draws.append(RoundedLaplaceNoise().draw((50,), 1000.0, 3))
    assert np.sum(draws[0] == draws[1]) < 8
    asked, original = [], os.urandom
    monkeypatch.setattr(os, "urandom", lambda n: asked.append(n) or original(n))
    RoundedLaplaceNoise().draw((3, 5), 1.0, 0)
    assert asked[0] == 8 * 15


def test_zero_is_no_noise_and_what_is_no_number_is_refused():
    assert not np.any(RoundedLaplaceNoise().draw((2, 3), 0.0, 0))
    for stddev in (-1.0, math.nan, math.inf, None, 1e16):
        with pytest.raises(InvalidArgumentError, match="stddev="):
            RoundedLaplaceNoise().draw((2,), stddev, 0)
    assert laplace_scale(math.sqrt(8)) == pytest.approx(2.0)
