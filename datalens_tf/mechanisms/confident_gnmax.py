"""Confident-GNMax (Papernot et al. 2018), for G-PATE and PATE-CGAN: the answer that most teachers give, if many do.

TensorFlow is imported only where votes are computed: pricing a mechanism must not take the seconds of its import.
"""

from __future__ import annotations

import abc
import dataclasses
import math
import typing

import dp_accounting
import numpy as np
from numpy.typing import NDArray

from datalens_tf import _validate, rng
from datalens_tf.mechanisms.base import Mechanism, Teachers, add_noise
from datalens_tf.mechanisms.noise import NoiseSource

if typing.TYPE_CHECKING:
    import tensorflow as tf


@dataclasses.dataclass(frozen=True, kw_only=True)
class ConfidentGNMax(Mechanism):
    """Each teacher gives one of B answers, or none, to each of p questions on each of m images.

    Per question, two things are released: the largest number of votes for an answer, with noise of standard deviation
    sigma_1, and the numbers of votes for all answers, with fresh noise of standard deviation sigma_2. If the noisy
    largest number reaches the threshold, the answer with the most noisy votes is taken, else none.

    Formal guarantee: replacing one record changes the answers of one teacher. Per question, this change takes a vote
    from one answer and gives one to another. So the B numbers move by at most sqrt(2) in l2 norm and their largest by
    at most 1, whatever the networks make of the images, NaN included. Divide every number by the standard deviation of
    its noise: the m p questions of a step jointly are one Gaussian mechanism with

        mu^2 = m p (1 / sigma_1^2 + 2 / sigma_2^2).

    The threshold and the arg max are post-processing of its result. Both releases are charged for every question,
    whether the threshold was reached or not: how often it is reached depends on the records, and so would a price that
    counts the answers. The price is a function of the settings alone and an upper bound on the cost of what is used.
    The papers' data-dependent bounds are smaller where teachers agree, but are themselves private.

    Attributes:
      num_teachers: number of teachers N.
      num_bins: number of answers B.
      noise_stddev: standard deviation sigma_2 of the noise on the votes for an answer.
      threshold_noise_ratio: sigma_1 / sigma_2.
      vote_threshold: fraction of N that the noisy largest number of votes must reach, in [0, 1].

    Raises:
      InvalidArgumentError: a value outside its domain.
    """

    num_teachers: int
    num_bins: int
    noise_stddev: float
    threshold_noise_ratio: float
    vote_threshold: float

    def __post_init__(self) -> None:
        _validate.integer("num_teachers", self.num_teachers, at_least=1)
        _validate.integer("num_bins", self.num_bins, at_least=2)
        _validate.positive("noise_stddev", self.noise_stddev)
        _validate.positive("threshold_noise_ratio", self.threshold_noise_ratio)
        _validate.between("vote_threshold", self.vote_threshold, 0, 1)

    @property
    @abc.abstractmethod
    def num_questions(self) -> int:
        """Questions per image [p]."""

    def one_hot(self, answers: tf.Tensor) -> tf.Tensor:
        """Votes float32 [T, m, p B] for answers [T, m, p], integers below B; a negative answer is no vote."""
        import tensorflow as tf

        votes = tf.one_hot(answers, self.num_bins)
        return tf.reshape(votes, [*tf.unstack(tf.shape(answers)[:2]), self.num_questions * self.num_bins])

    def l2_sensitivity(self, num_images: int) -> float:
        """Largest l2 change of everything that is released: sqrt(m p (2 + (sigma_2 / sigma_1)^2)).

        Here the largest numbers are divided by sigma_1 / sigma_2, so that all noise has standard deviation sigma_2.
        """
        _validate.integer("num_images", num_images, at_least=1)
        return math.sqrt(num_images * self.num_questions * (2 + self.threshold_noise_ratio**-2))

    def privatize(self, vote_sum: NDArray[np.float64], noise: NoiseSource, index: int, share: float = 1.0
                  ) -> NDArray[np.float64]:
        """Adds the noise; see `Mechanism.privatize`.

        Args:
          vote_sum: [m, p B].
          noise, index: as in `Mechanism.privatize`.
          share: must be 1, because the largest number of votes is not a sum of shares.

        Returns:
          float64 [m, p (1 + B)]: the largest numbers of votes, then the numbers for all answers.
        """
        counts = np.asarray(vote_sum, np.float64).reshape(len(vote_sum), self.num_questions, self.num_bins)
        possible = np.all((counts >= 0) & (counts == np.rint(counts))) and np.all(counts.sum(-1) <= self.num_teachers)
        # The values are private: the message must not print them.
        _validate.require(bool(possible), "num_teachers", self.num_teachers, "to bound integer vote sums; it does not")
        _validate.require(share == 1.0, "share", share, "== 1")
        largest = add_noise(counts.max(-1), self.threshold_noise_ratio * self.noise_stddev, noise, index)
        noisy = add_noise(counts, self.noise_stddev, noise, index)
        return np.concatenate([largest, noisy.reshape(len(vote_sum), -1)], 1)

    def answers(self, noisy: NDArray[np.float64]) -> NDArray[np.int64]:
        """The confident answers int64 [m, p], -1 for none: post-processing of what `privatize` returned."""
        largest, counts = np.split(noisy, [self.num_questions], axis=1)
        chosen = counts.reshape(len(noisy), self.num_questions, self.num_bins).argmax(-1)
        return np.where(largest >= self.vote_threshold * self.num_teachers, chosen, -1)

    def dp_event(self, num_images: int) -> dp_accounting.DpEvent:
        """One Gaussian mechanism: questions, images, and both kinds of numbers are released jointly."""
        return dp_accounting.GaussianDpEvent(self.noise_stddev / self.l2_sensitivity(num_images))


@dataclasses.dataclass(frozen=True, kw_only=True)
class BinnedGradients(ConfidentGNMax):
    """G-PATE's questions (Long et al. 2021): in which of B bins is the image gradient's p-th projection?

    Each step projects on fresh directions, which are public and the same for all images and teachers. Their entries are
    independent normal numbers of variance 1 / d, so that a projection has the size of a pixel's gradient. Bins divide
    [-clip, clip] evenly.

    Attributes:
      projection_dim: number of directions p.
      clip: bound c on the projections of gradients; the gradients are those of a mean over the m images.
      dimension: numbers per image d.
      seed: public seed of the directions.
    """

    projection_dim: int
    clip: float
    dimension: int
    seed: int

    def __post_init__(self) -> None:
        super().__post_init__()
        _validate.integer("projection_dim", self.projection_dim, at_least=1)
        _validate.positive("clip", self.clip)
        _validate.integer("dimension", self.dimension, at_least=1)

    @property
    def num_questions(self) -> int:
        return self.projection_dim

    def directions(self, step: tf.Tensor | int) -> tf.Tensor:
        """The public directions of a step, float32 [d, p]."""
        import tensorflow as tf

        seed = tf.stack([int(rng.tensorflow_seed(self.seed, "directions")[0]), tf.cast(step, tf.int32)])
        return tf.random.stateless_normal([self.dimension, self.projection_dim], seed) / math.sqrt(self.dimension)

    def votes(self, teachers: Teachers, images: tf.Tensor, labels: tf.Tensor, seeds: tf.Tensor, step: tf.Tensor
              ) -> tf.Tensor:
        """Votes float32 [T, m, p B]; see `Mechanism.votes`."""
        import tensorflow as tf

        gradients = teachers.image_gradients(images, labels)
        flat = tf.reshape(gradients, [teachers.num_teachers, tf.shape(images)[0], self.dimension])
        return self.compress(tf.einsum("tmd,dp->tmp", flat, self.directions(step)), seeds)

    def compress(self, gradients: tf.Tensor, seeds: tf.Tensor) -> tf.Tensor:
        """Votes float32 [T, m, p B] for projections [T, m, p]; a projection that is not finite gives no vote."""
        import tensorflow as tf

        gradients = tf.convert_to_tensor(gradients, tf.float32)
        finite = tf.math.is_finite(gradients)
        scaled = tf.clip_by_value(tf.where(finite, gradients, 0.0), -self.clip, self.clip) / self.clip
        bins = tf.cast((scaled + 1.0) / 2.0 * self.num_bins, tf.int32)
        return self.one_hot(tf.where(finite, tf.minimum(bins, self.num_bins - 1), -1))

    def postprocess(self, noisy: NDArray[np.float64]) -> NDArray[np.float32]:
        """The middles of the chosen bins, in units of the clip: float32 [m, p], 0 where teachers do not agree."""
        bins = self.answers(noisy)
        return np.where(bins >= 0, (2 * bins + 1) / self.num_bins - 1, 0.0).astype(np.float32)

    def direction(self, noisy: NDArray[np.float64], step: int) -> NDArray[np.float32]:
        """The answers projected back, float32 [m, d], scaled so that the mean square of pixels is at most about 1."""
        scale = math.sqrt(self.dimension / self.projection_dim)
        directions: NDArray[np.float32] = self.directions(step).numpy()
        return scale * self.postprocess(noisy) @ directions.T


@dataclasses.dataclass(frozen=True, kw_only=True)
class RealOrFake(ConfidentGNMax):
    """One question per image: is it fake (answer 0) or real (answer 1)?"""

    num_bins: int = 2

    def __post_init__(self) -> None:
        super().__post_init__()
        _validate.require(self.num_bins == 2, "num_bins", self.num_bins, "== 2")

    @property
    def num_questions(self) -> int:
        return 1

    def votes(self, teachers: Teachers, images: tf.Tensor, labels: tf.Tensor, seeds: tf.Tensor, step: tf.Tensor
              ) -> tf.Tensor:
        """Votes float32 [T, m, 2]; see `Mechanism.votes`."""
        return self.compress(teachers.logits_of_each(images, labels)[..., None], seeds)

    def compress(self, gradients: tf.Tensor, seeds: tf.Tensor) -> tf.Tensor:
        """Votes float32 [T, m, 2] for logits [T, m, 1] of "this image is real"; NaN counts as "fake"."""
        import tensorflow as tf

        return self.one_hot(tf.cast(tf.convert_to_tensor(gradients, tf.float32) > 0.0, tf.int32))

    def postprocess(self, noisy: NDArray[np.float64]) -> NDArray[np.float32]:
        """Labels float32 [m, 1]: 1 for "real", -1 for "fake", 0 where teachers do not agree."""
        return np.array([-1.0, 1.0, 0.0], np.float32)[self.answers(noisy)]
