"""The privacy statement: what a run guarantees, to whom, on which assumptions, and what it does not cover.

`wording` puts it into words.
"""

import dataclasses
import math
import re
import statistics
import typing
from collections.abc import Mapping, Sequence
from typing import Any

import dp_accounting

from datalens_tf import __version__, _files, _validate
from datalens_tf.accounting import accountants
from datalens_tf.accounting.delta import describe_delta
from datalens_tf.accounting.ledger import Charge, PrivacyLedger, encode_event
from datalens_tf.bounds.accountant import RELATIONS, squared_mu
from datalens_tf.config import ACCOUNTANTS, RunSettings
from datalens_tf.data.registry import has_public_classes
from datalens_tf.data.shards import has_shards
from datalens_tf.errors import LedgerError

if typing.TYPE_CHECKING:  # accounting alone must not wait for TensorFlow
    from datalens_tf.mechanisms.noise import NoiseSource

_RECALIBRATED = (" As interruptions lost charges, what was released after them has more noise, so that all charges "
                 "stay within the budget; the noise multiplier of a charge is then ")
_RECORD = "one record (an image with its label)"
CHANGING = {"replace-one": "replacing", "add-or-remove-one": "adding or removing"}  # one record, in assumptions
_UNIT = ("Unit: a record, in this statement, is {unit}. What is said of one holds for all its images together, be they "
         "few, many, or none that can be used. {of_units} How many images there are, and how many are whose, is not "
         "public.")
_GROUP = "People with several records: the unit is one image. A group of r records has a weaker guarantee"
_GROUP_OF = ("People who are several {noun}s, and people whose pictures several {noun}s have: the unit is what one "
             "{noun} has. A group of r {noun}s has a weaker guarantee")
_GROUPS = (2, 5, 10)
_WHICH, _WHETHER = "which of two values it had", "whether it is in the data or not"
_GUESSES = {"replace-one": _WHICH, "replace-one-user": _WHICH,
            "add-or-remove-one": _WHETHER, "add-or-remove-one-user": _WHETHER}

_NOT_COVERED = (
    "Choices made by looking at the private data: settings, number of steps, which of several runs to publish. Each "
    "run on the same data spends a budget of its own, and the budgets add up.",
    "Evaluation on real data: accuracies and other numbers measured on real records are not differentially private.",
    "The folder `private/` of the run: what was computed from real records. It must not be shared.",
    "Side channels: running time, memory, logs of the computer that trained.",
    "Restored backups and cloned machines: a run that is continued from two copies of its folder releases twice, and "
    "each copy's ledger counts its own charges only. `datalens privacy --ledger A --ledger B` counts both.",
)


@dataclasses.dataclass(frozen=True, kw_only=True)
class Guarantee:
    """A method's account of its privacy, in addition to its settings.

    Attributes:
      event: what a step costs; None for a method that is not private.
      recalibrated: what a charge costs instead where burnt charges left less of the budget; each has more noise.
      adjacency: which data sets are neighbours; one of `accountant.RELATIONS`.
      facts: JSON-able entries of the statement, and values for the texts.
      assumptions: texts, formatted with the facts.
      released: a paragraph, formatted with the facts. None where `render_text` knows the method.
      seeds: what public seeds decide.
      product: what the method produces, where it is not a generator.
    """

    event: dp_accounting.DpEvent | None
    adjacency: str = "replace-one"
    facts: Mapping[str, Any]
    assumptions: Sequence[str]
    released: str | None
    seeds: str
    product: str | None = None
    recalibrated: Sequence[dp_accounting.DpEvent] = ()


def make_statement(config: RunSettings, guarantee: Guarantee, ledger: PrivacyLedger | None, num_burnt: int,
                   noise: "NoiseSource", num_records: int) -> dict[str, Any]:
    """Makes the privacy statement of a run, a JSON-able dictionary.

    Args:
      config: settings of the run.
      guarantee: what the method of the run says about its privacy.
      ledger: the ledger with all charges; None for a method that is not private.
      num_burnt: how many of the charges paid for a release that was never stored. They count in epsilon.
      noise: the noise that was used. If it is predictable, the run is not private and every epsilon is None.
      num_records: number of records, or of units, in the data set; public, unless the settings do not publish it.

    Raises:
      LedgerError: a charge differs from what a step costs under this configuration, or charges are missing.
    """
    _validate.require(guarantee.event is None or ledger is not None, "ledger", ledger, "to have what was charged")
    charges = () if ledger is None else ledger.charges
    num_charges = sum(charge.count for charge in charges)
    if ledger is not None and num_burnt < 0:  # More was released than was charged.
        raise LedgerError(f"{ledger.path} has {num_charges} charges, {-num_burnt} fewer than were used: put the run's "
                          "newest ledger back.")
    _validate.integer("num_burnt", num_burnt, at_least=0)
    _validate.require(num_burnt <= num_charges, "num_burnt", num_burnt, f"<= {num_charges}, the number of charges")
    _validate.integer("num_records", num_records, at_least=1)
    event = guarantee.event
    for charge in charges:
        if charge.unit != event and charge.unit not in guarantee.recalibrated:
            raise LedgerError(f"Charge {charge.index} in the ledger is {charge.event}, but a step costs {event}: "
                              "the ledger belongs to another configuration.")
    by_accountant = {} if event is None else price(charges, config.delta, guarantee.adjacency)
    private = (event is not None and noise.is_secure and config.insecure_noise_seed is None
               and all(map(math.isfinite, by_accountant.values())))
    facts = {
        **guarantee.facts,
        "noise_multiplier_per_step": accountants.noise_multiplier(event),
        "num_charges": num_charges,
        "num_burnt_charges": num_burnt,
        "num_steps": num_charges - num_burnt,
        "noise_source": noise.description if event is not None else "none",
    }
    if event is not None and "other_adjacency" not in facts:
        facts |= price_for_others(charges, config.delta, guarantee.adjacency)
    if not private and "other_adjacency" in facts:  # No epsilon holds, for any relation.
        facts["other_adjacency"] = None
    released = guarantee.released
    if guarantee.recalibrated:
        counts = {event: sum(charge.count for charge in charges if charge.unit == event)
                  for event in guarantee.recalibrated}
        facts["recalibrated"] = [{"noise_multiplier": accountants.noise_multiplier(event), "num_charges": count}
                                 for event, count in counts.items()]
        released = _validate.known("released", released, "to be told where charges have more noise") + _RECALIBRATED
        released += ", ".join("{noise_multiplier:.6g} for {num_charges} charges".format(**part)
                                              for part in facts["recalibrated"]) + "."
    unit, group = unit_of(config.unit, guarantee.adjacency)
    group += _of_groups(charges, config.delta, guarantee.adjacency) + "."
    published = num_records if config.publishes_num_records else None
    bound = None if config.publishes_num_records else config.known_records(num_records)
    texts = facts | {
        "accountant": config.accountant, "noise_caveat": noise.caveat, "changing": CHANGING.get(guarantee.adjacency),
        "number_of_records": "the number of records" if bound is None else
        f"a bound of {bound:,} on the number of records (the number itself is private, and is known from what was paid "
        "for alone)"}
    if facts.get("epsilon_towards_driver") is not None:
        texts["epsilon_towards_driver"] = accountants.round_up(facts["epsilon_towards_driver"])
    return {
        "title": "Differential-privacy statement" if private else "NOT PRIVATE",
        "software": f"datalens_tf {__version__}",
        "private": private,
        "method": config.method,
        "dataset": config.public().dataset,
        "num_records": published,
        **({} if bound is None else {"records_at_most": bound}),
        "epsilon": by_accountant[_validate.known("accountant", config.accountant)] if private else None,
        "delta": config.delta,
        "delta_and_n": describe_delta(config, num_records) if private else None,
        "accountant": config.accountant,
        "epsilon_by_accountant": {name: value if private else None for name, value in by_accountant.items()},
        "epsilon_budget": config.epsilon if private else None,
        "adjacency": guarantee.adjacency,
        "is_guarantee": private and not (guarantee.adjacency.startswith("add-or-remove") and published is not None),
        "unit": unit,
        **({} if config.unit is None else {"unit_setting": config.unit}),
        **facts,
        **({} if ledger is None else ledger_entries(ledger)),
        **({} if guarantee.product is None else {"product": guarantee.product}),
        **({} if released is None else {"released": released.format(**texts)}),
        "seeds": f"Public: {guarantee.seeds}. "
                 + ("The privacy noise has no seed." if private else "The noise was no secret, or there was none."),
        "settings_chosen": _settings_chosen(config) if private else None,
        "assumptions": ([*_of_units(config, unit), *_held_out(config),
                         *(text.format(**texts) for text in guarantee.assumptions), _classes(config)]
                        if private else []),
        "not_covered": ([group, *_NOT_COVERED] if private
                        else ["Everything: this run gives no guarantee."]),
    }


def _all_of(noun: str) -> str:
    """The protected unit, where it is everything that one user, or one patient, has."""
    return f"one {noun} (all the images that the {noun} has, with their labels)"


def unit_of(setting: str | None, adjacency: str) -> tuple[str, str]:
    """The protected unit in words, by the setting `unit`, and the text about groups of several units."""
    noun = "user" if adjacency.endswith("-user") else None
    if setting is not None:  # A pattern is not a noun.
        noun = setting if re.fullmatch(r"[\w -]+", setting) else "unit"
    return (_RECORD, _GROUP) if noun is None else (_all_of(noun), _GROUP_OF.format(noun=noun))


def _of_groups(charges: Sequence[Charge], delta: float, adjacency: str) -> str:
    """Prices groups of records, or of units, in words; an empty text where noise is not Gaussian.

    A group of r changes every release by r sensitivities at most, as if the noise were r times smaller.
    """
    if not charges or not all(isinstance(charge.unit, dp_accounting.GaussianDpEvent) for charge in charges):
        return ""
    mu = math.sqrt(squared_mu((charge.unit, charge.count) for charge in charges))

    def right(size: int) -> str:
        return f"{math.ceil(1000 * statistics.NormalDist().cdf(size * mu / 2)) / 10:g} %"

    def priced(size: int) -> str:
        event = dp_accounting.GaussianDpEvent(1 / (size * mu))
        return f"{accountants.round_up(accountants.epsilon_of([event], delta, 'gdp'))} for {size} ({right(size)})"

    return (f": epsilon is {', '.join(map(priced, _GROUPS[:-1]))} and {priced(_GROUPS[-1])}, by gdp. In brackets: how "
            f"often somebody is right at most who knows all others, and guesses {_GUESSES[adjacency]}, both equally "
            f"likely; for one, {right(1)}")


def _of_units(config: RunSettings, unit: str) -> list[str]:
    """A sentence on the units, where they are not those of the method."""
    if config.unit is None or config.adjacency.endswith("-user"):
        return []
    return [_UNIT.format(unit=unit, of_units=config.OF_UNITS)]


def _held_out(config: RunSettings) -> list[str]:
    """A sentence on records that are only for testing, where there are any; not every kind of run holds some out."""
    share = getattr(config, "holdout", 0.0)
    if has_shards(config.dataset):  # Older versions took the setting, and held nothing out.
        return []
    return [f"Held out: a share of {share:g} of the data took no part in training, chosen by places alone. It is not "
            "counted among the records here, and what was measured on it is not covered."] if share else []


# Where kinds of data with names of classes have these from.
_CLASSES_OF = {
    "folder": "the sub-folders, or of the labels where a table has them",
    "parquet": "the files' description or, without one, of the labels",
}


def _classes(config: RunSettings) -> str:
    """Source of the public list of classes, in words."""
    count = f"the {config.num_classes} classes" if config.num_classes else "the classes"
    kind = config.dataset.partition(":")[0]
    if config.classes is not None:
        return (f"Names and number of {count} were declared to be public. A record of any other class keeps its place "
                "and contributes nothing; how many such records there are is not released.")
    if config.num_classes == 1:
        return "There is one class, of all records."
    if kind in _CLASSES_OF:
        return (f"Names and number of {count} are those of {_CLASSES_OF[kind]}, and are taken to be public. A record "
                "that is alone in its class would show in them: declared classes do not depend on records.")
    if has_public_classes(config.dataset):
        return f"Names and number of {count} are those of the data set's public description."
    if kind == "arrays":
        return (f"Names and number of {count} were read from the private labels, where numbers are up to the largest "
                "one, and are taken to be public. A record that is alone in its class would show in them: declared "
                "classes do not depend on records.")
    return (f"The number of {count} was read from the private labels, as the largest one plus one, and is taken to be "
            "public. A record with a larger label would change it: declared classes do not depend on records.")


def _settings_chosen(config: RunSettings) -> str:
    """Data on which the method's constants were chosen, and whether this run's records are among them."""
    sources = config.dataset.removeprefix("tfds:").split("/")  # The name is part of a prepared folder's path.
    # Variants, such as mnist_corrupted, are made of the same records.
    known = any(f"{source}_".startswith(f"{name}_") for source in sources for name in config.CHOSEN_ON)
    same = (f" This run's data, {config.dataset}, are among these: epsilon does not cover that its records took part "
            "in these choices." if known else "")
    return (f"{config.CHOSEN} Epsilon covers none of these choices, which matters where a run's records are among "
            f"those data.{same} Settings that differ from the defaults are the choice of whoever trained.")


def price(charges: Sequence[Charge], delta: float, adjacency: str) -> dict[str, float]:
    """Epsilon of charges together, by each accountant that knows them all.

    Args:
      charges: of a ledger.
      delta: in (0, 1).
      adjacency: one of `accountant.RELATIONS`.
    """
    events = [charge.event for charge in charges]
    units: list[dp_accounting.DpEvent] = []
    for charge in charges:  # There are few units, and not all of them are hashable.
        if charge.unit not in units:
            units.append(charge.unit)
    return {name: accountants.epsilon_of(events, delta, name, adjacency)
            for name in ACCOUNTANTS if all(name in accountants.applicable(unit) for unit in units)}


def price_for_others(charges: Sequence[Charge], delta: float, adjacency: str) -> dict[str, Any]:
    """Entry `other_adjacency`: what the charges cost under the other relation; empty where nothing is known for it.

    A replaced record is protected whether the number of records is published or not. Runs whose own relation is that
    one publish it, so that they guarantee an added or removed record nothing.
    """
    prices = {name: epsilon for name, epsilon in accountants.epsilons_for_others(
        [charge.event for charge in charges], delta, adjacency).items() if math.isfinite(epsilon)}
    added = adjacency.startswith("add-or-remove")
    other = adjacency.replace(*(("add-or-remove", "replace") if added else ("replace", "add-or-remove")))
    return {"other_adjacency": {"adjacency": other, "is_guarantee": added, "epsilon_by_accountant": prices}
            } if prices else {}


def ledger_entries(ledger: PrivacyLedger) -> dict[str, Any]:
    """Entries of a statement about its ledger: the run and head that name it, and its charges, equal ones merged."""
    charged: list[dict[str, Any]] = []
    for charge in ledger.charges:
        event = encode_event(charge.unit)
        if charged and charged[-1]["event"] == event:
            charged[-1]["count"] += charge.count
        else:
            charged.append({"event": event, "count": charge.count})
    return {"run_id": ledger.run_id, "ledger_head": ledger.head, "charged": charged}


def parse_statement(text: str | bytes) -> dict[str, Any]:
    """Parses a stored statement and checks the entries that other code computes with and prints.

    Raises:
      ValueError: the text is not JSON, or not a statement.
    """
    statement = _files.parse_json(text)
    if not isinstance(statement, dict):
        raise ValueError("it is no JSON object")
    for name in ("method", "dataset", "accountant", "adjacency"):
        _validate.require(isinstance(statement.get(name), str), name, statement.get(name), "to be text")
    _validate.require(isinstance(statement.get("private"), bool), "private", statement.get("private"), "to be a bool")
    secret = "records_at_most" in statement and statement.get("num_records") is None
    for name in ("records_at_most" if secret else "num_records", "num_steps"):
        _validate.integer(name, statement.get(name), at_least=1)
    _validate.integer("num_charges", statement.get("num_charges"), at_least=int(statement["private"]))
    if statement["private"]:
        _validate.between("delta", statement.get("delta"), 0, 1, open_low=True, open_high=True)
        for name in ("epsilon_budget", "noise_multiplier_per_step"):
            _validate.positive(name, statement.get(name))
        by_accountant: Any = statement.get("epsilon_by_accountant")
        _validate.require(isinstance(by_accountant, dict) and set(by_accountant) <= set(ACCOUNTANTS),
                          "epsilon_by_accountant", by_accountant, f"to have {', '.join(ACCOUNTANTS)}")
        for name, value in by_accountant.items():
            _validate.positive(f"epsilon_by_accountant.{name}", value)
        _validate.one_of("accountant", statement["accountant"], tuple(by_accountant))
        _validate.one_of("adjacency", statement["adjacency"], RELATIONS)
        _check_other(statement)
        _validate.require(statement.get("epsilon") == by_accountant[statement["accountant"]], "epsilon",
                          statement.get("epsilon"), "to be the one by its accountant")
    return statement


def _check_other(statement: Mapping[str, Any]) -> None:
    """Checks the entry of the other relation, where there is one."""
    other = statement.get("other_adjacency")
    if other is None:
        return
    prices: Any = other.get("epsilon_by_accountant") if isinstance(other, dict) else None
    _validate.require(
        isinstance(prices, dict) and bool(prices) and set(prices) <= set(ACCOUNTANTS)
        and other.get("adjacency") in RELATIONS and isinstance(other.get("is_guarantee"), bool),
        "other_adjacency", other, f"to have an adjacency, is_guarantee, and {', '.join(ACCOUNTANTS)}")
    for name, value in prices.items():
        _validate.positive(f"other_adjacency.{name}", value)
