"""Interface of every aggregation mechanism."""

from __future__ import annotations

import abc
import math
from typing import TYPE_CHECKING, ClassVar, Protocol

import dp_accounting
import numpy as np
from numpy.typing import NDArray

from datalens_tf import _validate
from datalens_tf.events import DiscreteGaussianDpEvent
from datalens_tf.mechanisms.noise import NoiseSource

if TYPE_CHECKING:  # Pricing a mechanism must not take the seconds of TensorFlow's import.
    import tensorflow as tf

# Neighbouring relations that sums over records state a sensitivity for.
ADJACENCIES = ("replace-one", "add-or-remove-one")


class Teachers(Protocol):
    """Networks of T teachers, which a mechanism asks about m images that all of them see."""

    num_teachers: int

    def image_gradients(self, images: tf.Tensor, labels: tf.Tensor) -> tf.Tensor:
        """Gradients of the mean of log D(x) with respect to the images, float32 [T, m, H, W, C]."""

    def logits_of_each(self, images: tf.Tensor, labels: tf.Tensor) -> tf.Tensor:
        """Logits of "this image is real", float32 [T, m]."""


class Mechanism(abc.ABC):
    """A mechanism, which turns raw teacher gradients into a released array.

    One object holds the bounded votes, their sensitivity, the noise and its price, so that they cannot disagree.
    A release is `postprocess(privatize(sum of compress(gradients) over teachers))` and costs `dp_event`.

    Formal guarantee: two data sets that differ in one replaced record differ in the gradients of one teacher. Their
    vote sums then differ by at most `l2_sensitivity(m)` in l2 norm over all m images jointly, whatever the gradients
    are: zero, huge, infinite or NaN.

    The guarantee does not cover adding or removing a record. The number of records decides how they are dealt, so one
    more record may change what every teacher learned from.

    Attributes:
      ADJACENCIES: neighbouring relations that the sensitivity is for.
    """

    ADJACENCIES: ClassVar[tuple[str, ...]] = ("replace-one",)

    def votes(self, teachers: Teachers, images: tf.Tensor, labels: tf.Tensor, seeds: tf.Tensor,
              step: tf.Tensor) -> tf.Tensor:
        """Votes of T teachers on synthetic images: here, compressed image gradients. Works in a `tf.function`.

        Args:
          teachers: the T networks.
          images: float32 [m, H, W, C].
          labels: one-hot [m, Y].
          seeds: int32 [T, 2], as for `compress`.
          step: number of the step, an integer scalar, for public randomness that all teachers share.

        Returns:
          float32 [T, m, ...] of integers, as from `compress`.
        """
        import tensorflow as tf

        gradients = teachers.image_gradients(images, labels)
        return self.compress(tf.reshape(gradients, [teachers.num_teachers, tf.shape(images)[0], -1]), seeds)

    @abc.abstractmethod
    def compress(self, gradients: tf.Tensor, seeds: tf.Tensor) -> tf.Tensor:
        """Turns the gradients of T teachers into bounded votes. Works in a `tf.function`.

        Args:
          gradients: float32 [T, m, d], any values, NaN and infinity included.
          seeds: int32 [T, 2], one stateless seed per teacher, so that votes do not depend on how teachers are chunked.
            Seeds need not be secret: the bound holds for every seed.

        Returns:
          float32 [T, m, d] of integers.
        """

    @abc.abstractmethod
    def l2_sensitivity(self, num_images: int) -> float:
        """Largest l2 change of the vote sum of `num_images` images jointly when one record is replaced, in votes."""

    @abc.abstractmethod
    def privatize(self, vote_sum: NDArray[np.float64], noise: NoiseSource, index: int, share: float = 1.0
                  ) -> NDArray[np.float64]:
        """Adds the noise: the one private step.

        Args:
          vote_sum: [m, d], the sum of all teachers' votes.
          noise: where the noise comes from.
          index: index of the ledger charge that pays for this release; charge first, then call.
          share: share of the noise's variance that is added here, > 0; others add the rest to other teachers' votes.

        Returns:
          float64 [m, d]; may be stored and published.

        Raises:
          InvalidArgumentError: the votes cannot be a sum of `compress` results.
        """

    @abc.abstractmethod
    def postprocess(self, noisy: NDArray[np.float64]) -> NDArray[np.float32]:
        """Turns a noisy vote sum [m, d] into the float32 [m, d] direction. Free in privacy."""

    def direction(self, noisy: NDArray[np.float64], step: int) -> NDArray[np.float32]:
        """Direction for the student in a step: `postprocess`, unless its public randomness changes with the step."""
        return self.postprocess(noisy)

    @abc.abstractmethod
    def dp_event(self, num_images: int) -> dp_accounting.DpEvent:
        """The privacy cost of one release of `num_images` images jointly, for any dp_accounting accountant.

        The sensitivity to replacing one record is inside the noise multiplier: do not double it again.
        """


def gaussian_for(mechanism: SumOfRecords, adjacency: str | None) -> dp_accounting.DpEvent:
    """Cost of a release for a neighbouring relation, by default the mechanism's own.

    The mechanism's noise multiplier is the one for its own relation.
    """
    own = mechanism.sensitivity(mechanism.adjacency)
    multiplier = mechanism.noise_multiplier * (1.0 if adjacency in (None, mechanism.adjacency) else
                                               own / mechanism.sensitivity(adjacency))
    return DiscreteGaussianDpEvent(multiplier) if mechanism.discrete else dp_accounting.GaussianDpEvent(multiplier)


class SumOfRecords(Protocol):
    """A noisy sum over all records, which has a sensitivity for each of `ADJACENCIES`."""

    @property
    def noise_multiplier(self) -> float:
        """Standard deviation of the noise divided by the sensitivity for the mechanism's own relation."""
        ...

    @property
    def adjacency(self) -> str:
        """The relation that the noise is for."""
        ...

    @property
    def discrete(self) -> bool:
        """Whether the noise is discrete Gaussian, or a sum of such shares, priced by Renyi accountants alone."""
        ...

    @property
    def stddev(self) -> float:
        """Standard deviation of the noise, in units of the sums; the smallest one if it differs between numbers."""
        ...

    @property
    def largest(self) -> int:
        """The most that a record adds to any number, in units of the sums."""
        ...

    def sensitivity(self, adjacency: str) -> float:
        """Largest l2 change of the sum between neighbours by this relation."""
        ...

    def dp_event(self, adjacency: str | None = None) -> dp_accounting.DpEvent:
        """Cost of the release for neighbours by this relation, by default the mechanism's own."""
        ...


def add_noise(values: NDArray[np.float64], stddev: float, noise: NoiseSource, index: int) -> NDArray[np.float64]:
    """Values with independent noise on each.

    Raises:
      InvalidArgumentError: the noise has another shape. A smaller array would broadcast, and the same noise on several
        values cancels in their difference.
    """
    drawn = noise.draw(values.shape, stddev, index)
    _validate.require(drawn.shape == values.shape, "noise.shape", drawn.shape, f"to be {values.shape}")
    return values + drawn


def noisy_vote_sum(vote_sum: NDArray[np.float64], largest: int, stddev: float, noise: NoiseSource, index: int,
                   share: float) -> NDArray[np.float64]:
    """`Mechanism.privatize` for vote sums [m, ...] that are integers of magnitude `largest` at most.

    Raises:
      InvalidArgumentError: the votes cannot be such a sum.
    """
    vote_sum = np.asarray(vote_sum, np.float64)
    _validate.require(vote_sum.ndim == 2, "vote_sum.shape", vote_sum.shape, "to be (images, votes per image)")
    possible = np.all(np.abs(vote_sum) <= largest) and np.all(vote_sum == np.rint(vote_sum))
    # The values are private: the message must not print them.
    _validate.require(bool(possible), "largest", largest, "to bound integer vote sums; it does not")
    _validate.positive("share", share)
    return add_noise(vote_sum, stddev * math.sqrt(share), noise, index)


def gaussian_event(stddev: float, l2_sensitivity: float) -> dp_accounting.DpEvent:
    """Event of one Gaussian mechanism; a non-private event if there is no noise."""
    if stddev == 0:
        return dp_accounting.NonPrivateDpEvent()
    return dp_accounting.GaussianDpEvent(noise_multiplier=stddev / l2_sensitivity)
