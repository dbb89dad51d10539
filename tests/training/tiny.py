"""A data set and settings small enough to train in a second."""

import numpy as np

from datalens_tf.data.datasets import as_dataset
from datalens_tf.methods.datalens import DataLensConfig

CONFIG = DataLensConfig(
    dataset="tiny", image_shape=(8, 8, 1), num_classes=3, num_teachers=4, batch_size=3, top_k=5, noise_stddev=40.0,
    vote_threshold=0.5, latent_dim=4, teacher_batch_size=3, warmup_teacher_steps=2, teacher_steps=2,
    instance_noise=0.3, ema_decay=0.9, discriminator_filters=4, discriminator_units=8, generator_filters=4,
    generator_units=8, epsilon=10.0, num_steps=5, insecure_noise_seed=3)


def dataset(num_records: int = 20, seed: int = 0):
    """Random images with every class present."""
    rng = np.random.default_rng(seed)
    images = rng.integers(0, 256, (num_records, 8, 8, 1)).astype(np.uint8)
    return as_dataset(images, np.arange(num_records) % 3, 3, name="tiny")


def released_bytes(student):
    """What a student hands out, bit by bit."""
    return b"".join(variable.numpy().tobytes() for variable in student.released().variables)
