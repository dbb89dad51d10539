"""Kills a small training run at random moments, hundreds of times, and checks what must survive.

    python run_scripts/studies/random_kills.py [--kills 200]

Half of the kills come from outside at a random time, half from inside at a random place: before or after a charge, a
draw of noise, a stored sum, the student's step, a snapshot, any synchronisation or renaming of a file. After each one
the ledger must hold every earlier charge. At the end no charge may be lost, no charge's noise drawn twice, none drawn
before its charge was on the disk; and the generator must be, bit by bit, that of an uninterrupted run with the same
charges burnt.
"""

import argparse
import os
import pathlib
import signal
import sys
import tempfile
import time

import numpy as np

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")

from datalens_tf.config import DataLensConfig, PerformanceOptions
from datalens_tf.data.datasets import as_dataset
from datalens_tf.mechanisms.noise import InsecureSeededNoise, NoiseSource
from datalens_tf.mechanisms.topagg import TopAgg
from datalens_tf.privacy.ledger import PrivacyLedger
from datalens_tf.training.checkpoint import ReleaseStore, Saver
from datalens_tf.training.student import Student
from datalens_tf.training.trainer import Trainer

CONFIG = DataLensConfig(
    dataset="tiny", image_shape=(8, 8, 1), num_classes=3, num_teachers=4, batch_size=3, top_k=5, noise_stddev=40.0,
    vote_threshold=0.5, latent_dim=4, teacher_batch_size=3, warmup_teacher_steps=2, teacher_steps=1,
    discriminator_filters=4, discriminator_units=8, generator_filters=4, generator_units=8, epsilon=1e5,
    insecure_noise_seed=3)
PLACES = ((PrivacyLedger, "spend"), (TopAgg, "privatize"), (ReleaseStore, "store"), (Student, "train"), (Saver, "save"),
          (os, "fsync"), (os, "replace"))


class WatchedNoise(NoiseSource):
    """Writes down every draw before it is made, and that its charge was in the ledger by then."""

    is_secure, description, caveat = False, "test", "test"

    def __init__(self, folder: pathlib.Path):
        self._noise, self._folder = InsecureSeededNoise(CONFIG.insecure_noise_seed), folder

    def draw(self, shape, stddev, index):
        charged = lines(self._folder) - 1  # Less the header.
        with open(self._folder / "draws", "a", encoding="utf-8") as file:
            file.write(f"{index} {int(index < charged)}\n")
            file.flush()
            os.fsync(file.fileno())
        return self._noise.draw(shape, stddev, index)


class MappedNoise(NoiseSource):
    """The noise of the charges that another run did not burn."""

    is_secure, description, caveat = False, "test", "test"

    def __init__(self, charges):
        self._noise, self._charges = InsecureSeededNoise(CONFIG.insecure_noise_seed), charges

    def draw(self, shape, stddev, index):
        return self._noise.draw(shape, stddev, self._charges[index])


def dataset():
    stream = np.random.default_rng(0)
    return as_dataset(stream.integers(0, 256, (20, 8, 8, 1)).astype(np.uint8), np.arange(20) % 3, 3, name="tiny")


def lines(folder):
    path = folder / "ledger.jsonl"
    return path.read_bytes().count(b"\n") if path.exists() else 0


def train(folder, num_steps, noise, place=None, countdown=0):
    """In a process of its own; `place` is where it kills itself, the `countdown`th time, before or after the call."""
    child = os.fork()
    if child:
        return child
    status = 1
    try:
        if place is not None:
            owner, name = PLACES[place // 2]
            call, left = getattr(owner, name), [countdown]

            def dying(*args, **kwargs):
                left[0] -= 1
                if left[0] == 0 and place % 2 == 0:
                    os.kill(os.getpid(), signal.SIGKILL)
                result = call(*args, **kwargs)
                if left[0] == 0:
                    os.kill(os.getpid(), signal.SIGKILL)
                return result

            setattr(owner, name, dying)
        student = Trainer(CONFIG.replace(num_steps=num_steps), dataset(), folder, noise=noise,
                          options=PerformanceOptions(checkpoint_minutes=0.005)).run()
        weights = b"".join(v.numpy().tobytes() for v in student.released().variables)
        (folder / "generator.bin").write_bytes(weights)
        status = 0
    finally:
        os._exit(status)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--kills", type=int, default=200)
    parser.add_argument("--seed", type=int, default=None)
    args = parser.parse_args()
    seed = args.seed if args.seed is not None else int.from_bytes(os.urandom(4), "big")
    random, num_steps = np.random.default_rng(seed), 3 * args.kills
    print(f"seed {seed}, {num_steps} steps", flush=True)
    with tempfile.TemporaryDirectory() as scratch:
        killed, whole = pathlib.Path(scratch, "killed"), pathlib.Path(scratch, "whole")
        killed.mkdir()
        before, kills, inside = b"", 0, 0
        while kills < args.kills:
            from_inside = random.random() < 0.5
            child = train(killed, num_steps, WatchedNoise(killed),
                          int(random.integers(2 * len(PLACES))) if from_inside else None, int(random.integers(1, 5)))
            done, start = 0, lines(killed)
            if not from_inside:
                wanted, pause = start + int(random.integers(0, 3)), random.uniform(0, 0.05)
                while lines(killed) < wanted and not done:
                    done, status = os.waitpid(child, os.WNOHANG)
                    time.sleep(0.0002)
                time.sleep(pause)
                os.kill(child, signal.SIGKILL) if not done else None
            if not done:
                _, status = os.waitpid(child, 0)
            if os.WIFEXITED(status):
                assert os.WEXITSTATUS(status) == 0, "training failed instead of being killed"
                break  # It reached its end.
            kills, inside = kills + 1, inside + from_inside
            after = (killed / "ledger.jsonl").read_bytes() if (killed / "ledger.jsonl").exists() else b""
            # Whole lines are never changed; a half-written one may be rewritten.
            assert after.startswith(before[:before.rfind(b"\n") + 1]), "a charge was lost"
            before = after
            if kills % 20 == 0:
                print(f"{kills} kills, {lines(killed) - 1} charges", flush=True)
        _, status = os.waitpid(train(killed, num_steps, WatchedNoise(killed)), 0)
        assert status == 0
        charges = PrivacyLedger.read(killed / "ledger.jsonl").charges
        store = ReleaseStore(killed / "private" / "releases")
        used = [store.charge(step) for step in range(1, len(store) + 1)]
        draws = [tuple(map(int, line.split())) for line in (killed / "draws").read_text().splitlines()]
        indices = [index for index, _ in draws]
        assert len(store) == num_steps and len(set(used)) == num_steps, "a charge paid for two releases"
        assert len(set(indices)) == len(indices), "noise of a charge was drawn twice"
        assert all(charged for _, charged in draws), "noise was drawn before its charge was in the ledger"
        assert len(indices) <= len(charges) and set(used) <= set(indices)
        _, status = os.waitpid(train_whole(whole, num_steps, used), 0)
        assert status == 0
        same = (whole / "generator.bin").read_bytes() == (killed / "generator.bin").read_bytes()
        assert same, "the generator is not that of an uninterrupted run"
        print(f"{kills} kills ({inside} from inside), {len(charges)} charges for {num_steps} steps, "
              f"{len(charges) - num_steps} burnt, {len(indices)} draws, none twice, none before its charge; the "
              "generator is that of an uninterrupted run, bit by bit")


def train_whole(folder, num_steps, used):
    """Uninterrupted, with the noise of the same charges."""
    folder.mkdir()
    return train(folder, num_steps, MappedNoise(used))


if __name__ == "__main__":
    sys.exit(main())
