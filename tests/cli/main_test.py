"""What all commands share: usage, help, errors in one line, exit statuses."""

import os
import pathlib
import re

import pytest

from datalens_tf import cli, errors
from datalens_tf.data import registry
from datalens_tf.serving.client import ServerError
from tests.cli.commands import TINY, refused


@pytest.mark.parametrize("words", [[], ["nope"], ["train"], ["sample", "--model=x"], ["evaluate"], ["export"],
                                   ["privacy"], ["evaluate", "--samples=x", "--metrics=nope"], ["train", "stray"]])
def test_usage_is_refused_in_one_line(words, datalens):
    refused(datalens(*words))


def test_a_bug_is_one_line_and_a_traceback_on_demand(tmp_path, datalens, monkeypatch):
    def bug(*args, **kwargs):
        raise RuntimeError("first line\nsecond line")

    monkeypatch.setattr(registry, "load_dataset", bug)
    words = "train", "--dataset=digits", "--output_dir", tmp_path / "run", *TINY
    refused(datalens(*words), "internal error: RuntimeError: first line second line", "--debug", status=1)
    status, _, err = datalens(*words, "--debug")
    assert status == 1 and "Traceback" in err and "in bug" in err


@pytest.mark.parametrize("words", [
    ("sample", "--model=checkpoints/mnist_eps1", "--num_samples=1000000000000000", "--output=x.npz"),
    ("privacy", "--preset=mnist", "--delta=5e-324"), ("privacy", "--num_steps=1" + "0" * 60),
    ("plan", "--num_teachers=4000", "--dimension=1000000000000", "--epsilon=1"),
    ("plan", "--num_teachers=4000", "--dimension=784", "--epsilon=1", "--tail_shape=5e-324"),
    ("audit", "--preset=mnist", "--trials=1000000000000"),
    ("evaluate", "--samples=x.npz", "--dataset=digits", "--output_dir=x", "--epochs=1000000000000"),
])
def test_absurd_numbers_are_one_line(words, datalens, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    refused(datalens(*words), "Expected", "to be at")
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize("error", [MemoryError(), type("ResourceExhaustedError", (Exception,), {})("OOM")])
def test_too_little_memory_is_one_line(error, tmp_path, datalens, monkeypatch):
    def full(*args, **kwargs):
        raise error

    monkeypatch.setattr(registry, "load_dataset", full)
    refused(datalens("train", "--dataset=digits", "--output_dir", tmp_path / "run", *TINY), "more memory than there is")


@pytest.mark.parametrize("error, status", [
    (errors.DataLensError("x"), 2), (errors.InvalidArgumentError("x"), 2), (errors.DataError("x"), 2),
    (errors.CheckpointError("x"), 2), (errors.LedgerError("x"), 2), (errors.BudgetExhaustedError("x"), 3),
    (errors.TrainingDivergedError("x"), 1), (errors.ActorError("x"), 1), (ServerError("x"), 1),
    (errors.TrainingInterrupted("x"), 130), (KeyboardInterrupt(), 130), (RuntimeError("x"), 1), (MemoryError(), 2),
    (OSError(28, "No space left on device", "file"), 2)])
def test_every_error_has_a_documented_exit_status(error, status, tmp_path, datalens, monkeypatch):
    def fail(*args, **kwargs):
        raise error

    monkeypatch.setattr(registry, "load_dataset", fail)
    refused(datalens("train", "--dataset=digits", "--output_dir", tmp_path / "run", *TINY), status=status)
    assert status in cli.EXIT_STATUSES


def test_help_and_readme_know_every_exit_status(capsys):
    with pytest.raises(SystemExit):
        cli.main(["--help"])
    said = " ".join(capsys.readouterr().out.split())
    readme = " ".join((pathlib.Path(__file__).parents[2] / "README.md").read_text().split())
    for status, text in cli.EXIT_STATUSES.items():
        assert f"{status} {text}" in said and re.search(rf"Exit status: [^.]*\b{status} ", readme)


def test_what_fuzzing_found(capsys):
    assert cli.main(["evaluate", "--samples", 300 * "a"]) == 2
    error = capsys.readouterr().err
    assert "File name too long" in error and len(error.strip().splitlines()) == 1
    assert cli.main(["privacy", "--num_steps=1", "--noise_stddev=1e-12"]) == 0  # No privacy at all, and it says so.
    assert re.search(r"^gdp +inf$", capsys.readouterr().out, re.MULTILINE)
    assert cli.main(["compare", "--stderrthreshold=nothing", "."]) == 2
    assert "stderrthreshold" in capsys.readouterr().err


@pytest.mark.parametrize("cores, threads", [({3}, "2"), ({0, 3}, None)])
def test_one_core_gets_two_threads_for_operations(cores, threads, datalens, monkeypatch):
    # With one thread TensorFlow 2.15 sometimes waits for ever in `Model.fit`.
    monkeypatch.setattr(os, "sched_getaffinity", lambda process: cores)
    # Set first, so that it is undone.
    monkeypatch.setenv("TF_NUM_INTEROP_THREADS", "7")
    monkeypatch.delenv("TF_NUM_INTEROP_THREADS")
    refused(datalens("train"), "")
    assert os.environ.get("TF_NUM_INTEROP_THREADS") == threads
    monkeypatch.setenv("TF_NUM_INTEROP_THREADS", "7")
    refused(datalens("train"), "")
    assert os.environ["TF_NUM_INTEROP_THREADS"] == "7"
