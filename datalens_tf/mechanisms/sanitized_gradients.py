"""GS-WGAN's release in a step: one sampled discriminator's clipped gradients for a batch of images, with noise.

Source: Chen, Orekondy and Fritz, "GS-WGAN: A Gradient-Sanitized Approach for Learning Differentially Private
Generators", NeurIPS 2020, section 4. A step does not cost what the paper says.

The sensitivity. Records are dealt to N discriminators. One of them, picked uniformly, answers for all m images of a
batch. Replacing a record changes nothing unless its discriminator is picked, with probability q = 1/N. Then all m
gradients may change, each by at most 2C, and the joint release changes by at most 2 C sqrt(m) in l2 norm. So a step is
one Gaussian mechanism with this sensitivity, on one of N parts. The authors' code charges m Gaussian mechanisms with
sensitivity 2C instead, each with a sample of its own, although all m gradients come from one pick. With their settings
(sigma = 1.07 times 2C, m = 32, N = 1,000, 20,000 steps, delta = 1e-5) their accounting says epsilon = 10. Steps with
these settings, and with states as below, cost 346.7.

The sampling. Given all that was released before, the outputs of a step are distributed as (1 - q) A + q B, and on
neighbouring data as (1 - q) A + q B'. A is the mixture of what the N - 1 other discriminators answer. All answers are
Gaussians whose means are at most C sqrt(m) long, so any two are at most one sensitivity apart. This is sampling one of
N "records", the partitions, without replacement, where neighbours differ in one. `rdp` prices it by Wang, Balle and
Kasiviswanathan 2019 (theorem 27, in dp_accounting), and `pld` by `bounds.fixed_size_sampling`. A need not be B, as it
would be for records that are added or removed.

The state. The published algorithm has no proof for the condition "given all that was released before". There, the
picked discriminator keeps the steps that it trained, so its state carries the secret picks of earlier steps. What was
released says something about earlier picks, and something else on neighbouring data. Then A differs between neighbours
as well, and the bound of one step says nothing about many. Users of this class must keep each discriminator's state a
function of its own records, of public randomness and of earlier releases, never of a pick: train discriminators by a
public schedule, and let the picked one answer without a trace (the method GS-WGAN).

TensorFlow is imported only where vectors are clipped: pricing a mechanism must not take the seconds of its import.
"""

from __future__ import annotations

import dataclasses
import math
import typing
from typing import Any

import dp_accounting
import numpy as np
from numpy.typing import NDArray

from datalens_tf import _validate
from datalens_tf.mechanisms.gaussian_sum import GaussianSum
from datalens_tf.mechanisms.noise import NoiseSource

if typing.TYPE_CHECKING:
    import tensorflow as tf


@dataclasses.dataclass(frozen=True, kw_only=True)
class SanitizedGradients:
    """Gradients of one of N discriminators with respect to m images, each clipped to an l2 norm, with Gaussian noise.

    With N = 1, there is one discriminator, or everybody knows which one answers: a Gaussian release without sampling.

    Formal guarantee: see the module. A clipped gradient is truncated to a grid of 2^-20 clip norms and is never longer
    than `clip_norm`, whatever it was (`GaussianSum.clip`); noise is rounded to the same grid. Neighbouring data sets
    differ in one replaced record.

    Attributes:
      clip_norm: largest l2 norm C of the gradient for one image.
      noise_multiplier: standard deviation of the noise divided by the joint sensitivity; 0 for none, and then
        `dp_event` is a non-private event.
      num_images: m, number of images of a step.
      num_discriminators: N, number of discriminators, of which one is picked uniformly and secretly.
    """

    clip_norm: float
    noise_multiplier: float
    num_images: int
    num_discriminators: int

    _one: GaussianSum = dataclasses.field(init=False, repr=False, compare=False)  # for one image's gradient

    def __post_init__(self) -> None:
        _validate.integer("num_images", self.num_images, at_least=1)
        _validate.integer("num_discriminators", self.num_discriminators, at_least=1)
        _validate.real("noise_multiplier", self.noise_multiplier)
        object.__setattr__(self, "_one", GaussianSum(  # With the noise in units of one image's clipped gradient.
            clip_norm=self.clip_norm, noise_multiplier=2 * self.noise_multiplier * math.sqrt(self.num_images),
            adjacency="replace-one"))

    @property
    def l2_sensitivity(self) -> float:
        """Largest l2 change of all m gradients jointly when a record of the picked one is replaced: 2 C sqrt(m).

        It is also the largest distance between any two discriminators' answers.
        """
        return self._one.l2_sensitivity * math.sqrt(self.num_images)

    @property
    def noise_stddev(self) -> float:
        """Standard deviation of the noise on every coordinate, in the gradients' units."""
        return self.noise_multiplier * self.l2_sensitivity

    def clip(self, gradients: tf.Tensor) -> tf.Tensor:
        """Gradients float32 [m, d], each clipped, as integers in units of the grid. Works in a `tf.function`."""
        return self._one.clip(gradients)

    def privatize(self, clipped: NDArray[Any], noise: NoiseSource, index: int) -> NDArray[np.float64]:
        """Adds the noise: the one private step.

        Args:
          clipped: [m, d] from `clip`.
          noise: where the noise comes from.
          index: index of the ledger charge that pays for this release; charge first, then call.

        Returns:
          float64 [m, d], in the gradients' units; may be published.

        Raises:
          InvalidArgumentError: there are not m gradients, or they are not on the grid.
        """
        clipped = np.asarray(clipped)
        _validate.require(clipped.ndim == 2 and len(clipped) == self.num_images, "clipped.shape", clipped.shape,
                          f"to be ({self.num_images}, d)")
        return self._one.privatize(clipped, noise, index)

    def dp_event(self) -> dp_accounting.DpEvent:
        """The cost of one step, for neighbours that differ in one replaced record."""
        if self.noise_multiplier == 0:
            return dp_accounting.NonPrivateDpEvent()
        return self._sampled(self.noise_multiplier)

    def event_as_published(self) -> dp_accounting.DpEvent:
        """Cost of one step by the authors' accounting. WRONG: it is too low; see the module."""
        alone = self.noise_multiplier * math.sqrt(self.num_images)
        return dp_accounting.SelfComposedDpEvent(self._sampled(alone), self.num_images)

    def _sampled(self, noise_multiplier: float) -> dp_accounting.DpEvent:
        """One Gaussian release from one of N parts."""
        event = dp_accounting.GaussianDpEvent(noise_multiplier)
        if self.num_discriminators == 1:
            return event
        return dp_accounting.SampledWithoutReplacementDpEvent(self.num_discriminators, 1, event)
