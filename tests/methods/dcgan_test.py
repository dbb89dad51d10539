"""The reference without privacy: it learns, and says that it is not private."""

import numpy as np
import pytest

from datalens_tf.errors import InvalidArgumentError
from datalens_tf.methods.dcgan import DcganConfig, Gan
from tests.methods.conformance import SynthesizerConformance, UnlabelledRecordsConformance
from tests.training import tiny

CONFIG = DcganConfig(batch_size=6, num_steps=4, latent_dim=4, generator_filters=4, generator_units=8,
                     discriminator_filters=4, discriminator_units=8)


class TestDcgan(UnlabelledRecordsConformance, SynthesizerConformance):
    CONFIG = CONFIG
    FIRST_OF_ITS_FAMILY = False  # DP-GAN is.


def test_a_budget_is_refused():
    with pytest.raises(InvalidArgumentError, match="epsilon=1.0 to be none: dcgan is not private"):
        CONFIG.replace(epsilon=1.0)


@pytest.mark.slow
def test_it_learns_what_separates_the_classes():
    """White, black and grey images: the generator's means approach them."""
    images = np.repeat(np.array([0, 255, 128], np.uint8), 20)[:, None, None, None] * np.ones((1, 8, 8, 1), np.uint8)
    data = tiny.as_dataset(images, np.repeat([0, 1, 2], 20), 3)
    config = CONFIG.replace(image_shape=(8, 8, 1), num_classes=3, num_steps=300, batch_size=30, learning_rate=1e-3,
                            student_learning_rate=2e-3, ema_decay=0.9, generator_units=32, generator_filters=16)
    gan = Gan(config, data)
    for step in range(1, config.num_steps + 1):
        gan.train(step)
    means = gan.student.sample_grid().mean((1, 2, 3, 4))
    assert means[0] < 60 and means[1] > 195 and 60 < means[2] < 195
