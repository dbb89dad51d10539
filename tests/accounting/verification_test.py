"""Statements that do not follow from what was charged are refused wherever they are read."""

import json
import pathlib
import shutil

import pytest

from datalens_tf import cli
from datalens_tf.accounting import verification
from datalens_tf.accounting.ledger import PrivacyLedger
from datalens_tf.errors import CheckpointError, DataLensError, LedgerError
from datalens_tf.evaluation import comparison
from datalens_tf.evaluation.report import RunFacts
from datalens_tf.methods.registry import synthesizer
from tests import ledgers
from tests.training import tiny

CONFIG = tiny.CONFIG.replace(insecure_noise_seed=None, num_steps=2, noise_stddev=60.0)
RELEASED = pathlib.Path(__file__).parents[2] / "checkpoints" / "mnist_eps1"


@pytest.fixture(name="trained", scope="module")
def fixture_trained(tmp_path_factory):
    """A finished run, evaluated and exported."""
    data = tiny.dataset()
    run = synthesizer("datalens")(CONFIG, run_dir=tmp_path_factory.mktemp("runs") / "run").fit(data.images, data.labels)
    shutil.copy(RELEASED / "metrics.json", run.folder.path)
    run.export(run.folder.path / "serving")
    return run.folder.path


@pytest.fixture(name="run")
def fixture_run(trained, tmp_path):
    return pathlib.Path(shutil.copytree(trained, tmp_path / "run"))


def smaller_epsilon(run):
    edit(run / "privacy.json", epsilon=1e-4, epsilon_by_accountant={"gdp": 1e-4})


def smaller_epsilon_by_one_accountant(run):
    statement = json.loads((run / "privacy.json").read_text())
    edit(run / "privacy.json", epsilon_by_accountant=statement["epsilon_by_accountant"] | {"rdp": 0.01})


def another_runs_statement(run):
    """It was charged the same, and is as private: but it is another run's."""
    edit(run / "privacy.json", ledger_head="0" * 64)


def fewer_charges_stated(run):
    edit(run / "privacy.json", num_charges=1)


def cheaper_charges_stated(run):
    statement = json.loads((run / "privacy.json").read_text())
    statement["charged"][0]["event"]["noise_multiplier"] *= 100
    edit(run / "privacy.json", charged=statement["charged"])


def other_settings_stated(run):
    edit(run / "privacy.json", noise_stddev=1e6)


def a_cut_ledger(run):
    ledgers.lose(run / "ledger.jsonl", "the last charges")


def no_ledger(run):
    (run / "ledger.jsonl").unlink()


def another_ledger(run):
    ledgers.lose(run / "ledger.jsonl", "another run's")


def an_altered_line(run):
    lines = (run / "ledger.jsonl").read_bytes().splitlines(keepends=True)
    lines[1] = lines[1].replace(b'"noise_multiplier": ', b'"noise_multiplier": 9')
    (run / "ledger.jsonl").write_bytes(b"".join(lines))


def edit(path, **changes):
    path.write_text(json.dumps(json.loads(path.read_text()) | changes))


FORGERIES = (smaller_epsilon, smaller_epsilon_by_one_accountant, another_runs_statement, fewer_charges_stated,
             cheaper_charges_stated, other_settings_stated, a_cut_ledger, no_ledger, another_ledger, an_altered_line)


@pytest.mark.parametrize("forge", FORGERIES, ids=lambda forge: forge.__name__)
def test_a_forged_run_is_not_exported_evaluated_compared_or_sampled(run, forge, tmp_path, capsys):
    forge(run)
    for words in (["export", f"--run_dir={run}", f"--output_dir={tmp_path / 'out'}"],
                  ["sample", f"--model={run}", "--num_samples=3", f"--output={tmp_path / 'out.npz'}"],
                  ["convert", f"--model={run}", f"--output={tmp_path / 'out.onnx'}"],
                  ["compare", str(run), f"--output_dir={tmp_path / 'out'}"],
                  ["evaluate", f"--samples={run}", "--dataset=digits", "--metrics=utility",
                   f"--output_dir={tmp_path / 'evaluated'}"]):
        assert cli.main(words) == 2, words
        error = capsys.readouterr().err
        assert len(error.splitlines()) == 1 and str(run) in error and "Traceback" not in error, error
    assert not (tmp_path / "out").exists() and not (tmp_path / "out.npz").exists()


def test_a_statement_is_checked_for_the_accountants_that_it_lists(run):
    """Others may have been added since; the one of its budget must be there."""
    listed = json.loads((run / "privacy.json").read_text())["epsilon_by_accountant"]
    edit(run / "privacy.json", epsilon_by_accountant={name: value for name, value in listed.items() if name != "pld"})
    assert "pld" not in verification.run_statement(run)["epsilon_by_accountant"]
    edit(run / "privacy.json", epsilon_by_accountant={name: value for name, value in listed.items() if name != "gdp"})
    with pytest.raises(CheckpointError, match="accountant='gdp'"):
        verification.run_statement(run)


def test_the_honest_run_is_taken_everywhere(run):
    statement = verification.run_statement(run)
    assert statement["private"] and RunFacts.read(run).statement == statement
    assert comparison.read_result(run).guarantee == "checked"
    assert verification.export_statement(run / "serving" / "1") == verification.run_statement(run)
    assert (run / "serving/1/assets.extra/ledger.jsonl").read_bytes() == (run / "ledger.jsonl").read_bytes()


@pytest.mark.parametrize("forge", [smaller_epsilon, smaller_epsilon_by_one_accountant, fewer_charges_stated,
                                   cheaper_charges_stated, a_cut_ledger, another_ledger, an_altered_line],
                         ids=lambda forge: forge.__name__)
def test_a_forged_export_is_refused(run, forge, tmp_path, capsys):
    forge(run / "serving" / "1" / "assets.extra")
    with pytest.raises(DataLensError):
        verification.export_statement(run / "serving" / "1")
    assert cli.main(["sample", f"--model={run / 'serving'}", f"--output={tmp_path / 'out.npz'}"]) == 2
    assert len(capsys.readouterr().err.splitlines()) == 1 and not (tmp_path / "out.npz").exists()


@pytest.mark.parametrize("forge", [smaller_epsilon, smaller_epsilon_by_one_accountant, fewer_charges_stated,
                                   cheaper_charges_stated], ids=lambda forge: forge.__name__)
def test_without_its_ledger_an_export_must_agree_with_what_it_says_itself(run, forge):
    extra = run / "serving" / "1" / "assets.extra"
    (extra / "ledger.jsonl").unlink()
    assert verification.export_statement(extra.parent)["private"]
    forge(extra)
    with pytest.raises(LedgerError, match="does not follow from what was charged"):
        verification.export_statement(extra.parent)


def test_a_run_with_predictable_noise_cannot_be_made_private_by_its_statement(tmp_path):
    data, config = tiny.dataset(), CONFIG.replace(insecure_noise_seed=1)
    run = synthesizer("datalens")(config, run_dir=tmp_path / "run").fit(data.images, data.labels).folder.path
    ledger = PrivacyLedger.read(run / "ledger.jsonl")
    assert not ledger.secret_noise and not verification.run_statement(run)["private"]
    with pytest.raises(LedgerError, match="the noise was predictable"):
        verification.check_statement(json.loads((run / "privacy.json").read_text()) | {"private": True}, ledger, "it")


def test_settings_that_cannot_be_read_are_one_clear_line(run):
    (run / "config.json").write_text("[]")
    with pytest.raises(CheckpointError, match="Cannot read .*config.json"):
        verification.run_statement(run)
