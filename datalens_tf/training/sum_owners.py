"""Owners who keep their records while sums over them are released: each sends its sums with its share of the noise.

A release has two rounds. In the first, every owner is asked a question, computes its exact sums, keeps them, and
reports ready. Whatever can fail for a reason of an owner's own fails here, where nothing was charged. Then the driver
charges the run's ledger, and every owner charges a ledger of its own, adds its share of the noise, stores the share,
and sends it. The driver adds the shares up. Only the owners have sums without noise, each its own.

| message | from      | to         | what it holds                                                             |
|---------|-----------|------------|---------------------------------------------------------------------------|
| `Ask`   | driver    | all owners | a mechanism and a question: public                                        |
| `Ready` | an owner  | driver     | the shape of its sums                                                     |
| `Draw`  | driver    | all owners | what the release is charged: public                                       |
| `Share` | an owner  | driver     | its sums with its share of the noise, integers                            |

An owner computes with its own copy of this package, and takes only these values from the driver. It checks that the
mechanism has the noise that is charged for. A stored share is sent again when it is asked for again, at no charge: its
noise is never drawn twice. The driver refuses shares of another shape, type or range, shares of another round, and
second shares.
"""

from __future__ import annotations

import abc
import contextlib
import dataclasses
import math
import os
import pathlib
import re
import secrets
from collections.abc import Callable, Mapping, Sequence
from typing import IO, Any

import dp_accounting
import numpy as np

from datalens_tf import _files, _validate
from datalens_tf.accounting import accountants
from datalens_tf.accounting.ledger import Charge
from datalens_tf.config import MethodConfig, numbered
from datalens_tf.data.datasets import Dataset, Pictures, sound, usable_only
from datalens_tf.data.registry import load_dataset
from datalens_tf.errors import ActorError, DataError, InvalidArgumentError
from datalens_tf.events import DiscreteGaussianDpEvent
from datalens_tf.mechanisms import noise as noises
from datalens_tf.mechanisms.correct_counts import CorrectCounts
from datalens_tf.mechanisms.discrete_gaussian import SLACK, DiscreteGaussianNoise, check_shares
from datalens_tf.mechanisms.mean_embedding import MeanEmbedding
from datalens_tf.mechanisms.second_moment import SecondMoment
from datalens_tf.options import PerformanceOptions
from datalens_tf.training.actors import Actors
from datalens_tf.training.distributed import OwnersLedger, lock_folder
from datalens_tf.training.questions import Elsewhere, Question

_MECHANISMS = (CorrectCounts, MeanEmbedding, SecondMoment)
_FAR = 16  # standard deviations, which noise exceeds with probability 10^-57


@dataclasses.dataclass(frozen=True, kw_only=True)
class Ask:
    """A question to all owners.

    Attributes:
      attempt: random name of the round, 32 hexadecimal digits.
      mechanism: the mechanism whose sums are wanted, with the noise multiplier of the whole release.
      question: question about the records.
    """

    attempt: str
    mechanism: Any
    question: Question


@dataclasses.dataclass(frozen=True, kw_only=True)
class Ready:
    """An owner's report that its sums are computed."""

    owner: int
    attempt: str
    shape: tuple[int, ...]


@dataclasses.dataclass(frozen=True, kw_only=True)
class Draw:
    """The driver's message that all owners are ready, and that the run's ledger was charged.

    Attributes:
      attempt: that of the `Ask`.
      unit: cost of one charge.
      count: how many charges pay for the release.
      step: number of the release.
    """

    attempt: str
    unit: dp_accounting.DpEvent
    count: int
    step: int

    @property
    def event(self) -> dp_accounting.DpEvent:
        """Cost of the whole release."""
        return self.unit if self.count == 1 else dp_accounting.SelfComposedDpEvent(self.unit, self.count)


@dataclasses.dataclass(frozen=True, kw_only=True)
class Share:
    """An owner's sums with its share of the noise, int64."""

    owner: int
    attempt: str
    values: np.ndarray


class SumOwner:
    """One owner. An ordinary class; `ray.remote` makes an actor of it.

    Args:
      number: number of the owner, from 0.
      threads: ignored; other actors use it.
    """

    def __init__(self, number: int, threads: int = 1):
        del threads
        self._number = number
        self._prepared: tuple[str, Any, np.ndarray] | None = None  # the attempt, the mechanism, and its exact sums
        self._lock: IO[str] | None = None

    def load(self, name: str, data_dir: str | None, publishes: bool, classes: Sequence[str] | None = None,
             pictures: Pictures | None = None, unit: str | None = None) -> dict[str, Any]:
        """Loads its own records; returns what is public about them."""
        return self.take(load_dataset(name.replace("{owner}", str(self._number)), data_dir=data_dir, classes=classes,
                                      pictures=pictures, unit=unit), publishes)

    def take(self, dataset: Dataset, publishes: bool = True) -> dict[str, Any]:
        """Takes its records; returns what is public about them.

        Args:
          dataset: the records.
          publishes: whether their number is public.
        """
        self._records = usable_only(sound(dataset))
        return {"num_records": dataset.num_units if publishes else None, "image_shape": dataset.image_shape,
                "num_classes": dataset.num_classes, "unit": dataset.unit}

    def open(self, config: MethodConfig, folder: str, event: dp_accounting.DpEvent,
             largest_event: dp_accounting.DpEvent) -> None:
        """Opens, or makes, its ledger in a folder of its own.

        Args:
          config: resolved settings.
          folder: folder on this machine.
          event: what a charge costs.
          largest_event: what the costliest release costs.
        """
        self._config, self._folder = config, pathlib.Path(folder)
        self._folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        if self._lock is None:
            self._lock = lock_folder(self._folder)
        (self._folder / "shares").mkdir(exist_ok=True)
        self._ledger = OwnersLedger(self._folder, config, event, largest_event)

    def close(self) -> None:
        """Makes its folder available to other processes."""
        if self._lock is not None:
            self._lock.close()
            self._lock = None

    def prepare(self, ask: Ask) -> Ready:
        """Computes its exact sums and keeps them.

        Raises:
          InvalidArgumentError: the driver asks for something that it must not ask for.
        """
        return Ready(owner=self._number, attempt=ask.attempt, shape=self._sums(ask, self._checked(ask)).shape)

    def draw(self, ask: Ask, draw: Draw) -> Share:
        """Charges its ledger, adds its share of the noise, stores the share and sends it; or sends the stored one.

        Raises:
          BudgetExhaustedError: its own ledger says that the budget is spent.
          InvalidArgumentError: the noise is not the one that the charge is for.
        """
        mechanism = self._checked(ask)
        path = self._folder / "shares" / f"{ask.attempt}.npz"
        if path.exists():
            return self._share(ask, np.load(path)["values"])
        # The price follows from the noise that is drawn here, whatever else the driver's event would cost.
        _validate.integer("count", draw.count, at_least=1)
        unit = DiscreteGaussianDpEvent(accountants.noise_multiplier(draw.unit))
        _validate.require(draw.unit == unit, "unit", draw.unit, f"to be {unit}, the cost of discrete Gaussian noise")
        charged = unit.noise_multiplier / draw.count**0.5
        _validate.require(mechanism.noise_multiplier == charged and draw.attempt == ask.attempt,
                          "noise_multiplier", mechanism.noise_multiplier, f"to be {charged}, which is charged for")
        exact, self._prepared = self._sums(ask, mechanism), None
        share = dataclasses.replace(
            mechanism, noise_multiplier=charged * math.sqrt(self._config.noise_share) * (1 + SLACK))
        index = self._ledger.spend(draw.event, step=draw.step)
        values = np.rint(share.privatize(exact, self._noise(), index) * getattr(share, "steps", 1)).astype(np.int64)
        _files.atomic_write(path, _files.npz_bytes({"values": values}))
        return self._share(ask, values)

    def _sums(self, ask: Ask, mechanism: Any) -> np.ndarray:
        """Sums of the first round; an owner that was started again since then computes them again.

        They must be the same mechanism's, because another one's noise is for other sums.
        """
        if self._prepared is None or self._prepared[:2] != (ask.attempt, mechanism):
            self._prepared = ask.attempt, mechanism, ask.question.answer(mechanism, self._records)
        return self._prepared[2]

    def _share(self, ask: Ask, values: np.ndarray) -> Share:
        return Share(owner=self._number, attempt=ask.attempt, values=values)

    def _noise(self) -> noises.NoiseSource:
        seed = self._config.insecure_noise_seed
        return DiscreteGaussianNoise() if seed is None else noises.InsecureSeededNoise(seed + 1 + self._number)

    def _checked(self, ask: Ask) -> Any:
        """The mechanism, made anew from its fields; refused unless it is a known one for this run's neighbours."""
        _validate.require(isinstance(ask.attempt, str) and re.fullmatch("[0-9a-f]{32}", ask.attempt) is not None,
                          "attempt", ask.attempt, "to be 32 hexadecimal digits")
        _validate.require(type(ask.mechanism) in _MECHANISMS and isinstance(ask.question, Question), "mechanism",
                          type(ask.mechanism).__name__, "to release sums")
        mechanism = dataclasses.replace(ask.mechanism)
        _validate.require(mechanism.discrete and mechanism.adjacency == self._config.adjacency, "adjacency",
                          mechanism.adjacency, f"to be {self._config.adjacency}, with discrete noise")
        return mechanism


class Channel(abc.ABC):
    """A way to all owners."""

    @abc.abstractmethod
    def ask(self, method: str, arguments: Callable[[int], tuple[Any, ...]]) -> dict[int, Any]:
        """Answers of a `SumOwner`'s method, by number of owner; silent owners are left out.

        Raises:
          DataLensError: an owner raised one, other than an ActorError.
        """

    @abc.abstractmethod
    def close(self) -> None:
        """Ends what was started for it."""


class InProcess(Channel):
    """Owners that live in this process, to try out what owners on machines of their own would do."""

    def __init__(self, owners: Sequence[SumOwner]):
        self._owners = owners

    def ask(self, method: str, arguments: Callable[[int], tuple[Any, ...]]) -> dict[int, Any]:
        answers = {}
        for number, owner in enumerate(self._owners):
            with contextlib.suppress(ActorError):
                answers[number] = getattr(owner, method)(*arguments(number))
        return answers

    def close(self) -> None:
        for owner in self._owners:
            owner.close()


class ByRay(Channel):
    """Owners that are Ray actors, each on the machine that joined the cluster as its own, if there is one."""

    def __init__(self, actors: Actors):
        self._actors = actors

    def ask(self, method: str, arguments: Callable[[int], tuple[Any, ...]]) -> dict[int, Any]:
        if method in ("load", "open"):  # An actor that is started again is told both again.
            answers = self._actors.start(lambda number: [(method, arguments(number))])
            return dict(enumerate(answers))
        return self._actors.ask_most(lambda number: (method, arguments(number)))

    def close(self) -> None:
        self._actors.close()


class SumOwners(Elsewhere):
    """Data sets that their owners keep: what is public about them, and a channel to their owners.

    Args:
      config: settings with `num_owners`; their name of the data is that of the run.
      channel: channel to the owners, who have their records.
      facts: what each owner says of its records.

    Raises:
      DataError: owners' images, classes or units differ.
      InvalidArgumentError: there are not as many owners as the settings say.
    """

    def __init__(self, config: MethodConfig, channel: Channel, facts: Mapping[int, Mapping[str, Any]]):
        count = _num_owners(config)
        _validate.require(len(facts) == count, "num_owners", count, f"to be {len(facts)}, the number of owners")
        for number, own in facts.items():
            for key in ("image_shape", "num_classes", "unit"):
                if own[key] != facts[0][key]:
                    raise DataError(f"{config.dataset}: owner {number} has {key} {own[key]}, owner 0 has "
                                    f"{facts[0][key]}.")
        self.name, self.usable, self.owners = config.dataset, None, None
        self.image_shape, self.num_classes = tuple(facts[0]["image_shape"]), facts[0]["num_classes"]
        self.unit, self.declared = facts[0]["unit"], config.classes is not None
        self.class_names = config.classes if self.declared else numbered(self.num_classes)
        self._channel, self._count = channel, count
        known = [own["num_records"] for own in facts.values()]
        # Where the number is private, each owner may have as many records as the bound.
        self._most = [config.known_records(0) if n is None else n for n in known]
        self.num_records = [config.known_records(0)] if None in known else known
        self._shape: tuple[int, ...] = ()

    @classmethod
    def here(cls, config: MethodConfig, datasets: Sequence[Dataset]) -> SumOwners:
        """Owners in this process, one for each data set."""
        owners = [SumOwner(number) for number in range(len(datasets))]
        facts = {number: owner.take(dataset, config.publishes_num_records)
                 for number, (owner, dataset) in enumerate(zip(owners, datasets))}
        return cls(config, InProcess(owners), facts)

    @classmethod
    def by_ray(cls, config: MethodConfig, options: PerformanceOptions, data_dir: str | None = None,
               pictures: Pictures | None = None) -> SumOwners:
        """Owners who load their own records, on their own machines; `{owner}` in the data's name is their number.

        Raises:
          ActorError: see `Actors`.
          InvalidArgumentError: all owners would load the same data, so each record would count for every owner.
        """
        if "{owner}" not in config.dataset:
            raise InvalidArgumentError(f"Expected dataset={config.dataset!r} to contain {{owner}}, the owner's number: "
                                       "no record may be with two owners.")
        channel = ByRay(Actors(_num_owners(config), options, owners=True, kind=SumOwner))
        with contextlib.ExitStack() as undo:
            undo.callback(channel.close)
            facts = channel.ask("load", lambda number: (
                config.dataset, data_dir, config.publishes_num_records, config.classes, pictures, config.unit))
            made = cls(config, channel, facts)
            undo.pop_all()
        return made

    def __len__(self) -> int:
        """Records of all owners."""
        return sum(self.num_records)

    @property
    def num_units(self) -> int:
        """The public n: records, or units, of all owners."""
        return len(self)

    @property
    def identity(self) -> dict[str, Any]:
        """Number of records of each owner; the owners look after their own records."""
        return {"num_records": self.num_records}

    def open(self, config: MethodConfig, folder: pathlib.Path, largest_event: dp_accounting.DpEvent) -> None:
        """Tells all owners the settings, and where each keeps its files, in a folder of its own machine."""
        self._config, event = config, config.mechanism().dp_event()
        self._all(self._channel.ask("open", lambda number: (
            config, os.fspath(folder.resolve() / str(number)), event, largest_event)), "take the settings")

    def answer(self, mechanism: Any, question: Question) -> Ask:
        """Asks all; returns the question once all are ready and the sum of their shares would have the charged noise.

        Raises:
          ActorError: an owner is silent, or answers with something that is no answer. Nothing was charged.
          InvalidArgumentError: shares would be too small, see `check_shares`.
        """
        ask = Ask(attempt=secrets.token_hex(16), mechanism=mechanism, question=question)
        answers = self._all(self._channel.ask("prepare", lambda number: (ask,)), "report ready")
        for number, ready in answers.items():
            if not (isinstance(ready, Ready) and ready.owner == number and ready.attempt == ask.attempt
                    and ready.shape == answers[0].shape):
                raise ActorError(f"Owner {number} reported ready for something else than was asked. Nothing was "
                                 "charged.")
        self._shape = answers[0].shape
        share = self._config.noise_share
        check_shares(mechanism.noise_multiplier, round(1 / share), mechanism.stddev * (1 + SLACK) * math.sqrt(share),
                     math.prod(self._shape))
        return ask

    def total(self, mechanism: Any, ask: Ask, charge: Charge) -> np.ndarray:
        """The sum of the owners' shares, as `privatize` returns it: the release. Charge first.

        Args:
          mechanism: mechanism of the question.
          ask: the question, for which all are ready.
          charge: the charge that pays for the release.

        Raises:
          ActorError: more owners are silent than `owner_tolerance`, or one sent something that is no share. The charge
            is burnt.
        """
        draw = Draw(attempt=ask.attempt, unit=charge.unit, count=charge.count,
                    step=_validate.known("step", charge.step))
        answers = self._channel.ask("draw", lambda number: (ask, draw))
        needed = round(1 / self._config.noise_share)
        if len(answers) < needed:
            raise ActorError(f"{len(answers)} of {self._count} owners sent their shares, {needed} are needed: "
                             f"{_listed(set(range(self._count)) - set(answers))} did not. The charge is lost; continue "
                             "with --resume.")
        total = np.zeros(self._shape, np.int64)
        for number, share in answers.items():
            self._check_share(number, share, ask)
            total += share.values
        released: np.ndarray = mechanism.privatize(total.astype(np.float64), _NoMore(), charge.index)
        return released

    def close(self) -> None:
        """Ends what was started for the owners."""
        self._channel.close()

    def _all(self, answers: dict[int, Any], what: str) -> dict[int, Any]:
        """The answers; raises ActorError where one is missing."""
        if len(answers) < self._count:
            raise ActorError(f"Owners {_listed(set(range(self._count)) - set(answers))} did not {what}. Nothing was "
                             "charged; continue with --resume.")
        return answers

    def _check_share(self, number: int, share: Any, ask: Ask) -> None:
        """Raises ActorError for a share that no honest owner sends."""
        mechanism, wrong = ask.mechanism, None
        values = getattr(share, "values", None)
        if not isinstance(share, Share) or share.owner != number:
            wrong = "what is no share of its own"
        elif share.attempt != ask.attempt:
            wrong = "a share of another round"
        elif not (isinstance(values, np.ndarray) and values.dtype == np.int64):
            wrong = f"values of type {getattr(values, 'dtype', type(values).__name__)}, not int64"
        elif values.shape != self._shape:
            wrong = f"values of shape {values.shape}, not {self._shape}"
        else:
            spread = mechanism.stddev / getattr(mechanism, "count_weight", 1.0)
            most = self._most[number] * mechanism.largest + _FAR * spread
            if not -most <= int(values.min()) <= int(values.max()) <= most:
                wrong = f"values beyond {most:.6g}, which its records and its noise do not reach"
        if wrong is not None:
            raise ActorError(f"Owner {number} sent {wrong}. The charge is lost.")


class _NoMore(noises.NoiseSource):
    """No noise, because the shares have it already."""

    is_secure, description, caveat = True, "", ""

    def draw(self, shape: Sequence[int], stddev: float, index: int) -> np.ndarray:
        return np.zeros(tuple(shape))


def _num_owners(config: MethodConfig) -> int:
    """`num_owners` of settings that have it."""
    return _validate.known("num_owners", config.num_owners, "to be the number of owners")


def _listed(numbers: set[int]) -> str:
    return ", ".join(map(str, sorted(numbers)))
