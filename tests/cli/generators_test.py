"""`datalens sample` and `datalens export`: what a user types and what comes back."""

import shutil
import socket

import numpy as np
import pytest

from datalens_tf.cli import main
from datalens_tf.data.datasets import Pictures
from datalens_tf.data.registry import load_dataset
from datalens_tf.serving.export import export_generator
from tests.cli.commands import refused
from tests.serving.released import ENTRY as RELEASED
from tests.serving.tiny_generator import SETTINGS, TinyGenerator


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
    dataset = load_dataset(f"folder:{folder}", pictures=Pictures(image_size=(8, 8), color="grey"))
    assert dataset.class_names == ("3", "5") and np.bincount(dataset.labels).tolist() == [3, 2]
    assert dataset.image_shape == (8, 8, 1)
    refused(datalens(*words), "new or empty folder")


@pytest.mark.parametrize("words,text", [
    (["--num_samples=0"], "num_samples=0 >= 1"), (["--num_samples=-1", "--labels=1"], "num_samples=-1 >= 1"),
    (["--labels=10"], "names of classes, got '10'"), (["--labels=a"], "names of classes, got 'a'"),
    (["--labels="], "got ''"),
    (["--token_file=x"], "Expected --server with --token_file=x"),
    (["--model_version=2"], "Expected --server with --model_version=2"),
])
def test_sample_of_nonsense(words, text, finished, tmp_path, datalens):
    refused(datalens("sample", "--model", finished, "--output", tmp_path / "x.npz", *words), text)


def test_classes_that_have_numbers_for_names_go_by_name(tmp_path, datalens):
    export_generator(TinyGenerator(), tmp_path / "odd", **SETTINGS, class_names=["3", "5", "1"])
    export_generator(TinyGenerator(), tmp_path / "named", **SETTINGS, class_names=["a", "b", "c"])

    def drawn(model, labels):
        target = tmp_path / f"{model}{labels}.npz"
        assert datalens("sample", "--model", tmp_path / model, f"--labels={labels}", "--output", target)[0] == 0
        return np.load(target)["y"].tolist()

    assert drawn("odd", "1,5") == [2, 1] and drawn("named", "1,c") == [1, 2]
    refused(datalens("sample", "--model", tmp_path / "odd", "--labels=0", "--output", tmp_path / "x.npz"),
            "got '0': the classes are 3, 5, 1")


def test_the_generator_of_another_run_is_not_exported(finished, tmp_path, datalens):
    """Neither its weights under this run's statement, nor all of it."""
    words = "export", "--run_dir", tmp_path / "run", "--output_dir", tmp_path / "serving"
    run, other = shutil.copytree(finished, tmp_path / "run"), RELEASED / "generator" / "1"
    shutil.copy(other / "saved_model.pb", run / "generator" / "1")
    refused(datalens(*words), "saved_model.pb was changed")
    shutil.rmtree(run / "generator" / "1")
    shutil.copytree(other, run / "generator" / "1")
    refused(datalens(*words), "has the privacy statement of another run")
    assert not list((tmp_path / "serving").glob("*"))


def test_an_earlier_step_needs_what_only_the_machine_that_trained_has(tmp_path, datalens):
    refused(datalens("export", "--run_dir", RELEASED, "--output_dir", tmp_path, "--step=10"), "has no stored sums")


def test_a_converter_keeps_its_notes_to_itself(tmp_path, capfd):
    assert main(["convert", "--model", str(RELEASED), "--output", str(tmp_path / "x.tflite")]) == 0
    out, err = capfd.readouterr()
    assert out == f"{tmp_path / 'x.tflite'}\n" and err == ""


def test_models_that_are_none(interrupted, tmp_path, datalens):
    refused(datalens("sample", "--model", tmp_path / "nowhere", "--output", tmp_path / "x.npz"), "nowhere")
    refused(datalens("sample", "--model", interrupted[0], "--output", tmp_path / "x.npz"), "no finished run")
    refused(datalens("export", "--run_dir", interrupted[0], "--output_dir", tmp_path / "serving"), "no finished run")
    refused(datalens("export", "--run_dir", tmp_path, "--output_dir", tmp_path / "serving"), "config.json")


def test_a_server_that_does_not_answer_exits_1(datalens, tmp_path):
    with socket.socket() as nobody:  # Bound, but nobody listens.
        nobody.bind(("localhost", 0))
        refused(datalens("sample", f"--server=http://localhost:{nobody.getsockname()[1]}", "--model=mnist",
                         "--retries=0", "--num_samples=3", "--output", tmp_path / "x.npz"), "did not answer", status=1)


def test_a_run_is_exported_with_a_warp_and_grain_that_it_was_trained_without(finished, tmp_path, datalens):
    words = ["export", "--run_dir", finished, "--output_dir", tmp_path / "moved"]
    refused(datalens(*words, "--output_warp=-1"), "output_warp=-1.0 >= 0")
    refused(datalens(*words, "--output_choices=17"), "output_choices=17")
    assert datalens(*words, "--output_warp=1", "--output_grain=0.1", "--output_choices=2")[0] == 0
    assert datalens("verify", tmp_path / "moved" / "1")[0] == 0
    for purpose in ("looking", "training"):
        assert datalens("sample", "--model", tmp_path / "moved", "--num_samples", "4", "--for", purpose,
                        "--output", tmp_path / f"{purpose}.npz")[0] == 0
    refused(datalens(*words, "--output_grain=0.1", "--step=1"), "without --step")


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


def test_a_card_has_scores_on_real_data_only_if_asked(finished, tmp_path, datalens, small_protocol):
    run = shutil.copytree(finished, tmp_path / "run")
    words = "export", "--run_dir", run, "--output_dir", tmp_path / "serving"
    refused(datalens(*words, "--with_metrics"), "metrics.json", "Evaluate the run first")
    assert datalens("evaluate", "--samples", run, "--quick", "--metrics=utility", "--epochs=1")[0] == 0
    for version, flags in enumerate(([], ["--with_metrics"]), 1):
        status, _, err = datalens(*words, f"--version={version}", *flags)
        assert status == 0 and ("share it only where" in err) == bool(flags)
        card = (tmp_path / f"serving/{version}/assets.extra/MODEL_CARD.md").read_text()
        assert ("real test records of digits" in card) == bool(flags)
        assert ("Not measured, or left out" in card) != bool(flags)
    refused(datalens(*words, "--version=3", "--step=2", "--with_metrics"), "step=2 without metrics")
