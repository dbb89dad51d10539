"""Run folders that were made before the first release: what was finished is of use, what was interrupted continues.

`old_runs.tar.xz` holds runs on the embedded digits by the code of commit d96937d, without their logs.
"""

import json
import pathlib
import tarfile

import pytest

from datalens_tf import cli

ARCHIVE = pathlib.Path(__file__).with_name("old_runs.tar.xz")


@pytest.fixture(name="old", scope="module")
def fixture_old(tmp_path_factory):
    folder = tmp_path_factory.mktemp("old")
    with tarfile.open(ARCHIVE) as archive:
        archive.extractall(folder, filter="data")
    return folder


@pytest.mark.parametrize("method", [
    "datalens", *(pytest.param(method, marks=pytest.mark.slow) for method in ("dp_gan", "dp_merf"))])
def test_a_finished_run_is_sampled_evaluated_exported_and_verified(old, method, tmp_path, capfd):
    run = old / f"{method}_finished"
    assert cli.main(["sample", f"--model={run}", "--num_samples=3", f"--output={tmp_path / 'x.npz'}"]) == 0
    assert cli.main(["evaluate", f"--samples={run}", "--quick", "--metrics=utility", "--epochs=1"]) == 0
    assert cli.main(["export", f"--run_dir={run}", f"--output_dir={tmp_path / 'served'}"]) == 0
    assert cli.main(["verify", str(tmp_path / "served" / "1")]) == 0, capfd.readouterr()
    stated, exported = (json.loads(path.read_text()) for path in (
        run / "privacy.json", tmp_path / "served" / "1" / "assets.extra" / "privacy.json"))
    assert exported["epsilon"] == stated["epsilon"] > 0


@pytest.mark.parametrize("method", [
    "datalens", *(pytest.param(method, marks=pytest.mark.slow) for method in ("dp_gan", "dp_merf", "gs_wgan"))])
def test_an_interrupted_run_continues(old, method):
    run = old / f"{method}_interrupted"
    charged = len((run / "ledger.jsonl").read_text().splitlines()) - 1
    assert cli.main(["train", f"--output_dir={run}", "--resume"]) == 0
    statement = json.loads((run / "privacy.json").read_text())
    assert statement["num_charges"] >= charged and statement["epsilon"] <= statement["epsilon_budget"]
    assert cli.main(["verify", str(run)]) == 0
