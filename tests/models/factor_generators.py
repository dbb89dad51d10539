"""A small generator that draws from Gaussians."""

import numpy as np
import tensorflow as tf

from datalens_tf.models.factor_generator import FactorGenerator

SHAPE = (8, 8, 1)


def generator(num_factors=3, weights=((1.0,), (1.0,))):
    """Of two classes, whose clusters are the further from grey the later they are."""
    random, clusters = np.random.default_rng(0), len(weights[0])
    means = 0.2 * np.arange(clusters)[:, None] + random.uniform(0.4, 0.6, (2, 1, 64))
    return FactorGenerator(SHAPE, means, random.normal(0, 0.03, (2, clusters, num_factors, 5)),
                           random.normal(0, 0.3, (5, 64)), np.array(weights))


def latents(made, count, seed=1):
    return tf.constant(np.random.default_rng(seed).standard_normal((count, made.latent_dim)), tf.float32)
