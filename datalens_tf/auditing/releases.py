"""Empirical lower bounds on epsilon, from attacks that know everything the threat model allows.

An attack that does better than (epsilon, delta)-differential privacy permits proves that a claim is false. An attack
that does not do better proves nothing. Bounds hold with the stated confidence, whatever the attack's scores look like.
"""

import math
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
from scipy import stats

from datalens_tf import _validate, rng
from datalens_tf.accounting import accountants
from datalens_tf.config import VotingConfig
from datalens_tf.mechanisms.base import Mechanism
from datalens_tf.mechanisms.noise import NoiseSource, noise_source


def many_runs_bound(scores_with: Sequence[float] | np.ndarray, scores_without: Sequence[float] | np.ndarray,
                    delta: float, confidence: float = 0.95) -> float:
    """Lower bound on epsilon from the scores of many independent runs on two neighbouring data sets.

    The first half of the scores chooses a threshold. The second half measures how often each kind exceeds it, in both
    directions (Clopper-Pearson intervals).

    Args:
      scores_with, scores_without: at least four each; larger ones should speak for the first data set.
      delta: of the claim, in [0, 1).
      confidence: in (0, 1), of the bound.

    Returns:
      The bound, >= 0: with this confidence, the algorithm is not (epsilon, delta)-private for any smaller epsilon.

    Raises:
      InvalidArgumentError: too few scores, or one that is no number.
    """
    _validate.between("delta", delta, 0, 1, open_high=True)
    _validate.between("confidence", confidence, 0, 1, open_low=True, open_high=True)
    halves = []
    for name, given in (("scores_with", scores_with), ("scores_without", scores_without)):
        scores = np.asarray(given, np.float64)
        _validate.require(scores.ndim == 1 and len(scores) >= 4, f"len({name})", np.size(scores), ">= 4")
        _validate.require(bool(np.all(np.isfinite(scores))), name, "...", "to be finite numbers")
        halves.append(np.array_split(scores, 2))
    _validate.require(len(scores_with) == len(scores_without), "len(scores_without)", len(scores_without),
                      f"to be {len(scores_with)}, as many as the others")
    (with_a, with_b), (without_a, without_b) = halves  # With an odd number, the first half has one more.
    thresholds = np.unique(np.concatenate([with_a, without_a]))
    alpha = (1 - confidence) / 4  # Two directions, each from one upper and one lower interval.

    def bounds(with_scores, without_scores, thresholds):
        """A bound for each threshold: the better one of the two directions."""
        size = len(with_scores)
        above = [(scores[:, None] > thresholds).sum(axis=0) for scores in (with_scores, without_scores)]
        best = np.zeros(len(thresholds))
        for more, less in ((above[0], above[1]), (size - above[1], size - above[0])):
            low = np.where(more > 0, stats.beta.ppf(alpha, np.maximum(more, 1), size - more + 1), 0.0)
            high = np.where(less < size, stats.beta.ppf(1 - alpha, less + 1, np.maximum(size - less, 1)), 1.0)
            best = np.maximum(best, np.log(np.maximum(low - delta, 1e-300) / high))
        return best

    # Chosen on scores that are not used again, so the choice needs no correction.
    chosen = thresholds[np.argmax(bounds(with_a, without_a, thresholds))]
    return float(bounds(with_b, without_b, np.array([chosen]))[0])


def one_run_bound(num_correct: int, num_guesses: int, num_canaries: int, delta: float, confidence: float = 0.95
                  ) -> float:
    """Lower bound on epsilon from one run with many canaries (Steinke, Nasr and Jagielski 2023, theorem 5.2).

    Each canary was set by a fair coin of its own; the attack guessed some of the coins.

    Args:
      num_correct, num_guesses, num_canaries: right guesses <= guesses <= canaries.
      delta: of the claim, in [0, 1).
      confidence: in (0, 1).

    Returns:
      The largest epsilon >= 0 (to 1e-4, from below) that the guesses reject at this confidence.
    """
    _validate.integer("num_canaries", num_canaries, at_least=1)
    _validate.integer("num_guesses", num_guesses, at_least=0)
    _validate.integer("num_correct", num_correct, at_least=0)
    _validate.require(num_correct <= num_guesses <= num_canaries, "num_correct, num_guesses",
                      (num_correct, num_guesses), f"in order and <= num_canaries={num_canaries}")
    _validate.between("delta", delta, 0, 1, open_high=True)
    _validate.between("confidence", confidence, 0, 1, open_low=True, open_high=True)

    def p_value(epsilon):
        q = 1 / (1 + math.exp(-epsilon))
        at_least = stats.binom.sf(num_correct - 1 - np.arange(num_canaries + 1), num_guesses, q)  # P[X >= v - i]
        slack = np.max(2 * (at_least[1:] - at_least[0]) / np.arange(1, num_canaries + 1))
        return at_least[0] + slack * num_canaries * delta

    alpha = 1 - confidence
    if p_value(0.0) > alpha:
        return 0.0
    low, high = 0.0, 1.0
    while p_value(high) <= alpha:
        low, high = high, 2 * high
        if high > 100:
            return low
    while high - low > 1e-4:
        middle = (low + high) / 2
        low, high = (middle, high) if p_value(middle) <= alpha else (low, middle)
    return low


def best_one_run_bound(scores: np.ndarray, coins: np.ndarray, delta: float, confidence: float = 0.95) -> dict[str, Any]:
    """The best `one_run_bound` of several numbers of guesses, by the sign of the scores of largest magnitude.

    The numbers of guesses that are tried are few and fixed, and each has its part of the confidence.

    Args:
      scores: float [M]; positive ones speak for a coin of 1, negative ones for 0, and larger magnitudes speak louder.
      coins: bool [M].
      delta, confidence: as for `one_run_bound`.

    Returns:
      `epsilon`, and `num_canaries`, `num_guesses` and `num_correct` that gave it.
    """
    scores, count = np.asarray(scores, np.float64), len(scores)
    _validate.require(count >= 2, "len(scores)", count, ">= 2")
    right = ((scores > 0) == coins)[np.argsort(-np.abs(scores), kind="stable")]
    tried = sorted({max(1, count * percent // 100) for percent in (2, 10, 30, 60, 100)})
    found = []
    for guesses in tried:
        correct = int(right[:guesses].sum())
        found.append({"epsilon": one_run_bound(correct, guesses, count, delta, 1 - (1 - confidence) / len(tried)),
                      "num_canaries": count, "num_guesses": guesses, "num_correct": correct})
    return max(found, key=lambda bound: bound["epsilon"])


def attack_releases(mechanism: Mechanism, noise: NoiseSource, *, batch_size: int, num_steps: int, top_k: int,
                    trials: int, progress: Callable[[Sequence], Any] = iter) -> tuple[np.ndarray, np.ndarray]:
    """Scores of many runs on two neighbouring data sets, in the worst case: one teacher's votes all change sign.

    A record may change its teacher's votes in any way within their bound (Lemma 1), and the attacker may know all other
    votes, which are therefore zero here. In one world the attacked teacher votes +1 on its k coordinates of each image
    at every step, in the other -1. The score is the sum of the released values on these coordinates, which is the best
    test that there is for Gaussian noise. The releases go through `Mechanism.privatize`, as in training.

    Args:
      mechanism, noise: as in training.
      batch_size, num_steps: of the run.
      top_k: coordinates that a teacher votes on, per image.
      trials: runs in each world.
      progress: wraps the trials, to show them.

    Returns:
      Scores with +1 and with -1, float64 [trials] each.
    """
    votes = np.ones((batch_size, top_k))
    scores: tuple[list[float], list[float]] = ([], [])
    for _ in progress(range(trials)):
        for world, sign in zip(scores, (1.0, -1.0)):
            world.append(sum(float(mechanism.privatize(sign * votes, noise, step).sum()) for step in range(num_steps)))
    return np.array(scores[0]), np.array(scores[1])


def attack_one_run(mechanism: Mechanism, noise: NoiseSource, *, batch_size: int, num_steps: int, top_k: int,
                   dimension: int, num_canaries: int, seed: int = 0, progress: Callable[[Sequence], Any] = iter
                   ) -> tuple[np.ndarray, np.ndarray]:
    """Scores of one run in which many teachers hold a canary each, and the coins that the canaries were set by.

    Canary i makes its teacher vote a pattern of its own, or the opposite pattern, by a fair coin. A pattern has k
    random coordinates with random signs per image and step. The score is the correlation of what is released with the
    pattern.

    Args:
      mechanism, noise, batch_size, num_steps, top_k, progress: as for `attack_releases`.
      dimension: numbers per image.
      num_canaries: at most the mechanism's number of teachers.
      seed: of patterns and coins.

    Returns:
      float64 [num_canaries] and bool [num_canaries].
    """
    stream = rng.stream(seed, "audit")
    coins = stream.random(num_canaries) < 0.5
    scores = np.zeros(num_canaries)
    for step in progress(range(num_steps)):
        vote_sum = np.zeros((batch_size, dimension))
        patterns = []
        for image in range(batch_size):
            places = np.argpartition(stream.random((num_canaries, dimension), np.float32), top_k - 1, axis=1)[:, :top_k]
            signs = np.where(stream.random((num_canaries, top_k)) < 0.5, 1.0, -1.0)
            np.add.at(vote_sum[image], places, signs * np.where(coins, 1.0, -1.0)[:, None])
            patterns.append((places, signs))
        released = mechanism.privatize(vote_sum, noise, step)
        for image, (places, signs) in enumerate(patterns):
            scores += (released[image][places] * signs).sum(axis=1)
    return scores, coins


def audit_releases(config: VotingConfig, *, trials: int, num_canaries: int, confidence: float = 0.95,
                   progress: Callable[[Sequence], Any] = iter) -> dict[str, Any]:
    """Both attacks on the releases of a run with these settings, beside what it claims; a JSON-able dictionary.

    They audit what every run passes through: the sensitivity of votes, the noise, and accounting. Teachers are not
    trained: the attacker chooses votes as bad as a record could make them. The record-swap tests check that teachers
    share nothing, and that a record reaches one teacher.

    Args:
      config: settings, whose num_steps may be None for all steps that the budget pays for.
      trials: runs in each of two worlds.
      num_canaries: of the attack on one run, <= num_teachers.
      confidence: of both bounds together.
      progress: wraps the trials, to show them.

    Raises:
      InvalidArgumentError: a value outside its domain.
    """
    _validate.integer("trials", trials, at_least=8)
    _validate.integer("num_canaries", num_canaries, at_least=2)
    _validate.require(num_canaries <= config.num_teachers, "num_canaries", num_canaries,
                      f"<= {config.num_teachers}, the number of teachers")
    _validate.between("confidence", confidence, 0, 1, open_low=True, open_high=True)
    mechanism, noise = config.mechanism(), noise_source(config)
    event = mechanism.dp_event(config.batch_size)
    steps = accountants.max_steps(event, config.budget, config.delta, config.accountant)
    steps = min(steps, config.num_steps or steps)
    _validate.require(steps >= 1, "epsilon", config.epsilon, "to pay for at least one step")
    run = {"batch_size": config.batch_size, "num_steps": steps, "top_k": mechanism.top_k, "progress": progress}
    each = 1 - (1 - confidence) / 2
    many = many_runs_bound(*attack_releases(mechanism, noise, trials=trials, **run), config.delta, each)
    one = best_one_run_bound(*attack_one_run(mechanism, noise, dimension=4 * mechanism.top_k, num_canaries=num_canaries,
                                             **run), config.delta, each)
    claimed = accountants.epsilon(event, steps, config.delta, config.accountant)
    return {
        "claimed": {"epsilon": claimed, "epsilon_budget": config.epsilon, "delta": config.delta,
                    "accountant": config.accountant, "num_steps": steps, "noise_stddev": config.noise_stddev,
                    "top_k": mechanism.top_k, "batch_size": config.batch_size, "num_teachers": config.num_teachers},
        "many_runs": {"epsilon": many, "trials": 2 * trials}, "one_run": one, "noise": noise.description,
    }
