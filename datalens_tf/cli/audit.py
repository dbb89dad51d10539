"""`datalens audit`: attacks on a run's method, and what they show beside what is claimed."""

from __future__ import annotations

import argparse
import dataclasses
import json
import os
import pathlib

from etils import epy

from datalens_tf import _files
from datalens_tf.classification.classifier_config import ClassifierConfig
from datalens_tf.cli import common, running
from datalens_tf.cli.parser import Command, Parser, add_settings
from datalens_tf.config import RunConfig
from datalens_tf.errors import CheckpointError, DataLensError, InvalidArgumentError
from datalens_tf.methods import registry, runs
from datalens_tf.settings import declared

with epy.lazy_imports():
    from datalens_tf.auditing import families
    from datalens_tf.auditing import findings as audit_findings
    from datalens_tf.data import datasets
    from datalens_tf.data import registry as data_registry
    from datalens_tf.training import results

_SETTINGS = ("num_teachers", "top_k", "noise_stddev", "batch_size", "num_steps", "epsilon", "delta",
             "allow_large_delta", "warmup_teacher_steps")


def _add_arguments(parser: Parser) -> None:
    parser.add_argument("--run_dir", default=None, help="take the settings of this run, or classifier")
    parser.add_argument("--preset", metavar="NAME", help=common.preset_help())
    parser.add_argument("--method", metavar="NAME",
                        help=f"of the preset (default: {registry.DEFAULT}); not every method has an audit")
    parser.add_argument("--train", action="store_true", default=False,
                        help="also train a run on the records, with canaries among them where the method has many "
                             "steps, and attack it; it is in audited_run of the output folder and can be deleted "
                             "afterwards")
    parser.add_argument("--data_dir", default=None, help=common.DATA_DIR_HELP)
    parser.add_argument("--trials", type=int, default=1000, help="releases in each of two neighbouring worlds")
    parser.add_argument("--num_canaries", type=int, default=None,
                        help="of the attack on one run; by default 1,000, or as many as there is room for")
    parser.add_argument("--confidence", type=float, default=0.95, help="of all bounds together")
    parser.add_argument("--output_dir", default=None,
                        help="folder of audit.json; by default the run folder, with --train its private/evaluation")
    running.add_progress_arguments(parser)
    add_settings(parser, registry.config_class(registry.DEFAULT), _SETTINGS)


def _audit(args: argparse.Namespace) -> None:
    folder = pathlib.Path(args.run_dir) if args.run_dir else None
    config = _config(args, folder)
    families.check(config)
    count = args.num_canaries
    teachers = getattr(config, "num_teachers", None)
    if count is not None and teachers is not None and count > teachers:
        raise InvalidArgumentError(f"Expected num_canaries={count} <= {teachers}, the number of teachers.")
    effort = families.Effort(trials=args.trials, num_canaries=1000 if count is None else count,
                             confidence=args.confidence)
    target = _target(args, folder)
    with running.shown(args) as shown:
        shown.epsilon = config.epsilon
        records = _records(args, config, folder) if args.train or _needs_data(config) else None
        if getattr(config, "holdout", 0.0):  # `_records` leaves these records out; the audit has no others.
            config = config.replace(holdout=0.0)
        if records is not None:
            config = datasets.with_data(config, records).resolved(config.known_records(len(records)))
        report = families.audit(
            config, dataclasses.replace(effort, callbacks=[shown], watched=shown.watched),
            records=records if args.train else None, run_dir=target / "audited_run" if args.train else None)
    with _files.clear_os_errors(target):
        target.mkdir(parents=True, exist_ok=True)
    _files.atomic_write(target / "audit.json", json.dumps(report, indent=2) + "\n")
    print(audit_findings.render(report), target / "audit.json", sep="\n")
    if report["verdict"].startswith(audit_findings.CAUGHT):
        raise DataLensError("The audit caught a mechanism that is less private than it claims.")


def _config(args: argparse.Namespace, folder: pathlib.Path | None) -> RunConfig:
    """Settings of the run or the preset, changed by those that the flags give."""
    if folder is None and not hasattr(args, "preset"):
        raise InvalidArgumentError("Missing --run_dir or --preset: say what to audit, for example --preset mnist.")
    if folder is not None and hasattr(args, "method"):
        raise InvalidArgumentError("Expected --method with --preset: a run has the method that it was made by.")
    config = common.preset_config(args) if folder is None else _stored(folder)
    given = {name: getattr(args, name) for name in _SETTINGS if hasattr(args, name)}
    foreign = sorted(set(given) - set(declared(type(config))))
    if foreign:
        raise InvalidArgumentError(f"Expected no --{foreign[0]}: it is no setting of the method {config.method}.")
    return config.replace(**given)


def _stored(folder: pathlib.Path) -> RunConfig:
    """Settings of a run, or of a classifier, whose networks are where its private folder says."""
    path = folder / "config.json"
    try:
        text = path.read_text(encoding="utf-8")
        if _files.parse_json(text).get("method") != ClassifierConfig.method:
            return runs.stored_config(folder)
        networks = {name: place for name, place in runs.read_sources(folder).items() if name in ("model", "features")}
        return ClassifierConfig.from_json(text).replace(**networks)
    except (OSError, ValueError, AttributeError, InvalidArgumentError) as error:
        raise CheckpointError(f"Cannot read {path}, the settings of a run: {error}") from error


def _needs_data(config: RunConfig) -> bool:
    """Whether the settings lack public facts about the data; settings of votes are audited without these."""
    return config.image_shape is None and not hasattr(config, "num_teachers")


def _target(args: argparse.Namespace, folder: pathlib.Path | None) -> pathlib.Path:
    """Folder of the report."""
    if args.train and folder and args.output_dir is None:  # The audit then looks at records.
        return results.make_results_folder(folder)
    return pathlib.Path(args.output_dir or folder or ".")


def _records(args: argparse.Namespace, config: RunConfig, folder: pathlib.Path | None) -> datasets.Dataset:
    """The records of the run, or of the preset."""
    common.one_core_per_operation(os.cpu_count() or 1)
    place = config.dataset if folder is None else runs.data_of_run(folder, config.dataset)[0]
    loaded = data_registry.load_dataset(place, data_dir=args.data_dir, classes=config.classes,
                                        pictures=common.pictures_of(args, config))
    loaded, _ = datasets.hold_out(loaded, getattr(config, "holdout", 0.0))
    return dataclasses.replace(loaded, name=config.dataset)


COMMANDS = {"audit": Command(_add_arguments, _audit)}
