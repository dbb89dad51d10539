"""Training by noisy sums over sampled records (DP-SGD): what its releases have in common."""

from __future__ import annotations

import abc
import typing

if typing.TYPE_CHECKING:  # Settings of methods are read where nothing is computed, and must not wait for numpy.
    import numpy as np
    from numpy.typing import NDArray

    from datalens_tf.mechanisms.gaussian_sum import GaussianSum
    from datalens_tf.mechanisms.noise import NoiseSource


class SampledSums(abc.ABC):
    """Training that learns by one release per step: the noisy sum of one bounded vector per sampled record.

    Attributes:
      mechanism: bounds the vectors, and releases their sum.
      noise: source of the releases' noise.
      num_parameters: d, how many numbers a vector has.
    """

    mechanism: GaussianSum
    noise: NoiseSource

    @property
    @abc.abstractmethod
    def num_parameters(self) -> int:
        """Numbers d in a record's vector."""

    @abc.abstractmethod
    def sampled(self, step: int) -> NDArray[np.int64]:
        """Indices of a step's records: those of each unit with probability q, independently, unknown to anybody."""

    @abc.abstractmethod
    def bounded(self, vectors: NDArray[np.float32]) -> NDArray[np.float64]:
        """Vectors [n, d] as they are summed: bounded, integers in units of the mechanism's grid, float64 [n, d]."""

    @abc.abstractmethod
    def bounded_sum(self, chosen: NDArray[np.int64], step: int) -> NDArray[np.float64]:
        """Sum of the bounded vectors of these records, float64 [d], with the step's secret randomness; private."""

    def noisy_sum(self, step: int, charge: int) -> NDArray[np.float64]:
        """Release of a step, paid for by the charge with this index: float64 [d], in the vectors' own units."""
        return self.mechanism.privatize(self.bounded_sum(self.sampled(step), step), self.noise, charge)
