"""`datalens classify`, in this process: what a user types and what comes back."""

import functools
import json
import os
import re
import signal
import subprocess
import sys
import zipfile

import numpy as np
import pytest
import tensorflow as tf

from datalens_tf import cli
from datalens_tf.accounting.ledger import PrivacyLedger
from datalens_tf.training import loop, progress
from tests.cli.commands import refused

layers = tf.keras.layers
TINY = ["--dataset=digits", "--network=large", "--epsilon=8", "--batch_size=20", "--num_steps=4", "--accountant=rdp"]


@pytest.fixture(name="classify")
def fixture_classify(datalens):
    """Runs the command; returns exit status, stdout and stderr."""
    return functools.partial(datalens, "classify")


@pytest.fixture(scope="module", name="folder")
def make_folder(tmp_path_factory):
    """A run folder of a run that was interrupted (SIGINT) in step 2 of 4."""
    folder = tmp_path_factory.mktemp("runs") / "run"
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(loop, "_REPORT_EVERY", 1)
        patch.setattr(progress.Progress, "on_step",
                      lambda self, report: report.step == 2 and os.kill(os.getpid(), signal.SIGINT))
        assert cli.main(["classify", f"--output_dir={folder}", *TINY]) == 130
    return folder


def test_delta_follows_from_the_bound_on_the_number_of_records(classify, datalens, tmp_path):
    given = [f"--output_dir={tmp_path / 'run'}", "--delta=auto"]
    refused(classify(*given, *TINY, "--records_at_most=2000000"), "needs --adjacency=add-or-remove-one")
    bounded = ["--adjacency=add-or-remove-one", "--records_at_most=2000000"]
    assert classify(*given, *TINY, *bounded)[0] == 0
    assert json.loads((tmp_path / "run/privacy.json").read_text())["delta"] == 1e-8
    assert classify(*given, "--resume")[0] == 0
    refused(classify(*given[:1], "--resume", "--delta=1e-5"), "delta=1e-08, not 1e-05")
    for words in (["sample", "--model", tmp_path / "run", "--output", tmp_path / "x.npz"],
                  ["evaluate", "--samples", tmp_path / "run"]):
        refused(datalens(*words), "has a classifier, which draws no images", "datalens train")
    refused(classify(*given[:1], "--delta=small"), "--delta", "small")


@pytest.mark.slow
def test_interrupted_resumed_and_asked_again(folder, classify):
    assert len(PrivacyLedger.read(folder / "ledger.jsonl").charges) == 2 and not (folder / "privacy.json").exists()
    refused(classify("--output_dir", folder, *TINY), "holds a run", "--resume")
    refused(classify("--output_dir", folder, "--resume", "--top_k_norm=0.5"), "top_k_norm=1.0, not 0.5")
    status, out, _ = classify("--output_dir", folder, "--resume")
    assert status == 0 and len(PrivacyLedger.read(folder / "ledger.jsonl").charges) == 4
    statement = json.loads((folder / "privacy.json").read_text())
    assert "Differential-privacy statement" in out and statement["num_burnt_charges"] == 0
    accuracy = json.loads((folder / "private/evaluation/accuracy.json").read_text())["accuracy"]
    assert f"accuracy {accuracy:.4f} on 359 real test records of digits, after the last of 4 steps" in out
    assert {path.name for path in folder.iterdir()} == {
        "config.json", "ledger.jsonl", "privacy.json", "privacy.txt", "SHA256SUMS", "classifier.keras", "saved_model",
        "private"}
    with zipfile.ZipFile(folder / "classifier.keras") as saved:  # How long training took, samples' sizes decide.
        assert {info.date_time[0] for info in saved.infolist()} == {1980}
        assert json.loads(saved.read("metadata.json"))["date_saved"].startswith("1980")
    ledger = (folder / "ledger.jsonl").read_bytes()
    again = classify("--output_dir", folder, "--resume")
    assert again[:2] == (0, out) and (folder / "ledger.jsonl").read_bytes() == ledger


def test_models_and_features_from_files(tmp_path, classify, monkeypatch):
    features = tf.keras.Sequential([layers.Input((8, 8, 1)), layers.Conv2D(3, 3), layers.GlobalMaxPooling2D()])
    features.save(tmp_path / "features.keras")
    tf.keras.Sequential([layers.Input((3,)), layers.Dense(10, activation="softmax")]).save(tmp_path / "model.keras")
    monkeypatch.chdir(tmp_path)
    status, out, err = classify("--output_dir=run", "--features=features.keras", "--model=model.keras",
                                "--learning_rate=0.01", *TINY)
    assert status == 0, err
    saved = tf.keras.models.load_model(tmp_path / "run/classifier.keras")
    np.testing.assert_array_equal(saved.get_weights()[0], features.get_weights()[0])
    assert saved.output_shape == (None, 10) and "accuracy" in out
    monkeypatch.chdir("/")
    assert classify(f"--output_dir={tmp_path / 'run'}", "--resume")[0] == 0  # From anywhere.
    refused(classify("--output_dir", tmp_path / "other", "--features", tmp_path / "model.keras", *TINY),
            "features.input_shape=(None, 3) to be (None, 8, 8, 1)")


def test_data_without_a_test_split_and_no_budget(tmp_path, classify):
    random = np.random.default_rng(0)
    np.savez(tmp_path / "data.npz", x=random.integers(0, 255, (30, 8, 8, 1)).astype(np.uint8), y=np.arange(30) % 2)
    status, out, _ = classify(f"--dataset=npz:{tmp_path / 'data.npz'}", "--output_dir", tmp_path / "run",
                              "--epsilon=none", "--num_steps=2", "--network=large", "--batch_size=10")
    assert status == 0 and out.startswith("NOT PRIVATE") and re.search("no accuracy: .*no y_test", out)


@pytest.mark.parametrize("words, texts", [
    ([], ["--dataset"]), (["--dataset=nope"], ["nope"]), (["--dataset=digits"], ["larger images", "network='small'"]),
    (["--dataset=digits", "--epsilon=0"], ["epsilon=0.0 > 0"]),
    (["--dataset=digits", "--resume"], ["no run to resume"]),
    (["--dataset=digits", "--top_k_norm=2"], ["top_k_norm=2.0 in (0, 1]"]),
    (["--dataset=digits", "--model=nowhere.keras"], ["model=", "nowhere.keras", "there is none"]),
    (["--dataset=digits", "--features=setup.py"], ["features=", "setup.py", "to be a Keras model"]),
    (["--dataset=digits", "--accountant=gdp"], ["accountant='gdp' to be one of rdp, pld"]),
    (["--dataset=digits", "--insecure_noise_seed=1"], ["--insecure_noise_seed"]),
    (["--dataset=digits", "--network=large", "--epsilon=0.001", "--noise_multiplier=0.5"], [])])
def test_mistakes_are_one_line(words, texts, tmp_path, classify):
    result = classify("--output_dir", tmp_path / "run", *words)
    if not texts:
        assert result[0] == 3 and "does not pay for another step" in result[2]
        return
    refused(result, *texts)
    assert not (tmp_path / "run/ledger.jsonl").exists()


def test_a_run_of_another_command_is_refused(tmp_path, classify):
    (tmp_path / "config.json").write_text('{"method": "datalens", "dataset": "digits"}')
    (tmp_path / "ledger.jsonl").write_text("")
    refused(classify("--output_dir", tmp_path, "--resume"), "config.json", "of a classifier", "method='datalens'")


def test_help_does_not_wait_for_tensorflow():
    code = "import sys; from datalens_tf import cli; cli.main(['classify']); sys.exit('tensorflow' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], check=False, capture_output=True).returncode == 0
