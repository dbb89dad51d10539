"""G-PATE: what every method with voting teachers must do, and its settings."""

import numpy as np
import pytest

from datalens_tf.errors import InvalidArgumentError
from datalens_tf.methods.g_pate import GPateConfig
from datalens_tf.training.trainer import Trainer
from tests.methods.voted import TEACHERS, VotedConformance
from tests.training import tiny

CONFIG = GPateConfig(**TEACHERS, projection_dim=4, num_bins=3)


class TestGPate(VotedConformance):
    CONFIG = CONFIG

    def test_the_statement_names_both_noises(self, run):
        statement = run.privacy_statement()
        assert statement["threshold_noise_stddev"] == pytest.approx(3 * statement["noise_stddev"], rel=1e-12)
        assert statement["noise_multiplier_per_step"]**-2 == pytest.approx(
            3 * 4 * (statement["threshold_noise_stddev"]**-2 + 2 * statement["noise_stddev"]**-2), rel=1e-9)


@pytest.mark.slow
def test_with_little_noise_the_generator_approaches_the_records(tmp_path):
    """Black, white and grey images, dealt to four teachers."""
    order = np.random.default_rng(0).permutation(60)
    images = np.repeat(np.array([0, 255, 128], np.uint8), 20)[order, None, None, None] * np.ones((1, 8, 8, 1), np.uint8)
    config = CONFIG.replace(
        image_shape=(8, 8, 1), num_classes=3, epsilon=1e6, noise_stddev=0.5, batch_size=15, teacher_batch_size=15,
        num_steps=160, projection_dim=16, num_bins=4, instance_noise=0.3, student_learning_rate=3e-3,
        generator_units=32, generator_filters=16, seed=1, insecure_noise_seed=1)
    data = tiny.as_dataset(images, np.repeat([0, 1, 2], 20)[order], 3)
    student = Trainer(config, data, tmp_path, mechanism=config.mechanism()).run()
    means = student.sample_grid().mean((1, 2, 3, 4))
    assert means[0] < 100 and means[1] > 160


@pytest.mark.parametrize("changes, message", [
    ({"projection_dim": 0}, "projection_dim=0 >= 1"), ({"num_bins": 1}, "num_bins=1 >= 2"),
    ({"clip": 0.0}, "clip=0.0 > 0"), ({"vote_threshold": 1.5}, "vote_threshold=1.5"),
    ({"step_size": 0.0}, "step_size=0.0 > 0"), ({"threshold_noise_ratio": 0.0}, "threshold_noise_ratio=0.0 > 0")])
def test_bad_settings_are_named(changes, message):
    with pytest.raises(InvalidArgumentError, match=message):
        CONFIG.replace(**changes)
