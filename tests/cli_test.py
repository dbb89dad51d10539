"""The command line, in this process: what a user types and what comes back."""

import dataclasses
import json
import os
import pathlib
import re
import shutil
import signal
import socket
import subprocess
import sys
import time

import numpy as np
import pytest

from datalens_tf import _files, cli, errors
from datalens_tf.accounting.ledger import PrivacyLedger
from datalens_tf.cli import training
from datalens_tf.data import registry
from datalens_tf.data.registry import load_dataset
from datalens_tf.data.sources import tfds
from datalens_tf.methods.datalens import DataLensConfig
from datalens_tf.methods.registry import config_class, preset
from datalens_tf.serving.client import ServerError
from datalens_tf.training import callbacks, classifier

# A run of seconds: four teachers, tiny networks.
TINY = [
    "--num_teachers=4", "--num_steps=4", "--top_k=10", "--batch_size=4", "--noise_stddev=20", "--epsilon=100",
    "--generator_filters=4", "--generator_units=16", "--discriminator_filters=4", "--discriminator_units=8",
    "--latent_dim=4", "--warmup_teacher_steps=1", "--teacher_steps=1"]


@pytest.fixture(name="datalens")
def make_datalens(capfd):
    """Runs a command line; returns exit status, stdout and stderr."""

    def run(*words):
        capfd.readouterr()
        status = cli.main([str(word) for word in words])
        return status, *capfd.readouterr()

    return run


def on_step(monkeypatch, action):
    """Calls action(step) after every step of a run."""
    monkeypatch.setattr(callbacks.PrivateLog, "on_step", lambda self, report: action(report.step))


def refused(result, *texts, status=2):
    """That a command ended with this status and one line, which holds the texts."""
    assert result[0] == status, result
    assert result[1] == "" and len(result[2].strip().splitlines()) == 1, result
    assert result[2].startswith("datalens: ") and "Traceback" not in result[2]
    for text in texts:
        assert text in result[2], result[2]


@pytest.fixture(scope="module", name="interrupted")
def make_interrupted(tmp_path_factory):
    """A run folder of a run that was interrupted (SIGINT) in step 2 of 4, and its exit status."""
    folder = tmp_path_factory.mktemp("runs") / "interrupted"
    with pytest.MonkeyPatch.context() as patch:
        on_step(patch, lambda step: step == 2 and os.kill(os.getpid(), signal.SIGINT))
        status = cli.main(["train", "--dataset=digits", f"--output_dir={folder}", *TINY])
    return folder, status


@pytest.fixture(scope="module", name="finished")
def make_finished(interrupted, tmp_path_factory):
    """The same run, resumed to its end."""
    folder = shutil.copytree(interrupted[0], tmp_path_factory.mktemp("runs") / "finished")
    assert cli.main(["train", "--resume", f"--output_dir={folder}"]) == 0
    return folder


# Training.


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
@pytest.mark.parametrize("epsilon, clusters", [("1", 1), ("10", 16)])
def test_settings_of_a_method_are_those_for_the_budget(dataset, epsilon, clusters):
    """Whether or not the data set has a preset of DataLens."""
    args = cli._parser().parse_args(["train", "--method=datalens_plus", f"--dataset={dataset}",
                                         f"--epsilon={epsilon}", "--output_dir=R", "--fit_steps=7"])
    config = training._fresh_config(args, training._method_settings(args, "datalens_plus"))
    assert (config.num_clusters, config.dataset, config.fit_steps) == (clusters, dataset, 7)


def test_training_a_finished_run_again_reports_the_same(finished, datalens):
    status, out, _ = datalens("train", "--resume", "--output_dir", finished)
    statement = json.loads((finished / "privacy.json").read_text())
    assert status == 0 and f"delta {statement['delta']:g}, 4 steps" in out and str(finished / "samples.png") in out
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


# Bad input: one line, exit 2.


@pytest.fixture(name="npz")
def make_npz(tmp_path):
    """Writes arrays x and y of 40 valid records with some changes, and returns the name of the data set."""

    def write(**changes):
        arrays = {"x": np.zeros([40, 8, 8, 1], np.uint8), "y": np.arange(40) % 2, **changes}
        np.savez(tmp_path / "data.npz", **arrays)
        return f"npz:{tmp_path / 'data.npz'}"

    return write


@pytest.mark.parametrize("words,texts", [
    ([], ["--preset or --dataset"]),
    (["--dataset=nope"], ["nope", "digits, mnist"]),
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
    ({"x": np.zeros([40, 9, 8, 1], np.uint8)}, ["divisible by 4"]),
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


@pytest.mark.parametrize("words", [[], ["nope"], ["train"], ["sample", "--model=x"], ["evaluate"], ["export"],
                                   ["privacy"], ["evaluate", "--samples=x", "--metrics=nope"], ["train", "stray"]])
def test_usage_is_refused_in_one_line(words, datalens):
    refused(datalens(*words))


# Bugs.


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


# Exit statuses.


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


def test_a_server_that_does_not_answer_exits_1(datalens, tmp_path):
    with socket.socket() as nobody:  # Bound, but nobody listens.
        nobody.bind(("localhost", 0))
        refused(datalens("sample", f"--server=http://localhost:{nobody.getsockname()[1]}", "--model=mnist",
                         "--retries=0", "--num_samples=3", "--output", tmp_path / "x.npz"), "did not answer", status=1)


def test_help_and_readme_know_every_exit_status(capsys):
    with pytest.raises(SystemExit):
        cli.main(["--help"])
    said = " ".join(capsys.readouterr().out.split())
    readme = " ".join((pathlib.Path(__file__).parents[1] / "README.md").read_text().split())
    for status, text in cli.EXIT_STATUSES.items():
        assert f"{status} {text}" in said and re.search(rf"Exit status: [^.]*\b{status} ", readme)


# Help, and what must be quick.


@pytest.mark.parametrize("command", [[], ["train"], ["sample"], ["evaluate"], ["privacy"], ["export"]])
def test_help_on_every_level(command, capsys):
    with pytest.raises(SystemExit) as exit_info:
        cli.main([*command, "--help"])
    assert exit_info.value.code == 0
    assert f"usage: datalens {' '.join(command)}".strip() in capsys.readouterr().out


def test_every_setting_is_a_flag_with_a_help_text(capsys):
    with pytest.raises(SystemExit):
        cli.main(["train", "--help"])
    text = capsys.readouterr().out.split("settings, by default", 1)[1]
    for field in dataclasses.fields(DataLensConfig):
        if field.name not in ("image_shape", "num_classes", "insecure_noise_seed"):
            assert re.search(rf"^  --{field.name}( [A-Z][^ ]*)?\s\s+[`\w]", text, re.MULTILINE), field.name


def test_accounting_and_help_do_not_load_tensorflow():
    code = ("import sys; from datalens_tf import cli\n"
            "assert cli.main(['privacy', '--preset=mnist']) == 0\n"
            "try: cli.main(['train', '--help'])\n"
            "except SystemExit: pass\n"
            "assert 'tensorflow' not in sys.modules")
    subprocess.run([sys.executable, "-c", code], check=True, stdout=subprocess.DEVNULL, timeout=60)


# Other methods.

SMALL_METHODS = {
    "dp_merf": ["--epsilon=5", "--num_features=20", "--fit_steps=3"],
    "dp_gan": ["--epsilon=5", "--batch_size=8", "--num_steps=3", "--discriminator_filters=4", "--accountant=rdp"],
    "fed_gs_wgan": ["--epsilon=5", "--num_users=3", "--batch_size=4", "--num_steps=2", "--critic_steps=1",
                    "--critic_filters=2", "--warmup_steps=1"],
    "dcgan": ["--num_steps=3", "--batch_size=8", "--discriminator_filters=4", "--discriminator_units=8"],
}


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
    assert f"| {config_class(method).ADJACENCY} |" in out


@pytest.mark.parametrize("flags, message", [
    (["--method=dp_merf", "--num_teachers=5"], "no --num_teachers: it is no setting of the method dp_merf"),
    (["--method=dcgan", "--epsilon=1"], "epsilon=1.0 to be none: dcgan is not private"),
    (["--method=gan"], "method='gan' to be one of"),
    (["--method=dp_gan", "--distribute=ray"], "no --distribute: the method dp_gan runs in one process"),
    (["--method=fed_gs_wgan", "--num_discriminators=5"], "no --num_discriminators: it is no setting of"),
    (["--method=fed_gs_wgan", "--num_users=5000"], "a record for each user, got 1438 for num_users=5000"),
    (["--method=fed_avg_gan", "--accountant=gdp"], "accountant='gdp' to be one of rdp, pld"),
    (["--method=dp_gan", "--accountant=gdp"], "accountant='gdp' to be one of rdp, pld"),
])
def test_settings_of_other_methods_are_refused(flags, message, tmp_path, datalens):
    status, _, err = datalens("train", "--dataset=digits", *flags, "--output_dir", tmp_path / "run")
    assert status == 2 and message in err and len(err.strip().splitlines()) == 1


def test_audit_is_for_votes(tmp_path, datalens):
    (tmp_path / "config.json").write_text(config_class("dp_merf")().to_json())
    status, _, err = datalens("audit", "--run_dir", tmp_path)
    assert status == 2 and "of the method datalens to audit, got one of dp_merf" in err


# Accounting.


def test_privacy_shows_the_papers_steps(datalens):
    status, out, err = datalens("privacy", "--preset=mnist", "--epsilon=1", "--json")
    report = json.loads(out)
    assert (status, err) == (0, "")
    assert report["steps"] == {"classic_rdp": 86, "rdp": 127, "pld": 149, "gdp": 149}
    assert report["epsilon_of_steps"]["classic_rdp"]["classic_rdp"] == pytest.approx(0.99571, abs=5e-6)
    assert report["epsilon_of_steps"]["gdp"]["gdp"] == pytest.approx(0.99747, abs=1e-5)
    assert report["l2_sensitivity"] == pytest.approx(2 * (200 * 15) ** 0.5)
    assert "epsilon" not in report and "calibrated_noise_stddev" not in report


def test_privacy_of_given_steps(datalens):
    words = "privacy", "--top_k=200", "--noise_stddev=5000", "--batch_size=15", "--num_steps=100"
    report = json.loads(datalens(*words, "--json")[1])
    expected = {"classic_rdp": 1.07532, "rdp": 0.87698, "pld": 0.80161, "gdp": 0.80161}
    assert report["epsilon"] == pytest.approx(expected, abs=1e-5) and "steps" not in report
    assert json.loads(datalens(*words, "--json", "--accountant=rdp")[1])["epsilon"].keys() == {"rdp"}


def test_privacy_calibrates_the_noise(datalens):
    report = json.loads(datalens("privacy", "--preset=mnist", "--epsilon=1", "--num_steps=100", "--json")[1])
    for name, sigma in report["calibrated_noise_stddev"].items():
        words = "privacy", "--preset=mnist", "--num_steps=100", f"--noise_stddev={sigma}", "--json"
        assert 0.9999 < json.loads(datalens(*words)[1])["epsilon"][name] <= 1.0


def test_privacy_prints_tables(datalens):
    status, out, _ = datalens("privacy", "--preset=mnist", "--epsilon=0.05", "--num_steps=100")
    assert status == 0 and "noise multiplier 45.6435" in out
    assert re.search(r"^classic_rdp +1\.0754$", out, re.MULTILINE)
    assert re.search(r"^classic_rdp +unreachable$", out, re.MULTILINE)


@pytest.mark.parametrize("words,text", [
    (["--preset=mnist", "--epsilon=0"], "epsilon=0.0 > 0"),
    (["--preset=mnist", "--noise_stddev=0"], "noise_stddev=0.0 > 0"),
    (["--preset=mnist", "--top_k=0"], "top_k=0 >= 1"),
    (["--num_steps=0"], "num_steps=0 >= 1"),
    (["--num_steps=5", "--delta=0"], "delta=0.0 in (0, 1)"),
    (["--preset=nope"], "preset='nope'"),
    (["--num_steps=5", "--accountant=hope"], "'hope'"),
])
def test_privacy_of_nonsense(words, text, datalens):
    refused(datalens("privacy", *words), text)


# Using a run.


def test_sample_to_an_archive(finished, tmp_path, datalens):
    for name in ("a", "b"):
        status, _, err = datalens("sample", "--model", finished, "--num_samples=30", "--seed=7", "--output",
                                  tmp_path / f"new/{name}.npz")
        assert (status, err) == (0, "")
    a, b = np.load(tmp_path / "new/a.npz"), np.load(tmp_path / "new/b.npz")
    assert a["x"].shape == (30, 8, 8, 1) and a["x"].dtype == np.uint8 and a["y"].dtype == np.int64
    assert np.bincount(a["y"]).tolist() == [3] * 10
    assert np.array_equal(a["x"], b["x"]) and np.array_equal(a["y"], b["y"])


def test_sample_to_pictures_that_are_a_data_set(finished, tmp_path, datalens):
    folder = tmp_path / "pictures"
    words = "sample", "--model", finished / "generator/1", "--labels=3,5", "--num_samples=5", "--output", folder
    assert datalens(*words)[0] == 0
    dataset = load_dataset(f"folder:{folder}")
    assert dataset.class_names == ("3", "5") and np.bincount(dataset.labels).tolist() == [3, 2]
    assert dataset.image_shape == (8, 8, 1)
    refused(datalens(*words), "new or empty folder")


@pytest.mark.parametrize("words,text", [
    (["--num_samples=0"], "num_samples=0 >= 1"), (["--num_samples=-1", "--labels=1"], "num_samples=-1 >= 1"),
    (["--labels=10"], "labels in [0, 10)"), (["--labels=a"], "--labels"), (["--labels="], "--labels"),
])
def test_sample_of_nonsense(words, text, finished, tmp_path, datalens):
    refused(datalens("sample", "--model", finished, "--output", tmp_path / "x.npz", *words), text)


def test_models_that_are_none(interrupted, tmp_path, datalens):
    refused(datalens("sample", "--model", tmp_path / "nowhere", "--output", tmp_path / "x.npz"), "nowhere")
    refused(datalens("sample", "--model", interrupted[0], "--output", tmp_path / "x.npz"), "no finished run")
    refused(datalens("export", "--run_dir", interrupted[0], "--output_dir", tmp_path / "serving"), "no finished run")
    refused(datalens("export", "--run_dir", tmp_path, "--output_dir", tmp_path / "serving"), "config.json")


def test_export_once_per_version(finished, tmp_path, datalens):
    words = "export", "--run_dir", finished, "--output_dir", tmp_path / "serving"
    assert datalens(*words) == (0, f"{tmp_path / 'serving/1'}\n", "")
    assert (tmp_path / "serving/1/saved_model.pb").is_file()
    refused(datalens(*words), "version=1")
    refused(datalens(*words, "--version=0"), "version=0 >= 1")
    refused(datalens(*words, "--version=2", f"--license_file={tmp_path / 'none'}"), "--license_file=")
    (tmp_path / "terms").write_text("For research only.")
    assert datalens(*words, "--version=12", f"--license_file={tmp_path / 'terms'}")[0] == 0
    assert (tmp_path / "serving/12/assets.extra/LICENSE").read_text() == "For research only."


@pytest.fixture(name="small_protocol")
def fixture_small_protocol(monkeypatch):
    """300 images make an evaluation of a run quick."""
    monkeypatch.setattr(classifier, "FROZEN", dataclasses.replace(classifier.FROZEN, num_synthetic=300))


def test_evaluate_a_run_draws_anew_for_every_seed(finished, tmp_path, datalens, small_protocol):
    status, out, _ = datalens("evaluate", "--samples", finished, "--seeds=2", "--epochs=1", "--metrics=utility",
                              "--output_dir", tmp_path / "report")
    metrics = json.loads((tmp_path / "report/metrics.json").read_text())["utility"]
    assert status == 0 and f"accuracy {metrics['accuracy_mean']:.4f} +- {metrics['accuracy_std']:.4f}" in out
    assert metrics["dataset"] == "digits" and metrics["num_test"] == 359 and metrics["num_synthetic"] == 300
    assert [result["seed"] for result in metrics["per_seed"]] == [0, 1]
    assert metrics["follows_protocol"] is False  # One epoch.
    assert "so do the synthetic images" in metrics["varied"] and "trained once" in metrics["varied"]
    report = (tmp_path / "report/report.html").read_text()
    assert "What is guaranteed" in report and "Training of the generator" in report


def test_evaluate_leaves_what_touches_real_records_in_private(finished, tmp_path, datalens, small_protocol):
    run = shutil.copytree(finished, tmp_path / "run")
    before = set(run.rglob("*"))
    (run / "metrics.json").write_text("old")
    status, out, err = datalens("evaluate", "--samples", run, "--quick", "--metrics=utility", "--epochs=1")
    assert status == 0, err
    results = run / "private/evaluation"
    made = {path.relative_to(run).as_posix() for path in set(run.rglob("*")) - before}
    assert {name for name in made if not name.startswith("private/evaluation")} == {"metrics.json", "report.html"}
    assert {path.name for path in results.iterdir()} == {"metrics.json", "report.html", "charts"}
    assert results.stat().st_mode & 0o777 == 0o700 == (run / "private").stat().st_mode & 0o777
    accuracy = json.loads((results / "metrics.json").read_text())["utility"]["accuracy_mean"]
    assert f"accuracy {accuracy:.4f}" in out and f"public report {run / 'report.html'}" in out
    public, private = ((folder / "report.html").read_text() for folder in (run, results))
    assert "What is guaranteed" in public and "real test records classified right" in private
    assert "real test records classified right" not in public and f"{accuracy:.4f}" not in public
    assert (run / "metrics.json").read_text() == "old"  # Not read: the new one comes first.
    assert f"| {accuracy:.4f} |" in datalens("compare", run, "--output_dir", tmp_path / "table")[1]
    # A folder that is named gets everything, and has the newest numbers even if it is the run's.
    assert datalens("evaluate", "--samples", run, "--quick", "--metrics=utility", "--epochs=2", "--output_dir",
                    run)[0] == 0
    assert "real test records classified right" in (run / "report.html").read_text()
    accuracy = json.loads((run / "metrics.json").read_text())["utility"]["accuracy_mean"]
    assert f"| {accuracy:.4f} |" in datalens("compare", run, "--output_dir", tmp_path / "table")[1]


def test_a_card_has_scores_on_real_data_only_if_asked(finished, tmp_path, datalens, small_protocol):
    run = shutil.copytree(finished, tmp_path / "run")
    words = "export", "--run_dir", run, "--output_dir", tmp_path / "serving"
    refused(datalens(*words, "--with_metrics"), "metrics.json", "Evaluate the run first")
    assert datalens("evaluate", "--samples", run, "--quick", "--metrics=utility", "--epochs=1")[0] == 0
    for version, flags in enumerate(([], ["--with_metrics"]), 1):
        assert datalens(*words, f"--version={version}", *flags)[0] == 0
        card = (tmp_path / f"serving/{version}/assets.extra/MODEL_CARD.md").read_text()
        assert ("real test records of digits" in card) == bool(flags)
        assert ("Not measured, or left out" in card) != bool(flags)
    refused(datalens(*words, "--version=3", "--step=2", "--with_metrics"), "step=2 without metrics")


def test_evaluate_an_archive(finished, tmp_path, datalens):
    words = "evaluate", "--samples", finished / "samples.npz", "--seeds=1", "--epochs=1", "--metrics=utility"
    refused(datalens(*words), "--dataset")
    refused(datalens(*words, "--dataset=digits"), "--output_dir")
    assert datalens(*words, "--dataset=digits", "--output_dir", tmp_path)[0] == 0
    metrics = json.loads((tmp_path / "metrics.json").read_text())["utility"]
    assert metrics["num_synthetic"] == 10_000 and metrics["accuracy_std"] is None
    assert "synthetic images are fixed" in metrics["varied"]
    refused(datalens(*words, "--dataset=digits", "--output_dir", tmp_path, "--seeds=0"), "seeds")


def test_evaluate_refuses_before_it_computes(finished, tmp_path, datalens):
    (tmp_path / "file").write_text("")
    refused(datalens("evaluate", "--samples", finished, "--output_dir", tmp_path / "file/x"), "Cannot write")
    refused(datalens("evaluate", "--samples", finished, "--quick", "--full"), "not allowed with")
    refused(datalens("evaluate", "--samples", finished, "--metrics=utility,beauty"), "unknown metric 'beauty'")
    refused(datalens("evaluate", "--samples", finished, "--protocol=mine"), "--protocol")
    refused(datalens("evaluate", "--samples", finished, "--inception_weights", tmp_path / "none.h5", "--output_dir",
                     tmp_path, "--cache_dir", tmp_path), "none.h5: cannot be had")
    refused(datalens("evaluate", "--samples", finished, "--cache_dir", tmp_path / "file/x", "--output_dir", tmp_path),
            "Cannot write")


@pytest.mark.parametrize("archive, message", [
    (lambda x, y: _files.npz_bytes({"x": x[:, :4], "y": y}), "one shape"),
    (lambda x, y: _files.npz_bytes({"x": np.full(x.shape, np.nan), "y": y}), "NaN"),
    (lambda x, y: _files.npz_bytes({"x": x[y != 3], "y": y[y != 3]}), "none of class 3"),
    (lambda x, y: _files.npz_bytes({"x": x, "y": y[1:]}), "labels of shape"),
    (lambda x, y: _files.npz_bytes({"x": x, "y": y * 2}), "labels in [0, 10)"),
    (lambda x, y: _files.npz_bytes({"x": x}), "got no y"),
    (lambda x, y: b"", "cannot be read"),
    (lambda x, y: _files.npz_bytes({"x": x, "y": y})[:20_000], "cannot be read"),
])
def test_evaluate_refuses_bad_samples_in_one_line(tmp_path, datalens, archive, message):
    digits = load_dataset("digits")
    (tmp_path / "x.npz").write_bytes(archive(digits.images, digits.labels))
    refused(datalens("evaluate", "--samples", tmp_path / "x.npz", "--dataset=digits", "--output_dir", tmp_path / "out",
                     "--quick"), message)
    assert list((tmp_path / "out").iterdir()) == []


def test_compare_runs(finished, tmp_path, datalens, small_protocol):
    refused(datalens("compare", "--output_dir", tmp_path), "required: RUN")
    refused(datalens("compare", tmp_path, "--output_dir", tmp_path / "out"), "has no privacy.json")
    runs = [shutil.copytree(finished, tmp_path / name) for name in "ab"]
    refused(datalens("compare", runs[0], "--output_dir", tmp_path / "out"), "has no metrics.json")
    for run in runs:
        assert datalens("evaluate", "--samples", run, "--seeds=1", "--epochs=1", "--metrics=utility")[0] == 0
    status, out, _ = datalens("compare", *runs, "--output_dir", tmp_path / "out")
    assert status == 0 and out == (tmp_path / "out/comparison.md").read_text() and "| 2 runs |" in out
    assert {path.name for path in (tmp_path / "out").iterdir()} == {
        "comparison.md", "comparison.csv", "comparison_digits.png"}


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
