"""A conditional DC-GAN without privacy: what the same generator learns where nothing is protected.

Source: Radford, Metz and Chintala 2016, with the label as a condition, as the reference at epsilon = infinity in table
1 of the DataLens paper. One discriminator, the teachers' own network (`EnsembleDiscriminator`), sees all records; the
generator is trained on its non-saturating loss.
"""

import dataclasses
import typing
from typing import Any

import tensorflow as tf

from datalens_tf import rng
from datalens_tf.accounting.statement import Guarantee, make_statement
from datalens_tf.config import MethodConfig
from datalens_tf.data.datasets import Dataset, to_unit, usable_only
from datalens_tf.data.identity import Fingerprint
from datalens_tf.errors import DataError
from datalens_tf.mechanisms.noise import noise_source
from datalens_tf.methods.base import RunSynthesizer
from datalens_tf.models.discriminator import EnsembleDiscriminator
from datalens_tf.settings import at_least, between, positive, setting
from datalens_tf.training.checkpoint import exclusive
from datalens_tf.training.loop import Loop
from datalens_tf.training.run_folder import open_unpriced_run
from datalens_tf.training.student import AveragedGenerator, draw_latents

CHOOSE_WHEN = "the same generator without privacy is wanted, to see what privacy costs; NOT PRIVATE"


@dataclasses.dataclass(frozen=True, kw_only=True)
class DcganConfig(MethodConfig):
    """Settings of the conditional DC-GAN, which is not private: what all others would be without a guarantee."""

    method: str = "dcgan"
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
    ADJACENCY: typing.ClassVar[str] = "none"


class Dcgan(RunSynthesizer):
    """A `RunSynthesizer` by a DC-GAN; its settings are a `DcganConfig`. NOT PRIVATE."""

    config_class = DcganConfig
    _loop: Loop | None = None

    def _train(self, dataset: Dataset) -> tuple[AveragedGenerator, dict[str, Any]]:
        config = self.config
        self.folder.create()
        with exclusive(self.folder.path):
            open_unpriced_run(self.folder, config, {
                "num_records": len(dataset), "checksum": Fingerprint.of(dataset)})
            usable = usable_only(dataset)
            if not len(usable):
                raise DataError(f"{dataset.name}: no record is of one of the declared classes: check them.")
            gan = Gan(config, usable)
            self._loop = Loop(self.folder, gan.student, gan.variables(), num_steps=config.num_steps,
                              checkpoint_minutes=self._options.checkpoint_minutes, callbacks=self._callbacks)
            self._loop.run(gan.train)
        guarantee = Guarantee(
            event=None, adjacency="none", facts={"batch_size": config.batch_size}, assumptions=(),
            released="The generator was trained against a discriminator of the records, without noise.",
            seeds=f"seed {config.seed} for everything")
        return gan.student, make_statement(config, guarantee, None, 0, noise_source(config), len(dataset)) | {
            "num_steps": config.num_steps}

    def step_event(self) -> None:
        return None

    def request_stop(self) -> None:
        if self._loop is None:  # Nothing that could be saved has begun.
            raise KeyboardInterrupt
        self._loop.stop_requested = True


class Gan:
    """Generator and discriminator.

    Args:
      config: resolved settings.
      dataset: the records.
    """

    def __init__(self, config: DcganConfig, dataset: Dataset):
        self._config, self._dataset = config, dataset
        self.student = AveragedGenerator(config)
        self._discriminator = EnsembleDiscriminator(
            1, config.image_shape, config.num_classes, filters=config.discriminator_filters,
            units=config.discriminator_units)
        self._optimizer = tf.keras.optimizers.legacy.Adam(
            config.learning_rate, beta_1=config.beta_1, beta_2=config.beta_2)
        self._optimizer._create_all_weights(
            self._discriminator.trainable_variables)
        self._step = tf.function(self._train_step, autograph=False)

    def variables(self) -> list[tf.Variable]:
        """All there is to save."""
        return [*self.student.variables(), *self._discriminator.variables, *self._optimizer.variables()]

    def train(self, step: int) -> float:
        """One step of both; returns the generator's loss."""
        stream, size = rng.stream(self._config.seed, "gan", step), self._config.batch_size
        chosen = stream.integers(0, len(self._dataset), size)
        labels = stream.integers(0, self._config.num_classes, size)
        return float(self._step(to_unit(self._dataset.images[chosen]), self._dataset.labels[chosen],
                                draw_latents(self._config, stream, size), labels))

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
        return self._discriminator((images[None], tf.one_hot(labels, self._config.num_classes)[None]))[0]
