"""Base of the federated methods: who the users are, how a run is charged, and what is told of the traffic.

Users are simulated in this process. The methods' files have the interface between users and the server: a user is asked
with arrays and answers with an array, and nothing else of a user is ever read.
"""

from __future__ import annotations

import abc
import dataclasses
import typing
from collections.abc import Sequence
from typing import Any, ClassVar, Generic, TypeVar

from etils import epy

from datalens_tf import _validate
from datalens_tf.methods.base import Learner, LoopSynthesizer
from datalens_tf.methods.critics import CriticConfig
from datalens_tf.settings import at_least, setting

with epy.lazy_imports():
    import numpy as np

    from datalens_tf.accounting import accountants
    from datalens_tf.accounting import ledger as ledgers
    from datalens_tf.accounting import statement as statements
    from datalens_tf.data import datasets
    from datalens_tf.data import identity as identities
    from datalens_tf.data import partition as partitioning
    from datalens_tf.mechanisms import noise as noises

_NUM_USERS = 500  # where neither the settings nor the data say how many


@dataclasses.dataclass(frozen=True, kw_only=True)
class FederatedConfig(CriticConfig):
    """Settings of federated methods."""

    num_users: int | None = setting(
        None, "Users [N], each with records of its own. With none, they are those whom the data name. Where it "
        "names none, they are 500, or as many as there are records.", at_least(1), group="data")

    def resolved(self, num_records: int, num_users: int | None = None) -> typing.Self:
        """Fills in the number of users, and the noise for the budget; see `RunConfig.resolved`."""
        config = self
        if config.num_users is None:
            config = config.replace(num_users=num_users or min(_NUM_USERS, num_records))
        return accountants.calibrated(config, config.num_steps)


_Config = TypeVar("_Config", bound=FederatedConfig)


class FederatedGan(Learner, Generic[_Config]):
    """A generator, the users that it learns from, and the mechanism between them.

    Attributes:
      ASSUMPTIONS, RELEASED: texts of the statement, formatted with the facts.
      SEEDED: what the public seed decides.

    Args:
      config: resolved settings.
      dataset: the records.
      users: indices of each user's records, one array per user; disjoint.
      noise: noise of the releases.
    """

    ASSUMPTIONS: ClassVar[Sequence[str]]
    RELEASED: ClassVar[str]
    SEEDED: ClassVar[str]

    def __init__(self, config: _Config, dataset: datasets.Dataset, users: Sequence[np.ndarray],
                 noise: noises.NoiseSource):
        self._config, self._dataset, self._users, self._noise = config, dataset, users, noise
        self._mechanism = config.mechanism()
        self._num_users = _validate.known("num_users", config.num_users)

    @abc.abstractmethod
    def facts(self, num_steps: int) -> dict[str, Any]:
        """Entries of the statement of a run of this many steps; `communication` counts the bytes."""

    def guarantee(self, num_steps: int, ledger: ledgers.PrivacyLedger | None) -> statements.Guarantee:
        config = self._config
        return statements.Guarantee(
            event=config.step_event(), adjacency=config.adjacency, assumptions=self.ASSUMPTIONS, released=self.RELEASED,
            facts={"num_users": config.num_users, "clip_norm": config.clip_norm} | self.facts(num_steps),
            seeds=f"seed {config.seed} for {self.SEEDED}"
                  + ("" if self._dataset.owners is not None else
                     f", and seed {config.partition_seed} for dealing records to users"))


class FederatedSynthesizer(LoopSynthesizer[_Config]):
    """A `RunSynthesizer` that trains a `FederatedGan`. The data name the users, or records are dealt to users.

    Attributes:
      gan_class: the class that is trained.
    """

    gan_class: type[FederatedGan[_Config]]

    def _identity(self, dataset: datasets.Dataset) -> identities.Identity:
        return identities.identity_of(dataset) if dataset.users is None else identities.identity_of(
            dataset, users=identities.Fingerprint(dataset.users))

    def _learner(self, dataset: datasets.Dataset, noise: noises.NoiseSource) -> FederatedGan[_Config]:
        users = partitioning.user_indices(
            dataset, _validate.known("num_users", self.config.num_users), self.config.partition_seed)
        return self.gan_class(self.config, dataset, users, noise)


def num_fakes(config: FederatedConfig) -> int:
    """Number of latents for the fakes from which a user's discriminator learns in a turn.

    Each latent is drawn with every label, which makes about as many fakes as the discriminator looks at.
    """
    return -(-config.critic_steps * config.critic_batch_size // config.data.num_classes)


def communication(num_answers: int, down: int, up: int, warm_up: int = 0) -> dict[str, int]:
    """The statement's entry about bytes.

    Args:
      num_answers: number of answers, of all users in all steps together.
      down, up: bytes to a user, and from it, per answer.
      warm_up: bytes to all users before the first answer.
    """
    return {"num_answers": num_answers, "down_bytes_per_answer": down, "up_bytes_per_answer": up,
            "warm_up_bytes": warm_up, "down_bytes": warm_up + num_answers * down, "up_bytes": num_answers * up}

