"""What a run logs: shareable logs without anything from real records, and a private log."""

import io
import json

import numpy as np
import tensorflow as tf
from PIL import Image
from tensorboard.backend.event_processing.event_accumulator import EventAccumulator
from tensorboard.util import tensor_util

from datalens_tf.evaluation.report import training_log
from datalens_tf.training.callbacks import PrivateLog, StepReport, TensorBoard
from datalens_tf.training.student import Student
from tests.training import tiny


def report(step, planned=10):
    return StepReport(step=step, planned_steps=planned, epsilon=0.1 * step, student_loss=0.5,
                      student=Student(tiny.CONFIG), teacher_loss=1.25, vote_agreement=0.125)


def test_shareable_logs_hold_student_values_only(tmp_path):
    board = TensorBoard(tmp_path / "logs", steps_between_grids=2)
    for step in (1, 2):
        board.on_step(report(step))
    tags = {}
    for path in (tmp_path / "logs").iterdir():
        for event in tf.compat.v1.train.summary_iterator(str(path)):
            for value in event.summary.value:
                tags.setdefault(value.tag, []).append(event.step)
    assert tags == {"student_loss": [1, 2], "epsilon": [1, 2], "samples": [2]}


def test_shareable_logs_tell_neither_the_host_nor_how_long_a_step_took(tmp_path):
    """A step's time may depend on how many records a secret sample holds."""
    for first in (1, 3):  # A resumed run has a second file.
        board = TensorBoard(tmp_path / "logs", steps_between_grids=2)
        for step in (first, first + 1):
            board.on_step(report(step))
    files = sorted((tmp_path / "logs").iterdir())
    assert [path.name for path in files] == ["events.out.tfevents.000000", "events.out.tfevents.000001"]
    times = {(event.step, event.wall_time) for path in files
             for event in tf.compat.v1.train.summary_iterator(str(path)) if event.step}
    assert times == {(step, step) for step in (1, 2, 3, 4)}


def test_tensorboard_reads_the_logs(tmp_path):
    for first in (1, 3):
        board = TensorBoard(tmp_path, steps_between_grids=2)
        for step in (first, first + 1):
            board.on_step(report(step))
    assert training_log(tmp_path) == {1: 0.5, 2: 0.5, 3: 0.5, 4: 0.5}
    events = EventAccumulator(str(tmp_path)).Reload()
    width, height, png = tensor_util.make_ndarray(events.Tensors("samples")[0].tensor_proto)
    picture = Image.open(io.BytesIO(png))
    assert picture.size == (int(width), int(height)) and len(np.unique(np.asarray(picture))) > 10
    assert events.SummaryMetadata("samples").plugin_data.plugin_name == "images"


def test_losses_on_records_go_to_the_private_log(tmp_path):
    log = PrivateLog(tmp_path / "training.jsonl")
    log.on_step(report(1))
    log.on_step(report(2))
    rows = [json.loads(line) for line in (tmp_path / "training.jsonl").read_text().splitlines()]
    assert [row["step"] for row in rows] == [1, 2]
    assert rows[0]["teacher_loss"] == 1.25 and rows[0]["vote_agreement"] == 0.125
    assert np.all([row["seconds"] >= 0 for row in rows])
