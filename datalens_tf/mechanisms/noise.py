"""Sources of the privacy noise.

The noise is the secret on which the guarantee rests: an attacker who can predict it can subtract it. It therefore comes
from the operating system's entropy and has no seed; the seeded source exists for tests and says that it is insecure.
"""

import abc
import math
import os
import typing
from collections.abc import Callable, Sequence
from typing import Any, TypeVar

import numpy as np
from numpy.typing import NDArray
from scipy import special

from datalens_tf import _validate, rng

_Unsigned = TypeVar("_Unsigned", np.uint32, np.uint64)


class NoiseSource(abc.ABC):
    """Draws independent Gaussian noise.

    Attributes:
      is_secure: whether the noise is unpredictable; if not, nothing released with it is private.
      description: one phrase for the privacy statement.
      caveat: sentences for the statement about what the analysis assumes of the noise.
    """

    is_secure: bool
    description: str
    caveat: str

    @abc.abstractmethod
    def draw(self, shape: Sequence[int], stddev: float, index: int) -> NDArray[np.float64]:
        """Returns float64 noise N(0, stddev^2) of the given shape.

        Args:
          shape: shape of the release.
          stddev: standard deviation >= 0, in the units of what is released; 0 gives zeros.
          index: index of the ledger charge that pays for this release.

        Raises:
          InvalidArgumentError: stddev is negative, NaN or infinite.
        """


# Maps tail probabilities to the numbers beyond which the tails begin.
_Quantile = Callable[[NDArray[np.float64]], NDArray[np.float64]]

# Noise beyond 2^7 standard deviations has probability 0 for all purposes, so float64 holds all sums as integers.
_LARGEST_EXACT = 2.0**45


class RoundedGaussianNoise(NoiseSource):
    """Gaussian noise of infinite precision, rounded to integers, from the operating system's cryptographic generator.

    Formal guarantee: votes are integers f, so f + round(X) = round(f + X) for every real X that is not half an integer.
    With X ~ N(0, stddev^2) the release is therefore the Gaussian mechanism's result, rounded. Rounding is
    post-processing, so the release has at most that mechanism's privacy loss, by every accountant, for any number of
    adaptively composed releases. (The discrete Gaussian of Canonne, Kamath and Steinke 2020 has this property for Renyi
    accounting only.)

    Exactness: X is decided by a sign bit and by infinitely many bits of its tail probability, of which 63 are drawn
    first. Where float64's quantile, with all its error, leaves no doubt about the integer, that integer is taken.
    Otherwise further bits are drawn, and multi-precision arithmetic decides. No float's rounding shows in the result.
    No seed influences the noise, not even in a process that seeds every other generator; `index` is ignored.
    """

    is_secure = True
    description = ("Gaussian noise of infinite precision, rounded to integers, from the operating system's entropy "
                   "(os.urandom), without a seed")
    caveat = ("What is summed are integers, so the release is the Gaussian mechanism's result, rounded: the analysis "
              "of the Gaussian mechanism holds for it as it is, and no floating-point number shows in it.")

    def draw(self, shape: Sequence[int], stddev: float, index: int) -> NDArray[np.float64]:
        """Draws integers; see `NoiseSource.draw`. Refuses a stddev whose noise float64 could not add exactly."""
        _check_stddev(stddev)
        _validate.require(stddev <= _LARGEST_EXACT, "stddev", stddev, f"<= {_LARGEST_EXACT:g} for exact noise")
        if stddev == 0:
            return np.zeros(shape)
        sign, bits = _sign_and_tail_bits(math.prod(shape))
        magnitude, certain = _rounded_quantiles(bits, stddev)
        for position in np.flatnonzero(~certain):
            magnitude[position] = _exact_quantile(int(bits[position]), stddev, os.urandom,
                                                  near=int(magnitude[position]))
        return (sign * magnitude).reshape(shape)


def _sign_and_tail_bits(count: int) -> tuple[NDArray[np.float64], NDArray[np.uint64]]:
    """Random signs, and the first 63 bits after 2^-1 of tail probabilities in (0, 1/2): uint64."""
    words = np.frombuffer(os.urandom(8 * count), np.uint64)
    return 1.0 - 2.0 * (words & np.uint64(1)), words >> np.uint64(1)


def _gaussian_quantile(tail: NDArray[np.float64]) -> NDArray[np.float64]:
    """The number x with P[X > x] = tail for a standard normal X."""
    quantile: NDArray[np.float64] = -special.ndtri(tail)
    return quantile


def _gaussian_tail(x: Any) -> Any:
    """P[X > x] of a standard normal number, in mpmath."""
    import mpmath

    return mpmath.erfc(x / mpmath.sqrt(2)) / 2


def _rounded_quantiles(bits: NDArray[np.uint64], scale: float, quantile: _Quantile = _gaussian_quantile,
                       largest_sure: float = 9) -> tuple[NDArray[np.float64], NDArray[np.bool_]]:
    """round(x) for P[X > x] in [bits, bits + 1) * 2^-64, and whether float64 could be sure of it."""
    tail = bits.astype(np.float64)
    # The quantile decreases in the tail probability. These are its values at the ends of the interval that further bits
    # can reach, computed by float64 within 1e-14 of the scale; the margin is a hundred times that.
    with np.errstate(divide="ignore"):
        high, low = (scale * quantile(np.minimum(end * 2.0**-64, 0.5)) for end in (tail, tail + 1))
    margin = 1e-12 * scale
    largest, smallest = np.floor(high + margin + 0.5), np.floor(np.maximum(low - margin, 0.0) + 0.5)
    return smallest, (largest == smallest) & (high < largest_sure * scale)


def _exact_quantile(bits: int, scale: float, entropy: Callable[[int], bytes],
                    tail: Callable[[Any], Any] = _gaussian_tail, near: int | None = None) -> int:
    """round(x) for P[X > x] = 0.0bits...; further bits are drawn until they decide the integer.

    The integer is searched for around `near` first, which is float64's result. If it is not there, it is still found.
    """
    import mpmath

    length, around = 64, 2 + math.ceil(1e-12 * scale)
    while True:
        with mpmath.workprec(2 * length + 128):
            low, high = (mpmath.ldexp(end, -length) for end in (bits, bits + 1))

            def beyond(integer: int) -> Any:
                """P[X > integer + 1/2]."""
                return tail((integer + mpmath.mpf(1) / 2) / mpmath.mpf(scale))

            # x is rounded to k where beyond(k) < tail probability < beyond(k - 1); beyond(k) decreases in k.
            first, last = 0, max(2, math.ceil(scale * length))
            if near is not None:
                first = near - around if near > around and beyond(near - around - 1) > low else first
                last = near + around if beyond(near + around) <= low else last
            while first < last:  # the smallest k with beyond(k) <= low
                middle = (first + last) // 2
                first, last = (first, middle) if beyond(middle) <= low else (middle + 1, last)
            if first == 0 or high <= beyond(first - 1):
                return first
        bits, length = bits << 64 | int.from_bytes(entropy(8), "big"), length + 64


class SecureGaussianNoise(NoiseSource):
    """Gaussian noise from the operating system's cryptographic generator (`os.urandom`), by inversion in float64.

    No seed influences the noise, not even in a process that seeds every other generator; `index` is ignored.
    """

    is_secure = True
    description = "continuous Gaussian in float64, from the operating system's entropy (os.urandom), without a seed"
    caveat = ("The analysis is for real numbers; floating-point arithmetic is known to deviate from it in the last "
              "digits of each noisy vote, and an attacker who obtains the raw noisy sums at full precision could in "
              "principle exploit this.")

    def draw(self, shape: Sequence[int], stddev: float, index: int) -> NDArray[np.float64]:
        """Draws the noise; see `NoiseSource.draw`."""
        _check_stddev(stddev)
        # One bit of sign and 63 of tail probability in (0, 1/2]: both tails reach 9 sigma at full precision, where
        # inverting one uniform in (0, 1) would round the upper tail to a coarse grid and could return infinity.
        sign, bits = _sign_and_tail_bits(math.prod(shape))
        drawn: NDArray[np.float64] = sign * special.ndtri((bits + 0.5) * 2.0**-64) * stddev
        return drawn.reshape(shape)


class InsecureSeededNoise(NoiseSource):
    """Predictable noise, a function of (seed, index). For tests only: anything released with it is NOT PRIVATE."""

    is_secure = False
    description = "predictable: a fixed seed, for tests only"
    caveat = "It hides nothing."

    def __init__(self, seed: int):
        _validate.integer("seed", seed, at_least=0)
        self._seed = seed

    def draw(self, shape: Sequence[int], stddev: float, index: int) -> NDArray[np.float64]:
        """Draws the noise; see `NoiseSource.draw`."""
        _check_stddev(stddev)
        return np.random.default_rng([self._seed, index]).normal(0.0, stddev, shape)


class NoiseSettings(typing.Protocol):
    """Settings of a run that concern its randomness."""

    @property
    def noise(self) -> str:
        """Either "rounded_gaussian" or "gaussian"."""

    @property
    def insecure_noise_seed(self) -> int | None:
        """Seed of a test's predictable noise; None in every run that is private."""


def noise_source(config: NoiseSettings) -> NoiseSource:
    """Operating-system entropy, unless the configuration asks for a test's predictable noise."""
    if config.insecure_noise_seed is not None:
        return InsecureSeededNoise(config.insecure_noise_seed)
    return RoundedGaussianNoise() if config.noise == "rounded_gaussian" else SecureGaussianNoise()


class SecretStream:
    """Randomness that nobody can know or predict, even if part of it becomes known: all of it is from `os.urandom`.

    This is the part of `np.random.Generator` that sampling, batches, dropout and instance noise need. numpy's own
    generators are not cryptographic: an observer of some of their numbers can compute the others.
    """

    def random(self, size: int | Sequence[int], dtype: type[np.floating[Any]] = np.float64) -> NDArray[Any]:
        """Uniform multiples of 2^-53 in [0, 1), or of 2^-24 as float32."""
        if dtype == np.float32:
            return (self._words(size, np.uint32) >> np.uint32(8)).astype(np.float32) * np.float32(2.0**-24)
        return (self._words(size, np.uint64) >> np.uint64(11)) * 2.0**-53

    def standard_normal(self, size: int | Sequence[int], dtype: type[np.floating[Any]] = np.float64) -> NDArray[Any]:
        """Independent N(0, 1)."""
        return SecureGaussianNoise().draw(_shape(size), 1.0, 0).astype(dtype)

    def integers(self, low: int, high: int, size: int | Sequence[int]) -> NDArray[np.int64]:
        """Uniform in [low, high), int64; the range must be far below 2^53."""
        drawn: NDArray[np.int64] = low + np.floor(self.random(size) * (high - low)).astype(np.int64)
        return drawn

    def permutation(self, count: int) -> NDArray[np.int64]:
        """The integers below count in random order."""
        return np.argsort(self._words(count, np.uint64), kind="stable")

    @staticmethod
    def _words(size: int | Sequence[int], dtype: type[_Unsigned]) -> NDArray[_Unsigned]:
        shape = _shape(size)
        return np.frombuffer(os.urandom(math.prod(shape) * np.dtype(dtype).itemsize), dtype).reshape(shape)


def _shape(size: int | Sequence[int]) -> tuple[int, ...]:
    """The shape that numpy reads from a size."""
    return tuple(size) if isinstance(size, Sequence) else (int(size),)


def secret_stream(config: NoiseSettings, *path: str | int) -> SecretStream | np.random.Generator:
    """Randomness that nobody may know, for sampling for example; it has a seed only in tests that say so."""
    if config.insecure_noise_seed is not None:
        return rng.stream(config.insecure_noise_seed, *path)
    return SecretStream()


def poisson_sample(config: NoiseSettings, count: int, probability: float, *path: str | int) -> NDArray[np.int64]:
    """Draws who of `count` take part, each with this probability, to 2^-53 and never more, independently.

    Args:
      config: settings whose `secret_stream` decides.
      count: number of records or users.
      probability: q in (0, 1].
      path: path of the stream in tests.

    Returns:
      Indices int64, ascending. They are private.
    """
    drawn = secret_stream(config, *path).random(count)
    return np.flatnonzero(drawn < math.floor(probability * 2**53) * 2.0**-53)


def _check_stddev(stddev: float) -> None:
    """Refuses a standard deviation that is not a finite number >= 0."""
    _validate.real("stddev", stddev)
    _validate.require(stddev >= 0, "stddev", stddev, ">= 0")
