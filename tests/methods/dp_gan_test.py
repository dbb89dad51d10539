"""DP-GAN and DP-CGAN: noise on the real path only, sampling as accounted, and all that the generator sees is noisy."""

import json

import dp_accounting
import numpy as np
import pytest
import tensorflow as tf

from datalens_tf.accounting import accountants, verification
from datalens_tf.accounting.ledger import PrivacyLedger
from datalens_tf.accounting.statement import parse_statement
from datalens_tf.data.datasets import as_dataset
from datalens_tf.errors import InvalidArgumentError, LedgerError
from datalens_tf.mechanisms.gaussian_sum import _STEPS, GaussianSum
from datalens_tf.mechanisms.noise import InsecureSeededNoise, NoiseSource
from datalens_tf.methods.dp_cgan import DpCganConfig
from datalens_tf.methods.dp_gan import DpGanConfig, PrivateGan, distance_ratio
from tests.methods.conformance import PrivateSynthesizerConformance, UnlabelledRecordsConformance
from tests.training import tiny

SMALL = dict(batch_size=6, num_steps=4, critic_steps=2, generator_batch_size=6, latent_dim=4, generator_filters=4,
             generator_units=8, discriminator_filters=4, mode_seeking=1e-3, epsilon=3.0, accountant="rdp")
CONFIG = DpGanConfig(**SMALL)
RESOLVED = CONFIG.replace(image_shape=(8, 8, 1), num_classes=3, sampling_probability=0.3, noise_multiplier=1.5)


class NoNoise(NoiseSource):
    is_secure, description, caveat = False, "none", "none"

    def draw(self, shape, stddev, index):
        return np.zeros(shape)


class TestDpGan(UnlabelledRecordsConformance, PrivateSynthesizerConformance):
    CONFIG = CONFIG

    def test_noise_and_sampling_are_resolved_to_the_budget(self, run):
        config, statement = run.config, run.privacy_statement()
        assert config.sampling_probability == 6 / 20
        event = dp_accounting.PoissonSampledDpEvent(0.3, dp_accounting.GaussianDpEvent(config.noise_multiplier))
        assert {charge.event for charge in PrivacyLedger.read(run.folder.ledger).charges} == {event}
        assert 0.98 * 3.0 < statement["epsilon"] <= 3.0 and statement["num_charges"] == 4
        assert set(statement["epsilon_by_accountant"]) == {"rdp", "pld"}
        assert statement["epsilon"] == accountants.epsilon(event, 4, 1e-5, "rdp", "replace-one")
        text = " ".join(run.folder.statement_text.read_text().split())
        for said in ("in a sample, which dp_accounting lacks", "been replaced by any other", "Adjacency: replace-one"):
            assert said in text, said
        assert statement["is_guarantee"] and statement["other_adjacency"]["adjacency"] == "add-or-remove-one"
        assert "the same noise would cost epsilon = " in text and "a comparison figure and no guarantee" in text

    def test_a_public_bound_stands_for_the_number_of_records_which_is_published_without_it(self, tmp_path):
        data, added = tiny.dataset(), {"adjacency": "add-or-remove-one"}
        run = self.make(tmp_path / "published", **added).fit(data.images, data.labels)
        bounded = self.make(tmp_path / "bounded", **added, records_at_most=60).fit(data.images, data.labels)
        statement, texts = bounded.privacy_statement(), [
            " ".join(one.folder.statement_text.read_text().split()) for one in (run, bounded)]
        assert bounded.config.sampling_probability == 6 / 60
        assert (statement["num_records"], statement["records_at_most"]) == (None, 60)
        assert ["comparison figure" in text for text in texts] == [True, False]
        assert [s.privacy_statement()["is_guarantee"] for s in (run, bounded)] == [False, True]
        for one, text in zip((run, bounded), texts):
            other = one.privacy_statement()["other_adjacency"]
            assert other["adjacency"] == "replace-one" and other["is_guarantee"]
            assert set(other["epsilon_by_accountant"]) == {"rdp", "pld"}
            assert 2.9 < one.privacy_statement()["epsilon"] * 1.05 < other["epsilon_by_accountant"]["rdp"] < 6
            assert "Adjacency replace-one: the same noise guarantees epsilon = " in text
            self.check_other_prices(one)
        assert "(20 records)" in texts[0] and "(at most 60 records)" in texts[1] and " 20 " not in texts[1]

    def check_other_prices(self, run):
        """A statement with a smaller epsilon for other neighbours, or none that can be read, is refused."""
        ledger, other = PrivacyLedger.read(run.folder.ledger), run.privacy_statement()["other_adjacency"]
        verification.check_statement(run.privacy_statement(), ledger, "here")
        for changes, error, message in (
                ({"epsilon_by_accountant": {"pld": 0.1}}, LedgerError, "states epsilon 0.1 by pld under replace-one"),
                ({"epsilon_by_accountant": {"gdp": 0.1}}, LedgerError, "accountant gdp is of no use under replace-one"),
                ({"is_guarantee": False}, LedgerError, "mistakes what is guaranteed"),
                ({"adjacency": "add-or-remove-one"}, LedgerError, "mistakes what is guaranteed"),
                ({"epsilon_by_accountant": "small"}, InvalidArgumentError, "other_adjacency=.* to have"),
                ({"epsilon_by_accountant": {"pld": -1}}, InvalidArgumentError, "other_adjacency.pld=-1")):
            tampered = json.dumps(run.privacy_statement() | {"other_adjacency": other | changes})
            with pytest.raises(error, match=message):
                verification.check_statement(parse_statement(tampered), ledger, "here")

    def test_the_charge_is_on_disk_before_the_noise_is_drawn(self, tmp_path, monkeypatch):
        seen = []

        def watching(mechanism, total, noise, index):
            charges = PrivacyLedger.read(tmp_path / "ledger.jsonl").charges
            seen.append((index, charges[-1].index))
            return original(mechanism, total, noise, index)

        original = GaussianSum.privatize
        monkeypatch.setattr(GaussianSum, "privatize", watching)
        data = tiny.dataset()
        self.make(tmp_path).fit(data.images, data.labels)
        assert seen == [(0, 0), (1, 1), (2, 2), (3, 3)]

    def test_steps_that_a_crash_lost_are_charged_again_and_the_budget_holds(self, tmp_path, monkeypatch):
        class Crash(Exception):
            pass

        def crashing(gan, step, charge):
            if step == 3 and not crashed:
                crashed.append(charge)
                raise Crash
            return original(gan, step, charge)

        original, crashed, data = PrivateGan.train, [], tiny.dataset()
        monkeypatch.setattr(PrivateGan, "train", crashing)
        with pytest.raises(Crash):
            self.make(tmp_path).fit(data.images, data.labels)
        run = self.make(tmp_path).fit(data.images, data.labels)
        statement = run.privacy_statement()
        # Three charges before the crash and no snapshot: one is left of the four that the budget pays for.
        assert statement["num_charges"] == 4 and statement["num_burnt_charges"] == 3 and statement["num_steps"] == 1
        assert statement["epsilon"] <= 3.0


class TestDpCgan(UnlabelledRecordsConformance, PrivateSynthesizerConformance):
    CONFIG = DpCganConfig(**SMALL | {"critic_steps": 1})
    FIRST_OF_ITS_FAMILY = False


def normal(*shape, seed):
    return np.random.default_rng(seed).standard_normal(shape, np.float32)


def gan(data, config=RESOLVED, noise=NoNoise()):
    return PrivateGan(config, data, noise)


def test_adding_or_removing_a_record_changes_the_sum_by_at_most_the_clip_norm():
    data = tiny.dataset()
    model, everybody = gan(data), np.arange(20)
    blur = np.random.default_rng(0).normal(0, 0.3, (20, 8, 8, 1)).astype(np.float32)
    whole = model.clipped_sum(everybody, blur)
    for left_out in range(20):
        change = whole - model.clipped_sum(np.delete(everybody, left_out), np.delete(blur, left_out, 0))
        assert 0 < np.linalg.norm(change) * RESOLVED.clip_norm / _STEPS <= RESOLVED.clip_norm


@pytest.mark.parametrize("filters", [12, 20])
def test_a_record_that_was_not_drawn_changes_nothing_of_others(filters):
    """All places shift, by which convolutions of these widths round on some processors."""
    random = np.random.default_rng(0)
    images = (255 * (random.random((300, 8, 8, 1)) < 0.1)).astype(np.uint8)
    gan = PrivateGan(RESOLVED.replace(discriminator_filters=filters, instance_noise=0.0),
                     as_dataset(images, np.arange(300) % 3, 3, name="sparse"), NoNoise())
    drawn, blur = np.arange(300), np.zeros((300, 1, 1, 1), np.float32)
    whole, fewer, alone = (gan.clipped_sum(chosen, blur[chosen]) for chosen in (drawn, drawn[1:], drawn[:1]))
    np.testing.assert_array_equal(whole - fewer, alone)
    assert np.any(alone)


def test_a_unit_changes_the_sum_by_at_most_the_clip_norm_and_by_its_average_gradient(monkeypatch):
    monkeypatch.setattr("datalens_tf.methods.dp_gan._CHUNK", 8)
    images = np.random.default_rng(0).integers(0, 256, (30, 8, 8, 1)).astype(np.uint8)
    data = as_dataset(images, np.arange(30) % 3, 3, units=np.array([4, 1, 4, 0, 4, 4, 2, 3, 4, 0] + [4] * 20))
    model = gan(data, RESOLVED.replace(clip_norm=0.05))
    blur = np.random.default_rng(0).normal(0, 0.3, (30, 8, 8, 1)).astype(np.float32)

    def total(*units):
        chosen = data.units.records(np.array(units, int))
        return model.clipped_sum(chosen, blur[chosen])

    whole, of = total(0, 1, 2, 3, 4), data.units.of
    for unit in range(5):
        change = whole - total(*(other for other in range(5) if other != unit))
        assert 0.9 < np.linalg.norm(change) / _STEPS <= 1
        mine = np.flatnonzero(of == unit)  # One after the other.
        gradients = [model.critic.per_example_gradients(
            images[[record]] / np.float32(255) + blur[[record]], data.labels[[record]], model._real_loss)[0].numpy()
            for record in mine]
        expected = model.mechanism.clip(np.mean(gradients, 0)[None])[0].numpy()
        np.testing.assert_allclose(change, expected, atol=16)  # In units of 2^-20 clip norms.
    assert not total().any()
    assert set(of[model.sampled(1)]) <= set(range(5))


def test_a_unit_that_is_not_finite_adds_nothing_and_changes_no_other(monkeypatch):
    data = as_dataset(np.zeros((6, 8, 8, 1), np.float32), np.arange(6) % 3, 3, units=np.array([0, 0, 0, 1, 1, 2]))
    blur = np.random.default_rng(0).normal(0, 0.3, (6, 8, 8, 1)).astype(np.float32)
    model, broken = gan(data), blur.copy()
    broken[1] = np.nan
    rest = model.clipped_sum(np.arange(3, 6), blur[3:])
    np.testing.assert_array_equal(model.clipped_sum(np.arange(6), broken), rest)


def test_chunks_and_padding_do_not_matter(monkeypatch):
    data = tiny.dataset()
    chosen = np.array([3, 5, 7, 11, 13])
    blur = np.random.default_rng(0).normal(0, 0.3, (5, 8, 8, 1)).astype(np.float32)
    whole = gan(data).clipped_sum(chosen, blur)
    monkeypatch.setattr("datalens_tf.methods.dp_gan._CHUNK", 2)
    np.testing.assert_allclose(gan(data).clipped_sum(chosen, blur), whole, atol=8)  # In units of 2^-20 clip norms.
    assert not gan(data).clipped_sum(np.array([], int), np.zeros((0, 1, 1, 1))).any()


def test_only_the_real_path_is_clipped_and_noisy():
    """Without any sampled record and without noise, the discriminator still learns from synthetic images, unclipped."""
    config = RESOLVED.replace(sampling_probability=1e-12, clip_norm=1e-3, insecure_noise_seed=0, optimizer="sgd",
                              learning_rate=1.0)
    model = gan(tiny.dataset(), config)
    before = [weight.numpy() for weight in model.critic.weights]
    model.train(1, 0)
    moved = np.sqrt(sum(np.sum((w.numpy() - b)**2) for w, b in zip(model.critic.weights, before)))
    assert moved > 100 * config.clip_norm
    clipped = gan(tiny.dataset(), config.replace(fake_clipping="per_example"))
    clipped.train(1, 0)
    moved = np.sqrt(sum(np.sum((w.numpy() - b)**2) for w, b in zip(clipped.critic.weights, before)))
    assert 0 < moved <= config.clip_norm * (1 + 1e-5)


def test_off_means_off():
    """All records, a clip norm that nothing reaches, no noise: plain SGD; with noise it differs."""
    config = RESOLVED.replace(sampling_probability=1.0, clip_norm=1e3, batch_size=20, optimizer="sgd",
                              learning_rate=0.1, critic_steps=5, instance_noise=0.0)
    data = tiny.dataset()
    model, plain, noisy = gan(data, config), gan(data, config), gan(data, config, InsecureSeededNoise(0))
    model.train(1, 0)
    noisy.train(1, 0)
    from datalens_tf import rng
    from datalens_tf.training.student import draw_latents
    stream = rng.stream(config.seed, "gan", 1)
    latents, labels = draw_latents(config, stream, 6), stream.integers(0, 3, 6)
    fakes = plain.student.generator([latents, labels], training=True)
    with tf.GradientTape() as tape:
        loss = (tf.reduce_mean(tf.nn.softplus(-plain.critic(data.images / np.float32(255), data.labels)))
                + tf.reduce_mean(tf.nn.softplus(plain.critic(fakes, labels))))
    for weight, gradient, found, other in zip(plain.critic.weights, tape.gradient(loss, plain.critic.weights),
                                              model.critic.weights, noisy.critic.weights):
        expected = weight.numpy() - 0.1 * tf.convert_to_tensor(gradient).numpy()
        np.testing.assert_allclose(found.numpy(), expected, atol=2e-4)
        assert np.abs(other.numpy() - expected).max() > 1.0


def test_the_generator_sees_the_discriminator_only():
    """Other records, the same noisy sums: the same generator and discriminator."""
    released, models = [], []

    class Recording(GaussianSum):
        def privatize(self, total, noise, index):
            released.append(super().privatize(total, noise, index))
            return released[-1]

    class Replaying(GaussianSum):
        def privatize(self, total, noise, index):
            return released[index]

    for kind, data in ((Recording, tiny.dataset()), (Replaying, tiny.dataset(seed=9))):
        model = gan(data, RESOLVED, InsecureSeededNoise(1))
        model.mechanism = kind(clip_norm=1.0, noise_multiplier=1.5, adjacency="add-or-remove-one",
                               sampling_probability=0.3)
        for step in range(1, 4):
            model.train(step, step - 1)
        models.append(model)
    for first, second in zip(models[0].variables(), models[1].variables()):
        np.testing.assert_array_equal(first.numpy(), second.numpy())


def test_sampling_is_poisson_and_has_no_seed():
    model = gan(tiny.dataset(2000), RESOLVED)
    draws = np.array([np.bincount(model.sampled(1), minlength=2000) for _ in range(200)])
    assert draws.max() == 1
    mean, error = draws.mean(), np.sqrt(0.3 * 0.7 / draws.size)
    assert abs(mean - 0.3) < 6 * error
    sizes = draws.sum(1)
    assert 0.5 < sizes.var() / (2000 * 0.3 * 0.7) < 1.8  # Chi-square with 199 degrees of freedom: beyond 6 sigma.
    np.random.seed(0)
    tf.random.set_seed(0)
    first = model.sampled(1)
    np.random.seed(0)
    tf.random.set_seed(0)
    assert not np.array_equal(first, model.sampled(1))


def test_instance_noise_is_as_secret_as_the_sampling_and_its_own_for_each_example(monkeypatch):
    seen, model = [], gan(tiny.dataset(), RESOLVED.replace(sampling_probability=1.0, instance_noise=0.3))
    original = model.clipped_sum
    monkeypatch.setattr(model, "clipped_sum", lambda chosen, blur: seen.append(blur) or original(chosen, blur))
    for _ in range(2):
        model.train(1, 0)
    blurs = np.concatenate(seen).reshape(40, -1)
    assert np.all(np.abs(np.corrcoef(blurs) - np.eye(40)) < 0.8)  # 64 pixels: 0.8 is beyond 6 sigma.
    assert abs(blurs.std() - 0.3) < 6 * 0.3 / np.sqrt(2 * blurs.size)


def test_mode_seeking_keeps_images_of_a_class_apart():
    images, latents = normal(6, 8, 8, 1, seed=0), normal(6, 4, seed=1)
    expected = np.mean([np.mean(np.abs(images[i] - images[i + 3])) / np.mean(np.abs(latents[i] - latents[i + 3]))
                        for i in range(3)])
    np.testing.assert_allclose(distance_ratio(tf.constant(images), tf.constant(latents)), expected, rtol=1e-5)
    ratios = []
    for weight in (0.0, 10.0):
        model = gan(tiny.dataset(), RESOLVED.replace(mode_seeking=weight, critic_steps=1, generator_steps=30))
        model.train(1, 0)
        latents = normal(20, 4, seed=2)
        made = model.student.generator([latents, np.zeros(20, int)], training=True)
        ratios.append(float(distance_ratio(made, tf.constant(latents))))
    assert ratios[1] > 1.5 * ratios[0]


@pytest.mark.parametrize("changes, message", [
    ({"generator_batch_size": 7}, "generator_batch_size=7 to be even"),
    ({"mode_seeking": -1.0}, "mode_seeking=-1.0 >= 0"),
    ({"accountant": "gdp"}, "accountant='gdp' to be one of rdp, pld"), ({"loss": "x"}, "loss='x'"),
    ({"clip_norm": 0.0}, "clip_norm=0.0 > 0"), ({"sampling_probability": 2.0}, "sampling_probability=2.0 in"),
    ({"optimizer": "lion"}, "optimizer='lion'"), ({"fake_clipping": "all"}, "fake_clipping='all'"),
    ({"weight_clip": -1.0}, "weight_clip=-1.0 > 0")])
def test_bad_settings_are_named(changes, message):
    with pytest.raises(InvalidArgumentError, match=message):
        CONFIG.replace(**changes)
