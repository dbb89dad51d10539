"""DP-MERF: one release, then fitting to it alone."""

import functools

import numpy as np
import pytest
import tensorflow as tf

from datalens_tf.accounting import accountants
from datalens_tf.accounting.ledger import PrivacyLedger
from datalens_tf.data.datasets import to_unit
from datalens_tf.errors import BudgetExhaustedError, InterruptionWarning, InvalidArgumentError, TrainingInterrupted
from datalens_tf.mechanisms.mean_embedding import MeanEmbedding, RandomFourierFeatures
from datalens_tf.mechanisms.second_moment import SecondMoment
from datalens_tf.methods.dp_merf import DpMerfConfig
from datalens_tf.methods.embedding import EmbeddingStudent, embedding_distance
from datalens_tf.methods.sum_questions import feature_batches
from datalens_tf.training.checkpoint import ReleaseStore
from tests.methods.conformance import PrivateSynthesizerConformance, UnlabelledRecordsConformance
from tests.training import tiny

CONFIG = DpMerfConfig(num_features=40, bandwidths="2", batch_size=6, fit_steps=4, latent_dim=4, generator_filters=4,
                      generator_units=8, epsilon=2.0)


class TestDpMerf(UnlabelledRecordsConformance, PrivateSynthesizerConformance):
    CONFIG = CONFIG

    def test_the_noise_is_what_the_budget_asks_for(self, run):
        assert run.config.noise_multiplier == accountants.calibrate_noise_multiplier(1, 2.0, 1e-5, "gdp")
        statement = run.privacy_statement()
        assert statement["epsilon"] == pytest.approx(2.0, rel=1e-6) and statement["num_charges"] == 1
        assert statement["noise_multiplier_per_step"] == run.config.noise_multiplier
        assert "codes" not in run.folder.statement_text.read_text()

    def test_the_generator_is_a_function_of_the_release(self, run, tmp_path, monkeypatch):
        """Other records with the same stored release give the same generator: nothing else was looked at."""
        other, noisy = tiny.dataset(seed=5), ReleaseStore(run.folder.releases).load(1)
        monkeypatch.setattr(MeanEmbedding, "privatize", lambda *args: noisy)
        second = self.make(tmp_path).fit(other.images, other.labels)
        np.testing.assert_array_equal(run.sample(9, seed=0)[0], second.sample(9, seed=0)[0])

    def test_a_charge_without_its_release_is_burnt_and_nothing_is_drawn_again(self, tmp_path, monkeypatch):
        def killed(*args):
            raise KeyboardInterrupt

        data = tiny.dataset()
        monkeypatch.setattr(ReleaseStore, "store", killed)
        with pytest.raises(KeyboardInterrupt):
            self.make(tmp_path).fit(data.images, data.labels)
        monkeypatch.undo()
        assert len(PrivacyLedger.read(tmp_path / "ledger.jsonl").charges) == 1
        with pytest.raises(BudgetExhaustedError, match="does not pay for what remains.*1 charges, 1 of them lost"):
            self.make(tmp_path).fit(data.images, data.labels)

    def test_the_charge_is_on_disk_before_the_noise_is_drawn(self, tmp_path, monkeypatch):
        seen = []

        def watching(mechanism, sums, noise, index):
            seen.append([charge.index for charge in PrivacyLedger.read(tmp_path / "ledger.jsonl").charges])
            return original(mechanism, sums, noise, index)

        original = MeanEmbedding.privatize
        monkeypatch.setattr(MeanEmbedding, "privatize", watching)
        data = tiny.dataset()
        self.make(tmp_path).fit(data.images, data.labels)
        assert seen == [[0]]


class TestDpMerfWithAutoencoder(PrivateSynthesizerConformance):
    CONFIG = CONFIG.replace(autoencoder_dim=5)
    FIRST_OF_ITS_FAMILY = False

    def test_both_releases_are_charged_and_the_noise_pays_for_both(self, run):
        statement, text = run.privacy_statement(), run.folder.statement_text.read_text()
        assert run.config.noise_multiplier == accountants.calibrate_noise_multiplier(2, 2.0, 1e-5, "gdp")
        assert statement["num_charges"] == 2 and statement["epsilon"] == pytest.approx(2.0, rel=1e-6)
        assert "sqrt(2) * 10^2" in " ".join(text.split()) and "codes of 5 numbers" in " ".join(text.split())

    def test_charges_are_on_disk_before_the_noise_is_drawn(self, tmp_path, monkeypatch):
        seen, data = [], tiny.dataset()
        for kind in (SecondMoment, MeanEmbedding):
            def watching(mechanism, sums, noise, index, original=kind.privatize):
                seen.append([charge.index for charge in PrivacyLedger.read(tmp_path / "ledger.jsonl").charges])
                return original(mechanism, sums, noise, index)

            monkeypatch.setattr(kind, "privatize", watching)
        self.make(tmp_path).fit(data.images, data.labels)
        assert seen == [[0], [0, 1]]

    def test_the_generator_is_a_function_of_the_releases(self, run, tmp_path, monkeypatch):
        other = tiny.dataset(seed=5)
        for step, kind in ((1, SecondMoment), (2, MeanEmbedding)):
            noisy = ReleaseStore(run.folder.releases).load(step)
            monkeypatch.setattr(kind, "privatize", lambda *args, noisy=noisy: noisy)
        second = self.make(tmp_path).fit(other.images, other.labels)
        np.testing.assert_array_equal(run.sample(9, seed=0)[0], second.sample(9, seed=0)[0])

    def test_a_run_killed_between_the_releases_does_not_pay_for_the_first_again(self, tmp_path, monkeypatch):
        def killed(*args):
            raise KeyboardInterrupt

        data = tiny.dataset()
        with monkeypatch.context() as patched, pytest.raises(TrainingInterrupted, match="release 2 of 2"):
            patched.setattr(MeanEmbedding, "sums", killed)
            self.make(tmp_path).fit(data.images, data.labels)
        run = self.make(tmp_path).fit(data.images, data.labels)
        assert len(PrivacyLedger.read(tmp_path / "ledger.jsonl").charges) == 2
        assert run.privacy_statement()["num_burnt_charges"] == 0

    def test_a_lost_first_release_is_made_again_with_more_noise(self, tmp_path, monkeypatch):
        """Both that remain share the other half of the budget."""
        def killed(*args):
            raise KeyboardInterrupt

        data, drawn = tiny.dataset(), []
        with monkeypatch.context() as patched, pytest.raises(KeyboardInterrupt):
            patched.setattr(ReleaseStore, "store", killed)
            self.make(tmp_path).fit(data.images, data.labels)
        for kind in (SecondMoment, MeanEmbedding):
            monkeypatch.setattr(kind, "privatize", lambda self, *args, original=kind.privatize: (
                drawn.append(self.noise_multiplier), original(self, *args))[1])
        with pytest.warns(InterruptionWarning, match="1 of 1 charges .* 1.414 times the noise"):
            run = self.make(tmp_path).fit(data.images, data.labels)
        statement = run.privacy_statement()
        assert drawn == [pytest.approx(run.config.noise_multiplier * 2**0.5, rel=2e-6)] * 2
        assert (statement["num_charges"], statement["num_burnt_charges"]) == (3, 1)
        assert 2.0 * (1 - 1e-5) <= statement["epsilon"] <= 2.0


def test_the_distance_is_unbiased():
    """Of images from the same distribution as the means are of, the mean of many estimates is -|means|^2."""
    stream = np.random.default_rng(0)
    points = stream.normal(size=(4000, 2))
    frequencies = tf.constant(stream.normal(size=(8, 2)), tf.float32)
    features = RandomFourierFeatures.of(tf.constant(points, tf.float32), frequencies).numpy()
    features *= stream.uniform(0.2, 1, (4000, 1)).astype(np.float32)  # Not all of one length.
    means = features.mean(0, keepdims=True)
    found = [float(embedding_distance(tf.constant(features[i:i + 4][None]), tf.constant(means)))
             for i in range(0, 4000, 4)]
    error = np.std(found) / np.sqrt(len(found))
    assert np.mean(found) == pytest.approx(-np.sum(means**2), abs=6 * error)
    assert error < 0.05


def test_how_many_records_there_are_has_no_part_in_the_features_of_one():
    """Products of matrices are rounded as the batch's shape has it: it is the same for all batches."""
    def features(images):
        count = tf.shape(images)[0]
        return tf.reshape(images, [count, -1]) * tf.cast(count == 1000, tf.float32)

    data = tiny.dataset(1003)
    found, labels, sizes = zip(*feature_batches(data, features, places_shift=True))
    assert [len(rows) for rows in found] == [len(rows) for rows in labels] == [len(rows) for rows in sizes] == [1000, 3]
    np.testing.assert_array_equal(np.concatenate(found), to_unit(data.images).reshape(1003, -1))


def test_without_noise_the_generator_approaches_the_records():
    images = np.repeat(np.array([0, 255, 128], np.uint8), 20)[:, None, None, None] * np.ones((1, 8, 8, 1), np.uint8)
    config = CONFIG.replace(image_shape=(8, 8, 1), num_classes=3, num_features=400, ema_decay=0.9, batch_size=30,
                            student_learning_rate=5e-3, generator_units=32, generator_filters=16)
    features = RandomFourierFeatures(num_features=400, bandwidths=(2.0,), dimension=64, seed=0)
    of = functools.partial(RandomFourierFeatures.of, frequencies=tf.constant(features.frequencies()))
    rows = of(tf.constant(images / 255, tf.float32)).numpy()
    student = EmbeddingStudent(config, rows.reshape(3, 20, -1).mean(1), of)
    losses = [student.train(step) for step in range(1, 201)]
    means = student.sample_grid().mean((1, 2, 3, 4))
    assert means[0] < 60 and means[1] > 195 and 80 < means[2] < 176 and losses[-1] < losses[0]


@pytest.mark.parametrize("changes, message", [
    ({"num_features": 41}, "num_features=41 to be even"), ({"bandwidths": "2,x"}, "bandwidths='2,x' to be numbers"),
    ({"bandwidths": "0"}, "bandwidths=0.0 > 0"), ({"noise_multiplier": 0.0}, "noise_multiplier=0.0 > 0"),
    ({"autoencoder_dim": -1}, "autoencoder_dim=-1 >= 0"),
    ({"autoencoder_clip_norm": 0.0}, "autoencoder_clip_norm=0.0 > 0"),
    ({"epsilon": None}, "epsilon=None"), ({"fit_steps": 0}, "fit_steps=0 >= 1")])
def test_bad_settings_are_named(changes, message):
    with pytest.raises(InvalidArgumentError, match=message):
        CONFIG.replace(**changes)
