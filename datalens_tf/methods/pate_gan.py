"""PATE-GAN: a generator that learns from a discriminator of noisy labels (Jordon, Yoon and van der Schaar, ICLR 2019).

Teachers, each on its own partition, judge whether synthetic images are real. A student discriminator learns from
synthetic images with the noisy majority's labels, and the generator learns from the student discriminator alone.
Deviations:

- Noise is Gaussian and exact (`RealVotes`), with one joint price for the images of a step. The paper's Laplace noise
  with data-dependent moments gives an epsilon that is itself private. Public implementations were found to give all
  teachers all data, to invert the noise's scale, or to publish that data-dependent epsilon.
- The GAN is conditional on public, uniform labels. The fakes that a teacher trains on carry its own records' labels:
  with a few records per teacher a class is often missing, and otherwise the label alone would tell real from fake.
- The student takes several steps per release, on the labels of the latest releases; this is post-processing.
- The networks are convolutional, and by default there are 1,000 small teachers. The paper has dense networks for
  tables, one for about every thousand records.
"""

from __future__ import annotations

import dataclasses
import typing
from typing import Any

from etils import epy

from datalens_tf import rng
from datalens_tf.methods.voting import PateConfig, PateSynthesizer
from datalens_tf.settings import at_least, positive, setting
from datalens_tf.training.student import Student, draw_latents

with epy.lazy_imports():
    import numpy as np
    import tensorflow as tf

    from datalens_tf.mechanisms import real_votes
    from datalens_tf.training import teachers as teacher_banks

if typing.TYPE_CHECKING:
    from datalens_tf.mechanisms.base import Mechanism

CHOOSE_WHEN = "you want the baseline of votes on real or fake"
PUBLISHED_AS = "PATE-GAN"


@dataclasses.dataclass(frozen=True, kw_only=True)
class PateGanConfig(PateConfig):
    """Settings of PATE-GAN."""

    method: str = "pate_gan"
    student_steps: int = setting(
        5, "Steps of the student discriminator, each followed by one of the generator, per release. They learn "
        "from the labels released so far: post-processing, free in privacy.", at_least(1), group="generator")
    student_batch_size: int = setting(64, "Images in each of these steps.", at_least(1), group="generator")
    replay_releases: int = setting(
        20, "How many of the latest releases the student discriminator learns from.", at_least(1), group="generator")
    student_discriminator_learning_rate: float = setting(
        5e-4, "Learning rate of the student discriminator's Adam.", positive, group="generator")
    student_learning_rate: float = 5e-4

    CHOSEN: typing.ClassVar[str] = (
        "num_teachers, instance_noise, learning rates and numbers of steps were chosen on MNIST, whose real test split "
        "was looked at.")
    CHOSEN_ON: typing.ClassVar[tuple[str, ...]] = ("mnist",)

    def mechanism(self) -> Mechanism:
        return real_votes.RealVotes(num_teachers=self.num_teachers, noise_stddev=self.noise_scale)


class LabelledStudent(Student):
    """A generator and the discriminator that it learns from, which itself learns from labelled synthetic images.

    Args:
      config: resolved settings.
    """

    _config: PateGanConfig

    def __init__(self, config: PateGanConfig):
        super().__init__(config)
        self._discriminator = teacher_banks.build_teachers(config.replace(precision="float32"), 1)
        weights = self._discriminator.trainable_variables
        self._discriminator_optimizer = tf.keras.optimizers.legacy.Adam(
            config.student_discriminator_learning_rate, beta_1=config.student_beta_1, beta_2=config.student_beta_2)
        self._discriminator_optimizer._create_all_weights(weights)
        # The latest releases: images, their labels, and the teachers' answers.
        count = config.replay_releases * config.batch_size
        self._releases = tf.Variable(0, dtype=tf.int64)
        self._images = tf.Variable(tf.zeros([count, *config.data.image_shape]))
        self._labels = tf.Variable(tf.zeros([count], tf.int64))
        self._answers = tf.Variable(tf.zeros([count]))

    def variables(self) -> list[tf.Variable]:
        return [*super().variables(), *self._discriminator.variables, *self._discriminator_optimizer.variables(),
                self._releases, self._images, self._labels, self._answers]

    def train(self, latents: tf.Tensor, labels: tf.Tensor, direction: np.ndarray) -> float:
        """Learns from one release, and again from earlier ones.

        Args:
          latents, labels: as from `inputs`.
          direction: the teachers' answers, float32 [m, 1]: 1 for "real", -1 for "fake", 0 for nothing.

        Returns:
          The generator's loss in its last step.
        """
        config, size = self._config, self._config.student_batch_size
        done = int(self._releases)
        first = done % config.replay_releases * config.batch_size
        place = slice(first, first + config.batch_size)
        self._images[place].assign(self.images(latents, labels))
        self._labels[place].assign(tf.cast(labels, tf.int64))
        self._answers[place].assign(tf.reshape(tf.cast(direction, tf.float32), [-1]))
        self._releases.assign_add(1)
        filled = min(done + 1, config.replay_releases) * config.batch_size
        for number in range(config.student_steps):
            stream = rng.stream(config.seed, "student steps", done, number)
            loss = self._step(stream.integers(0, filled, size), draw_latents(config, stream, size),
                              stream.integers(0, config.data.num_classes, size))
        return float(loss)

    def _train_step(self, chosen, latents, labels):
        weights = self._discriminator.trainable_variables
        with tf.GradientTape() as tape:
            logits = self._logits(tf.gather(self._images, chosen), tf.gather(self._labels, chosen))
            # The logistic loss; an answer of 0 has no gradient.
            loss = tf.reduce_mean(tf.nn.softplus(-tf.gather(self._answers, chosen) * logits))
        self._discriminator_optimizer.apply_gradients(zip(tape.gradient(loss, weights), weights))
        with tf.GradientTape() as tape:
            logits = self._logits(self.generator([latents, labels], training=True), labels)
            loss = tf.reduce_mean(tf.nn.softplus(-logits))
        self.minimize(loss, tape)
        return loss

    def _logits(self, images, labels):
        """Logits of the student discriminator, [B]; a batch is normalised by its own statistics."""
        return self._discriminator((images[None], tf.one_hot(labels, self._config.data.num_classes)[None]))[0]


class PateGan(PateSynthesizer[PateGanConfig]):
    """A `RunSynthesizer` for PATE-GAN; its settings are a `PateGanConfig`."""

    config_class = PateGanConfig
    student_class = LabelledStudent

    def _described(self) -> tuple[str, str, dict[str, Any]]:
        return ("It adds 0 or 1 to the count of each of {batch_size} images, so the counts move by at most "
                "sqrt({batch_size}) = {l2_sensitivity:.6g} in l2 norm, whatever the record is.",
                "The number of teachers that took a synthetic image for real was released with Gaussian noise of "
                "standard deviation {noise_stddev:g}: {num_steps} steps of {batch_size} images each, with noise "
                "multiplier {noise_multiplier_per_step:.6g} per step. The generator learned only from a discriminator "
                "that was trained on synthetic images with these answers.", {})
