"""Base of the federated methods: who the users are, how a run is charged, and what is told of the traffic.

Users are simulated in this process. What stands between them and the server is in the methods' files: a user is asked
by arrays and answers with an array, and nothing else of a user is ever read.
"""

import abc
import dataclasses
from collections.abc import Callable, Sequence
from typing import Any, ClassVar

import dp_accounting
import numpy as np
import tensorflow as tf

from datalens_tf.accounting import accountants
from datalens_tf.accounting.statement import Guarantee, make_statement
from datalens_tf.data.datasets import Dataset
from datalens_tf.data.identity import Fingerprint
from datalens_tf.data.partition import user_indices
from datalens_tf.mechanisms.gaussian_sum import GaussianSum
from datalens_tf.mechanisms.noise import NoiseSource, noise_source
from datalens_tf.mechanisms.sanitized_gradients import SanitizedGradients
from datalens_tf.methods.base import RunSynthesizer
from datalens_tf.methods.critics import CriticConfig
from datalens_tf.settings import at_least, setting
from datalens_tf.training.checkpoint import exclusive
from datalens_tf.training.loop import Loop
from datalens_tf.training.run_folder import open_run
from datalens_tf.training.student import AveragedGenerator, Student

_NUM_USERS = 500  # where neither the settings nor the data say how many


@dataclasses.dataclass(frozen=True, kw_only=True)
class FederatedConfig(CriticConfig):
    """Settings of federated methods."""

    num_users: int | None = setting(
        None, "Users [N], each with records of its own. With none, they are those whom the data name, or 500 where it "
        "names none.", at_least(1), group="data")


class FederatedGan(abc.ABC):
    """A generator, the users that it learns from, and the mechanism between them.

    Attributes:
      ASSUMPTIONS, RELEASED: texts of the statement, formatted with the facts.
      SEEDED: what the public seed decides.
      REPORT_EVERY: after how many steps, which take long, callbacks are told.
      student: the generator.

    Args:
      config: resolved settings.
      dataset: the records.
      users: of their indices, one array per user; disjoint.
      noise: of the releases.
    """

    ASSUMPTIONS: ClassVar[Sequence[str]]
    RELEASED: ClassVar[str]
    SEEDED: ClassVar[str]
    REPORT_EVERY: ClassVar[int] = 1
    student: Student

    @abc.abstractmethod
    def __init__(self, config: FederatedConfig, dataset: Dataset, users: Sequence[np.ndarray], noise: NoiseSource):
        ...

    @classmethod
    @abc.abstractmethod
    def mechanism(cls, config: FederatedConfig, noise_multiplier: float) -> GaussianSum | SanitizedGradients:
        """Mechanism that a charge pays for."""

    @abc.abstractmethod
    def variables(self) -> list[tf.Variable]:
        """All there is to save."""

    @abc.abstractmethod
    def train(self, step: int, charge: int) -> float:
        """One step, paid for by this charge. Returns the loss of the generator, a function of what was released."""

    @abc.abstractmethod
    def facts(self, num_steps: int) -> dict[str, Any]:
        """Entries of the statement of a run of this many steps; `communication` tells of the bytes."""

    def warm_up(self, stopped: Callable[[], bool]) -> None:  # noqa: B027 (most have none)
        """Work before the first charge; raises KeyboardInterrupt once `stopped()`."""


class FederatedSynthesizer(RunSynthesizer):
    """A `RunSynthesizer` that trains a `FederatedGan`, with users whom the data name, or to whom records are dealt.

    Attributes:
      gan_class: the kind.
    """

    gan_class: ClassVar[type[FederatedGan]]
    _loop: Loop | None = None

    def _train(self, dataset: Dataset) -> tuple[AveragedGenerator, dict[str, Any]]:
        config = self.config = _resolved(self.config, dataset, self.gan_class)
        users = user_indices(dataset, config.num_users, config.partition_seed)
        event, noise = self.gan_class.mechanism(config, config.noise_multiplier).dp_event(), noise_source(config)
        self.folder.create()
        with exclusive(self.folder.path):
            ledger = open_run(self.folder, config, _identity(dataset), event)
            gan = self.gan_class(config, dataset, users, noise)
            self._loop = Loop(self.folder, gan.student, gan.variables(), num_steps=config.num_steps,
                              checkpoint_minutes=self._options.checkpoint_minutes, callbacks=self._callbacks,
                              ledger=ledger, event=event, report_every=gan.REPORT_EVERY)
            if not self._loop.has_snapshot:
                gan.warm_up(lambda: self._loop.stop_requested)
            self._loop.run(gan.train)
        guarantee = Guarantee(
            event=event, adjacency=config.ADJACENCY, assumptions=gan.ASSUMPTIONS, released=gan.RELEASED,
            facts={"num_users": config.num_users, "clip_norm": config.clip_norm} | gan.facts(self._loop.done),
            seeds=f"seed {config.seed} for {gan.SEEDED}"
                  + ("" if dataset.users is not None else
                     f", and seed {config.partition_seed} for dealing records to users"))
        return gan.student, make_statement(config, guarantee, ledger, self._loop.num_burnt,
                                           noise, len(dataset))

    def step_event(self) -> dp_accounting.DpEvent:
        return self.gan_class.mechanism(self.config, self.config.noise_multiplier).dp_event()

    def request_stop(self) -> None:
        if self._loop is None:  # Nothing that could be saved has begun.
            raise KeyboardInterrupt
        self._loop.stop_requested = True


def num_fakes(config: FederatedConfig) -> int:
    """Number of latents of the fakes that a user's discriminator learns from in a turn.

    Each is drawn with every label: together about as many fakes as the discriminator looks at.
    """
    return -(-config.critic_steps * config.critic_batch_size // config.num_classes)


def communication(num_answers: int, down: int, up: int, warm_up: int = 0) -> dict[str, int]:
    """The statement's entry about bytes.

    Args:
      num_answers: how often a user answered, all users and steps together.
      down, up: bytes to a user, and from it, per answer.
      warm_up: bytes to all users before the first answer.
    """
    return {"num_answers": num_answers, "down_bytes_per_answer": down, "up_bytes_per_answer": up,
            "warm_up_bytes": warm_up, "down_bytes": warm_up + num_answers * down, "up_bytes": num_answers * up}


def _resolved(config: FederatedConfig, dataset: Dataset, gan_class: type[FederatedGan]) -> FederatedConfig:
    """Fills in the number of users, and the noise that the budget asks for over all steps, if they are not given."""
    if config.num_users is None:
        config = config.replace(num_users=_NUM_USERS if dataset.users is None else len(np.unique(dataset.users)))
    if config.noise_multiplier is None:
        config = config.replace(noise_multiplier=accountants.calibrate(
            lambda multiplier: gan_class.mechanism(config, multiplier).dp_event(), config.num_steps, config.epsilon,
            config.delta, config.accountant, config.ADJACENCY))
    return config


def _identity(dataset: Dataset) -> dict[str, Any]:
    """Fingerprint of the data; resuming with other data is refused."""
    identity = {"num_records": len(dataset), "checksum": Fingerprint.of(dataset)}
    if dataset.users is not None:
        identity["users"] = Fingerprint(dataset.users)
    return identity
