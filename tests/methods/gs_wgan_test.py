"""GS-WGAN: nothing but one noisy answer depends on a pick, and nothing but its own critic on a record."""

import json
import math

import numpy as np
import pytest
import tensorflow as tf

from datalens_tf.accounting import accountants
from datalens_tf.accounting.ledger import PrivacyLedger
from datalens_tf.data.partition import partition_indices
from datalens_tf.errors import DataError, InvalidArgumentError
from datalens_tf.evaluation import report
from datalens_tf.mechanisms.noise import noise_source
from datalens_tf.mechanisms.sanitized_gradients import SanitizedGradients
from datalens_tf.methods import gs_wgan
from datalens_tf.methods.gs_wgan import Critics, GradientSanitizedGan, GsWganConfig
from datalens_tf.models.wasserstein import WassersteinCritic
from tests.methods.conformance import PrivateSynthesizerConformance
from tests.training import tiny

CONFIG = GsWganConfig(
    num_discriminators=4, batch_size=3, critic_batch_size=3, critic_steps=2, warmup_steps=2, num_steps=4,
    noise_multiplier=0.7, critic_filters=2, latent_dim=4, generator_filters=4, generator_units=8, epsilon=10.0)
RESOLVED = CONFIG.replace(image_shape=(8, 8, 1), num_classes=3)


class TestGsWgan(PrivateSynthesizerConformance):
    FIRST_OF_ITS_FAMILY = False  # DP-GAN is.
    CONFIG = CONFIG

    def test_the_statement_prints_the_honest_epsilon_beside_the_published_one(self, run):
        statement, text = run.privacy_statement(), run.folder.statement_text.read_text()
        assert statement["epsilon"] == statement["epsilon_by_accountant"]["pld"]
        mechanism = SanitizedGradients(clip_norm=1.0, noise_multiplier=0.7, num_images=3, num_discriminators=4)
        assert statement["epsilon"] == accountants.epsilon(mechanism.dp_event(), 4, 1e-5, "pld")
        assert statement["invalid_epsilon_as_published"] == accountants.epsilon(
            mechanism.event_as_published(), 4, 1e-5, "rdp")
        assert "THAT CLAIM IS WRONG" in " ".join(text.split()) and "one joint release from one sample" in " ".join(
            text.split())
        assert statement["noise_stddev"] == pytest.approx(0.7 * 2 * math.sqrt(3))

    def test_reports_draw_the_epsilon_that_the_statement_has(self, run, monkeypatch):
        monkeypatch.setattr(report.charts, "budget_chart", lambda curves, *rest: curves)
        statement, charges = run.privacy_statement(), PrivacyLedger.read(run.folder.ledger).charges
        for name, curve in report._budget_chart(statement, charges).items():
            assert curve[-1] == pytest.approx(statement["epsilon_by_accountant"][name]) and len(curve) == 4

    def test_norms_are_counted_in_private_only(self, run):
        norms = json.loads((run.folder.private / "gradient_norms.json").read_text())
        for name in ("before_clipping", "after_clipping"):
            assert sum(norms[name]) == 4 * 3 and len(norms[name]) == len(norms["edges"])
        assert max(np.array(norms["edges"])[np.array(norms["after_clipping"]) > 0]) < 1.0
        assert norms["note"].startswith("PRIVATE")

    def test_the_charge_is_on_disk_before_anybody_is_picked_and_noise_is_drawn(self, tmp_path, monkeypatch):
        seen, privatize, pick = [], SanitizedGradients.privatize, gs_wgan.pick

        def charged():
            return [charge.index for charge in PrivacyLedger.read(tmp_path / "ledger.jsonl").charges]

        def watched_privatize(mechanism, clipped, noise, index):
            seen.append(("noise", charged(), index))
            return privatize(mechanism, clipped, noise, index)

        def watched_pick(config, charge):
            seen.append(("pick", charged(), charge))
            return pick(config, charge)

        monkeypatch.setattr(SanitizedGradients, "privatize", watched_privatize)
        monkeypatch.setattr(gs_wgan, "pick", watched_pick)
        data = tiny.dataset()
        run = self.make(tmp_path, epsilon=5.0).fit(data.images, data.labels)
        steps = run.privacy_statement()["num_steps"]
        assert seen == [(what, list(range(index + 1)), index) for index in range(steps) for what in ("pick", "noise")]
        # Training stopped before the budget would have been exceeded.
        event = PrivacyLedger.read(run.folder.ledger).step_event
        assert steps == accountants.max_steps(event, 5.0, 1e-5, "pld") < 4

    def test_more_discriminators_than_records_are_refused(self, tmp_path):
        data = tiny.dataset()
        with pytest.raises(DataError, match="num_discriminators=21"):
            self.make(tmp_path / "run", num_discriminators=21).fit(data.images, data.labels)
        assert not (tmp_path / "run").exists()


def test_noise_is_calibrated_to_the_honest_budget():
    config = CONFIG.replace(noise_multiplier=None, num_steps=30, num_discriminators=10).resolved(20)
    event = SanitizedGradients(clip_norm=1.0, noise_multiplier=config.noise_multiplier, num_images=3,
                               num_discriminators=10).dp_event()
    assert accountants.epsilon(event, 30, 1e-5, "pld") == pytest.approx(10.0, rel=1e-4)
    assert accountants.max_steps(event, 10.0, 1e-5, "pld") == 30


def test_predictable_noise_has_no_epsilon_at_all(tmp_path):
    config = RESOLVED.replace(insecure_noise_seed=1)
    mechanism = config.mechanism()
    ledger = PrivacyLedger.create(tmp_path / "ledger.jsonl", epsilon=10.0, delta=1e-5, accountant="pld",
                                  config_digest="", step_event=mechanism.dp_event())
    facts, text = gs_wgan._as_published(config, mechanism, ledger, noise_source(config))
    assert facts == {"invalid_epsilon_as_published": None} and not text


def critic_states(monkeypatch, *, data, picks, steps=3):
    """State of all critics after steps in which these were picked, with the same releases each time."""
    mechanism = SanitizedGradients(clip_norm=1.0, noise_multiplier=0.7, num_images=3, num_discriminators=4)
    random, chosen = np.random.default_rng(0), iter(picks)
    monkeypatch.setattr(gs_wgan, "pick", lambda config, charge: next(chosen))
    monkeypatch.setattr(SanitizedGradients, "privatize", lambda *args: random.normal(size=(3, 64)))
    gan = GradientSanitizedGan(RESOLVED, data, mechanism, noise_source(RESOLVED))
    gan.warm_up(lambda: False)
    losses = [gan.train(step, step - 1) for step in range(1, steps + 1)]
    return [variable.numpy() for variable in gan.critics.variables()], losses, gan


@pytest.fixture(name="usual", scope="module")
def fixture_usual():
    with pytest.MonkeyPatch.context() as monkeypatch:
        return critic_states(monkeypatch, data=tiny.dataset(), picks=(0, 1, 2))


def test_who_was_picked_leaves_no_trace(monkeypatch, usual):
    """Given what was released, states do not depend on picks: without this, steps would not compose."""
    states, losses, gan = critic_states(monkeypatch, data=tiny.dataset(), picks=(3, 3, 3))
    for first, second in zip(usual[0], states, strict=True):
        np.testing.assert_array_equal(first, second)
    assert losses == usual[1]
    for first, second in zip(usual[2].student.variables(), gan.student.variables(), strict=True):
        np.testing.assert_array_equal(first.numpy(), second.numpy())


def test_a_record_touches_its_own_critic_only(monkeypatch, usual):
    """Given what was released, all other critics' weights, moments and counts are bit-identical."""
    record = int(partition_indices(20, 4, 0)[1, 0])
    data = tiny.dataset()
    images, labels = data.images.copy(), data.labels.copy()
    images[record], labels[record] = 255 - images[record], (labels[record] + 1) % 3
    states, losses, _ = critic_states(
        monkeypatch, data=tiny.as_dataset(images, labels, 3, name="tiny"), picks=(0, 1, 2))
    changed = np.zeros(4, bool)
    for first, second in zip(usual[0], states, strict=True):
        changed |= np.any((first != second).reshape(4, -1), axis=1)
    np.testing.assert_array_equal(changed, [False, True, False, False])
    assert losses == usual[1]


def test_critics_train_in_turns_and_the_answer_is_a_function_of_one_of_them(usual):
    counts = usual[0][-1]
    np.testing.assert_array_equal(counts, [4, 4, 4, 2])  # 2 of warm-up, and 2 for a turn.
    critics = usual[2].critics
    pool, images, labels = tf.zeros([4, 3, 8, 8, 1]), tf.ones([3, 8, 8, 1]), tf.constant([0, 1, 2])
    before = [variable.numpy() for variable in critics.variables()]
    first = critics.answer(1, pool, 2, images, labels, "answer", 9)
    np.testing.assert_array_equal(first, critics.answer(1, pool, 2, images, labels, "answer", 9))
    assert not np.array_equal(first, critics.answer(2, pool, 2, images, labels, "answer", 9))
    for variable, value in zip(critics.variables(), before):
        np.testing.assert_array_equal(variable.numpy(), value)


def test_picks_are_secret_and_uniform():
    config = CONFIG.replace(num_discriminators=5)
    first, second = ([gs_wgan.pick(config, charge) for charge in range(2000)] for _ in range(2))
    assert first != second  # The same seed, the same charges.
    assert np.all(np.abs(np.bincount(first, minlength=5) - 400) < 150)
    insecure = config.replace(insecure_noise_seed=1)
    assert [gs_wgan.pick(insecure, i) for i in range(9)] == [gs_wgan.pick(insecure, i) for i in range(9)]


def test_an_image_is_scored_without_its_neighbours_and_the_gradient_is_right():
    critic = WassersteinCritic((8, 8, 2), 3, filters=3)
    weights = [tf.constant(w[1]) for w in critic.initial(2, 0)]
    assert [w.shape for w in weights] == critic.shapes
    images = tf.constant(np.random.default_rng(0).uniform(size=(4, 8, 8, 2)), tf.float32)
    labels = tf.constant([0, 2, 1, 0])
    gradients = critic.image_gradients(weights, images, labels).numpy()
    for i in range(4):
        alone = critic.image_gradients(weights, images[i:i + 1], labels[i:i + 1])
        np.testing.assert_allclose(gradients[i], alone[0], atol=1e-6)
    change = 1e-2 * gradients
    moved = critic(weights, images + change, labels) - critic(weights, images - change, labels)
    np.testing.assert_allclose(moved, 2 * np.sum(change * gradients, (1, 2, 3)), rtol=0.05)
    assert not np.allclose(critic(weights, images, labels), critic(weights, images, (labels + 1) % 3))


@pytest.mark.slow
def test_a_critic_finds_the_wasserstein_direction_at_the_norm_that_the_penalty_leaves():
    images = np.full((12, 8, 8, 1), 255, np.uint8)
    data = tiny.as_dataset(images, np.arange(12) % 3, 3)
    config = RESOLVED.replace(num_discriminators=2, critic_filters=8, learning_rate=2e-3)
    critics, pool = Critics(config, data, partition_indices(12, 2, 0)), tf.zeros([4, 3, 8, 8, 1])
    critics.train(1, pool, 200, "test")
    between = tf.fill([3, 8, 8, 1], 0.5)
    gradients = critics.answer(1, pool, 1, between, tf.constant([0, 1, 2]))
    norms = np.linalg.norm(gradients, axis=1)
    # 8 g - 10 (g - 1)^2 is largest at g = 1.4, for black and white images, which are 8 apart.
    np.testing.assert_allclose(norms, 1.4, atol=0.1)
    # The way from black to white is uphill, with all pixels alike.
    np.testing.assert_allclose(np.sum(gradients, axis=1), 8 * norms, rtol=0.2)


@pytest.mark.slow
def test_without_noise_the_generator_approaches_the_records():
    images = np.repeat(np.array([0, 255, 128], np.uint8), 20)[:, None, None, None] * np.ones((1, 8, 8, 1), np.uint8)
    data = tiny.as_dataset(images, np.repeat([0, 1, 2], 20), 3)
    config = RESOLVED.replace(
        num_discriminators=2, batch_size=12, critic_batch_size=12, critic_steps=2, warmup_steps=50, critic_filters=8,
        learning_rate=2e-3, student_learning_rate=3e-3, ema_decay=0.9, generator_units=32, generator_filters=16)
    mechanism = SanitizedGradients(clip_norm=1.0, noise_multiplier=0.0, num_images=12, num_discriminators=2)
    gan = GradientSanitizedGan(config, data, mechanism, noise_source(config))
    gan.warm_up(lambda: False)
    for step in range(1, 101):
        gan.train(step, step - 1)
    means = gan.student.sample_grid().mean((1, 2, 3, 4))
    assert means[0] < 70 and means[1] > 185 and 70 < means[2] < 185


@pytest.mark.parametrize("changes, message", [
    ({"num_discriminators": 0}, "num_discriminators=0 >= 1"), ({"clip_norm": 0.0}, "clip_norm=0.0 > 0"),
    ({"noise_multiplier": 0.0}, "noise_multiplier=0.0 > 0"), ({"warmup_steps": -1}, "warmup_steps=-1 >= 0"),
    ({"accountant": "gdp"}, "accountant='gdp' to be one of rdp, pld"), ({"epsilon": None}, "epsilon=None"),
    ({"beta_2": 1.0}, r"beta_2=1.0 in \[0, 1\)"), ({"critic_steps": 0}, "critic_steps=0 >= 1")])
def test_bad_settings_are_named(changes, message):
    with pytest.raises(InvalidArgumentError, match=message):
        CONFIG.replace(**changes)
