"""The study of TensorFlow Privacy's optimizer: what it clips and averages, and that both trainings end."""


import numpy as np
import pytest
import tensorflow as tf

from datalens_tf.methods.dp_gan import DpGanConfig
from tests.training import tiny

pytest.importorskip("tensorflow_privacy")
CONFIG = DpGanConfig(
    image_shape=(8, 8, 1), num_classes=3, batch_size=4, generator_batch_size=6, num_steps=2, discriminator_filters=2,
    generator_filters=4, generator_units=8, latent_dim=4, sampling_probability=0.2, noise_multiplier=1.0)


@pytest.mark.study
def test_both_train_and_what_they_draw_can_be_measured(study):
    gans = {"theirs": lambda: study.KerasOptimizerGan(CONFIG, tiny.dataset()),
            "ours": lambda: study.GAN(CONFIG, tiny.dataset(), study.RoundedGaussianNoise())}
    found = list(study.trained(gans, 2))
    assert [name for name, _, _ in found] == ["theirs", "ours"] and all(seconds > 0 for _, seconds, _ in found)
    for _, _, gan in found:
        images, labels = study.drawn(gan, CONFIG, 7)
        assert images.shape == (7, 8, 8, 1) and images.dtype == np.uint8 and list(labels) == [0, 1, 2, 0, 1, 2, 0]


def test_the_sum_of_clipped_gradients_is_that_of_examples(study):
    """Without noise: a step's gradient is the mean of the clipped gradients of record and synthetic image together."""
    config = CONFIG.replace(noise_multiplier=1e-6, instance_noise=0.0, clip_norm=0.01)
    gan, seen = study.KerasOptimizerGan(config, tiny.dataset()), []
    gan._private.apply_gradients = lambda pairs, **_: seen.extend(gradient for gradient, _ in pairs)
    data = tiny.dataset()
    images, labels = data.images[:4].astype(np.float32) / 255, data.labels[:4]
    latents = np.zeros((4, config.latent_dim), np.float32)
    fakes = gan.student.generator([latents, labels], training=True)
    gan._discriminator_step(tf.constant(images), tf.constant(labels), fakes)
    vectors = (gan.critic.per_example_gradients(tf.constant(images), labels, gan._real_loss)
               + gan.critic.per_example_gradients(fakes, labels, gan._fake_loss)).numpy()
    clipped = vectors * np.minimum(1, 0.01 / np.linalg.norm(vectors, axis=1, keepdims=True))
    found = np.concatenate([np.reshape(gradient, -1) for gradient in seen])
    np.testing.assert_allclose(found, clipped.mean(0), atol=1e-7)


def test_pieces_of_a_batch_teach_what_the_whole_batch_does(study, monkeypatch):
    """Without noise, and by an Adam that takes the sign of each gradient, however many steps it has counted."""
    config, weights = CONFIG.replace(noise_multiplier=1e-12, beta_1=0.0, beta_2=0.0), []
    for size in (4, 2):
        monkeypatch.setattr(study, "_PIECE", size)
        gan = study.KerasOptimizerGan(config, tiny.dataset())
        before = [weight.numpy() for weight in gan.critic.weights]
        gan.train(1, 0)
        weights.append([weight.numpy() - old for weight, old in zip(gan.critic.weights, before)])
    for whole, pieces in zip(*weights):
        np.testing.assert_allclose(pieces, whole, atol=1e-6)
    assert max(np.abs(moved).max() for moved in weights[0]) > 1e-5


def test_the_noise_of_all_pieces_together_is_that_of_the_batch(study):
    gan = study.KerasOptimizerGan(CONFIG.replace(batch_size=64), tiny.dataset())
    state = gan._private._dp_sum_query.initial_global_state()
    assert gan._pieces == 4
    np.testing.assert_allclose(float(state.stddev) * gan._pieces**0.5, CONFIG.noise_multiplier * CONFIG.clip_norm)
