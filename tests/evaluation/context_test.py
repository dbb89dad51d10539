"""What an evaluation says about how long it takes."""

import io
import types

import pytest

from datalens_tf.evaluation import registry
from datalens_tf.evaluation.context import EFFORTS, Stages
from datalens_tf.training.classifier import FROZEN
from datalens_tf.training.progress import Progress
from tests.evaluation.evaluation_data import all_metrics, real


def test_time_left_counts_parts_by_what_they_cost():
    """The first part is the longest by far: the others must not be taken for as long."""
    now = [0.0]
    progress = Progress(stream=io.StringIO(), clock=lambda: now[0])
    stages = Stages(progress)
    stages.costs = [90.0, 9.0, 1.0]

    def train():
        (epochs,) = stages.keras_callbacks()
        epochs.set_params({"epochs": 4})
        epochs.on_train_begin()
        now[0] = 45.0
        epochs.on_epoch_end(1)
        assert progress.seconds_left() == pytest.approx(55)
        now[0] = 90.0
        epochs.on_epoch_end(3)
        assert progress.seconds_left() == pytest.approx(10)

    stages.run("training", train)
    stages.run("pictures", lambda: now.__setitem__(0, 99.0))
    stages.run("distances", progress.seconds_left)
    assert progress.seconds_left() == pytest.approx(1)


def test_every_part_has_a_cost():
    seconds, context = all_metrics().metrics["cost"]["seconds_by_part"], fake_context()
    assert sum(len(registry.metric(name).costs(context)) for name in registry.declared()) == len(seconds)


def fake_context(effort="default"):
    digits = real("test")
    return types.SimpleNamespace(real=real("train"), train=real("train"), test=digits, synthetic=digits,
                                 effort=EFFORTS[effort], epochs=None, seeds=[0, 1, 2], protocol=FROZEN, inception=None)


def test_less_effort_costs_less():
    costs = [sum(cost for name in registry.declared() for cost in registry.metric(name).costs(fake_context(effort)))
             for effort in ("default", "quick")]
    assert costs[1] < costs[0] / 5
