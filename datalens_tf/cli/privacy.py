"""`datalens privacy` and `audit`: what releases cost, and what attacks on them find."""

import argparse
import dataclasses
import functools
import json
import os
import pathlib
import sys
from collections.abc import Callable
from typing import Any

from datalens_tf import _files
from datalens_tf.cli.common import (
    DATA_DIR_HELP,
    PRESET_HELP,
    add_fields,
    data_of_run,
    given_fields,
    one_core_per_operation,
    preset_config,
    stored_config,
)
from datalens_tf.config import ACCOUNTANTS, PerformanceOptions
from datalens_tf.errors import DataLensError, InvalidArgumentError
from datalens_tf.methods.datalens import DataLensConfig


def add_commands(command: Callable) -> None:
    """Adds the commands' parsers, which `command` makes from a name, a function and a text."""
    privacy = command("privacy", _privacy, "account for privacy without training")
    privacy.add_argument("--preset", metavar="NAME", help=PRESET_HELP)
    add_fields(privacy, DataLensConfig, ("top_k", "noise_stddev", "batch_size", "num_steps", "epsilon", "delta"))
    privacy.add_argument("--accountant", dest="accountants", choices=("all", *ACCOUNTANTS), default="all",
                         help=f"all (the default), {', '.join(ACCOUNTANTS)}")
    privacy.add_argument("--ledger", dest="ledgers", action="append", default=[], metavar="FILE",
                         help="a run's ledger or run folder; several: what they cost together, if they are about the "
                              "same records")
    privacy.add_argument("--json", action="store_true", default=False, help="print JSON instead of tables")

    audit = command("audit", _audit, "attack the releases of a run, and bound its epsilon from below")
    audit.add_argument("--run_dir", default=None, help="take the settings of this run")
    audit.add_argument("--preset", metavar="NAME", help=PRESET_HELP)
    add_fields(audit, DataLensConfig, ("num_teachers", "top_k", "noise_stddev", "batch_size", "num_steps", "epsilon",
                                        "delta", "allow_large_delta", "warmup_teacher_steps"))
    audit.add_argument("--train", action="store_true", default=False,
                       help="also train a run with canaries among the records, and attack it and its generator; takes "
                            "three times as long as the run, which is in audited_run of the output folder and can be "
                            "deleted afterwards")
    audit.add_argument("--data_dir", default=None, help=DATA_DIR_HELP)
    audit.add_argument("--trials", type=int, default=1000, help="runs in each of two neighbouring worlds")
    audit.add_argument("--num_canaries", type=int, default=None,
                       help="of the attack on one run; by default 1,000, or as many as there are teachers")
    audit.add_argument("--confidence", type=float, default=0.95, help="of the bound")
    audit.add_argument("--output_dir", default=None,
                       help="folder of audit.json; by default the run folder, with --train its private/evaluation")


def _privacy(args: argparse.Namespace) -> None:
    """`datalens privacy`."""
    accountants = ACCOUNTANTS if args.accountants == "all" else (args.accountants,)
    if args.ledgers:
        needless = {name for name in ("preset", *given_fields(args, DataLensConfig)) if hasattr(args, name)} - {"delta"}
        if needless:
            raise InvalidArgumentError(f"Expected --ledger without --{needless.pop()}: ledgers hold "
                                       "what was spent; only --delta can be chosen.")

        from datalens_tf.accounting.ledger import PrivacyLedger
        from datalens_tf.planning.pricing import composition_report, render_composition

        # A run folder stands for the ledger in it.
        paths = [path / "ledger.jsonl" if path.is_dir() else path for path in map(pathlib.Path, args.ledgers)]
        report = composition_report([PrivacyLedger.read(path) for path in paths], getattr(args, "delta", None),
                                    accountants)
        print(json.dumps(report, indent=2) if args.json else render_composition(report))
        return
    if not any(hasattr(args, name) for name in ("preset", "epsilon", "num_steps")):
        raise InvalidArgumentError("Expected --preset, --epsilon, --num_steps or --ledger: what to account for.")
    given = given_fields(args, DataLensConfig)
    config = (preset_config(args) if hasattr(args, "preset") else DataLensConfig()).replace(**given)
    # A budget is asked about when it is given, or nothing else is.
    budget = config.epsilon if "epsilon" in given or "num_steps" not in given else None

    from datalens_tf.planning.pricing import privacy_report, render_tables

    report = privacy_report(config, budget, accountants)
    print(json.dumps(report, indent=2) if args.json else render_tables(report))


def _audit(args: argparse.Namespace) -> None:
    """`datalens audit`."""
    folder = pathlib.Path(args.run_dir) if args.run_dir else None
    if folder is None and not hasattr(args, "preset"):
        raise InvalidArgumentError("Expected --run_dir or --preset: the settings to audit.")
    config = stored_config(folder) if folder else preset_config(args)
    if not isinstance(config, DataLensConfig):
        raise InvalidArgumentError(f"Expected a run of the method datalens to audit, got one of {config.method}.")
    config = config.replace(**given_fields(args, DataLensConfig))

    from datalens_tf.training.results import make_results_folder

    if args.train and folder and args.output_dir is None:  # It looks at records.
        target = make_results_folder(folder)
    else:
        target = pathlib.Path(args.output_dir or folder or ".")
    with _files.clear_os_errors(target):
        target.mkdir(parents=True, exist_ok=True)

    import tqdm

    from datalens_tf.auditing.releases import audit_releases, with_training

    count = min(1000, config.num_teachers) if args.num_canaries is None else args.num_canaries
    # Each half of the audit may be wrong with half of the probability.
    confidence = 1 - (1 - args.confidence) / 2 if args.train else args.confidence
    shown = functools.partial(tqdm.tqdm, disable=not sys.stderr.isatty(), leave=False)
    report = audit_releases(config, trials=args.trials, num_canaries=count, confidence=confidence, progress=shown)
    if args.train:
        training = _audited_training(args, config, target / "audited_run", count, confidence, shown)
        report = with_training(report, training)
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


def _audited_training(args: argparse.Namespace, config: DataLensConfig, folder: pathlib.Path, num_canaries: int,
                      confidence: float, progress: Callable) -> dict[str, Any]:
    """Trains a run with canaries in the folder, and attacks it."""
    from datalens_tf.auditing.canaries import audit_training
    from datalens_tf.data.datasets import with_data
    from datalens_tf.data.registry import load_dataset
    from datalens_tf.training.callbacks import Progress

    one_core_per_operation(os.cpu_count() or 1)
    place = config.dataset if args.run_dir is None else data_of_run(pathlib.Path(args.run_dir), config.dataset)[0]
    loaded = load_dataset(place, data_dir=args.data_dir, classes=config.classes)
    dataset = dataclasses.replace(loaded, name=config.dataset)
    config = with_data(config, dataset)
    shown = Progress(config.epsilon)
    try:
        return audit_training(config, dataset, folder, num_canaries=num_canaries, confidence=confidence,
                              options=PerformanceOptions(num_threads=os.cpu_count()), callbacks=[shown],
                              progress=progress)
    finally:
        shown.on_end()
