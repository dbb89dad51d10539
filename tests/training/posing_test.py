"""What is put around a generator: nothing where nothing is asked for, and a choice that sees what labels mean."""

import numpy as np
import pytest
import tensorflow as tf

from datalens_tf import rng
from datalens_tf.facts import DataSpec
from datalens_tf.training import posing
from tests.training import tiny

SPEC = DataSpec((8, 8, 1), 2)
CONFIG = tiny.CONFIG.replace(num_classes=2, latent_dim=3)


class Halves(tf.Module):
    """Class 0 is bright on the left, class 1 on the right; one image in three shows the other class."""

    latent_dim = 3

    def __call__(self, inputs, training=False):
        latents, labels = inputs
        wrong = latents[:, 0] > 1 / 3
        shown = tf.where(wrong, 1 - tf.cast(labels, tf.int32), tf.cast(labels, tf.int32))
        right = tf.cast(tf.range(8) >= 4, tf.float32)[None, None, :, None] * tf.ones([1, 8, 1, 1])
        return tf.where(shown[:, None, None, None] == 1, right, 1 - right) * tf.ones([tf.shape(labels)[0], 1, 1, 1])


def shown(images):
    """What images show."""
    return (images[:, :, 4:].mean((1, 2, 3)) > images[:, :, :4].mean((1, 2, 3))).astype(int)


def drawn(config):
    generator, distribution = posing.posed(Halves(), config)
    assert distribution == "normal"
    return posing.draw(generator, SPEC, rng.stream(0, "test"), 1500)


def test_without_the_settings_a_generator_is_as_it_was():
    generator = Halves()
    assert posing.posed(generator, CONFIG) == (generator, CONFIG.latent_distribution)
    one_class = CONFIG.replace(num_classes=1, output_choices=4)  # all images show it
    assert posing.posed(generator, one_class)[0] is generator
    assert posing.described(CONFIG) == posing.described(one_class) == ""


@pytest.mark.parametrize("grain", [0.0, 0.3])
def test_a_choice_leaves_out_images_of_other_labels(monkeypatch, grain):
    monkeypatch.setattr(posing, "_IMAGES", 1000)
    images, labels = drawn(CONFIG.replace(output_grain=grain, output_warp=1e-6))
    assert abs((shown(images) == labels).mean() - 2 / 3) < 6 * (2 / 9 / 1500)**0.5
    images, labels = drawn(CONFIG.replace(output_grain=grain, output_choices=4))
    assert (shown(images) == labels).mean() > 0.97  # 1 - (1 / 3)^4 = 0.988, less 6 standard deviations
    assert np.bincount(labels).tolist() == [750, 750]


def test_draws_are_of_their_stream():
    generator, _ = posing.posed(Halves(), CONFIG.replace(output_grain=0.2))
    one, again, two = (posing.draw(generator, SPEC, rng.stream(seed, "x"), 20)[0] for seed in (0, 0, 1))
    np.testing.assert_array_equal(one, again)
    assert not np.array_equal(one, two)
