"""`datalens audit`: what a user types and what comes back."""

import json

import pytest

from datalens_tf.auditing import families
from datalens_tf.classification.classifier_config import ClassifierConfig
from datalens_tf.methods.registry import config_class, preset
from tests.auditing import repeated_test, sampled_test
from tests.cli.commands import refused

# At the usual 0.95, more than once in a million times a bound would be above what is claimed.
SURE = "--confidence=0.999999"
VOTES = ["audit", "--preset=digits", "--trials=30", "--num_canaries=50", SURE]


def test_a_preset_is_audited(tmp_path, datalens):
    status, out, _ = datalens(*VOTES, f"--output_dir={tmp_path / 'out'}")
    found = json.loads((tmp_path / "out" / "audit.json").read_text())
    claimed = found["claimed"]
    assert status == 0 and claimed["epsilon"] <= preset("digits", claimed["epsilon_budget"]).epsilon
    assert 0 <= found["epsilon_lower_bound"] < claimed["epsilon"] and found["confidence"] == 0.999999
    assert [finding["audit"] for finding in found["findings"]] == ["neighbours", "repeated releases", "canaries"]
    assert out.startswith("No claim is refuted") and f"{claimed['epsilon']:.4f} is claimed" in out


@pytest.mark.parametrize("words,text", [
    (["--trials=3"], "trials=3 >= 8"), (["--num_canaries=100000"], "num_canaries=100000 <= 200"),
    (["--confidence=2"], "confidence=2"), (["--method=gs_wgan"], "with an audit, "),
    (["--method=dp_merf", "--top_k=3"], "no --top_k"), (["--run_dir=x", "--method=dp_merf"], "no --method")])
def test_nonsense_is_refused(words, text, tmp_path, datalens):
    if text == "no --method":
        text = "--method with --preset"
    refused(datalens(*VOTES, f"--output_dir={tmp_path}", *words), text)


@pytest.mark.slow
def test_the_method_of_a_preset_is_chosen_and_what_is_public_comes_from_its_data(tmp_path, datalens):
    status, out, _ = datalens("audit", "--preset=digits", "--method=dp_merf", "--trials=20", SURE,
                              f"--output_dir={tmp_path}")
    found = json.loads((tmp_path / "audit.json").read_text())
    assert status == 0 and found["method"] == "dp_merf" and "privacy_note" not in found and "mu >= " in out


@pytest.mark.slow
@pytest.mark.parametrize("config", [
    config_class("dp_merf")(**repeated_test.SMALL, noise_multiplier=1.0),
    ClassifierConfig(**sampled_test.DP_SGD, sampling_probability=0.5, network="large"),
], ids=["released once", "classifier"])
def test_a_run_is_audited(config, tmp_path, datalens):
    (tmp_path / "config.json").write_text(config.replace(
        dataset="digits", image_shape=(8, 8, 1), num_classes=10).to_json())
    assert datalens("audit", f"--run_dir={tmp_path}", "--trials=20", SURE)[0] == 0
    assert json.loads((tmp_path / "audit.json").read_text())["method"] == config.method


@pytest.mark.slow
def test_training_with_canaries(tmp_path, datalens):
    (tmp_path / "config.json").write_text(preset("digits", 10).to_json())
    status, out, _ = datalens("audit", f"--run_dir={tmp_path}", "--trials=30", "--num_teachers=40", "--num_canaries=40",
                              "--num_steps=2", "--warmup_teacher_steps=2", "--train", SURE)
    results = tmp_path / "private/evaluation"
    found = json.loads((results / "audit.json").read_text())
    assert status == 0 and "The states of 40 teachers" in out and found["privacy_note"] in out
    assert {finding["claimed"] for finding in found["findings"] if finding["quantity"] == "epsilon"} == {
        found["claimed"]["epsilon"]}
    assert (results / "audited_run" / "ledger.jsonl").is_file() and not (tmp_path / "audit.json").exists()


def test_what_is_caught_has_a_status_of_its_own(tmp_path, datalens, monkeypatch):
    def caught(config, effort, **more):
        return {"verdict": "CAUGHT: a test.", "findings": []}

    monkeypatch.setattr(families, "audit", caught)
    status, out, err = datalens(*VOTES, f"--output_dir={tmp_path}")
    assert status == 2 and out.startswith("CAUGHT: a test.") and "The audit caught a mechanism" in err
