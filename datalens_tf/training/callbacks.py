"""What a run tells the outside while it trains."""

import dataclasses
import json
import pathlib
import sys
import time
from typing import TextIO

import tensorflow as tf

from datalens_tf.evaluation.plots import image_grid
from datalens_tf.training.student import Student


@dataclasses.dataclass(frozen=True, kw_only=True)
class StepReport:
    """One generator step.

    Attributes:
      step, planned_steps: done, and to be done if no charge is burnt.
      epsilon: spent so far.
      student_loss: the student's loss on the released target; shareable.
      student: the student after the step; shareable.
      teacher_loss: mean loss of the teachers on their records; private.
      vote_agreement: root mean square of the vote sum over N; private. None when a stored release was re-used.
    """

    step: int
    planned_steps: int
    epsilon: float
    student_loss: float
    student: Student
    teacher_loss: float | None
    vote_agreement: float | None


class Callback:
    """Base: ignores everything."""

    def on_progress(self, what: str, fraction: float) -> None:
        """A part of a teacher round is done: `what` names the round, 0 <= fraction <= 1."""

    def on_step(self, report: StepReport) -> None:
        """A generator step is done."""

    def on_end(self) -> None:
        """Training is done."""


class Progress(Callback):
    """A progress bar on a terminal, plain lines otherwise: step, epsilon spent of the target, time left.

    Args:
      epsilon: the target; None where nothing is private.
      stream: where to print; None for the standard error of the moment.
      seconds_between_lines: least time between two plain lines.
    """

    def __init__(self, epsilon: float | None, stream: TextIO | None = None, seconds_between_lines: float = 30.0):
        self._epsilon, self._stream, self._pause = epsilon, stream or sys.stderr, seconds_between_lines
        self._bar, self._last_line, self._first = None, time.monotonic(), None

    def on_progress(self, what: str, fraction: float) -> None:
        if self._stream.isatty():
            self._terminal_bar().set_postfix_str(f"{what}: {fraction:.0%}")
        elif time.monotonic() - self._last_line >= self._pause:
            self._print(f"{what}: {fraction:.0%}")

    def on_step(self, report: StepReport) -> None:
        now = time.monotonic()
        self._first = self._first or (report.step, now)
        spent = "NOT PRIVATE" if self._epsilon is None else f"epsilon {report.epsilon:.4f} of {self._epsilon:g}"
        if self._stream.isatty():
            bar = self._terminal_bar()
            bar.total, bar.n = report.planned_steps, report.step
            bar.set_description_str(spent)
            bar.refresh()
        elif now - self._last_line >= self._pause or report.step == report.planned_steps:
            done = report.step - self._first[0]
            left = (now - self._first[1]) / done * (report.planned_steps - report.step) if done else None
            self._print(f"step {report.step}/{report.planned_steps}, {spent}"
                        + (f", {left / 60:.1f} min left" if left is not None else ""))

    def on_end(self) -> None:
        if self._bar:
            self._bar.close()

    def _print(self, line: str) -> None:
        """One plain line, now."""
        self._last_line = time.monotonic()
        print(line, file=self._stream, flush=True)

    def _terminal_bar(self):
        """The bar, made on first use."""
        if self._bar is None:
            import tqdm  # pylint: disable=import-outside-toplevel

            self._bar = tqdm.tqdm(file=self._stream, unit="step")
        return self._bar


class TensorBoard(Callback):
    """Shareable TensorBoard logs: student loss, epsilon spent, image grids. Nothing computed from real records."""

    def __init__(self, directory: pathlib.Path, steps_between_grids: int = 10):
        self._directory, self._between, self._writer = directory, steps_between_grids, None

    def on_step(self, report: StepReport) -> None:
        # Made late: a run that is refused before its first step leaves no folder.
        self._writer = self._writer or tf.summary.create_file_writer(str(self._directory))
        with self._writer.as_default(step=report.step):
            tf.summary.scalar("student_loss", report.student_loss)
            tf.summary.scalar("epsilon", report.epsilon)
            if report.step % self._between == 0 or report.step == report.planned_steps:
                tf.summary.image("samples", image_grid(report.student.sample_grid())[None])
        self._writer.flush()


class PrivateLog(Callback):
    """Losses on real records and vote agreement, as JSON lines for the run's private folder."""

    def __init__(self, path: pathlib.Path):
        self._path, self._started = path, time.monotonic()

    def on_step(self, report: StepReport) -> None:
        row = {"step": report.step, "seconds": round(time.monotonic() - self._started, 3),
               "teacher_loss": report.teacher_loss, "vote_agreement": report.vote_agreement}
        with open(self._path, "a", encoding="utf-8") as file:
            file.write(json.dumps(row) + "\n")
