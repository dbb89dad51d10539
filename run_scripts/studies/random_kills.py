"""Kills small runs at random moments, hundreds of times, and checks what must survive.

    python run_scripts/studies/random_kills.py [--method datalens] [--kills 200]

Half of the kills come from outside at a random time, half from inside at a random place: before or after a charge, a
draw of noise, a stored sum, a training step, a snapshot, any synchronisation or renaming of a file. After each one the
ledger must hold every earlier charge. At the end no charge may be lost, no charge's noise drawn twice, and no noise
drawn before its charge was on the disk. The trained result must be, bit by bit, that of an uninterrupted run with the
same charges burnt.

`datalens` and `classify` train one long run that is killed again and again. The others release a few sums: a killed run
is resumed, and killed again, until it ends, or is refused before anything more is charged.
"""

import argparse
import dataclasses
import functools
import os
import pathlib
import signal
import sys
import tempfile
import time
import traceback
import warnings

import numpy as np

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")

from datalens_tf.accounting.ledger import PrivacyLedger
from datalens_tf.classification.classifier import DpSgd, PrivateClassifier
from datalens_tf.classification.classifier_config import ClassifierConfig
from datalens_tf.data.datasets import as_dataset
from datalens_tf.errors import BudgetExhaustedError
from datalens_tf.mechanisms.correct_counts import CorrectCounts
from datalens_tf.mechanisms.gaussian_sum import GaussianSum
from datalens_tf.mechanisms.mean_embedding import MeanEmbedding
from datalens_tf.mechanisms.noise import InsecureSeededNoise
from datalens_tf.mechanisms.second_moment import SecondMoment
from datalens_tf.mechanisms.topagg import TopAgg
from datalens_tf.methods.datalens import DataLensConfig
from datalens_tf.methods.embedding import EmbeddingStudent, ReleasingSynthesizer
from datalens_tf.methods.registry import config_classes, synthesizer
from datalens_tf.options import PerformanceOptions
from datalens_tf.training.checkpoint import ReleaseStore, Saver
from datalens_tf.training.loop import Loop
from datalens_tf.training.releases import Releases
from datalens_tf.training.student import Student
from datalens_tf.training.trainer import Trainer

_SMALL = {"latent_dim": 4, "generator_filters": 4, "generator_units": 8, "insecure_noise_seed": 3}
_FILES = ((PrivacyLedger, "spend"), (os, "fsync"), (os, "replace"))
_FITS = ((MeanEmbedding, "privatize"), (SecondMoment, "privatize"), (ReleaseStore, "store"),
         (EmbeddingStudent, "train"), (Loop, "_save"))
CONFIGS = {
    "datalens": DataLensConfig(
        dataset="tiny", image_shape=(8, 8, 1), num_classes=3, num_teachers=4, batch_size=3, top_k=5, noise_stddev=40.0,
        vote_threshold=0.5, teacher_batch_size=3, warmup_teacher_steps=2, teacher_steps=1, discriminator_filters=4,
        discriminator_units=8, epsilon=1e5, **_SMALL),
    "classify": ClassifierConfig(epsilon=1e5, batch_size=6, noise_multiplier=1.0, accountant="rdp", top_k_norm=0.8,
                                 clip_norm=1.0, insecure_noise_seed=3),
}
_SUMS = {"candidates": "moments:0,both:1.5:0.15", "embedding_charges": 4, "mean_charges": 2, "covariance_charges": 3,
         "selection_charges": 3, "selection_images": 60, "selection_epochs": 1, "learned_share": 0.5, "num_factors": 3,
         "num_features": 64, "batch_size": 12, "fit_steps": 8, "epsilon": 2.0, **_SMALL}
# A method without learned features may have features of an autoencoder.
_OTHER_FEATURES = {"bandwidths": "2", "autoencoder_dim": 5}
for method, settings in config_classes().items():
    if issubclass(synthesizer(method), ReleasingSynthesizer):
        known = {field.name for field in dataclasses.fields(settings)}
        given = _SUMS | ({} if "learned_share" in known else _OTHER_FEATURES)
        CONFIGS[method] = settings(**{name: value for name, value in given.items() if name in known})
PLACES = {
    "datalens": (*_FILES, (TopAgg, "privatize"), (ReleaseStore, "store"), (Student, "train"), (Saver, "save")),
    "classify": (*_FILES, (GaussianSum, "privatize"), (DpSgd, "train"), (Loop, "_save")),
}
_PLACES_OF_SUMS = (*_FILES, *_FITS, (CorrectCounts, "privatize"))
OPTIONS = PerformanceOptions(checkpoint_minutes=0.005)
REFUSED = 3


def dataset():
    stream = np.random.default_rng(0)
    return as_dataset(stream.integers(0, 256, (20, 8, 8, 1)).astype(np.uint8), np.arange(20) % 3, 3, name="tiny")


def train(method, folder, num_steps):
    """Trains in the folder, or continues there; returns the trained result."""
    config = CONFIGS[method]
    if method == "datalens":
        student = Trainer(config.replace(num_steps=num_steps), dataset(), folder, options=OPTIONS).run()
        return b"".join(v.numpy().tobytes() for v in student.released().variables)
    if method == "classify":
        import tensorflow as tf

        layers, data = tf.keras.layers, dataset()
        start = tf.keras.initializers.GlorotUniform(0)
        model = tf.keras.Sequential([layers.Input((8, 8, 1)), layers.Flatten(),
                                     layers.Dense(3, kernel_initializer=start)])
        made = PrivateClassifier(config.replace(num_steps=num_steps), run_dir=folder, model=model,
                                 checkpoint_minutes=OPTIONS.checkpoint_minutes).fit_dataset(data)
        return made.predict(data.images).tobytes()
    run = synthesizer(method)(config, run_dir=folder, options=OPTIONS).fit_dataset(dataset())
    return run.sample(30, seed=0)[0].tobytes()


def in_a_child(folder, method, num_steps, prepare):
    """Trains in a process of its own, after `prepare`; returns the id of that process."""
    child = os.fork()
    if child:
        return child
    status = 1
    try:
        warnings.simplefilter("ignore")
        folder.mkdir(exist_ok=True)
        prepare()
        trained = train(method, folder, num_steps)
        (folder / "trained.bin").write_bytes(trained)
        status = 0
    except BudgetExhaustedError as error:
        (folder / "refusal").write_text(str(error))
        status = REFUSED
    except BaseException:  # noqa: BLE001 (the status tells the parent)
        traceback.print_exc()
    finally:
        os._exit(status)


def watched(folder):
    """Writes down every draw of noise before it is made, and whether its charge was in the ledger by then."""
    def draw(noise, shape, stddev, index):
        charged = lines(folder) - 1  # Without the header.
        with open(folder / "draws", "a", encoding="utf-8") as file:
            file.write(f"{index} {int(index < charged)}\n")
            file.flush()
            os.fdatasync(file.fileno())
        return original(noise, shape, stddev, index)

    original, InsecureSeededNoise.draw = InsecureSeededNoise.draw, draw


def dying(place, countdown):
    """Kills this process at a place, the `countdown`th time: before the call, or after it."""
    (owner, name), after = place
    call, left = getattr(owner, name), [countdown]

    def call_and_die(*args, **kwargs):
        left[0] -= 1
        if left[0] == 0 and not after:
            os.kill(os.getpid(), signal.SIGKILL)
        result = call(*args, **kwargs)
        if left[0] == 0:
            os.kill(os.getpid(), signal.SIGKILL)
        return result

    setattr(owner, name, call_and_die)


def mapped(used):
    """Draws the noise of the charges that another run did not burn."""
    original = InsecureSeededNoise.draw
    InsecureSeededNoise.draw = lambda noise, shape, stddev, index: original(noise, shape, stddev, used[index])


def burning(burnt):
    """Repeats the charges that another run burnt, at the same places, before anything is decided by what is left."""
    def unit(releases):
        while len(releases.ledger.charges) in burnt:
            charge = burnt[len(releases.ledger.charges)]
            releases.ledger.spend(charge.event, step=charge.step)
        return original(releases)

    original, Releases._unit = Releases._unit, unit


def lines(folder):
    return content(folder).count(b"\n")


def content(folder):
    path = folder / "ledger.jsonl"
    return path.read_bytes() if path.exists() else b""


def draws(folder):
    """The indices of charges whose noise was drawn; checks that each was drawn once, after its charge."""
    path = folder / "draws"
    found = [tuple(map(int, line.split())) for line in path.read_text().splitlines()] if path.exists() else []
    indices = [index for index, _ in found]
    assert len(set(indices)) == len(indices), "noise of a charge was drawn twice"
    assert all(charged for _, charged in found), "noise was drawn before its charge was in the ledger"
    assert len(indices) <= max(lines(folder) - 1, 0), "more was drawn than charged"
    return indices


class Killer:
    """Starts runs in a folder and kills them.

    Attributes:
      kills: number of kills so far.
      inside: number of those that were at a place in the code.
    """

    def __init__(self, method, num_steps, random):
        self._method, self._num_steps, self._random = method, num_steps, random
        self.kills = self.inside = 0

    def run(self, folder, wait=None):
        """Starts a run, or continues it; kills it unless `wait` is None. Returns its exit status, or None if killed.

        Args:
          folder: of the run.
          wait: called with what the ledger has; returns a function of the child's id that waits for the moment to kill.
        """
        before, place = content(folder), None
        if wait is not None and self._random.random() < 0.5:
            places = PLACES.get(self._method, _PLACES_OF_SUMS)
            place = places[self._random.integers(len(places))], bool(self._random.integers(2))
        countdown = int(self._random.integers(1, 5))

        def prepare():
            watched(folder)
            if place is not None:
                dying(place, countdown)

        child = in_a_child(folder, self._method, self._num_steps, prepare)
        done, status = 0, 0
        if wait is not None and place is None:
            deadline = wait(before)
            while not done and not deadline():
                done, status = os.waitpid(child, os.WNOHANG)
                time.sleep(0.0002)
            if not done:
                os.kill(child, signal.SIGKILL)
        if not done:
            _, status = os.waitpid(child, 0)
        # Whole lines are never changed; a half-written one may be rewritten.
        assert content(folder).startswith(before[:before.rfind(b"\n") + 1]), "a charge was lost"
        draws(folder)
        if os.WIFEXITED(status):
            code = os.WEXITSTATUS(status)
            assert code in (0, REFUSED), "training failed instead of being killed"
            if code == REFUSED:
                assert content(folder) == before, "the budget was spent by a run that was refused"
                assert (folder / "refusal").read_text().count("\n") == 0, "the refusal is not one line"
            return code
        self.kills += 1
        self.inside += place is not None
        return None


def whole(folder, method, num_steps, prepare):
    """The result of an uninterrupted run."""
    _, status = os.waitpid(in_a_child(folder, method, num_steps, prepare), 0)
    assert status == 0, "the uninterrupted run failed"
    return (folder / "trained.bin").read_bytes()


def long_run(method, kills, random, scratch):
    """One run, killed again and again."""
    # Enough steps for a run to last until it was killed that often: a classifier's steps are quick.
    num_steps, folder = 3 * kills if method == "datalens" else max(200, 8 * kills), scratch / "killed"
    killer = Killer(method, num_steps, random)

    def wait(before):
        wanted, pause, reached = before.count(b"\n") + int(random.integers(0, 3)), random.uniform(0, 0.05), []

        def deadline():
            if not reached and lines(folder) >= wanted:
                reached.append(time.monotonic())
            return bool(reached) and time.monotonic() - reached[0] >= pause

        return deadline

    while killer.kills < kills and killer.run(folder, wait) is None:
        if killer.kills % 20 == 0:
            print(f"{killer.kills} kills, {lines(folder) - 1} charges", flush=True)
    assert killer.run(folder) == 0
    charges, drawn = PrivacyLedger.read(folder / "ledger.jsonl").charges, draws(folder)
    if method == "datalens":
        store = ReleaseStore(folder / "private" / "releases")
        used = [store.charge(step) for step in range(1, len(store) + 1)]
    else:  # A step that was lost was charged again: its last charge counts.
        used = list({charge.step: charge.index for charge in charges}.values())
    assert len(set(used)) == len(used) == num_steps, "a charge paid for two steps"
    assert set(used) <= set(drawn)
    same = whole(scratch / "whole", method, num_steps, lambda: mapped(used)) == (folder / "trained.bin").read_bytes()
    assert same, "what was trained is not that of an uninterrupted run"
    print(f"{method}: {killer.kills} kills ({killer.inside} from inside), {len(charges)} charges for {num_steps} "
          f"steps, {len(charges) - num_steps} burnt, {len(drawn)} draws, none twice, none before its charge; what was "
          "trained is that of an uninterrupted run, bit by bit")


def short_runs(method, kills, random, scratch):
    """Runs of a few releases, each killed and resumed until it ends or is refused."""
    killer, references, found = Killer(method, None, random), {}, []
    duration, totals = 2.0, np.zeros(3, int)
    while killer.kills < kills:
        folder, status = scratch / f"run{len(found)}", None

        def wait(_, longest=duration):
            end = time.monotonic() + random.uniform(0, longest)
            return lambda: time.monotonic() >= end

        while status is None:
            begun = time.monotonic()
            status = killer.run(folder, wait if killer.kills < kills and random.random() < 0.8 else None)
        duration = max(duration, time.monotonic() - begun)
        ledger, drawn = PrivacyLedger.read(folder / "ledger.jsonl"), draws(folder)
        stored = ReleaseStore(folder / "private" / "releases").charges()
        assert stored <= set(drawn) and ledger.spent() <= ledger.epsilon_budget
        burnt = {charge.index: charge for charge in ledger.charges if charge.index not in stored}
        totals += len(ledger.charges), len(burnt), len(drawn)
        noisier = len({charge.unit for charge in ledger.charges}) > 1
        found.append("refused" if status == REFUSED else "with more noise" if noisier else "as planned")
        if status == 0:
            key = tuple((charge.index, charge.event) for charge in burnt.values())
            if key not in references:
                references[key] = whole(scratch / f"whole{len(found)}", method, None,
                                        functools.partial(burning, burnt))
            same = references[key] == (folder / "trained.bin").read_bytes()
            assert same, "what was trained is not that of an uninterrupted run with the same charges burnt"
        if len(found) % 10 == 0:
            print(f"{killer.kills} kills, {len(found)} runs", flush=True)
    ends = ", ".join(f"{found.count(end)} {end}" for end in ("as planned", "with more noise", "refused"))
    print(f"{method}: {killer.kills} kills ({killer.inside} from inside) of {len(found)} runs, which ended: {ends}; "
          f"{totals[0]} lines of charges, {totals[1]} burnt, {totals[2]} draws, none twice, none before its charge; "
          f"every run that was not refused is that of an uninterrupted run with the same charges burnt, bit by bit "
          f"({len(references)} different ones)")


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--method", choices=tuple(CONFIGS), default="datalens")
    parser.add_argument("--kills", type=int, default=200)
    parser.add_argument("--seed", type=int, default=None)
    args = parser.parse_args()
    seed = args.seed if args.seed is not None else int.from_bytes(os.urandom(4), "big")
    print(f"seed {seed}", flush=True)
    study = long_run if args.method in ("datalens", "classify") else short_runs
    with tempfile.TemporaryDirectory() as scratch:
        study(args.method, args.kills, np.random.default_rng(seed), pathlib.Path(scratch))


if __name__ == "__main__":
    sys.exit(main())
