"""Chosen images: the surest of those that were drawn, and one for each label whatever others ask for."""

import numpy as np
import tensorflow as tf

from datalens_tf.models.chosen import ChosenGenerator
from tests.models.factor_generators import SHAPE, generator, latents


class Brightness(tf.Module):
    """Says that bright images are of class 1."""

    def __call__(self, images, training=False):
        mean = tf.reduce_mean(images, (1, 2, 3))
        return tf.stack([-10 * mean, 10 * mean], 1)


def test_the_surest_image_is_taken():
    source = generator()
    made = ChosenGenerator(source, Brightness(), 4)
    assert made.latent_dim == 4 * source.latent_dim
    drawn, labels = latents(made, 30), tf.constant(np.arange(30) % 2)
    found = made([drawn, labels]).numpy()
    drawn = drawn.numpy().reshape(30, 4, -1)
    for number, label in enumerate(labels.numpy()):
        four = source([tf.constant(drawn[number]), tf.fill([4], label)]).numpy()
        sums = four.mean((1, 2, 3))
        np.testing.assert_allclose(found[number], four[sums.argmax() if label else sums.argmin()], atol=1e-6)


def test_one_choice_is_none():
    source = generator()
    drawn, labels = latents(source, 9), tf.constant([0, 1, 1] * 3)
    np.testing.assert_allclose(
        ChosenGenerator(source, Brightness(), 1)([drawn, labels]), source([drawn, labels]), atol=1e-6)


def test_labels_without_images_are_no_images():
    made = ChosenGenerator(generator(), Brightness(), 2)
    assert made([latents(made, 0), tf.zeros([0], tf.int32)]).shape == (0, *SHAPE)
