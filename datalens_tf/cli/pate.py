"""The command `datalens pate-classify`."""

import argparse
import dataclasses
import functools
import json
import pathlib
import sys
from collections.abc import Callable

import numpy as np

from datalens_tf import _files, _text
from datalens_tf.accounting.statement import round_up
from datalens_tf.classification.pate_config import PateClassifierConfig
from datalens_tf.cli.common import (
    DATA_DIR_HELP,
    DATA_NAME_HELP,
    add_fields,
    data_name,
    data_of_run,
    given_fields,
    located,
    write_sources,
)
from datalens_tf.errors import CheckpointError, InvalidArgumentError
from datalens_tf.settings import declared


def add_commands(command: Callable) -> None:
    """Adds the command's parser, which `command` makes from a name, a function and a text."""
    parser = command("pate-classify", _pate_classify,
                     "train a classifier by PATE: teachers on sensitive records label public images")
    parser.add_argument("--output_dir", required=True, help="the run folder")
    parser.add_argument("--resume", action="store_true", default=False,
                        help="continue the run in --output_dir, with its own settings")
    parser.add_argument("--data_dir", default=None, help=DATA_DIR_HELP)
    parser.add_argument("--data_name", type=data_name, default=None, metavar="NAME", help=DATA_NAME_HELP)
    parser.add_argument("--budgets", default=None, metavar="EPSILON:SHARE,...|FILE.npy",
                        help="of the records, for --individualization: 1:0.5,3:0.5 gives half of them, dealt by a "
                             "public seed, an epsilon of 1 and the others 3; a file has the epsilon of each record. "
                             "Public")
    add_fields(parser.add_argument_group("settings"), PateClassifierConfig,
               set(declared(PateClassifierConfig)) - {"method"})


def _pate_classify(args: argparse.Namespace) -> None:
    """Teachers on the train split, queries from the test split, whose other records are tested on."""
    given = given_fields(args, PateClassifierConfig)
    folder = pathlib.Path(args.output_dir)
    config = _config(folder, given, args.resume)
    if config.dataset == "arrays":
        raise InvalidArgumentError("Expected --dataset: what to learn from.")
    if args.resume:
        place, _ = data_of_run(folder, config.dataset)
    else:
        place = located(config.dataset)
        config = config.replace(dataset=args.data_name or _text.without_folders(place))

    import tqdm

    from datalens_tf.classification.budgets import deal_budgets, read_shares
    from datalens_tf.classification.pate import split_queries, train_pate
    from datalens_tf.data.registry import load_dataset
    from datalens_tf.evaluation import student
    from datalens_tf.training.results import make_results_folder
    from datalens_tf.training.run_folder import RunFolder

    def load(split):
        loaded = load_dataset(place, data_dir=args.data_dir, split=split, classes=config.classes)
        return dataclasses.replace(loaded, name=config.dataset)

    dataset = load("train")
    queries, test = split_queries(load("test"), config)
    if args.budgets is None:
        stored = folder / "budgets.npz"
        budgets = _stored_budgets(stored, len(dataset)) if args.resume and stored.exists() else None
    elif args.budgets.endswith(".npy"):
        budgets = _read_budgets(args.budgets, len(dataset))
    else:
        budgets = deal_budgets(read_shares(args.budgets), len(dataset), config.partition_seed)
    shown = functools.partial(tqdm.tqdm, unit="teacher", leave=False, disable=not sys.stderr.isatty())
    if not args.resume:
        RunFolder(folder).create()
        write_sources(folder, {"dataset": place})
    result = train_pate(config, dataset, queries, folder, budgets=budgets, progress=shown)
    found = student.evaluate_student(result.student, test)
    found["labelled_queries"] = int(np.sum(result.labels >= 0))
    results = make_results_folder(folder)
    _files.atomic_write(results / "student.json", json.dumps(found, indent=2) + "\n")
    try:
        _files.atomic_write(results / "roc.png", student.roc_picture(found))
    except ImportError:
        print("roc.png needs matplotlib: pip install 'datalens_tf[eval]'", file=sys.stderr)
    statement = result.statement
    for row in statement["epsilon_by_budget"] if statement["private"] else ():
        print(f"epsilon {round_up(row['epsilon'])} ({statement['accountant']}), delta {statement['delta']:g}: "
              f"{row['num_records']} records with {row['record_votes']} of {statement['num_votes']} votes")
    if not statement["private"]:
        print(statement["title"])
    print(f"{found['labelled_queries']} of {config.num_queries} public queries labelled\n"
          f"accuracy {found['accuracy']:.4f}, AUROC {found['auroc_macro']:.4f} on {found['num_test']} other test "
          f"records of {config.dataset}\nstatement {folder / 'privacy.txt'}")


def _config(folder: pathlib.Path, given: dict, resume: bool) -> PateClassifierConfig:
    """The settings of the flags, or those of the run to be continued."""
    stored = folder / "config.json"
    if not resume:
        if stored.exists():
            raise CheckpointError(f"{folder} holds a run already: continue it with --resume, or choose another folder.")
        return PateClassifierConfig(**given)
    if given:
        raise InvalidArgumentError(f"Expected --resume without --{min(given)}: the run has its own settings.")
    try:
        return PateClassifierConfig.from_json(stored.read_text(encoding="utf-8"))
    except (OSError, UnicodeDecodeError) as error:
        raise CheckpointError(f"{folder} holds no run of pate-classify to continue.") from error


def _stored_budgets(path: pathlib.Path, num_records: int) -> np.ndarray:
    """Budgets that a run was begun with."""
    try:
        return _files.read_npz(path, _files.exactly({"budgets": np.zeros(num_records)}))["budgets"]
    except (OSError, ValueError) as error:
        raise CheckpointError(f"Damaged {path}, the budgets of the run: {error}. Restore it from a copy.") from error


def _read_budgets(path: str, num_records: int) -> np.ndarray:
    """One number per record."""
    try:
        budgets = np.load(path, mmap_mode="r", allow_pickle=False)  # Of the file's header, so far.
        if budgets.shape != (num_records,) or budgets.dtype.kind not in "iuf":
            raise ValueError(f"expected {num_records} numbers, one for each record, got "
                             f"{_files.ArrayHeader.of(budgets)}")
        return np.array(budgets)
    except (OSError, ValueError, AttributeError) as error:
        raise InvalidArgumentError(f"Expected budgets={path!r} to be a NumPy file of numbers: {error}.") from error
