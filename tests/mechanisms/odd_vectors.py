"""Vectors that clipping must not trip over."""

import numpy as np

C, D = 0.7, 5  # The norm that they are clipped to, and how many numbers they have.


def vectors(random, count):
    """Short, long, zero, huge, infinite, NaN, tiny, and of length C to the last bit or so."""
    found = (random.normal(size=(count, D)) * 10.0 ** random.integers(-3, 4, (count, 1))).astype(np.float32)
    odd = [np.zeros(D), np.full(D, 3e38), np.full(D, np.inf), [np.nan, 0, 0, 0, 0], [C, 0, 0, 0, 0],
           [-C, 0, 0, 0, 0], np.full(D, 1e-38), np.full(D, C / np.sqrt(D) * (1 + 1e-7))]
    for index in range(count):
        if random.random() < 0.5:
            found[index] = odd[random.integers(len(odd))]
    return found
