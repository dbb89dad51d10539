"""Runs whose records are with owners, by the methods that release sums."""

import json

import numpy as np
import pytest

from datalens_tf import cli
from datalens_tf.accounting import accountants
from datalens_tf.accounting.accountants import round_up
from datalens_tf.accounting.ledger import PrivacyLedger
from datalens_tf.auditing.verification import verify
from datalens_tf.errors import ActorError, BudgetExhaustedError, InvalidArgumentError
from datalens_tf.events import DiscreteGaussianDpEvent
from datalens_tf.methods.registry import config_class, synthesizer
from datalens_tf.training.sum_owners import SumOwners
from tests.methods import datalens_plus_test, dp_merf_test
from tests.training import tiny
from tests.training.sum_owners_test import gone

OWNED = {"dataset": "tiny", "num_owners": 3, "accountant": "rdp"}
RUNS = {"embedding": dp_merf_test.CONFIG.replace(autoencoder_dim=5, **OWNED),
        **{name: datalens_plus_test.CONFIG.replace(**settings, **OWNED)
           for name, settings in datalens_plus_test.SETTINGS.items()}}


def owners(config):
    return SumOwners.here(config, [tiny.dataset(count, seed=count) for count in (20, 13, 17)])


@pytest.mark.parametrize("name", [name if name == "embedding" else pytest.param(name, marks=pytest.mark.slow)
                                  for name in RUNS])
def test_owners_train_a_generator_and_the_statement_says_who_sees_what(name, tmp_path):
    config = RUNS[name].replace(owner_tolerance=1)
    run = synthesizer(config.method)(config, run_dir=tmp_path)
    run.fit_dataset(owners(config))
    statement, text = run.privacy_statement(), " ".join((tmp_path / "privacy.txt").read_text().split())
    assert statement["private"] and statement["num_records"] == 50 and run.sample(4, seed=0)[0].shape == (4, 8, 8, 1)
    assert set(statement["epsilon_by_accountant"]) == {"classic_rdp", "rdp"}
    assert 2.0 * (1 - 1e-6) < statement["epsilon"] <= 2.0
    seen = DiscreteGaussianDpEvent(run.config.noise_multiplier * 0.5**0.5)
    towards = accountants.epsilon(seen, run.config.num_charges, 1e-5, "rdp")
    assert statement["epsilon_towards_driver"] == pytest.approx(towards) and towards > 2.5
    for said in ("3 data owners keep their records", "The sum of 2 shares reaches the noise above, even if 1 of the",
                 f"epsilon = {round_up(towards)} at the same delta (rdp)", "discrete Gaussian noise, drawn exactly"):
        assert said in text, said
    assert all(check.passed for check in verify(tmp_path))
    for number in range(3):  # An owner's ledger has what the run's has.
        own = PrivacyLedger.read(tmp_path / "private" / "owners" / str(number) / "ledger.jsonl")
        assert own.spent() == PrivacyLedger.read(tmp_path / "ledger.jsonl").spent()
    made = run.export(tmp_path / "export")  # Nothing of the owners leaves.
    assert not any("owners" in path.relative_to(made).parts for path in made.rglob("*"))


def test_an_owner_lost_in_the_first_of_two_releases_makes_the_noise_larger(tmp_path, monkeypatch):
    config = RUNS["embedding"]
    run, joined = synthesizer(config.method)(config, run_dir=tmp_path), owners(config)
    third, calls = joined._channel._owners[2], []
    monkeypatch.setattr(third, "draw", lambda *args, original=third.draw: (
        calls.append(1), gone() if len(calls) == 1 else original(*args))[1])
    with pytest.raises(ActorError, match="2 of 3 owners sent their shares, 3 are needed"):
        run.fit_dataset(joined)
    with pytest.warns(UserWarning, match="1 of 1 charges .* 1.414 times the noise"):
        run = synthesizer(config.method)(config, run_dir=tmp_path)
        run.fit_dataset(joined)
    statement = run.privacy_statement()
    assert (statement["num_charges"], statement["num_burnt_charges"]) == (3, 1) and statement["epsilon"] <= 2.0
    lines = [PrivacyLedger.read(tmp_path / "private" / "owners" / str(number) / "ledger.jsonl").num_charges
             for number in range(3)]
    assert lines == [3, 3, 2]  # What the third did not answer, it did not pay for.


def test_an_owner_that_never_gets_ready_costs_nothing(tmp_path, monkeypatch):
    config = RUNS["embedding"]
    run, joined = synthesizer(config.method)(config, run_dir=tmp_path), owners(config)
    monkeypatch.setattr(joined._channel._owners[0], "prepare", gone)
    with pytest.raises(ActorError, match="did not report ready"):
        run.fit_dataset(joined)
    assert PrivacyLedger.read(tmp_path / "ledger.jsonl").num_charges == 0


def test_a_lost_one_shot_release_is_the_end(tmp_path, monkeypatch):
    config = dp_merf_test.CONFIG.replace(**OWNED)
    run, joined = synthesizer(config.method)(config, run_dir=tmp_path), owners(config)
    monkeypatch.setattr(joined._channel._owners[0], "draw", gone)
    with pytest.raises(ActorError, match="2 of 3"):
        run.fit_dataset(joined)
    with pytest.raises(BudgetExhaustedError, match="does not pay for what remains"):
        run.fit_dataset(joined)


@pytest.mark.parametrize("method", ["dp_merf", "datalens_plus"])
@pytest.mark.parametrize("changes,message", [
    ({"accountant": "gdp"}, "accountant='gdp' to be rdp or classic_rdp where owners add discrete Gaussian noise"),
    ({"owner_tolerance": 3}, "owner_tolerance=3 < num_owners=3"), ({"num_owners": 0}, "num_owners=0 >= 1"),
    ({"num_owners": None, "owner_tolerance": 1}, "owner_tolerance=1 < num_owners=None")])
def test_bad_settings_are_named(method, changes, message):
    with pytest.raises(InvalidArgumentError, match=message):
        config_class(method)(**OWNED | changes)


def test_records_that_are_here_have_no_owners(tmp_path):
    data = tiny.dataset()
    with pytest.raises(InvalidArgumentError, match="num_owners=3 to be the number of owners who keep the data"):
        synthesizer("dp_merf")(dp_merf_test.CONFIG.replace(**OWNED), run_dir=tmp_path).fit(data.images, data.labels)


@pytest.mark.slow
def test_the_command_line_trains_with_owners_on_ray(tmp_path, capsys):
    for number in range(2):
        data = tiny.dataset(20 + number, seed=number)
        np.savez(tmp_path / f"{number}.npz", x=data.images, y=data.labels)
    flags = ["train", "--method=dp_merf", "--dataset", f"npz:{tmp_path}/{{owner}}.npz", "--num_owners=2",
             "--output_dir", str(tmp_path / "run"), "--num_features=40", "--bandwidths=2", "--batch_size=6",
             "--fit_steps=4", "--generator_filters=4", "--generator_units=8", "--latent_dim=4"]
    assert cli.main(flags) == 2
    assert "accountant='gdp' to be rdp" in capsys.readouterr().err
    assert cli.main([*flags, "--accountant=rdp"]) == 2
    assert "Missing --distribute" in capsys.readouterr().err
    assert cli.main([*flags, "--accountant=rdp", "--distribute=ray"]) == 0
    statement = json.loads((tmp_path / "run" / "privacy.json").read_text())
    assert statement["private"] and statement["num_records"] == 41 and statement["num_owners"] == 2
