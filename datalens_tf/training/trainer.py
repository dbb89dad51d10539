"""The training loop: teachers vote, the ledger is charged, the noisy sum is stored, the student learns."""

import contextlib
import os
import typing
from collections.abc import Callable, Sequence

import numpy as np
import tensorflow as tf

from datalens_tf import rng
from datalens_tf.accounting import accountants
from datalens_tf.accounting.ledger import PrivacyLedger
from datalens_tf.config import VotingConfig
from datalens_tf.data.datasets import Dataset
from datalens_tf.data.identity import identity_of
from datalens_tf.data.partition import teacher_indices
from datalens_tf.errors import BudgetExhaustedError, CheckpointError, InvalidArgumentError, TrainingInterrupted
from datalens_tf.mechanisms.base import Mechanism
from datalens_tf.mechanisms.noise import NoiseSource, noise_source
from datalens_tf.models import warp
from datalens_tf.options import PerformanceOptions
from datalens_tf.training import checkpoint
from datalens_tf.training.callbacks import Callback, StepReport
from datalens_tf.training.loop import Interruptible
from datalens_tf.training.releases import warn_of_lost_steps
from datalens_tf.training.run_folder import RunFolder, exclusive, opened
from datalens_tf.training.student import Student
from datalens_tf.training.teachers import Bank, TeacherBank, TeacherRound, TeachersBehind

if typing.TYPE_CHECKING:
    from datalens_tf.training.distributed import Owners

WARMUP_CALL = 5  # Warm-up teacher steps per visit of a chunk.


class Trainer(Interruptible):
    """Trains a DataLens generator in a run folder, from the start or from wherever the folder's last process stopped.

    The order within a step (docs/explanation/privacy.md, rule 4): charge the ledger durably, draw the noise, store the
    noisy sum durably (the release), use it. Snapshots keep the teachers and the student; what came after the last
    snapshot is computed again, exactly, from the stored sums. A charge whose sum was never stored is burnt.

    Args:
      config: resolved settings (image_shape and num_classes known).
      dataset: the sensitive records, or their owners.
      run_dir: the run folder, new or of an interrupted run.
      options: what changes speed only.
      callbacks: told about every step.
      mechanism, noise: by default those that the configuration names.
      student: makes the generator in training from the configuration.

    Raises:
      BudgetExhaustedError: the budget does not pay for one step.
      CheckpointError, LedgerError: the folder is of another configuration or data set, damaged, or in use.
      DataError: fewer records than teachers.
    """

    def __init__(self, config: VotingConfig, dataset: "Dataset | Owners", run_dir: str | os.PathLike, *,
                 options: PerformanceOptions = PerformanceOptions(), callbacks: Sequence[Callback] = (),
                 mechanism: Mechanism | None = None, noise: NoiseSource | None = None,
                 student: Callable[[VotingConfig], Student] = Student):
        num_owners = None if isinstance(dataset, Dataset) else len(dataset.num_records)
        if num_owners != config.num_owners:  # Each owner adds only a part of the noise: fewer would add too little.
            raise InvalidArgumentError(f"Expected num_owners={config.num_owners} to be the number of owners who keep "
                                       f"the data, which is {num_owners}.")
        self.config, self._dataset, self._options, self._callbacks = config, dataset, options, callbacks
        self._new_student = student
        self.mechanism = mechanism or config.mechanism()
        self.noise = noise or noise_source(config)
        self.event = self.mechanism.dp_event(config.batch_size)
        if isinstance(dataset, Dataset):  # Owners deal their records themselves.
            self._partitions = teacher_indices(dataset, config.num_teachers, config.partition_seed)
        affordable = accountants.max_steps(self.event, config.budget, config.delta, config.accountant)
        if affordable < 1:
            raise BudgetExhaustedError(
                f"The privacy budget epsilon={config.epsilon:g} does not pay for a single step: raise epsilon or "
                f"noise_stddev={config.noise_stddev:g}, or lower batch_size={config.batch_size} or votes per image.")
        self.planned_steps = min(affordable, config.num_steps or affordable)
        self.folder = RunFolder(run_dir)
        with opened(self.folder, config, _identity(dataset), self.event) as self.ledger:
            self.releases = checkpoint.ReleaseStore(self.folder.releases)
            self.releases.check(self.ledger)
        self._stop_requested = False

    @property
    def num_burnt(self) -> int:
        """Charges whose noisy sum was never stored."""
        return len(set(range(len(self.ledger.charges))) - self.releases.charges())

    def run(self) -> Student:
        """Trains until the budget or num_steps is reached and returns the student.

        Raises:
          TrainingInterrupted: after `request_stop`.
          TrainingDivergedError: the student's loss or images are NaN or infinite; charges are kept.
        """
        with exclusive(self.folder.path):
            self.ledger = PrivacyLedger.open(self.folder.ledger)  # Another trainer may have charged it since.
            return self._run()

    def _run(self) -> Student:
        warn_of_lost_steps(self.ledger, self.event, self.num_burnt, len(self.releases), self.planned_steps)
        if self._finished(len(self.releases)):
            return replay(self.config, self.mechanism, self.releases, len(self.releases), self._new_student)
        with contextlib.closing(self._bank()) as bank:
            student = self._new_student(self.config)
            saver = checkpoint.Saver(self.folder.checkpoints, bank, student, self.ledger,
                                     60 * self._options.checkpoint_minutes)
            while True:
                try:
                    return self._run_from(saver.restore(), bank, student, saver)
                except TeachersBehind:  # From stored releases; teachers that are not behind need not compute.
                    saver.forget()
                    bank.iterations = 0
                    student = saver.student = self._new_student(self.config)

    def _bank(self) -> Bank:
        """The teachers, here or elsewhere."""
        if isinstance(self._dataset, Dataset) and self._options.distribute is None:
            return TeacherBank(self.config, self._dataset.images, self._dataset.labels, self._partitions,
                               self.mechanism, self._options, self.folder.bank)
        from datalens_tf.training.distributed import DistributedBank

        return DistributedBank.of(self.config, self.mechanism, self._dataset, self._options, self.folder.actors)

    def _run_from(self, step: int, bank: Bank, student: Student, saver: checkpoint.Saver) -> Student:
        """Takes the steps after this one."""
        config = self.config
        if bank.iterations < config.warmup_teacher_steps:
            self._warm_up(bank, student, saver)
        self._report("on_stage", "train", self.planned_steps, step)
        while not self._finished(step):
            step += 1
            self._step(step, bank, student)
            if self._stop_requested and not self._finished(step):
                raise self._interrupted(saver, step)
            saver.save_if_due(step)
        self._report("on_end")
        return student

    def _finished(self, step: int) -> bool:
        """Whether nothing remains to be done after this step: every release is used and no other is affordable."""
        return step >= len(self.releases) and (
            step >= self.planned_steps or not self.ledger.can_spend(self.event))

    def _warm_up(self, bank: Bank, student: Student, saver: checkpoint.Saver) -> None:
        """Trains teachers against the untrained generator. Nothing is released, so this is free in privacy."""
        total = self.config.warmup_teacher_steps
        self._report("on_stage", "warm-up")
        for done in range(bank.iterations, total, WARMUP_CALL):
            count = min(WARMUP_CALL, total - done)
            bank.advance(teacher_rounds(self.config, bank, student, count),
                         progress=self._progress("warm-up", done / total, count / total))
            if self._stop_requested:
                raise self._interrupted(saver, 0)
            saver.save_if_due(0)
        saver.save(0)

    def _interrupted(self, saver: checkpoint.Saver, step: int) -> TrainingInterrupted:
        """Saves the state, and returns the error to raise after a request to stop."""
        saver.save(step)
        return TrainingInterrupted(
            f"Interrupted after step {step} of {self.planned_steps}; state saved in {self.folder.path}. "
            "Continue with --resume.")

    def _step(self, step: int, bank: Bank, student: Student) -> None:
        """Algorithm 1, one generator step. A stored release is used again instead of asking the teachers."""
        latents, labels = student.inputs(step)
        rounds = teacher_rounds(self.config, bank, student, self.config.teacher_steps, latents)
        noisy, agreement = self.releases.load(step), None
        progress = self._progress(f"step {step}")
        if noisy is not None:
            _, losses = bank.advance(rounds, progress=progress)
        while noisy is None:
            vote_sum, losses = bank.advance(rounds, student.images(latents, labels), labels, step, progress)
            charge = self.ledger.spend(self.event, step=step)
            if vote_sum is None:  # Owners show no votes without noise.
                noisy = bank.noisy_sum()
            else:
                agreement = float(np.sqrt(np.mean(np.square(vote_sum / self.config.num_teachers))))
                noisy = self.mechanism.privatize(vote_sum, self.noise, charge)
            if noisy is None:  # An owner was lost, and others had answered: the charge is burnt.
                bank.iterations -= len(rounds)
            else:
                self.releases.store(step, charge, noisy, self.ledger)
        student_loss = student.train(latents, labels, self.mechanism.direction(noisy, step))
        self._report("on_step", StepReport(
            step=step, planned_steps=self.planned_steps, epsilon=self.ledger.spent(), student_loss=student_loss,
            student=student, teacher_loss=_mean(losses), vote_agreement=agreement))

    def _progress(self, what: str, start: float = 0.0, share: float = 1.0) -> Callable[[float], None]:
        """Function that reports a fraction of a part as one of the whole."""
        return lambda fraction: self._report("on_progress", what, start + share * fraction)

    def _report(self, method: str, *args) -> None:
        """Calls every callback."""
        for callback in self._callbacks:
            getattr(callback, method)(*args)


def teacher_rounds(config: VotingConfig, bank: Bank, student: Student, count: int,
                   latents: tf.Tensor | None = None) -> list[TeacherRound]:
    """Fresh fakes, instance noise and warps for a bank's next `count` optimizer steps, from public randomness.

    `latents` are those of the next vote, if there is one; fakes are of them with `shared_latents`.
    """
    shared = latents if config.shared_latents else None

    def one(iteration):
        noise = maps = None
        if config.instance_noise:
            stream = rng.stream(config.seed, "instance noise", iteration)
            shape = (2 * bank.batch_size, *config.image_shape)
            noise = config.instance_noise * stream.standard_normal(shape, np.float32)
        if config.teacher_warp:
            stream = rng.stream(config.seed, "teacher warp", iteration)
            moves = config.teacher_warp * stream.standard_normal((2 * bank.batch_size, warp.NUM_MOVES), np.float32)
            maps = warp.matrices(tf.constant(moves), config.data.image_shape).numpy().reshape(2, -1, 2, 3)
        return TeacherRound(student.pool(iteration, bank.batch_size, shared).numpy(), noise, maps)

    return [one(bank.iterations + i) for i in range(count)]


def replay(config: VotingConfig, mechanism: Mechanism, releases: checkpoint.ReleaseStore, num_steps: int,
           new_student: Callable[[VotingConfig], Student] = Student) -> Student:
    """The student after `num_steps` steps, from stored releases alone: post-processing, no data, no teachers.

    Raises:
      CheckpointError: fewer steps were released.
    """
    student = new_student(config)
    for step in range(1, num_steps + 1):
        noisy = releases.load(step)
        if noisy is None:
            raise CheckpointError(f"Expected step={num_steps} to have been released; the last is step {step - 1}.")
        latents, labels = student.inputs(step)
        student.train(latents, labels, mechanism.direction(noisy, step))
    return student


def _mean(losses: np.ndarray) -> float | None:
    """Mean of the losses that were computed; None where no loss was computed."""
    computed = losses[np.isfinite(losses)]
    return float(computed.mean()) if computed.size else None


def _identity(dataset: "Dataset | Owners") -> dict[str, typing.Any]:
    """Identity by which a resumed run knows its data; private, except for owners, who look after their own records."""
    if isinstance(dataset, Dataset):
        return identity_of(dataset)
    return {"num_records": dataset.num_records}
