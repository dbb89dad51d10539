"""Mechanisms of sums over all records, each as the settings ask for it, but for the noise of its release."""

from __future__ import annotations

import functools
import typing
from collections.abc import Callable

from etils import epy

from datalens_tf import _validate
from datalens_tf.config import RunConfig, RunSettings

with epy.lazy_imports():
    from datalens_tf.accounting import accountants
    from datalens_tf.accounting import ledger as ledgers
    from datalens_tf.mechanisms import base, correct_counts, mean_embedding, second_moment

SQUARES = {"replace-one": "sqrt(2) * ", "add-or-remove-one": ""}  # before a clip's square: sensitivity of products
# Sentence on numbers of records, in assumptions.
WEIGHTS = {"replace-one": "", "add-or-remove-one":
           " Numbers of records have a weight of at most 1, and noise that is as much larger: sensitivities are of the "
           "numbers times their weight, which follows from public numbers."}
Maker = Callable[..., typing.Any]  # Of a `noise_multiplier`: a mechanism, a `base.SumOfRecords`.


class SumsConfig(typing.Protocol):
    """Settings of a run that releases sums: their neighbours, noise and plan."""

    @property
    def adjacency(self) -> str:
        """Neighbouring relation that the noise is for."""
        ...

    @property
    def publishes_num_records(self) -> bool:
        """Whether the number of records is public."""
        ...

    @property
    def delta(self) -> float:
        """The budget's delta."""
        ...

    @property
    def noise_multiplier(self) -> float | None:
        """Standard deviation of one charge's noise divided by the sensitivity; None before calibration."""
        ...

    @property
    def release_charges(self) -> tuple[int, ...]:
        """Number of charges that pay for each release, in order."""
        ...

    def release_mechanisms(self) -> tuple[Maker, ...]:
        """Makers of each release's mechanism, in order, of its noise multiplier."""
        ...


def means(config: RunConfig, num_rows: int, dimension: int, num_charges: int) -> Maker:
    """Maker of the mean embedding of so many rows' vectors.

    Args:
      config: resolved settings, with the `noise_multiplier` of one charge.
      num_rows: classes, or clusters of all classes.
      dimension: numbers of a vector.
      num_charges: that pay for the release.
    """
    weight = 1.0
    if config.adjacency == "add-or-remove-one":
        planned = _validate.known("noise_multiplier", getattr(config, "noise_multiplier", None)) / num_charges**0.5
        weight = mean_embedding.count_weight_for(dimension, config.known_records(1) / num_rows, planned)
    return functools.partial(mean_embedding.MeanEmbedding, adjacency=config.adjacency, count_weight=weight)


def squares(config: RunConfig, clip: float) -> Maker:
    """Maker of the sum of r r^T over vectors r that are shortened to the clip."""
    return functools.partial(second_moment.SecondMoment, adjacency=config.adjacency, clip_norm=clip)


def votes(config: RunConfig, num_candidates: int) -> Maker:
    """Maker of the records' votes on so many candidates."""
    return functools.partial(correct_counts.CorrectCounts, adjacency=config.adjacency, num_candidates=num_candidates)


def prices_of_plan(config: SumsConfig, adjacency: str) -> dict[str, float]:
    """Epsilon of a plan by each accountant, for neighbours by this relation, whichever the noise is made for.

    Args:
      config: resolved settings.
      adjacency: one of `base.ADJACENCIES`.
    """
    multiplier = _validate.known("noise_multiplier", config.noise_multiplier)
    events = [make(noise_multiplier=multiplier).dp_event(adjacency)
              for make, count in zip(config.release_mechanisms(), config.release_charges) for _ in range(count)]
    return accountants.epsilons_of(events, config.delta, adjacency)


def is_guaranteed(config: RunSettings | SumsConfig, adjacency: str) -> bool:
    """Whether a price for neighbours by this relation is a guarantee: where they differ in n, n must be private."""
    return adjacency.startswith("replace-one") or not config.publishes_num_records


def price_for_others(config: SumsConfig, ledger: ledgers.PrivacyLedger) -> dict[str, typing.Any]:
    """Entry of a statement: what the charges cost by the neighbouring relation that the noise is not made for.

    A price for added or removed records is a guarantee only if the number of records is not published.

    Args:
      config: resolved settings.
      ledger: with all charges, each for the release that its step names.
    """
    other = next(name for name in base.ADJACENCIES if name != config.adjacency)
    makers, events = config.release_mechanisms(), []
    for charge in ledger.charges:
        # Nobody knows what an unreadable line was for: it is priced as the release that costs most.
        made = [make(noise_multiplier=accountants.noise_multiplier(charge.unit)).dp_event(other) for make in (
            makers if charge.step is None else [makers[charge.step - 1]])]
        events += [min(made, key=accountants.noise_multiplier)] * charge.count
    return {"adjacency": other, "is_guarantee": is_guaranteed(config, other),
            "epsilon_by_accountant": accountants.epsilons_of(events, config.delta, other)}
