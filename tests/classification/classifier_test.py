"""Training by DP-SGD: what is summed, what is charged, and that runs go on where they stopped."""

import dataclasses
import json
import pathlib
import shutil

import dp_accounting
import numpy as np
import pytest
import tensorflow as tf

from datalens_tf.accounting import accountants
from datalens_tf.accounting.ledger import PrivacyLedger
from datalens_tf.accounting.statement import parse_statement
from datalens_tf.auditing.verification import verify
from datalens_tf.classification import classifier as classifier_module
from datalens_tf.classification import networks
from datalens_tf.classification.classifier import DpSgd, PrivateClassifier
from datalens_tf.classification.classifier_config import ClassifierConfig
from datalens_tf.data.datasets import Units, to_unit
from datalens_tf.errors import (
    BudgetExhaustedError,
    CheckpointError,
    InterruptionWarning,
    InvalidArgumentError,
    LedgerError,
    TrainingInterrupted,
)
from datalens_tf.mechanisms.gaussian_sum import _STEPS, GaussianSum
from datalens_tf.mechanisms.noise import NoiseSource
from datalens_tf.training import loop
from datalens_tf.training.callbacks import Callback
from tests import ledgers
from tests.training import tiny

layers = tf.keras.layers
DATA = tiny.dataset()
# Four steps' worth of noise: 1.5 calibrated costs minutes of accounting in every test.
CONFIG = ClassifierConfig(epsilon=3.7, batch_size=6, num_steps=4, noise_multiplier=1.6, accountant="rdp",
                          top_k_norm=0.8, network="large", clip_norm=1.0)


class NoNoise(NoiseSource):
    is_secure, description, caveat = False, "none", "none"

    def draw(self, shape, stddev, index):
        return np.zeros(shape)


def small_model(seed=0, units=4):
    return tf.keras.Sequential([
        layers.Input((8, 8, 1)), layers.Flatten(),
        layers.Dense(units, activation="relu", kernel_initializer=tf.keras.initializers.GlorotUniform(seed)),
        layers.Dense(3, kernel_initializer=tf.keras.initializers.GlorotUniform(seed))])


def make(run_dir=None, config=CONFIG, **kwargs):
    kwargs.setdefault("model", small_model() if config.model is None and config.features is None else None)
    return PrivateClassifier(config, run_dir=run_dir, **kwargs)


@pytest.fixture(name="run", scope="module")
def fixture_run(tmp_path_factory):
    return PrivateClassifier(CONFIG, run_dir=tmp_path_factory.mktemp("run")).fit_dataset(DATA)


def test_the_run_folder(run):
    assert {path.name for path in run.folder.path.iterdir()} == {
        "SHA256SUMS", "config.json", "ledger.jsonl", "privacy.json", "privacy.txt", "classifier.keras", "saved_model",
        "private"}
    assert run.folder.private.stat().st_mode & 0o777 == 0o700
    assert ClassifierConfig.from_json(run.folder.config.read_text()) == run.config
    assert (run.config.image_shape, run.config.num_classes, run.config.dataset) == ((8, 8, 1), 3, "tiny")


def test_records_of_undeclared_classes_keep_their_place_and_contribute_nothing(tmp_path):
    """Nor does it show that there are any, or that no record is of a declared class."""
    worlds = []
    for label, pixels in ((7, 255), (-1, 0)):
        images, labels = DATA.images.copy(), DATA.labels.copy()
        images[4], labels[4] = pixels, label
        training = make(tmp_path / str(label), CONFIG.replace(insecure_noise_seed=1))
        worlds.append(training.fit(images, labels, num_classes=3))
    np.testing.assert_array_equal(*(world.predict(DATA.images) for world in worlds))
    assert worlds[0].config == worlds[1].config and worlds[0].config.classes == ("0", "1", "2")
    assert worlds[0].config.sampling_probability == 6 / 20
    kept = make(tmp_path / "kept").fit(DATA.images, DATA.labels, num_classes=3).privacy_statement()
    none = make(tmp_path / "none").fit(DATA.images, np.full(20, 9), num_classes=3).privacy_statement()
    for statement in (kept, none):
        statement.pop("run_id"), statement.pop("ledger_head")
    assert kept == none


def test_the_statements_epsilon_is_dp_accountings_for_the_sampling_done(run):
    statement = parse_statement(run.folder.statement_json.read_bytes())
    config, ledger = run.config, PrivacyLedger.read(run.folder.ledger)
    event = dp_accounting.PoissonSampledDpEvent(6 / 20, dp_accounting.GaussianDpEvent(config.noise_multiplier))
    assert [charge.event for charge in ledger.charges] == [event] * 4 and ledger.adjacency == "replace-one"
    assert statement["other_adjacency"]["adjacency"] == "add-or-remove-one"
    for name, kind in (("pld", dp_accounting.pld.PLDAccountant), ("rdp", dp_accounting.rdp.RdpAccountant)):
        theirs = kind(neighboring_relation=dp_accounting.NeighboringRelation.ADD_OR_REMOVE_ONE).compose(
            event, 4).get_epsilon(1e-5)
        # From 0.6 on, theirs has looser bounds for some orders of `rdp`; tests of accountants pin the numbers.
        assert 0.98 * theirs < statement["other_adjacency"]["epsilon_by_accountant"][name] <= theirs * (1 + 1e-9)
    assert statement["epsilon_by_accountant"]["pld"] < statement["epsilon"] == statement["epsilon_by_accountant"]["rdp"]
    assert 3.4 < statement["epsilon"] <= 3.7
    assert statement["record_norm"] == np.sqrt(0.8)
    assert statement["noise_stddev"] == pytest.approx(np.sqrt(0.8) * config.noise_multiplier)
    assert statement["private"] and statement["is_guarantee"]
    text = " ".join(run.folder.statement_text.read_text().split())
    assert text.startswith("Differential-privacy statement: dp_sgd_classifier on tiny (20 records)")
    assert "The released classifier is (epsilon, delta)-differentially private" in text
    assert "generator" not in text and "been replaced by any other" in text
    assert "Adjacency add-or-remove-one: the same noise would cost epsilon = " in text


def test_table_11s_settings_cost_what_tensorflow_privacy_says():
    config = ClassifierConfig(epsilon=1.0, noise_multiplier=1.6, top_k_norm=0.8, num_steps=1944).resolved(60_000)
    assert config.sampling_probability == 512 / 60_000
    lib = pytest.importorskip("tensorflow_privacy.privacy.analysis.compute_dp_sgd_privacy_lib")
    theirs, _ = lib.compute_dp_sgd_privacy(n=60_000, batch_size=512, noise_multiplier=1.6, epochs=1944 * 512 / 60_000,
                                           delta=1e-5)
    by_rdp = accountants.epsilon(config.step_event(), 1944, 1e-5, "rdp", "add-or-remove-one")
    assert 0.98 * theirs < by_rdp <= theirs and by_rdp > 1.0  # With fewer orders; losses are tighter.
    within, beyond = (accountants.epsilon(config.step_event(), num_steps, 1e-5, "pld", "add-or-remove-one")
                      for num_steps in (1944, 1945))
    assert within <= 1.0 < beyond
    # k has no part in it.
    assert config.replace(top_k_norm=1.0).step_event() == config.step_event()


def test_noise_and_steps_are_resolved_to_the_budget():
    budget = ClassifierConfig(epsilon=1.0, accountant="rdp", batch_size=100)

    def spent(config, num_steps):
        return accountants.epsilon(config.step_event(), num_steps, 1e-5, "rdp", config.adjacency)

    calibrated = budget.replace(num_steps=50).resolved(1000)
    assert 0.99 < spent(calibrated, 50) <= 1.0
    affordable = budget.replace(noise_multiplier=2.0).resolved(1000)
    assert spent(affordable, affordable.num_steps) <= 1.0 < spent(affordable, affordable.num_steps + 1)
    both = ClassifierConfig(epsilon=1.0, noise_multiplier=2.0, num_steps=7).resolved(1000)
    assert (both.num_steps, both.noise_multiplier) == (7, 2.0)
    assert ClassifierConfig(epsilon=None).resolved(100).step_event() is None


def dp_sgd(config=CONFIG, model=None, noise=NoNoise(), data=DATA, features=None):
    config = config.replace(image_shape=(8, 8, 1), num_classes=3).resolved(len(data))
    return DpSgd(config, data, small_model() if model is None else model, features, noise)


def stream():
    return np.random.default_rng(0)


@pytest.mark.parametrize("model", [small_model, lambda: networks.new_network("large", (8, 8, 1), 3, 0)])
def test_adding_or_removing_a_record_changes_the_sum_by_at_most_the_sensitivity(model):
    config = CONFIG.replace(clip_norm=1e-2)  # Shorter than all gradients.
    training = dp_sgd(config, model())
    for record in range(4):  # Alone: dropout would not be the same for others.
        found = np.linalg.norm(training.compressed_sum(np.array([record]), stream())) / _STEPS
        assert 0.95 * np.sqrt(0.8) < found <= np.sqrt(0.8)
    training = dp_sgd(config)
    whole = training.compressed_sum(np.arange(20), stream())
    for left_out in range(20):
        change = whole - training.compressed_sum(np.delete(np.arange(20), left_out), stream())
        assert 0 < np.linalg.norm(change) / _STEPS <= training.mechanism.l2_sensitivity / config.clip_norm


def test_a_unit_changes_the_sum_by_at_most_the_sensitivity_and_by_its_average_gradient(monkeypatch):
    monkeypatch.setattr(classifier_module, "_LARGEST_CHUNK", 3)
    data = dataclasses.replace(DATA, units=Units.named("unit", np.array([3, 0, 3, 1, 3, 2, 3, 3] + [1] * 12)))
    training, of = dp_sgd(CONFIG.replace(clip_norm=1e-2), data=data), data.units.of

    def total(*units):
        return training.compressed_sum(data.units.records(np.array(units, int)), stream())

    whole = total(0, 1, 2, 3)
    for unit in range(4):
        change = whole - total(*(other for other in range(4) if other != unit))
        assert 0.9 * np.sqrt(0.8) < np.linalg.norm(change) / _STEPS <= np.sqrt(0.8)
        alone = [training._gradients(to_unit(DATA.images[[record] * 3]), DATA.labels[[record] * 3])[0]
                 for record in np.flatnonzero(of == unit)]
        positions, expected = training.mechanism.compress(np.mean(alone, 0))
        np.testing.assert_allclose(change[positions], expected, atol=16)  # In units of 2^-20 C.
    assert not total().any() and set(of[training.sampled(1)]) <= set(range(4))


def test_chunks_and_padding_do_not_matter(monkeypatch):
    chosen = np.array([3, 5, 7, 11, 13])
    whole = dp_sgd().compressed_sum(chosen, stream())
    monkeypatch.setattr(classifier_module, "_LARGEST_CHUNK", 2)
    np.testing.assert_allclose(dp_sgd().compressed_sum(chosen, stream()), whole, atol=8)  # In units of 2^-20 C.
    assert not dp_sgd().compressed_sum(np.array([], int), stream()).any()


def test_with_all_kept_a_step_is_the_librarys_dp_sgd():
    """tensorflow_privacy's optimizer without noise, on the same batch."""
    tfp = pytest.importorskip("tensorflow_privacy")
    config = CONFIG.replace(top_k_norm=1.0, sampling_probability=1.0, batch_size=20, clip_norm=0.3, learning_rate=0.5,
                            learning_rate_decay=0.0, noise_multiplier=1.0, epsilon=100.0)
    mine, theirs = small_model(), small_model()
    training = dp_sgd(config, mine)
    optimizer = tfp.DPKerasSGDOptimizer(l2_norm_clip=0.3, noise_multiplier=0.0, num_microbatches=20, learning_rate=0.5)
    theirs.compile(optimizer, tf.keras.losses.SparseCategoricalCrossentropy(
        from_logits=True, reduction=tf.keras.losses.Reduction.NONE))
    for step in (1, 2, 3):
        training.train(step, 0)
        theirs.fit(DATA.images / np.float32(255), DATA.labels, batch_size=20, shuffle=False, verbose=0)
    for found, expected, start in zip(mine.get_weights(), theirs.get_weights(), small_model().get_weights()):
        np.testing.assert_allclose(found, expected, atol=3 * 0.5 * 0.3 * 1e-5)
        assert np.abs(expected - start).max() > 1e-3


@pytest.mark.parametrize("decay, expected", [(0.0, [1, 1, 1, 1]), (0.5, [1, 1, 1, 0.5]), (1.0, [1, 0.75, 0.5, 0.25])])
def test_the_learning_rate_falls_over_the_last_steps(decay, expected):
    """As a function of the settings alone; weights move by as much."""
    config = CONFIG.replace(learning_rate=0.4, learning_rate_decay=decay, sampling_probability=1.0, ema_decay=0.0)
    rates = [classifier_module.learning_rate(config, step) for step in (1, 2, 3, 4)]
    np.testing.assert_allclose(rates, np.multiply(0.4, expected))
    moved = []
    for changes in ({}, {"learning_rate_decay": 0.0}):
        model = small_model()
        dp_sgd(config.replace(**changes), model).train(4, 0)  # The first step taken, at the rate of the last.
        moved.append([weight - start for weight, start in zip(model.get_weights(), small_model().get_weights())])
    for found, whole in zip(*moved):
        np.testing.assert_allclose(found, expected[3] * whole, atol=1e-6)


def test_compression_changes_what_is_learned():
    models = [small_model(), small_model()]
    for k, model in zip((1.0, 0.5), models):
        dp_sgd(CONFIG.replace(top_k_norm=k, sampling_probability=1.0), model).train(1, 0)
    moved = [[weight - start for weight, start in zip(model.get_weights(), small_model().get_weights())]
             for model in models]
    assert [np.mean(part[0] != 0) for part in moved][1] < np.mean(moved[0][0] != 0)


@pytest.mark.parametrize("ema_decay", [0.0, 0.15, 0.9999])
def test_what_is_released_is_the_moving_average(ema_decay):
    model = small_model()
    training, expected = dp_sgd(CONFIG.replace(ema_decay=ema_decay), model), model.get_weights()
    for step in (1, 2, 3):
        training.train(step, 0)
        decay = min(ema_decay, step / (step + 4))
        expected = [decay * old + (1 - decay) * new for old, new in zip(expected, model.get_weights())]
    last = model.get_weights()
    training.release()
    for found, average, weight in zip(model.get_weights(), expected, last):
        np.testing.assert_allclose(found, average, atol=1e-6)
        assert np.array_equal(found, weight) == (ema_decay == 0)


def test_the_charge_is_on_disk_before_the_noise_is_drawn(tmp_path, monkeypatch):
    seen, original = [], GaussianSum.privatize

    def watching(mechanism, total, noise, index):
        seen.append((index, PrivacyLedger.read(tmp_path / "ledger.jsonl").charges[-1].index))
        return original(mechanism, total, noise, index)

    monkeypatch.setattr(GaussianSum, "privatize", watching)
    make(tmp_path).fit_dataset(DATA)
    assert seen == [(0, 0), (1, 1), (2, 2), (3, 3)]


def test_what_a_crash_lost_stays_charged_and_the_budget_holds(tmp_path, monkeypatch):
    class Crash(Exception):
        pass

    def crashing(training, step, charge):
        if step == 3:
            raise Crash
        return original(training, step, charge)

    original, config = DpSgd.train, CONFIG.replace(num_steps=None)
    assert config.resolved(20).num_steps == 4
    with monkeypatch.context() as patch, pytest.raises(Crash):
        patch.setattr(DpSgd, "train", crashing)
        make(tmp_path, config).fit_dataset(DATA)
    with pytest.warns(InterruptionWarning, match="^3 of 3 charges .* lost .* ends after 1 of 4 steps"):
        statement = make(tmp_path, config).fit_dataset(DATA).privacy_statement()
    # Three charges and no snapshot: one is left of the four that the budget pays for.
    assert (statement["num_charges"], statement["num_burnt_charges"], statement["num_steps"]) == (4, 3, 1)
    assert statement["epsilon"] <= 3.7


def test_interrupted_and_resumed_equals_uninterrupted(tmp_path, monkeypatch):
    monkeypatch.setattr(loop, "_REPORT_EVERY", 1)
    config = CONFIG.replace(insecure_noise_seed=3)
    whole = make(tmp_path / "whole", config).fit_dataset(DATA)

    class Stop(Callback):
        def on_step(self, report):
            if report.step == 2:
                stopped.request_stop()

    stopped = make(tmp_path / "parts", config, callbacks=[Stop()])
    with pytest.raises(TrainingInterrupted, match="after step 2 .* --resume"):
        stopped.fit_dataset(DATA)
    assert not stopped.folder.statement_json.exists() and not stopped.folder.classifier.exists()
    resumed = make(tmp_path / "parts", config).fit_dataset(DATA)
    np.testing.assert_array_equal(resumed.predict(DATA.images), whole.predict(DATA.images))
    assert ledgers.charges(resumed.folder) == ledgers.charges(whole.folder)
    assert resumed.privacy_statement()["private"] is False  # Predictable noise.


def test_noise_has_no_seed_and_a_finished_run_charges_nothing_more(tmp_path):
    other, again = (make(tmp_path / name).fit_dataset(DATA) for name in ("other", "again"))
    assert ledgers.charges(again.folder) == ledgers.charges(other.folder)
    assert not np.array_equal(again.predict(DATA.images), other.predict(DATA.images))
    before, first = again.folder.ledger.read_bytes(), again.predict(DATA.images)
    make(tmp_path / "again").fit_dataset(DATA)
    assert again.folder.ledger.read_bytes() == before
    np.testing.assert_array_equal(again.predict(DATA.images), first)


@pytest.mark.parametrize("loss", ledgers.LOSSES)
def test_a_ledger_that_lost_charges_is_refused(run, tmp_path, loss):
    folder = pathlib.Path(shutil.copytree(run.folder.path, tmp_path / "run"))
    ledgers.lose(folder / "ledger.jsonl", loss)
    (folder / "privacy.json").unlink()
    with pytest.raises(LedgerError, match=r"ledger\.jsonl .*put the run's newest ledger back"):
        PrivateClassifier(CONFIG, run_dir=folder).fit_dataset(DATA)
    assert not (folder / "privacy.json").exists()


def test_a_run_can_be_verified(run, tmp_path):
    checks = verify(run.folder.path)
    assert all(check.passed is not False for check in checks), checks
    folder = pathlib.Path(shutil.copytree(run.folder.path, tmp_path / "run"))
    text = (folder / "config.json").read_text()
    (folder / "config.json").write_text(text.replace('"noise_multiplier": 1.6', '"noise_multiplier": 13.4'))
    assert any(check.passed is False and "config.json is not that of the ledger" in check.text
               for check in verify(folder))


def test_the_ledger_of_half_the_steps_is_refused(run, tmp_path):
    """With as many burnt charges, the number of charges alone would not show it."""
    folder = pathlib.Path(shutil.copytree(run.folder.path, tmp_path / "run"))
    ledger = PrivacyLedger.read(folder / "ledger.jsonl")
    (folder / "ledger.jsonl").write_bytes(ledger.until(2).content)
    (folder / "privacy.json").unlink()
    again = PrivacyLedger.open(folder / "ledger.jsonl")
    for step in (3, 4):
        again.spend(ledger.step_event, step=step)
    with pytest.raises(LedgerError, match=r"ledger\.jsonl lacks charges that .*loop\.npz rests on"):
        PrivateClassifier(CONFIG, run_dir=folder).fit_dataset(DATA)


def test_sampling_is_poisson():
    training = dp_sgd(CONFIG.replace(sampling_probability=0.3), data=tiny.dataset(2000))
    draws = np.array([np.bincount(training.sampled(1), minlength=2000) for _ in range(200)])
    assert draws.max() == 1 and abs(draws.mean() - 0.3) < 6 * np.sqrt(0.3 * 0.7 / draws.size)
    assert 0.5 < draws.sum(1).var() / (2000 * 0.3 * 0.7) < 1.8  # Chi-square, beyond 6 sigma.


def test_what_is_saved_predicts_the_same_everywhere(run):
    expected = run.predict(DATA.images)
    np.testing.assert_allclose(expected.sum(1), 1, rtol=1e-5)
    served = tf.saved_model.load(str(run.folder.saved_model / "1")).signatures["serving_default"](
        images=tf.constant(DATA.images / np.float32(255)))
    np.testing.assert_allclose(served["probabilities"], expected, atol=1e-6)
    np.testing.assert_array_equal(served["labels"], np.argmax(expected, axis=1))


def test_accuracy_is_that_of_the_last_step(run):
    found = run.evaluate(DATA)
    assert found["accuracy"] == np.mean(np.argmax(run.predict(DATA.images), 1) == DATA.labels)
    assert json.loads(run.folder.accuracy.read_text()) == found and "epsilon does not cover" in found["privacy_note"]
    run.folder.accuracy.unlink()


def extractor():
    return tf.keras.Sequential([
        layers.Input((8, 8, 1)), layers.Conv2D(2, 3, activation="relu"), layers.BatchNormalization(),
        layers.Dropout(0.5), layers.GlobalAveragePooling2D()])


def test_features_are_frozen_and_come_with_the_classifier(tmp_path):
    features = extractor()
    before = [weight.copy() for weight in features.get_weights()]
    trained = make(tmp_path, features=features, model=None,
                   config=CONFIG.replace(insecure_noise_seed=1)).fit_dataset(DATA)
    for weight, start in zip(features.get_weights(), before):
        np.testing.assert_array_equal(weight, start)
    saved = tf.keras.models.load_model(trained.folder.classifier)
    head = saved.layers[-2].get_weights()
    assert [weight.shape for weight in head] == [(2, 3), (3,)]  # All that was trained.
    logits = features(DATA.images / np.float32(255), training=False).numpy() @ head[0] + head[1]
    np.testing.assert_allclose(trained.predict(DATA.images), tf.nn.softmax(logits), atol=1e-6)
    statement = trained.privacy_statement()
    assert statement["title"] == "NOT PRIVATE"  # A fixed noise seed.


def test_a_model_that_mixes_records_is_refused_and_nothing_is_charged(tmp_path):
    mixing = tf.keras.Sequential([*small_model().layers[:-1], layers.experimental.SyncBatchNormalization(),
                                  layers.Dense(3)])
    mixing.build((None, 8, 8, 1))
    for mistake in ({"model": mixing}, {"model": None, "features": mixing}):
        with pytest.raises(InvalidArgumentError, match="SyncBatchNormalization"):
            make(tmp_path, **mistake).fit_dataset(DATA)
    assert not list(tmp_path.iterdir())


def test_weights_that_are_not_trained_come_out_bit_equal_or_nothing_is_written(tmp_path, monkeypatch):
    """Even if a layer that gathers statistics of records passed every check before training."""
    def with_statistics(*statistics):
        model = tf.keras.Sequential([layers.Input((8, 8, 1)), layers.Flatten(), *statistics, layers.Dense(3)])
        return model, [weight.numpy() for weight in model.non_trainable_weights]

    frozen, before = with_statistics(layers.BatchNormalization(trainable=False))
    make(tmp_path / "frozen", model=frozen).fit_dataset(DATA)
    saved = tf.keras.models.load_model(tmp_path / "frozen/classifier.keras")
    found = [weight for weight in saved.weights if "normalization" in weight.name]
    assert len(found) == len(before) == 4
    for weight, start in zip(found, before):
        np.testing.assert_array_equal(weight, start)

    gathering, _ = with_statistics(layers.BatchNormalization())
    monkeypatch.setattr(networks.allowed_layers, "check", lambda *args: None)
    monkeypatch.setattr(networks, "_at_prediction", lambda layer, x, seeds: layer(x, training=True))
    monkeypatch.setattr(networks, "same_anywhere", lambda *args, **kwargs: True)
    with pytest.raises(InvalidArgumentError, match="'batch_normalization.*moving_mean.*' changed"):
        make(tmp_path / "gathering", model=gathering).fit_dataset(DATA)
    assert not (tmp_path / "gathering/classifier.keras").exists()


def test_an_images_features_are_the_same_whoever_else_is_there(tmp_path):
    """To the bit, and so are its gradients: neighbours differ in one record alone, whichever it is."""
    features, config = extractor(), CONFIG.replace(image_shape=(8, 8, 1), num_classes=3)

    def inputs(data):
        return DpSgd(config.resolved(20), data, networks.linear_classifier((2,), 3, 0), features, NoNoise())._inputs

    whole = inputs(DATA)
    kept = np.arange(20) != 3
    fewer = dataclasses.replace(DATA, images=DATA.images[kept], labels=DATA.labels[kept])
    np.testing.assert_array_equal(inputs(fewer), whole[kept])


def test_nobodys_features_have_their_shape(tmp_path):
    """No record may be of a declared class, and that there is none must not show."""
    found = networks.extract(extractor(), DATA.images[:0])
    assert found.shape == (0, 2) and found.dtype == np.float32


def test_files_of_models_are_trained_from_their_weights(tmp_path):
    start = tf.keras.Sequential([*small_model().layers, layers.Softmax()])
    start.build((None, 8, 8, 1))
    start.compile("adam", "mse")
    start.save(tmp_path / "start.keras")
    extractor().save(tmp_path / "features.keras")
    config = CONFIG.replace(model=str(tmp_path / "start.keras"), learning_rate=1e-6)
    trained = make(tmp_path / "run", config=config).fit_dataset(DATA)
    np.testing.assert_allclose(trained.predict(DATA.images),
                               start(DATA.images / np.float32(255)), atol=1e-3)  # A tiny step away.
    small_model(units=5).save(tmp_path / "start.keras")
    with pytest.raises(CheckpointError, match="another configuration"):
        make(tmp_path / "run", config=config).fit_dataset(DATA)
    make(tmp_path / "run2", config=CONFIG.replace(features=str(tmp_path / "features.keras"))).fit_dataset(DATA)


def test_records_without_a_label_are_left_out(tmp_path):
    usable = np.arange(20) != 4
    config = CONFIG.replace(insecure_noise_seed=1)
    outcomes = []
    for name, label in (("a", 0), ("b", 2)):
        labels = np.where(usable, DATA.labels, label)
        data = dataclasses.replace(DATA, labels=labels, usable=usable)
        trained = make(tmp_path / name, config=config).fit_dataset(data)
        assert trained.config.sampling_probability == 6 / 20
        outcomes.append(trained.predict(DATA.images))
    np.testing.assert_array_equal(*outcomes)


def test_without_a_budget_there_is_no_noise_and_no_promise(tmp_path):
    config = CONFIG.replace(epsilon=None, noise_multiplier=None, sampling_probability=1.0, batch_size=20, num_steps=2)
    runs = [make(tmp_path / name, config=config).fit_dataset(DATA) for name in "ab"]
    np.testing.assert_array_equal(*(run.predict(DATA.images) for run in runs))
    assert not runs[0].folder.ledger.exists()
    text = runs[0].folder.statement_text.read_text()
    assert text.startswith("NOT PRIVATE") and runs[0].privacy_statement()["epsilon"] is None


def test_other_records_settings_and_damage_are_one_clear_line(run, tmp_path):
    with pytest.raises(CheckpointError, match="other records"):
        PrivateClassifier(CONFIG, run_dir=run.folder.path).fit_dataset(tiny.dataset(seed=1))
    with pytest.raises(CheckpointError, match="another configuration"):
        PrivateClassifier(CONFIG.replace(top_k_norm=0.7), run_dir=run.folder.path).fit_dataset(DATA)
    shutil.copytree(run.folder.path, tmp_path / "run")
    snapshot = next((tmp_path / "run/private/checkpoints").iterdir())
    snapshot.write_bytes(snapshot.read_bytes()[:-30])
    with pytest.raises(CheckpointError, match="Damaged checkpoint"):
        PrivateClassifier(CONFIG, run_dir=tmp_path / "run").fit_dataset(DATA)


def test_a_budget_for_nothing_trains_nothing(tmp_path):
    config = CONFIG.replace(epsilon=0.01, num_steps=None)
    with pytest.raises(BudgetExhaustedError):
        make(tmp_path, config=config).fit_dataset(DATA)


@pytest.mark.parametrize("changes, message", [
    ({"accountant": "gdp"}, "accountant='gdp' to be one of rdp, pld"), ({"clip_norm": 0.0}, "clip_norm=0.0 > 0"),
    ({"top_k_norm": 1.2}, "top_k_norm=1.2 in"), ({"top_k_dimensions": 0.0}, "top_k_dimensions=0.0 in"),
    ({"noise_multiplier": 0.0}, "noise_multiplier=0.0 > 0"), ({"network": "huge"}, "network='huge'"),
    ({"epsilon": None, "noise_multiplier": 1.0}, "noise_multiplier=1.0 to be absent"), ({"epsilon": -1.0}, "epsilon"),
    ({"learning_rate_decay": 1.1}, "learning_rate_decay=1.1 in"),
    ({"num_steps": 0}, "num_steps=0"), ({"ema_decay": 1.0}, "ema_decay=1.0 in"), ({"batch_size": 0}, "batch_size=0")])
def test_bad_settings_are_named(changes, message):
    with pytest.raises(InvalidArgumentError, match=message):
        CONFIG.replace(**changes)
