"""Discrete Gaussian noise, exact, and the price of a sum of several owners' shares of it.

Shares of rounded Gaussian noise do not add up to rounded Gaussian noise, and floating-point shares show in the last
digits. Discrete Gaussian shares are integers, and their sum is nearly a discrete Gaussian, by a published bound:
Kairouz, Liu and Steinke, "The Distributed Discrete Gaussian Mechanism for Federated Learning with Secure Aggregation",
ICML 2021, proposition 14.
"""

import math
import os
import sys
from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from datalens_tf import _validate
from datalens_tf.mechanisms import noise

SLACK = 1e-6  # relative excess of the shares, which pays for their sum being only nearly Gaussian
_SMALLEST_STDDEV = 0.5  # of a share, the smallest for which the bound is proven


class DiscreteGaussianNoise(noise.NoiseSource):
    """Integers k with probability proportional to exp(-k^2 / 2 stddev^2), exactly, from the operating system's entropy.

    Formal guarantee: added to integers, this noise has Renyi divergences of at most those of the Gaussian mechanism
    with the same standard deviation (Canonne, Kamath and Steinke 2020, theorem 4): `events.DiscreteGaussianDpEvent`.

    Exactness: an integer k is proposed with exactly the probability that X ~ N(0, stddev^2) rounds to it
    (`noise.RoundedGaussianNoise`). It is accepted with a probability a(k) that is proportional to
    exp(-k^2 / 2 stddev^2) / P[X rounds to k], and 1 at 0. As a(k) >= 1 - k^2 / 8 stddev^4, nearly every proposal is
    accepted by that bound. Where the bound does not decide, further bits are drawn and a(k) is computed in
    multi-precision arithmetic. No float's rounding shows in the result. No seed influences it; `index` is ignored.
    """

    is_secure = True
    description = ("discrete Gaussian noise, drawn exactly from the operating system's entropy (os.urandom), without "
                   "a seed")
    caveat = ("What is summed are integers, so its Renyi divergences are at most those of the Gaussian mechanism, and "
              "no floating-point number shows in it. Only Renyi accountants are applied.")

    def draw(self, shape: Sequence[int], stddev: float, index: int) -> NDArray[np.float64]:
        """Draws integers; see `NoiseSource.draw`. The standard deviation is that of exp(-k^2 / 2 stddev^2)."""
        proposals = noise.RoundedGaussianNoise()
        drawn = proposals.draw((math.prod(shape),), stddev, index)
        waiting = np.arange(drawn.size if stddev > 0 else 0)
        while waiting.size:
            waiting = waiting[~_accepted(drawn[waiting], stddev)]
            drawn[waiting] = proposals.draw(waiting.shape, stddev, index)
        return drawn.reshape(shape)


def _accepted(proposed: NDArray[np.float64], stddev: float) -> NDArray[np.bool_]:
    """Whether each integer that a rounded Gaussian proposed is accepted, which has probability a(k)."""
    bits = np.frombuffer(os.urandom(8 * proposed.size), np.uint64)
    # a(k) = c / E[exp(-u^2 / 2 s^2) cosh(k u / s^2)] for u uniform in (-1/2, 1/2) and c = E[exp(-u^2 / 2 s^2)], so it
    # is at least 1 / cosh(k / 2 s^2) >= 1 - k^2 / 8 s^4. float64 computes either side within 2^-50.
    sure = bits.astype(np.float64) * 2.0**-64 < 1 - np.square(proposed / stddev**2) / 8 - 2.0**-48
    accepted: NDArray[np.bool_] = sure.copy()
    for position in np.flatnonzero(~sure):
        accepted[position] = _accepts(int(bits[position]), int(proposed[position]), stddev)
    return accepted


def _accepts(bits: int, proposed: int, stddev: float) -> bool:
    """Whether the number 0.bits... is below a(k); further bits of it are drawn until they decide."""
    import mpmath

    length = 64
    while True:
        with mpmath.workprec(2 * length + 128):
            k, scale = abs(proposed), mpmath.mpf(stddev) * mpmath.sqrt(2)
            bound = mpmath.exp(-(k / scale)**2) * _rounds_to(0, scale) / _rounds_to(k, scale)
            low, high = (mpmath.ldexp(end, -length) for end in (bits, bits + 1))
            error = mpmath.ldexp(1, -length - 32)  # Of the bound, with much to spare.
            if high <= bound - error or low >= bound + error:
                return bool(high <= bound)
        bits, length = bits << 64 | int.from_bytes(os.urandom(8), "big"), length + 64


def _rounds_to(integer: int, scale: Any) -> Any:
    """P[X rounds to the integer], which is >= 0, in mpmath; from tails, which lose no digits where they are small."""
    import mpmath

    half = mpmath.mpf(1) / 2
    return (mpmath.erfc((integer - half) / scale) - mpmath.erfc((integer + half) / scale)) / 2


def excess(num_shares: int, stddev: float) -> float:
    """The published bound tau on how far a sum of so many shares is from a discrete Gaussian, rounded up.

    tau = 10 sum_{k=1}^{n-1} exp(-2 pi^2 stddev^2 k / (k + 1)), for n shares. A release of d numbers with l2 sensitivity
    D then has a Renyi divergence of at most order * D^2 / (2 n stddev^2) + tau d (proposition 14).

    Args:
      num_shares: n.
      stddev: standard deviation of one share, at least 1/2.
    """
    _validate.integer("num_shares", num_shares, at_least=1)
    _validate.real("stddev", stddev)
    _validate.require(stddev >= _SMALLEST_STDDEV, "stddev", stddev, f">= {_SMALLEST_STDDEV} of a share of the noise")
    if num_shares == 1:
        return 0.0
    terms = math.fsum(math.exp(-2 * math.pi**2 * stddev**2 * k / (k + 1)) for k in range(1, num_shares))
    return 10 * (terms * (1 + 1e-12) + num_shares * sys.float_info.min)  # Exponentials may have become 0.


def check_shares(noise_multiplier: float, num_shares: int, stddev: float, dimension: int) -> None:
    """Refuses shares whose sum does not have the noise that it is charged for.

    A sum of n shares with n stddev^2 = ((1 + SLACK) z D)^2 has a Renyi divergence of at most order / 2 times
    (1 / ((1 + SLACK) z)^2 + 2 tau d), as the order is above 1. The factor in parentheses must not be above 1 / z^2.

    Args:
      noise_multiplier: z, which the release is charged for.
      num_shares: n, the number of shares from honest owners.
      stddev: standard deviation of a share, the smallest over all numbers of the release.
      dimension: d, the number of numbers in the release.

    Raises:
      InvalidArgumentError: the shares are too small for the bound.
    """
    charged = noise_multiplier**-2
    _validate.require(
        stddev >= _SMALLEST_STDDEV and
        charged / (1 + SLACK)**2 + 2 * excess(num_shares, stddev) * dimension <= charged, "stddev", stddev,
        f"of a share of the noise to be large enough for the sum of {num_shares} to be nearly a discrete Gaussian: "
        "take fewer owners, or a smaller epsilon")
