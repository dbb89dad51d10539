"""`datalens privacy`: what releases cost."""

from __future__ import annotations

import argparse
import dataclasses
import json
import pathlib
import sys
from typing import Any

from etils import epy

from datalens_tf import _validate
from datalens_tf.cli import common, running
from datalens_tf.cli.parser import Command, Parser, add_settings, given_settings
from datalens_tf.config import ACCOUNTANTS, MethodConfig, VotingConfig
from datalens_tf.errors import InvalidArgumentError
from datalens_tf.facts import DataFacts
from datalens_tf.methods import registry
from datalens_tf.settings import declared

with epy.lazy_imports():
    import dp_accounting

    from datalens_tf.accounting import accountants as prices
    from datalens_tf.accounting import ledger as ledgers
    from datalens_tf.accounting import statement as statements
    from datalens_tf.methods import embedding, sums
    from datalens_tf.planning import pricing, tf_privacy

# Questions about settings are about those of the default method.
_OF_ALL = ("epsilon", "delta", "adjacency")
_PRIVACY = ("top_k", "noise_stddev", "batch_size", "num_steps", *_OF_ALL)
_STATED = registry.STATED


def _add_privacy_arguments(parser: Parser) -> None:
    parser.add_argument("--preset", metavar="NAME", help=common.preset_help())
    parser.add_argument("--method", metavar="NAME", help=f"a method other than {registry.DEFAULT}: its price for "
                        "replaced, and for added or removed records")
    parser.add_argument("--num_records", type=int, metavar="N", help="public number of records, or bound on it, for "
                        f"what depends on it (default: {_STATED.num_records})")
    parser.add_argument("--accountant", dest="accountants", choices=("all", *ACCOUNTANTS), default="all",
                        help=f"all (the default), {', '.join(ACCOUNTANTS)}")
    parser.add_argument("--ledger", dest="ledgers", action="append", default=[], metavar="FILE",
                        help="a run's ledger or run folder; several: what they cost together, if they are about the "
                             "same records")
    parser.add_argument("--tensorflow_privacy", action="store_true", default=False,
                        help="of one --ledger: print what TensorFlow Privacy states, beside rdp")
    parser.add_argument("--json", action="store_true", default=False, help="print JSON instead of tables")
    add_settings(parser, registry.config_class(registry.DEFAULT), _PRIVACY)


def _privacy(args: argparse.Namespace) -> None:
    """`datalens privacy`."""
    kind = registry.config_class(registry.DEFAULT)
    accountants = ACCOUNTANTS if args.accountants == "all" else (args.accountants,)
    if args.ledgers:
        others = {name for name in ("preset", *given_settings(args, kind)) if hasattr(args, name)} - {"delta"}
        if others:
            raise InvalidArgumentError(f"Expected --ledger without --{min(others)}: ledgers hold "
                                       "what was spent; only --delta can be chosen.")
        # A run folder stands for the ledger in it.
        paths = [path / "ledger.jsonl" if path.is_dir() else path for path in map(pathlib.Path, args.ledgers)]
        if args.tensorflow_privacy:
            print(_compared(paths, getattr(args, "delta", None)))
            return
        report = pricing.composition_report([ledgers.PrivacyLedger.read(path) for path in paths],
                                            getattr(args, "delta", None), accountants)
        print(json.dumps(report, indent=2) if args.json else pricing.render_composition(report))
        for path in map(pathlib.Path, args.ledgers):
            if (text := running.unfinished(path)) is not None:
                print(f"datalens: warning: {text}", file=sys.stderr)
        return
    if args.tensorflow_privacy:
        raise InvalidArgumentError("Expected --tensorflow_privacy with --ledger: it is about what was charged.")
    if getattr(args, "method", registry.DEFAULT) != registry.DEFAULT:
        report = _neighbours_report(*_resolved(args), accountants)
        print(json.dumps(report, indent=2) if args.json else _neighbours_text(report))
        return
    if hasattr(args, "num_records"):
        raise InvalidArgumentError(f"Expected --num_records with another method, for example --method "
                                   f"{registry.usual()[0]}: what a step of {registry.DEFAULT} costs does not depend on "
                                   "it.")
    if not any(hasattr(args, name) for name in ("preset", "epsilon", "num_steps")):
        raise InvalidArgumentError("Missing --preset, --epsilon, --num_steps or --ledger: say what to account "
                                   "for, for example --preset mnist.")
    given = given_settings(args, kind)
    config = (common.preset_config(args) if hasattr(args, "preset") else kind()).replace(**given)
    if not isinstance(config, VotingConfig):
        raise InvalidArgumentError(f"Expected a method with teachers to account for, got {config.method}.")
    # The question is about a budget if one is given, or if nothing else is.
    budget = config.epsilon if "epsilon" in given or "num_steps" not in given else None
    report = pricing.privacy_report(config, budget, accountants)
    print(json.dumps(report, indent=2) if args.json else pricing.render_tables(report))


def _compared(paths: list[pathlib.Path], delta: float | None) -> str:
    """TensorFlow Privacy's statement about a ledger, and its epsilon beside that of `rdp`."""
    if len(paths) > 1:
        raise InvalidArgumentError(f"Expected one --ledger with --tensorflow_privacy, got {len(paths)}.")
    ledger = ledgers.PrivacyLedger.read(paths[0])
    report = pricing.composition_report([ledger], delta, ("rdp",))
    if not report["private"]:
        return pricing.render_composition(report)
    stated, text = tf_privacy.statement(ledger.charges, report["delta"])
    sampled = isinstance(ledger.charges[0].unit, dp_accounting.PoissonSampledDpEvent)
    adjacency = report["adjacency"]
    if sampled:  # It knows no replaced record in a sample.
        adjacency = "add-or-remove-one-user" if adjacency.endswith("-user") else "add-or-remove-one"
    own = prices.epsilon_of([charge.event for charge in ledger.charges], report["delta"], "rdp", adjacency)
    return (f"{text}\nTensorFlow Privacy: epsilon {stated:.3f}. rdp here: {prices.round_up(own)}, {adjacency}, for the "
            f"{report['num_charges']} charges of {paths[0]}.")


def _resolved(args: argparse.Namespace) -> tuple[MethodConfig, DataFacts]:
    """The settings of the method that is asked about, and the data that they are for."""
    kind = registry.config_class(args.method)
    given = given_settings(args, kind)
    for name in (*_PRIVACY, "preset"):
        if hasattr(args, name) and name not in _OF_ALL:
            raise InvalidArgumentError(f"Expected --method={args.method} without --{name}: leave it out.")
    if kind.adjacency == "none":
        raise InvalidArgumentError(f"Expected a method that is private to account for, got {args.method}.")
    facts = dataclasses.replace(_STATED, num_records=getattr(args, "num_records", _STATED.num_records))
    _validate.integer("num_records", facts.num_records, at_least=1)
    if given.get("adjacency", kind.adjacency) == "add-or-remove-one" and "records_at_most" in declared(kind):
        given["records_at_most"] = facts.num_records
    config = kind.for_data(facts, given.get("epsilon", 1.0), given)
    config = config.replace(image_shape=facts.image_shape, num_classes=facts.num_classes)
    return config.resolved(facts.num_records), facts


def _neighbours_report(config: MethodConfig, facts: DataFacts, accountants: tuple[str, ...]) -> dict[str, Any]:
    """Prices of a method's plan for each neighbouring relation that they are known for."""
    if isinstance(config, embedding.EmbeddingConfig):
        found = {name: sums.prices_of_plan(config, name) for name in config.ADJACENCIES}
    else:
        event, count = config.step_event(), _validate.known("num_steps", config.num_steps)
        found = {config.adjacency: {name: prices.epsilon(event, count, config.delta, name, config.adjacency)
                                    for name in prices.applicable(event)}}
        steps = ledgers.Charge(
            index=0, step=None, event=dp_accounting.SelfComposedDpEvent(event, count), count=count)
        if other := statements.price_for_others([steps], config.delta, config.adjacency).get("other_adjacency"):
            found[other["adjacency"]] = other["epsilon_by_accountant"]
    _validate.require(any(name in accountants for name in found[config.adjacency]), "accountant",
                      ", ".join(accountants), f"to price a step of {config.method}; use rdp or pld")
    own = [config.adjacency, *(name for name in found if name != config.adjacency and found[name])]
    return {
        "method": config.method, "epsilon_budget": config.epsilon, "delta": config.delta,
        "num_records": facts.num_records, "adjacency": config.adjacency, "prices": [
            {"adjacency": name, "is_guarantee": sums.is_guaranteed(config, name),
             "epsilon": {accountant: value for accountant, value in found[name].items() if accountant in accountants}}
            for name in own]}


def _neighbours_text(report: dict[str, Any]) -> str:
    """The report as text; numbers are rounded up."""
    lines = [f"{report['method']}, its noise made for {report['adjacency']}, epsilon {report['epsilon_budget']:g} and "
             f"delta {report['delta']:g}, where n = {report['num_records']:,} is public or a public bound"]
    for row in report["prices"]:
        by = ", ".join(f"{prices.round_up(value)} ({name})" for name, value in row["epsilon"].items())
        means = "a guarantee" if row["is_guarantee"] else (
            "a comparison figure, no guarantee: the run publishes n")
        lines.append(f"{row['adjacency']}: epsilon {by}; {means}")
    return "\n".join(lines)


COMMANDS = {"privacy": Command(_add_privacy_arguments, _privacy)}
