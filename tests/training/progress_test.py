"""What a run tells while it works: when, what, how long it will take, and that nobody hears more than was asked for."""

import io
import re

import numpy as np
import pytest

from datalens_tf.data.datasets import as_dataset
from datalens_tf.methods import embedding
from datalens_tf.methods.dp_merf import DpMerf, DpMerfConfig
from datalens_tf.training import progress as progresses
from datalens_tf.training.callbacks import Stage, StepReport
from datalens_tf.training.progress import Progress, described, duration, open_log
from tests.training import tiny

STAGES = [Stage("load"), Stage("release", 100.0, charged=True), Stage("fit", 1000.0), Stage("samples", 200.0)]


class Clock:
    """Seconds that pass when a test says so."""

    def __init__(self):
        self.now = 0.0

    def __call__(self):
        return self.now


class Lines(io.StringIO):
    """A pipe that knows when each line came."""

    def __init__(self, clock):
        super().__init__()
        self.clock, self.times = clock, []

    def write(self, text):
        self.times += [self.clock.now] * text.count("\n")
        return super().write(text)

    @property
    def lines(self):
        return self.getvalue().splitlines()


class Terminal(io.StringIO):
    """A stream that is a terminal."""

    def isatty(self):
        return True


@pytest.fixture(autouse=True)
def ten_billion_operations_a_second(monkeypatch):
    monkeypatch.setattr(progresses, "machine_speed", lambda: 10.0)


def step(number, planned, epsilon=2.5):
    return StepReport(step=number, planned_steps=planned, epsilon=epsilon, student_loss=0.0, student=None,
                      teacher_loss=None, vote_agreement=None)


def told(stream=None, detail="normal", log_file=None):
    """A run of 10 + 10 + 100 + 20 seconds, and its clock and stream."""
    clock = Clock()
    stream = Lines(clock) if stream is None else stream
    progress = Progress(3.0, stream, detail=detail, log_file=log_file, clock=clock)

    def wait(seconds):
        for _ in range(4 * seconds):
            clock.now += 0.25
            progress.tick()

    progress.on_stage("load")
    wait(10)
    progress.on_plan("letters: 3,000 records", STAGES)
    progress.on_stage("release")
    wait(10)
    progress.on_spent(2.5)
    progress.on_stage("fit", 10)
    for number in range(1, 11):
        wait(10)
        progress.on_step(step(number, 10))
    progress.on_stage("samples")
    wait(20)
    progress.__exit__(None, None, None)
    return progress, stream


def test_a_pipe_gets_the_facts_the_stages_and_a_line_every_ten_seconds():
    _, stream = told()
    assert stream.lines[:4] == [
        "load", "letters: 3,000 records",
        "stages: load, release (about 10 s), fit (about 2 min), samples (about 20 s)", stream.lines[3]]
    assert stream.times[0] == progresses.FIRST_SECONDS
    heading = {1, 2, len(stream.lines) - 1}  # What was loaded, the stages, and the end.
    times = [time for place, time in enumerate(stream.times) if place not in heading]
    assert np.diff(times).min() >= progresses.LINE_SECONDS and np.diff(stream.times).max() < 10
    for line in stream.lines[3:-1]:
        assert re.fullmatch(r"\[\d/4\] (release|fit|samples)(: step \d+ of 10)?(; epsilon 2\.5000 of 3 is paid, and "
                            r"this stage costs none)?; about \d+ (s|min) left(; 0:\d\d:\d\d so far)?", line), line


def test_the_time_left_includes_the_stages_that_follow():
    _, stream = told()
    promises = [(time, line) for time, line in zip(stream.times, stream.lines) if line.endswith(" left")]
    assert len(promises) >= 12
    for time, line in promises:
        count, unit = re.search(r"about (\d+) (s|min) left", line).groups()
        assert abs(int(count) * {"s": 1, "min": 60}[unit] - (140 - time)) <= (60 if unit == "min" else 15), (time, line)


def test_the_pace_of_a_stage_replaces_its_estimate():
    clock = Clock()
    progress = Progress(stream=Lines(clock), clock=clock)
    progress.on_plan("", [Stage("fit", 1000.0), Stage("samples", 200.0)])
    progress.on_stage("fit", 100, 50)  # Half of it was done by an earlier process.
    assert progress.seconds_left() == 120
    clock.now += 10
    progress.on_step(step(60, 100))
    clock.now += 40
    progress.on_step(step(70, 100))
    assert progress._stream.lines[-1].endswith("about 3 min left")
    assert progress.seconds_left() == pytest.approx(30 * 4 + 20)


def test_the_first_few_percent_do_not_replace_an_estimate():
    """Small releases come first, and one that takes nearly all of the time; its end is no matter of seconds."""
    clock = Clock()
    progress = Progress(stream=Lines(clock), clock=clock)
    progress.on_plan("", [Stage("release", 3000.0)])
    progress.on_stage("release")
    progress.on_progress("1 of 3", 0.0)
    clock.now += 30
    progress.on_progress("3 of 3", 0.02)
    assert progress.seconds_left() == pytest.approx(270)
    clock.now += 100
    assert progress.seconds_left() == pytest.approx(170)


def test_nothing_is_promised_where_nothing_is_known():
    clock = Clock()
    progress = Progress(stream=Lines(clock), clock=clock)
    progress.on_stage("train", 10)
    assert progress.seconds_left() is None
    clock.now += 20
    progress.tick()
    assert progress._stream.lines == ["train; time left not known yet"]


@pytest.mark.parametrize("work", [None, 1000.0])
def test_a_stage_that_begins_again_has_not_ended(work):
    """A method says that it trains, and so does the loop in it, which took the first five percent for nothing."""
    clock = Clock()
    progress = Progress(stream=Lines(clock), clock=clock)
    progress.on_plan("", [Stage("train", work), Stage("samples", 200.0)])
    progress.on_stage("train")
    progress.on_stage("train", 1500)
    assert progress.seconds_left() == (None if work is None else 120)
    for number in (1, 2, 3):
        clock.now += 2.0
        progress.on_progress("step", float(number))
    left = progress.seconds_left()
    assert left == pytest.approx(1497 * 2 + 20 if work is None else 100 - 6 + 20)


def test_no_line_repeats_another():
    clock = Clock()
    progress = Progress(stream=Lines(clock), clock=clock)
    progress.on_plan("digits", [Stage("release", 3000.0)])
    progress.on_stage("release")
    for _ in range(25):
        clock.now += 10
        progress.tick()
    lines = progress._stream.lines[2:]
    assert lines[:3] == ["release; about 5 min left", "release; about 5 min left; 0:00:20 so far",
                         "release; about 5 min left; 0:00:30 so far"]
    assert len(lines) == len(set(lines)) == 25


def test_a_budget_that_is_paid_is_not_shown_as_standing_still():
    """The steps that fit a generator spend nothing, whatever the ledger says they have spent."""
    _, stream = told()
    fit = [line for line in stream.lines if " fit" in line and line.startswith("[")]
    assert fit and all("epsilon 2.5000 of 3 is paid, and this stage costs none" in line for line in fit)
    assert stream.lines[-1] == ("done: load 10 s, release 10 s (epsilon 2.5000 after it), fit 2 min, samples 20 s")


def test_steps_that_spend_show_what_is_spent():
    clock = Clock()
    progress = Progress(3.0, Lines(clock), clock=clock)
    progress.on_plan("digits", [Stage("train", charged=True)])
    progress.on_stage("train", 10)
    clock.now += 30
    progress.on_step(step(3, 10, epsilon=0.74991))
    # Rounded up: what is shown is not less than what was spent.
    assert progress._stream.lines[-1] == "train: step 3 of 10; epsilon 0.7500 of 3; about 70 s left"


def test_a_run_of_three_seconds_says_nothing():
    clock = Clock()
    progress = Progress(stream=Lines(clock), clock=clock)
    progress.on_stage("load")
    clock.now = 2.9
    progress.on_plan("digits", STAGES)
    progress.on_stage("fit")
    progress.on_progress("half", 0.5)
    progress.__exit__(None, None, None)
    assert progress._stream.getvalue() == ""


def test_a_terminal_gets_one_bar_for_each_stage():
    _, stream = told(Terminal())
    shown = stream.getvalue()
    for place, name in enumerate(["release", "fit", "samples"], 2):
        assert f"[{place}/4] {name}" in shown
    assert "|" in shown and "\r" in shown and "epsilon 2.5000 of 3" in shown
    finished = [line.split("\r")[-1] for line in shown.split("\n")]
    assert sum(line.startswith("[3/4] fit") for line in finished) == 1


def test_quiet_says_nothing_and_verbose_everything(tmp_path):
    _, quiet = told(detail="quiet")
    assert quiet.getvalue() == ""
    _, verbose = told(detail="verbose")
    for number in range(1, 11):
        assert f"step {number} of 10" in verbose.getvalue()
    assert {"load", "release", "fit", "samples"} <= set(verbose.lines)


@pytest.mark.parametrize("detail", ["quiet", "normal", "verbose"])
def test_a_log_file_gets_every_line_and_belongs_to_its_owner(detail, tmp_path):
    path = tmp_path / "run.log"
    with open_log(path) as log:
        told(detail=detail, log_file=log)
    lines = path.read_text().splitlines()
    assert path.stat().st_mode & 0o777 == 0o600
    assert all(any(f"step {number} of 10" in line for line in lines) for number in range(1, 11))
    assert "letters: 3,000 records" in lines and {"load", "release", "fit", "samples"} <= set(lines)
    with open_log(path) as log:  # A resumed run goes on in it.
        log.write("more\n")
    assert path.read_text().splitlines() == [*lines, "more"]


def test_a_thread_speaks_while_nothing_is_reported(monkeypatch):
    monkeypatch.setattr(progresses, "FIRST_SECONDS", 0.0)
    stream = io.StringIO()
    with Progress(stream=stream) as progress:
        progress.on_stage("load")
        progress._ended.wait(1.0)
    assert stream.getvalue().splitlines()[0] == "load"


def test_what_was_loaded_is_public():
    """Where neighbours have a record more or less, the number of records is private; class counts always are."""
    data = as_dataset(np.zeros((30, 8, 12, 3), np.uint8), np.arange(30) % 3, name="letters")
    assert described(data, "replace-one", len(data)) == "letters: 30 records, 3 classes, 8 x 12 colour"
    for adjacency in ("add-or-remove-one", "add-or-remove-one-user", "replace-one-user", "none"):
        assert described(data, adjacency, len(data)) == "letters: 3 classes, 8 x 12 colour"


def test_neighbours_are_told_the_same(tmp_path):
    """What is announced before anything is released does not depend on the records."""
    data, announced = tiny.dataset(), []
    other = as_dataset(255 - data.images, (data.labels + 1) % data.num_classes, data.num_classes, name=data.name)

    class Kept(Progress):
        def on_plan(self, about, stages):
            announced.append((about, tuple(stages)))

    for place, records in enumerate((data, other)):
        config = DpMerfConfig(epsilon=3.0, num_features=20, fit_steps=2, generator_filters=4, generator_units=8)
        DpMerf(config, run_dir=tmp_path / str(place), callbacks=[Kept(detail="quiet")]).fit_dataset(records)
    assert announced[0] == announced[1]


def test_a_run_is_never_silent_for_ten_seconds(tmp_path, monkeypatch):
    """A toy run whose steps take two seconds each, as the thread's clock sees them."""
    clock = Clock()
    progress = Progress(3.0, Lines(clock), clock=clock)

    def slow(self, number):
        for _ in range(8):
            clock.now += 0.25
            progress.tick()
        return 0.5

    monkeypatch.setattr(embedding.EmbeddingStudent, "train", slow)
    progress.on_stage("load")
    config = DpMerfConfig(epsilon=3.0, num_features=20, fit_steps=60, generator_filters=4, generator_units=8)
    DpMerf(config, run_dir=tmp_path, callbacks=[progress]).fit_dataset(tiny.dataset())
    times = [0.0, *progress._stream.times]
    assert clock.now == 120 and np.diff(times).max() < 10 and times[1] == progresses.FIRST_SECONDS
    steps = [int(re.search(r"step (\d+) of 60", line).group(1)) for line in progress._stream.lines if "step" in line]
    assert steps == sorted(set(steps)) and len(steps) >= 10


@pytest.mark.parametrize("seconds, text", [
    (0.2, "1 s"), (40, "40 s"), (99.5, "2 min"), (3599, "60 min"), (7500, "2 h 5 min")])
def test_times_are_rounded_up(seconds, text):
    assert duration(seconds) == text
