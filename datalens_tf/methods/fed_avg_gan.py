"""Fed Avg GAN: users train the server's discriminator for a while, and the server averages what they changed, noisily.

Source: Augenstein et al., "Generative Models for Effective ML on Private, Decentralized Datasets", ICLR 2020
(algorithm DP-FedAvg-GAN), with which GS-WGAN is compared (Chen, Orekondy and Fritz, NeurIPS 2020, section 5.4);
McMahan et al. 2018 for DP-FedAvg. In each round, users who are sampled get the discriminator and the generator. They
take a few optimizer steps with the discriminator on their own records and on the generator's fakes, and send the change
of its weights, clipped to an l2 norm S. The server sums, adds noise, divides, and trains the generator against the
discriminator.

The price. A user changes a round's sum by at most S, and takes part with probability q, independently of all others. So
a round is a Poisson-sampled Gaussian release, for neighbours that differ in one user, who is replaced, or added or
removed. A user sends clipped changes without noise, so the party that sums them must be trusted, and
nobody else may learn who took part. The sum is divided by the expected number of users q N, which is public, never by
the true one, which is not. For the same reason the statement has the expected number of bytes: the true one would tell
how many users took part.

Deviations from the papers:

- Users are sampled independently of each other. Rounds of a fixed number of users would be priced differently.
- All users count the same, however many records they have.
- Users make their fakes from the generator and a public seed. The fakes carry the labels of the users' records.
- Users train with Adam, which starts anew each time; the discriminator is the Wasserstein one of GS-WGAN.
- Noise is exact. The sampled users and the contents of users' batches are drawn from the operating system's entropy.
"""

from __future__ import annotations

import dataclasses
import types
import typing
from collections.abc import Mapping, Sequence
from typing import Any

from etils import epy

from datalens_tf import _validate
from datalens_tf.methods.critics import CriticTraining
from datalens_tf.methods.federated import FederatedConfig, FederatedGan, FederatedSynthesizer, communication, num_fakes
from datalens_tf.settings import at_least, between, one_of, setting
from datalens_tf.training.student import BatchStudent

with epy.lazy_imports():
    import numpy as np
    import tensorflow as tf

    from datalens_tf.data import datasets
    from datalens_tf.mechanisms import gaussian_sum
    from datalens_tf.mechanisms import noise as noises
    from datalens_tf.models import wasserstein

CHOOSE_WHEN = "users keep their records, and trust a server that averages what they learned"


@dataclasses.dataclass(frozen=True, kw_only=True)
class FedAvgGanConfig(FederatedConfig):
    """Settings of Fed Avg GAN, whose users trust the server."""

    method: str = "fed_avg_gan"
    adjacency: str = "replace-one-user"
    sampling_probability: float = setting(
        0.1, "Probability with which a user takes part in a round, independently of all others.",
        between(0, 1, open_low=True), group="mechanism")
    batch_size: int = 64
    critic_steps: int = setting(5, "Optimizer steps that a user takes with its copy of the discriminator.")
    num_steps: int = setting(200, "Rounds; each is charged.")
    generator_steps: int = setting(
        1, "Steps of the generator per round; post-processing, free in privacy.", at_least(1), group="generator")
    learning_rate: float = setting(1e-3, "Learning rate of the users' Adam, which starts anew in every round.")
    clip_norm: float = setting(0.5, "Largest l2 norm of what a user changes in the discriminator's weights [S].")
    noise_multiplier: float | None = setting(
        None, "Standard deviation of the noise divided by clip_norm. With none, it is calibrated to the budget.")
    student_learning_rate: float = 1e-3
    ema_decay: float = 0.9
    # Other accountants cannot price sampling.
    accountant: str = setting("pld", "Accountant that measures the budget: rdp or pld.", one_of("rdp", "pld"))

    CHOSEN: typing.ClassVar[str] = (
        "clip_norm, sampling_probability, learning rates and all other settings were tried on MNIST only.")
    CHOSEN_ON: typing.ClassVar[tuple[str, ...]] = ("mnist",)
    BEFORE: typing.ClassVar[Mapping[str, typing.Any]] = types.MappingProxyType(
        {**FederatedConfig.BEFORE, "adjacency": "add-or-remove-one-user"})
    ADJACENCIES: typing.ClassVar[tuple[str, ...]] = ("replace-one-user", "add-or-remove-one-user")
    NO_OTHER: typing.ClassVar[str] = "rounds of sampled users are priced for these"

    def mechanism(self) -> gaussian_sum.GaussianSum:
        """The mechanism of a round: a sum of one vector per user."""
        return gaussian_sum.GaussianSum(
            clip_norm=self.clip_norm, noise_multiplier=_validate.known("noise_multiplier", self.noise_multiplier),
            adjacency=self.adjacency.removesuffix("-user"), sampling_probability=self.sampling_probability)


_ASSUMPTIONS = (
    "Every record is of one of {num_users} users.",
    "The server is TRUSTED: it, or whatever sums for it, sees what single users send without noise, and adds the noise "
    "honestly. The guarantee holds towards everybody else.",
    "Sensitivity: what a user changed in the discriminator's weights is clipped to the l2 norm {clip_norm:g} before it "
    "is summed, whatever the user's records are; the user's presence changes the sum by no more. "
    "Noise multipliers are relative to this norm.",
    "Sampling: every user takes part in a round with probability {sampling_probability:.6g}, independently of all "
    "others and of other rounds, by a draw that nobody sees but the server (Poisson sampling). Who can watch users "
    "take part has a weaker guarantee.",
    "Rounds are composed adaptively: later rounds may depend on everything released before.",
    "Public: the settings, the number of users that sums are divided by, the number of records, the list of classes, "
    "the image shape, and that pixels are scaled by a fixed rule. Labels of synthetic images are drawn uniformly, not "
    "from the data.",
    "Noise: {noise_source}. {noise_caveat}",
)
_RELEASED = (
    "The discriminator's noisy changes in {num_charges} rounds, in each of which every one of {num_users} users took "
    "part with probability {sampling_probability:.6g}: the sum of what users changed, each clipped to {clip_norm:g}, "
    "with Gaussian noise of standard deviation {noise_stddev:.6g} on every coordinate. The generator learned "
    "from the discriminator alone. {num_burnt_charges} of the rounds were lost in interruptions. For one round a user "
    "receives {communication[down_bytes_per_answer]} bytes (discriminator and generator) and sends "
    "{communication[up_bytes_per_answer]} (what it changed); all users together are expected to receive "
    "{communication[down_bytes]} and to send {communication[up_bytes]}, those of lost rounds not counted. How many "
    "took part in truth is not told.")


class FederatedAverage(FederatedGan[FedAvgGanConfig]):
    """The server, and what users do with the discriminator that it sends them."""

    ASSUMPTIONS, RELEASED, SEEDED, REPORT_EVERY = _ASSUMPTIONS, _RELEASED, "weights, latents and labels", 10
    student: _Student

    def __init__(self, config: FedAvgGanConfig, dataset: datasets.Dataset, users: Sequence[np.ndarray],
                 noise: noises.NoiseSource):
        super().__init__(config, dataset, users, noise)
        critic = wasserstein.WassersteinCritic(*config.data, filters=config.critic_filters)
        self.weights = [tf.Variable(weight[0]) for weight in critic.initial(1, config.seed)]
        self.student = _Student(config, critic)
        self._training = CriticTraining(config, critic)

    def variables(self) -> list[tf.Variable]:
        return [*self.student.variables(), *self.weights]

    def train(self, step: int, charge: int) -> float:
        """Takes one round, and the generator's steps after it. Returns the loss of the last step."""
        config = self._config
        total = self.sum_of_changes(self._sampled(step), step)
        mean = self._mechanism.privatize(total, self._noise, charge) / (
            config.sampling_probability * self._num_users)
        sizes = [weight.shape.num_elements() for weight in self.weights]
        for weight, change in zip(self.weights, np.split(mean, np.cumsum(sizes)[:-1])):
            weight.assign_add(change.reshape(weight.shape).astype(np.float32))
        first = (step - 1) * config.generator_steps + 1
        return [self.student.follow(self.weights, first + number) for number in range(config.generator_steps)][-1]

    def sum_of_changes(self, chosen: Sequence[int] | np.ndarray, step: int) -> np.ndarray:
        """Sum of these users' clipped changes in a round: float64 [d], in units of the mechanism's grid.

        The sum is exact in any order, so adding or removing a user changes it by this user's clipped vector.
        """
        pool = self.student.pool(step, num_fakes(self._config))
        total = np.zeros(sum(weight.shape.num_elements() for weight in self.weights))
        for user in chosen:
            total += self._mechanism.clip(self._change(user, pool, step)[None])[0].numpy()
        return total

    def facts(self, num_steps: int) -> dict[str, Any]:
        config = self._config
        weights, generator = (sum(weight.numpy().nbytes for weight in of)
                              for of in (self.weights, self.student.generator.trainable_variables))
        answers = round(config.sampling_probability * self._num_users * num_steps)
        return {"sampling_probability": config.sampling_probability, "record_norm": self._mechanism.record_norm,
                "noise_stddev": self._mechanism.noise_stddev,
                "communication": communication(answers, weights + generator, weights)}

    def _change(self, user: int, pool: tf.Tensor, step: int) -> tf.Tensor:
        """Change of the weights in a user's steps, one vector, from its records, its own chance, and what is public.

        The user's number has no part in it, for example in public streams: numbers tell which other users there are.
        """
        indices, weights = self._users[user], [tf.convert_to_tensor(weight) for weight in self.weights]
        moments = [tf.zeros(weight.shape) for weight in 2 * weights]
        trained = self._training(
            [*weights, *moments, tf.constant(0.0)], self._dataset.images[indices], self._dataset.labels[indices], pool,
            self._config.critic_steps, noises.secret_stream(self._config, "batches", user, step))
        return tf.concat([tf.reshape(after - before, [-1]) for before, after in zip(weights, trained)], 0)

    def _sampled(self, step: int) -> np.ndarray:
        """Draws the users who take part: each with probability q, independently, and unknown to anybody else."""
        return noises.poisson_sample(
            self._config, self._num_users, self._config.sampling_probability, "sampling", step)


class _Student(BatchStudent):
    """A generator that learns from a discriminator's weights."""

    def __init__(self, config: FedAvgGanConfig, critic: wasserstein.WassersteinCritic):
        super().__init__(config, config.batch_size)
        self._critic = critic

    def follow(self, weights: Sequence[tf.Variable], number: int) -> float:
        """Takes the generator's step of this number, against a discriminator with these weights; returns the loss."""
        return float(self._step(*self.inputs(number), [tf.convert_to_tensor(weight) for weight in weights]))

    def _train_step(self, latents, labels, weights):
        with tf.GradientTape() as tape:
            images = self.generator([latents, labels], training=True)
            loss = -tf.reduce_mean(self._critic(weights, images, labels))
        self.minimize(loss, tape)
        return loss


class FedAvgGan(FederatedSynthesizer[FedAvgGanConfig]):
    """A `RunSynthesizer` for DP-FedAvg-GAN; its settings are a `FedAvgGanConfig`."""

    config_class = FedAvgGanConfig
    gan_class = FederatedAverage
