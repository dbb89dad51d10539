"""The study of what variants of TopAgg pass on: right where the answer is known."""


import numpy as np
import pytest

from datalens_tf.methods.registry import preset


def test_without_noise_signs_of_equal_gradients_are_passed_on_whole(study):
    gradients = np.where(np.random.default_rng(0).random((1, 1, 3, 784)) < 0.5, -1.0, 1.0).astype(np.float32)
    config = preset("mnist", 1.0).replace(num_teachers=20, image_shape=(28, 28, 1), num_classes=10)
    row = study.cosines(config, {"top_k": None, "vote_threshold": None}, np.tile(gradients, (1, 20, 1, 1)), draws=1)
    assert row[0] == pytest.approx(1.0, abs=1e-6) and all(np.diff(row) < 0) and row[-1] > 0


def test_noise_is_what_equal_epsilon_asks_for(study):
    """With all teachers alike a linear release has a cosine that is known."""
    gradients = np.where(np.random.default_rng(0).random((1, 1, 50, 784)) < 0.5, -1.0, 1.0).astype(np.float32)
    config = preset("mnist", 1.0).replace(num_teachers=20, image_shape=(28, 28, 1), num_classes=10)
    row = study.cosines(config, {"top_k": None, "vote_threshold": None}, np.tile(gradients, (1, 20, 1, 1)), draws=1)
    level = study.NOISE_LEVELS[3] * np.sqrt(784 / 200)
    assert row[3] == pytest.approx(1 / np.sqrt(1 + level**2), rel=0.03)


def test_nothing_left_is_no_direction(study):
    assert study.cosine(np.zeros(3), np.ones(3)) == 0.0
