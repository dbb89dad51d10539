"""DP-GAN: the discriminator learns by DP-SGD, the generator from the discriminator.

Sources: Xie et al. 2018 ("Differentially Private Generative Adversarial Network": Wasserstein loss, weight clipping,
RMSProp; `--loss wasserstein --weight_clip 0.01 --optimizer rmsprop`); Bie, Kamath and Zhang 2023 ("Private GANs,
Revisited": large batches and many discriminator steps per generator step); Abadi et al. 2016 for DP-SGD. The source of
DP-CGAN (`dp_cgan`) is algorithm 7 of the PrivacyVerse report, after Torkzadehmahani et al. 2019, in which gradients on
synthetic examples are clipped one by one, too, and the discriminator learns by SGD. Deviations:

- The report's algorithm clips by max(1, |g| C) where max(1, |g| / C) is meant. The paper's DP-GAN clips weights only
  and has no bound on gradients. Here every example's gradient is clipped to the norm C.
- Noise is on the real path alone. Gradients on synthetic examples depend on weights that were released before, so they
  cost nothing, whether they are clipped or not.
- A record is in a batch with probability q, independently of others (Poisson sampling); the accounting is for this
  sampling. The gradient is divided by the expected size of a batch, which is public, never by the true one, which is
  not.
- The discriminator has no batch normalisation, which would mix examples.
- There is noise on the discriminator's images, and a term that keeps the images of a class apart (Mao et al. 2019,
  "Mode Seeking Generative Adversarial Networks"). Without them, the generator makes one image per class. Instance noise
  is drawn anew for each example, secretly and independently, so the noise that a record's image gets says nothing about
  which other records there are.
- Noise is exact and comes from the operating system. The optimizers of tensorflow_privacy draw theirs from seeded
  generators, so its accounting is used, but not its optimizers. Which records are sampled is as secret as the noise.
"""

from __future__ import annotations

import dataclasses
import types
import typing
from collections.abc import Iterator, Mapping

from etils import epy

from datalens_tf import _validate, rng
from datalens_tf.config import BoundedConfig, MethodConfig
from datalens_tf.methods.base import Learner, LoopSynthesizer
from datalens_tf.settings import at_least, between, one_of, positive, setting
from datalens_tf.training.sampled import SampledSums
from datalens_tf.training.student import AveragedGenerator, draw_latents

with epy.lazy_imports():
    import numpy as np
    import tensorflow as tf

    from datalens_tf.accounting import accountants
    from datalens_tf.accounting import ledger as ledgers
    from datalens_tf.accounting import statement as statements
    from datalens_tf.data import datasets
    from datalens_tf.mechanisms import gaussian_sum
    from datalens_tf.mechanisms import noise as noises
    from datalens_tf.models import critic as critic_models
    from datalens_tf.models import per_example, places

CHOOSE_WHEN = "you want a baseline whose discriminator is trained by DP-SGD"
PUBLISHED_AS = "DP-GAN"


@dataclasses.dataclass(frozen=True, kw_only=True)
class DpGanConfig(BoundedConfig, MethodConfig):
    """Settings of DP-GAN."""

    method: str = "dp_gan"
    batch_size: int = setting(512, "Records in a batch, on average.", at_least(1), group="mechanism")
    sampling_probability: float | None = setting(
        None, "Probability with which a record is in a batch. With none, it is batch_size divided by records_at_most "
        "or, without that, by the number of records, which is then public.",
        between(0, 1, open_low=True), group="mechanism")
    clip_norm: float = setting(1.0, "l2 norm that a record's gradient is clipped to.", positive, group="mechanism")
    noise_multiplier: float | None = setting(
        None, "Standard deviation of the noise divided by clip_norm. With none, it is calibrated to the budget.",
        positive, group="mechanism")
    num_steps: int = setting(1500, "Steps of the discriminator; each is charged.", at_least(1), group="mechanism")
    critic_steps: int = setting(1, "Discriminator steps per turn of the generator.", at_least(1))
    generator_steps: int = setting(
        1, "Generator steps per turn; post-processing, free in privacy.", at_least(1), group="generator")
    generator_batch_size: int = setting(
        128, "Synthetic images per step, an even number.", at_least(1), group="generator")
    loss: str = setting(
        "non_saturating", "Loss: non_saturating or wasserstein.", one_of("non_saturating", "wasserstein"))
    fake_clipping: str = setting(
        "none", "Clipping of gradients on synthetic images: none, or per_example, as for real ones.",
        one_of("none", "per_example"))
    optimizer: str = setting(
        "adam", "Optimizer of the discriminator: adam, rmsprop or sgd.", one_of("adam", "rmsprop", "sgd"))
    weight_clip: float | None = setting(
        None, "Bound on the discriminator's weights, for the Wasserstein loss; none for no bound.", positive)
    learning_rate: float = setting(5e-4, "Learning rate of the discriminator.", positive)
    beta_1: float = setting(0.5, "Beta 1 of the discriminator's Adam.", between(0, 1, open_high=True))
    beta_2: float = setting(0.9, "Beta 2 of the discriminator's Adam.", between(0, 1, open_high=True))
    discriminator_filters: int = setting(
        16, "Channels of the discriminator's first convolution; the second has twice as many.", at_least(1))
    instance_noise: float = setting(
        0.5, "Standard deviation of the noise on all images that the discriminator learns from, in pixel units; 0 for "
        "none. It is no part of the privacy noise.", at_least(0))
    mode_seeking: float = setting(
        0.3, "Weight of a term that keeps the images of a class apart (Mao et al. 2019); 0 for none. Free in privacy.",
        at_least(0), group="generator")
    latent_dim: int = 64
    latent_distribution: str = "normal"
    generator_filters: int = 32
    generator_units: int = 256
    student_learning_rate: float = 5e-4
    student_beta_2: float = 0.9
    ema_decay: float = 0.99
    # Accountants for Gaussian releases cannot price sampling.
    accountant: str = setting("pld", "Accountant that measures the budget: rdp or pld.", one_of("rdp", "pld"))

    GROUP: typing.ClassVar[str] = "discriminators"
    BEFORE: typing.ClassVar[Mapping[str, typing.Any]] = types.MappingProxyType(
        {**MethodConfig.BEFORE, "adjacency": "add-or-remove-one"})
    CHOSEN: typing.ClassVar[str] = (
        "clip_norm, batch_size, num_steps, learning rates, instance noise and mode seeking were chosen on MNIST, whose "
        "real test split was looked at.")
    CHOSEN_ON: typing.ClassVar[tuple[str, ...]] = ("mnist",)
    ADJACENCIES: typing.ClassVar[tuple[str, ...]] = ("replace-one", "add-or-remove-one")
    NO_OTHER: typing.ClassVar[str] = "steps on sampled records are priced for these"
    OF_UNITS: typing.ClassVar[str] = "The gradient of one is the average of its images' gradients."

    def _check(self) -> None:
        super()._check()
        _validate.require(self.generator_batch_size % 2 == 0, "generator_batch_size", self.generator_batch_size,
                          "to be even")

    def mechanism(self) -> gaussian_sum.GaussianSum:
        """The mechanism of a step: a noisy sum of one gradient per record."""
        return gaussian_sum.GaussianSum(
            clip_norm=self.clip_norm, noise_multiplier=_validate.known("noise_multiplier", self.noise_multiplier),
            adjacency=self.adjacency,
            sampling_probability=_validate.known("sampling_probability", self.sampling_probability))

    def resolved(self, num_records: int, num_users: int | None = None) -> typing.Self:
        """Fills in the sampling probability, and the noise for the budget; see `RunConfig.resolved`."""
        config = self
        if config.sampling_probability is None:
            config = config.replace(sampling_probability=min(1.0, config.batch_size / num_records))
        return accountants.calibrated(config, config.num_steps, decimals=4)


_ASSUMPTIONS = (
    "Sensitivity: one record's gradient is clipped to the l2 norm {clip_norm:g} before it is summed, whatever the "
    "record is; its presence changes the sum by no more. Noise multipliers are relative to this norm.",
    "Sampling: every record is in a step's batch with probability {sampling_probability:.6g}, independently of all "
    "others and of other steps, by a draw that nobody sees (Poisson sampling).",
    "Steps are composed adaptively: later steps may depend on everything released before.",
    "Public: the settings, {number_of_records}, from which the sampling probability was computed, the list of classes, "
    "the image shape, and that pixels are scaled by a fixed rule. Labels of synthetic images are drawn uniformly, not "
    "from the data.",
    "Noise: {noise_source}. {noise_caveat}",
)
_CHUNK = 64  # examples whose gradients are in memory at once


class PrivateGan(SampledSums, Learner):
    """Generator and discriminator.

    Args:
      config: resolved settings.
      dataset: the records.
      noise: noise of the releases.
    """

    def __init__(self, config: DpGanConfig, dataset: datasets.Dataset, noise: noises.NoiseSource):
        self._config, self._dataset, self.noise = config, dataset, noise
        self.mechanism = config.mechanism()
        self.student = AveragedGenerator(config)
        self.critic = critic_models.Critic(*config.data, filters=config.discriminator_filters,
                             seed=config.seed)
        self._optimizer = _optimizer(config)
        self._optimizer._create_all_weights(self.critic.weights)
        self._sum, self._clip, self._update, self._teach = (tf.function(of, autograph=False) for of in (
            _sum_of_rows, self.mechanism.clip, self._train_critic, self._train_generator))
        # An example's place among the others depends on which of them were drawn.
        self._rows = places.anywhere(
            self._rows_of_chunk, (_CHUNK, *dataset.image_shape),
            np.arange(_CHUNK, dtype=np.int64) % config.data.num_classes, name="discriminator")
        self._loss = tf.Variable(0.0)  # of the generator, for steps that do not train it

    def variables(self) -> list[tf.Variable]:
        return [*self.student.variables(), *self.critic.weights, *self._optimizer.variables(), self._loss]

    def train(self, step: int, charge: int) -> float:
        """A charged step of the discriminator, and the generator's turn if due; returns the generator's last loss."""
        config, stream = self._config, rng.stream(self._config.seed, "gan", step)
        noisy = self.noisy_sum(step, charge) / config.batch_size
        count = config.generator_batch_size
        latents = draw_latents(config, stream, count)
        labels = stream.integers(0, config.data.num_classes, count)
        self._update(tf.constant(noisy, tf.float32), latents, labels, self._blur(stream, count))
        if step % config.critic_steps == 0:
            for _ in range(config.generator_steps):
                latents, blur = draw_latents(config, stream, count), self._blur(stream, count)
                labels = np.tile(stream.integers(0, config.data.num_classes, count // 2), 2)  # Two per label.
                self._loss.assign(self._teach(latents, labels, blur))
        return float(self._loss)

    def guarantee(self, num_steps: int, ledger: ledgers.PrivacyLedger | None) -> statements.Guarantee:
        config = self._config
        return statements.Guarantee(
            event=config.step_event(), adjacency=config.adjacency, assumptions=_ASSUMPTIONS,
            facts={"batch_size": config.batch_size, "sampling_probability": config.sampling_probability,
                   "clip_norm": config.clip_norm, "record_norm": self.mechanism.record_norm,
                   "noise_stddev": self.mechanism.noise_stddev},
            released="The discriminator's noisy gradients: {num_charges} steps on batches of {batch_size} records on "
                     "average, each record's gradient clipped to {clip_norm:g}, with Gaussian noise of standard "
                     "deviation {noise_stddev:.6g} on every coordinate of their sum. The generator learned from the "
                     "discriminator alone. {num_burnt_charges} of the steps were lost in interruptions.",
            seeds=f"seed {config.seed} for weights, latents and labels of synthetic images")

    @property
    def num_parameters(self) -> int:
        return self.critic.num_parameters

    def bounded(self, vectors: np.ndarray) -> np.ndarray:
        return self.mechanism.clip(vectors).numpy().astype(np.float64)

    def bounded_sum(self, chosen: np.ndarray, step: int) -> np.ndarray:
        secret = noises.secret_stream(self._config, "instance noise", step)
        return self.clipped_sum(chosen, self._blur(secret, len(chosen)))

    def clipped_sum(self, chosen: np.ndarray, blur: np.ndarray) -> np.ndarray:
        """Sum of the clipped gradients on these records, in units of the mechanism's grid: float64 [d].

        Where units are protected, each unit's average gradient is clipped.

        Args:
          chosen: indices of n records; with units, of all records of some units, one unit after the other.
          blur: instance noise that is added to each record's image, [n, H, W, C] or [n, 1, 1, 1].
        """
        total, units = np.zeros(self.critic.num_parameters), self._dataset.units
        if units is None:
            for images, labels, count in self._chunks(chosen, blur):
                total += self._sum(self._rows(images, labels), np.arange(_CHUNK) < count).numpy()
            return total
        gradients = (row for images, labels, count in self._chunks(chosen, blur)
                     for row in self._rows(images, labels).numpy()[:count])
        for gradient in per_example.averages(gradients, units.of[chosen]):
            total += self._clip(gradient[None])[0].numpy()
        return total

    def _chunks(self, chosen: np.ndarray, blur: np.ndarray) -> Iterator[tuple[np.ndarray, np.ndarray, int]]:
        """Blurred images and labels in chunks of one size, and how many of each chunk count."""
        for start in range(0, len(chosen), _CHUNK):
            indices = chosen[start:start + _CHUNK]
            filled = np.resize(indices, _CHUNK)  # One shape, one graph; examples beyond the end count 0.
            noise = np.resize(blur[start:start + _CHUNK], (_CHUNK, *blur.shape[1:]))
            yield datasets.to_unit(self._dataset.images[filled]) + noise, self._dataset.labels[filled], len(indices)

    def sampled(self, step: int) -> np.ndarray:
        units = self._dataset.units
        chosen = noises.poisson_sample(self._config, self._dataset.num_units, self.mechanism.sampling_probability,
                                       "sampling", step)
        return chosen if units is None else units.records(chosen)

    def _blur(self, stream: np.random.Generator | noises.SecretStream, count: int) -> np.ndarray:
        """Independent instance noise for `count` images."""
        if not self._config.instance_noise:
            return np.zeros((count, 1, 1, 1), np.float32)
        noise = stream.standard_normal((count, *self._config.data.image_shape), np.float32)
        return np.float32(self._config.instance_noise) * noise

    def _rows_of_chunk(self, images, labels):
        """Each example's gradient [n, d], clipped unless units' averages are what is clipped."""
        gradients = self.critic.per_example_gradients(images, labels, self._real_loss)
        return self.mechanism.clip(gradients) if self._dataset.units is None else gradients

    def _train_critic(self, real_gradient, latents, labels, blur):
        fakes = self.student.generator([latents, labels], training=True) + blur
        if self._config.fake_clipping == "per_example":
            vectors = self.critic.per_example_gradients(fakes, labels, self._fake_loss)
            norms = tf.norm(vectors, axis=1, keepdims=True)
            clipped = vectors / tf.maximum(1.0, norms / self._config.clip_norm)
            gradients = self.critic.unflatten(real_gradient + tf.reduce_mean(clipped, 0))
        else:
            with tf.GradientTape() as tape:
                loss = tf.reduce_mean(self._fake_loss(self.critic(fakes, labels)))
            gradients = [real + tf.convert_to_tensor(fake) for real, fake in zip(
                self.critic.unflatten(real_gradient), tape.gradient(loss, self.critic.weights))]
        self._optimizer.apply_gradients(zip(gradients, self.critic.weights))
        if self._config.weight_clip is not None:
            for weight in self.critic.weights:
                weight.assign(tf.clip_by_value(weight, -self._config.weight_clip, self._config.weight_clip))

    def _train_generator(self, latents, labels, blur):
        with tf.GradientTape() as tape:
            images = self.student.generator([latents, labels], training=True)
            loss = tf.reduce_mean(self._real_loss(self.critic(images + blur, labels)))
            if self._config.mode_seeking:
                loss += self._config.mode_seeking / (1e-5 + distance_ratio(images, latents))
        self.student.minimize(loss, tape)
        return loss

    def _real_loss(self, logits):
        return -logits if self._config.loss == "wasserstein" else tf.nn.softplus(-logits)

    def _fake_loss(self, logits):
        return logits if self._config.loss == "wasserstein" else tf.nn.softplus(logits)


def _sum_of_rows(rows: tf.Tensor, counted: tf.Tensor) -> tf.Tensor:
    """Sum float64 [d] of the rows [n, d] that count, exact for integers."""
    return tf.linalg.matvec(tf.cast(rows, tf.float64), tf.cast(counted, tf.float64), transpose_a=True)


def distance_ratio(images: tf.Tensor, latents: tf.Tensor) -> tf.Tensor:
    """Distance between images divided by that between their latents (Mao et al. 2019, equation 3, of means).

    Args:
      images: [2 n, H, W, C]; the second half has the labels of the first.
      latents: [2 n, z], of the images.
    """
    def apart(x):
        first, second = tf.split(tf.reshape(x, [tf.shape(x)[0], -1]), 2)
        return tf.reduce_mean(tf.abs(first - second), 1)

    return tf.reduce_mean(apart(images) / apart(latents))


def _optimizer(config: DpGanConfig) -> tf.keras.optimizers.legacy.Optimizer:
    """The discriminator's optimizer."""
    legacy = tf.keras.optimizers.legacy
    if config.optimizer == "rmsprop":
        return legacy.RMSprop(config.learning_rate)
    if config.optimizer == "sgd":
        return legacy.SGD(config.learning_rate)
    return legacy.Adam(config.learning_rate, beta_1=config.beta_1, beta_2=config.beta_2)


class DpGan(LoopSynthesizer[DpGanConfig]):
    """A `RunSynthesizer` for DP-GAN; its settings are a `DpGanConfig`."""

    config_class = DpGanConfig

    @classmethod
    def learner_class(cls) -> type[PrivateGan]:
        """Class that trains, by sums over sampled records."""
        return PrivateGan

    def _learner(self, dataset: datasets.Dataset, noise: noises.NoiseSource) -> PrivateGan:
        # The sampling probability is that of all records.
        return self.learner_class()(self.config, datasets.usable_only(dataset), noise)
