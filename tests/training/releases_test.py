"""Releases that are planned, charged with one line each, and paid for with what kills leave of the budget."""

import json
import math
import pathlib
import shutil
import warnings

import dp_accounting
import numpy as np
import pytest

from datalens_tf.accounting import accountants
from datalens_tf.accounting.ledger import PrivacyLedger
from datalens_tf.config import config_digest
from datalens_tf.errors import BudgetExhaustedError, InterruptionWarning, LedgerError
from datalens_tf.mechanisms.mean_embedding import MeanEmbedding
from datalens_tf.methods.datalens_plus_config import DataLensPlusConfig
from datalens_tf.methods.dp_merf import DpMerfConfig
from datalens_tf.methods.registry import config_from_json, preset
from datalens_tf.training.checkpoint import ReleaseStore
from datalens_tf.training.releases import LARGEST_FACTOR, Releases, largest_release, warn_of_lost_steps
from datalens_tf.training.run_folder import RunFolder, open_run

# 2 + 3 + 4 + 3 charges.
CONFIG = DataLensPlusConfig(
    candidates="moments:0,both:1", mean_charges=2, covariance_charges=3, embedding_charges=4, selection_charges=3,
    epsilon=2.0).resolved(20)
IDENTITY = {"num_records": 20}
SUMS = np.zeros((2, 3))
# The settings and the ledger of a run on MNIST by commit d74960bbab.
EARLIER = pathlib.Path(__file__).with_name("earlier_run")
# Before the first of its charges is made, all that follows is lost.
KILLS = {"after the charge": (MeanEmbedding, "privatize"), "after the noise": (ReleaseStore, "store")}


def start(path, config=CONFIG, **kwargs):
    """As a new process does."""
    folder = RunFolder(path)
    folder.create()
    return Releases(config, folder, open_run(folder, config, IDENTITY, config.step_event(), largest_release(config)),
                    **kwargs)


def get(releases):
    """The next release: its noise multiplier, and what was released."""
    mechanism, noisy = releases.get(MeanEmbedding, lambda mechanism: SUMS)
    return mechanism.noise_multiplier, noisy


def run(path, config=CONFIG, **kwargs):
    """All releases of a run, from the start or from where it was killed."""
    releases = start(path, config, **kwargs)
    return releases, [get(releases) for _ in config.release_charges]


def kill(path, release, monkeypatch, config=CONFIG, at="after the noise"):
    """A run that dies in its so-manieth release, once it was charged."""
    def killed(*args):
        raise KeyboardInterrupt

    releases = start(path, config)
    for _ in range(release - 1):
        get(releases)
    with monkeypatch.context() as patched, pytest.raises(KeyboardInterrupt):
        patched.setattr(*KILLS[at], killed)
        get(releases)
    return releases


def refusal(path, config):
    """Why the budget does not pay for the rest of a run, if it does not."""
    try:
        start(path, config)
    except BudgetExhaustedError as error:
        return str(error)
    return None


def counts(path):
    return [charge.count for charge in PrivacyLedger.read(path / "ledger.jsonl").charges]


def drawn(found):
    """What was really drawn costs, at delta 1e-5."""
    return accountants.epsilon_of([dp_accounting.GaussianDpEvent(z) for z, _ in found], 1e-5, "gdp")


def test_each_release_is_one_line_that_costs_what_is_drawn(tmp_path):
    releases, found = run(tmp_path)
    assert counts(tmp_path) == [2, 3, 4, 3] and releases.num_burnt == 0 and not releases.recalibrated
    assert drawn(found) == pytest.approx(releases.ledger.spent(), rel=1e-12) and releases.ledger.spent() <= 2.0


@pytest.mark.parametrize("at", KILLS)
@pytest.mark.parametrize("release", [1, 2, 3])
def test_a_kill_burns_one_line_and_what_remains_shares_what_is_left(tmp_path, monkeypatch, release, at):
    kill(tmp_path, release, monkeypatch, at=at)
    plan = CONFIG.release_charges
    burnt, rest = plan[release - 1], sum(plan[release - 1:])
    factor = math.sqrt(rest / (rest - burnt))  # As mu^2 is shared in proportion to the charges.
    assert counts(tmp_path) == list(plan[:release])
    told = f"^{burnt} of {sum(plan[:release])} charges .* were lost when training was interrupted.* {factor:.4g} times"
    with pytest.warns(InterruptionWarning, match=told):
        releases, found = run(tmp_path)
    assert counts(tmp_path) == [*plan[:release], *plan[release - 1:]] and releases.num_burnt == burnt
    planned = [CONFIG.noise_multiplier / count**0.5 for count in plan]
    assert [z for z, _ in found] == pytest.approx(
        [z * (factor if index >= release - 1 else 1) for index, z in enumerate(planned)], rel=2e-6)
    assert 2.0 * (1 - 1e-5) <= releases.ledger.spent() <= 2.0
    # The charges are those of what was drawn, with the burnt one.
    lost = dp_accounting.GaussianDpEvent(CONFIG.noise_multiplier / burnt**0.5)
    events = [lost, *(dp_accounting.GaussianDpEvent(z) for z, _ in found)]
    assert accountants.epsilon_of(events, 1e-5, "gdp") == pytest.approx(releases.ledger.spent(), rel=1e-12)
    (unit,) = releases.recalibrated
    assert unit.noise_multiplier == releases.ledger.charges[-1].unit.noise_multiplier


@pytest.mark.filterwarnings("ignore::datalens_tf.errors.InterruptionWarning")
def test_every_start_finds_the_same_noise_and_what_is_stored_keeps_its_own(tmp_path, monkeypatch):
    """Kills at several releases, a second one of a release that was made with more noise, and stops in between."""
    kill(tmp_path, 1, monkeypatch)
    first = start(tmp_path)
    mean = get(first)
    kill(tmp_path, 2, monkeypatch, at="after the charge")
    kill(tmp_path, 2, monkeypatch)
    second = start(tmp_path)
    assert get(second)[0] == mean[0]
    covariance = get(second)
    assert get(start(tmp_path))[0] == mean[0]  # A stop in between.
    third = start(tmp_path)
    np.testing.assert_array_equal(get(third)[1], mean[1])
    assert get(third)[0] == covariance[0]
    releases, found = run(tmp_path)
    assert counts(tmp_path) == [2, 2, 3, 3, 3, 4, 3] and releases.num_burnt == 8
    units = [charge.unit.noise_multiplier for charge in releases.ledger.charges]
    assert units == sorted(units) and len(set(units)) == 4 and units[4] == units[5] == units[6]
    assert [z for z, _ in found] == [unit / count**0.5 for unit, count in zip(
        [units[1], *units[4:]], CONFIG.release_charges)]
    assert releases.ledger.spent() <= 2.0
    again, same = run(tmp_path)
    assert [z for z, _ in same] == [z for z, _ in found] and again.ledger.content == releases.ledger.content


def test_kills_between_releases_and_after_the_last_one_cost_nothing(tmp_path):
    for release in range(len(CONFIG.release_charges) + 1):
        releases = start(tmp_path)
        for _ in range(release):
            get(releases)
    with warnings.catch_warnings():
        warnings.simplefilter("error", InterruptionWarning)
        releases, _ = run(tmp_path)
    assert counts(tmp_path) == [2, 3, 4, 3] and releases.num_burnt == 0


@pytest.mark.parametrize("release, config", [
    (4, CONFIG),  # The last one: nothing is left.
    (1, DpMerfConfig(epsilon=2.0).resolved(20)),
    (1, CONFIG.replace(mean_charges=1000, noise_multiplier=None).resolved(20))])  # 1% and less of it is left.
def test_what_no_noise_can_pay_for_is_refused_at_once(tmp_path, monkeypatch, release, config):
    kill(tmp_path, release, monkeypatch, config)
    before = (tmp_path / "ledger.jsonl").read_bytes()
    with pytest.raises(BudgetExhaustedError, match=r"epsilon=2 does not pay for what remains to be released, not even "
                       r"with 10 times the noise: [12]\.?\d* is spent .* Nothing more was charged\. Train in another "
                       "folder; what is spent there comes on top") as error:
        start(tmp_path, config)
    assert "\n" not in str(error.value) and (tmp_path / "ledger.jsonl").read_bytes() == before


def test_a_run_can_do_without_its_last_release_and_says_so_at_once(tmp_path, monkeypatch):
    kill(tmp_path, 4, monkeypatch)
    with pytest.warns(InterruptionWarning, match="3 of 12 charges .* does not pay for the last of 4 releases"):
        releases = start(tmp_path, num_optional=1)
    for _ in range(3):
        assert releases.can_get()
        get(releases)
    assert not releases.can_get() and counts(tmp_path) == [2, 3, 4, 3] and releases.num_burnt == 3


def test_an_affordable_last_release_is_made_with_more_noise_rather_than_left_out(tmp_path, monkeypatch):
    """What burnt charges leave is shared by all that remains, also by what the run could do without."""
    kill(tmp_path, 3, monkeypatch)
    with pytest.warns(InterruptionWarning, match="times the noise"):
        releases, found = run(tmp_path, num_optional=1)
    assert len(found) == 4 and releases.num_burnt == 4 and releases.ledger.spent() <= 2.0


def test_too_little_noise_from_the_start_is_refused_before_the_first_charge(tmp_path):
    config = CONFIG.replace(noise_multiplier=0.8 * CONFIG.noise_multiplier)
    with pytest.raises(BudgetExhaustedError, match=r"pay for 12 charges with noise_multiplier=.*; 0\.0000 is spent"):
        start(tmp_path, config)
    assert counts(tmp_path) == []


@pytest.mark.parametrize("accountant", ["classic_rdp", "rdp", pytest.param("pld", marks=pytest.mark.slow)])
def test_other_accountants_stay_within_the_budget_too(tmp_path, monkeypatch, accountant):
    config = CONFIG.replace(accountant=accountant, noise_multiplier=None).resolved(20)
    kill(tmp_path, 2, monkeypatch, config)
    with pytest.warns(InterruptionWarning):
        releases, _ = run(tmp_path, config)
    assert 2.0 * (1 - 1e-4) <= releases.ledger.spent() <= 2.0


def test_budget_that_the_settings_left_over_pays_for_burnt_charges_first(tmp_path, monkeypatch):
    config = CONFIG.replace(noise_multiplier=2 * CONFIG.noise_multiplier)
    kill(tmp_path, 3, monkeypatch, config)
    with warnings.catch_warnings():
        warnings.simplefilter("error", InterruptionWarning)
        releases, _ = run(tmp_path, config)
    assert not releases.recalibrated and releases.num_burnt == 4


@pytest.mark.parametrize("config", [
    preset("mnist", 1.0, "datalens_plus"), preset("fashion_mnist", 10.0, "datalens_plus"),
    DpMerfConfig(autoencoder_dim=5)], ids=["datalens_plus", "clusters", "dp_merf"])
def test_any_lost_release_but_the_last_leaves_a_run_that_can_end(tmp_path, monkeypatch, config):
    config = config.resolved(20)
    for release in range(1, len(config.release_charges)):
        kill(tmp_path / str(release), release, monkeypatch, config)
        with pytest.warns(InterruptionWarning):
            assert refusal(tmp_path / str(release), config) is None
            releases, _ = run(tmp_path / str(release), config)
        (unit,) = releases.recalibrated
        assert config.noise_multiplier < unit.noise_multiplier < LARGEST_FACTOR * config.noise_multiplier
        assert releases.ledger.spent() <= config.epsilon


def test_a_torn_line_is_charged_as_the_costliest_release(tmp_path):
    releases = start(tmp_path)
    get(releases)
    ledger = tmp_path / "ledger.jsonl"
    ledger.write_bytes(ledger.read_bytes() + b'{"kind": "charge", "index": 1, "st')
    with pytest.warns(InterruptionWarning, match="4 of 6 charges"):
        releases, _ = run(tmp_path)
    assert counts(tmp_path) == [2, 4, 3, 4, 3] and releases.ledger.spent() <= 2.0


def test_a_release_of_other_settings_is_refused(tmp_path):
    releases = start(tmp_path)
    store = ReleaseStore(releases._store._directory)
    charge = releases.ledger.spend(dp_accounting.SelfComposedDpEvent(releases.event, 3), step=1)
    store.store(1, charge, SUMS, releases.ledger)
    with pytest.raises(LedgerError, match="Release 1 .* was paid for by charge 0, 3-fold, and takes 2"):
        start(tmp_path)


@pytest.fixture(name="old")
def fixture_old(tmp_path):
    """The folder of a run of earlier code, with a line for each of 6, 34, 58 and 2 charges."""
    folder = RunFolder(tmp_path / "old")
    folder.create()
    shutil.copy(EARLIER / "config.json", folder.path)
    folder.identity.write_text(json.dumps(IDENTITY))
    return folder, config_from_json((EARLIER / "config.json").read_text())


@pytest.mark.parametrize("num_lines, stored, burnt", [(100, 4, 0), (40, 2, 0), (46, 2, 6), (98, 2, 58), (40, 1, 34)])
def test_runs_of_earlier_code_go_on(old, num_lines, stored, burnt):
    """Burnt lines are charges for nothing, as they were."""
    folder, config = old
    folder.ledger.write_bytes(PrivacyLedger.read(EARLIER / "ledger.jsonl").until(num_lines).content)
    assert config_digest(folder.config.read_text()) == PrivacyLedger.read(folder.ledger).config_digest
    assert config.release_charges == (6, 34, 58, 2)
    folder.releases.mkdir()
    for release, charge in enumerate([5, 39, 97, 99][:stored], start=1):
        np.savez(folder.releases / f"{release:06d}.npz", noisy=SUMS, charge=np.int64(charge))
    with warnings.catch_warnings():
        warnings.simplefilter("ignore" if burnt else "error", InterruptionWarning)
        releases, found = run(folder.path, config)
    assert releases.num_burnt == burnt and releases.ledger.num_charges == 100 + burnt
    assert len(releases.ledger.charges) == num_lines + 4 - stored
    assert releases.ledger.spent() <= config.epsilon and len(releases.recalibrated) == (burnt > 0)
    assert [z for z, _ in found[:stored]] == [
        config.noise_multiplier / count**0.5 for count in config.release_charges[:stored]]


def test_old_releases_without_their_charges_are_refused(old):
    folder, config = old
    folder.ledger.write_bytes(PrivacyLedger.read(EARLIER / "ledger.jsonl").until(6).content)
    folder.releases.mkdir()
    for release in (1, 2):
        np.savez(folder.releases / f"{release:06d}.npz", noisy=SUMS, charge=np.int64(5))
    with pytest.raises(LedgerError, match="has 6 charges, 34 fewer than were used"):
        start(folder.path, config)


def test_a_run_of_equal_steps_says_at_once_where_it_will_end(tmp_path):
    event = dp_accounting.GaussianDpEvent(10.0)
    num_steps = accountants.max_steps(event, 1.0, 1e-5, "gdp")
    ledger = PrivacyLedger.create(tmp_path / "ledger.jsonl", epsilon=1.0, delta=1e-5, accountant="gdp",
                                  config_digest="", step_event=event)
    for step in (1, 2, 3):
        ledger.spend(event, step=step)
    with pytest.warns(InterruptionWarning, match=f"^2 of 3 charges .* ends after {num_steps - 2} of {num_steps} steps"):
        warn_of_lost_steps(ledger, event, 2, 1, num_steps)
    with warnings.catch_warnings():
        warnings.simplefilter("error", InterruptionWarning)
        warn_of_lost_steps(ledger, event, 2, 1, num_steps - 2)
        warn_of_lost_steps(ledger, event, 0, 3, num_steps + 5)
