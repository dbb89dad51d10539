"""Callbacks, which tell the outside of a run while it trains."""

import dataclasses
import json
import pathlib
import sys
import time
from typing import TYPE_CHECKING, TextIO

import numpy as np
import tensorflow as tf
from tensorboard.compat.proto import event_pb2, summary_pb2
from tensorboard.plugins.image.metadata import create_summary_metadata
from tensorboard.plugins.scalar.summary_v2 import scalar_pb
from tensorboard.util.tensor_util import make_tensor_proto

from datalens_tf.data.image_grid import image_grid, png_bytes
from datalens_tf.training.student import AveragedGenerator

if TYPE_CHECKING:  # Loaded where there is a terminal.
    import tqdm


@dataclasses.dataclass(frozen=True, kw_only=True)
class StepReport:
    """One generator step.

    Attributes:
      step, planned_steps: done, and to be done if no charge is burnt.
      epsilon: spent so far.
      student_loss: the student's loss on the released target; shareable.
      student: the generator after the step; shareable. None where a classifier is trained.
      teacher_loss: mean loss of the teachers on their records; private.
      vote_agreement: root mean square of the vote sum over N; private. None when a stored release was re-used.
    """

    step: int
    planned_steps: int
    epsilon: float
    student_loss: float
    student: AveragedGenerator | None
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
        self._bar: tqdm.tqdm | None = None
        self._last_line = time.monotonic()
        self._first: tuple[int, float] | None = None  # the first step that was reported, and when

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

    def _terminal_bar(self) -> "tqdm.tqdm":
        """The bar, made on first use."""
        if self._bar is None:
            import tqdm

            self._bar = tqdm.tqdm(file=self._stream, unit="step")
        return self._bar


class TensorBoard(Callback):
    """Shareable TensorBoard logs: student loss, epsilon spent, image grids. Nothing computed from real records.

    TensorFlow's own writer puts the name of the host into the file's name, and the time of day beside every value. How
    long a step took may depend on records (on how many of them a secret sample holds), so the time is the step here.
    """

    def __init__(self, directory: pathlib.Path, steps_between_grids: int = 10):
        self._directory, self._between = directory, steps_between_grids
        self._writer: tf.io.TFRecordWriter | None = None

    def on_step(self, report: StepReport) -> None:
        # Made late: a run that is refused before its first step leaves no folder.
        writer = self._writer = self._writer or self._new_file(report.step)
        summaries = [scalar_pb("student_loss", report.student_loss), scalar_pb("epsilon", report.epsilon)]
        if report.student is not None and (
                report.step % self._between == 0 or report.step == report.planned_steps):
            summaries.append(_picture("samples", image_grid(report.student.sample_grid())))
        for summary in summaries:
            _write(writer, event_pb2.Event(wall_time=report.step, step=report.step, summary=summary))
        writer.flush()

    def _new_file(self, step: int) -> tf.io.TFRecordWriter:
        """A resumed run has several; their names say in which order."""
        self._directory.mkdir(parents=True, exist_ok=True)
        number = len(list(self._directory.iterdir()))
        writer = tf.io.TFRecordWriter(str(self._directory / f"events.out.tfevents.{number:06d}"))
        _write(writer, event_pb2.Event(wall_time=step, file_version="brain.Event:2"))
        return writer


def _write(writer: tf.io.TFRecordWriter, event: event_pb2.Event) -> None:
    writer.write(event.SerializeToString())


def _picture(tag: str, picture: np.ndarray) -> summary_pb2.Summary:
    """A picture uint8 [H, W, 1 or 3] as TensorBoard stores it: width, height, PNG."""
    height, width = picture.shape[:2]
    summary = summary_pb2.Summary()
    summary.value.add(
        tag=tag, metadata=create_summary_metadata(display_name=None, description=None),
        tensor=make_tensor_proto([str(width).encode(), str(height).encode(), png_bytes(picture)]))
    return summary


class PrivateLog(Callback):
    """Losses on real records and vote agreement, as JSON lines for the run's private folder."""

    def __init__(self, path: pathlib.Path):
        self._path, self._started = path, time.monotonic()

    def on_step(self, report: StepReport) -> None:
        row = {"step": report.step, "seconds": round(time.monotonic() - self._started, 3),
               "teacher_loss": report.teacher_loss, "vote_agreement": report.vote_agreement}
        with open(self._path, "a", encoding="utf-8") as file:
            file.write(json.dumps(row) + "\n")
