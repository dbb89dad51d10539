"""Noise: what it is, where it comes from, and that it is exactly what is accounted for."""

import math
import os
import random

import numpy as np
import pytest
from scipy import stats

from datalens_tf.errors import InvalidArgumentError
from datalens_tf.mechanisms import InsecureSeededNoise, RoundedGaussianNoise, SecureGaussianNoise, noise
from datalens_tf.methods.datalens import DataLensConfig

SECURE = [RoundedGaussianNoise(), SecureGaussianNoise()]


def test_secure_noise_is_standard_normal_times_stddev():
    noise = SecureGaussianNoise().draw((200, 500), 5000.0, 0)
    assert noise.dtype == np.float64 and noise.shape == (200, 500)
    assert stats.kstest(noise.ravel() / 5000.0, "norm").pvalue > 1e-7
    # Neighbouring draws are uncorrelated: the correlation of 100,000 pairs has standard deviation 1/316.
    assert abs(np.corrcoef(noise.ravel()[:-1], noise.ravel()[1:])[0, 1]) < 6 / 316


@pytest.mark.parametrize("byte", [0x00, 0xFF])
def test_the_extreme_entropy_words_give_finite_noise(monkeypatch, byte):
    monkeypatch.setattr(os, "urandom", lambda n: bytes([byte]) * n)
    noise = SecureGaussianNoise().draw((4,), 1.0, 0)
    assert np.all(np.isfinite(noise))


def test_both_tails_reach_nine_sigma(monkeypatch):
    # The lowest bit is the sign, the others the probability of the tail.
    words = np.array([0, 1], np.uint64).tobytes()
    monkeypatch.setattr(os, "urandom", lambda n: words)
    low, high = SecureGaussianNoise().draw((2,), 1.0, 0)
    assert 9 < abs(low) < 10 and low == -high


@pytest.mark.parametrize("source", SECURE)
def test_noise_reads_the_operating_systems_entropy(monkeypatch, source):
    asked = []
    original = os.urandom
    monkeypatch.setattr(os, "urandom", lambda n: asked.append(n) or original(n))
    source.draw((3, 5), 1.0, 0)
    assert asked == [8 * 15]


@pytest.mark.parametrize("source", SECURE)
def test_no_seed_has_a_say(source):
    draws = []
    for _ in range(2):
        np.random.seed(0)
        random.seed(0)
        draws.append(source.draw((50,), 100.0, 3))
    # One of 50 pairs of integers is equal with probability 0.003; eight of them with less than 1e-12.
    assert np.sum(draws[0] == draws[1]) < 8


@pytest.mark.parametrize("source", SECURE[1:])
def test_the_same_charge_drawn_twice_has_different_secure_noise(source):
    assert not np.any(source.draw((50,), 1.0, 3) == source.draw((50,), 1.0, 3))


def test_only_the_secure_source_says_so():
    assert all(source.is_secure for source in SECURE) and not InsecureSeededNoise(0).is_secure


@pytest.mark.parametrize("source", [*SECURE, InsecureSeededNoise(0)])
@pytest.mark.parametrize("stddev", [-1.0, np.nan, np.inf, None])
def test_a_standard_deviation_that_is_no_number_is_refused(source, stddev):
    with pytest.raises(InvalidArgumentError, match="stddev="):
        source.draw((2,), stddev, 0)


@pytest.mark.parametrize("source", [*SECURE, InsecureSeededNoise(0)])
def test_zero_standard_deviation_is_no_noise(source):
    assert np.all(source.draw((2, 3), 0.0, 0) == 0.0)


# Rounded Gaussian noise.


def rounded_probability(integer, stddev):
    """P[round(X) = integer] for X ~ N(0, stddev^2), without cancellation in the tails."""
    low, high = (abs(integer) - 0.5) / stddev, (abs(integer) + 0.5) / stddev
    return stats.norm.sf(low) - stats.norm.sf(high)


@pytest.mark.parametrize("stddev", [0.2, 1.0, 3.3])
def test_rounded_noise_has_the_probabilities_of_a_rounded_gaussian(stddev):
    drawn = RoundedGaussianNoise().draw((100_000,), stddev, 0)
    assert np.all(drawn == np.rint(drawn))
    edge = max(1, int(2.5 * stddev))
    observed = [np.sum(drawn <= -edge), *(np.sum(drawn == n) for n in range(1 - edge, edge)), np.sum(drawn >= edge)]
    inner = [rounded_probability(n, stddev) for n in range(1 - edge, edge)]
    outer = (1 - sum(inner)) / 2
    expected = np.array([outer, *inner, outer]) * len(drawn)
    assert stats.chisquare(observed, expected * sum(observed) / expected.sum()).pvalue > 1e-7


def test_rounded_noise_at_the_presets_level_is_gaussian():
    drawn = RoundedGaussianNoise().draw((200, 500), 5000.0, 0)
    assert drawn.dtype == np.float64 and drawn.shape == (200, 500) and np.all(drawn == np.rint(drawn))
    # Rounding moves the distribution function by less than 1e-4, which 100,000 draws cannot see.
    assert stats.kstest(drawn.ravel() / 5000.0, "norm").pvalue > 1e-7
    for wrong in (2 / 3, 3 / 2):
        assert stats.kstest(drawn.ravel() / (5000.0 * wrong), "norm").pvalue < 1e-7
    assert abs(np.corrcoef(drawn.ravel()[:-1], drawn.ravel()[1:])[0, 1]) < 6 / 316


@pytest.mark.parametrize("stddev", [0.01, 0.7, 12.5, 5000.0, 1e9])
def test_the_fast_way_is_the_exact_one_wherever_it_is_sure(stddev):
    bits = np.concatenate([np.random.default_rng(0).integers(0, 2**63, 150, np.uint64),
                           np.array([0, 1, 2**10, 2**40, 2**62, 2**63 - 1], np.uint64)])
    fast, certain = noise._rounded_quantiles(bits, stddev)
    exact = [noise._exact_quantile(int(word), stddev, os.urandom) for word in bits]
    assert np.array_equal(fast[certain], np.array(exact)[certain])
    assert not certain[150] and (stddev > 1e6 or np.mean(certain) > 0.9)


@pytest.mark.parametrize("stddev", [0.01, 1.0, 5000.0, 1e9, 2.0**45])
def test_exact_quantiles_do_not_depend_on_where_they_are_looked_for_first(stddev):
    words = [0, 1, 2**40, 2**63 - 1, *np.random.default_rng(1).integers(0, 2**63, 12).tolist()]
    fast, _ = noise._rounded_quantiles(np.array(words, np.uint64), stddev)
    for word, near in zip(words, fast.astype(int).tolist()):
        right = noise._exact_quantile(word, stddev, lambda n: bytes([0x5A]) * n)
        far = 1000 + math.ceil(stddev)
        for guess in (near, near - 1, near + 1, 0, right + 3, max(0, right - 3), right + far, max(0, right - far)):
            assert noise._exact_quantile(word, stddev, lambda n: bytes([0x5A]) * n, near=guess) == right


def test_float64_has_the_quantile_within_a_hundredth_of_the_margin():
    words = np.random.default_rng(0)
    bits = np.concatenate([words.integers(1, 2**63, 300, np.uint64), (2.0**words.uniform(0, 63, 300)).astype(np.uint64),
                           np.uint64(2**63) - (2.0**words.uniform(0, 62, 100)).astype(np.uint64)])
    import mpmath
    with mpmath.workprec(256):
        for word, x in zip(bits, noise._gaussian_quantile(bits.astype(np.float64) * 2.0**-64)):
            tail = mpmath.mpf(int(word)) / 2**64
            error = (noise._gaussian_tail(mpmath.mpf(float(x))) - tail) / mpmath.npdf(mpmath.mpf(float(x)))
            assert abs(error) < 1e-14


def test_doubtful_draws_take_more_entropy_until_they_are_decided():
    # The tail probability of exactly 1/2 standard deviation, to 64 bits: the next ones decide between 0 and 1.
    word = int(stats.norm.sf(0.5) * 2**64)
    with_bits = [noise._exact_quantile(bits, 1.0, lambda n, b=byte: bytes([b]) * n)
                 for bits in (word - 2**12, word + 2**12) for byte in (0x00, 0xFF)]
    assert with_bits == [1, 1, 0, 0]
    import mpmath
    with mpmath.workprec(400):
        exact = int(mpmath.floor(mpmath.erfc(mpmath.mpf(1) / 2 / mpmath.sqrt(2)) / 2 * 2**64))
    asked = []

    def entropy(byte):
        return lambda n: asked.append(n) or bytes([byte]) * n

    assert noise._exact_quantile(exact, 1.0, entropy(0x00)) == 1
    assert noise._exact_quantile(exact, 1.0, entropy(0xFF)) == 0
    assert asked == [8, 8]


def test_more_noise_than_float64_adds_exactly_is_refused():
    with pytest.raises(InvalidArgumentError, match="stddev=1e"):
        RoundedGaussianNoise().draw((2,), 1e16, 0)


@pytest.mark.parametrize("byte", [0x00, 0xFF])
def test_rounded_noise_of_extreme_words_is_finite(monkeypatch, byte):
    left = [bytes([byte]) * 32]
    original = os.urandom
    monkeypatch.setattr(os, "urandom", lambda n: left.pop() if left else original(n))
    drawn = RoundedGaussianNoise().draw((4,), 1.0, 0)
    # A tail probability below 2^-64 is beyond 9 standard deviations; one of 1/2 is 0.
    assert np.all(np.abs(drawn) >= 9) and np.all(np.abs(drawn) < 20) if byte == 0 else np.all(drawn == 0)


@pytest.mark.parametrize("stddev,shift", [(0.5, 1), (1.0, 2), (3.0, 1), (3.0, 7), (20.0, 9)])
def test_rounding_never_costs_privacy(stddev, shift):
    """delta(epsilon) of the rounded release, summed exactly, against the closed form of the Gaussian mechanism."""
    reach = int(40 * stddev) + shift + 3
    here = np.array([rounded_probability(n, stddev) for n in range(-reach, reach + 1)])
    there = np.array([rounded_probability(n - shift, stddev) for n in range(-reach, reach + 1)])
    mu = shift / stddev
    for epsilon in (0.0, 0.1, 0.5, 1.0, 3.0):
        spent = np.sum(np.maximum(0, there - math.exp(epsilon) * here))
        allowed = stats.norm.cdf(-epsilon / mu + mu / 2) - math.exp(epsilon) * stats.norm.cdf(-epsilon / mu - mu / 2)
        assert spent <= allowed * (1 + 1e-9) + 1e-15
        if stddev >= 3 and allowed > 1e-6:
            assert spent > 0.7 * allowed  # And the bound is no slack one.


def test_the_default_is_exact_and_other_noise_has_to_be_asked_for():
    assert type(noise.noise_source(DataLensConfig())) is RoundedGaussianNoise
    assert type(noise.noise_source(DataLensConfig(noise="gaussian"))) is SecureGaussianNoise
    assert type(noise.noise_source(DataLensConfig(insecure_noise_seed=1))) is InsecureSeededNoise


# Secret streams.


def entropy(seed):
    """A stand-in for `os.urandom` that is known, and what was asked of it."""
    known, asked = np.random.default_rng(seed), []
    return lambda n: asked.append(n) or known.bytes(n), asked


def test_all_that_a_secret_stream_draws_is_the_operating_systems(monkeypatch):
    """With that known, all is known; without, nothing is: no generator in between can be computed from its output."""
    def draw():
        stream = noise.secret_stream(DataLensConfig(), "any", 3)
        return [stream.random(50), stream.random((5, 10), np.float32), stream.standard_normal((4, 3), np.float32),
                stream.integers(2, 9, (6,)), stream.permutation(40)]

    np.random.seed(0)
    first = draw()
    np.random.seed(0)
    assert all(np.any(mine != other) for mine, other in zip(first, draw()))
    runs = []
    for _ in range(2):
        known, asked = entropy(1)
        monkeypatch.setattr(os, "urandom", known)
        runs.append(draw())
        assert asked == [8 * 50, 4 * 50, 8 * 12, 8 * 6, 8 * 40]
    for mine, other in zip(*runs):
        np.testing.assert_array_equal(mine, other)
    assert [(a.shape, a.dtype) for a in first] == [
        ((50,), np.float64), ((5, 10), np.float32), ((4, 3), np.float32), ((6,), np.int64), ((40,), np.int64)]


def test_secret_streams_have_the_distributions_that_they_say():
    stream = noise.SecretStream()
    for drawn in (stream.random(50_000), stream.random(50_000, np.float32)):
        assert stats.kstest(drawn, "uniform").pvalue > 1e-7
    assert stats.kstest(stream.standard_normal(50_000), "norm").pvalue > 1e-7
    assert stats.chisquare(np.bincount(stream.integers(2, 9, 50_000))[2:]).pvalue > 1e-7
    places = np.stack([stream.permutation(5) for _ in range(5000)])
    assert np.all(np.sort(places) == np.arange(5)) and stats.chisquare(np.bincount(places[:, 2])).pvalue > 1e-7


@pytest.mark.parametrize("byte", [0x00, 0xFF])
def test_extreme_entropy_stays_in_range(monkeypatch, byte):
    monkeypatch.setattr(os, "urandom", lambda n: bytes([byte]) * n)
    stream = noise.SecretStream()
    for drawn in (stream.random(2), stream.random(2, np.float32), stream.integers(0, 1, (2,))):
        assert np.all((drawn >= 0) & (drawn < 1))
    assert np.all(np.isfinite(stream.standard_normal(2)))


def test_nobody_takes_part_with_more_than_the_probability_that_is_charged(monkeypatch):
    """Exactly: a number that is q to 53 bits, but not below q, is not taken."""
    for probability in (0.3, 1 / 3, 1e-4, 1.0, 2.0**-20):
        largest = math.floor(probability * 2**53)  # of 2^53 equally likely numbers, those below are taken
        words = np.array([largest - 1, min(largest, 2**53 - 1)], np.uint64) << np.uint64(11)
        monkeypatch.setattr(os, "urandom", lambda n, words=words: words.tobytes())
        taken = noise.poisson_sample(DataLensConfig(), 2, probability, "sampling")
        assert taken.tolist() == ([0, 1] if probability == 1 else [0])
        assert largest / 2**53 <= probability


def test_only_a_test_can_make_a_stream_repeat():
    known = DataLensConfig(insecure_noise_seed=3)
    first, again = (noise.secret_stream(known, "sampling", 1).random(5) for _ in range(2))
    np.testing.assert_array_equal(first, again)
    assert isinstance(noise.secret_stream(DataLensConfig(seed=3), "sampling", 1), noise.SecretStream)
