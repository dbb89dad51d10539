"""`datalens privacy` and `audit`: what releases cost, and what attacks on them find."""

from __future__ import annotations

import argparse
import dataclasses
import json
import os
import pathlib
import sys
from typing import Any

from etils import epy

from datalens_tf import _files, _validate
from datalens_tf.cli import common, running
from datalens_tf.cli.parser import Command, Parser, add_settings, given_settings
from datalens_tf.config import ACCOUNTANTS, DataFacts, MethodConfig, PerformanceOptions, VotingConfig
from datalens_tf.errors import DataLensError, InvalidArgumentError
from datalens_tf.methods import registry, runs
from datalens_tf.settings import declared

with epy.lazy_imports():
    from datalens_tf.accounting import accountants as prices
    from datalens_tf.accounting import ledger as ledgers
    from datalens_tf.accounting import statement as statements
    from datalens_tf.auditing import canaries, releases
    from datalens_tf.data import datasets
    from datalens_tf.data import registry as data_registry
    from datalens_tf.methods import embedding, sums
    from datalens_tf.planning import pricing
    from datalens_tf.training import progress, results

# What is asked about settings is about those of the default method.
_OF_ALL = ("epsilon", "delta", "adjacency")
_PRIVACY = ("top_k", "noise_stddev", "batch_size", "num_steps", *_OF_ALL)
_STATED = DataFacts(num_records=60_000, image_shape=(28, 28, 1), num_classes=10)  # where nothing else is said
_AUDIT = ("num_teachers", *_PRIVACY[:-1], "allow_large_delta", "warmup_teacher_steps")


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
    parser.add_argument("--json", action="store_true", default=False, help="print JSON instead of tables")
    add_settings(parser, registry.config_class(registry.DEFAULT), _PRIVACY)


def _add_audit_arguments(parser: Parser) -> None:
    parser.add_argument("--run_dir", default=None, help="take the settings of this run")
    parser.add_argument("--preset", metavar="NAME", help=common.preset_help())
    parser.add_argument("--train", action="store_true", default=False,
                        help="also train a run with canaries among the records, and attack it and its generator; takes "
                             "three times as long as the run, which is in audited_run of the output folder and can be "
                             "deleted afterwards")
    parser.add_argument("--data_dir", default=None, help=common.DATA_DIR_HELP)
    parser.add_argument("--trials", type=int, default=1000, help="runs in each of two neighbouring worlds")
    parser.add_argument("--num_canaries", type=int, default=None,
                        help="of the attack on one run; by default 1,000, or as many as there are teachers")
    parser.add_argument("--confidence", type=float, default=0.95, help="of the bound")
    parser.add_argument("--output_dir", default=None,
                        help="folder of audit.json; by default the run folder, with --train its private/evaluation")
    running.add_progress_arguments(parser)
    add_settings(parser, registry.config_class(registry.DEFAULT), _AUDIT)


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
        report = pricing.composition_report([ledgers.PrivacyLedger.read(path) for path in paths],
                                            getattr(args, "delta", None), accountants)
        print(json.dumps(report, indent=2) if args.json else pricing.render_composition(report))
        for path in map(pathlib.Path, args.ledgers):
            if (text := running.unfinished(path)) is not None:
                print(f"datalens: warning: {text}", file=sys.stderr)
        return
    if getattr(args, "method", registry.DEFAULT) != registry.DEFAULT:
        report = _neighbours_report(*_resolved(args), accountants)
        print(json.dumps(report, indent=2) if args.json else _neighbours_text(report))
        return
    if not any(hasattr(args, name) for name in ("preset", "epsilon", "num_steps")):
        raise InvalidArgumentError("Missing --preset, --epsilon, --num_steps or --ledger: say what to account "
                                   "for, for example --preset mnist.")
    given = given_settings(args, kind)
    config = (common.preset_config(args) if hasattr(args, "preset") else kind()).replace(**given)
    if not isinstance(config, VotingConfig):
        raise InvalidArgumentError(f"Expected a method with teachers to account for, got {config.method}.")
    # A budget is asked about when it is given, or nothing else is.
    budget = config.epsilon if "epsilon" in given or "num_steps" not in given else None
    report = pricing.privacy_report(config, budget, accountants)
    print(json.dumps(report, indent=2) if args.json else pricing.render_tables(report))


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
    own = [config.adjacency, *(name for name in found if name != config.adjacency)]
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
        by = ", ".join(f"{statements.round_up(value)} ({name})" for name, value in row["epsilon"].items())
        means = "a guarantee" if row["is_guarantee"] else (
            "a comparison figure, no guarantee: the run publishes n")
        lines.append(f"{row['adjacency']}: epsilon {by}; {means}")
    return "\n".join(lines)


def _audit(args: argparse.Namespace) -> None:
    """`datalens audit`."""
    kind = registry.config_class(registry.DEFAULT)
    folder = pathlib.Path(args.run_dir) if args.run_dir else None
    if folder is None and not hasattr(args, "preset"):
        raise InvalidArgumentError("Missing --run_dir or --preset: say what to audit, for example --preset mnist.")
    config = runs.stored_config(folder) if folder else common.preset_config(args)
    if not (isinstance(config, kind) and isinstance(config, VotingConfig)):
        raise InvalidArgumentError(f"Expected a run of the method {registry.DEFAULT} to audit, got one of "
                                   f"{config.method}.")
    config = config.replace(**given_settings(args, kind))

    if args.train and folder and args.output_dir is None:  # It looks at records.
        target = results.make_results_folder(folder)
    else:
        target = pathlib.Path(args.output_dir or folder or ".")
    with _files.clear_os_errors(target):
        target.mkdir(parents=True, exist_ok=True)

    count = min(1000, config.num_teachers) if args.num_canaries is None else args.num_canaries
    # Each half of the audit may be wrong with half of the probability.
    confidence = 1 - (1 - args.confidence) / 2 if args.train else args.confidence
    with running.shown(args) as shown:
        shown.epsilon = config.epsilon
        names = iter(("runs in two worlds", "one run with canaries"))
        report = releases.audit_releases(config, trials=args.trials, num_canaries=count, confidence=confidence,
                                         progress=lambda values: shown.watched(values, next(names)))
        if args.train:
            training = _audited_training(args, config, target / "audited_run", count, confidence, shown)
            report = releases.with_training(report, training)
    _files.atomic_write(target / "audit.json", json.dumps(report, indent=2) + "\n")
    print(f"{report['verdict']}\n{args.confidence:.0%} confidence; many runs: {report['many_runs']['epsilon']:.4f}, "
          f"one run with {count} canaries: {report['one_run']['epsilon']:.4f}")
    if args.train:
        found = report["training"]
        print(f"a trained run with {count} canaries: from its releases {found['releases']['epsilon']:.4f}, from its "
              f"generator {found['generator']['epsilon']:.4f}\n{found['num_teachers_disturbed']} of "
              f"{found['num_teachers']} teachers depend on records of others; a record changed a step's votes by "
              f"{found['largest_change']:.1f}, of {found['sensitivity']:.1f} that are charged for\n"
              f"{found['privacy_note']}")
    print(target / "audit.json")
    if report["verdict"].startswith("CAUGHT"):
        raise DataLensError("The audit caught a mechanism that is less private than it claims.")


def _audited_training(args: argparse.Namespace, config: VotingConfig, folder: pathlib.Path, num_canaries: int,
                      confidence: float, shown: progress.Progress) -> dict[str, Any]:
    """Trains a run with canaries in the folder, and attacks it."""
    common.one_core_per_operation(os.cpu_count() or 1)
    place = config.dataset
    if args.run_dir is not None:
        place, _ = runs.data_of_run(pathlib.Path(args.run_dir), config.dataset)
    loaded = data_registry.load_dataset(place, data_dir=args.data_dir, classes=config.classes,
                                        pictures=common.pictures(args, place, config.image_shape,
                                                                 num_classes=config.num_classes,
                                                                 skip_unreadable=config.skip_unreadable),
                                        unit=config.unit)
    dataset = dataclasses.replace(loaded, name=config.dataset)
    config = datasets.with_data(config, dataset)
    return canaries.audit_training(
        config, dataset, folder, num_canaries=num_canaries, confidence=confidence,
        options=PerformanceOptions(num_threads=os.cpu_count()), callbacks=[shown],
        progress=lambda values: shown.watched(values, "train again"))


COMMANDS = {"privacy": Command(_add_privacy_arguments, _privacy), "audit": Command(_add_audit_arguments, _audit)}
