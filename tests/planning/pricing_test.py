"""What several releases of the same records cost together."""

import json
import math
import shutil

import dp_accounting
import pytest

from datalens_tf import cli
from datalens_tf.accounting import accountants
from datalens_tf.accounting.ledger import PrivacyLedger
from datalens_tf.config import ACCOUNTANTS, config_digest
from datalens_tf.errors import InvalidArgumentError
from datalens_tf.planning.pricing import composition_report, render_composition
from datalens_tf.training.trainer import Trainer
from tests.ledgers import as_version_1
from tests.training import tiny


def ledger(path, multiplier, num_charges, delta=1e-5, config_digest="abc"):
    event = dp_accounting.GaussianDpEvent(multiplier)
    made = PrivacyLedger.create(path, epsilon=50.0, delta=delta, accountant="gdp", config_digest=config_digest,
                                step_event=event)
    for step in range(num_charges):
        made.spend(event, step=step)
    return made


def test_gaussian_releases_add_up_as_squares(tmp_path):
    """Releases of noise multiplier z_i are one of multiplier (sum z_i^-2)^-1/2: exact, by every accountant."""
    ledgers = [ledger(tmp_path / "a", 20.0, 30), ledger(tmp_path / "b", 7.0, 5), ledger(tmp_path / "c", 7.0, 0)]
    one = ledger(tmp_path / "one", 1 / math.sqrt(30 / 400 + 5 / 49), 1)
    report, expected = composition_report(ledgers), composition_report([one])
    assert report["num_charges"] == 35 and [part["num_charges"] for part in report["ledgers"]] == [30, 5, 0]
    for name in ACCOUNTANTS:
        assert report["epsilon"][name] == pytest.approx(expected["epsilon"][name], rel=1e-3 if name == "pld" else 1e-6)
        apart = [part["epsilon"][name] for part in report["ledgers"]]
        assert max(apart) < report["epsilon"][name] and apart[2] == 0
    # A run that was extended costs what one long run costs.
    halves = [ledger(tmp_path / "first", 20.0, 10), ledger(tmp_path / "second", 20.0, 20)]
    assert composition_report(halves)["epsilon"] == report["ledgers"][0]["epsilon"]


def test_the_same_file_and_different_deltas_are_refused(tmp_path):
    first, other = ledger(tmp_path / "a", 20.0, 3), ledger(tmp_path / "b", 20.0, 3, delta=1e-6)
    (tmp_path / "link").symlink_to(tmp_path / "a")
    with pytest.raises(InvalidArgumentError, match="given once"):
        composition_report([first, PrivacyLedger.read(tmp_path / "link")])
    with pytest.raises(InvalidArgumentError, match=r"delta=\[1e-06, 1e-05\] to be one"):
        composition_report([first, other])
    assert composition_report([first, other], 1e-5)["epsilon"]["gdp"] == pytest.approx(
        composition_report([first, ledger(tmp_path / "c", 20.0, 3)])["epsilon"]["gdp"])


def test_sums_say_what_they_protect_and_different_units_have_none(tmp_path):
    """A patient with several images pays more for a run that protects one of them than that run's epsilon says."""
    runs = []
    for name, settings in {"a": "{}", "b": '{"unit": "patient"}', "c": None, "d": '{"unit": "patient"} '}.items():
        (tmp_path / name).mkdir()
        digest = "abc" if settings is None else config_digest(settings)
        runs.append(ledger(tmp_path / name / "ledger.jsonl", 20.0, 3, config_digest=digest))
        if settings is not None:
            (tmp_path / name / "config.json").write_text(settings)
    with pytest.raises(InvalidArgumentError, match=r"got one record .*/a/ledger.jsonl and one patient .*/b/"):
        composition_report(runs)
    both = render_composition(composition_report([runs[1], runs[3]]))
    assert both.endswith("Protected is one patient (all the images that the patient has, with their labels).")
    unsure = composition_report(runs[1:])
    assert unsure["unit"].startswith("one patient") and unsure["unit_unknown"] == [str(tmp_path / "c/ledger.jsonl")]
    assert "c/ledger.jsonl protects is not known" in render_composition(unsure)
    assert "Protected" not in render_composition(composition_report([runs[2]]))
    (tmp_path / "a/config.json").write_text('{"unit": "patient"}')  # It is not that of the ledger.
    assert composition_report([runs[0]])["unit"] is None


def test_forks_of_one_run_are_recognised_and_both_are_paid_for(tmp_path):
    """Two copies of a run that were both continued released twice; what they had in common was released once."""
    run = ledger(tmp_path / "run", 20.0, 30)
    for name in ("backup", "longer"):
        (tmp_path / name).write_bytes((tmp_path / "run").read_bytes())
        PrivacyLedger.open(tmp_path / name).spend(run.step_event, step=30)
    run.spend(run.step_event, step=30)
    PrivacyLedger.open(tmp_path / "longer").spend(run.step_event, step=31)
    report = composition_report([PrivacyLedger.read(tmp_path / name) for name in ("run", "backup", "longer")])
    assert report["num_charges"] == 30 + 1 + 1 + 2
    (fork,) = report["forks"]
    assert (fork["run_id"], fork["shared_charges"], fork["own_charges"]) == (run.run_id, 30, [1, 1, 2])
    assert report["epsilon"]["gdp"] == accountants.epsilon(run.step_event, 34, 1e-5, "gdp")
    text = render_composition(report)
    assert "forks of one run: they share 30 charges, which are counted once, and have 1, 1, 2 of their own" in text
    # An earlier state of a run costs nothing beside the run, and other runs are other runs.
    (tmp_path / "earlier").write_bytes(run.until(10).content)
    report = composition_report([run, PrivacyLedger.read(tmp_path / "earlier"), ledger(tmp_path / "other", 20.0, 3)])
    assert report["num_charges"] == 31 + 3 and len(report["forks"]) == 1
    assert "copies of one run" in render_composition(report) and "are forks" not in render_composition(report)


def test_a_release_drawn_twice_from_a_copied_folder_costs_twice(tmp_path):
    """The one release of DP-MERF at epsilon 1, from a folder that was copied before it was made."""
    event = dp_accounting.GaussianDpEvent(accountants.calibrate_noise_multiplier(1, 1.0, 1e-5, "gdp"))
    PrivacyLedger.create(tmp_path / "a", epsilon=1.0, delta=1e-5, accountant="gdp", config_digest="", step_event=event)
    (tmp_path / "b").write_bytes((tmp_path / "a").read_bytes())
    drawn = []
    for name in ("a", "b"):
        drawn.append(PrivacyLedger.open(tmp_path / name))
        drawn[-1].spend(event, step=1)
    report = composition_report(drawn)
    assert report["epsilon"]["gdp"] == pytest.approx(1.4652, abs=1e-4)
    assert report["forks"][0]["own_charges"] == [1, 1]


@pytest.fixture(name="insecure", scope="module")
def fixture_insecure(tmp_path_factory):
    """Folder of a run with predictable noise. Not to be changed."""
    config = tiny.CONFIG.replace(num_steps=2)
    assert config.insecure_noise_seed is not None
    trainer = Trainer(config, tiny.dataset(), tmp_path_factory.mktemp("insecure") / "run")
    trainer.run()
    return trainer.folder.path


@pytest.mark.parametrize("version", [1, 2])
def test_predictable_noise_is_not_private_whatever_was_charged(insecure, tmp_path, capsys, version):
    shutil.copytree(insecure, tmp_path / "run")
    if version == 1:  # Says nothing of the noise itself; the settings beside it do.
        as_version_1(tmp_path / "run" / "ledger.jsonl")
    ledger(tmp_path / "other", 20.0, 30)
    for words in ([], ["--ledger", str(tmp_path / "other")]):
        for json_flag in ([], ["--json"]):
            assert cli.main(["privacy", "--ledger", str(tmp_path / "run"), *words, *json_flag]) == 0
            said = capsys.readouterr().out
            if json_flag:
                report = json.loads(said)
                assert report["private"] is False and set(report["epsilon"].values()) == {None}
                assert {value for part in report["ledgers"] for value in part["epsilon"].values()} == {None}
            else:
                assert said.startswith("NOT PRIVATE: the noise of ") and "ledger.jsonl was predictable" in said
                assert "psilon at" not in said


def test_settings_that_are_not_the_ledgers_say_nothing_of_its_noise(tmp_path):
    (tmp_path / "config.json").write_text(tiny.CONFIG.to_json())
    report = composition_report([ledger(tmp_path / "ledger.jsonl", 20.0, 3)])
    assert report["private"] and report["epsilon"]["gdp"] > 0


def test_the_table_never_rounds_down(tmp_path):
    report = composition_report([ledger(tmp_path / "a", 20.0, 3), ledger(tmp_path / "b", 9.0, 4)])
    last = render_composition(report).splitlines()[-1].split()
    assert last[0] == "7" and last[-2:] == ["all", "together"]
    assert all(float(text) >= report["epsilon"][name] for text, name in zip(last[1:-2], ACCOUNTANTS))


def test_on_the_command_line(tmp_path, capsys):
    (tmp_path / "run").mkdir()
    ledger(tmp_path / "run" / "ledger.jsonl", 20.0, 3), ledger(tmp_path / "b", 9.0, 4)
    flags = ["privacy", f"--ledger={tmp_path / 'run'}", f"--ledger={tmp_path / 'b'}"]
    assert cli.main(flags) == 0
    assert "all together" in capsys.readouterr().out
    for extra, message in ((["--epsilon=1"], "without --epsilon"), (["--preset=mnist"], "without --preset"),
                           ([f"--ledger={tmp_path / 'none'}"], "Cannot read the privacy ledger")):
        assert cli.main([*flags, *extra]) == 2
        error = capsys.readouterr().err
        assert message in error and len(error.splitlines()) == 1
