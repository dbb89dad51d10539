"""`datalens evaluate` and `datalens compare`: what a user types and what comes back."""

import json
import shutil

import numpy as np
import pytest

from datalens_tf import _files
from datalens_tf.data.registry import load_dataset
from tests.cli.commands import refused


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


def test_evaluate_an_archive(finished, tmp_path, datalens):
    words = "evaluate", "--samples", finished / "samples.npz", "--seeds=1", "--epochs=1", "--metrics=utility"
    refused(datalens(*words), "--dataset")
    refused(datalens(*words, "--dataset=digits"), "--output_dir")
    assert datalens(*words, "--dataset=digits", "--output_dir", tmp_path)[0] == 0
    metrics = json.loads((tmp_path / "metrics.json").read_text())["utility"]
    assert metrics["num_synthetic"] == 100 and metrics["accuracy_std"] is None
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
    refused(datalens("compare", "--output_dir", tmp_path), "Missing RUN: run folders")
    refused(datalens("compare", tmp_path, "--output_dir", tmp_path / "out"), "has no privacy.json")
    first = shutil.copytree(finished, tmp_path / "first")
    refused(datalens("compare", first, "--output_dir", tmp_path / "out"), "has no metrics.json")
    assert datalens("evaluate", "--samples", first, "--seeds=1", "--epochs=1", "--metrics=utility")[0] == 0
    second = shutil.copytree(first, tmp_path / "second")
    status, out, _ = datalens("compare", first, second, "--output_dir", tmp_path / "out")
    assert status == 0 and out == (tmp_path / "out/comparison.md").read_text() and "| 2 runs |" in out
    assert {path.name for path in (tmp_path / "out").iterdir()} == {
        "comparison.md", "comparison.csv", "comparison_digits.png"}
