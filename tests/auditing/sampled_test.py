"""Audits of DP-SGD: canaries that are quiet where all is well, and sums of neighbours, for a GAN and a classifier."""

import functools

import numpy as np
import pytest
import tensorflow as tf

from datalens_tf.auditing import neighbours
from datalens_tf.auditing.sampled import Canaries, audit_canaries, hostile_pairs
from datalens_tf.classification import networks
from datalens_tf.classification.classifier import DpSgd, PrivateClassifier
from datalens_tf.classification.classifier_config import ClassifierConfig
from datalens_tf.errors import CheckpointError, InvalidArgumentError
from datalens_tf.mechanisms import gaussian_sum
from datalens_tf.mechanisms.gaussian_sum import GaussianSum
from datalens_tf.mechanisms.noise import RoundedGaussianNoise
from datalens_tf.methods import registry
from datalens_tf.models import places
from datalens_tf.models.critic import Critic
from tests.auditing.no_noise import NoNoise
from tests.training import tiny

SURE = 1 - 1e-6
DATA = tiny.dataset(40)
# As much noise as epsilon 1 asks for: to calibrate it takes minutes. A bound of one run at a confidence of 1 - r needs
# a delta far below r.
DP_SGD = {"epsilon": 1.0, "batch_size": 20, "num_steps": 12, "noise_multiplier": 20.5, "accountant": "rdp",
          "delta": 1e-9}
GAN = registry.synthesizer("dp_gan")
GAN_CONFIG = GAN.config_class(**DP_SGD, critic_steps=4, generator_batch_size=6, latent_dim=4, generator_filters=4,
                              generator_units=8, discriminator_filters=4)
CLASSIFIER_CONFIG = ClassifierConfig(**DP_SGD, clip_norm=1.0)
KNOWN = {"image_shape": (8, 8, 1), "num_classes": 3, "sampling_probability": 0.5, "insecure_noise_seed": 0}


def model():
    initial = functools.partial(tf.keras.initializers.GlorotUniform, 0)
    return tf.keras.Sequential([
        tf.keras.Input((8, 8, 1)), tf.keras.layers.Flatten(),
        tf.keras.layers.Dense(4, activation="relu", kernel_initializer=initial()),
        tf.keras.layers.Dense(3, kernel_initializer=initial())])


KINDS = {"gan": (GAN, GAN_CONFIG, dict),
         "classifier": (PrivateClassifier, CLASSIFIER_CONFIG, lambda: {"model": model()})}


def audited(name, folder, noise):
    kind, config, options = KINDS[name]
    return audit_canaries(kind, config, DATA, folder / name, num_canaries=100, confidence=SURE, noise=noise,
                          **options())


def gan(data, **changes):
    return GAN.learner_class()(GAN_CONFIG.replace(**KNOWN | changes), data, NoNoise())


def classifier(data, network=model, **changes):
    config = CLASSIFIER_CONFIG.replace(**KNOWN | changes)
    return DpSgd(config, data, network(), None, NoNoise())


@pytest.mark.slow
@pytest.mark.parametrize("name", KINDS)
def test_an_honest_run_is_not_caught(name, tmp_path):
    found = audited(name, tmp_path, RoundedGaussianNoise())
    assert not found.caught and found.claimed <= 1 and found.private and found.details["num_steps"] == 12


@pytest.mark.parametrize("name", [pytest.param("gan", marks=pytest.mark.slow), "classifier"])
def test_noise_that_is_off_is_caught(name, tmp_path):
    found = audited(name, tmp_path, NoNoise())
    assert found.caught and found.lower_bound > 1.2 > found.claimed
    assert found.details["num_correct"] >= 0.99 * found.details["num_guesses"]


@pytest.mark.slow
def test_a_run_whose_beginning_nobody_watched_is_no_proof(tmp_path):
    audited("classifier", tmp_path, RoundedGaussianNoise())
    with pytest.raises(CheckpointError, match="not watched: delete"):
        audited("classifier", tmp_path, RoundedGaussianNoise())


@pytest.mark.parametrize("adjacency, share", [("add-or-remove-one", 0.0), ("replace-one", 1.0)])
def test_canaries_are_clipped_and_share_no_coordinate(adjacency, share):
    """Of the others, nothing is there, or their opposites are."""
    learner = classifier(DATA, top_k_norm=0.8, adjacency=adjacency)
    canaries = Canaries(learner, 10, 0.0, np.random.default_rng(0))
    everybody = canaries.sum_of(np.arange(10))
    count = np.where(canaries.coins, 1.0, share).sum()
    assert np.linalg.norm(everybody) == pytest.approx((0.8 * count)**0.5 * gaussian_sum._STEPS, rel=1e-3)
    canaries.see(everybody)
    np.testing.assert_array_equal(canaries.log_ratios > 0, canaries.coins)


def audited_pairs(make, **changes):
    return neighbours.audit_pairs(hostile_pairs(functools.partial(make, **changes), DATA), "sums")


CHANGES = [{}, {"adjacency": "add-or-remove-one"}, {"sampling_probability": 1.0}]  # The last: a replaced record.


@pytest.mark.parametrize("changes", CHANGES)
@pytest.mark.parametrize("make", [pytest.param(gan, marks=pytest.mark.slow), classifier])
def test_one_record_moves_the_sum_by_no_more_than_is_charged(make, changes):
    finding = audited_pairs(make, **changes)
    assert not finding.caught and finding.lower_bound > 0.4


def test_batch_normalisation_is_caught_in_a_gan(monkeypatch):
    """It is refused by what it does to a batch; here it is let through."""
    def normalised(critic, images):
        mean, variance = tf.nn.moments(images, 0)
        return layers(critic, (images - mean) / tf.sqrt(variance + 1e-3))

    layers = Critic._layers
    monkeypatch.setattr(Critic, "_layers", normalised)
    with pytest.raises(InvalidArgumentError, match="discriminator to keep records apart"):
        audited_pairs(gan)
    monkeypatch.setattr(places, "same_anywhere", lambda *args, **kwargs: True)
    assert audited_pairs(gan).lower_bound > 1.1


def test_batch_normalisation_is_caught_in_a_classifier(monkeypatch):
    """It is refused, by its layer and by what it does to a batch; here it is let through."""
    class OfTheBatch(networks.PerExampleGradients):
        def __call__(self, images, labels, *masks):
            return super().__call__((images - images.mean(0)) / (images.std(0) + 0.03), labels, *masks)

    monkeypatch.setattr(networks, "same_anywhere", lambda *args, **kwargs: True)
    monkeypatch.setattr(networks, "PerExampleGradients", OfTheBatch)
    assert audited_pairs(classifier).lower_bound > 1.5


@pytest.mark.parametrize("changes", CHANGES[:2])
@pytest.mark.parametrize("make", [pytest.param(gan, marks=pytest.mark.slow), classifier])
def test_noise_for_half_of_a_records_length_is_caught(make, changes, monkeypatch):
    whole = GaussianSum.noise_stddev.fget
    monkeypatch.setattr(GaussianSum, "noise_stddev", property(lambda self: whole(self) / 2))
    finding = audited_pairs(make, **changes)
    assert finding.caught and finding.lower_bound == pytest.approx(2, rel=1e-2)
