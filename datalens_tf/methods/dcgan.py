"""A conditional DC-GAN without privacy: what the same generator learns where nothing is protected.

Source: Radford, Metz and Chintala 2016, with the label as a condition, as the reference at epsilon = infinity in table
1 of the DataLens paper. One discriminator, the teachers' own network (`EnsembleDiscriminator`), sees all records; the
generator is trained on its non-saturating loss.
"""

from __future__ import annotations

import dataclasses
import typing

from etils import epy

from datalens_tf import rng
from datalens_tf.config import MethodConfig
from datalens_tf.errors import DataError
from datalens_tf.methods.base import Learner, LoopSynthesizer
from datalens_tf.settings import at_least, between, positive, setting
from datalens_tf.training.student import AveragedGenerator, draw_latents

with epy.lazy_imports():
    import tensorflow as tf

    from datalens_tf.accounting import ledger as ledgers
    from datalens_tf.accounting import statement as statements
    from datalens_tf.data import datasets
    from datalens_tf.mechanisms import noise as noises
    from datalens_tf.models import discriminator as discriminators

CHOOSE_WHEN = "you want to see what privacy costs: a generator without it, NOT PRIVATE"
PUBLISHED_AS = "DC-GAN"


@dataclasses.dataclass(frozen=True, kw_only=True)
class DcganConfig(MethodConfig):
    """Settings of the conditional DC-GAN, which is not private: what all other methods would be without a guarantee."""

    method: str = "dcgan"
    adjacency: str = "none"
    batch_size: int = setting(64, "Real and synthetic images per step.", at_least(1))
    num_steps: int = setting(6000, "Steps of discriminator and generator.", at_least(1))
    learning_rate: float = setting(4e-4, "Learning rate of the discriminator's Adam.", positive)
    beta_1: float = setting(0.5, "Beta 1 of the discriminator's Adam.", between(0, 1, open_high=True))
    beta_2: float = setting(0.999, "Beta 2 of the discriminator's Adam.", between(0, 1, open_high=True))
    discriminator_filters: int = setting(32, "Width of the discriminator's convolutions.", at_least(1))
    discriminator_units: int = setting(256, "Width of the discriminator's dense layer.", at_least(1))
    student_learning_rate: float = 4e-4
    generator_filters: int = 32
    generator_units: int = 256
    ema_decay: float = 0.999
    epsilon: float | None = None

    GROUP: typing.ClassVar[str] = "discriminators"
    CHOSEN: typing.ClassVar[str] = (
        "Widths, learning rates and num_steps were chosen on MNIST, whose real test split was looked at.")
    CHOSEN_ON: typing.ClassVar[tuple[str, ...]] = ("mnist",)
    ADJACENCIES: typing.ClassVar[tuple[str, ...]] = ("none",)
    NO_OTHER: typing.ClassVar[str] = "it is not private"


class Gan(Learner):
    """Generator and discriminator.

    Args:
      config: resolved settings.
      dataset: the records.
    """

    def __init__(self, config: DcganConfig, dataset: datasets.Dataset):
        self._config, self._dataset = config, dataset
        self.student = AveragedGenerator(config)
        self._discriminator = discriminators.EnsembleDiscriminator(
            1, *config.data, filters=config.discriminator_filters,
            units=config.discriminator_units)
        self._optimizer = tf.keras.optimizers.legacy.Adam(
            config.learning_rate, beta_1=config.beta_1, beta_2=config.beta_2)
        self._optimizer._create_all_weights(
            self._discriminator.trainable_variables)
        self._step = tf.function(self._train_step, autograph=False)

    def variables(self) -> list[tf.Variable]:
        return [*self.student.variables(), *self._discriminator.variables, *self._optimizer.variables()]

    def train(self, step: int, charge: int | None = None) -> float:
        """Takes one step of discriminator and generator, without a charge; returns the generator's loss."""
        del charge
        stream, size = rng.stream(self._config.seed, "gan", step), self._config.batch_size
        chosen = stream.integers(0, len(self._dataset), size)
        labels = stream.integers(0, self._config.data.num_classes, size)
        return float(self._step(datasets.to_unit(self._dataset.images[chosen]), self._dataset.labels[chosen],
                                draw_latents(self._config, stream, size), labels))

    def guarantee(self, num_steps: int, ledger: ledgers.PrivacyLedger | None) -> statements.Guarantee:
        return statements.Guarantee(
            event=None, adjacency="none", facts={"batch_size": self._config.batch_size}, assumptions=(),
            released="The generator was trained against a discriminator of the records, without noise.",
            seeds=f"seed {self._config.seed} for everything")

    def _train_step(self, real, real_labels, latents, labels):
        fakes = self.student.generator([latents, labels], training=True)
        weights = self._discriminator.trainable_variables
        with tf.GradientTape() as tape:
            real_logits, fake_logits = self._logits(real, real_labels), self._logits(fakes, labels)
            loss = tf.reduce_mean(tf.nn.softplus(-real_logits)) + tf.reduce_mean(tf.nn.softplus(fake_logits))
        self._optimizer.apply_gradients(zip(tape.gradient(loss, weights), weights))
        with tf.GradientTape() as tape:
            logits = self._logits(self.student.generator([latents, labels], training=True), labels)
            loss = tf.reduce_mean(tf.nn.softplus(-logits))
        self.student.minimize(loss, tape)
        return loss

    def _logits(self, images, labels):
        """Logits of one discriminator, [B]; a batch is normalised by its own statistics."""
        return self._discriminator((images[None], tf.one_hot(labels, self._config.data.num_classes)[None]))[0]


class Dcgan(LoopSynthesizer[DcganConfig]):
    """A `RunSynthesizer` for a DC-GAN; its settings are a `DcganConfig`. NOT PRIVATE."""

    config_class = DcganConfig

    def _learner(self, dataset: datasets.Dataset, noise: noises.NoiseSource) -> Gan:
        usable = datasets.usable_only(dataset)
        if not len(usable):
            raise DataError(f"{dataset.name}: no record is of one of the declared classes: check them.")
        return Gan(self.config, usable)
