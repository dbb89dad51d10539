"""delta is held against the number of those whom it protects, in every method, before anything is charged."""

import dataclasses
import warnings

import pytest

from datalens_tf import cli
from datalens_tf.accounting.delta import below, check_delta, describe_delta
from datalens_tf.accounting.ledger import PrivacyLedger
from datalens_tf.classification.classifier import PrivateClassifier
from datalens_tf.classification.classifier_config import ClassifierConfig
from datalens_tf.classification.pate import train_pate
from datalens_tf.classification.pate_config import PateClassifierConfig
from datalens_tf.errors import InvalidArgumentError, PrivacyWarning
from datalens_tf.methods.datalens import PRESETS, DataLensConfig
from datalens_tf.methods.fed_gs_wgan import FedGsWganConfig
from datalens_tf.methods.registry import config_classes, synthesizer
from datalens_tf.settings import declared
from datalens_tf.training.run_folder import RunFolder, open_run
from tests.training import tiny

PRIVATE = sorted(name for name, kind in config_classes().items() if kind.adjacency != "none")


@pytest.mark.parametrize("delta, count, warned", [
    (1e-5, 60_000, False), (1e-5, 99_999, False), (1e-5, 100_000, True), (1e-5, 162_770, True), (1e-5, 999_999, True)])
def test_a_warning_from_one_nth_on(delta, count, warned):
    config = DataLensConfig(delta=delta)
    with warnings.catch_warnings(record=True) as seen:
        warnings.simplefilter("always")
        check_delta(config, count)
    assert [w.category for w in seen] == ([PrivacyWarning] if warned else [])
    text = describe_delta(config, count)
    assert f"for n = {count} records" in text and ("Publishing" in text) == warned


@pytest.mark.parametrize("delta, count, better", [
    (0.01, 3000, "1e-04"), (1e-5, 1_000_000, "1e-07"), (1e-5, 1_803_460, "1e-07")])
def test_ten_nths_are_refused_unless_they_are_asked_for(delta, count, better):
    with pytest.raises(InvalidArgumentError,
                       match=rf"delta={delta:g} .* n={count} records.* --delta {float(better):g}"):
        check_delta(DataLensConfig(delta=delta), count)
    with pytest.warns(PrivacyWarning, match="outright"):
        check_delta(DataLensConfig(delta=delta, allow_large_delta=True), count)


@pytest.mark.parametrize("count", [1, 9, 10, 11, 999_999, 1_000_000, 1_000_001])
def test_the_delta_that_is_named_is_below_one_nth(count):
    assert 0.01 / count <= below(count) < 1 / count


def test_users_count_where_users_are_protected():
    config = FedGsWganConfig(num_users=500, delta=0.02)
    with pytest.raises(InvalidArgumentError, match="n=500 users"):
        check_delta(config, 60_000)
    assert describe_delta(config.replace(delta=1e-3), 60_000) == "delta = 0.001 is 0.5/n, for n = 500 users."


@pytest.mark.parametrize("method", PRIVATE)
def test_every_method_refuses_before_anything_is_charged(method, tmp_path):
    data, kind = tiny.dataset(), config_classes()[method]
    small = {"num_users": 20, "num_teachers": 2, "num_discriminators": 2, "top_k": 5, "num_steps": 1,
             "noise_multiplier": 9.0, "critic_filters": 2, "discriminator_filters": 2, "generator_filters": 2}
    changes = {name: value for name, value in small.items() if name in declared(kind)}
    config = kind(method=method, epsilon=10.0, delta=0.5, **changes)
    run = synthesizer(method)(config, run_dir=tmp_path)
    with pytest.raises(InvalidArgumentError, match="delta=0.5 .*n=20 .*--allow_large_delta"):
        run.fit(data.images, data.labels)
    assert not run.folder.ledger.exists() and not run.folder.config.exists()


def test_classifiers_refuse_before_anything_is_charged(tmp_path):
    data = tiny.dataset()
    with pytest.raises(InvalidArgumentError, match="delta=0.5 .*n=20 records"):
        PrivateClassifier(ClassifierConfig(delta=0.5, num_steps=1, batch_size=4, noise_multiplier=3.0, network="large"),
                          run_dir=tmp_path / "dp_sgd").fit(data.images, data.labels)
    config = PateClassifierConfig(delta=0.5, num_teachers=4, num_queries=2)
    with pytest.raises(InvalidArgumentError, match="delta=0.5 .*n=20 records"):
        train_pate(config, data, data.images[:2], tmp_path / "pate")
    assert not [*tmp_path.rglob("ledger.jsonl")]


def test_owners_records_are_counted_together(tmp_path):
    config = tiny.CONFIG.replace(delta=0.3)
    files = RunFolder(tmp_path)
    files.create()
    event = config.mechanism().dp_event(config.batch_size)
    with pytest.raises(InvalidArgumentError, match="n=40 records"):
        open_run(files, config, {"num_records": [10, 30]}, event)


@pytest.mark.slow
def test_a_run_that_was_allowed_goes_on_and_says_so(tmp_path):
    config = dataclasses.replace(tiny.CONFIG, delta=0.05, allow_large_delta=True, insecure_noise_seed=None, num_steps=1)
    data = tiny.dataset(200)
    with pytest.warns(PrivacyWarning, match="10/n, for n = 200 records"):
        run = synthesizer("datalens")(config, run_dir=tmp_path).fit(data.images, data.labels)
    assert run.privacy_statement()["delta_and_n"].startswith("delta = 0.05 is 10/n, for n = 200 records. Publishing")
    assert run.privacy_statement()["delta_and_n"] in " ".join(run.folder.statement_text.read_text().split())
    assert len(PrivacyLedger.read(run.folder.ledger).charges) == 1
    assert DataLensConfig.from_json(run.folder.config.read_text()).allow_large_delta is True


def test_settings_from_before_there_was_a_choice_still_load():
    text = tiny.CONFIG.to_json().replace('  "allow_large_delta": false,\n', "")
    assert "allow_large_delta" not in text and DataLensConfig.from_json(text).allow_large_delta is False


def test_presets_are_not_refused_on_their_own_data():
    sizes = {"mnist": 60_000, "fashion_mnist": 60_000, "cifar10": 50_000, "celeba_gender": 162_770,
             "celeba_hair": 162_770, "places365": 1_803_460, "digits": 1_438}
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", PrivacyWarning)
        for (name, _), config in PRESETS.items():
            check_delta(config, sizes[name])


@pytest.mark.parametrize("command", [
    ["train", "--num_steps=1", "--num_teachers=8"],
    ["train", "--method=dp_merf", "--num_features=8", "--fit_steps=1"],
    ["classify", "--num_steps=1", "--batch_size=8", "--network=large", "--noise_multiplier=3"],
    ["pate-classify", "--num_teachers=4", "--num_queries=4"]], ids=lambda words: "-".join(words[:2]))
def test_the_command_line_refuses_in_one_line(command, tmp_path, capfd):
    words = [*command, "--dataset=digits", "--epsilon=10", f"--output_dir={tmp_path}"]
    assert cli.main([*words, "--delta=0.01"]) == 2
    lines = capfd.readouterr().err.strip().splitlines()
    assert len(lines) == 1 and "delta=0.01" in lines[0] and "--delta 0.0001" in lines[0], lines
    assert "--allow_large_delta" in lines[0] and not (tmp_path / "ledger.jsonl").exists()


def test_the_command_line_warns_in_one_line(tmp_path, capfd):
    words = ["train", "--method=dp_merf", "--dataset=digits", "--epsilon=10", "--num_features=8", "--fit_steps=1",
             "--generator_filters=4", "--generator_units=8"]
    assert cli.main([*words, "--delta=0.01", "--allow_large_delta", f"--output_dir={tmp_path}"]) == 0
    lines = [line for line in capfd.readouterr().err.splitlines() if "warning" in line]
    assert len(lines) == 1 and lines[0].startswith("datalens: warning: delta = 0.01 is 14/n, for n = 1438 records.")
