"""Noise that somebody switched off: a control that audits must catch."""

import numpy as np

from datalens_tf.mechanisms.noise import NoiseSource


class NoNoise(NoiseSource):
    """Zeros."""

    is_secure, description, caveat = False, "none", "none"

    def draw(self, shape, stddev, index):
        return np.zeros(shape)
