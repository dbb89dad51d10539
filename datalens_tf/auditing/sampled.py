"""Audits of training by noisy sums over sampled records (DP-SGD): canaries in one run, and neighbouring inputs.

A canary is a record whose gradient the attacker chose. As far as the guarantee knows, a record may have any gradient.
Each of many canaries is among the records, or not, by a fair coin of its own; or, where replaced records are protected,
it is replaced by its opposite, or not. In a real run, canaries are sampled,
clipped, summed, hidden by noise and paid for as records are. Only where a record's gradient would be computed does a
canary bring its own, which is ten times as long as clipping allows, on coordinates that no other canary has. The
attacker knows all honest records, and even which of them were sampled. The guarantee of the canaries stays, because
each record is sampled by a draw of its own. The rest of a step's sum is canaries and noise, and a coordinate of this
rest shows one canary alone. The best guess of a canary's coin is the likelihood ratio of what was seen in all steps.
"""

import dataclasses
import os
from collections.abc import Callable, Iterable, Sequence
from typing import Any

import numpy as np

from datalens_tf import _validate, rng
from datalens_tf.accounting.ledger import PrivacyLedger
from datalens_tf.auditing.findings import Finding
from datalens_tf.auditing.neighbours import Asked, Pair, priced_by_presence
from datalens_tf.auditing.releases import best_one_run_bound
from datalens_tf.config import BoundedConfig, RunConfig
from datalens_tf.data.datasets import Dataset, to_unit, usable_only, with_data
from datalens_tf.errors import CheckpointError
from datalens_tf.mechanisms.noise import NoiseSource
from datalens_tf.training.sampled import SampledSums

AUDIT = "canaries"
_TOO_LONG = 10.0  # times the length that clipping allows
_SPREAD = 20  # coordinates of a canary where only the largest ones of a gradient are kept
_LEAST_NOISE = 1e-3  # that the attacker reckons with, in lengths of a canary


class Canaries:
    """Canaries of a run, and what was seen of them.

    Args:
      learner: the canaries are among its records.
      count: how many are wanted; fewer where the vectors have too few coordinates.
      noise_stddev: standard deviation of the noise in the released sum, in units of the mechanism's grid.
      stream: decides coins, signs and coordinates.

    Attributes:
      coins: bool [M], which are among the records.
      log_ratios: float64 [M], of what was seen with the canary and without it, or with its opposite.
      num_steps: steps that were seen.
    """

    def __init__(self, learner: SampledSums, count: int, noise_stddev: float, stream: np.random.Generator):
        dimension, mechanism = learner.num_parameters, learner.mechanism
        spread = 1 if getattr(mechanism, "top_k_norm", 1.0) == 1 else _SPREAD
        count = min(count, dimension // spread)
        _validate.require(count >= 2, "num_canaries", count, f">= 2, with {spread} of {dimension} coordinates each")
        self.coins = stream.random(count) < 0.5
        self._places = stream.permutation(dimension)[:count * spread].reshape(count, spread)
        signs = stream.choice(np.array([-1.0, 1.0]), self._places.shape)
        raw = np.zeros((1, dimension), np.float32)
        self._values = np.zeros(self._places.shape)
        for values, places, sign in zip(self._values, self._places, signs):
            raw[0, places] = _TOO_LONG * mechanism.clip_norm / spread**0.5 * sign
            values[:] = learner.bounded(raw)[0, places]
            raw[0, places] = 0
        self._replaced = mechanism.adjacency == "replace-one"
        self._squares = np.maximum(np.square(self._values).sum(1), 1.0)
        self._probability, self._dimension = mechanism.sampling_probability, dimension
        self._variances = np.maximum(noise_stddev / self._squares**0.5, _LEAST_NOISE)**2
        self.log_ratios, self.num_steps = np.zeros(count), 0

    def __len__(self) -> int:
        return len(self.coins)

    def sum_of(self, chosen: np.ndarray) -> np.ndarray:
        """Sum of the chosen canaries that are among the records, and of the opposites of others, float64 [d]."""
        total, here, others = np.zeros(self._dimension), chosen[self.coins[chosen]], chosen[~self.coins[chosen]]
        np.add.at(total, self._places[here], self._values[here])
        if self._replaced:
            np.add.at(total, self._places[others], -self._values[others])
        return total

    def see(self, rest: np.ndarray) -> None:
        """Notes what a step released, less the honest records' sum, in units of the grid: float64 [d]."""
        shares = (rest[self._places] * self._values).sum(1) / self._squares  # 1, or 0, or -1, and noise
        self.log_ratios += self._against_absence(shares)
        if self._replaced:
            self.log_ratios -= self._against_absence(-shares)
        self.num_steps += 1

    def _against_absence(self, shares: np.ndarray) -> np.ndarray:
        """Log-likelihood ratios of what was seen, in a canary's lengths, with it in the data and without: [M]."""
        with np.errstate(divide="ignore"):
            ratios: np.ndarray = np.logaddexp(
                np.log1p(-self._probability), np.log(self._probability) + (shares - 0.5) / self._variances)
        return ratios


def audit_canaries(kind: Any, config: RunConfig, dataset: Dataset, run_dir: str | os.PathLike, *, num_canaries: int,
                   confidence: float, seed: int = 0, noise: NoiseSource | None = None, **options: Any) -> Finding:
    """Trains a run with canaries among the records, and bounds epsilon by how many coins are guessed right.

    Args:
      kind: of the run: a synthesizer, or `PrivateClassifier`, with a `learner_class`.
      config: its settings.
      dataset: the honest records.
      run_dir: a new folder for the run, which is one more release of the records.
      num_canaries: largest number of canaries.
      confidence: of the bound.
      seed: of canaries and coins.
      noise: source of noise instead of the settings' own.
      options: for `kind`, callbacks for example.

    Raises:
      CheckpointError: the folder holds a part of a run, in which canaries were not watched.
    """
    honest = usable_only(dataset)
    # The sampling probability q is that of the honest records: n and the noise must not follow from coins.
    config = with_data(config, dataset).resolved(config.known_records(len(dataset)))
    if isinstance(config, BoundedConfig):  # What follows from the bound is known by now; canaries come on top of it.
        config = config.replace(records_at_most=None)
    placeholders = dataclasses.replace(
        honest, images=np.concatenate([honest.images, np.zeros_like(honest.images[:1]).repeat(num_canaries, 0)]),
        labels=np.concatenate([honest.labels, np.zeros(num_canaries, honest.labels.dtype)]), users=None, slots=None)
    watched: list[Canaries] = []
    trained: Any = kind.learner_class()

    class AuditedLearner(trained):
        def __init__(self, *args: Any):
            super().__init__(*args)
            if noise is not None:
                self.noise = noise
            self._grid = float(self.mechanism.privatize(np.ones(1), Asked(0.0), 0)[0])
            stddev = float(self.mechanism.privatize(np.zeros(1), Asked(1.0), 0)[0]) / self._grid
            if not np.any(self.noise.draw((8,), stddev, 0)):  # The attacker knows the code.
                stddev = 0.0
            watched.append(Canaries(self, num_canaries, stddev, rng.stream(seed, "canaries")))

        def bounded_sum(self, chosen: np.ndarray, step: int) -> np.ndarray:
            canaries = chosen[chosen >= len(honest)] - len(honest)
            self._honest_sum = super().bounded_sum(chosen[chosen < len(honest)], step)
            return self._honest_sum + watched[0].sum_of(canaries[canaries < len(watched[0])])

        def noisy_sum(self, step: int, charge: int) -> np.ndarray:
            released = super().noisy_sum(step, charge)
            watched[0].see(released / self._grid - self._honest_sum)
            return released

    class Audited(kind):
        @classmethod
        def learner_class(cls) -> Any:
            return AuditedLearner

    run = Audited(config, run_dir=run_dir, **options)
    run.fit_dataset(placeholders)
    ledger, canaries = PrivacyLedger.read(run.folder.ledger), watched[0]
    if canaries.num_steps != ledger.num_charges:
        raise CheckpointError(f"{run.folder.path} holds a part of a run, in which canaries were not watched: delete "
                              "it, and audit again.")
    bound = best_one_run_bound(canaries.log_ratios, canaries.coins, config.delta, confidence)
    return Finding(
        audit=AUDIT, quantity="epsilon", lower_bound=bound["epsilon"], claimed=ledger.spent(), confidence=confidence,
        measured=f"{bound['num_correct']} of {bound['num_guesses']} guesses were right, of {len(canaries)} canaries in "
                 f"one run of {canaries.num_steps} steps", details=bound | {"num_steps": canaries.num_steps},
        private=True)


def hostile_pairs(make: Callable[[Dataset], SampledSums], dataset: Dataset, num_records: int = 40) -> list[Pair]:
    """Sums of a first step on some records, with one more and without it: black, white, random, or all at once odd.

    Where the price is that of a replaced record, it is replaced by its opposite, and not left out.

    Args:
      make: learner of a data set, with weights and secret randomness that are the same for each.
      dataset: records of which the first are taken, and labels.
      num_records: how many.
    """
    count = min(num_records, len(dataset))
    first, stream = to_unit(dataset.images[:count]), rng.stream(0, "hostile records")
    white = 255 if dataset.images.dtype == np.uint8 else 1.0
    odd = [np.zeros_like(first[0]), np.ones_like(first[0]), stream.random(first[0].shape) < 0.5, first[0]]

    def learner(images: Sequence[np.ndarray], labels: np.ndarray) -> SampledSums:
        return make(dataclasses.replace(
            dataset, images=(np.stack(images) * white).astype(dataset.images.dtype), labels=labels, usable=None,
            users=None, slots=None))

    def total(images: Iterable[np.ndarray], labels: Sequence[int]) -> tuple[SampledSums, np.ndarray]:
        images = list(images)
        made = learner(images, np.array(labels, dataset.labels.dtype))
        return made, made.bounded_sum(np.arange(len(images)), 1)

    labels = list(dataset.labels[:count])
    pairs: list[Pair] = []
    for image in odd:
        label = len(pairs) % dataset.num_classes
        made, with_it = total([*first, image], [*labels, label])
        _, without = (total(first, labels) if priced_by_presence(made.mechanism)
                      else total([*first, 1.0 - image], [*labels, (label + 1) % dataset.num_classes]))
        pairs.append(Pair(made.mechanism, made.mechanism.dp_event(), with_it, without))
    return pairs
