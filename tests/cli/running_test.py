"""Long commands: they can be interrupted in every stage, say how to go on, and what they say works when pasted."""

import argparse
import json
import os
import shlex
import shutil
import signal
import sys

import numpy as np
import pytest

from datalens_tf import cli
from datalens_tf.accounting.ledger import PrivacyLedger
from datalens_tf.cli import running
from datalens_tf.data import registry as data_registry
from datalens_tf.mechanisms.mean_embedding import MeanEmbedding
from datalens_tf.methods import base, dp_gan
from datalens_tf.methods.embedding import EmbeddingStudent
from datalens_tf.training import classifier, progress
from datalens_tf.training.run_folder import RunFolder
from tests.cli.commands import refused

FLAGS = ["--dataset=digits", "--generator_filters=4", "--generator_units=8", "--latent_dim=4"]
METHODS = {
    "dp_merf": ["--epsilon=5", "--num_features=20", "--fit_steps=3", "--batch_size=10"],
    "datalens_plus": [
        "--epsilon=5", "--candidates=both:1.5:0.5,moments:0:0.5", "--embedding_charges=4", "--mean_charges=2",
        "--direction_charges=0", "--cluster_charges=0", "--num_clusters=1", "--covariance_charges=3",
        "--selection_charges=3", "--selection_images=60", "--selection_epochs=1", "--num_factors=3",
        "--num_features=20", "--learned_share=0", "--batch_size=10", "--fit_steps=3"],
    "dp_gan": ["--epsilon=5", "--batch_size=8", "--num_steps=3", "--discriminator_filters=4", "--accountant=rdp"],
}
# Where each stage is at work. Not all methods have all of them.
PLACES = {
    "load": (data_registry, "load_dataset"), "release": (MeanEmbedding, "sums"), "fit": (EmbeddingStudent, "train"),
    "choose": (classifier.QuickClassifier, "fit"), "train": (dp_gan.PrivateGan, "train"),
    "samples": (base.RunSynthesizer, "_write_generator"), "report": (RunFolder, "seal"),
}


def words_of(line):
    """The words of a command line that was printed, without the program's name."""
    words = shlex.split(line)
    return words[1:] if os.path.basename(words[0]) == "datalens" else words[words.index("datalens_tf") + 1:]


def interrupt(monkeypatch, place, name):
    """Sends SIGINT to this process when the function is first called."""
    original = getattr(place, name)

    def interrupted(*args, **kwargs):
        monkeypatch.setattr(place, name, original)
        os.kill(os.getpid(), signal.SIGINT)
        return original(*args, **kwargs)

    monkeypatch.setattr(place, name, interrupted)


@pytest.mark.parametrize("method, stage, charges", [
    *(("dp_merf", stage, 1) for stage in ("load", "release", "fit", "samples", "report")),
    *(pytest.param("datalens_plus", stage, 12, marks=[] if stage == "choose" else pytest.mark.slow)
      for stage in ("release", "fit", "choose")), ("dp_gan", "train", 3)])
def test_an_interruption_in_any_stage_says_the_command_that_goes_on_without_a_second_charge(
        method, stage, charges, tmp_path, datalens, monkeypatch):
    folder = tmp_path / "a run's folder"
    interrupt(monkeypatch, *PLACES[stage])
    status, out, err = datalens("train", f"--method={method}", *FLAGS, *METHODS[method], f"--output_dir={folder}")
    assert (status, out) == (130, ""), err
    said = err.splitlines()[-1]
    assert said.startswith("datalens: Interrupted") and "Traceback" not in err
    assert not (folder / "privacy.json").exists() or stage == "report"
    words = words_of(said.partition("Continue with: ")[2])
    assert ("--resume" in words) == (stage != "load") and f"--output_dir={folder}" in words
    status, out, err = datalens(*words)
    assert status == 0, err
    statement = json.loads((folder / "privacy.json").read_text())
    assert (statement["num_charges"], statement["num_burnt_charges"]) == (charges, 0)
    assert PrivacyLedger.read(folder / "ledger.jsonl").num_charges == charges
    assert datalens("verify", folder)[0] == 0


def test_sigterm_while_data_is_loaded_ends_like_an_interruption(tmp_path, datalens, monkeypatch):
    monkeypatch.setattr(data_registry, "load_dataset", lambda *args, **kwargs: os.kill(os.getpid(), signal.SIGTERM))
    words = ["train", "--method=dp_merf", "--dataset=digits", f"--output_dir={tmp_path / 'run'}"]
    status, _, err = datalens(*words)
    assert status == 130 and "before anything was released or paid for" in err
    assert ["train", *words[1:]] == words_of(err.strip().partition("Continue with: ")[2])


@pytest.fixture(scope="module", name="unfinished")
def fixture_unfinished(tmp_path_factory):
    """A run of DP-MERF that was interrupted while it was fitted. Not to be changed."""
    folder = tmp_path_factory.mktemp("runs") / "unfinished"
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(progress, "FIRST_SECONDS", 1e9)
        interrupt(patch, EmbeddingStudent, "train")
        assert cli.main(["train", "--method=dp_merf", *FLAGS, *METHODS["dp_merf"], f"--output_dir={folder}"]) == 130
    return folder


@pytest.mark.parametrize("words", [
    ["sample", "--model={}", "--output={}.npz"], ["export", "--run_dir={}", "--output_dir={}_export"],
    ["convert", "--model={}", "--output={}.onnx"], ["evaluate", "--samples={}"], ["verify", "{}"],
    ["compare", "{}", "--output_dir={}_table"]])
def test_commands_on_an_unfinished_run_say_the_same(words, unfinished, datalens):
    result = datalens(*(word.format(unfinished) for word in words))
    refused(result, f"{unfinished} holds no finished run: its training was interrupted. Continue with: ")
    assert words_of(result[2].partition("Continue with: ")[2]) == ["train", "--resume", f"--output_dir={unfinished}"]


def test_what_an_unfinished_run_has_spent_is_said_with_the_same_line(unfinished, datalens):
    status, out, err = datalens("privacy", "--ledger", unfinished)
    assert status == 0 and "gdp" in out and f"{unfinished} holds no finished run" in err and "--resume" in err


@pytest.mark.slow
def test_the_commands_of_the_last_screen_work(unfinished, tmp_path, datalens, small_protocol):
    folder = shutil.copytree(unfinished, tmp_path / "it's a $RUN")
    status, out, err = datalens("train", "--resume", "--output_dir", folder)
    assert status == 0, err
    commands = out[out.index("Go on with:\n"):].splitlines()[1:]
    assert [words_of(line)[0] for line in commands] == ["sample", "evaluate", "export"]
    for line in commands:
        words = words_of(line)
        few = {"sample": [], "evaluate": ["--metrics=utility", "--epochs=1"], "export": []}[words[0]]
        status, _, err = datalens(*words, *few)
        assert status == 0, (line, err)
    status, again, _ = datalens("train", "--resume", "--output_dir", folder)
    assert words_of(again.splitlines()[-1])[-1] == "--version=2"
    assert datalens(*words_of(again.splitlines()[-1]))[0] == 0


def test_the_last_screen_says_what_may_be_shared_and_quiet_leaves_it_out(unfinished, tmp_path, datalens):
    folder = shutil.copytree(unfinished, tmp_path / "run")
    status, out, _ = datalens("train", "--resume", "--output_dir", folder)
    assert status == 0 and f"share     {folder} without {folder}/private, and exports: with" in out
    assert "protected is one record (an image with its label); names of classes and of the data are not" in out
    for name in ("privacy.txt", "samples.png", "samples.npz", "generator"):
        assert str(folder / name) in out and (folder / name).exists()
    status, out, err = datalens("train", "--resume", "--output_dir", folder, "--quiet")
    assert status == 0 and len(out.splitlines()) == 3 and err == ""


def test_what_is_not_private_is_not_said_to_be_shared_with_anybody():
    text = running.last_screen(RunFolder("runs/x").path, "digits", {"private": False})
    assert "NOT PRIVATE" in text and "anybody" not in text


@pytest.mark.parametrize("place, third", [
    ("digits", "evaluate"), ("npz:{}/with.npz", "evaluate"), ("npz:{}/without.npz", "verify"),
    ("npz:{}/nowhere.npz", "verify"), ("folder:{}/splits", "evaluate"), ("folder:{}", "verify")])
def test_evaluation_is_proposed_where_there_are_test_records(place, third, tmp_path):
    np.savez(tmp_path / "with.npz", x=1, y=1, x_test=1, y_test=1)
    np.savez(tmp_path / "without.npz", x=1, y=1)
    for split in ("train", "test"):
        (tmp_path / "splits" / split).mkdir(parents=True)
    commands = running._next_commands(tmp_path / "run", place.format(tmp_path))
    assert [words_of(line)[0] for line in commands] == ["sample", third, "export"]


def test_verbose_prints_every_stage_and_a_log_file_keeps_it(tmp_path, datalens):
    log = tmp_path / "my.log"
    words = ["train", "--method=dp_merf", *FLAGS, *METHODS["dp_merf"]]
    status, _, err = datalens(*words, f"--output_dir={tmp_path / 'a'}", "--verbose", f"--log_file={log}")
    first = log.read_text()
    assert status == 0 and err == first
    assert {"load", "release", "fit", "samples", "report"} <= set(err.splitlines())
    assert "digits: 1,438 records, 10 classes, 8 x 8 grey" in err and "step 3 of 3" in err
    status, _, err = datalens(*words, f"--output_dir={tmp_path / 'b'}", "--quiet", f"--log_file={log}")
    assert status == 0 and err == ""
    assert log.read_text().startswith(first) and "step 3 of 3" in log.read_text().removeprefix(first)
    refused(datalens(*words, f"--output_dir={tmp_path / 'c'}", "--quiet", "--verbose"), "--verbose")


@pytest.mark.parametrize("name, text", [
    ("run/run.log", "outside of the run folder"), ("run/private/run.log", "outside of the run folder"),
    ("nowhere/run.log", "Cannot write")])
def test_a_log_file_has_a_place_of_its_own(name, text, tmp_path, datalens):
    """It tells how long things took, which may depend on records."""
    refused(datalens("train", "--dataset=digits", f"--output_dir={tmp_path / 'run'}", f"--log_file={tmp_path / name}"),
            text)
    assert not (tmp_path / "run").exists()


def test_public_files_of_a_run_do_not_hold_what_progress_says(tmp_path, datalens, monkeypatch):
    """How long things take may depend on records."""
    monkeypatch.setattr(progress, "FIRST_SECONDS", 0.0)
    folder = tmp_path / "run"
    status, _, err = datalens("train", "--method=dp_merf", *FLAGS, *METHODS["dp_merf"], f"--output_dir={folder}",
                              "--verbose")
    said = [line.encode() for line in err.splitlines() if line.startswith(("[", "done:", "stages:"))]
    assert status == 0 and any(line.startswith(b"done:") for line in said), err
    for path in folder.rglob("*"):
        if path.is_file() and "private" not in path.parts:
            content = path.read_bytes()
            assert not any(line in content for line in said), path


def test_a_program_that_is_not_on_the_path_is_named_in_full(monkeypatch):
    monkeypatch.setattr(shutil, "which", lambda name: None)
    assert shlex.split(running.command("verify", "a b")) == [sys.executable, "-m", "datalens_tf", "verify", "a b"]
    monkeypatch.setattr(shutil, "which", lambda name: "/bin/datalens")
    assert running.command("verify", "a b") == "datalens verify 'a b'"


def test_progress_flags_are_the_same_for_every_long_command():
    for name in ("train", "classify", "pate-classify", "evaluate", "audit"):
        parser = cli.command_parser(name, [])
        flags = {option for action in parser._actions for option in action.option_strings}
        assert {"--quiet", "--verbose", "--log_file"} <= flags
    assert argparse.Namespace(**vars(cli.parse(["verify", "x"])[1])).words == ["x"]
