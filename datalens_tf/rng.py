"""Reproducible random streams: weights, latents, labels, batches, stochastic quantisation.

The privacy noise is not here. It is drawn from the operating system (`mechanisms.noise`) and has no seed.
"""

from __future__ import annotations

import hashlib
import operator

from etils import epy

with epy.lazy_imports():
    import numpy as np
    from numpy import typing as npt

def stream(seed: int, *path: str | int) -> np.random.Generator:
    """A numpy generator that depends on the seed and on every element of the path, and on nothing else."""
    # numpy 2 writes its integers differently from Python.
    named = [part if isinstance(part, str) else operator.index(part) for part in (seed, *path)]
    digest = hashlib.sha256(repr(tuple(named)).encode()).digest()
    return np.random.Generator(np.random.Philox(key=np.frombuffer(digest[:16], np.uint64)))


def tensorflow_seed(seed: int, *path: str | int) -> npt.NDArray[np.int32]:
    """A seed for TensorFlow's stateless random operations: int32 [2], a function of seed and path only."""
    return stream(seed, *path).integers(0, 2**31 - 1, size=2, dtype=np.int32)
