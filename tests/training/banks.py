"""Small banks of teachers."""

import numpy as np
import tensorflow as tf

from datalens_tf.data.partition import partition_indices
from datalens_tf.models.warp import NUM_MOVES, matrices
from datalens_tf.options import PerformanceOptions
from datalens_tf.training.teachers import TeacherBank, TeacherRound
from tests.training import tiny


def make_bank(data, config=tiny.CONFIG, chunk_size=None, path=None, mechanism=None):
    """In memory, or in the file `path`."""
    partitions = partition_indices(len(data), config.num_teachers, config.partition_seed)
    return TeacherBank(config, data.images, data.labels, partitions, mechanism or config.mechanism(),
                       PerformanceOptions(chunk_size=chunk_size, bank_memory_gb=0), path)


def arrays(bank):
    """The bank's state as whole arrays [N, ...]."""
    return [np.concatenate(list(bank.blocks(index))) for index in range(bank.num_arrays)]


def make_rounds(count, seed=0, size=3):
    rng = np.random.default_rng(seed)
    return [(rng.uniform(size=(size, 3, 8, 8, 1)).astype(np.float32),
             rng.normal(0, 0.3, (2 * size, 8, 8, 1)).astype(np.float32)) for _ in range(count)]


def from_images(rounds, warp=0.0):
    """Rounds of these fakes and noise, with warps of that strength."""
    return [TeacherRound(fakes, noise, make_maps(number, len(fakes), warp)) for number, (fakes, noise)
            in enumerate(rounds)]


def make_maps(seed, size, warp):
    """Maps [2, size, 2, 3] for real and fake images, or None."""
    moves = warp * np.random.default_rng(seed).standard_normal((2 * size, NUM_MOVES)).astype(np.float32)
    return matrices(tf.constant(moves), (8, 8, 1)).numpy().reshape(2, size, 2, 3) if warp else None
