"""Wasserstein discriminators ("critics"), one per partition or user: their settings, their training, and who learns."""

from __future__ import annotations

import collections
import dataclasses
import typing
from collections.abc import Sequence

from etils import epy

from datalens_tf import rng
from datalens_tf.config import MethodConfig
from datalens_tf.settings import at_least, between, positive, setting
from datalens_tf.training.student import BatchStudent

with epy.lazy_imports():
    import numpy as np
    import tensorflow as tf

    from datalens_tf.data import datasets
    from datalens_tf.mechanisms import noise as noises
    from datalens_tf.models import wasserstein
    from datalens_tf.training import adam

@dataclasses.dataclass(frozen=True, kw_only=True)
class CriticConfig(MethodConfig):
    """Settings of the methods with Wasserstein discriminators, each of which has a part of the records."""

    batch_size: int = setting(32, "Synthetic images per step of the generator [m].", at_least(1), group="mechanism")
    critic_batch_size: int = setting(
        32, "Records in a discriminator's batch; smaller partitions are used whole.", at_least(1))
    critic_steps: int = setting(
        5, "Optimizer steps of a discriminator whenever its turn comes, before it answers.", at_least(1))
    clip_norm: float = setting(
        1.0, "Largest l2 norm of the gradient for one image [C].", positive, group="mechanism")
    noise_multiplier: float | None = setting(
        None, "Standard deviation of the noise divided by the joint sensitivity 2 C sqrt(m) of a step. With "
        "none, it is calibrated to the budget.", positive, group="mechanism")
    gradient_penalty: float = setting(10.0, "Weight of the discriminators' gradient penalty.", positive)
    num_steps: int = setting(20_000, "Steps of the generator; each is charged.", at_least(1), group="mechanism")
    learning_rate: float = setting(5e-4, "Learning rate of the discriminators' Adam.", positive)
    beta_1: float = setting(0.5, "Beta 1 of the discriminators' Adam.", between(0, 1, open_high=True))
    beta_2: float = setting(0.9, "Beta 2 of the discriminators' Adam.", between(0, 1, open_high=True))
    critic_filters: int = setting(
        16, "Channels of a discriminator's first convolution; the second has twice as many.", at_least(1))
    partition_seed: int = setting(0, "Public seed of the assignment of records to partitions.", at_least(0))
    latent_dim: int = 10
    latent_distribution: str = "normal"
    student_learning_rate: float = 1e-4
    student_beta_2: float = 0.9
    ema_decay: float = 0.999

    GROUP: typing.ClassVar[str] = "discriminators"


Batches = collections.namedtuple("Batches", ["records", "fakes", "mix"])


class SanitizedStudent(BatchStudent):
    """A generator that learns from released gradients only."""

    def __init__(self, config: CriticConfig):
        super().__init__(config, config.batch_size)

    def _train_step(self, latents, labels, direction):
        """Ascends the scores: `direction` [m, H, W, C] stands for their gradients."""
        with tf.GradientTape() as tape:
            images = self.generator([latents, labels], training=True)
            # The gradient of this loss is the vector-Jacobian product of the noisy gradients (equation 11).
            loss = -tf.reduce_sum(images * tf.cast(direction, tf.float32)) / self._batch_size
        self.minimize(loss, tape)
        return loss


class Critics:
    """N critics, each with a partition of its own: weights, moments and step counts with a leading axis N.

    They are visited one at a time and share nothing.

    Args:
      config: resolved settings.
      dataset: the records.
      partitions: N disjoint sets of the records' indices, of any sizes.
    """

    def __init__(self, config: CriticConfig, dataset: datasets.Dataset, partitions: Sequence[np.ndarray] | np.ndarray):
        self._config, self._dataset, self._partitions = config, dataset, partitions
        self._critic = wasserstein.WassersteinCritic(
            *config.data, filters=config.critic_filters)
        weights = self._critic.initial(len(partitions), config.seed)
        self._num_weights = len(weights)
        # Weights, first moments, second moments, number of steps.
        self._state = [*map(tf.Variable, weights), *(tf.Variable(tf.zeros(w.shape)) for w in 2 * weights),
                       tf.Variable(tf.zeros([len(partitions)]))]
        self._training = CriticTraining(config, self._critic)
        self._gradients = tf.function(self._critic.image_gradients, autograph=False)

    def variables(self) -> list[tf.Variable]:
        """All variables to save; row i of each belongs to critic i."""
        return list(self._state)

    def train(self, index: int, pool: tf.Tensor, steps: int, *purpose: str | int) -> None:
        """Takes optimizer steps of one critic.

        Args:
          index: index of the critic.
          pool: public fakes, [K, Y, H, W, C].
          steps: number of steps.
          purpose: path of the random stream for its batches.
        """
        if not steps:
            return
        for variable, row in zip(self._state, self._trained(index, pool, steps, *purpose)):
            variable.scatter_update(tf.IndexedSlices(row[None], [index]))

    def answer(self, index: int, pool: tf.Tensor, steps: int, images: tf.Tensor, labels: tf.Tensor,
               *purpose: str | int) -> tf.Tensor:
        """Gradients [m, d] of the images' scores by a copy of one critic, which is trained further and then discarded.

        Args:
          index, pool, steps, purpose: as for `train`.
          images: float32 [m, H, W, C].
          labels: [m].
        """
        return self._image_gradients(self._trained(index, pool, steps, *purpose), images, labels)

    def gradients(self, index: int, images: tf.Tensor, labels: tf.Tensor) -> tf.Tensor:
        """Gradients [m, d] of the images' scores by one critic as it is; arguments as for `answer`."""
        return self._image_gradients([tf.gather(variable, index) for variable in self._state], images, labels)

    def _image_gradients(self, state, images, labels) -> tf.Tensor:
        return tf.reshape(self._gradients(state[:self._num_weights], images, labels), [len(images), -1])

    def _trained(self, index, pool, steps, *purpose) -> list[tf.Tensor]:
        """The state of a critic after more steps."""
        shard = self._partitions[index]
        return self._training([tf.gather(variable, index) for variable in self._state], self._dataset.images[shard],
                              self._dataset.labels[shard], pool, steps, rng.stream(self._config.seed, index, *purpose))


class CriticTraining:
    """Optimizer steps of a critic, as a function from state to state: it keeps nothing.

    Args:
      config: resolved settings.
      critic: the critic whose weights the states hold.
    """

    def __init__(self, config: CriticConfig, critic: wasserstein.WassersteinCritic):
        self._config, self._critic = config, critic
        self._advance = tf.function(self._advanced, reduce_retracing=True)  # One graph for partitions of many sizes.

    def __call__(self, state: Sequence[tf.Tensor], images: np.ndarray, labels: np.ndarray, pool: tf.Tensor, steps: int,
                 stream: np.random.Generator | noises.SecretStream) -> list[tf.Tensor]:
        """The state after more steps.

        Args:
          state: weights, first moments, second moments, number of steps.
          images, labels: all records that the critic may see, [n, H, W, C] and [n].
          pool: public fakes, [K, Y, H, W, C].
          steps: number of steps, at least 1.
          stream: random stream that decides what is in the batches.
        """
        size = min(self._config.critic_batch_size, len(images))
        batches = Batches(
            records=np.stack([stream.permutation(len(images))[:size] for _ in range(steps)]),
            fakes=stream.integers(0, len(pool), (steps, size)),
            mix=stream.random((steps, size), np.float32))
        return self._advance(list(state), datasets.to_unit(images), labels, pool, Batches(*map(tf.constant, batches)))

    def _advanced(self, state: list[tf.Tensor], images, labels, pool, batches: Batches) -> list[tf.Tensor]:
        """One Adam step per row of the batches; all randomness is in them."""
        count = len(self._critic.shapes)
        for i in tf.range(tf.shape(batches.records)[0]):
            chosen = batches.records[i]
            real, real_labels = tf.gather(images, chosen), tf.gather(labels, chosen)
            fake = tf.gather_nd(pool, tf.stack([batches.fakes[i], real_labels], 1))
            weights = list(state[:count])
            with tf.GradientTape(watch_accessed_variables=False) as tape:
                tape.watch(weights)
                loss = self._critic.loss(weights, real, fake, real_labels, batches.mix[i],
                                         self._config.gradient_penalty)
            steps = state[-1] + 1.0
            state = [*adam.adam(self._config, state[:-1], tape.gradient(loss, weights), steps), steps]
        return state
