import os

import numpy as np
import pytest
from scipy import stats

from datalens_tf.errors import InvalidArgumentError
from datalens_tf.mechanisms import InsecureSeededNoise, SecureGaussianNoise


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


def test_noise_reads_the_operating_systems_entropy(monkeypatch):
    asked = []
    original = os.urandom
    monkeypatch.setattr(os, "urandom", lambda n: asked.append(n) or original(n))
    SecureGaussianNoise().draw((3, 5), 1.0, 0)
    assert asked == [8 * 15]


def test_the_same_charge_drawn_twice_has_different_secure_noise():
    source = SecureGaussianNoise()
    assert not np.any(source.draw((50,), 1.0, 3) == source.draw((50,), 1.0, 3))


def test_only_the_secure_source_says_so():
    assert SecureGaussianNoise().is_secure and not InsecureSeededNoise(0).is_secure


@pytest.mark.parametrize("source", [SecureGaussianNoise(), InsecureSeededNoise(0)])
@pytest.mark.parametrize("stddev", [-1.0, np.nan, np.inf, None])
def test_a_standard_deviation_that_is_no_number_is_refused(source, stddev):
    with pytest.raises(InvalidArgumentError, match="stddev="):
        source.draw((2,), stddev, 0)


@pytest.mark.parametrize("source", [SecureGaussianNoise(), InsecureSeededNoise(0)])
def test_zero_standard_deviation_is_no_noise(source):
    assert np.all(source.draw((2, 3), 0.0, 0) == 0.0)
