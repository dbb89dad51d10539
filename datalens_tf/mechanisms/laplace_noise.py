"""Laplace noise for LNMax, exact and integer like `noise.RoundedGaussianNoise`."""

import math
import os
from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from datalens_tf import _validate
from datalens_tf.mechanisms import noise


def laplace_scale(stddev: float) -> float:
    """The scale b of Laplace noise (density exp(-|x| / b) / 2b) with this standard deviation, sqrt(2) b."""
    return stddev / math.sqrt(2)


class RoundedLaplaceNoise(noise.NoiseSource):
    """Laplace noise of infinite precision, rounded to integers, from the operating system's cryptographic generator.

    Formal guarantee: votes are integers f, so f + round(X) = round(f + X). The release is the Laplace mechanism's
    result, rounded, and rounding is post-processing. So the guarantee holds for every accountant, with no
    floating-point number in the result. `RoundedGaussianNoise` describes how X is decided.
    """

    is_secure = True
    description = ("Laplace noise of infinite precision, rounded to integers, from the operating system's entropy "
                   "(os.urandom), without a seed")
    caveat = ("What is summed are integers, so the release is the Laplace mechanism's result, rounded: the analysis "
              "of the Laplace mechanism holds for it as it is, and no floating-point number shows in it.")

    def draw(self, shape: Sequence[int], stddev: float, index: int) -> NDArray[np.float64]:
        """Integers as float64: round(X) for X of the Laplace distribution with this standard deviation."""
        _validate.real("stddev", stddev)
        _validate.between("stddev", stddev, 0, noise._LARGEST_EXACT)
        if stddev == 0:
            return np.zeros(shape)
        scale = laplace_scale(stddev)
        sign, bits = noise._sign_and_tail_bits(math.prod(shape))
        # A tail probability of 2^-64 is at 43.7 scales.
        magnitude, certain = noise._rounded_quantiles(bits, scale, lambda tail: -np.log(2 * tail), 40)
        for position in np.flatnonzero(~certain):
            magnitude[position] = noise._exact_quantile(int(bits[position]), scale, os.urandom, _laplace_tail,
                                                        near=int(magnitude[position]))
        return (sign * magnitude).reshape(shape)


def _laplace_tail(x: Any) -> Any:
    """P[X > x] for x >= 0 and scale 1, in mpmath."""
    import mpmath

    return mpmath.exp(-x) / 2
