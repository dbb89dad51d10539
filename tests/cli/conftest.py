"""A command line in this process, and a run that it left."""

import dataclasses
import os
import shutil
import signal

import pytest

from datalens_tf import cli
from datalens_tf.training import classifier, progress
from tests.cli.commands import TINY, on_step


@pytest.fixture(autouse=True)
def no_progress(monkeypatch):
    """A busy machine would show it between the lines that are tested, once three seconds are over."""
    monkeypatch.setattr(progress, "FIRST_SECONDS", 1e9)


@pytest.fixture(name="datalens")
def fixture_datalens(capfd):
    """Runs a command line; returns exit status, stdout and stderr."""

    def run(*words):
        capfd.readouterr()
        status = cli.main([str(word) for word in words])
        return status, *capfd.readouterr()

    return run


@pytest.fixture(scope="package", name="interrupted")
def fixture_interrupted(tmp_path_factory):
    """A run folder of a run that was interrupted (SIGINT) in step 2 of 4, and its exit status. Not to be changed."""
    folder = tmp_path_factory.mktemp("runs") / "interrupted"
    with pytest.MonkeyPatch.context() as patch:
        on_step(patch, lambda step: step == 2 and os.kill(os.getpid(), signal.SIGINT))
        status = cli.main(["train", "--dataset=digits", f"--output_dir={folder}", *TINY])
    return folder, status


@pytest.fixture(scope="package", name="finished")
def fixture_finished(interrupted, tmp_path_factory):
    """The same run, resumed to its end. Not to be changed."""
    folder = shutil.copytree(interrupted[0], tmp_path_factory.mktemp("runs") / "finished")
    assert cli.main(["train", "--resume", f"--output_dir={folder}"]) == 0
    return folder


@pytest.fixture(name="small_protocol")
def fixture_small_protocol(monkeypatch):
    """300 images make an evaluation of a run quick."""
    monkeypatch.setattr(classifier, "FROZEN", dataclasses.replace(classifier.FROZEN, num_synthetic=300))
