"""The student learns from released directions only, and hands out its averaged weights."""

import numpy as np
import pytest

from datalens_tf.errors import TrainingDivergedError
from datalens_tf.training.student import Student
from tests.training import tiny

CONFIG = tiny.CONFIG


def step(student, number=1, direction=None):
    latents, labels = student.inputs(number)
    if direction is None:
        direction = np.ones([CONFIG.batch_size, 64], np.float32)
    return student.train(latents, labels, direction)


def test_images_move_along_the_direction():
    student = Student(CONFIG.replace(student_learning_rate=1e-4))
    latents, labels = student.inputs(1)
    before = student.images(latents, labels).numpy()
    step(student)
    assert student.images(latents, labels).numpy().mean() > before.mean()


def test_no_direction_no_change():
    student = Student(CONFIG)
    before = [w.numpy() for w in student.generator.trainable_variables]
    assert step(student, direction=np.zeros([CONFIG.batch_size, 64], np.float32)) == 0
    for weight, old in zip(student.generator.trainable_variables, before):
        np.testing.assert_array_equal(weight, old)


def test_loss_is_the_squared_length_of_the_move():
    loss = step(Student(CONFIG))
    assert loss == pytest.approx(CONFIG.step_size**2 * CONFIG.batch_size * 64, rel=1e-3)


def test_released_weights_are_the_moving_average_and_off_means_off():
    for decay in (0.0, 0.9):
        student = Student(CONFIG.replace(ema_decay=decay))
        history = [[w.numpy() for w in student.generator.trainable_variables]]
        average = history[0]
        for number in range(1, 4):
            step(student, number)
            history.append([w.numpy() for w in student.generator.trainable_variables])
            rate = min(decay, number / (number + 9))
            average = [rate * a + (1 - rate) * w for a, w in zip(average, history[-1])]
        for got, want in zip(student.released().trainable_variables, average):
            np.testing.assert_allclose(got, want, rtol=1e-5, atol=1e-7)


def test_restored_student_continues_to_the_same_bits():
    one, other = Student(CONFIG), Student(CONFIG.replace(seed=5))
    step(one)
    other.restore(one.state())
    for student in (one, other):
        student.train(*one.inputs(2), np.ones([CONFIG.batch_size, 64], np.float32))
    assert all(np.array_equal(one.state()[name], other.state()[name]) for name in one.state())


def test_labels_are_uniform_and_latents_come_from_the_named_distribution():
    config = CONFIG.replace(batch_size=30_000, latent_dim=1)
    latents, labels = Student(config).inputs(1)
    counts = np.bincount(labels, minlength=3)
    assert np.all(np.abs(counts - 10_000) < 6 * np.sqrt(30_000 * 2 / 9))
    assert -1 <= latents.numpy().min() < -0.99 and 0.99 < latents.numpy().max() <= 1
    normal = Student(config.replace(latent_distribution="normal")).inputs(1)[0].numpy()
    assert normal.std() == pytest.approx(1, abs=0.03) and np.abs(normal).max() > 2


def test_pool_has_every_label_for_every_latent():
    student = Student(CONFIG)
    pool = student.pool(0, 4).numpy()
    assert pool.shape == (4, 3, 8, 8, 1)
    assert not np.allclose(pool[0, 0], pool[0, 1]) and not np.allclose(pool[0, 0], pool[1, 0])
    assert not np.allclose(pool, student.pool(1, 4))


def test_divergence_is_one_clear_error():
    student = Student(CONFIG)
    with pytest.raises(TrainingDivergedError, match="finite"):
        step(student, direction=np.full([CONFIG.batch_size, 64], np.inf, np.float32))
