"""A loop of training steps that can be killed at any step.

Where steps cost privacy, each is charged to the ledger, durably, before it is taken. A crash loses what was released
after the last snapshot, and the charges for it are burnt: the steps are taken again, and charged again. A snapshot
keeps the head of the ledger that it was saved under, and is never used with a ledger that has lost it.
"""

from __future__ import annotations

import contextlib
import time
import zlib
from collections.abc import Callable, Iterator, Sequence

from etils import epy

from datalens_tf import _files
from datalens_tf.errors import CheckpointError, TrainingDivergedError, TrainingInterrupted

with epy.lazy_imports():
    import dp_accounting
    import numpy as np
    import tensorflow as tf

    from datalens_tf.accounting import ledger as ledgers
    from datalens_tf.training import callbacks as training_callbacks
    from datalens_tf.training import releases as paid_releases
    from datalens_tf.training import run_folder as run_folders

_REPORT_EVERY = 100  # steps
_CHARGED_MINUTES = 2.0


class Interruptible:
    """Training that can be asked to end early, once it has begun."""

    _stop_requested: bool | None = None  # None until there is something that could be saved
    _ends_at_once = False

    def request_stop(self) -> None:
        """Ends training soon with TrainingInterrupted, state saved. Callable from a signal handler.

        Raises:
          KeyboardInterrupt: there is nothing that should be saved first.
        """
        if self._stop_requested is None or self._ends_at_once:
            raise KeyboardInterrupt
        self._stop_requested = True

    def _stopped(self) -> bool:
        """Whether somebody asked for a stop."""
        return bool(self._stop_requested)

    @contextlib.contextmanager
    def _ending_at_once(self, what: str, place: object) -> Iterator[None]:
        """A part of the work that a resumed run repeats at no cost: a request to stop need not wait for its end.

        Args:
          what: the part, in words.
          place: where the state is.

        Raises:
          TrainingInterrupted: after a request to stop, also one from before this part.
        """
        try:
            self._ends_at_once = True
            if self._stopped():
                raise KeyboardInterrupt
            yield
        except KeyboardInterrupt as error:
            raise TrainingInterrupted(f"Interrupted {what}; state saved in {place}. Continue with --resume.") from error
        finally:
            self._ends_at_once = False


class Loop:
    """Steps 1 to `num_steps`, or as many as are affordable, from the start or from the run folder's snapshot.

    Args:
      files: the run folder.
      student: what is trained, and what reports show.
      variables: everything that changes, to be saved and restored.
      num_steps: number of steps.
      checkpoint_minutes: minutes between snapshots.
      callbacks: told about every hundredth step, or more often.
      ledger: what the run was charged; None for a method that is not private.
      event: what each step costs, charged to the ledger; None if steps cost nothing.
      report_every: after how many steps callbacks are told, where steps take long.
      stopped: whether the loop is to end after the current step.
      stage: name of the stage for callbacks.
      name: name of the snapshot's file, where a run has several loops.

    Attributes:
      done: steps taken; charges beyond them are burnt.
    """

    def __init__(self, files: run_folders.RunFolder, student: training_callbacks.Pictured | None,
                 variables: Sequence[tf.Variable], *,
                 num_steps: int, checkpoint_minutes: float, callbacks: Sequence[training_callbacks.Callback],
                 ledger: ledgers.PrivacyLedger | None = None, event: dp_accounting.DpEvent | None = None,
                 report_every: int = _REPORT_EVERY, stopped: Callable[[], bool] = lambda: False, stage: str = "train",
                 name: str = "loop"):
        self._files, self._student, self._variables, self.num_steps = files, student, list(variables), num_steps
        # Where a lost step is a lost charge, snapshots are frequent.
        self._pause = 60 * min(checkpoint_minutes, checkpoint_minutes if event is None else _CHARGED_MINUTES)
        self._callbacks, self._ledger, self.done = callbacks, ledger, 0
        self._charged = None if ledger is None or event is None else (ledger, event)
        self._report_every, self._stopped, self._stage = report_every, stopped, stage
        self._path = files.checkpoints / f"{name}.npz"

    @property
    def has_snapshot(self) -> bool:
        """Whether there is a snapshot, from which `run` continues."""
        return self._path.exists()

    @property
    def num_burnt(self) -> int:
        """Charges of steps that were lost; 0 where steps are not charged."""
        return 0 if self._charged is None else len(self._charged[0].charges) - self.done

    def run(self, step: Callable[..., float]) -> None:
        """Calls `step(number)`, or `step(number, charge)` where steps are charged; it returns the student's loss.

        Raises:
          BudgetExhaustedError: the budget does not pay for one step.
          TrainingInterrupted: `stopped()` was true after a step; the state is saved.
          TrainingDivergedError: the student's loss is not finite.
          CheckpointError: the snapshot is damaged.
          LedgerError: the ledger lacks charges that the snapshot rests on.
        """
        self.done, saved = self._restore(), time.monotonic()
        if self._charged is not None:
            paid_releases.warn_of_lost_steps(*self._charged, self.num_burnt, self.done, self.num_steps)
        losses, reported = [], self.done
        for callback in self._callbacks:
            callback.on_stage(self._stage, self.num_steps, self.done)
        while self._goes_on():
            number = self.done + 1
            losses.append(step(number, *self._charge(number)))
            if not np.isfinite(losses[-1]):
                raise TrainingDivergedError(f"Expected loss={losses[-1]} of the student to be finite; lower "
                                            "student_learning_rate.")
            self.done = number
            for callback in self._callbacks:
                callback.on_progress(f"step {number:,} of {self.num_steps:,}", float(number - reported))
            last = not self._goes_on()
            if number % min(self._report_every, _REPORT_EVERY) == 0 or last:
                self._report(float(np.mean(losses)))
                losses, reported = [], number
            if self._stopped() and not last:
                self._save()
                raise TrainingInterrupted(f"Interrupted after step {number} of {self.num_steps}; state saved in "
                                          f"{self._files.path}. Continue with --resume.")
            if last or time.monotonic() - saved >= self._pause:
                self._save()
                saved = time.monotonic()
        for callback in self._callbacks:
            callback.on_end()

    def _goes_on(self) -> bool:
        """Whether there is another step to take. The first step is tried, so that the ledger says what is lacking."""
        if self.done >= self.num_steps:
            return False
        return self._charged is None or self.done == 0 or self._charged[0].can_spend(self._charged[1])

    def _charge(self, number: int) -> tuple[int, ...]:
        """The index of the charge for a step, made before the step is taken; empty where steps cost nothing."""
        if self._charged is None:
            return ()
        ledger, event = self._charged
        return (ledger.spend(event, step=number),)

    def _report(self, loss: float) -> None:
        """Tells the callbacks."""
        spent = float("inf") if self._ledger is None else self._ledger.spent()
        report = training_callbacks.StepReport(
            step=self.done, planned_steps=self.num_steps, epsilon=spent, student_loss=loss, student=self._student,
            teacher_loss=None, vote_agreement=None)
        for callback in self._callbacks:
            callback.on_step(report)

    def _save(self) -> None:
        """Saves a snapshot, whole or not at all."""
        with _files.clear_os_errors(self._path):
            self._path.parent.mkdir(exist_ok=True)
        arrays = {f"{index:04d}": variable.numpy() for index, variable in enumerate(self._variables)}
        head = {} if self._ledger is None else {"ledger_head": np.array(self._ledger.head)}
        _files.atomic_write(self._path, _files.npz_bytes(arrays | head | {"step": np.int64(self.done)}))

    def _restore(self) -> int:
        """Sets the variables to the snapshot's; returns its step, 0 without one."""
        try:
            variables = {f"{index:04d}": variable for index, variable in enumerate(self._variables)}
            arrays = _files.read_npz(self._path, _files.exactly(
                variables | {"step": np.int64(0)},
                {} if self._ledger is None else {"ledger_head": np.array(self._ledger.head)}))
            step, head = int(arrays.pop("step")), arrays.pop("ledger_head", None)
            for name, array in arrays.items():
                self._variables[int(name)].assign(array)
            if self._ledger is not None:
                self._ledger.check_ancestor(None if head is None else str(head), self._path,
                                            0 if self._charged is None else step)
            return step
        except FileNotFoundError:
            return 0
        except (KeyError, TypeError, ValueError, zlib.error) as error:
            raise CheckpointError(f"Damaged checkpoint {self._path}: delete it, and --resume computes the state again."
                                  ) from error
