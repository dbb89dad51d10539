"""Teachers in several processes or on several machines: Ray actors that answer with a sum of votes.

Each actor owns a share of the partitions and keeps its teachers in a file of its own, which survives its death. In a
round the driver broadcasts what is public (fakes, instance noise, the images to vote on), and every actor answers with
the sum of its teachers' votes, integers [m, d]: never records, weights, gradients or losses. The driver adds the sums
up, charges the ledger, adds the noise and trains the student, as if the teachers were its own.

Where actors belong to data owners who keep their records (`config.num_owners`), an actor loads its records itself. It
never answers with votes alone, only with votes plus its share of the noise, after charging a ledger of its own.
"""

import contextlib
import dataclasses
import fcntl
import itertools
import os
import pathlib
import time
from collections.abc import Callable, Iterator, Sequence
from typing import IO, Any

import dp_accounting
import numpy as np
import tensorflow as tf

from datalens_tf import _files, _validate
from datalens_tf.accounting.ledger import PrivacyLedger
from datalens_tf.config import MethodConfig, VotingConfig, config_digest, numbered
from datalens_tf.data.datasets import Dataset, Pictures
from datalens_tf.data.identity import Fingerprint, encode, matches
from datalens_tf.data.partition import teacher_indices
from datalens_tf.data.registry import load_dataset
from datalens_tf.errors import CheckpointError, DataError, InvalidArgumentError, LedgerError
from datalens_tf.mechanisms.base import Mechanism
from datalens_tf.mechanisms.noise import InsecureSeededNoise, SecureGaussianNoise
from datalens_tf.options import PerformanceOptions
from datalens_tf.training.actors import Actors
from datalens_tf.training.teachers import Bank, TeacherBank, TeacherRound, TeachersBehind

_LOCK_SECONDS = 60  # The time that the process of a replaced actor may take to die.


@dataclasses.dataclass(frozen=True)
class Records:
    """Records of one actor's teachers: images and labels, and row indices [teachers, r]."""

    images: np.ndarray
    labels: np.ndarray
    partitions: np.ndarray


def share_spans(num_teachers: int, num_actors: int) -> list[slice]:
    """Consecutive teachers for every actor, as evenly as possible."""
    bounds = np.linspace(0, num_teachers, num_actors + 1).astype(int).tolist()
    return [slice(start, stop) for start, stop in itertools.pairwise(bounds)]


def own_records(dataset: Dataset, partitions: np.ndarray) -> Records:
    """Only the records in these partitions [teachers, r]."""
    used, rows = np.unique(partitions, return_inverse=True)
    return Records(dataset.images[used], dataset.labels[used], rows.reshape(partitions.shape))


class Share:
    """One actor's teachers. An ordinary class; `ray.remote` makes an actor of it.

    Args:
      number: number of the actor.
      threads: number of chunks computed side by side.
    """

    def __init__(self, number: int, threads: int = 1):
        self._number, self._threads = number, threads
        try:
            tf.config.threading.set_intra_op_parallelism_threads(1)
            tf.config.threading.set_inter_op_parallelism_threads(threads)
        except RuntimeError:  # TensorFlow has started already, in a process that used it before.
            pass
        self._votes: np.ndarray | None = None  # votes of the last round, until they are released
        self._step = 0  # step of that round
        self._lock: IO[str] | None = None

    def load(self, name: str, data_dir: str | None, num_teachers: int, seed: int,
             classes: Sequence[str] | None = None, pictures: Pictures | None = None, unit: str | None = None
             ) -> dict[str, Any]:
        """Loads an owner's own records; returns what is public about them."""
        dataset = load_dataset(name.replace("{owner}", str(self._number)), data_dir=data_dir, classes=classes,
                               pictures=pictures, unit=unit)
        partitions = teacher_indices(dataset, num_teachers, seed)
        self._records = own_records(dataset, partitions)
        return {"num_records": dataset.num_units, "image_shape": dataset.image_shape,
                "num_classes": dataset.num_classes, "records_per_teacher": partitions.shape[1]}

    def receive(self, images: np.ndarray, labels: np.ndarray, partitions: np.ndarray) -> None:
        """Takes its records from the driver."""
        self._records = Records(images, labels, partitions)

    def open(self, config: VotingConfig, mechanism: Mechanism, first_teacher: int, folder: str) -> int:
        """Opens, or makes, the teachers' file in a folder of this machine; returns their optimizer steps.

        Teachers that cannot be continued, for example after the machine went down, start again; the result is then 0.
        """
        path, records = pathlib.Path(folder), self._records
        path.mkdir(mode=0o700, parents=True, exist_ok=True)
        if self._lock is None:
            self._lock = lock_folder(path)
        identity = {"checksum": Fingerprint(records.labels, records.images)}
        if (path / "data.json").exists() and not matches(identity, (path / "data.json").read_text()):
            raise CheckpointError(f"{path} was trained on other records than the ones given.")
        _files.atomic_write(path / "data.json", encode(identity))
        # Memory 0: always the file, so that nothing is lost with the process.
        options = PerformanceOptions(num_threads=self._threads, bank_memory_gb=0)
        self._config, self._mechanism = config, mechanism
        if config.num_owners:
            self._ledger = OwnersLedger(path, config, mechanism.dp_event(config.batch_size))
        for attempt in range(2):
            try:
                self._bank = TeacherBank(config, records.images, records.labels, records.partitions, mechanism, options,
                                         path / "teachers.bin", first_teacher)
                break
            except CheckpointError:
                if attempt:
                    raise
                (path / "teachers.bin").unlink()
        return self._bank.completed

    def advance(self, iterations: int, rounds: Sequence[TeacherRound], vote_images: np.ndarray | None,
                vote_labels: np.ndarray | None, step: int) -> np.ndarray | None:
        """`TeacherBank.advance` from `iterations` optimizer steps on; returns the sum of its votes, int32 [m, d].

        Returns None where nobody votes, and for an owner, who keeps the sum for `noisy_votes`.
        """
        self._bank.iterations = iterations
        self._votes = None
        images, labels = ((None, None) if vote_images is None else (tf.constant(vote_images), tf.constant(vote_labels)))
        votes, _ = self._bank.advance(rounds, images, labels, step)
        if votes is None:
            return None
        if self._config.num_owners:
            self._votes, self._step = votes, step
            return None
        return votes.astype(np.int32)

    def noisy_votes(self) -> np.ndarray:
        """An owner's votes of the last round with its share of the noise, float64 [m, d]; only once in every round.

        Raises:
          BudgetExhaustedError: the owner's own ledger says that the budget is spent.
          InvalidArgumentError: it answered in this round before.
        """
        votes, self._votes = self._votes, None
        if votes is None:
            raise InvalidArgumentError("Expected a round of votes before its release, which happens once.")
        config = self._config
        charge = self._ledger.spend(self._mechanism.dp_event(config.batch_size), step=self._step)
        noise = (SecureGaussianNoise() if config.insecure_noise_seed is None
                 else InsecureSeededNoise(config.insecure_noise_seed + 1 + self._number))
        return self._mechanism.privatize(votes, noise, charge, config.noise_share)

    def flush(self) -> None:
        """Makes the teachers durable."""
        self._bank.flush()


def lock_folder(folder: pathlib.Path) -> IO[str]:
    """The open file of a lock that ends with the process; waits until the process of a replaced actor has died."""
    file = open(folder / "lock", "w", encoding="utf-8")  # noqa: SIM115 (the lock is the open file)
    for _ in range(_LOCK_SECONDS):
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
            return file
        except OSError:
            time.sleep(1)
    raise CheckpointError(f"{folder} is in use by another process: wait for it to end.")


class OwnersLedger:
    """The ledger with which an owner counts for itself, whatever the driver says.

    A file next to the ledger holds the head that the ledger had when the owner last answered. A ledger that lost
    charges since then, or everything, is refused.

    Args:
      folder: folder of the owner's files.
      config: settings of the run.
      event: what a step costs.
      largest_event: what the costliest line of the ledger will cost; None where that is a step.

    Raises:
      CheckpointError: the ledger is of another configuration.
      LedgerError: it lacks charges, or is damaged.
    """

    def __init__(self, folder: pathlib.Path, config: MethodConfig, event: dp_accounting.DpEvent,
                 largest_event: dp_accounting.DpEvent | None = None):
        path, self._answered, digest = folder / "ledger.jsonl", folder / "answered", config_digest(config.to_json())
        answered = self._answered.read_text(encoding="utf-8") if self._answered.exists() else None
        if not path.exists():
            if answered is not None or (folder / "teachers.bin").exists():
                raise LedgerError(f"{path} is missing, and {folder} rests on its charges: put the newest ledger back, "
                                  "or use another folder, where what was spent here counts as well.")
            self._ledger = PrivacyLedger.create(
                path, epsilon=config.budget, delta=config.delta, accountant=config.accountant, config_digest=digest,
                adjacency=config.adjacency, step_event=event, largest_event=largest_event,
                secret_noise=config.insecure_noise_seed is None)
            return
        self._ledger = PrivacyLedger.open(path)
        if self._ledger.config_digest != digest:
            raise CheckpointError(f"{path} is of a run with another configuration: choose another run folder.")
        if answered is not None:
            self._ledger.check_ancestor(answered, self._answered, 0)

    def spend(self, event: dp_accounting.DpEvent, *, step: int) -> int:
        """`PrivacyLedger.spend`."""
        charge = self._ledger.spend(event, step=step)
        _files.atomic_write(self._answered, self._ledger.head)
        return charge


class DistributedBank(Bank):
    """All teachers, kept by actors; the trainer sees them like a `TeacherBank` whose state is a file.

    Args:
      config: resolved settings.
      mechanism: compresses gradients into votes.
      actors: the actors, which have their records.
      batch_size: records in a teacher's batch.
      folder: where each actor keeps its teachers, in a sub-folder, on its own machine.
    """

    @property
    def persistent(self) -> bool:
        """True: the state is in the actors' files."""
        return True

    @property
    def num_arrays(self) -> int:
        """0: none of the state is here."""
        return 0

    def __init__(self, config: VotingConfig, mechanism: Mechanism, actors: Actors, batch_size: int,
                 folder: pathlib.Path):
        self.batch_size, self._actors, self._iterations = batch_size, actors, 0
        spans = share_spans(config.num_teachers, len(actors))
        self._completed = actors.start(lambda number: [
            ("open", (config, mechanism, spans[number].start, os.fspath(folder.resolve() / str(number))))])

    @classmethod
    def of(cls, config: VotingConfig, mechanism: Mechanism, dataset: "Dataset | Owners",
           options: PerformanceOptions, folder: pathlib.Path) -> "DistributedBank":
        """Makes a bank of the owners' actors, or of new actors that get their shares of a data set."""
        if isinstance(dataset, Owners):
            return cls(config, mechanism, dataset.actors, config.teacher_batch_size, folder)
        partitions = teacher_indices(dataset, config.num_teachers, config.partition_seed)
        actors = Actors(options.num_actors, options, kind=Share)
        shares = []
        for span in share_spans(config.num_teachers, len(actors)):
            records = own_records(dataset, partitions[span])
            shares.append(tuple(map(actors.put, (records.images, records.labels, records.partitions))))
        actors.start(lambda number: [("receive", shares[number])])
        return cls(config, mechanism, actors, min(partitions.shape[1], config.teacher_batch_size), folder)

    @property
    def iterations(self) -> int:
        """Optimizer steps that all teachers have taken; some teachers may be ahead, and do not repeat theirs."""
        return self._iterations

    @iterations.setter
    def iterations(self, value: int) -> None:
        if min(self._completed) < value:
            raise TeachersBehind
        self._iterations = value

    def blocks(self, index: int) -> Iterator[np.ndarray]:
        """Nothing: the state is not here."""
        raise IndexError(index)

    def flush(self) -> None:
        """Makes the teachers' files durable."""
        self._actors.ask(lambda number: ("flush", ()), self._check)

    def advance(self, rounds: Sequence[TeacherRound], vote_images: tf.Tensor | None = None,
                vote_labels: tf.Tensor | None = None, step: int = 0,
                progress: Callable[[float], None] = lambda fraction: None) -> tuple[np.ndarray | None, np.ndarray]:
        """Trains and votes; see `TeacherBank.advance`. Losses stay with the teachers, and votes with owners.

        Raises:
          TeachersBehind: an actor lost its teachers. Everything must be computed again, and only that actor takes part.
        """
        votes = (None, None) if vote_images is None else (np.asarray(vote_images), np.asarray(vote_labels))
        shared = self._actors.put(list(rounds))
        answers = self._actors.ask(
            lambda number: ("advance", (self._iterations, shared, *votes, step)), self._check, progress=progress)
        self._iterations += len(rounds)
        self._completed = [self._iterations] * len(self._actors)
        sums = [answer.astype(np.float64) for answer in answers if answer is not None]
        return (sum(sums) if sums else None), np.zeros([0, len(rounds)], np.float32)

    def noisy_sum(self) -> np.ndarray | None:
        """The sum of the owners' noisy votes, float64 [m, d]; None if an owner was lost."""
        answers = self._actors.ask_once(lambda number: ("noisy_votes", ()), self._check)
        return None if answers is None else sum(answers)

    def close(self) -> None:
        """Ends the actors."""
        self._actors.close()

    def _check(self, completed: int | None) -> None:
        """Checks that a replaced actor has what all had before this round.

        None stands for an actor that has died again, and will be replaced.
        """
        if completed is not None and completed < self._iterations:
            self._completed = [0] * len(self._actors)
            raise TeachersBehind


def check_owners(config: VotingConfig, facts: Sequence[dict[str, Any]]) -> None:
    """Raises DataError where the public facts from `Share.load` differ between owners or leave too few records."""
    for number, own in enumerate(facts):
        for key in ("image_shape", "num_classes"):
            if own[key] != facts[0][key]:
                raise DataError(f"{config.dataset}: owner {number} has {key} {own[key]}, owner 0 has {facts[0][key]}.")
        if own["records_per_teacher"] < config.teacher_batch_size:
            raise DataError(
                f"{config.dataset}: owner {number} has {own['records_per_teacher']} records per teacher, fewer than "
                f"teacher_batch_size={config.teacher_batch_size}: lower that, or num_teachers.")


class Owners:
    """Data sets that their owners keep: what is public about them, and the actors that hold them.

    Args:
      config: num_owners, dataset (in which `{owner}` stands for an owner's number), num_teachers, partition_seed.
      options: see `Actors`.
      data_dir: folder of TensorFlow Datasets on the owners' machines.

    Raises:
      DataError: owners' images or classes differ, or an owner's data cannot be loaded.
      ActorError: see `Actors`.
      InvalidArgumentError: all owners would load the same data, so each record would reach a teacher of every owner.
    """

    def __init__(self, config: VotingConfig, options: PerformanceOptions, data_dir: str | None = None,
                 pictures: Pictures | None = None):
        if "{owner}" not in config.dataset:
            raise InvalidArgumentError(f"Expected dataset={config.dataset!r} to contain {{owner}}, the owner's number: "
                                       "no record may be with two owners.")
        self.name, self.usable, self.owners, self.unit = config.dataset, None, None, config.unit
        num_owners = _validate.known("num_owners", config.num_owners, "to be the number of owners who keep the data")
        spans = share_spans(config.num_teachers, num_owners)
        self.actors = Actors(num_owners, options, owners=True, kind=Share)
        facts = self.actors.start(lambda number: [
            ("load", (config.dataset, data_dir, spans[number].stop - spans[number].start, config.partition_seed,
                      config.classes, pictures, config.unit))])
        with contextlib.ExitStack() as undo:
            undo.callback(self.actors.close)
            check_owners(config, facts)
            undo.pop_all()
        self.image_shape, self.num_classes = tuple(facts[0]["image_shape"]), facts[0]["num_classes"]
        self.declared = config.classes is not None
        # Owners may have other names for the classes.
        self.class_names = config.classes if self.declared else numbered(self.num_classes)
        self.num_records = [own["num_records"] for own in facts]

    def __len__(self) -> int:
        """Records of all owners."""
        return sum(self.num_records)

    @property
    def num_units(self) -> int:
        """The public n: records, or units, of all owners."""
        return len(self)
