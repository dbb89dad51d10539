"""Checks whether a privacy statement follows from what was charged.

All code that passes a statement on, or puts a number beside it, reads the statement here: `run_statement` and
`export_statement` refuse one that promises more than its ledger, or something else. The checks cannot notice an owner
who rewrites ledger and statement together: the chain has no key.
"""

import math
import pathlib
from collections.abc import Mapping, Sequence
from typing import Any

import dp_accounting

from datalens_tf import _files
from datalens_tf.accounting.ledger import Charge, PrivacyLedger, decode_event
from datalens_tf.accounting.statement import ledger_entries, parse_statement, price, price_for_others
from datalens_tf.errors import CheckpointError, InvalidArgumentError, LedgerError

LEDGER, STATEMENT = "ledger.jsonl", "privacy.json"
_ACCURACY = 1e-6  # Relative, of a recomputed epsilon: near-exact accountants differ that much between versions.
# Settings that a statement repeats.
_SETTINGS = ("method", "delta", "accountant", "num_teachers", "batch_size", "noise_stddev", "sampling_probability",
             "num_discriminators", "num_users", "clip_norm", "num_features", "records_at_most")


def run_statement(folder: pathlib.Path) -> dict[str, Any]:
    """The statement in a run folder or a released checkpoint, checked against its ledger and its settings.

    Raises:
      CheckpointError: a file is missing or damaged, or of another run.
      LedgerError: statement and ledger do not agree.
    """
    statement = _statement(folder / STATEMENT)
    ledger = PrivacyLedger.read(folder / LEDGER) if (folder / LEDGER).exists() else None
    check_statement(statement, ledger, folder / STATEMENT)
    check_settings(statement, folder / "config.json")
    return statement


def export_statement(folder: pathlib.Path) -> dict[str, Any] | None:
    """The statement in the `assets.extra` of a SavedModel; None where it has none.

    It is checked against the ledger beside it. Exports of older versions have no ledger: their statements are checked
    against the charges that they name.

    Raises:
      CheckpointError, LedgerError: as for `run_statement`.
    """
    folder = folder / "assets.extra"
    if not (folder / STATEMENT).exists():
        return None
    statement = _statement(folder / STATEMENT)
    if (folder / LEDGER).exists():
        check_statement(statement, PrivacyLedger.read(folder / LEDGER), folder / STATEMENT)
    else:
        check_alone(statement, folder / STATEMENT)
    return statement


def check_statement(statement: Mapping[str, Any], ledger: PrivacyLedger | None, where: Any) -> None:
    """Refuses a statement that does not follow from the ledger.

    Args:
      statement: of `parse_statement`.
      ledger: of the same run; None where there is none.
      where: the statement's file, for the error.

    Raises:
      LedgerError: they do not agree.
    """
    if ledger is None:
        if statement["private"]:
            raise _disagrees(where, "it states an epsilon, and there is no ledger of what was charged")
        return
    if statement["private"] and not ledger.secret_noise:
        raise _disagrees(where, "it states an epsilon, and the ledger says that the noise was predictable")
    # Statements of older versions name no ledger; their ledgers have no name.
    for name, value in (ledger_entries(ledger) if "ledger_head" in statement or ledger.version > 1 else {}).items():
        if statement.get(name) != value:
            raise _disagrees(where, f"its {name} is not that of the ledger")
    for name, value in (("num_charges", ledger.num_charges), ("delta", ledger.delta),
                        ("accountant", ledger.accountant), ("adjacency", ledger.adjacency),
                        *((("epsilon_budget", ledger.epsilon_budget),) if statement["private"] else ())):
        if statement.get(name) != value:
            raise _disagrees(where, f"its {name} is {statement.get(name)!r}, that of the ledger is {value!r}")
    _check_price(statement, price(ledger.charges, ledger.delta, ledger.adjacency), where)
    _check_other_price(statement, ledger.charges, where)


def check_alone(statement: Mapping[str, Any], where: Any) -> None:
    """Refuses a statement whose epsilon does not follow from the charges that it names itself.

    Raises:
      LedgerError: it does not.
    """
    try:
        charged = charges_of(statement)
        prices = None if charged is None else price(charged, statement["delta"], statement["adjacency"])
    except (InvalidArgumentError, KeyError, TypeError) as error:
        raise _disagrees(where, "what it says was charged cannot be priced") from error
    if charged is not None and sum(charge.count for charge in charged) != statement["num_charges"]:
        raise _disagrees(where, "its num_charges is not the number of charges that it names")
    _check_price(statement, prices, where)
    _check_other_price(statement, charged or [], where)


def charged(folder: pathlib.Path, statement: Mapping[str, Any]) -> Sequence[Charge] | None:
    """Charges of the ledger in a folder; where there is none, those that the statement names, or None.

    Raises:
      LedgerError: the ledger is damaged.
    """
    if (folder / LEDGER).exists():
        return PrivacyLedger.read(folder / LEDGER).charges
    return charges_of(statement)


def charges_of(statement: Mapping[str, Any]) -> list[Charge] | None:
    """Charges that a statement names; None where one of an older version does not say enough.

    Raises:
      InvalidArgumentError, KeyError, TypeError: it says what cannot be charged.
    """
    if "charged" in statement:
        return [_equal_charges(decode_event(row["event"]), int(row["count"])) for row in statement["charged"]]
    if not statement["private"] or set(statement["epsilon_by_accountant"]) == set() or "aggregator" in statement:
        return None
    event: dp_accounting.DpEvent = dp_accounting.GaussianDpEvent(statement["noise_multiplier_per_step"])
    if "sampling_probability" in statement:
        event = dp_accounting.PoissonSampledDpEvent(statement["sampling_probability"], event)
    if statement.get("num_discriminators", 1) > 1:
        event = dp_accounting.SampledWithoutReplacementDpEvent(statement["num_discriminators"], 1, event)
    return [_equal_charges(event, statement["num_charges"])]


def _equal_charges(unit: dp_accounting.DpEvent, count: int) -> Charge:
    """Equal charges, which a statement names together, like one line of a ledger."""
    event = unit if count == 1 else dp_accounting.SelfComposedDpEvent(unit, count)
    return Charge(index=0, step=None, event=event, count=count)


def check_settings(statement: Mapping[str, Any], path: pathlib.Path) -> None:
    """Refuses a statement that repeats other settings than those of the run.

    Args:
      statement: of `parse_statement`.
      path: of the run's `config.json`.

    Raises:
      CheckpointError: the settings cannot be read, or differ.
    """
    try:
        settings = _files.parse_json(path.read_text(encoding="utf-8"))
        differing = [name for name in _SETTINGS if name in statement and settings.get(name) is not None
                     and settings[name] != statement[name]]
    except (OSError, ValueError, AttributeError) as error:
        raise CheckpointError(f"Cannot read {path}, the settings of the run: {_reason(error)}.") from error
    if differing:
        raise CheckpointError(f"{path.parent / STATEMENT} is of another run: its {differing[0]} is "
                              f"{statement[differing[0]]!r}, that of config.json is {settings[differing[0]]!r}.")


def _statement(path: pathlib.Path) -> dict[str, Any]:
    try:
        return parse_statement(path.read_bytes())
    except (OSError, ValueError) as error:
        raise CheckpointError(f"Cannot read the privacy statement {path}: {_reason(error)}.") from error


def _reason(error: Exception) -> str:
    """Text of an error, to end a sentence with."""
    return str(error).rstrip(".")


def _check_price(statement: Mapping[str, Any], prices: Mapping[str, float] | None, where: Any) -> None:
    """Compares each epsilon; `prices` None where nothing is known."""
    if not statement["private"] or prices is None:
        return
    for name, stated in sorted(statement["epsilon_by_accountant"].items()):  # Accountants may have been added since.
        if name not in prices:
            raise _disagrees(where, f"the accountant {name} is of no use there")
        if not math.isclose(stated, prices[name], rel_tol=_ACCURACY):
            raise _disagrees(where, f"it states epsilon {stated:.6g} by {name}, and the charges cost "
                                    f"{prices[name]:.6g}")


def _check_other_price(statement: Mapping[str, Any], charges: Sequence[Charge], where: Any) -> None:
    """Compares the epsilons for the other relation: none may be smaller than what is known to follow from the charges.

    What a replaced record costs in a sum of all records depends on what it does to the sum: no less than an added one.
    """
    other = statement.get("other_adjacency")
    if not statement["private"] or other is None:
        return
    added = statement["adjacency"].startswith("add-or-remove")
    if other["is_guarantee"] != added or other["adjacency"].startswith("add-or-remove") == added:
        raise _disagrees(where, f"it mistakes what is guaranteed under {other['adjacency']}")
    sampled = charges and all(isinstance(charge.unit, dp_accounting.PoissonSampledDpEvent) for charge in charges)
    if not sampled and not added:  # A comparison figure, of sums whose sensitivity the charges do not know.
        return
    least: Mapping[str, float] = statement["epsilon_by_accountant"]
    if sampled:
        least = price_for_others(charges, statement["delta"], statement["adjacency"]).get("other_adjacency", {}).get(
            "epsilon_by_accountant", {})
    for name, stated in sorted(other["epsilon_by_accountant"].items()):
        if name not in least:
            raise _disagrees(where, f"the accountant {name} is of no use under {other['adjacency']}")
        if stated < least[name] * (1 - _ACCURACY):
            raise _disagrees(where, f"it states epsilon {stated:.6g} by {name} under {other['adjacency']}, and the "
                                    f"charges cost at least {least[name]:.6g}")


def _disagrees(where: Any, why: str) -> LedgerError:
    return LedgerError(f"{where} does not follow from what was charged: {why}. It was altered, or is of another run; "
                       "`datalens train --resume` writes the run's own statement again.")
