"""The student generator and its training: the only part of a run that leaves it."""

from __future__ import annotations

import abc

from etils import epy

from datalens_tf import rng
from datalens_tf.config import MethodConfig, VotingConfig
from datalens_tf.errors import TrainingDivergedError

with epy.lazy_imports():
    import numpy as np
    import tensorflow as tf

    from datalens_tf.models import generator as generators

_STATISTICS_BATCH = 2048


class AveragedGenerator:
    """A generator in training: weights, optimizer, and the moving average that is released.

    Args:
      config: resolved settings (image_shape and num_classes known).
      enlarge: factor by which its images are enlarged at the end.
    """

    def __init__(self, config: MethodConfig, enlarge: int = 1):
        self._config, self._enlarge = config, enlarge
        tf.keras.utils.set_random_seed(int(rng.tensorflow_seed(config.seed, "student")[0]))
        self.generator = self._built()
        weights = self.generator.trainable_variables
        self._optimizer = tf.keras.optimizers.legacy.Adam(
            config.student_learning_rate, beta_1=config.student_beta_1, beta_2=config.student_beta_2,
            epsilon=1e-8)
        self._optimizer._create_all_weights(weights)
        self._average = [tf.Variable(w) for w in weights]

    def _built(self) -> generators.Generator:
        """The generator that the settings describe, with fresh weights."""
        config = self._config
        return generators.Generator(*config.data, config.latent_dim, units=config.generator_units,
                                    filters=config.generator_filters, contrast=config.output_contrast,
                                    enlarge=self._enlarge)

    def minimize(self, loss: tf.Tensor, tape: tf.GradientTape) -> None:
        """Takes one optimizer step and updates the average. Works in a `tf.function`."""
        weights = self.generator.trainable_variables
        self._optimizer.apply_gradients(zip(tape.gradient(loss, weights), weights))
        # The average warms up with the number of steps, so that the initial weights are soon forgotten.
        count = tf.cast(self._optimizer.iterations, tf.float32)
        decay = tf.minimum(self._config.ema_decay, count / (count + 9.0))
        for average, weight in zip(self._average, weights):
            average.assign(decay * average + (1.0 - decay) * weight)

    def released(self) -> generators.Generator:
        """The generator to hand out: averaged weights, and fixed batch statistics.

        In training, a batch is normalised by its own statistics, so an image depends on its neighbours. The released
        generator uses the statistics of one large public batch, so one image or ten thousand come from one
        distribution.
        """
        generator = self._built()
        for target, value in zip(generator.trainable_variables, self._average):
            target.assign(value)
        stream = rng.stream(self._config.seed, "statistics")
        latents = draw_latents(self._config, stream, _STATISTICS_BATCH)
        generator.set_statistics(latents, stream.integers(0, self._config.data.num_classes, _STATISTICS_BATCH))
        return generator

    def sample_grid(self, per_class: int = 10) -> np.ndarray:
        """Images of the released generator, uint8 [Y, per_class, H, W, C], one row per class."""
        classes = self._config.data.num_classes
        latents = draw_latents(self._config, rng.stream(self._config.seed, "grid"), classes * per_class)
        images = self.released()([latents, np.repeat(np.arange(classes), per_class)], training=False)
        images = np.round(255 * images.numpy()).astype(np.uint8)
        return images.reshape(classes, per_class, *self._config.data.image_shape)

    def state(self) -> dict[str, np.ndarray]:
        """Everything needed to continue, as named arrays."""
        return {f"{index:03d}": variable.numpy() for index, variable in enumerate(self.variables())}

    def restore(self, state: dict[str, np.ndarray]) -> None:
        """Inverse of `state`."""
        for index, variable in enumerate(self.variables()):
            variable.assign(state[f"{index:03d}"])

    def variables(self) -> list[tf.Variable]:
        """All variables that are saved."""
        return [*self.generator.variables, *self._optimizer.variables(), *self._average]


class BatchStudent(AveragedGenerator):
    """A generator that learns from what is released for batches of its own images. A method says how it learns.

    Args:
      config: resolved settings.
      batch_size: images in a batch [m].
    """

    def __init__(self, config: MethodConfig, batch_size: int):
        super().__init__(config)
        self._batch_size = batch_size
        self._step = tf.function(self._train_step, autograph=False)
        self._generate = tf.function(lambda latents, labels: self.generator([latents, labels], training=True),
                                     autograph=False)

    def inputs(self, step: int) -> tuple[tf.Tensor, tf.Tensor]:
        """Latents [m, z] and uniform labels [m] of a generator step: public randomness, never the data's labels."""
        stream = rng.stream(self._config.seed, "inputs", step)
        latents = draw_latents(self._config, stream, self._batch_size)
        labels = stream.integers(0, self._config.data.num_classes, self._batch_size)
        return tf.constant(latents), tf.constant(labels)

    def images(self, latents: tf.Tensor, labels: tf.Tensor) -> tf.Tensor:
        """Images [B, H, W, C] with the statistics of their own batch, as in training."""
        return self._generate(latents, labels)

    def pool(self, iteration: int, size: int, latents: tf.Tensor | None = None) -> tf.Tensor:
        """Fakes for one teacher step: `size` latents times every label, [size, Y, H, W, C].

        Latents are drawn, or these, [m, z], again and again until there are enough.
        """
        classes = self._config.data.num_classes
        if latents is None:
            latents = draw_latents(self._config, rng.stream(self._config.seed, "pool", iteration), size)
        latents = np.resize(latents, (size, self._config.latent_dim))
        images = self._generate(np.repeat(latents, classes, axis=0), np.tile(np.arange(classes), size))
        return tf.reshape(images, [size, classes, *self._config.data.image_shape])

    def train(self, latents: tf.Tensor, labels: tf.Tensor, direction: np.ndarray) -> float:
        """Takes one step.

        Args:
          latents, labels: as from `inputs`.
          direction: what was released, float32 [m, d].

        Returns:
          The loss.

        Raises:
          TrainingDivergedError: the loss is NaN or infinite.
        """
        loss = float(self._step(latents, labels, tf.reshape(direction, [-1, *self._config.data.image_shape])))
        if not np.isfinite(loss):
            raise TrainingDivergedError(f"Expected loss={loss} of the student to be finite; lower "
                                         "student_learning_rate.")
        return loss

    @abc.abstractmethod
    def _train_step(self, latents, labels, released):
        """Takes a step, in a `tf.function`, and returns its loss."""


class Student(BatchStudent):
    """A generator that learns from released directions only: towards x + gamma * direction (Algorithm 1).

    The loss is sum_j ||x_j - target_j||^2.
    """

    _config: VotingConfig

    def __init__(self, config: VotingConfig):
        super().__init__(config, config.batch_size)

    def _train_step(self, latents, labels, direction):
        with tf.GradientTape() as tape:
            images = self.generator([latents, labels], training=True)
            target = tf.stop_gradient(images + self._config.step_size * direction)
            loss = tf.reduce_sum(tf.square(images - target))
        self.minimize(loss, tape)
        return loss


def draw_latents(config: MethodConfig, stream: np.random.Generator, count: int) -> np.ndarray:
    """Latents float32 [count, z] from the configured distribution."""
    if config.latent_distribution == "uniform":
        return stream.uniform(-1, 1, (count, config.latent_dim)).astype(np.float32)
    return stream.standard_normal((count, config.latent_dim)).astype(np.float32)
