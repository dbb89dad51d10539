"""A cell of a table is trained once, continued where it stopped, and says what it took."""

import json
import os
import signal
import sys
import threading
import time

import pytest


@pytest.fixture(name="cells", scope="module")
def fixture_cells(script):
    return script("cells")


def test_what_is_done_is_not_done_again(cells, tmp_path, monkeypatch):
    folder, calls = tmp_path / "cell", []
    monkeypatch.setattr(cells, "call", lambda folder, what, *words, **_: not calls.append([what, words[0], words[1:]]))
    train, evaluate = ["--method=dp_merf"], ["--metrics=utility"]
    cells.fill(folder, train, evaluate)
    assert [call[:2] for call in calls] == [["training", "train"], ["evaluation", "evaluate"]]
    assert calls[0][2] == (f"--output_dir={folder}", *train) and calls[1][2] == (f"--samples={folder}", *evaluate)
    folder.mkdir()
    (folder / "config.json").touch()  # A run that was killed before it had a ledger starts again.
    for file, expected in (("ledger.jsonl", [("--resume", f"--output_dir={folder}", *train),
                                            (f"--samples={folder}", *evaluate)]),
                           ("privacy.json", [(f"--samples={folder}", *evaluate)]),
                           ("private/evaluation/metrics.json", [])):
        (folder / file).parent.mkdir(parents=True, exist_ok=True)
        (folder / file).write_text("{}")
        calls.clear()
        assert cells.fill(folder, train, evaluate)
        assert [call[2] for call in calls] == expected


def test_costs_add_up_and_a_failure_ends_the_script_with_its_status(cells, tmp_path):
    for sitting in (1, 2):
        with pytest.raises(SystemExit) as error:
            cells.call(tmp_path / "cell", "training", "train", "--method=none_such")
        known = json.loads((tmp_path / "costs" / "cell.json").read_text())["training"]
        assert error.value.code == 2 and known["sittings"] == sitting and known["peak_memory_gib"] > 0
        assert known["seconds"] >= known["processor_seconds"] / 2 > 0.01 * sitting


def test_costs_of_a_run_that_was_deleted_are_forgotten(cells, tmp_path, monkeypatch):
    for folder, kept in ((tmp_path / "deleted", False), (tmp_path / "begun", True)):
        (tmp_path / "costs").mkdir(exist_ok=True)
        (tmp_path / "costs" / f"{folder.name}.json").write_text('{"training": {"seconds": 7.0}}')
        if kept:
            folder.mkdir()
        monkeypatch.setattr(cells, "call", lambda *_, **__: True)
        cells.fill(folder, ["--method=dp_merf"], [])
        assert bool(cells.costs_of(folder)) == kept


SLEEPER = """#!/bin/sh
exec {python} -c "
import signal, sys, time
signal.signal(signal.SIGINT, lambda *_: sys.exit(130))
print('ready', file=open('{ready}', 'w'), flush=True)
time.sleep(60)"
"""


@pytest.fixture(name="sleeper")
def fixture_sleeper(cells, tmp_path, monkeypatch):
    """A program that takes a minute, unless SIGINT asks it to stop; its file says that it has begun."""
    program, ready = tmp_path / "python", tmp_path / "ready"
    program.write_text(SLEEPER.format(python=sys.executable, ready=ready))
    program.chmod(0o755)
    monkeypatch.setattr(cells.sys, "executable", str(program))
    return ready


def test_training_that_takes_too_long_is_stopped_and_not_evaluated(cells, sleeper, tmp_path):
    start = time.monotonic()
    assert not cells.fill(tmp_path / "cell", ["--method=dp_merf"], [], max_minutes=0.05)
    assert 3 <= time.monotonic() - start < 50 and sleeper.exists()
    costs = cells.costs_of(tmp_path / "cell")
    assert costs["training"]["seconds"] >= 3 and "evaluation" not in costs
    sleeper.unlink()
    (tmp_path / "cell").mkdir()  # As a training does.
    assert not cells.fill(tmp_path / "cell", [], [], max_minutes=0.05)  # Its minutes are used up.
    assert not sleeper.exists()


@pytest.fixture(name="interruptible")
def fixture_interruptible():
    """SIGINT interrupts, also where tests were started in the background of a shell, which has it ignored."""
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    yield
    signal.signal(signal.SIGINT, before)


@pytest.mark.usefixtures("interruptible")
def test_a_signal_is_passed_on_and_ends_the_script(cells, sleeper, tmp_path):
    def interrupt():
        while not sleeper.exists():
            time.sleep(0.05)
        os.kill(os.getpid(), signal.SIGINT)

    threading.Thread(target=interrupt).start()
    with pytest.raises(KeyboardInterrupt):
        cells.fill(tmp_path / "cell", [], [])
    assert cells.costs_of(tmp_path / "cell")["training"]["sittings"] == 1
