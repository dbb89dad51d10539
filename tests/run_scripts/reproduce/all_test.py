"""The queue does every run of its list once, goes on after whatever stops it, and says what it could not do."""

import collections
import contextlib
import dataclasses
import json
import os
import pathlib
import signal
import subprocess
import sys
import time

import pytest

from datalens_tf import cli
from datalens_tf.errors import LedgerError

FOLDER = pathlib.Path(__file__).parents[3] / "run_scripts" / "reproduce"


@pytest.fixture(name="queue", scope="module")
def fixture_queue(script):
    return script("all")


@pytest.fixture(name="cells", scope="module")
def fixture_cells(script):
    return script("paper_tables").cells()


class TestList:

    def test_no_run_is_in_it_twice(self, cells):
        assert len(cells) == len({cell.name for cell in cells}) > 300
        trained = [cell.train for cell in cells if cell.export_of is None]
        assert len(trained) == len(set(trained))

    def test_table_1_is_complete(self, cells):
        """Every method of the paper, and two of ours, on all five data sets; some in colour at epsilon 10 alone."""
        mine = [cell for cell in cells if "1" in cell.tables and cell.export_of is None]
        table = collections.Counter((cell.method, cell.dataset, cell.epsilon) for cell in mine)
        expected = {}
        for dataset, seeds in (("mnist", 3), ("fashion_mnist", 3), ("celeba_gender", 1), ("celeba_hair", 1),
                               ("places365", 1)):
            expected["dcgan", dataset, None] = seeds
            for method in ("dp_gan", "dp_merf", "gs_wgan", "pate_gan", "g_pate", "datalens", "datalens_plus"):
                few = seeds == 1 and method in ("gs_wgan", "pate_gan", "g_pate")
                expected |= {(method, dataset, epsilon): seeds for epsilon in ((10.0,) if few else (1.0, 10.0))}
        assert table == expected

    def test_what_nothing_else_changes_comes_first_and_colour_last(self, cells):
        methods = list(dict.fromkeys(cell.method for cell in cells if cell.export_of is None))
        assert methods[:4] == ["dcgan", "gs_wgan", "pate_gan", "g_pate"]
        assert methods[4:8] == ["dp_gan", "dp_merf", "datalens", "datalens_plus"]
        colour = [cell.dataset in ("celeba_gender", "celeba_hair", "places365") for cell in cells]
        assert colour == sorted(colour) and all(cell.max_minutes for cell, is_colour in zip(cells, colour) if is_colour)

    def test_what_a_run_waits_for_is_in_the_list_before_it(self, cells):
        names = [cell.name for cell in cells]
        waiting = [cell for cell in cells if cell.export_of is not None]
        released = [cell for cell in waiting if (FOLDER.parents[1] / cell.export_of / "config.json").exists()]
        assert (len(waiting), len(released)) == (96, 22)
        for cell in waiting:
            assert cell in released or names.index(cell.export_of) < names.index(cell.name)

    def test_tables_of_few_teachers_have_the_papers_noise_for_each(self, cells, script):
        """Sigma / N is 5,000 / 4,000 on digits, so that epsilon is 14.45 and not 1."""
        base = [cell for cell in cells if set(cell.tables) == {"4", "5", "7"} and cell.dataset == "mnist"]
        assert len(base) == 3 and {cell.epsilon for cell in base} == {14.45}
        for cell in base:
            flags = dict(flag.removeprefix("--").split("=") for flag in cell.train if "=" in flag)
            assert int(flags["num_teachers"]) == 400 and abs(float(flags["noise_stddev"]) / 400 - 1.25) < 0.001

    @pytest.mark.parametrize("method", ["dcgan", "gs_wgan", "pate_gan", "g_pate", "dp_gan", "dp_merf", "datalens",
                                        "datalens_plus", "d2pfed", "fetchsgd"])
    def test_the_program_knows_all_flags(self, cells, method):
        train = cli.command_parser("train", ["--method", method])
        mine = [cell for cell in cells if cell.method == method]
        assert mine
        for flags in {cell.train for cell in mine if cell.export_of is None}:
            train.parse_args([*flags, "--output_dir=x"])
        for flags in {cell.export for cell in mine}:
            cli.command_parser("export", []).parse_args([*flags, "--run_dir=x", "--output_dir=x"])
        for flags in {cell.evaluate for cell in mine}:
            cli.command_parser("evaluate", []).parse_args([*flags, "--samples=x"])

    def test_every_run_has_an_estimate(self, cells, script):
        assert all(10 < script("paper_tables").estimate(cell) < 250 for cell in cells)


@pytest.fixture(name="trained")
def fixture_trained(cells):
    return [cell for cell in cells if cell.export_of is None]


@pytest.fixture(name="done")
def fixture_done(queue, monkeypatch):
    """Names of the runs that were kept; training and evaluation are replaced by what `outcome` says of a run."""
    kept, outcome = [], {}

    def fill(folder, train, evaluate, max_minutes, fds):
        found = outcome.get(folder.name, True)
        if isinstance(found, BaseException):
            raise found
        return found

    monkeypatch.setattr(queue, "fill", fill)
    monkeypatch.setattr(queue.kept_runs, "keep", lambda cell, folder, results: kept.append(cell.name))
    monkeypatch.setattr(queue.kept_runs, "write", lambda results: None)
    return kept, outcome


def test_a_run_that_fails_or_is_stopped_holds_up_no_other(queue, trained, done, tmp_path, monkeypatch):
    kept, outcome = done
    first, second, third, fourth = (dataclasses.replace(cell, max_minutes=60.0) for cell in trained[:4])
    outcome |= {first.name: SystemExit(3), second.name: False}
    keep = queue.kept_runs.keep

    def refuse(cell, folder, results):
        if cell is third:
            raise LedgerError("It promises more.")
        keep(cell, folder, results)

    monkeypatch.setattr(queue.kept_runs, "keep", refuse)
    found = queue.work([first, second, third, fourth], tmp_path, None, 0)
    assert kept == [fourth.name]
    assert found == {first.name: "failed with exit status 3", second.name: "training was stopped after 60 minutes",
                     third.name: "is not kept: It promises more."}


def test_teachers_of_a_kept_run_are_deleted_and_its_releases_are_not(queue, trained, done, tmp_path):
    private = tmp_path / trained[0].name / "private"
    for name in ("checkpoints", "releases", "evaluation"):
        (private / name).mkdir(parents=True)
    (private / "teachers.bin").touch()
    assert queue.work(trained[:1], tmp_path, None, 0) == {} and done[0] == [trained[0].name]
    assert sorted(path.name for path in private.iterdir()) == ["evaluation", "releases"]


def test_missing_runs_are_those_without_results_and_what_they_are_made_of(queue, cells, tmp_path):
    run, *earlier = (cell for cell in cells if "datalens_mnist_eps1_seed0" in (cell.name, cell.export_of))
    others = [cell for cell in cells if cell.method == "dcgan"]
    assert queue.missing([run, *earlier, *others], tmp_path) == [run, *earlier, *others]

    def keep(cell):
        (tmp_path / "runs" / cell.name).mkdir(parents=True)
        (tmp_path / "runs" / cell.name / "measured.json").touch()

    for cell in (run, *others):
        keep(cell)
    assert queue.missing([run, *earlier, *others], tmp_path) == [run, *earlier]
    for cell in earlier:
        keep(cell)
    assert queue.missing([run, *earlier, *others], tmp_path) == []


def test_an_earlier_generator_waits_for_its_run(queue, cells, done, tmp_path):
    cell = next(cell for cell in cells if cell.name == "datalens_mnist_eps0.2_seed0")
    assert queue.work([cell], tmp_path, None, 0) == {cell.name: f"waits for {cell.export_of}"}
    assert not done[0]


def test_released_generators_are_judged_by_other_networks_under_their_own_budget(queue, cells, script):
    found = [cell for cell in cells if cell.tables == ("networks",)]
    assert len(found) == 12 and found[0].name == "residual_cifar10_plus_eps1"
    kept_runs = script("kept_runs")
    for cell in found:
        config = json.loads((FOLDER.parents[1] / cell.export_of / "config.json").read_text())
        assert (config["dataset"], config["epsilon"], config["seed"]) == (cell.dataset, cell.epsilon, cell.seed)
        assert f"--protocol={cell.name.split('_')[0]}" in cell.evaluate and not kept_runs._is_usual(cell.variant)


def test_the_paper_s_protocol_judges_table_1_and_what_is_released(cells):
    """A tenth of its epochs for every grey cell of the first seed; all of them for DataLens' released generators."""
    found = {cell.name: cell for cell in cells if cell.tables == ("paper",)}
    judged = {cell.name for cell in cells if "1" in cell.tables and cell.seed == 0 and cell.dataset.endswith("mnist")}
    released = {f"{how}_{dataset}_eps1" for how in ("posed", "released") for dataset in ("mnist", "fashion_mnist")}
    assert found.keys() == {f"paper_short_{name}" for name in judged | released} | {f"paper_{n}" for n in released}
    for name, cell in found.items():
        protocol = "paper-short" if name.startswith("paper_short") else "paper"
        assert f"--protocol={protocol}" in cell.evaluate and bool(cell.export) == ("posed" in name)


@pytest.mark.parametrize("name", ["datalens_mnist_eps0.8_seed0", "posed_mnist_eps1"])
def test_an_earlier_generator_has_spent_at_most_its_budget(queue, cells, script, tmp_path, monkeypatch, name):
    """The step that is exported is the last one that the smaller budget pays for; none where all are paid."""
    cell = next(cell for cell in cells if cell.name == name)
    called = []

    def call(folder, what, *words, pass_fds):
        called.append(words)
        if what == "export":
            (folder / "generator/1/assets.extra").mkdir(parents=True)
            (folder / "generator/1/assets.extra/privacy.json").write_text("{}")
        return True

    monkeypatch.setattr(queue, "call", call)
    run = FOLDER.parents[1] / "checkpoints" / "mnist_eps1"
    assert queue.export(cell, run, tmp_path / cell.name, 0)
    assert called[1][0] == "evaluate" and (tmp_path / cell.name / "privacy.json").exists()
    assert queue.export(cell, run, tmp_path / cell.name, 0)  # It was interrupted while it was evaluated.
    assert [words[0] for words in called] == ["export", "evaluate", "evaluate"]
    if cell.epsilon == 1:
        assert called[0][3:] == ("--output_warp=1.5", "--output_grain=0.5", "--output_choices=4")
        return
    step = int(called[0][-1].removeprefix("--step="))
    accountants = script("paper_tables").accountants
    event = queue.registry.config_from_json((run / "config.json").read_text()).step_event()
    spent = [accountants.epsilon(event, steps, 1e-5, "gdp", "replace-one") for steps in (step, step + 1)]
    assert spent[0] <= 0.8 < spent[1]


def test_costs_are_those_of_runs_that_are_done_or_kept_where_there_are_any(queue, cells, tmp_path, monkeypatch):
    monkeypatch.setattr(queue.kept_runs, "RESULTS", tmp_path / "results")
    mine = [cell for cell in cells if cell.method == "dcgan" and cell.dataset == "mnist" and cell.train]
    assert "estimate" in queue.cost(mine, tmp_path) and "3  " in queue.cost(mine, tmp_path)
    for cell, minutes in zip(mine, ({"training": 20.0, "evaluation": 6.0}, {"evaluation": 4.0})):
        kept = tmp_path / "results" / "runs" / cell.name / "measured.json"
        kept.parent.mkdir(parents=True)
        kept.write_text(json.dumps({"minutes": minutes}))
    assert queue.cost(mine, tmp_path).splitlines()[1].split() == ["dcgan", "grey", "3", "15", "0.8", "kept"]
    (tmp_path / mine[0].name).mkdir()
    (tmp_path / mine[0].name / "metrics.json").write_text("{}")
    (tmp_path / "costs").mkdir()
    (tmp_path / "costs" / f"{mine[0].name}.json").write_text(json.dumps(
        {"training": {"seconds": 5400}, "evaluation": {"seconds": 600}, "commit": "0"}))
    line, total = queue.cost(mine, tmp_path).splitlines()[1:]
    assert line.split() == ["dcgan", "grey", "2", "100", "3.3", "recorded"]
    assert total.split() == ["in", "all", "2", "3.3"]


QUEUE = """
import sys
sys.path.insert(0, {folder!r})
sys.argv = ["all.py", "--runs_dir", {runs!r}, "--only", "dcgan_mnist_*"]
import all as queue, cells
sys.executable = {program!r}
queue.kept_runs.keep = queue.kept_runs.write = lambda *_: None
sys.exit(queue.main())
"""
# Stands in for the program: trains in three steps, each of which lasts, and continues where it was.
PROGRAM = """#!/bin/sh
exec {python} - "$@" <<'END'
import pathlib, sys, time
words = sys.argv[3:]
folder = pathlib.Path(next(word.partition("=")[2] for word in words if word.startswith(("--output_dir", "--samples"))))
folder.mkdir(exist_ok=True)
log = open(folder / "log", "a")
if words[0] == "train":
    assert ("--resume" in words) == (folder / "ledger.jsonl").exists()
    (folder / "ledger.jsonl").touch()
    while (done := (folder / "log").read_text().count("step")) < 3:
        time.sleep(0.3)
        print("step", file=log, flush=True)
    (folder / "privacy.json").touch()
else:
    print("evaluated", file=log, flush=True)
    (folder / "metrics.json").touch()
END
"""


@pytest.mark.slow
def test_a_killed_queue_goes_on_where_it_was(tmp_path):
    program = tmp_path / "python"
    program.write_text(PROGRAM.format(python=sys.executable))
    program.chmod(0o755)
    runs = tmp_path / "runs"
    words = [sys.executable, "-c", QUEUE.format(folder=str(FOLDER), runs=str(runs), program=str(program))]
    environment = os.environ | {"PYTHONPATH": str(FOLDER.parents[1])}
    first = subprocess.Popen(words, env=environment, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    log = runs / "dcgan_mnist_epsnone_seed0" / "log"
    deadline = time.monotonic() + 120
    while not (log.exists() and "step" in log.read_text()):
        assert time.monotonic() < deadline and first.poll() is None
        time.sleep(0.05)
    first.kill()
    first.wait()
    # What it had started still works, and the next queue waits for it.
    second = subprocess.run(words, env=environment, capture_output=True, text=True, check=False, timeout=300)
    assert second.returncode == 0, second.stderr
    folders = sorted(runs.glob("dcgan_mnist_*"))
    assert len(folders) == 3
    for folder in folders:
        assert (folder / "log").read_text().split() == ["step"] * 3 + ["evaluated"]
    third = subprocess.run(words, env=environment, capture_output=True, text=True, check=False, timeout=300)
    assert third.returncode == 0 and "datalens" not in third.stderr  # There is nothing left to do.


def test_a_queue_that_is_asked_to_stop_says_how_to_continue(tmp_path):
    program = tmp_path / "python"
    program.write_text(PROGRAM.format(python=sys.executable))
    program.chmod(0o755)
    words = [sys.executable, "-c", QUEUE.format(folder=str(FOLDER), runs=str(tmp_path / "runs"), program=str(program))]
    queue = subprocess.Popen(words, env=os.environ | {"PYTHONPATH": str(FOLDER.parents[1])}, stdout=subprocess.PIPE,
                             stderr=subprocess.DEVNULL, text=True)
    log = tmp_path / "runs" / "dcgan_mnist_epsnone_seed0" / "log"
    while not log.exists() and queue.poll() is None:
        time.sleep(0.05)
    with contextlib.suppress(ProcessLookupError):
        queue.send_signal(signal.SIGTERM)
    printed, _ = queue.communicate(timeout=120)
    assert queue.returncode == 130 and printed.endswith("Stopped; the same command continues.\n")
