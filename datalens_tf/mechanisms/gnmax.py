"""PATE's aggregators of label votes: LNMax, GNMax, Confident-GNMax and Interactive-GNMax.

Teachers name the class of each of Q public queries. Their votes are counted, [Q, Y]; a mechanism releases noisy numbers
(`privatize`), from which the labels follow (`answers`, post-processing). All queries of a call are one release with one
price, `dp_event`, which is a function of the settings and Q alone. The smaller, data-dependent prices of the papers are
themselves private: see `privacy.pate_rdp`.
"""

from __future__ import annotations

import abc
import dataclasses
import math
from typing import Any, ClassVar

import dp_accounting
import numpy as np
from numpy.typing import NDArray

from datalens_tf import _validate
from datalens_tf.mechanisms.base import add_noise, gaussian_event
from datalens_tf.mechanisms.laplace_noise import RoundedLaplaceNoise, laplace_scale
from datalens_tf.mechanisms.noise import NoiseSource, RoundedGaussianNoise

NO_ANSWER = -1


def count_votes(answers: NDArray[Any], num_classes: int, weights: NDArray[Any] | None = None) -> NDArray[np.int64]:
    """Sums the votes of T teachers.

    Args:
      answers: integers [T, Q]; a value outside [0, Y) is no vote.
      num_classes: Y.
      weights: positive integers [T], the votes that each teacher has; None for one each.

    Returns:
      int64 [Q, Y].

    Raises:
      InvalidArgumentError: weights that are not positive integers.
    """
    answers = np.asarray(answers)
    weights = np.ones(len(answers), np.int64) if weights is None else np.asarray(weights)
    whole = weights.shape == answers.shape[:1] and weights.dtype.kind in "iu" and np.all(weights >= 1)
    _validate.require(bool(whole), "weights", weights.tolist(), f"to be {len(answers)} positive integers")
    one_hot = answers[:, :, None] == np.arange(num_classes)
    counts: NDArray[np.int64] = np.einsum("t,tqy->qy", weights.astype(np.int64), one_hot.astype(np.int64))
    return counts


@dataclasses.dataclass(frozen=True, kw_only=True)
class LabelVotes(abc.ABC):
    """Base class of the four mechanisms.

    Formal guarantee: replacing one record changes the answers of the teachers that were trained on it. These teachers
    have `record_votes` votes in all: 1, unless records or teachers are given more weight on purpose
    (`classification.budgets`). Per query, these votes leave some classes and go to others, whatever teachers answer.

    Attributes:
      num_votes: votes M of all teachers together.
      num_classes: number of classes Y.
      noise_stddev: standard deviation of the noise on the votes for a class, in votes; 0 switches the noise off, and
        then `dp_event` is a non-private event.
      record_votes: votes that depend on one record.

    Raises:
      InvalidArgumentError: a value outside its domain.
    """

    num_votes: int
    num_classes: int
    noise_stddev: float
    record_votes: int = 1

    noise_class: ClassVar[type[NoiseSource]] = RoundedGaussianNoise  # The exact source of the noise that is priced.

    def __post_init__(self) -> None:
        _validate.integer("num_votes", self.num_votes, at_least=1)
        _validate.integer("num_classes", self.num_classes, at_least=2)
        _validate.real("noise_stddev", self.noise_stddev)
        _validate.require(self.noise_stddev >= 0, "noise_stddev", self.noise_stddev, ">= 0")
        _validate.integer("record_votes", self.record_votes, at_least=1)
        _validate.require(self.record_votes <= self.num_votes, "record_votes", self.record_votes,
                          f"<= num_votes={self.num_votes}")

    @abc.abstractmethod
    def dp_event(self, num_queries: int) -> dp_accounting.DpEvent:
        """The cost of the answers to `num_queries` queries; it contains the sensitivity to replacing a record."""

    def privatize(self, counts: NDArray[np.float64], noise: NoiseSource, index: int,
                  predictions: NDArray[Any] | None = None) -> NDArray[np.float64]:
        """Adds the noise: the one private step.

        Args:
          counts: votes [Q, Y], from `count_votes`.
          noise: where the noise comes from.
          index: index of the ledger charge that pays for this release; charge first, then call.
          predictions: the student's class probabilities [Q, Y], public; only Interactive-GNMax looks at them.

        Returns:
          float64 [Q, ...]; may be stored and published.

        Raises:
          InvalidArgumentError: counts that no votes can give, or noise of another kind than the priced one.
        """
        del predictions
        return self._noisy(self._checked(counts), self.noise_stddev, noise, index)

    def answers(self, noisy: NDArray[np.float64], predictions: NDArray[Any] | None = None) -> NDArray[np.int64]:
        """Labels int64 [Q] of what `privatize` returned, `NO_ANSWER` (-1) for none. Free in privacy."""
        del predictions
        labels: NDArray[np.int64] = noisy.argmax(1)
        return labels

    def _checked(self, counts: NDArray[np.float64]) -> NDArray[np.float64]:
        """The counts as float64, if votes can give them."""
        counts = np.asarray(counts, np.float64)
        _validate.require(counts.ndim == 2 and counts.shape[1] == self.num_classes, "counts.shape", counts.shape,
                          f"to be (queries, {self.num_classes})")
        possible = np.all((counts >= 0) & (counts == np.rint(counts))) and np.all(counts.sum(1) <= self.num_votes)
        # The values are private: the message must not print them.
        _validate.require(bool(possible), "num_votes", self.num_votes, "to bound integer vote sums; it does not")
        return counts

    def _noisy(self, values: NDArray[np.float64], stddev: float, noise: NoiseSource, index: int) -> NDArray[np.float64]:
        _validate.require(not noise.is_secure or isinstance(noise, self.noise_class), "noise", type(noise).__name__,
                          f"to be {self.noise_class.__name__}, which is what is priced")
        return add_noise(values, stddev, noise, index)


@dataclasses.dataclass(frozen=True, kw_only=True)
class GNMax(LabelVotes):
    """The class with the most votes after Gaussian noise (Papernot et al. 2018, section 4.1).

    Formal guarantee: a record's r votes move the Y counts of a query by at most sqrt(2) r in l2 norm. The worst case is
    that all go from one class to another. Q queries jointly are one Gaussian mechanism with noise multiplier
    sigma / (r sqrt(2 Q)).
    """

    def l2_sensitivity(self, num_queries: int) -> float:
        """Largest l2 change of all counts, in votes: r sqrt(2 Q)."""
        _validate.integer("num_queries", num_queries, at_least=1)
        return self.record_votes * math.sqrt(2 * num_queries)

    def dp_event(self, num_queries: int) -> dp_accounting.DpEvent:
        """One Gaussian mechanism for all queries."""
        return gaussian_event(self.noise_stddev, self.l2_sensitivity(num_queries))


@dataclasses.dataclass(frozen=True, kw_only=True)
class LNMax(LabelVotes):
    """The class with the most votes after Laplace noise (Papernot et al. 2017).

    Formal guarantee: a record's r votes take at most r from some classes and give at most r to others. Either part is a
    Laplace mechanism with l1 sensitivity r, so Q queries cost 2 Q Laplace mechanisms with noise multiplier b / r.

    `noise_stddev` is sqrt(2) times the scale b of the noise (the paper's 1 / gamma).
    """

    noise_class = RoundedLaplaceNoise

    def dp_event(self, num_queries: int) -> dp_accounting.DpEvent:
        """2 Q Laplace mechanisms."""
        _validate.integer("num_queries", num_queries, at_least=1)
        if self.noise_stddev == 0:
            return dp_accounting.NonPrivateDpEvent()
        return dp_accounting.SelfComposedDpEvent(
            dp_accounting.LaplaceDpEvent(laplace_scale(self.noise_stddev) / self.record_votes), 2 * num_queries)


@dataclasses.dataclass(frozen=True, kw_only=True)
class ConfidentGNMax(GNMax):
    """GNMax for those queries that pass a noisy test of agreement (Papernot et al. 2018, Algorithm 1).

    Per query, the largest number of votes is released with noise sigma_1. The first `max_answers` queries where this
    noisy number reaches the threshold get GNMax's answer with fresh noise sigma_2; the others get none.

    Formal guarantee: the tested number moves by at most r, and the counts of an answer by at most sqrt(2) r. Earlier
    releases decide which queries are answered, so tests and answers compose (adaptively) to one Gaussian mechanism
    with

        mu^2 = r^2 (Q / sigma_1^2 + 2 A / sigma_2^2).

    All A = `max_answers` answers are charged, however many are given: the number given depends on the records, and so
    would a price that counts it. (The PrivacyVerse report prints one sigma for both.)

    Attributes:
      threshold_noise_ratio: sigma_1 / sigma_2.
      vote_threshold: T / M, in [0, 1]: fraction of all votes that the noisy largest number must reach.
      max_answers: A, per release.
    """

    threshold_noise_ratio: float
    vote_threshold: float
    max_answers: int

    def __post_init__(self) -> None:
        super().__post_init__()
        _validate.positive("threshold_noise_ratio", self.threshold_noise_ratio)
        _validate.between("vote_threshold", self.vote_threshold, 0, 1)
        _validate.integer("max_answers", self.max_answers, at_least=1)

    def l2_sensitivity(self, num_queries: int) -> float:
        """Largest l2 change of all that is released, if all noise is sigma_2: r sqrt(Q (sigma_2/sigma_1)^2 + 2A)."""
        _validate.integer("num_queries", num_queries, at_least=1)
        return self.record_votes * math.sqrt(num_queries / self.threshold_noise_ratio**2 + 2 * self.max_answers)

    def privatize(self, counts: NDArray[np.float64], noise: NoiseSource, index: int,
                  predictions: NDArray[Any] | None = None) -> NDArray[np.float64]:
        """Tested numbers and counts [Q, 1 + Y], NaN where no counts are released; see `LabelVotes.privatize`."""
        counts = self._checked(counts)
        tested = counts - self._expected(len(counts), predictions)
        noisy = np.full((len(counts), 1 + self.num_classes), np.nan)
        noisy[:, 0] = self._noisy(tested.max(1), self.threshold_noise_ratio * self.noise_stddev, noise, index)
        chosen = np.flatnonzero(self._passed(noisy))[:self.max_answers]
        noisy[chosen, 1:] = self._noisy(counts[chosen], self.noise_stddev, noise, index)
        return noisy

    def answers(self, noisy: NDArray[np.float64], predictions: NDArray[Any] | None = None) -> NDArray[np.int64]:
        """Answers to the queries; see `LabelVotes.answers`."""
        answered = ~np.isnan(noisy[:, 1])
        return np.where(answered, np.argmax(noisy[:, 1:], axis=1), NO_ANSWER)

    def _passed(self, noisy: NDArray[np.float64]) -> NDArray[np.bool_]:
        return noisy[:, 0] >= self.vote_threshold * self.num_votes

    def _expected(self, num_queries: int, predictions: NDArray[Any] | None) -> NDArray[np.float64] | float:
        """Expected votes, which the test subtracts: public integers [Q, Y], or 0."""
        del num_queries, predictions
        return 0.0


@dataclasses.dataclass(frozen=True, kw_only=True)
class InteractiveGNMax(ConfidentGNMax):
    """Confident-GNMax that asks teachers where they disagree with the student (Papernot et al. 2018, Algorithm 2).

    The test looks at the largest surplus of votes over M p: the student's class probabilities times the number of all
    votes, rounded to integers. Where the test fails and the student is confident, the student's own prediction is the
    label. Without predictions, this mechanism is Confident-GNMax.

    Formal guarantee: as for `ConfidentGNMax`. The student learned from earlier releases and public queries only, so
    M p is a public number that is subtracted from the votes: the largest difference moves by at most r.

    Attributes:
      min_confidence: gamma in [0, 1]: the student's probability above which its own prediction is reinforced.
    """

    min_confidence: float

    def __post_init__(self) -> None:
        super().__post_init__()
        _validate.between("min_confidence", self.min_confidence, 0, 1)

    def answers(self, noisy: NDArray[np.float64], predictions: NDArray[Any] | None = None) -> NDArray[np.int64]:
        """Answers to the queries; see `LabelVotes.answers`."""
        labels = super().answers(noisy, predictions)
        if predictions is None:
            return labels
        predictions = np.asarray(predictions)
        confident = (predictions.max(1) > self.min_confidence) & ~self._passed(noisy)
        return np.where(confident, predictions.argmax(1), labels)

    def _expected(self, num_queries: int, predictions: NDArray[Any] | None) -> NDArray[np.float64] | float:
        if predictions is None:
            return 0.0
        predictions = np.asarray(predictions, np.float64)
        _validate.require(predictions.shape == (num_queries, self.num_classes), "predictions.shape", predictions.shape,
                          f"to be ({num_queries}, {self.num_classes})")
        _validate.require(bool(np.all((predictions >= 0) & (predictions <= 1))), "predictions", "an array",
                          "to be probabilities")
        # The noise is exact for integers only.
        expected: NDArray[np.float64] = np.rint(self.num_votes * predictions)
        return expected
