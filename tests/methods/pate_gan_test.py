"""PATE-GAN: teachers label images, a student discriminator learns from these, and the generator from it."""

import numpy as np
import pytest
import tensorflow as tf

from datalens_tf.errors import InvalidArgumentError
from datalens_tf.methods.pate_gan import LabelledStudent, PateGanConfig
from tests.methods.voted import TEACHERS, VotedConformance

CONFIG = PateGanConfig(**TEACHERS, student_steps=2, student_batch_size=4, replay_releases=2)


@pytest.mark.slow  # Its family's first class is quick.
class TestPateGan(VotedConformance):
    CONFIG = CONFIG
    FIRST_OF_ITS_FAMILY = False


def test_answers_are_remembered_until_newer_ones_replace_them():
    student = LabelledStudent(CONFIG.replace(image_shape=(8, 8, 1), num_classes=3))
    for step in range(1, 4):
        student.train(*student.inputs(step), np.full([3, 1], step % 2 * 2.0 - 1.0, np.float32))
    np.testing.assert_array_equal(student._answers, [1, 1, 1, -1, -1, -1])  # Those of steps 3 and 2.
    np.testing.assert_array_equal(student._labels[:3], student.inputs(3)[1])


def test_no_answer_teaches_the_discriminator_nothing():
    student = LabelledStudent(CONFIG.replace(image_shape=(8, 8, 1), num_classes=3))
    before = [w.numpy() for w in student._discriminator.trainable_variables]
    student.train(*student.inputs(1), np.zeros([3, 1], np.float32))
    for old, new in zip(before, student._discriminator.trainable_variables):
        np.testing.assert_array_equal(old, new)


@pytest.mark.slow
def test_the_generator_moves_to_where_answers_are_real():
    """Teachers that take bright images of class 1 for real, and dark ones of the others; with noise."""
    config = CONFIG.replace(image_shape=(8, 8, 1), num_classes=3, batch_size=30, student_steps=5, student_batch_size=60,
                            student_learning_rate=1e-3, student_discriminator_learning_rate=2e-3, ema_decay=0.9,
                            generator_units=32, generator_filters=16, replay_releases=5)
    student = LabelledStudent(config)
    for step in range(1, 71):
        latents, labels = student.inputs(step)
        brightness = tf.reduce_mean(student.images(latents, labels), [1, 2, 3]).numpy()
        wanted = np.where(labels.numpy() == 1, brightness, 1 - brightness)
        noise = np.random.default_rng(step).normal(0, 0.3, 30)
        student.train(latents, labels, np.where(wanted + noise > 0.7, 1.0, -1.0)[:, None])
    means = student.sample_grid().mean((1, 2, 3, 4))
    assert means[1] > 180 and max(means[0], means[2]) < 100


@pytest.mark.parametrize("changes, message", [
    ({"student_steps": 0}, "student_steps=0 >= 1"), ({"noise_stddev": 0.0}, "noise_stddev=0.0 > 0"),
    ({"num_steps": None}, "num_steps=None"), ({"num_teachers": 0}, "num_teachers=0 >= 1"),
    ({"precision": "float16"}, "precision='float16'"), ({"instance_noise": -1.0}, "instance_noise=-1.0 >= 0"),
    ({"beta_2": 0.999}, "beta_2=0.999"), ({"epsilon": None}, "epsilon=None"),
    ({"student_discriminator_learning_rate": 0}, "student_discriminator_learning_rate=0 > 0")])
def test_bad_settings_are_named(changes, message):
    with pytest.raises(InvalidArgumentError, match=message):
        CONFIG.replace(**changes)
