"""Every released generator: its statement must not promise more than its own settings and ledger give."""

import dataclasses
import json
import pathlib
import re
import shutil
import subprocess
import zlib

import dp_accounting
import pytest
import tensorflow as tf

import datalens_tf
from datalens_tf.accounting import accountants
from datalens_tf.accounting.ledger import PrivacyLedger
from datalens_tf.accounting.wording import render_text
from datalens_tf.auditing.verification import verify
from datalens_tf.config import MethodConfig, config_digest
from datalens_tf.mechanisms import SecureGaussianNoise
from datalens_tf.methods.datalens import DataLensConfig, privacy_statement
from datalens_tf.methods.datalens_plus_config import DataLensPlusConfig
from datalens_tf.methods.registry import config_from_json, synthesizer
from tests.training import tiny

CHECKPOINTS = pathlib.Path(__file__).parents[1] / "checkpoints"
ENTRIES = sorted(path for path in CHECKPOINTS.iterdir() if path.is_dir())

ALLOWED = re.compile(
    r"SHA256SUMS|config\.json|ledger\.jsonl|privacy\.(json|txt)|metrics\.json|report\.html|samples\.png|generator/1/("
    r"saved_model\.pb|fingerprint\.pb|variables/variables\.(index|data-00000-of-00001)|"
    r"assets\.extra/(model\.json|ledger\.jsonl|privacy\.(json|txt)|MODEL_CARD\.md|LICENSE|SHA256SUMS|"
    r"tf_serving_warmup_requests))")
ACCURACY = 1e-9  # of a recomputed epsilon, relative
FIRST_ACCOUNTANTS = ("classic_rdp", "rdp", "pld", "gdp")  # those of the first release


def problems(entry: pathlib.Path, scratch: pathlib.Path, readme: str) -> list[str]:
    """What is wrong with a released generator."""
    files = {path.relative_to(entry).as_posix() for path in entry.rglob("*") if not path.is_dir()}
    found = [f"{name} must not be released" for name in sorted(files) if not ALLOWED.fullmatch(name)]
    if f"`{entry.name}`" not in readme:
        found.append(f"{entry.name} is not in the README")
    config = config_from_json((entry / "config.json").read_text())
    # Opening a ledger may repair it: do that to a copy.
    ledger = PrivacyLedger.open(shutil.copy(entry / "ledger.jsonl", scratch))
    statement = json.loads((entry / "privacy.json").read_text())
    event = charge_event(config)
    if ledger.config_digest != config_digest((entry / "config.json").read_text()):
        found.append("the ledger belongs to other settings")
    if any(charge.unit != event for charge in ledger.charges):
        found.append("a charge is not what a step costs under these settings")
    if ledger.num_charges < getattr(config, "num_charges", 1):
        found.append(f"{ledger.num_charges} charges, the settings make {config.num_charges}")
    if config.insecure_noise_seed is not None or statement["private"] is not True:
        found.append("it is not private")
    if statement["delta"] != config.delta or statement["accountant"] != config.accountant:
        found.append("the statement is for another delta or accountant")
    for name in sorted({*FIRST_ACCOUNTANTS, *statement["epsilon_by_accountant"]}):  # Others may have come since.
        spent = accountants.epsilon(event, ledger.num_charges, config.delta, name)
        stated = [statement["epsilon_by_accountant"].get(name)]
        if name == statement["accountant"]:
            stated.append(statement["epsilon"])
            if spent > config.epsilon:
                found.append(f"epsilon {spent} exceeds the budget {config.epsilon}")
        if any(value is None or not value >= spent * (1 - ACCURACY) for value in stated):
            found.append(f"epsilon by {name} is {spent}, stated is {stated}")
    if statement["num_charges"] != ledger.num_charges:
        found.append(f"{ledger.num_charges} charges, stated are {statement['num_charges']}")
    inside = entry / "generator/1/assets.extra/privacy.json"
    if not inside.is_file() or json.loads(inside.read_text()) != statement:
        found.append("the statement inside the SavedModel is another one")
    if not found and (entry / "privacy.txt").read_text() != render_text(statement):
        found.append("privacy.txt says something else than privacy.json")
    return found


def charge_event(config: MethodConfig) -> dp_accounting.DpEvent:
    """What one charge costs under these settings."""
    if isinstance(config, DataLensPlusConfig):
        return dp_accounting.GaussianDpEvent(config.noise_multiplier)
    return config.mechanism().dp_event(config.batch_size)


def test_released_generators_are_as_private_as_they_say(tmp_path):
    readme = (CHECKPOINTS / "README.md").read_text()
    found = {entry.name: problems(entry, tmp_path, readme) for entry in ENTRIES}
    assert not any(found.values()), found


@pytest.mark.parametrize("entry", ENTRIES, ids=lambda entry: entry.name)
def test_served_they_say_what_they_promise(entry):
    generator = datalens_tf.load_generator(entry / "generator")
    (text,) = generator.model.signatures["describe"](name=tf.constant(["privacy.json"]))["text"].numpy()
    assert json.loads(text) == json.loads((entry / "privacy.json").read_text())
    assert generator.sample(range(10), seed=0).shape == (10, *generator.image_shape)
    subprocess.run(["sha256sum", "--check", "--quiet", "assets.extra/SHA256SUMS"], cwd=generator.path, check=True)


@pytest.mark.parametrize("entry", ENTRIES, ids=lambda entry: entry.name)
def test_they_pass_verification_and_a_byte_changed_anywhere_fails_it(entry, tmp_path):
    checks = verify(entry)
    assert all(check.passed for check in checks), checks
    copy = pathlib.Path(shutil.copytree(entry, tmp_path / "copy"))
    for path in sorted(path for path in copy.rglob("*") if path.is_file()):
        content = path.read_bytes()
        place = zlib.crc32(path.name.encode()) % len(content)
        path.write_bytes(content[:place] + bytes([content[place] ^ 1]) + content[place + 1:])
        assert any(check.passed is False for check in verify(copy)), path
        path.write_bytes(content)
    assert all(check.passed for check in verify(copy))


def test_only_folders_and_the_readme_lie_beside_them():
    assert {path.name for path in CHECKPOINTS.iterdir() if not path.is_dir()} == {"README.md"}


# The check itself: an honest entry passes, each forgery is noticed.


@pytest.fixture(name="honest")
def make_honest(tmp_path):
    entry = tmp_path / "honest"
    (entry / "generator/1/assets.extra").mkdir(parents=True)
    (entry / "generator/1/saved_model.pb").write_bytes(b"")
    config = DataLensConfig(dataset="digits", num_teachers=100, top_k=8, noise_stddev=150.0, epsilon=10.0)
    write_ledger(entry, config)
    return entry


def write_ledger(entry, config, event=None, num_charges=20):
    """Settings, a ledger with that many charges, and the statement that belongs to them."""
    mechanism = config.mechanism()
    event = event or mechanism.dp_event(config.batch_size)
    (entry / "ledger.jsonl").unlink(missing_ok=True)
    ledger = PrivacyLedger.create(
        entry / "ledger.jsonl", epsilon=config.epsilon, delta=config.delta, accountant=config.accountant,
        config_digest=config_digest(config.to_json()), step_event=event)
    for step in range(num_charges):
        ledger.spend(event, step=step + 1)
    (entry / "config.json").write_text(config.to_json())
    honest = mechanism.dp_event(config.batch_size)
    ledger.charges = tuple(dataclasses.replace(charge, event=honest) for charge in ledger.charges)
    write_statement(entry, privacy_statement(
        config=config, mechanism=mechanism, num_burnt=0, noise=SecureGaussianNoise(), num_records=1438, ledger=ledger))
    (entry / "privacy.txt").write_text(render_text(json.loads((entry / "privacy.json").read_text())))


def write_statement(entry, statement):
    for folder in (entry, entry / "generator/1/assets.extra"):
        (folder / "privacy.json").write_text(json.dumps(statement))


def verdict(entry, readme="`honest`"):
    scratch = entry.parent / "scratch"
    scratch.mkdir(exist_ok=True)
    return " / ".join(problems(entry, scratch, readme))


def test_an_honest_entry_passes(honest):
    assert verdict(honest) == ""


@pytest.mark.parametrize("name", ["private/releases/000001.npz", "teachers.bin", "generator/1/teachers.bin",
                                  "generator/2/saved_model.pb", ".hidden"])
def test_other_files_are_refused(honest, name):
    (honest / name).parent.mkdir(parents=True, exist_ok=True)
    (honest / name).write_bytes(b"votes")
    assert f"{name} must not be released" in verdict(honest)


@pytest.mark.parametrize("change", [
    lambda s: s.update(epsilon=s["epsilon"] * 0.999),
    lambda s: s["epsilon_by_accountant"].update(classic_rdp=0.5),
    lambda s: s["epsilon_by_accountant"].pop("pld"),
    lambda s: s["epsilon_by_accountant"].update(rdp=None),
])
def test_a_smaller_or_missing_epsilon_is_noticed(honest, change):
    statement = json.loads((honest / "privacy.json").read_text())
    change(statement)
    write_statement(honest, statement)
    assert "epsilon by" in verdict(honest)


def test_a_charge_that_was_removed_from_the_statement_is_noticed(honest):
    statement = json.loads((honest / "privacy.json").read_text())
    config = DataLensConfig.from_json((honest / "config.json").read_text())
    write_ledger(honest, config, num_charges=21)
    write_statement(honest, statement)
    assert "21 charges, stated are 20" in verdict(honest) and "epsilon by gdp" in verdict(honest)


def test_cheaper_charges_than_the_settings_give_are_noticed(honest):
    config = DataLensConfig.from_json((honest / "config.json").read_text())
    write_ledger(honest, config, event=dp_accounting.GaussianDpEvent(500.0))
    assert "not what a step costs" in verdict(honest)


def test_settings_with_more_noise_than_the_ledger_knows_are_noticed(honest):
    config = DataLensConfig.from_json((honest / "config.json").read_text())
    (honest / "config.json").write_text(config.replace(noise_stddev=300.0).to_json())
    assert "other settings" in verdict(honest) and "not what a step costs" in verdict(honest)


def test_a_run_with_predictable_noise_is_refused(honest):
    config = DataLensConfig.from_json((honest / "config.json").read_text())
    write_ledger(honest, config.replace(insecure_noise_seed=1))
    assert "it is not private" in verdict(honest)


def test_another_statement_inside_the_model_is_noticed(honest):
    (honest / "generator/1/assets.extra/privacy.json").write_text("{}")
    assert "inside the SavedModel" in verdict(honest)


def test_a_text_that_promises_more_is_noticed(honest):
    text = (honest / "privacy.txt").read_text()
    (honest / "privacy.txt").write_text(text.replace("epsilon =", "epsilon = 0."))
    assert "privacy.txt" in verdict(honest)


def test_an_entry_that_the_readme_does_not_mention_is_noticed(honest):
    assert "not in the README" in verdict(honest, readme="`other`")


# Of another method.


@pytest.fixture(name="plus", scope="module")
def make_plus(tmp_path_factory):
    """What leaves a run, as release.sh copies it."""
    folder, data = tmp_path_factory.mktemp("runs"), tiny.dataset()
    config = DataLensPlusConfig(candidates="moments:1", embedding_charges=0, mean_charges=2, covariance_charges=3,
                                selection_charges=0, num_factors=3, epsilon=2.0)
    run = synthesizer("datalens_plus")(config, run_dir=folder / "run").fit(data.images, data.labels)
    for name in ("config.json", "ledger.jsonl", "privacy.json", "privacy.txt", "samples.png"):
        (folder / "honest").mkdir(exist_ok=True)
        shutil.copy(run.folder.path / name, folder / "honest")
    shutil.copytree(run.folder.path / "generator/1", folder / "honest/generator/1")
    shutil.rmtree(folder / "honest/generator/1/assets", ignore_errors=True)  # Empty: git does not keep it.
    return folder / "honest"


def test_an_honest_entry_of_another_method_passes(plus):
    assert verdict(plus) == ""


def test_less_noise_or_fewer_charges_than_its_settings_say_are_noticed(plus, tmp_path):
    entry = pathlib.Path(shutil.copytree(plus, tmp_path / "honest"))
    config = config_from_json((entry / "config.json").read_text())
    (entry / "config.json").write_text(config.replace(noise_multiplier=2 * config.noise_multiplier).to_json())
    assert "other settings" in verdict(entry) and "not what a step costs" in verdict(entry)
    (entry / "config.json").write_text(config.to_json())
    event, ledger = charge_event(config), entry / "ledger.jsonl"
    ledger.unlink()
    ledger = PrivacyLedger.create(ledger, epsilon=2.0, delta=1e-5, accountant="gdp", step_event=event,
                                  config_digest=config_digest(config.to_json()))
    ledger.spend(dp_accounting.SelfComposedDpEvent(event, config.num_charges - 1), step=1)
    assert "4 charges, the settings make 5" in verdict(entry) and "4 charges, stated are 5" in verdict(entry)
