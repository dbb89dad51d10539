"""`datalens train`, in this process: what a user types and what comes back."""

import json
import os
import pathlib
import re
import shutil
import signal
import subprocess
import sys
import time

import jsonschema
import numpy as np
import pytest

from datalens_tf import cli
from datalens_tf.accounting.ledger import PrivacyLedger
from datalens_tf.cli import training
from datalens_tf.cli.parser import given_settings
from datalens_tf.data.registry import load_dataset
from datalens_tf.data.sources import tfds
from datalens_tf.evaluation import context, evaluate
from datalens_tf.methods import plans
from datalens_tf.methods.datalens import DataLensConfig
from datalens_tf.methods.registry import config_class, preset
from tests.cli.commands import TINY, on_step, refused

SCHEMA = pathlib.Path(__file__).parents[2] / "docs/reference/metrics.schema.json"


def test_interrupt_saves_the_state_and_exits_130(interrupted):
    folder, status = interrupted
    assert status == 130
    assert len(PrivacyLedger.open(folder / "ledger.jsonl").charges) == 2
    assert [path.name for path in (folder / "private/checkpoints").iterdir()] == ["step-000002"]
    assert not (folder / "privacy.json").exists()


def test_resume_ends_the_run_with_every_file(finished):
    names = {path.name for path in finished.iterdir()}
    assert names == {"SHA256SUMS", "config.json", "ledger.jsonl", "privacy.json", "privacy.txt", "generator",
                     "samples.npz", "samples.png", "logs", "private"}
    statement = json.loads((finished / "privacy.json").read_text())
    assert (statement["num_charges"], statement["num_burnt_charges"]) == (4, 0)
    assert 0 < statement["epsilon"] <= 100
    assert (finished / "private").stat().st_mode & 0o777 == 0o700


def test_flags_become_the_settings_of_the_run(finished):
    config = DataLensConfig.from_json((finished / "config.json").read_text())
    assert config == preset("digits", 100.0).replace(
        dataset="digits", image_shape=(8, 8, 1), num_classes=10, num_teachers=4, num_steps=4, top_k=10, batch_size=4,
        noise_stddev=20.0, generator_filters=4, generator_units=16, discriminator_filters=4, discriminator_units=8,
        latent_dim=4, warmup_teacher_steps=1, teacher_steps=1)


@pytest.mark.parametrize("dataset", ["mnist", "npz:FILE"])
def test_settings_of_a_method_are_its_own_and_what_is_given(dataset):
    """Whether or not the data set has a preset of DataLens."""
    _, args = cli.parse(["train", "--method=datalens_plus", f"--dataset={dataset}", "--epsilon=10",
                         "--output_dir=R", "--fit_steps=7"])
    kind = config_class("datalens_plus")
    config = plans.fresh_config(training.request(args), kind, given_settings(args, kind))
    assert (config.epsilon, config.dataset, config.fit_steps) == (10.0, dataset, 7)
    assert config.candidates == kind().candidates and config.num_charges == 100


def test_training_a_finished_run_again_reports_the_same(finished, datalens):
    status, out, _ = datalens("train", "--resume", "--output_dir", finished)
    statement = json.loads((finished / "privacy.json").read_text())
    assert status == 0 and f"delta {statement['delta']:g}, replace-one, 4 steps" in out
    assert str(finished / "samples.png") in out
    assert float(re.match(r"epsilon ([\d.]+) \(gdp\)", out).group(1)) == pytest.approx(statement["epsilon"], abs=1e-4)


def test_a_second_interrupt_stops_at_once_and_loses_no_charge(interrupted, tmp_path, datalens, monkeypatch):
    folder = shutil.copytree(interrupted[0], tmp_path / "run")

    def twice(step):
        del step
        os.kill(os.getpid(), signal.SIGINT)
        os.kill(os.getpid(), signal.SIGTERM)

    handlers = [signal.getsignal(number) for number in (signal.SIGINT, signal.SIGTERM)]
    on_step(monkeypatch, twice)
    status, _, err = datalens("train", "--resume", "--output_dir", folder)
    assert status == 130 and "Interrupted" in err.splitlines()[-1] and "Traceback" not in err
    assert len(PrivacyLedger.open(folder / "ledger.jsonl").charges) == 3
    assert (folder / "private/releases/000003.npz").exists()
    assert [signal.getsignal(number) for number in (signal.SIGINT, signal.SIGTERM)] == handlers


@pytest.mark.slow
def test_sigterm_to_the_real_program(tmp_path):
    folder = tmp_path / "run"
    words = [sys.executable, "-m", "datalens_tf", "train", "--dataset=digits", f"--output_dir={folder}", *TINY,
             "--num_steps=100000", "--epsilon=1e5", "--num_threads=1"]
    with subprocess.Popen(words, stderr=subprocess.PIPE, text=True) as process:
        ledger = folder / "ledger.jsonl"
        for _ in range(600):
            if process.poll() is not None or (ledger.exists() and ledger.read_text().count("\n") > 3):
                break
            time.sleep(0.1)
        process.send_signal(signal.SIGTERM)
        _, err = process.communicate(timeout=60)
    assert process.returncode == 130, err
    assert "state saved" in err.splitlines()[-1] and "Traceback" not in err and "tensorflow" not in err.lower()
    assert list((folder / "private/checkpoints").glob("step-*"))


@pytest.fixture(name="npz")
def make_npz(tmp_path):
    """Writes arrays x and y of 40 valid records with some changes, and returns the name of the data set."""

    def write(**changes):
        arrays = {"x": np.zeros([40, 8, 8, 1], np.uint8), "y": np.arange(40) % 2, **changes}
        np.savez(tmp_path / "data.npz", **arrays)
        return f"npz:{tmp_path / 'data.npz'}"

    return write


@pytest.mark.parametrize("words,texts", [
    ([], ["Missing --dataset: name the data, for example --dataset mnist"]),
    (["--dataset=nope"], ["nope", "digits,", "mnist,"]),
    (["--dataset=minst"], ["Unknown data set 'minst'", "Did you mean mnist?"]),
    (["--preset=nope"], ["preset='nope'", "mnist"]),
    (["--dataset=digits", "--epsilon=abc"], ["--epsilon", "'abc'", "train --help"]),
    (["--dataset=digits", "--epsilon=0"], ["epsilon=0.0 > 0"]),
    (["--dataset=digits", "--epsilon=-1"], ["epsilon=-1.0 > 0"]),
    (["--dataset=digits", "--epsilon=nan"], ["epsilon=nan to be a finite number"]),
    (["--dataset=digits", "--noise_stddev=0"], ["noise_stddev=0.0 > 0"]),
    (["--dataset=digits", "--noise_stddev=-5"], ["noise_stddev=-5.0 > 0"]),
    (["--dataset=digits", "--delta=1"], ["delta=1.0 in (0, 1)"]),
    (["--dataset=digits", "--accountant=hope"], ["accountant='hope'", "classic_rdp, rdp, pld, gdp"]),
    (["--dataset=digits", "--num_teachers=1.5"], ["--num_teachers", "invalid int value: '1.5'"]),
    (["--dataset=digits", "--clip=-1"], ["clip=-1.0 > 0"]),
    (["--dataset=digits", "--checkpoint_minutes=-1"], ["checkpoint_minutes=-1.0 >= 0"]),
    (["--dataset=digits", "--top_k=65", "--num_teachers=4"], ["top_k=65 <= 64"]),
    (["--dataset=digits", "--top_k=8", "--num_teachers=1439"], ["num_records=1438 < num_teachers=1439"]),
    (["--dataset=digits", "--insecure_noise_seed=1"], ["--insecure_noise_seed"]),
    (["--dataset=digits", "--delta=5e-324"], ["delta=5e-324 to be at least 1e-100"]),
    (["--dataset=digits", "--method=dp_merf", "--num_features=1000000000"], ["num_features=1000000000", "65,536"]),
    (["--dataset=digits", "--batch_size=1000000000000"], ["batch_size=1000000000000", "1,048,576"]),
    (["--dataset=digits", "--num_threads=1000000000"], ["num_threads=1000000000", "1,024"]),
    (["--dataset=digits", "--seed=1" + "0" * 300], ["seed=(more than 200 digits)"]),
    (["--dataset=digits", "--eps=1"], ["--eps"]),
    (["--dataset=npz:nowhere.npz"], ["there is no file", "nowhere.npz"]),
    (["--dataset=folder:nowhere"], ["there is no folder", "nowhere"]),
    (["--dataset=tfds:./nowhere"], ["dataset_info.json", "nowhere"]),
    (["--flagfile=nowhere"], ["nowhere"]),
])
def test_bad_flags(words, texts, tmp_path, datalens):
    refused(datalens("train", "--output_dir", tmp_path / "run", *words), *texts)
    assert not (tmp_path / "run/ledger.jsonl").exists()


def test_data_folder_without_the_data_set(tmp_path, datalens, monkeypatch):
    def offline(urls):
        raise OSError(f"no connection to {len(list(urls))} hosts")

    monkeypatch.setattr(tfds, "_check_reachable", offline)
    refused(datalens("train", "--preset=mnist", "--data_dir", tmp_path, "--output_dir", tmp_path / "run"),
            "no prepared data set 'mnist'", str(tmp_path), "--data_dir", "tfds.load('mnist'")


@pytest.mark.parametrize("changes,texts", [
    ({"x": np.full([40, 8, 8, 1], 1.5)}, ["[0, 1]", "1.5"]),
    ({"x": np.full([40, 8, 8, 1], -0.1)}, ["[0, 1]"]),
    ({"x": np.full([40, 8, 8, 1], np.nan)}, ["NaN"]),
    ({"x": np.zeros([40, 3, 8, 1], np.uint8)}, ["at least 4"]),
    ({"x": np.zeros([40, 8, 8, 1], np.int32)}, ["uint8", "int32"]),
    ({"y": np.arange(39) % 2}, ["39", "40"]),
    ({"y": np.zeros(40, np.int64)}, ["class"]),
    ({"y": np.arange(40) - 1}, ["label"]),
    ({"y": np.array(["a", "b"] * 20)}, ["label"]),
    ({"y": np.where(np.arange(40) == 7, 99_999, np.arange(40) % 2)}, ["labels below 10,000", "99999"]),
    ({"y_test": np.array([0, 10**18])}, ["10,000 classes"]),
])
def test_bad_records(changes, texts, npz, tmp_path, datalens):
    refused(datalens("train", "--dataset", npz(**changes), "--output_dir", tmp_path / "run", *TINY), *texts)


def test_fewer_records_than_teachers(npz, tmp_path, datalens):
    result = datalens("train", "--dataset", npz(), "--output_dir", tmp_path / "run", *TINY, "--num_teachers=41")
    refused(result, "num_records=40 < num_teachers=41")


def test_unwritable_output_folder(tmp_path, datalens):
    (tmp_path / "file").write_text("")
    refused(datalens("train", "--dataset=digits", "--output_dir", tmp_path / "file/run", *TINY), "Cannot write",
            str(tmp_path / "file"))
    refused(datalens("train", "--dataset=digits", "--output_dir", "/proc/nowhere", *TINY), "Cannot write /proc/nowhere")


def test_budget_that_pays_for_nothing_exits_3(tmp_path, datalens):
    result = datalens("train", "--dataset=digits", "--output_dir", tmp_path / "run", *TINY, "--epsilon=0.01")
    refused(result, "epsilon=0.01 does not pay for a single step", status=3)


def test_a_run_is_not_overwritten_and_only_a_run_is_resumed(interrupted, tmp_path, datalens):
    folder, _ = interrupted
    refused(datalens("train", "--dataset=digits", "--output_dir", folder, *TINY), "holds a run", "--resume")
    refused(datalens("train", "--dataset=digits", "--output_dir", tmp_path / "typo", "--resume"), "holds no run")


@pytest.mark.parametrize("words,text", [
    (["--epsilon=200"], "epsilon=100.0, not 200.0"),
    (["--noise_stddev=40"], "noise_stddev=20.0, not 40.0"),
    (["--preset=mnist"], "dataset='digits', not 'mnist'"),
    (["--dataset=mnist"], "dataset='digits', not 'mnist'"),
])
def test_resume_with_another_configuration(words, text, interrupted, datalens):
    refused(datalens("train", "--resume", "--output_dir", interrupted[0], *words), text, "another --output_dir")


def damaged(interrupted, tmp_path, name, change):
    """A copy of the interrupted run in which one file was changed."""
    folder = shutil.copytree(interrupted[0], tmp_path / "run")
    [path] = folder.glob(name)
    path.write_bytes(change(path.read_bytes()))
    return folder


def flip(content):
    """One bit in the middle."""
    middle = len(content) // 2
    return content[:middle] + bytes([content[middle] ^ 1]) + content[middle + 1:]


@pytest.mark.parametrize("name", ["teachers-000.bin", "student.npz", "meta.json"])
@pytest.mark.parametrize("change", [flip, lambda content: content[:-7], lambda content: b""])
def test_damaged_checkpoint(name, change, interrupted, tmp_path, datalens):
    if name == "meta.json" and change is flip:
        def change(content):
            return content.replace(b"step", b"stop")

    folder = damaged(interrupted, tmp_path, f"private/checkpoints/*/{name}", change)
    refused(datalens("train", "--resume", "--output_dir", folder), "amaged", "step-000002")
    assert len(PrivacyLedger.open(folder / "ledger.jsonl").charges) == 2


def test_damaged_ledger_line(interrupted, tmp_path, datalens):
    folder = damaged(interrupted, tmp_path, "ledger.jsonl", lambda content: content.replace(b'"step": 1', b'"step": 7'))
    refused(datalens("train", "--resume", "--output_dir", folder), "ledger.jsonl, line 2")


@pytest.mark.parametrize("change", [flip, lambda content: b"{}", lambda content: b"\xff"])
def test_damaged_settings(change, interrupted, tmp_path, datalens):
    folder = damaged(interrupted, tmp_path, "config.json", change)
    status, out, err = datalens("train", "--resume", "--output_dir", folder)
    assert (status, out) == (2, "") and len(err.strip().splitlines()) == 1, err


SMALL_METHODS = {
    "fed_gs_wgan": ["--epsilon=5", "--num_users=3", "--batch_size=4", "--num_steps=2", "--critic_steps=1",
                    "--critic_filters=2", "--warmup_steps=1"],
    "dcgan": ["--num_steps=3", "--batch_size=8", "--discriminator_filters=4", "--discriminator_units=8"],
}


@pytest.mark.slow
@pytest.mark.parametrize("method", SMALL_METHODS)
def test_other_methods_train_resume_sample_and_evaluate(method, tmp_path, datalens, small_protocol):
    folder = tmp_path / "run"
    flags = [f"--method={method}", "--dataset=digits", "--generator_filters=4", "--generator_units=8",
             *SMALL_METHODS[method]]
    status, out, err = datalens("train", *flags, "--output_dir", folder)
    assert status == 0 and ("NOT PRIVATE" if method == "dcgan" else "epsilon ") in out, err
    status, out, err = datalens("train", *flags, "--output_dir", folder)
    assert status == 2 and "continue it with --resume" in err
    assert datalens("train", "--resume", "--output_dir", folder)[0] == 0
    assert datalens("train", "--resume", "--output_dir", folder, *flags)[0] == 0
    status, _, err = datalens("train", "--resume", "--output_dir", folder, "--seed=5")
    assert status == 2 and "seed=0, not 5" in err
    assert datalens("sample", "--model", folder, "--num_samples=4", "--output", tmp_path / "x.npz")[0] == 0
    status, _, err = datalens("evaluate", "--samples", folder, "--quick", "--metrics=utility", "--epochs=1")
    assert status == 0, err
    page = (folder / "report.html").read_text()
    assert f"--method {method} --preset digits" in page
    status, out, err = datalens("compare", folder, "--output_dir", tmp_path / "table")
    assert status == 0 and f"| digits | {method} | " in out, err
    assert ("| inf |" in out) == (method == "dcgan")
    assert f"| {config_class(method).adjacency} |" in out


@pytest.mark.parametrize("flags, message", [
    (["--method=dp_merf", "--num_teachers=5"], "Expected no --num_teachers: it is no setting of the method dp_merf. "
     "Leave it out, or choose a --method that has it: d2pfed, datalens, fetchsgd, g_pate, pate_cgan, pate_gan."),
    (["--method=dcgan", "--epsilon=1"], "epsilon=1.0 to be none: dcgan is not private"),
    (["--method=gan"], "Unknown method 'gan': `datalens methods` lists them."),
    (["--method=dp_mref"], "Did you mean dp_merf?"),
    (["--method=dp_gan", "--distribute=ray"], "--distribute is not available: dp_gan runs in one process. Leave out"),
    (["--method=fed_gs_wgan", "--num_discriminators=5"], "no --num_discriminators: it is no setting of"),
    (["--method=fed_gs_wgan", "--num_users=5000"], "a record for each user, got 1438 for num_users=5000"),
    (["--method=fed_avg_gan", "--accountant=gdp"], "accountant='gdp' to be one of rdp, pld"),
    (["--method=dp_gan", "--accountant=gdp"], "accountant='gdp' to be one of rdp, pld"),
])
def test_settings_of_other_methods_are_refused(flags, message, tmp_path, datalens):
    status, _, err = datalens("train", "--dataset=digits", *flags, "--output_dir", tmp_path / "run")
    assert status == 2 and message in err and len(err.strip().splitlines()) == 1


@pytest.fixture(name="both")
def make_both(tmp_path):
    """Digits with a test part, in one file."""
    train, test = load_dataset("digits"), load_dataset("digits", split="test")
    np.savez(tmp_path / "both.npz", x=train.images[:200], y=train.labels[:200], x_test=test.images, y_test=test.labels)
    return tmp_path / "both.npz"


@pytest.mark.slow
@pytest.mark.parametrize("flags, count, splits", [
    (["--holdout=0.1"], 20, {"holdout": 20, "test": 359}), (["--test_dataset=digits"], 359, {"test": 359})])
def test_training_ends_with_a_verdict_where_there_are_records_for_it(flags, count, splits, both, tmp_path, datalens,
                                                                     monkeypatch):
    monkeypatch.setitem(context.EFFORTS, "short", context.Effort(name="short", num_synthetic=100, epochs=1, seeds=1))
    folder, results = tmp_path / "run", tmp_path / "run/private/evaluation/metrics.json"
    status, out, err = datalens("train", f"--dataset={both}", *TINY, *flags, f"--output_dir={folder}")
    assert status == 0 and f" on {count} real test records of " in out and "Short evaluation; `datalens" in out, err
    metrics = json.loads(results.read_text())
    assert metrics["utility"]["verdict"] in out and metrics["utility"]["privacy_note"] in out
    assert metrics["mode"] == "short" and metrics["utility"]["real"]["num_train"] <= 200
    jsonschema.validate(metrics, json.loads(SCHEMA.read_text()))
    page = (results.parent / "report.html").read_text()
    assert "Effort: short" in page and "--short" not in page and metrics["utility"]["verdict"][:20] in page
    assert metrics["utility"]["verdict"][:20] not in (folder / "report.html").read_text()
    statement = (folder / "privacy.txt").read_text()
    assert ("Held out" in statement) == bool("--holdout=0.1" in flags)
    # The same records serve later; and what was measured stays.
    before = results.read_bytes()
    assert datalens("train", "--resume", f"--output_dir={folder}")[0] == 0 and results.read_bytes() == before
    for split, number in splits.items():
        words = ["evaluate", f"--samples={folder}", f"--split={split}", "--metrics=utility", "--quick", "--epochs=1"]
        assert f" on {number} real test records" in datalens(*words)[1]
    if "holdout" not in splits:
        refused(datalens("evaluate", f"--samples={folder}", "--split=holdout"), "holds records out of its data")


@pytest.mark.parametrize("flags, texts", [
    (["--test_dataset=mnist_of_mine.npz"], ["images of one shape", "[12, 12, 1] of npz:mnist_of_mine.npz"]),
    (["--test_dataset=few.npz"], ["10 classes", "got 3 of npz:few.npz: 0, 1, 2"]),
    (["--holdout=0.1", "--unlabelled"], ["Expected several classes", "--no_evaluation"]),
])
def test_records_that_do_not_serve_are_refused_before_training(flags, texts, both, tmp_path, datalens, monkeypatch):
    monkeypatch.chdir(tmp_path)
    np.savez("mnist_of_mine.npz", x=np.zeros([30, 12, 12, 1], np.uint8), y=np.arange(30) % 10)
    np.savez("few.npz", x=np.zeros([30, 8, 8, 1], np.uint8), y=np.arange(30) % 3)
    refused(datalens("train", f"--dataset={both}", *TINY, *flags, "--output_dir=run"), *texts)
    assert not pathlib.Path("run").exists()


@pytest.mark.slow
def test_nothing_is_measured_where_nobody_could_tell(both, tmp_path, datalens):
    folder = tmp_path / "run"
    words = ["train", "--method=dp_merf", f"--dataset={both}", "--num_features=20", "--fit_steps=1",
             "--generator_filters=2", "--generator_units=4"]
    status, out, _ = datalens(*words, "--no_evaluation", f"--output_dir={folder}")
    assert status == 0 and "Short evaluation" not in out and not (folder / "private/evaluation").exists()
    status, out, err = datalens(*words, "--unlabelled", f"--output_dir={tmp_path / 'other'}")
    assert status == 0 and "Short evaluation" not in out and "note: no verdict at the end. Expected several" in err


@pytest.mark.slow
def test_an_evaluation_that_was_interrupted_is_done_by_resume(tmp_path, datalens, monkeypatch):
    """Units are held out whole."""
    digits = load_dataset("digits")
    np.savez(tmp_path / "patients.npz", x=digits.images[:300], y=digits.labels[:300], patient=np.arange(300) // 3)
    monkeypatch.setitem(context.EFFORTS, "short", context.Effort(name="short", num_synthetic=100, epochs=1, seeds=1))
    folder = tmp_path / "run"
    words = ["train", "--method=dp_merf", f"--dataset={tmp_path / 'patients.npz'}", "--unit=patient", "--classes=10",
             "--num_features=20", "--fit_steps=1", "--generator_filters=2", "--generator_units=4", "--holdout=0.1"]
    with monkeypatch.context() as patch:
        patch.setattr(evaluate, "evaluate", lambda *args, **more: os.kill(os.getpid(), signal.SIGINT))
        status, out, err = datalens(*words, f"--output_dir={folder}")
    assert status == 130 and "epsilon" in out and f"train --resume --output_dir={folder}" in err.splitlines()[-1]
    assert json.loads((folder / "privacy.json").read_text())["num_records"] == 90  # patients
    status, out, _ = datalens("train", "--resume", f"--output_dir={folder}")
    assert status == 0 and "on 30 real test records" in out
    status, out, _ = datalens("evaluate", f"--samples={folder}", "--metrics=utility", "--quick", "--epochs=1")
    assert status == 0 and "on 30 real test records" in out
