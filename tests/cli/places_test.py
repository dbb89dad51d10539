"""No file that may be shared says where things are on this machine, on which machine, or who trained."""

import getpass
import json
import os
import re
import shutil
import socket
import zipfile

import numpy as np
import pytest
import tensorflow as tf

from datalens_tf import cli
from datalens_tf._text import without_folders
from datalens_tf.accounting.ledger import PrivacyLedger
from datalens_tf.config import config_digest
from datalens_tf.data.registry import load_dataset
from datalens_tf.methods import runs
from datalens_tf.methods.datalens import DataLensConfig
from datalens_tf.methods.registry import config_class, synthesizer
from tests.cli.commands import TINY


def run(*words):
    """A command line that must succeed."""
    assert cli.main([str(word) for word in words]) == 0


def contents(folder):
    """Names and bytes of every public file below a folder, and of the files in those that are archives."""
    for path in sorted(folder.rglob("*")):
        inside = path.relative_to(folder)
        if path.is_file() and "private" not in inside.parts:
            yield str(inside), path.read_bytes()
            if zipfile.is_zipfile(path):
                with zipfile.ZipFile(path) as archive:
                    for name in archive.namelist():
                        yield f"{inside}/{name}", archive.read(name)


def telling(folder, *secrets):
    """Public files in which a secret is, and the secret."""
    # Short names are in any compressed file by chance.
    own = [socket.gethostname(), getpass.getuser(), os.path.expanduser("~") + "/", "site-packages/", "datalens_tf/"]
    secrets = {*secrets, *(name for name in own if len(name) > 5)}
    found = [(name, secret) for name, data in contents(folder) for secret in secrets
             if secret.encode() in name.encode() + data]
    return found + [(name, "host") for name, _ in contents(folder) if socket.gethostname() in re.split(r"[./]", name)]


@pytest.fixture(scope="module", name="secret")
def fixture_secret(tmp_path_factory):
    """A folder of a telling name, with digits as a file."""
    folder = tmp_path_factory.mktemp("secretplace")
    train, test = load_dataset("digits"), load_dataset("digits", split="test")
    np.savez(folder / "faces.npz", x=train.images[:200], y=train.labels[:200], x_test=test.images, y_test=test.labels)
    return folder


@pytest.mark.slow
def test_no_public_file_of_a_generator_tells_a_place(secret, tmp_path, monkeypatch, capsys):
    folder = tmp_path / "run"
    monkeypatch.chdir(secret)
    run("train", "--dataset=npz:faces.npz", "--output_dir", folder, *TINY)
    monkeypatch.chdir(tmp_path)  # What follows finds the data all the same.
    run("train", "--resume", "--output_dir", folder)
    run("train", "--resume", "--output_dir", folder, f"--dataset=npz:{secret}/faces.npz")
    run("evaluate", "--samples", folder, "--quick", "--metrics=utility", "--epochs=1")
    run("export", "--run_dir", folder, "--output_dir", tmp_path / "serving", "--with_metrics")
    assert telling(folder, str(secret), "secretplace") == telling(tmp_path / "serving", str(secret)) == []
    for name in ("config.json", "privacy.json", "generator/1/assets.extra/privacy.json"):
        assert json.loads((folder / name).read_text())["dataset"] == "npz:faces.npz"
    capsys.readouterr()
    assert cli.main(["train", "--resume", "--output_dir", str(folder), "--dataset=npz:/other/place/cats.npz"]) == 2
    assert "dataset='npz:faces.npz', not 'npz:cats.npz'" in capsys.readouterr().err
    shutil.copy(secret / "faces.npz", tmp_path / "faces.npz")  # The same records, moved.
    run("train", "--resume", "--output_dir", folder, "--dataset=npz:faces.npz")
    assert json.loads((folder / "private/sources.json").read_text()) == {"dataset": f"npz:{tmp_path}/faces.npz"}


@pytest.mark.slow
def test_data_has_the_name_that_it_is_given(secret, tmp_path, capsys):
    folder = tmp_path / "run"
    words = ("train", f"--dataset=npz:{secret}/faces.npz", "--data_name=clinic A", "--output_dir", folder, *TINY)
    run(*words)
    run(*words, "--resume")
    assert json.loads((folder / "config.json").read_text())["dataset"] == "npz:clinic A"
    assert "read from the private labels" in " ".join((folder / "privacy.txt").read_text().split())
    assert telling(folder, str(secret), "secretplace", "faces") == []
    capsys.readouterr()
    for name in ("a/b", "", "two\nlines", "abc\u202edef"):
        assert cli.main(["train", "--dataset=digits", f"--data_name={name}", f"--output_dir={tmp_path}/x"]) == 2
        assert "is no name" in capsys.readouterr().err


@pytest.mark.slow
def test_no_public_file_of_a_classifier_tells_a_place(secret, tmp_path, monkeypatch):
    layers = tf.keras.layers
    tf.keras.Sequential([layers.Input((8, 8, 1)), layers.Conv2D(3, 3), layers.GlobalMaxPooling2D()]).save(
        secret / "features.keras")
    monkeypatch.chdir(secret)
    run("classify", "--dataset=npz:faces.npz", "--features=features.keras", "--epsilon=50", "--batch_size=20",
        "--num_steps=2", "--accountant=rdp", "--output_dir", tmp_path / "run")
    monkeypatch.chdir("/")
    run("classify", "--resume", "--output_dir", tmp_path / "run")
    assert telling(tmp_path / "run", str(secret), "secretplace") == []


@pytest.mark.slow
def test_runs_of_older_versions_go_on_and_tell_no_more(secret, tmp_path):
    """Their settings have the place of the data."""
    folder, place = tmp_path / "run", f"npz:{secret}/faces.npz"
    run("train", f"--dataset={place}", "--output_dir", folder, *TINY)
    (folder / "private/sources.json").unlink()
    config = DataLensConfig.from_json((folder / "config.json").read_text()).replace(dataset=place)
    (folder / "config.json").write_text(config.to_json())
    # Nothing was charged yet: the rest of the folder would name the other settings.
    for path in folder.iterdir():
        if path.name not in ("config.json", "private"):
            shutil.rmtree(path) if path.is_dir() else path.unlink()
    for path in (folder / "private").iterdir():
        if path.name != "data.json":
            shutil.rmtree(path) if path.is_dir() else path.unlink()
    PrivacyLedger.create(folder / "ledger.jsonl", epsilon=config.epsilon, delta=config.delta,
                         accountant=config.accountant, config_digest=config_digest(config.to_json()),
                         step_event=config.mechanism().dp_event(config.batch_size))
    run("train", "--resume", "--output_dir", folder)
    public = [path for path in folder.rglob("*") if path.is_file() and "private" not in path.parts]
    assert {path.name for path in public if b"secretplace" in path.read_bytes()} == {"config.json"}


@pytest.mark.slow
def test_python_writes_no_place_either(secret, tmp_path):
    """Nor does who trains from Python: a folder that is resumed is still that of the same settings."""
    data = load_dataset(f"npz:{secret}/faces.npz")
    config = config_class("dp_merf")(epsilon=5.0, num_features=20, fit_steps=2, generator_filters=4, generator_units=8)
    run_dir = tmp_path / "run"
    for _ in range(2):
        synthesizer("dp_merf")(config, run_dir=run_dir).fit_dataset(data)
    assert telling(run_dir, str(secret), "secretplace") == []


@pytest.mark.parametrize("name, public", [
    ("mnist", "mnist"), ("npz:/home/me/x.npz", "npz:x.npz"), ("npz:x.npz", "npz:x.npz"),
    ("parquet:/home/me/x.parquet", "parquet:x.parquet"),
    ("folder:/home/me/faces/", "folder:faces"), ("folder:.", "folder:data"), ("folder:/", "folder:data"),
    ("tfds:/home/me/mnist/3.0.1", "tfds:mnist/3.0.1"), ("tfds:~/mnist", "tfds:mnist"), ("tfds:mnist/a", "tfds:mnist/a"),
    ("npz:/home/{owner}/x{owner}.npz", "npz:x{owner}.npz"), ("npz:/a/b\u202e.npz", "npz:b\ufffd.npz"),
    ("my data", "my data")])
def test_names_without_folders(name, public):
    assert without_folders(name) == public == without_folders(public)


@pytest.mark.parametrize("stored, given, name", [
    ("hospital", None, "hospital"), ("hospital", "folder:/new", "hospital"), ("folder:hospital", None, "hospital"),
    ("folder:hospital", "folder:/new", "hospital"), ("folder:hospital", "folder:/new", "folder:hospital")])
def test_a_run_keeps_its_name_whichever_version_wrote_it(stored, given, name, tmp_path):
    """Older versions wrote the name that was given, without the kind of the data."""
    (tmp_path / "private").mkdir()
    (tmp_path / "private/sources.json").write_text('{"dataset": "folder:/old"}')
    assert runs.data_of_run(tmp_path, stored, given, name) == (given or "folder:/old", stored)
