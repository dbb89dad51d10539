"""Charge, draw, store, use; stop before the budget; resume to the same bits, whatever was interrupted."""

import dataclasses
import json
import os
import shutil
import signal
import subprocess
import sys
import time
import zlib

import numpy as np
import pytest

from datalens_tf import _files
from datalens_tf.accounting import accountants
from datalens_tf.accounting.ledger import PrivacyLedger
from datalens_tf.errors import (
    BudgetExhaustedError,
    CheckpointError,
    DataLensError,
    InterruptionWarning,
    LedgerError,
    TrainingInterrupted,
)
from datalens_tf.mechanisms.noise import InsecureSeededNoise, RoundedGaussianNoise, SecureGaussianNoise, noise_source
from datalens_tf.options import PerformanceOptions
from datalens_tf.training import checkpoint, run_folder
from datalens_tf.training.callbacks import Callback
from datalens_tf.training.trainer import Trainer, replay
from tests import ledgers
from tests.training import tiny
from tests.training.tiny import released_bytes

CONFIG = tiny.CONFIG
EVERY_STEP = PerformanceOptions(checkpoint_minutes=0)
NEVER = PerformanceOptions(checkpoint_minutes=1e6)
IN_FILE = PerformanceOptions(checkpoint_minutes=1e6, bank_memory_gb=0)
IN_FILE_EVERY_STEP = PerformanceOptions(checkpoint_minutes=0, bank_memory_gb=0)


class Stop(Callback):
    """Interrupts after a given step."""

    def __init__(self, step):
        self.step, self.trainer = step, None

    def on_step(self, report):
        if report.step == self.step:
            self.trainer.request_stop()


def train(run_dir, config=CONFIG, options=NEVER, stop_after=None, data=None, **kwargs):
    stop = Stop(stop_after)
    trainer = Trainer(config, data or tiny.dataset(), run_dir, options=options, callbacks=[stop], **kwargs)
    stop.trainer = trainer
    return trainer, trainer.run()


@pytest.fixture(name="reference", scope="module")
def fixture_reference(tmp_path_factory):
    """An uninterrupted run."""
    run_dir = tmp_path_factory.mktemp("reference")
    trainer, student = train(run_dir)
    return trainer, released_bytes(student)


@pytest.fixture(name="stopped_once", scope="module")
def fixture_stopped_once(tmp_path_factory):
    """Folder of a run that was stopped after step 2. Not to be changed."""
    run_dir = tmp_path_factory.mktemp("stopped") / "run"
    with pytest.raises(TrainingInterrupted):
        train(run_dir, stop_after=2)
    return run_dir


@pytest.fixture(name="stopped")
def fixture_stopped(stopped_once, tmp_path):
    """A copy of it, to be changed."""
    return shutil.copytree(stopped_once, tmp_path / "stopped")


@pytest.fixture(name="finished")
def fixture_finished(reference, tmp_path):
    """A copy of the folder of the uninterrupted run."""
    return shutil.copytree(reference[0].folder.path, tmp_path / "finished")


def test_every_step_is_charged_once_and_the_budget_is_kept(reference):
    trainer, _ = reference
    ledger = PrivacyLedger.open(trainer.folder.ledger)
    assert [charge.step for charge in ledger.charges] == [1, 2, 3, 4, 5]
    assert all(charge.event == trainer.event for charge in ledger.charges)
    assert ledger.spent() <= CONFIG.epsilon
    assert trainer.num_burnt == 0


def test_training_stops_before_the_budget_is_exceeded(tmp_path):
    trainer, _ = train(tmp_path, CONFIG.replace(num_steps=None, epsilon=1.5, warmup_teacher_steps=0))
    spent = trainer.ledger.spent()
    assert spent <= 1.5
    assert not trainer.ledger.can_spend(trainer.event)
    assert len(trainer.ledger.charges) == trainer.planned_steps > 0


def test_burnt_charges_end_a_run_early_and_that_is_told_at_once(tmp_path):
    config = CONFIG.replace(num_steps=None, epsilon=1.5, warmup_teacher_steps=0)
    with pytest.raises(TrainingInterrupted):
        train(tmp_path, config, stop_after=1)
    ledger = PrivacyLedger.open(tmp_path / "ledger.jsonl")
    ledger.spend(ledger.step_event, step=2)
    planned = accountants.max_steps(ledger.step_event, 1.5, 1e-5, "gdp")
    with pytest.warns(InterruptionWarning, match=f"^1 of 2 charges .* ends after {planned - 1} of {planned} steps"):
        trainer, _ = train(tmp_path, config)
    assert len(trainer.releases) == planned - 1 and trainer.ledger.spent() <= 1.5


def test_a_budget_that_pays_for_nothing_is_refused_before_anything_is_written(tmp_path):
    with pytest.raises(BudgetExhaustedError, match="does not pay for a single step"):
        Trainer(CONFIG.replace(epsilon=0.01), tiny.dataset(), tmp_path / "run")
    assert not (tmp_path / "run").exists()


def test_the_charge_is_on_disk_before_the_noise_is_drawn_and_the_sum_before_it_is_used(tmp_path):
    class Watching(InsecureSeededNoise):
        def draw(self, shape, stddev, index):
            charges = PrivacyLedger.open(tmp_path / "ledger.jsonl").charges
            assert [charge.index for charge in charges] == list(range(index + 1))
            assert len(list((tmp_path / "private" / "releases").glob("*.npz"))) == index
            return super().draw(shape, stddev, index)

    trainer, _ = train(tmp_path, noise=Watching(3))
    assert len(trainer.releases) == 5


def test_a_trainer_that_comes_second_knows_what_the_first_has_charged(tmp_path):
    first, second = (Trainer(CONFIG, tiny.dataset(), tmp_path) for _ in range(2))
    first.run()
    second.run()
    assert second.ledger.charges == first.ledger.charges and second.ledger.spent() == first.ledger.spent() > 0


@pytest.mark.parametrize("options", [
    EVERY_STEP, *(pytest.param(options, marks=pytest.mark.slow) for options in (NEVER, IN_FILE, IN_FILE_EVERY_STEP))])
def test_interrupted_and_resumed_equals_uninterrupted(tmp_path, reference, options):
    for step in (1, 3):
        with pytest.raises(TrainingInterrupted, match="--resume"):
            train(tmp_path, options=options, stop_after=step)
    trainer, student = train(tmp_path, options=options)
    assert released_bytes(student) == reference[1]
    assert len(trainer.ledger.charges) == 5


@pytest.mark.slow
def test_the_warm_up_can_be_interrupted_and_resumed(tmp_path):
    config, seen = CONFIG.replace(warmup_teacher_steps=12, num_steps=1), []

    class StopInWarmUp(Stop):
        def on_progress(self, what, fraction):
            seen.append((what, round(12 * fraction)))
            if what == "warm-up" and fraction < 0.5:
                self.trainer.request_stop()

    stop = StopInWarmUp(None)
    stop.trainer = Trainer(config, tiny.dataset(), tmp_path / "stopped", callbacks=[stop])
    with pytest.raises(TrainingInterrupted, match="after step 0 of 1"):
        stop.trainer.run()
    assert max(seen) == ("warm-up", 5)
    assert not PrivacyLedger.open(tmp_path / "stopped" / "ledger.jsonl").charges
    _, resumed = train(tmp_path / "stopped", config)
    _, whole = train(tmp_path / "whole", config)
    assert released_bytes(resumed) == released_bytes(whole)


def test_without_any_snapshot_the_state_is_computed_again_from_stored_releases(stopped, reference):
    for snapshot in (stopped / "private" / "checkpoints").iterdir():
        shutil.rmtree(snapshot)
    trainer, student = train(stopped)
    assert released_bytes(student) == reference[1]
    assert len(trainer.ledger.charges) == 5


def test_the_student_can_be_replayed_from_releases_alone(reference):
    trainer, expected = reference
    student = replay(CONFIG, trainer.mechanism, trainer.releases, 5)
    assert released_bytes(student) == expected
    with pytest.raises(CheckpointError, match="the last is step 5"):
        replay(CONFIG, trainer.mechanism, trainer.releases, 6)


def test_a_charge_without_a_stored_sum_is_burnt_and_never_drawn_again(tmp_path):
    indices = []

    class Recording(InsecureSeededNoise):
        def draw(self, shape, stddev, index):
            indices.append(index)
            return super().draw(shape, stddev, index)

    with pytest.raises(TrainingInterrupted):
        train(tmp_path, stop_after=2, noise=Recording(3))
    ledger = PrivacyLedger.open(tmp_path / "ledger.jsonl")
    ledger.spend(ledger.step_event, step=3)  # Death between charge and store.
    trainer, _ = train(tmp_path, noise=Recording(3))
    assert indices == [0, 1, 3, 4, 5]
    assert trainer.num_burnt == 1 and len(trainer.ledger.charges) == 6


def test_epsilon_is_a_function_of_the_configuration_only(tmp_path, reference):
    other, _ = train(tmp_path, data=tiny.dataset(seed=1))
    assert other.ledger.spent() == reference[0].ledger.spent()


@pytest.mark.parametrize("kind, source", [("rounded_gaussian", RoundedGaussianNoise),
                                          ("gaussian", SecureGaussianNoise)])
def test_seeding_everything_twice_gives_equal_weights_but_different_noise(tmp_path, kind, source):
    # So much noise that two equal integers are rare: each with probability below 1e-4.
    config = CONFIG.replace(insecure_noise_seed=None, num_steps=1, noise=kind, noise_stddev=5000.0)
    assert isinstance(noise_source(config), source)
    sums = []
    for name in "ab":
        np.random.seed(1)
        trainer, _ = train(tmp_path / name, config)
        sums.append(trainer.releases.load(1))
    difference = sums[0] - sums[1]  # Equal vote sums cancel: what remains is noise on every coordinate.
    assert np.mean(difference != 0) > 0.95 and difference.std() > 0.8 * 5000
    integers = [np.array_equal(released, np.rint(released)) for released in sums]
    assert all(integers) if kind == "rounded_gaussian" else not any(integers)


def test_another_configuration_or_data_set_is_refused(finished):
    with pytest.raises(CheckpointError, match="another configuration"):
        train(finished, CONFIG.replace(vote_threshold=0.4))
    with pytest.raises(CheckpointError, match="other records"):
        train(finished, data=tiny.dataset(seed=9))


def test_damaged_snapshot_release_and_ledger_are_one_clear_error(stopped):
    snapshot = next((stopped / "private" / "checkpoints").glob("step-*")) / "teachers-003.bin"
    content = snapshot.read_bytes()
    for damage in (content[:-1], content[:-1] + bytes([content[-1] ^ 1])):
        snapshot.write_bytes(damage)
        with pytest.raises(CheckpointError, match="Damaged checkpoint .*teachers-003.bin"):
            train(stopped)
    snapshot.write_bytes(content)
    release = stopped / "private" / "releases" / "000001.npz"
    whole = release.read_bytes()
    release.write_bytes(whole[:100])
    with pytest.raises(CheckpointError, match="000001.npz"):
        train(stopped)
    release.write_bytes(whole)
    ledger = stopped / "ledger.jsonl"
    lines = ledger.read_text().splitlines(keepends=True)
    ledger.write_text("".join([lines[0], lines[1].replace('"step": 1', '"step": 7'), *lines[2:]]))
    with pytest.raises(LedgerError, match="line 2"):
        train(stopped)


@pytest.mark.slow
def test_teachers_in_memory_and_in_a_file_give_the_same_generator_but_not_in_one_run(tmp_path, reference):
    _, student = train(tmp_path / "file", options=IN_FILE)
    assert released_bytes(student) == reference[1]
    for name, options in (("a", (NEVER, IN_FILE)), ("b", (IN_FILE, NEVER))):
        with pytest.raises(TrainingInterrupted):
            train(tmp_path / name, stop_after=2, options=options[0])
        with pytest.raises(CheckpointError, match="bank_memory_gb"):
            train(tmp_path / name, options=options[1])


@pytest.mark.parametrize("left", ["releases", "checkpoints"])
@pytest.mark.parametrize("loss", ledgers.LOSSES)
def test_a_ledger_that_lost_charges_is_refused(stopped, loss, left):
    """Stored sums know their charges, and so do snapshots, whichever of them is left."""
    for other in {"releases", "checkpoints"} - {left}:
        shutil.rmtree(stopped / "private" / other)
    ledgers.lose(stopped / "ledger.jsonl", loss)
    with pytest.raises(LedgerError, match=r"ledger\.jsonl .*put the run's newest ledger back"):
        train(stopped)


def test_an_interrupted_run_of_an_older_version_continues(stopped, reference):
    """Its ledger has no ids, and its snapshots and stored sums name no head."""
    ledgers.as_version_1(stopped / "ledger.jsonl")
    for path in (stopped / "private" / "releases").glob("*.npz"):
        arrays = _files.read_npz(path, _files.at_most(2**20))
        del arrays["ledger_head"]
        path.write_bytes(_files.npz_bytes(arrays))
    (path,) = (stopped / "private" / "checkpoints").glob("step-*/meta.json")
    meta = {name: value for name, value in json.loads(path.read_text()).items()
            if name not in ("ledger_head", "checksum")}
    path.write_text(json.dumps(meta | {"checksum": zlib.crc32(json.dumps(meta, sort_keys=True).encode())}))
    _, student = train(stopped)
    assert released_bytes(student) == reference[1]
    (stopped / "ledger.jsonl").write_bytes(PrivacyLedger.read(stopped / "ledger.jsonl").until(1).content)
    with pytest.raises(LedgerError, match="lacks charges"):
        train(stopped)


def test_private_folder_is_closed_to_others_and_the_run_folder_is_locked(finished):
    trainer = Trainer(CONFIG, tiny.dataset(), finished)
    assert (finished / "private").stat().st_mode & 0o777 == 0o700
    with run_folder.exclusive(finished):
        before = trainer.folder.ledger.read_bytes()
        trainer.folder.ledger.write_bytes(before[:-9])  # As another process in the middle of a write leaves it.
        for attempt in (trainer.run, lambda: train(finished)):
            with pytest.raises(CheckpointError, match="in use by another process"):
                attempt()
        assert trainer.folder.ledger.read_bytes() == before[:-9]  # Not repaired under the writer.


def test_a_clock_that_jumps_changes_nothing(tmp_path, reference, monkeypatch):
    stream = np.random.default_rng(0)
    monkeypatch.setattr(time, "time", lambda: float(stream.uniform(0, 4e9)))
    trainer, student = train(tmp_path)
    assert released_bytes(student) == reference[1] and trainer.ledger.charges == reference[0].ledger.charges


def test_unwritable_folder_is_one_clear_error(tmp_path):
    (tmp_path / "file").write_text("")
    with pytest.raises(DataLensError, match="Cannot write"):
        Trainer(CONFIG, tiny.dataset(), tmp_path / "file" / "run")


class Burn(Callback):
    """Makes charges without a release: index of the charge -> its step, None where a crash left it unreadable."""

    def __init__(self, burnt):
        self.burnt, self.trainer = burnt, None

    def on_progress(self, what, fraction):
        ledger = self.trainer.ledger
        while what.startswith("step") and fraction == 1 and str(len(ledger.charges)) in self.burnt:
            ledger.spend(self.trainer.event, step=self.burnt[str(len(ledger.charges))] or 0)


# A process of its own for every run: the number of threads, which a process fixes once, decides the last bits.
CHILD = """
import json, pathlib, sys
from datalens_tf.training.trainer import Trainer
from tests.training import tiny, trainer_test
folder, burnt, options = pathlib.Path(sys.argv[1]), json.loads(sys.argv[2]), getattr(trainer_test, sys.argv[3])
burn = trainer_test.Burn(burnt)
burn.trainer = Trainer(tiny.CONFIG.replace(num_steps=12), tiny.dataset(), folder, callbacks=[burn],
                       options=options)
(folder / "done").write_bytes(tiny.released_bytes(burn.trainer.run()))
"""


def start(folder, burnt, options):
    """The child process that trains in the folder."""
    return subprocess.Popen(
        [sys.executable, "-c", CHILD, str(folder), json.dumps(burnt), options], stderr=subprocess.PIPE,
        env={**os.environ, "PYTHONPATH": os.pathsep.join(sys.path), "TF_CPP_MIN_LOG_LEVEL": "3"})


@pytest.mark.parametrize("options,kills", [("EVERY_STEP", 3), ("IN_FILE", 1)])
@pytest.mark.slow
def test_sigkill_at_random_moments_loses_no_charge_and_changes_no_bit(tmp_path, options, kills):
    """SIGKILL; then the generator equals that of an uninterrupted run with the same burnt charges."""
    killed, whole = tmp_path / "killed", tmp_path / "whole"
    lines, random = 0, np.random.default_rng()
    for kill in [True] * kills + [False]:
        child = start(killed, {}, options)
        if kill:
            deadline = time.monotonic() + 120
            while _num_lines(killed / "ledger.jsonl") < lines + 2 and time.monotonic() < deadline:
                time.sleep(0.001)
            time.sleep(random.uniform(0, 0.2))
            child.send_signal(signal.SIGKILL)
        _, errors = child.communicate()
        assert child.returncode == (-signal.SIGKILL if kill else 0), errors.decode()
        now = _num_lines(killed / "ledger.jsonl")
        assert now >= lines  # No charge is ever lost.
        lines = now
    ledger = PrivacyLedger.open(killed / "ledger.jsonl")
    store = checkpoint.ReleaseStore(killed / "private" / "releases")
    used = store.charges()
    assert len(used) == len(store) == 12  # No charge pays for two releases.

    burnt = {charge.index: charge.step for charge in ledger.charges if charge.index not in used}
    child = start(whole, burnt, "NEVER")
    _, errors = child.communicate()
    assert child.returncode == 0, errors.decode()
    assert (whole / "done").read_bytes() == (killed / "done").read_bytes()
    assert PrivacyLedger.open(whole / "ledger.jsonl").spent() == ledger.spent()


def _num_lines(path):
    return path.read_bytes().count(b"\n") if path.exists() else 0


def test_a_record_whose_teacher_diverges_changes_no_charge_and_stops_no_run(tmp_path, reference):
    data = tiny.dataset()
    data = dataclasses.replace(data, images=data.images / np.float32(255))
    data.images[0] = np.nan  # The checks of a data set come before; what else makes a loss infinite is not known.
    trainer = Trainer(CONFIG, data, tmp_path, options=NEVER)
    trainer.run()
    assert trainer.ledger.charges == reference[0].ledger.charges and trainer.num_burnt == 0


def test_only_the_private_folder_knows_losses_on_records(reference):
    trainer, _ = reference
    public = [path for path in trainer.folder.path.rglob("*")
              if path.is_file() and trainer.folder.private not in path.parents]
    assert {path.name for path in public} == {"config.json", "ledger.jsonl"}
    assert "loss" not in trainer.folder.ledger.read_text()
    assert json.loads(trainer.folder.config.read_text())["num_teachers"] == CONFIG.num_teachers
