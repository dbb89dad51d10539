"""Mechanisms of sums over all records, each as the settings ask for it, but for the noise of its release."""

from __future__ import annotations

import dataclasses
import functools
import typing
from collections.abc import Callable

from etils import epy

from datalens_tf import _validate
from datalens_tf.config import MethodConfig, RunSettings

with epy.lazy_imports():
    import dp_accounting

    from datalens_tf.accounting import accountants
    from datalens_tf.accounting import ledger as ledgers
    from datalens_tf.accounting import statement as statements
    from datalens_tf.mechanisms import base, correct_counts, mean_embedding, second_moment

SQUARES = {"replace-one": "sqrt(2) * ", "add-or-remove-one": ""}  # factor of a clip's square: sensitivity of products
# Sentence about numbers of records, for the assumptions.
WEIGHTS = {"replace-one": "", "add-or-remove-one":
           " Numbers of records have a weight of at most 1, and noise that is as much larger: sensitivities are of the "
           "numbers times their weight, which follows from public numbers."}
Maker = Callable[..., typing.Any]  # From a `noise_multiplier` to a mechanism, a `base.SumOfRecords`.


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
        """Makers of the releases' mechanisms, in order; each takes a noise multiplier."""
        ...


def means(config: MethodConfig, num_rows: int, dimension: int, num_charges: int) -> Maker:
    """Maker of the mean embedding of the vectors of `num_rows` rows.

    Args:
      config: resolved settings, with the `noise_multiplier` of one charge.
      num_rows: number of classes, or of clusters of all classes.
      dimension: numbers per vector.
      num_charges: number of charges that pay for the release.
    """
    weight = 1.0
    if config.adjacency == "add-or-remove-one":
        planned = _validate.known("noise_multiplier", getattr(config, "noise_multiplier", None)) / num_charges**0.5
        weight = mean_embedding.count_weight_for(dimension, config.known_records(1) / num_rows, planned)
    return functools.partial(mean_embedding.MeanEmbedding, adjacency=config.adjacency, count_weight=weight,
                             discrete=bool(config.num_owners))


def squares(config: MethodConfig, clip: float) -> Maker:
    """Maker of the sum of r r^T over vectors r that are shortened to the clip."""
    return functools.partial(second_moment.SecondMoment, adjacency=config.adjacency, clip_norm=clip,
                             discrete=bool(config.num_owners))


def votes(config: MethodConfig, num_candidates: int) -> Maker:
    """Maker of the records' votes on `num_candidates` candidates."""
    return functools.partial(correct_counts.CorrectCounts, adjacency=config.adjacency, num_candidates=num_candidates,
                             discrete=bool(config.num_owners))


def prices_of_plan(config: SumsConfig, adjacency: str) -> dict[str, float]:
    """Epsilon of a plan by each accountant, for neighbours by this relation, whichever relation the noise is made for.

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
      ledger: the ledger with all charges, each for the release that its step names.
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


_OWNERS = (
    "{num_owners} data owners keep their records. Each record, and all that is of one patient or other unit, is with "
    "one of them; what is with two has the guarantee of two records. Before its sums leave an owner's "
    "machine, the owner adds its share of the noise, with {owner_noise:.6g} of the whole's standard deviation. The sum "
    "of {num_honest} shares reaches the noise above, even if {owner_tolerance} of the owners add none, are silent, or "
    "tell others theirs; everybody else follows the protocol, and every owner keeps its own ledger of what it "
    "answered. The sum of discrete Gaussian shares is nearly a discrete Gaussian; what it lacks is bounded as in "
    "Kairouz, Liu and Steinke 2021, proposition 14, and shares are larger by a millionth, which pays for it.",
    "Whoever runs the driver sees each owner's sums with that owner's share of the noise only. Towards the driver the "
    "guarantee is weaker: epsilon = {epsilon_towards_driver} at the same delta ({accountant}). The epsilon above holds "
    "towards everybody else.",
)


def with_owners(guarantee: statements.Guarantee, config: typing.Any, ledger: ledgers.PrivacyLedger
                ) -> statements.Guarantee:
    """Adds to a guarantee what holds where owners keep the records: who sees more, and the epsilon towards them.

    Args:
      guarantee: what the method says about its privacy.
      config: resolved settings, with `num_owners`.
      ledger: the ledger with all charges.
    """
    seen = [_seen_by_driver(charge.event, config.noise_share) for charge in ledger.charges]
    towards_driver = (None if config.insecure_noise_seed is not None else
                      accountants.epsilon_of(seen, config.delta, config.accountant, config.adjacency))
    return dataclasses.replace(guarantee, assumptions=(*guarantee.assumptions, *_OWNERS), facts={
        **guarantee.facts, "num_owners": config.num_owners, "owner_tolerance": config.owner_tolerance,
        "owner_noise": config.noise_share**0.5, "num_honest": config.num_owners - config.owner_tolerance,
        "epsilon_towards_driver": towards_driver})


def _seen_by_driver(event: dp_accounting.DpEvent, share: float) -> dp_accounting.DpEvent:
    """Cost of the charges with an owner's share of the noise alone."""
    if isinstance(event, dp_accounting.SelfComposedDpEvent):
        return dp_accounting.SelfComposedDpEvent(_seen_by_driver(event.event, share), event.count)
    return type(event)(accountants.noise_multiplier(event) * share**0.5)
