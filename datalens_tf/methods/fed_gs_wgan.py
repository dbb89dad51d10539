"""Federated GS-WGAN: users keep their records and discriminators, and answer the server with noisy gradients.

Source: Chen, Orekondy and Fritz, "GS-WGAN: A Gradient-Sanitized Approach for Learning Differentially Private
Generators", NeurIPS 2020, figure 1(c) and section 5.4. The server sends a user pictures. The user trains its own
discriminator on them and on its own records, and answers with the gradients of the discriminator's scores with respect
to a batch of pictures. Each gradient is clipped, and the user adds noise to all of them. The server is not trusted.

The price. The server sees who answers, so users cannot be sampled secretly, and sampling them amplifies nothing. What
is left is that users have different records. Users answer by a public schedule, each once in a pass over all of them.
Given everything that was released before, the records of user u decide the distribution of u's answers alone. So
replacing them changes one Gaussian release in every pass, of sensitivity 2 C sqrt(m). T passes are T adaptively
composed Gaussian releases towards every single user, however many users there are (parallel composition). If one user
answers in each of K generator steps, there are ceil(K / N) releases.

The ledger. It is charged once per pass, before the first answer of the pass. A step of the training loop is a whole
pass, so a run is saved between passes only. A pass that was interrupted is burnt, and charged again as a whole,
although some of its users never answered. So no user ever answered more often than there are charges.

The state. A discriminator keeps what it learned when it answered. In GS-WGAN it must not, because there the picks
are secret: a state that knows of earlier picks would carry them into later answers, past the amplification that they
are charged with. Here the schedule is public. The state of u's discriminator is a function of u's records, of public
seeds and of what was released before, which is all that the argument above asks for.

Deviations from the paper:

- A pass is charged as above. The paper accounts for the m gradients of one step as m releases with a sample each. This
  does not hold (see `mechanisms.sanitized_gradients`), and nothing is sampled here.
- Several users can answer about the same pictures (`users_per_round`), and the generator follows the mean of their
  answers. This costs nothing, since users' prices do not add up, and leaves less noise.
- Pictures travel with 8 bits per number, gradients with 32.
- Noise is exact. Networks are small, as in GS-WGAN.
"""

from __future__ import annotations

import dataclasses
import math
import typing
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

from etils import epy

from datalens_tf import _validate
from datalens_tf.methods.critics import Critics, SanitizedStudent
from datalens_tf.methods.federated import FederatedConfig, FederatedGan, FederatedSynthesizer, communication, num_fakes
from datalens_tf.settings import at_least, setting

with epy.lazy_imports():
    import numpy as np
    import tensorflow as tf

    from datalens_tf.data import datasets
    from datalens_tf.mechanisms import noise as noises
    from datalens_tf.mechanisms import sanitized_gradients

CHOOSE_WHEN = "users keep their records, and do not trust the server"


@dataclasses.dataclass(frozen=True, kw_only=True)
class FedGsWganConfig(FederatedConfig):
    """Settings of federated GS-WGAN, in which users protect themselves from the server."""

    method: str = "fed_gs_wgan"
    adjacency: str = "replace-one-user"
    users_per_round: int = setting(
        10, "Users who answer about the same images; the generator takes one step along the mean of their answers. It "
        "does not matter for privacy.", at_least(1), group="mechanism")
    num_steps: int = setting(
        10, "Passes over all users. In a pass every user answers once: N / users_per_round steps of the generator, "
        "which cost every user one release.")
    warmup_steps: int = setting(
        20, "Optimizer steps of every discriminator against the untrained generator; free in privacy.", at_least(0))
    learning_rate: float = 1e-3
    student_learning_rate: float = 1e-3
    ema_decay: float = 0.9

    CHOSEN: typing.ClassVar[str] = (
        "clip_norm, gradient_penalty, critic_steps and latent_dim are those of the GS-WGAN paper, whose data are MNIST "
        "and Fashion-MNIST. The other settings were tried on MNIST only.")
    CHOSEN_ON: typing.ClassVar[tuple[str, ...]] = ("mnist", "fashion_mnist")
    ADJACENCIES: typing.ClassVar[tuple[str, ...]] = ("replace-one-user",)
    NO_OTHER: typing.ClassVar[str] = "the users and their numbers of records are public"

    def mechanism(self) -> sanitized_gradients.SanitizedGradients:
        """Mechanism of one user's answer."""
        return sanitized_gradients.SanitizedGradients(
            clip_norm=self.clip_norm, noise_multiplier=_validate.known("noise_multiplier", self.noise_multiplier),
            num_images=self.batch_size, num_discriminators=1)


_ASSUMPTIONS = (
    "Every record is of one of {num_users} users. Each user has a discriminator of its own, which sees this user's "
    "records and no others, and shares no state with another.",
    "The server is not trusted: the guarantee holds towards it, too, and towards anybody who reads what users send. "
    "What it sends may be anything. Every user clips its gradients, adds the noise before anything leaves it, and "
    "answers no more often than it is charged for.",
    "Sensitivity: a user gives the gradients for all {batch_size} images of a round, each at most {clip_norm:g} long, "
    "so two answers differ by at most 2 * {clip_norm:g} * sqrt({batch_size}) = {l2_sensitivity:.6g} in l2 norm "
    "jointly, whatever the user's records are.",
    "Everybody knows who answers when, so nothing is gained by sampling users. Every user answers once per pass over "
    "all users. One user's records decide that user's answers only, so a pass costs every user one release, and "
    "passes are composed adaptively: later answers may depend on everything released before.",
    "Public: the settings, who the users are and how many records each has, the list of classes, the image shape, and "
    "that pixels are scaled by a fixed rule. Labels of synthetic images are drawn uniformly, not from the data.",
    "Noise: {noise_source}, in every user's own machine. {noise_caveat}",
)
_RELEASED = (
    "In each of {num_steps} passes over {num_users} users, every user's gradients for {batch_size} images of the "
    "generator, each clipped to l2 norm {clip_norm:g}, with Gaussian noise of standard deviation {noise_stddev:.6g} on "
    "every coordinate, added by the user: {noise_multiplier_per_step:.6g} times the joint sensitivity. The generator "
    "learned from these numbers alone. {num_charges} passes were charged to the privacy budget; {num_burnt_charges} of "
    "them never reached the generator because the run was interrupted. For one answer a user receives "
    "{communication[down_bytes_per_answer]} bytes (images and labels) and sends {communication[up_bytes_per_answer]} "
    "(gradients); all users together received {communication[down_bytes]} and sent {communication[up_bytes]}, those of "
    "interrupted passes not counted.")


class Request(NamedTuple):
    """Message from the server to a user.

    Attributes:
      pool: pictures for the discriminator to learn from, uint8 [K, Y, H, W, C], by label.
      images: images whose gradients the server asks for, uint8 [m, H, W, C]; None where it only sends a pool.
      labels: labels of `images`, uint16 [m]; or None.
    """

    pool: np.ndarray
    images: np.ndarray | None = None
    labels: np.ndarray | None = None

    @property
    def num_bytes(self) -> int:
        """Number of bytes to send."""
        return sum(array.nbytes for array in self if array is not None)


class Users:
    """All users: what happens on their machines.

    Args:
      config: resolved settings.
      dataset: the records.
      users: indices of each user's records, one array per user; disjoint.
      mechanism: the mechanism through which users answer.
      noise: the noise that users add.
    """

    def __init__(self, config: FedGsWganConfig, dataset: datasets.Dataset, users: Sequence[np.ndarray],
                 mechanism: sanitized_gradients.SanitizedGradients, noise: noises.NoiseSource):
        self._config, self._mechanism, self._noise = config, mechanism, noise
        self.critics, self._num_users = Critics(config, dataset, users), len(users)

    def warm_up(self, user: int, request: Request) -> None:
        """Trains a user's discriminator before the first pass, and answers nothing."""
        self.critics.train(user, datasets.to_unit(request.pool), self._config.warmup_steps, "warm-up")

    def answer(self, user: int, request: Request, step: int, charge: int) -> np.ndarray:
        """Trains a user's discriminator, which keeps what it learns, and answers: this is all that ever leaves a user.

        Args:
          user: index of the user who is asked.
          request: message from the server.
          step: number of the pass.
          charge: index of the charge that pays for the pass.

        Returns:
          Noisy gradients, float32 [m, d].
        """
        self.critics.train(user, datasets.to_unit(request.pool), self._config.critic_steps, "turn", step)
        images = _validate.known("images", request.images, "to be asked about")
        labels = _validate.known("labels", request.labels, "to be those of the images")
        gradients = self.critics.gradients(user, datasets.to_unit(images), labels.astype(np.int64))
        # For predictable noise in tests, every answer has a number of its own.
        number = charge * self._num_users + user
        clipped = self._mechanism.clip(gradients).numpy()
        return self._mechanism.privatize(clipped, self._noise, number).astype(np.float32)


class FederatedGsWgan(FederatedGan[FedGsWganConfig]):
    """The server, which knows the generator and what users answer."""

    ASSUMPTIONS, RELEASED, SEEDED = _ASSUMPTIONS, _RELEASED, "weights, latents, labels and batches"
    student: SanitizedStudent

    def __init__(self, config: FedGsWganConfig, dataset: datasets.Dataset, users: Sequence[np.ndarray],
                 noise: noises.NoiseSource):
        super().__init__(config, dataset, users, noise)
        self.student = SanitizedStudent(config)
        self.users = Users(config, dataset, users, self._mechanism, noise)
        self._rounds = [range(start, min(start + config.users_per_round, self._num_users))
                        for start in range(0, self._num_users, config.users_per_round)]
        self._bytes = tf.Variable(tf.zeros([3], tf.int64))  # to users for the warm-up, to them afterwards, from them

    def variables(self) -> list[tf.Variable]:
        return [*self.student.variables(), *self.users.critics.variables(), self._bytes]

    def warm_up(self, stopped: Callable[[], bool]) -> None:
        """Trains every user's discriminator against the untrained generator, on its own records and public seeds."""
        if not self._config.warmup_steps:
            return
        request = Request(_pictures(self.student.pool(0, num_fakes(self._config))))
        for user in range(self._num_users):
            if stopped():
                raise KeyboardInterrupt
            self.users.warm_up(user, request)
            self._bytes.assign_add([request.num_bytes, 0, 0])

    def train(self, step: int, charge: int) -> float:
        """A pass over all users. Returns the mean loss."""
        first = (step - 1) * len(self._rounds) + 1
        return float(np.mean([self._train_round(first + number, users, step, charge)
                              for number, users in enumerate(self._rounds)]))

    def facts(self, num_steps: int) -> dict[str, Any]:
        config, (warm_up, down, up) = self._config, self._bytes.numpy().tolist()
        answers = self._num_users * num_steps
        return {"batch_size": config.batch_size, "users_per_round": min(config.users_per_round, self._num_users),
                "noise_stddev": self._mechanism.noise_stddev, "l2_sensitivity": self._mechanism.l2_sensitivity,
                "communication": communication(answers, down // answers, up // answers, warm_up)}

    def _train_round(self, number: int, users: Sequence[int], step: int, charge: int) -> float:
        """Takes one step of the generator, along the mean of these users' answers."""
        latents, labels = self.student.inputs(number)
        images = self.student.images(latents, labels)
        request = Request(_pictures(self.student.pool(number, num_fakes(self._config))), _pictures(images),
                          labels.numpy().astype(np.uint16))
        total = np.zeros([self._config.batch_size, math.prod(self._config.data.image_shape)])
        for user in users:
            answer = self.users.answer(user, request, step, charge)
            self._bytes.assign_add([0, request.num_bytes, answer.nbytes])
            total += answer
        return self.student.train(latents, labels, total / len(users))


def _pictures(images: tf.Tensor) -> np.ndarray:
    """Images in [0, 1] as they are sent: uint8."""
    return np.round(255 * images.numpy()).astype(np.uint8)


class FedGsWgan(FederatedSynthesizer[FedGsWganConfig]):
    """A `RunSynthesizer` for federated GS-WGAN; its settings are a `FedGsWganConfig`."""

    config_class = FedGsWganConfig
    gan_class = FederatedGsWgan
