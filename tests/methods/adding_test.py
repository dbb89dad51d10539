"""A method, a data set, an accountant and a metric are a file each: those of CONTRIBUTING.md, put into new folders."""

import json
import pathlib
import re
import subprocess
import sys

import numpy as np
import pytest

from datalens_tf import cli, methods
from datalens_tf.accounting import accountants
from datalens_tf.accounting.ledger import PrivacyLedger
from datalens_tf.data import sources
from datalens_tf.evaluation import metrics
from datalens_tf.methods import registry

ROOT = pathlib.Path(__file__).parents[2]
WALK_THROUGH = re.findall(r"`(datalens_tf/[\w/]+\.py)`[^`]*```python\n(.*?)```",
                          (ROOT / "CONTRIBUTING.md").read_text(encoding="utf-8"), re.DOTALL)
SMALL = ["--generator_filters=4", "--generator_units=8", "--latent_dim=4"]


@pytest.fixture(name="added", scope="module")
def fixture_added(tmp_path_factory):
    """A folder with the files of the walk-through, by their folders, where methods and data sets are found."""
    folder, code = tmp_path_factory.mktemp("added"), dict(WALK_THROUGH)
    assert sorted(code) == [f"datalens_tf/{name}.py" for name in (
        "bounds/zcdp", "data/sources/shades", "evaluation/metrics/brightness", "methods/mean_image")]
    for name, text in code.items():
        (folder / name).parent.mkdir(parents=True)
        (folder / name).write_text(text)
    with pytest.MonkeyPatch.context() as patch:
        for package in (methods, metrics, sources):
            place = folder.joinpath(*package.__name__.split("."))
            patch.setattr(package, "__path__", [*package.__path__, str(place)])
        yield folder / "datalens_tf"
    for name in ("methods.mean_image", "data.sources.shades", "evaluation.metrics.brightness"):
        sys.modules.pop(f"datalens_tf.{name}", None)


@pytest.fixture(name="run", scope="module")
def fixture_run(added, tmp_path_factory):
    folder = tmp_path_factory.mktemp("runs") / "run"
    assert cli.main(["train", "--method=mean_image", "--dataset=digits", f"--output_dir={folder}", *SMALL]) == 0
    return folder


def test_the_file_is_a_method_that_is_accounted_for(run):
    ledger = PrivacyLedger.read(run / "ledger.jsonl")
    statement = json.loads((run / "privacy.json").read_text())
    assert ledger.num_charges == 3 and ledger.step_event == registry.config_from_json(
        (run / "config.json").read_text()).step_event()
    assert statement["epsilon"] == accountants.epsilon(ledger.step_event, 3, 1e-5, "gdp") <= ledger.epsilon_budget
    assert "shortened to the length 4" in (run / "privacy.txt").read_text().replace("\n", " ")


def test_its_generator_is_exported_and_verified(run, tmp_path, capsys):
    assert cli.main(["export", f"--run_dir={run}", f"--output_dir={tmp_path}"]) == 0
    for path in (run, tmp_path):
        assert cli.main(["verify", str(path)]) == 0
    assert "FAILED" not in capsys.readouterr().out


def test_it_is_evaluated(run, tmp_path):
    with np.load(run / "samples.npz") as samples:
        np.savez(tmp_path / "few.npz", x=samples["x"][:300], y=samples["y"][:300])
    assert cli.main(["evaluate", f"--samples={tmp_path / 'few.npz'}", "--dataset=digits", "--metrics=utility",
                     "--epochs=1", "--seeds=1", f"--output_dir={tmp_path / 'found'}"]) == 0
    assert json.loads((tmp_path / "found" / "metrics.json").read_text())["utility"]["accuracy_mean"] > 0


def test_its_settings_are_in_the_help(added, capsys):
    with pytest.raises(SystemExit):
        cli.main(["train", "--method", "mean_image", "--help"])
    text = " ".join(capsys.readouterr().out.split())
    assert "mean_image" in text and "Length that an image is shortened to." in text


def test_it_is_in_the_table_of_methods(added, capsys):
    assert cli.main(["methods", "--json"]) == 0
    assert "an example of a method is wanted" in capsys.readouterr().out


def test_the_file_is_a_data_set(added, tmp_path):
    folder = tmp_path / "run"
    assert cli.main(["train", "--method=mean_image", "--dataset=shades:40", f"--output_dir={folder}",
                     "--num_steps=1", *SMALL]) == 0
    statement = json.loads((folder / "privacy.json").read_text())
    assert (statement["dataset"], statement["num_records"]) == ("shades:40", 40)


def test_the_file_is_a_metric(added, tmp_path, capsys):
    np.savez(tmp_path / "white.npz", x=np.full((20, 8, 8, 1), 255, np.uint8), y=np.arange(20) % 10)
    assert cli.main(["evaluate", f"--samples={tmp_path / 'white.npz'}", "--dataset=digits", "--metrics=brightness",
                     f"--output_dir={tmp_path / 'found'}"]) == 0
    assert "brightness 1.00, of real images 0." in capsys.readouterr().out
    assert json.loads((tmp_path / "found" / "metrics.json").read_text())["brightness"]["synthetic"] == 1
    assert "mean brightness of a pixel" in (tmp_path / "found" / "report.html").read_text()


def test_the_file_is_an_accountant_and_older_statements_stay_valid(added):
    """In a process of its own: the names of accountants are read once."""
    code = f"""
import importlib, sys
bounds = importlib.import_module("datalens_tf.bounds")
bounds.__path__.append({str(added / "bounds")!r})
from datalens_tf import cli
for words in (["privacy", "--preset=mnist", "--num_steps=86", "--json"], ["verify", sys.argv[1]]):
    assert cli.main(words) == 0
"""
    checkpoint = ROOT / "checkpoints" / "fashion_mnist_eps1"
    done = subprocess.run([sys.executable, "-c", code, checkpoint], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    report, _, verdict = done.stdout.partition("\n}\n")
    epsilon = json.loads(report + "\n}")["epsilon"]
    assert list(epsilon) == ["zcdp", "classic_rdp", "rdp", "pld", "gdp"]
    assert epsilon["zcdp"] == pytest.approx(epsilon["classic_rdp"], rel=1e-3)  # Whose orders are integers.
    assert "FAILED" not in verdict

