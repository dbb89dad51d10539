"""The command `datalens pate-classify`."""

from __future__ import annotations

import argparse
import dataclasses
import json
import pathlib
import sys

from etils import epy

from datalens_tf import _files
from datalens_tf.classification.pate_config import PateClassifierConfig
from datalens_tf.cli import common, running
from datalens_tf.cli.parser import Command, Parser, add_settings, given_settings
from datalens_tf.errors import CheckpointError, InvalidArgumentError
from datalens_tf.methods import runs
from datalens_tf.settings import declared

with epy.lazy_imports():
    import numpy as np

    from datalens_tf.accounting import accountants
    from datalens_tf.classification import budgets as budget_files
    from datalens_tf.classification import pate
    from datalens_tf.data import registry as data_registry
    from datalens_tf.evaluation import student
    from datalens_tf.training import progress, results, run_folder


def _add_arguments(parser: Parser) -> None:
    common.add_run_arguments(parser)
    common.add_picture_arguments(parser, unlabelled=False)
    parser.add_argument("--budgets", default=None, metavar="LIST",
                        help="public epsilons: EPSILON:SHARE,... such as 1:0.5,3:0.5; or FILE.npy")
    # Its teachers are for one neighbouring relation only.
    add_settings(parser, PateClassifierConfig, set(declared(PateClassifierConfig)) - {"adjacency"}, brief=True)
    common.add_auto_delta(
        parser, f"Privacy budget delta, or auto: below 1/n. (default: {PateClassifierConfig.delta:g})")


def _pate_classify(args: argparse.Namespace) -> None:
    """Teachers on the train split, queries from the test split, whose other records are tested on."""
    folder = pathlib.Path(args.output_dir)
    with running.interruptible(args, "pate-classify", folder), running.shown(args, folder) as shown:
        texts = _trained(args, folder, shown)
    print("\n".join(texts))


def _trained(args: argparse.Namespace, folder: pathlib.Path, shown: progress.Progress) -> list[str]:
    """Trains or continues a run, and tests it; returns the lines to print."""
    given = common.without_auto_delta(given_settings(args, PateClassifierConfig))
    config = _config(folder, given, args.resume)
    if config.dataset == "arrays":
        raise InvalidArgumentError("Missing --dataset: name the data, for example --dataset mnist.")
    if args.resume:
        place, _ = runs.data_of_run(folder, config.dataset)
    else:
        place = data_registry.located(config.dataset)
        config = config.replace(dataset=data_registry.public_name(place, args.data_name))

    pictures = common.pictures_of(args, config)

    def load(split):
        loaded = data_registry.load_dataset(place, data_dir=args.data_dir, split=split, classes=config.classes,
                                            pictures=pictures, unit=config.unit)
        return dataclasses.replace(loaded, name=config.dataset)

    dataset = load("train")
    config = common.with_auto_delta(args, config, dataset.num_units)
    queries, test = pate.split_queries(load("test"), config)
    if args.budgets is None:
        stored = folder / "budgets.npz"
        budgets = _stored_budgets(stored, dataset.num_units) if args.resume and stored.exists() else None
    elif args.budgets.endswith(".npy"):
        budgets = _read_budgets(args.budgets, dataset.num_units)
    else:
        budgets = budget_files.deal_budgets(
            budget_files.read_shares(args.budgets), dataset.num_units, config.partition_seed)
    if not args.resume:
        run_folder.RunFolder(folder).create()
        runs.write_sources(folder, {"dataset": place})
        common.say_defaults(args, place)
        common.write_unreadable(folder, config.skip_unreadable, dataset)
    shown.epsilon = config.epsilon
    result = pate.train_pate(config, dataset, queries, folder, budgets=budgets,
                             progress=lambda partitions: shown.watched(partitions, "teachers"))
    shown.on_stage("test")
    found = student.evaluate_student(result.student, test)
    found["labelled_queries"] = int(np.sum(result.labels >= 0))
    measured = results.make_results_folder(folder)
    _files.atomic_write(measured / "student.json", json.dumps(found, indent=2) + "\n")
    try:
        _files.atomic_write(measured / "roc.png", student.roc_picture(found))
    except ImportError:
        print("roc.png needs matplotlib: pip install 'datalens_tf[eval]'", file=sys.stderr)
    statement = result.statement
    texts = [statement["title"]]
    if statement["private"]:
        texts = [f"epsilon {accountants.round_up(row['epsilon'])} ({statement['accountant']}), "
                 f"delta {statement['delta']:g}: {row['num_records']} "
                 f"{'records' if config.unit is None else 'units'} with {row['record_votes']} of "
                 f"{statement['num_votes']} votes" for row in statement["epsilon_by_budget"]]
    return [*texts, f"{found['labelled_queries']} of {config.num_queries} public queries labelled",
            f"accuracy {found['accuracy']:.4f}, AUROC {found['auroc_macro']:.4f} on {found['num_test']} other test "
            f"records of {config.dataset}", f"statement {folder / 'privacy.txt'}"]


def _config(folder: pathlib.Path, given: dict, resume: bool) -> PateClassifierConfig:
    """The settings of the flags, or those of the run to be continued."""
    stored = folder / "config.json"
    if not resume:
        if stored.exists():
            raise CheckpointError(f"{folder} holds a run already: continue it with --resume, or choose another folder.")
        runs.check_unused(folder)
        return PateClassifierConfig(**given)
    if given:
        raise InvalidArgumentError(f"Expected --resume without --{min(given)}: the run has its own settings.")
    try:
        return PateClassifierConfig.from_json(stored.read_text(encoding="utf-8"))
    except (OSError, UnicodeDecodeError) as error:
        raise CheckpointError(f"{folder} holds no run of pate-classify to continue.") from error


def _stored_budgets(path: pathlib.Path, num_records: int) -> np.ndarray:
    """Budgets that a run began with."""
    try:
        return _files.read_npz(path, _files.exactly({"budgets": np.zeros(num_records)}))["budgets"]
    except (OSError, ValueError) as error:
        raise CheckpointError(f"Damaged {path}, the budgets of the run: {error}. Restore it from a copy.") from error


def _read_budgets(path: str, num_records: int) -> np.ndarray:
    """One number per record."""
    try:
        budgets = np.load(path, mmap_mode="r", allow_pickle=False)  # So far, only the file's header is read.
        if budgets.shape != (num_records,) or budgets.dtype.kind not in "iuf":
            raise ValueError(f"expected {num_records} numbers, one for each record, got "
                             f"{_files.ArrayHeader.of(budgets)}")
        return np.array(budgets)
    except (OSError, ValueError, AttributeError) as error:
        raise InvalidArgumentError(f"Expected budgets={path!r} to be a NumPy file of numbers: {error}.") from error


COMMANDS = {"pate-classify": Command(_add_arguments, _pate_classify)}
