"""`datalens pate-classify`: what a user types and what comes back."""

import functools
import json

import numpy as np
import pytest

from datalens_tf import cli
from datalens_tf.classification import student
from datalens_tf.training import classifier

TINY = ["--dataset=digits", "--num_teachers=8", "--num_queries=40", "--epsilon=50", "--aggregator=gnmax"]


@pytest.fixture(name="classify")
def fixture_classify(datalens, monkeypatch):
    """Runs the command with students that learn nothing; returns exit status, stdout and stderr."""
    monkeypatch.setattr(student, "train_student", lambda images, labels, settings: classifier.paper_classifier(
        settings.image_shape, settings.num_classes, settings.seed))
    return functools.partial(datalens, "pate-classify")


def test_a_run_says_what_it_promises_and_how_good_it_is(classify, tmp_path):
    status, output, errors = classify(f"--output_dir={tmp_path / 'run'}", *TINY, "--delta=auto")
    assert status == 0 and errors == "", errors
    assert "epsilon 50.0000 (gdp), delta 1e-05: 1438 records with 1 of 8 votes" in output
    assert "40 of 40 public queries labelled" in output and "AUROC" in output
    found = json.loads((tmp_path / "run/private/evaluation/student.json").read_text())
    assert found["num_test"] == 319 and len(found["auroc_per_class"]) == 10 and 0 <= found["auroc_macro"] <= 1
    assert (tmp_path / "run/private/evaluation/roc.png").read_bytes()[:4] == b"\x89PNG"
    status, output, _ = classify("--output_dir", tmp_path / "run", "--resume")
    assert status == 0 and f"accuracy {found['accuracy']:.4f}" in output
    assert cli.main(["privacy", f"--ledger={tmp_path / 'run'}"]) == 0


def test_records_may_have_budgets_of_their_own(classify, tmp_path):
    np.save(tmp_path / "budgets.npy", np.resize([10.0, 20.0], 1438))
    settings = [*TINY[:3], "--aggregator=gnmax", "--individualization=upsampling"]
    for budgets in ("10:0.5,20:0.5", tmp_path / "budgets.npy"):
        folder = tmp_path / f"run{len(str(budgets))}"
        status, output, _ = classify("--output_dir", folder, f"--budgets={budgets}", *settings)
        assert status == 0 and "719 records with 1 of 8" in output and "719 records with 2 of 8" in output
        statement = json.loads((folder / "privacy.json").read_text())
        first, second = statement["epsilon_by_budget"]
        assert classify("--output_dir", folder, "--resume")[:2] == (0, output)  # They are remembered.
        assert first["epsilon"] < 10 and 19.99 < second["epsilon"] <= 20 and statement["epsilon"] == second["epsilon"]


@pytest.mark.parametrize("words,message", [
    (["--aggregator=gnmax"], "Missing --dataset: name the data, for example --dataset mnist"),
    (["--dataset=digits", "--aggregator=max"], "aggregator='max'"),
    (["--dataset=digits", "--num_queries=40", "--budgets=1,2", "--individualization=weighting"], "BUDGET:SHARE"),
    (["--dataset=digits", "--num_queries=40", "--budgets=nowhere.npy"], "nowhere.npy"),
    (["--dataset=digits", "--num_queries=1000"], "num_queries=1000"),
    (["--dataset=digits", "--num_queries=40", "--individualization=weighting"], "with budgets"),
    (["--resume"], "no run of pate-classify"), (["--resume", "--epsilon=3"], "--resume without --epsilon"),
    (["--dataset=digits", "--num_queries=40", "--noise_stddev=0.1"], "does not pay")])
def test_mistakes_are_one_line(classify, tmp_path, words, message):
    status, output, errors = classify("--output_dir", tmp_path / "run", *words)
    assert status in (2, 3) and output == "" and len(errors.strip().splitlines()) == 1
    assert errors.startswith("datalens: ") and message in errors, errors
    assert not (tmp_path / "run/ledger.jsonl").exists()


def test_a_folder_with_a_run_is_not_overwritten(classify, tmp_path):
    (tmp_path / "config.json").write_text("{}")
    status, _, errors = classify("--output_dir", tmp_path, *TINY)
    assert status == 2 and "--resume" in errors
