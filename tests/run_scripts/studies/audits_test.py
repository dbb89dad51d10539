"""The study of audits: a row for each family and control, and none computed twice."""

import csv
import pathlib
import sys

import pytest

from datalens_tf.config import MethodConfig
from tests.run_scripts.toy import TRAIN

PATH = pathlib.Path(__file__).parents[3] / "run_scripts" / "studies" / "audits.py"


def rows(path):
    with path.open(newline="") as file:
        return {(row["family"], row["audit"], row["control"]): row for row in csv.DictReader(file)}


def test_families_are_those_that_the_audit_takes(study):
    assert {"datalens", "datalens_plus", "dp_merf", "dp_gan", "classify"} <= set(study.all_families())
    assert "gs_wgan" not in study.all_families()
    assert all(issubclass(kind, MethodConfig) for name, kind in study.all_families().items() if name != "classify")


def test_a_row_that_is_known_is_not_computed_again(study, tmp_path):
    def compute():
        computed.append(1)
        return study.Finding(audit="canaries", measured="A test", quantity="epsilon", lower_bound=2.0, claimed=1.0)

    config, computed = study.registry.preset("digits", 10.0), []
    for _ in range(2):
        table = study.Rows(tmp_path / "audits.csv", study.COLUMNS, study.COLUMNS[:5])
        study.add(table, "datalens", config, "canaries", "noise off", compute)
    assert len(computed) == 1
    row = rows(tmp_path / "audits.csv")["datalens", "canaries", "noise off"]
    assert (row["epsilon"], row["lower_bound"], row["caught"], row["confidence"]) == ("10", "2.0000", "True", "exact")


@pytest.mark.slow
@pytest.mark.parametrize("family,audits", [
    ("dp_merf", ["neighbours", "repeated", "chain"]), ("datalens", ["neighbours", "chain"]),
    ("dp_gan", ["neighbours", "canaries", "chain"]), ("classify", ["neighbours", "canaries", "chain"])])
def test_honest_code_passes_and_every_control_is_caught(study, family, audits, tmp_path, monkeypatch):
    flags = dict(flag.removeprefix("--").split("=") for flag in TRAIN.get(family, ["--num_steps=12"]))
    numbers = {name: float(value) if "." in value else int(value) for name, value in flags.items()
               if family != "datalens" and name != "epsilon"}
    if "canaries" in audits:  # As for epsilon 1, with a tenth of the records in a batch.
        numbers |= {"network": "large"} if family == "classify" else {}
        numbers |= {"num_steps": 20, "batch_size": 400, "noise_multiplier": 8.0, "accountant": "rdp"}
    monkeypatch.setattr(sys, "argv", [
        str(PATH), "--output_dir", str(tmp_path), "--dataset", "digits", "--families", family, "--epsilons",
        "1" if "canaries" in audits else "10", "--audits", *audits, "--trials", "600", "--num_canaries", "200",
        "--settings", str(numbers).replace("'", '"')])
    study.main()
    found = rows(tmp_path / "audits.csv")
    assert {audit for _, audit, _ in found} == set(audits)
    for (_, _, control), row in found.items():
        assert row["caught"] == str(control != "none"), row
