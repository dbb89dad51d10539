"""A disk that is full at any write: one clear line, nothing lost, and --resume goes on."""

import errno
import os

import numpy as np
import pytest

from datalens_tf.accounting.ledger import PrivacyLedger
from datalens_tf.errors import DataLensError
from datalens_tf.mechanisms.noise import InsecureSeededNoise, NoiseSource
from datalens_tf.options import PerformanceOptions
from datalens_tf.training.checkpoint import ReleaseStore
from datalens_tf.training.trainer import Trainer
from tests.training import tiny
from tests.training.tiny import released_bytes

CONFIG = tiny.CONFIG


class CountedNoise(NoiseSource):
    """Knows which charges' noise was drawn; draws that of other charges where it is told to."""

    is_secure, description, caveat = False, "test", "test"

    def __init__(self, charges=None):
        self._noise, self._charges, self.drawn = InsecureSeededNoise(CONFIG.insecure_noise_seed), charges, []

    def draw(self, shape, stddev, index):
        self.drawn.append(index)
        return self._noise.draw(shape, stddev, index if self._charges is None else self._charges[index])


def train(folder, noise):
    return released_bytes(Trainer(CONFIG, tiny.dataset(), folder, noise=noise,
                                  options=PerformanceOptions(checkpoint_minutes=0)).run())


class FullDisk:
    """Lets so many writes through, then the disk is full."""

    def __init__(self, monkeypatch, name, left):
        self.left, self._call = left, getattr(os, name)
        monkeypatch.setattr(os, name, self)

    def __call__(self, *args, **kwargs):
        self.left -= 1
        if self.left < 0:
            raise OSError(errno.ENOSPC, "No space left on device")
        return self._call(*args, **kwargs)


@pytest.mark.slow
def test_a_disk_that_is_full_at_any_write_loses_nothing(tmp_path):
    """After every failure the run is continued; some failures come before anything could be charged, others between a
    charge and its noise, or the noise and the stored sum."""
    stream, noise, messages, generator = np.random.default_rng(0), CountedNoise(), [], None
    while generator is None:
        with pytest.MonkeyPatch.context() as patch:
            # Later and later, so that each attempt gets further, and at another place.
            name = ("fsync", "replace", "fdatasync")[len(messages) % 3]
            FullDisk(patch, name, int(stream.integers(0, 3 + 8 * len(messages))))
            try:
                generator = train(tmp_path / "run", noise)
            except DataLensError as error:
                messages.append(str(error))
    assert len(messages) > 3
    assert all("No space left on device" in message and "\n" not in message for message in messages)
    ledger, store = PrivacyLedger.open(tmp_path / "run" / "ledger.jsonl"), ReleaseStore(
        tmp_path / "run" / "private" / "releases")
    assert len(noise.drawn) == len(set(noise.drawn)) <= len(ledger.charges)
    used = [store.charge(step) for step in range(1, len(store) + 1)]
    assert len(used) == CONFIG.num_steps and set(used) <= set(noise.drawn)
    assert generator == train(tmp_path / "whole", CountedNoise(used))
