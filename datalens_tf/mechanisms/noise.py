"""Sources of the privacy noise.

The noise is the secret on which the guarantee rests: whoever can predict it subtracts it. It therefore comes from the
operating system's entropy and has no seed; the seeded source exists for tests and says that it is insecure.
"""

import abc
import math
import os
from typing import Sequence

import numpy as np
from scipy import special

from datalens_tf import _validate


class NoiseSource(abc.ABC):
    """Draws independent Gaussian noise.

    Attributes:
      is_secure: whether the noise is unpredictable; if not, nothing released with it is private.
      description: one phrase for the privacy statement.
    """

    is_secure: bool
    description: str

    @abc.abstractmethod
    def draw(self, shape: Sequence[int], stddev: float, index: int) -> np.ndarray:
        """Returns float64 noise N(0, stddev^2) of the given shape.

        Args:
          shape: shape of the release.
          stddev: standard deviation >= 0, in the units of what is released; 0 gives zeros.
          index: index of the ledger charge that pays for this release.

        Raises:
          InvalidArgumentError: stddev is negative, NaN or infinite.
        """


class SecureGaussianNoise(NoiseSource):
    """Gaussian noise from the operating system's cryptographic generator (`os.urandom`), by inversion in float64.

    No seed influences it, not even of a process that seeds every other generator; `index` is ignored.
    """

    is_secure = True
    description = "continuous Gaussian in float64, from the operating system's entropy (os.urandom), without a seed"

    def draw(self, shape: Sequence[int], stddev: float, index: int) -> np.ndarray:
        """See `NoiseSource.draw`."""
        _check_stddev(stddev)
        bits = np.frombuffer(os.urandom(8 * math.prod(shape)), np.uint64).reshape(shape)
        # One bit of sign and 63 of tail probability in (0, 1/2]: both tails reach 9 sigma at full precision, where
        # inverting one uniform in (0, 1) would round the upper tail to a coarse grid and could return infinity.
        sign = 1.0 - 2.0 * (bits & np.uint64(1))
        tail = ((bits >> np.uint64(1)) + 0.5) * 2.0**-64
        return sign * special.ndtri(tail) * stddev


class InsecureSeededNoise(NoiseSource):
    """Predictable noise, a function of (seed, index). For tests only: whatever uses it is NOT PRIVATE."""

    is_secure = False
    description = "predictable: a fixed seed, for tests only"

    def __init__(self, seed: int):
        _validate.integer("seed", seed, at_least=0)
        self._seed = seed

    def draw(self, shape: Sequence[int], stddev: float, index: int) -> np.ndarray:
        """See `NoiseSource.draw`."""
        _check_stddev(stddev)
        return np.random.default_rng([self._seed, index]).normal(0.0, stddev, shape)


def _check_stddev(stddev: float) -> None:
    """A finite number >= 0."""
    _validate.real("stddev", stddev)
    _validate.require(stddev >= 0, "stddev", stddev, ">= 0")
