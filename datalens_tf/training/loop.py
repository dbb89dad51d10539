"""A loop of training steps that can be killed at any step, for methods whose steps release nothing by themselves."""

import time
import zlib
from typing import Callable, Sequence

import numpy as np
import tensorflow as tf

from datalens_tf import _files
from datalens_tf.errors import CheckpointError, TrainingDivergedError, TrainingInterrupted
from datalens_tf.training.callbacks import Callback, StepReport
from datalens_tf.training.run_folder import RunFolder
from datalens_tf.training.student import AveragedGenerator

_REPORT_EVERY = 100  # steps


class Loop:
    """Steps 1 to `num_steps`, from the start or from the run folder's snapshot.

    Args:
      files: the run folder.
      student: what is trained, and what reports show.
      variables: everything that changes, to be saved and restored.
      num_steps: how many.
      checkpoint_minutes: between snapshots.
      callbacks: told about every hundredth step.
      epsilon: spent, for the reports.
    """

    def __init__(self, files: RunFolder, student: AveragedGenerator, variables: Sequence[tf.Variable], *,
                 num_steps: int, checkpoint_minutes: float, callbacks: Sequence[Callback], epsilon: float):
        self._files, self._student, self._variables, self.num_steps = files, student, list(variables), num_steps
        self._pause, self._callbacks, self._epsilon = 60 * checkpoint_minutes, callbacks, epsilon
        self._path = files.checkpoints / "loop.npz"
        self.stop_requested = False

    def run(self, step: Callable[[int], float]) -> None:
        """Calls `step(number)`, which returns the student's loss.

        Raises:
          TrainingInterrupted: `stop_requested` was set; the state is saved.
          TrainingDivergedError: a loss is not finite.
          CheckpointError: the snapshot is damaged.
        """
        done, saved = self._restore(), time.monotonic()
        losses = []
        for number in range(done + 1, self.num_steps + 1):
            losses.append(step(number))
            if not np.isfinite(losses[-1]):
                raise TrainingDivergedError(f"Expected loss={losses[-1]} of the student to be finite; lower "
                                            "student_learning_rate.")
            if number % _REPORT_EVERY == 0 or number == self.num_steps:
                report = StepReport(step=number, planned_steps=self.num_steps, epsilon=self._epsilon,
                                    student_loss=float(np.mean(losses)), student=self._student, teacher_loss=None,
                                    vote_agreement=None)
                for callback in self._callbacks:
                    callback.on_step(report)
                losses = []
            if self.stop_requested and number < self.num_steps:
                self._save(number)
                raise TrainingInterrupted(f"Interrupted after step {number} of {self.num_steps}; state saved in "
                                          f"{self._files.path}. Continue with --resume.")
            if time.monotonic() - saved >= self._pause or number == self.num_steps:
                self._save(number)
                saved = time.monotonic()
        for callback in self._callbacks:
            callback.on_end()

    def _save(self, step: int) -> None:
        """Whole or not at all."""
        with _files.clear_os_errors(self._path):
            self._path.parent.mkdir(exist_ok=True)
        arrays = {f"{index:04d}": variable.numpy() for index, variable in enumerate(self._variables)}
        _files.atomic_write(self._path, _files.npz_bytes(arrays | {"step": np.int64(step)}))

    def _restore(self) -> int:
        """Sets the variables to the snapshot's; returns its step, 0 without one."""
        try:
            arrays = _files.read_npz(self._path)
            step = int(arrays.pop("step"))
            if set(arrays) != {f"{index:04d}" for index in range(len(self._variables))}:
                raise ValueError("it is of other variables")
            for name, array in arrays.items():
                self._variables[int(name)].assign(array)
            return step
        except FileNotFoundError:
            return 0
        except (KeyError, TypeError, ValueError, zlib.error) as error:
            raise CheckpointError(f"Damaged checkpoint {self._path}: delete it, and --resume computes the state again."
                                  ) from error
