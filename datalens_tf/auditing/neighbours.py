"""A search for two neighbouring inputs whose sums are further apart than the noise is charged for.

One number counts, whatever a mechanism's units are: the mu of a pair of neighbouring data sets. It is the distance of
their sums, divided by the standard deviation of the noise that the mechanism asks its source for. A release is charged
as one with noise multiplier z, for a mu of 1 / z. So the share of the charge is z times the distance in standard
deviations. A share above 1 refutes the sensitivity, the noise or the price. Only the choice of inputs is random here,
so a finding holds for certain.

Where records are sampled, the price of a replaced one rests on what the presence of each may change. Pairs then differ
in a record that is there or not, under both relations.
"""

import functools
import math
from collections.abc import Sequence
from typing import Any, NamedTuple

import dp_accounting
import numpy as np
from numpy.typing import NDArray
from scipy.spatial import distance

from datalens_tf import _validate, rng
from datalens_tf.accounting import accountants
from datalens_tf.auditing.findings import Finding
from datalens_tf.errors import InvalidArgumentError
from datalens_tf.mechanisms import D2PFed, FetchSgd, Mechanism, NoiseSource, TopAgg
from datalens_tf.mechanisms.correct_counts import CorrectCounts
from datalens_tf.mechanisms.gaussian_sum import GaussianSum
from datalens_tf.mechanisms.mean_embedding import MeanEmbedding
from datalens_tf.mechanisms.norm_topk import NormTopKSum
from datalens_tf.mechanisms.real_votes import RealVotes
from datalens_tf.mechanisms.sanitized_gradients import SanitizedGradients
from datalens_tf.mechanisms.second_moment import SecondMoment

AUDIT = "neighbours"
NUM_IMAGES = 2  # that teachers vote on here: the sensitivity is joint over images
_RECORDS, _NUMBERS = 60, 12  # hostile records, and numbers in each
_ALONE, _TOGETHER = np.ones(1, np.int64), np.full(2, 2)  # for each record, the size of its unit


class Pair(NamedTuple):
    """The exact sums of one release on two neighbouring data sets.

    Attributes:
      mechanism: releases them, by `privatize`.
      event: what the release is charged as.
      first, second: arrays of one shape.
    """

    mechanism: Any
    event: dp_accounting.DpEvent
    first: NDArray[np.float64]
    second: NDArray[np.float64]

    @property
    def means(self) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
        """Releases of both without noise, in the units that are released."""
        silent = Asked(0.0)
        return self.mechanism.privatize(self.first, silent, 0), self.mechanism.privatize(self.second, silent, 0)

    @property
    def stddevs(self) -> NDArray[np.float64]:
        """Standard deviations of the noise that the mechanism asks for, on each number that is released."""
        stddevs: NDArray[np.float64] = self.mechanism.privatize(self.first, Asked(1.0), 0) - self.means[0]
        _validate.require(bool(np.all(stddevs > 0)), "noise_stddev", float(np.min(stddevs)),
                          "> 0 where something is audited")
        return stddevs

    @property
    def mu(self) -> float:
        """Distance of the sums in standard deviations of the noise: exactly how private the release is."""
        first, second = self.means
        return float(np.linalg.norm((first - second) / self.stddevs))

    @property
    def share(self) -> float:
        """`mu` divided by the mu that is charged."""
        return self.mu * accountants.noise_multiplier(self.event)


class Asked(NoiseSource):
    """Gives, in place of noise, a fixed number of the standard deviations that it is asked for."""

    is_secure, description, caveat = False, "none", "none"

    def __init__(self, deviations: float):
        self._deviations = deviations

    def draw(self, shape, stddev, index):
        return np.full(shape, self._deviations * stddev)


def audit_pairs(pairs: Sequence[Pair], measured: str, private: bool = False) -> Finding:
    """The largest share of its charge that a release of any pair takes.

    Args:
      pairs: at least one.
      measured: what they are, a sentence without its full stop.
      private: whether they are of real records.
    """
    shares = [pair.share for pair in pairs]
    return Finding(audit=AUDIT, measured=measured, quantity="share of the sensitivity", lower_bound=max(shares),
                   claimed=1.0, details={"num_pairs": len(pairs)}, private=private)


def priced_by_presence(mechanism: Any) -> bool:
    """Whether a mechanism's event is about a record that is there or not, rather than a replaced one."""
    return (getattr(mechanism, "adjacency", "replace-one") == "add-or-remove-one"
            or getattr(mechanism, "sampling_probability", 1) < 1)


def audit_mechanism(mechanism: Any, seed: int = 0) -> Finding:
    """The share of its charge that a mechanism takes on `worst_pair`; raises what `worst_pair` raises."""
    return audit_pairs([worst_pair(mechanism, seed)], f"{type(mechanism).__name__} on hostile records: short, long, "
                                                      "infinite, no numbers, opposite, equal")


def worst_pair(mechanism: Any, seed: int = 0) -> Pair:
    """Searches hostile records for the two whose sums are furthest apart, or for the largest sum if one is added.

    Args:
      mechanism: with noise, of a kind that `one_record_sums` knows.
      seed: of the search.

    Raises:
      InvalidArgumentError: the kind is not known, or there is no noise.
    """
    sums = one_record_sums(mechanism, rng.stream(seed, "neighbours"))
    if priced_by_presence(mechanism):
        sums = np.concatenate([np.zeros_like(sums[:1]), sums])
        distances = np.linalg.norm(sums.reshape(len(sums), -1), axis=1)
        best = (0, int(distances.argmax()))
    else:
        distances = distance.squareform(distance.pdist(sums.reshape(len(sums), -1)))
        best = np.unravel_index(distances.argmax(), distances.shape)
    event = mechanism.dp_event(NUM_IMAGES) if isinstance(mechanism, Mechanism) else mechanism.dp_event()
    return Pair(mechanism, event, sums[best[0]], sums[best[1]])


@functools.singledispatch
def one_record_sums(mechanism: Any, stream: np.random.Generator) -> NDArray[np.float64]:
    """Sums of n data sets, each of one hostile record or unit, by the mechanism's own code: float64 [n, ...].

    Args:
      mechanism: of a kind that is registered here.
      stream: decides the records.

    Raises:
      InvalidArgumentError: the kind is not registered.
    """
    raise InvalidArgumentError(f"Expected a mechanism whose inputs can be searched, got {type(mechanism).__name__}: "
                               "register it with one_record_sums.")


def hostile(stream: np.random.Generator, dimension: int, length: float = 1.0) -> NDArray[np.float32]:
    """Vectors float32 [n, dimension] to trip over: of any length, of about `length`, equal, opposite, or no numbers."""
    random = stream.normal(size=(_RECORDS, dimension)) * 10.0 ** stream.integers(-3, 4, (_RECORDS, 1))
    unit = random / np.linalg.norm(random, axis=1, keepdims=True) * length
    axes = length * np.eye(min(dimension, 4), dimension)
    ties, largest = np.full((1, dimension), length / math.sqrt(dimension)), np.finfo(np.float32).max
    found = np.concatenate([random, unit, unit * (1 + 1e-7), axes, ties, ties * 1e3, np.zeros((1, dimension)),
                            np.full((1, dimension), largest), np.full((1, dimension), 1e-38)])
    odd = np.zeros((4, dimension))
    odd[0], odd[1, 0], odd[2, -1], odd[3] = np.nan, np.nan, np.inf, np.inf
    with np.errstate(over="ignore"):
        return np.concatenate([found, -found, odd]).astype(np.float32)


@one_record_sums.register
def _(mechanism: GaussianSum, stream: np.random.Generator) -> NDArray[np.float64]:
    return np.asarray(mechanism.clip(hostile(stream, _NUMBERS, mechanism.clip_norm)), np.float64)


@one_record_sums.register
def _(mechanism: NormTopKSum, stream: np.random.Generator) -> NDArray[np.float64]:
    vectors = hostile(stream, _NUMBERS, mechanism.clip_norm)
    sums = np.zeros(vectors.shape)
    for row, vector in zip(sums, vectors):
        positions, units = mechanism.compress(vector)
        row[positions] = units
    return sums


@one_record_sums.register
def _(mechanism: SanitizedGradients, stream: np.random.Generator) -> NDArray[np.float64]:
    vectors = hostile(stream, _NUMBERS, mechanism.clip_norm)
    return np.stack([np.asarray(mechanism.clip(np.tile(vector, (mechanism.num_images, 1))), np.float64)
                     for vector in vectors])


@one_record_sums.register
def _(mechanism: MeanEmbedding, stream: np.random.Generator) -> NDArray[np.float64]:
    """Units of one record, and units of two records in the same row or in two rows."""
    vectors = hostile(stream, _NUMBERS)
    alone = [(vectors[[row]], np.array([label]), _ALONE) for row in range(len(vectors)) for label in (0, 1)]
    together = [(vectors[stream.integers(0, len(vectors), 2)], stream.integers(0, 2, 2), _TOGETHER) for _ in vectors]
    return np.stack([mechanism.sums([batch], 2) for batch in (*alone, *together)])


@one_record_sums.register
def _(mechanism: SecondMoment, stream: np.random.Generator) -> NDArray[np.float64]:
    """Units of one record, and of two."""
    vectors = hostile(stream, _NUMBERS, mechanism.clip_norm)
    alone = [(vector[None], _ALONE) for vector in vectors]
    together = [(vectors[stream.integers(0, len(vectors), 2)], _TOGETHER) for _ in vectors]
    return np.stack([mechanism.sums([batch]) for batch in (*alone, *together)])


@one_record_sums.register
def _(mechanism: CorrectCounts, stream: np.random.Generator) -> NDArray[np.float64]:
    count = mechanism.num_candidates
    right = np.concatenate([np.zeros((1, count), int), np.ones((1, count), int), stream.integers(0, 2, (8, count))])
    return np.stack([mechanism.sums(list(row[:, None]), np.array([1]), _ALONE) for row in right])


@one_record_sums.register(TopAgg)
@one_record_sums.register(D2PFed)
@one_record_sums.register(FetchSgd)
@one_record_sums.register(RealVotes)
def _(mechanism: Any, stream: np.random.Generator) -> NDArray[np.float64]:
    """Votes of one teacher; a record may have made its gradients anything."""
    dimension = 1 if isinstance(mechanism, RealVotes) else 2 * mechanism.top_k if isinstance(
        mechanism, TopAgg) else mechanism.dimension
    gradients = np.tile(hostile(stream, dimension)[:, None], (1, NUM_IMAGES, 1))
    seeds = stream.integers(0, 2**31 - 1, (len(gradients), 2)).astype(np.int32)
    return np.asarray(mechanism.compress(gradients, seeds), np.float64)
