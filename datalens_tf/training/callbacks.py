"""Callbacks, which report on a run while it trains."""

from __future__ import annotations

import dataclasses
import json
import pathlib
import time
from collections.abc import Sequence
from typing import Protocol

from etils import epy

with epy.lazy_imports():  # Progress is shown while TensorFlow is still loading.
    import numpy as np
    import tensorflow as tf
    from tensorboard.compat.proto import event_pb2, summary_pb2
    from tensorboard.plugins.image import metadata as image_metadata
    from tensorboard.plugins.scalar import summary_v2
    from tensorboard.util import tensor_util

    from datalens_tf.data import image_grid


@dataclasses.dataclass(frozen=True)
class Stage:
    """A part of the work that is announced before it begins.

    Attributes:
      name: one word or two.
      work: how many billions of multiplications and additions it takes, by public facts; None where only its own pace
        can tell how long it takes.
      charged: whether it spends privacy budget.
    """

    name: str
    work: float | None = None
    charged: bool = False


class Pictured(Protocol):
    """A generator that can be looked at while it is trained."""

    def sample_grid(self, per_class: int = 10) -> np.ndarray:
        """Images uint8 [Y, per_class, H, W, C], one row per class."""
        ...


@dataclasses.dataclass(frozen=True, kw_only=True)
class StepReport:
    """One generator step.

    Attributes:
      step, planned_steps: steps done, and steps to be done if no charge is burnt.
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
    student: Pictured | None
    teacher_loss: float | None
    vote_agreement: float | None


class Callback:
    """Base class, which ignores everything. A method names its stages: loading, releases, a training, samples."""

    def on_plan(self, about: str, stages: Sequence[Stage]) -> None:
        """The records are loaded; `about` says in words what is public about them, and `stages` are what follows."""

    def on_stage(self, name: str, parts: int = 1, done: int = 0) -> None:
        """A stage of `parts` parts begins; an earlier process has done `done` of them."""

    def on_progress(self, what: str, fraction: float) -> None:
        """`fraction` is done since the last reported step, in units of the stage's parts; `what` names this work."""

    def on_spent(self, epsilon: float) -> None:
        """Something was released; the run has spent this epsilon so far."""

    def on_step(self, report: StepReport) -> None:
        """A generator step is done."""

    def on_end(self) -> None:
        """Training is done."""


class TensorBoard(Callback):
    """Shareable TensorBoard logs: student loss, epsilon spent, image grids. Nothing computed from real records.

    TensorFlow's own writer puts the name of the host into the file's name, and the time of day next to every value. The
    duration of a step may depend on records (on how many of them a secret sample holds), so the time is the step here.
    """

    def __init__(self, directory: pathlib.Path, steps_between_grids: int = 10):
        self._directory, self._between = directory, steps_between_grids
        self._writer: tf.io.TFRecordWriter | None = None

    def on_step(self, report: StepReport) -> None:
        # Made late: a run that is refused before its first step leaves no folder.
        writer = self._writer = self._writer or self._new_file(report.step)
        summaries = [summary_v2.scalar_pb("student_loss", report.student_loss),
                     summary_v2.scalar_pb("epsilon", report.epsilon)]
        if report.student is not None and (
                report.step % self._between == 0 or report.step == report.planned_steps):
            summaries.append(_picture("samples", image_grid.image_grid(report.student.sample_grid())))
        for summary in summaries:
            _write(writer, event_pb2.Event(wall_time=report.step, step=report.step, summary=summary))
        writer.flush()

    def _new_file(self, step: int) -> tf.io.TFRecordWriter:
        """Starts a file. A resumed run has several; their names say in which order."""
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
        tag=tag, metadata=image_metadata.create_summary_metadata(display_name=None, description=None),
        tensor=tensor_util.make_tensor_proto(
            [str(width).encode(), str(height).encode(), image_grid.png_bytes(picture)]))
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
