"""An audit of training itself: canaries in partitions, and attacks on what a real run releases and on its generator.

Each of many teachers gets a canary in place of its first record, or keeps the record, by a fair coin of its own. A run
is trained on these records, and is otherwise like any other run. The attacker knows all records, the canaries and all
that is public, and has to guess the coins from the released sums, or from the generator alone.

The attacker knows everything but the coins, which makes two more checks possible. Teachers must share nothing: each
one's final state must be, bit by bit, its state where all canaries are in, or where all are out, whatever the others
have. And a canary must not move the votes by more than the sensitivity that is charged for.
"""

import dataclasses
import functools
import os
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import tensorflow as tf
from scipy import linalg

from datalens_tf import _validate, rng
from datalens_tf.auditing.findings import Finding
from datalens_tf.auditing.releases import best_one_run_bound
from datalens_tf.config import VotingConfig
from datalens_tf.data.datasets import Dataset, to_unit
from datalens_tf.data.partition import teacher_indices
from datalens_tf.errors import CheckpointError
from datalens_tf.mechanisms.base import Mechanism
from datalens_tf.mechanisms.noise import NoiseSource
from datalens_tf.options import PerformanceOptions
from datalens_tf.training.callbacks import Callback
from datalens_tf.training.student import Student, draw_latents
from datalens_tf.training.teachers import TeacherBank, build_teachers
from datalens_tf.training.trainer import WARMUP_CALL, Trainer, teacher_rounds

PRIVACY_NOTE = (
    "Computed from private records: no epsilon covers what the training with canaries found, and the audited run is "
    "one more release of the same records, with a budget of its own.")
AUDIT = "canaries"
_SAMPLES_PER_CLASS = 500


@dataclasses.dataclass(frozen=True)
class Canaries:
    """Canaries of an audit, and where they are.

    Attributes:
      positions: int64 [M], indices of the records that are replaced, one of each of the teachers 0 to M - 1.
      coins: bool [M], which of them are replaced.
      images, labels: uint8 or float32 [M, H, W, C] and int64 [M].
    """

    positions: np.ndarray
    coins: np.ndarray
    images: np.ndarray
    labels: np.ndarray

    @classmethod
    def make(cls, dataset: Dataset, partitions: np.ndarray, count: int, seed: int) -> "Canaries":
        """Pictures of random black and white pixels, unlike any record, with random labels."""
        stream = rng.stream(seed, "canaries")
        shape, white = (count, *dataset.image_shape), 255 if dataset.images.dtype == np.uint8 else 1.0
        return cls(partitions[:count, 0], stream.random(count) < 0.5,
                   (white * (stream.random(shape) < 0.5)).astype(dataset.images.dtype),
                   stream.integers(0, dataset.num_classes, count))

    def insert(self, dataset: Dataset, which: np.ndarray) -> Dataset:
        """The data set with the canaries that `which`, a bool [M], selects."""
        images, labels = np.array(dataset.images), np.array(dataset.labels)
        images[self.positions[which]], labels[self.positions[which]] = self.images[which], self.labels[which]
        return dataclasses.replace(dataset, images=images, labels=labels)


def audit_training(config: VotingConfig, dataset: Dataset, run_dir: str | os.PathLike, *, num_canaries: int,
                   confidence: float = 0.95, seed: int = 0, options: PerformanceOptions = PerformanceOptions(),
                   callbacks: Sequence[Callback] = (), mechanism: Mechanism | None = None,
                   noise: NoiseSource | None = None, student: Callable[[VotingConfig], Student] = Student,
                   progress: Callable[[Sequence], Any] = iter) -> dict[str, Any]:
    """Trains a run with canaries and attacks it; returns a JSON-able dictionary.

    Takes three times as long as the run: afterwards all teachers are trained again from the same released sums, once
    with all canaries and once with none.

    Args:
      config: resolved settings (image_shape and num_classes known).
      dataset: the records.
      run_dir: a new folder for the audited run. It is a run on altered records: do not use its generator.
      num_canaries: M <= num_teachers.
      confidence: of the larger of the two bounds.
      seed: of canaries and coins.
      options, callbacks, mechanism, noise, student: as for `Trainer`.
      progress: wraps the steps of the second training.

    Returns:
      `epsilon`, what the run claims; `releases` and `generator`, bounds as from `best_one_run_bound`;
      `num_teachers_disturbed`, which must be 0; `largest_change` and `sensitivity`, in votes per step; `privacy_note`.

    Raises:
      CheckpointError: the folder holds a finished run, but not its teachers.
      InvalidArgumentError: a value outside its domain.
      DataLensError: see `Trainer`.
    """
    _validate.integer("num_canaries", num_canaries, at_least=2)
    _validate.require(num_canaries <= config.num_teachers, "num_canaries", num_canaries,
                      f"<= {config.num_teachers}, the number of teachers")
    partitions = teacher_indices(dataset, config.num_teachers, config.partition_seed)
    canaries = Canaries.make(dataset, partitions, num_canaries, seed)
    # The teachers are kept in a file, where they can be found after the run.
    trainer = Trainer(config, canaries.insert(dataset, canaries.coins), run_dir, callbacks=callbacks,
                      options=dataclasses.replace(options, bank_memory_gb=0.0, distribute=None),
                      mechanism=mechanism, noise=noise, student=student)
    generator = trainer.run()
    always = np.ones(num_canaries, bool)
    with_all, without = (
        TeacherBank(config, data.images, data.labels, partitions, trainer.mechanism, options)
        for data in (canaries.insert(dataset, always), canaries.insert(dataset, ~always)))
    scores, largest_change = _attack_releases(trainer, student(config), with_all, without, num_canaries, progress)
    data = canaries.insert(dataset, canaries.coins)
    trained = TeacherBank(config, data.images, data.labels, partitions, trainer.mechanism,
                          dataclasses.replace(options, bank_memory_gb=0.0), trainer.folder.bank)
    if trained.completed != without.iterations:  # Untrained teachers would pass for disturbed ones.
        raise CheckpointError(f"{trainer.folder.bank} does not hold the teachers that the run ended with: delete "
                              f"{trainer.folder.path}, and audit again.")
    each = 1 - (1 - confidence) / 2
    return {
        "epsilon": trainer.ledger.spent(), "num_steps": len(trainer.releases), "num_teachers": config.num_teachers,
        "noise_stddev": config.noise_stddev, "confidence": confidence,
        "releases": best_one_run_bound(scores, canaries.coins, config.delta, each),
        "generator": best_one_run_bound(_attack_generator(config, generator, canaries, dataset), canaries.coins,
                                        config.delta, each),
        "num_teachers_disturbed": _num_disturbed(trained, with_all, without, canaries.coins),
        "largest_change": largest_change, "sensitivity": trainer.mechanism.l2_sensitivity(config.batch_size),
        "privacy_note": PRIVACY_NOTE,
    }


def findings(trained: dict[str, Any], confidence: float) -> list[Finding]:
    """Findings of `audit_training`; each bound has this confidence."""
    count = trained["releases"]["num_canaries"]

    def guesses(name, what):
        bound = trained[name]
        return Finding(
            audit=AUDIT, quantity="epsilon", lower_bound=bound["epsilon"], claimed=trained["epsilon"],
            confidence=confidence, details=bound, private=True,
            measured=f"{bound['num_correct']} of {bound['num_guesses']} guesses from {what} were right, of {count} "
                     f"canaries in a run of {trained['num_steps']} steps")

    return [
        guesses("releases", "released sums"), guesses("generator", "synthetic images"),
        Finding(audit="teachers", quantity="teachers that others' records changed", claimed=0.0, private=True,
                lower_bound=float(trained["num_teachers_disturbed"]),
                measured=f"The states of {trained['num_teachers']} teachers, bit by bit"),
        Finding(audit="neighbours", quantity="share of the sensitivity", claimed=1.0, private=True,
                lower_bound=trained["largest_change"] / trained["sensitivity"],
                details={name: trained[name] for name in ("largest_change", "sensitivity")},
                measured=f"What a step sums of votes, with a canary and without, for {count} canaries")]


def _attack_releases(trainer: Trainer, student: Student, with_all: TeacherBank, without: TeacherBank,
                     num_canaries: int, progress: Callable[[Sequence], Any]) -> tuple[np.ndarray, float]:
    """Scores of the coins, float64 [M], and the largest l2 change of votes in a step by one canary.

    Released sum = votes without canaries + sum_i coin_i * (what canary i changes) + noise. The coins are 1/2 +- 1/2
    before anything is released. The best linear guess of the coins solves a ridge regression.
    """
    config, releases = trainer.config, trainer.releases
    banks = with_all, without
    own = [_OwnVotes(config, trainer.mechanism, num_canaries) for _ in banks]
    gram, moment, largest = np.zeros((num_canaries, num_canaries)), np.zeros(num_canaries), 0.0
    for done in range(0, config.warmup_teacher_steps, WARMUP_CALL):
        rounds = teacher_rounds(config, without, student, min(WARMUP_CALL, config.warmup_teacher_steps - done))
        for bank in banks:
            bank.advance(rounds)
    for step in progress(range(1, len(releases) + 1)):
        rounds = teacher_rounds(config, without, student, config.teacher_steps)
        latents, labels = student.inputs(step)
        images, noisy = student.images(latents, labels), releases.get(step)
        base = [bank.advance(rounds, images, labels, step)[0] for bank in banks][1]
        votes = [votes_of(bank, images, labels, step) for votes_of, bank in zip(own, banks)]
        change = (votes[0] - votes[1]).reshape(num_canaries, -1)
        largest = max(largest, float(np.linalg.norm(change, axis=1).max()))
        gram += change @ change.T
        moment += change @ (noisy - _validate.known("votes", base, "to be what the teachers voted")).ravel()
        student.train(latents, labels, trainer.mechanism.direction(noisy, step))  # As `Trainer` does.
    # sigma^2 per vote against the coins' variance 1/4; the small number is for a noise of 0.
    ridge = 4 * config.noise_scale**2 * _noise_is_on(trainer) + 1e-6
    centred = moment - gram.sum(axis=1) / 2
    return linalg.solve(gram + ridge * np.eye(num_canaries), centred, assume_a="pos"), largest


def _noise_is_on(trainer: Trainer) -> bool:
    """Whether the attacker, who knows the code, has to expect noise."""
    return bool(np.any(trainer.noise.draw((1, 8), trainer.config.noise_scale, 0)))


class _OwnVotes:
    """Votes of each of a bank's first M teachers, which the bank itself never shows."""

    def __init__(self, config: VotingConfig, mechanism: Mechanism, count: int):
        self._config, self._count = config, count
        self._models = functools.lru_cache(lambda size: build_teachers(config, size))
        self._votes = tf.function(lambda size, images, one_hot, seeds, step: mechanism.votes(
            self._models(size), images, one_hot, seeds, step), autograph=False)

    def __call__(self, bank: TeacherBank, images: tf.Tensor, labels: tf.Tensor, step: int) -> np.ndarray:
        """float32 [M, m, d]."""
        votes, first = [], 0
        for weights in zip(*(bank.blocks(index) for index in range(bank.num_arrays // 3))):
            if first >= self._count:
                break
            model, size = self._models(len(weights[0])), len(weights[0])
            for variable, weight in zip(model.trainable_variables, weights):
                variable.assign(tf.cast(weight, variable.dtype))
            seeds = tf.constant([rng.tensorflow_seed(self._config.seed, "votes", step, first + i) for i in range(size)])
            one_hot = tf.one_hot(labels, self._config.num_classes)
            votes.append(self._votes(size, images, one_hot, seeds, tf.constant(step)).numpy())
            first += size
        return np.concatenate(votes)[:self._count]


def _num_disturbed(trained: TeacherBank, with_all: TeacherBank, without: TeacherBank, coins: np.ndarray) -> int:
    """Number of teachers whose final state is not, bit by bit, that of a teacher with the same records."""
    expected_in = np.zeros(trained.num_teachers, bool)
    expected_in[:len(coins)] = coins
    disturbed = np.zeros(trained.num_teachers, bool)
    for index in range(trained.num_arrays):
        first = 0
        for blocks in zip(*(bank.blocks(index) for bank in (trained, with_all, without))):
            mine, yes, no = (block.reshape(len(block), -1).view(np.uint8) for block in blocks)
            span = slice(first, first + len(mine))
            expected = np.where(expected_in[span, None], yes, no)
            disturbed[span] |= np.any(mine != expected, axis=1)
            first += len(mine)
    return int(disturbed.sum())


def _attack_generator(config: VotingConfig, student: Student, canaries: Canaries, dataset: Dataset) -> np.ndarray:
    """Scores from synthetic images alone: is the nearest one nearer to the canary than to the record?"""
    from sklearn.neighbors import NearestNeighbors

    stream, classes = rng.stream(config.seed, "audit samples"), config.data.num_classes
    latents = draw_latents(config, stream, classes * _SAMPLES_PER_CLASS)
    labels = np.repeat(np.arange(classes), _SAMPLES_PER_CLASS)
    samples = student.released().predict([latents, labels], batch_size=1000, verbose=0).reshape(len(labels), -1)

    def nearness(images, labels_of):
        images, found = to_unit(images).reshape(len(images), -1), np.zeros(len(images))
        for label in np.unique(labels_of):
            search = NearestNeighbors(n_neighbors=1, algorithm="brute").fit(samples[labels == label])
            found[labels_of == label] = -search.kneighbors(images[labels_of == label])[0][:, 0]
        return (found - found.mean()) / max(found.std(), 1e-12)

    scores = nearness(canaries.images, canaries.labels) - nearness(
        np.asarray(dataset.images[canaries.positions]), np.asarray(dataset.labels[canaries.positions]))
    return scores - np.median(scores)
