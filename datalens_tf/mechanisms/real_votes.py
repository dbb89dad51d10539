"""The release of PATE-GAN (Jordon, Yoon and van der Schaar 2019): how many teachers take a synthetic image for real.

TensorFlow is imported only where votes are computed: pricing a mechanism must not take the seconds of its import.
"""

from __future__ import annotations

import dataclasses
import math
import typing

import dp_accounting
import numpy as np
from numpy.typing import NDArray

from datalens_tf import _validate
from datalens_tf.mechanisms.base import Mechanism, Teachers, add_noise, gaussian_event
from datalens_tf.mechanisms.noise import NoiseSource

if typing.TYPE_CHECKING:
    import tensorflow as tf


@dataclasses.dataclass(frozen=True, kw_only=True)
class RealVotes(Mechanism):
    """Every teacher says of each of m synthetic images whether it is real; the counts are released with Gaussian noise.

    Formal guarantee: replacing one record changes the answers of one teacher. That teacher adds 0 or 1 to each of m
    counts, whatever its network makes of the images, NaN included, so the counts jointly move by at most sqrt(m) in l2
    norm. A step is one Gaussian mechanism with noise multiplier sigma / sqrt(m), whatever the votes are: neither the
    noise nor its price depends on how clear the majority is. The paper adds Laplace noise to the counts and lets the
    moments accountant of PATE look at the votes. The epsilon that results is a function of the data, so it is not a
    guarantee that one may publish.

    Attributes:
      num_teachers: number of teachers N.
      noise_stddev: standard deviation sigma of the noise on a count, in votes; 0 switches the noise off, and then
        `dp_event` is a non-private event.

    Raises:
      InvalidArgumentError: a value outside its domain.
    """

    num_teachers: int
    noise_stddev: float

    def __post_init__(self) -> None:
        _validate.integer("num_teachers", self.num_teachers, at_least=1)
        _validate.real("noise_stddev", self.noise_stddev)
        _validate.require(self.noise_stddev >= 0, "noise_stddev", self.noise_stddev, ">= 0")

    def votes(self, teachers: Teachers, images: tf.Tensor, labels: tf.Tensor, seeds: tf.Tensor, step: tf.Tensor
              ) -> tf.Tensor:
        """Votes float32 [T, m, 1]; see `Mechanism.votes`."""
        return self.compress(teachers.logits_of_each(images, labels)[..., None], seeds)

    def compress(self, gradients: tf.Tensor, seeds: tf.Tensor) -> tf.Tensor:
        """1 where a logit (of "this image is real") is above 0, else 0; NaN counts as "fake"."""
        import tensorflow as tf

        return tf.cast(tf.convert_to_tensor(gradients, tf.float32) > 0.0, tf.float32)

    def l2_sensitivity(self, num_images: int) -> float:
        """sqrt(m): one teacher's answers all change."""
        _validate.integer("num_images", num_images, at_least=1)
        return math.sqrt(num_images)

    def privatize(self, vote_sum: NDArray[np.float64], noise: NoiseSource, index: int, share: float = 1.0
                  ) -> NDArray[np.float64]:
        """Counts of "real" [m, 1] with noise; see `Mechanism.privatize`."""
        counts = np.asarray(vote_sum, np.float64)
        possible = np.all((counts >= 0) & (counts <= self.num_teachers) & (counts == np.rint(counts)))
        # The values are private: the message must not print them.
        _validate.require(bool(possible), "num_teachers", self.num_teachers, "to bound integer vote sums; it does not")
        _validate.positive("share", share)
        return add_noise(counts, self.noise_stddev * math.sqrt(share), noise, index)

    def postprocess(self, noisy: NDArray[np.float64]) -> NDArray[np.float32]:
        """Labels float32 [m, 1] by majority of the noisy votes: 1 for "real", -1 for "fake"."""
        return np.where(noisy >= self.num_teachers / 2, 1.0, -1.0).astype(np.float32)

    def dp_event(self, num_images: int) -> dp_accounting.DpEvent:
        """One Gaussian mechanism with noise multiplier sigma / sqrt(m): the m counts are released jointly."""
        return gaussian_event(self.noise_stddev, self.l2_sensitivity(num_images))
