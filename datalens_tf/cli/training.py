"""`datalens train`: settings of whatever method, from a preset, flags, or the run that is resumed."""

from __future__ import annotations

import argparse
import dataclasses
import os
import pathlib
from collections.abc import Sequence
from typing import Any

from etils import epy

from datalens_tf import _text
from datalens_tf.cli import common
from datalens_tf.cli.parser import Command, Parser, add_settings, given_settings, table
from datalens_tf.config import MethodConfig, PerformanceOptions, VotingConfig
from datalens_tf.errors import CheckpointError, DataLensError, InvalidArgumentError
from datalens_tf.methods import registry
from datalens_tf.settings import declared

with epy.lazy_imports():
    from datalens_tf.accounting import statement as statements
    from datalens_tf.data import registry as data_registry
    from datalens_tf.training import callbacks, distributed, run_folder

# Filled in where they are None: by the data, or by the budget.
_RESOLVED = {"image_shape", "num_classes", "noise_multiplier", "noise_stddev", "num_users", "sampling_probability"}


def _add_arguments(parser: Parser) -> None:
    """Adds the flags of the method that the words name, or that the run has which they resume."""
    common.add_run_arguments(parser)
    parser.add_argument("--method", metavar="NAME",
                        help=f"how to train (default: {registry.DEFAULT}); datalens methods says when to choose which")
    parser.add_argument("--preset", metavar="NAME", help=common.preset_help())
    named = _named_method(parser.words)
    method = named or registry.DEFAULT
    found = registry.config_class(method)
    add_settings(parser, found)
    add_settings(parser, PerformanceOptions)
    if named is None:
        parser.page = lambda: _page(parser)
    else:
        about = registry.methods()[method]
        parser.description = f"Method {method}. {about.summary} Choose this when {about.choose_when}."
    parser.explain_unknown = lambda name: _of_other_methods(name, method)


def _named_method(words: Sequence[str]) -> str | None:
    """The method that the words name, or that the run has which they resume; None where neither says it."""
    first = argparse.ArgumentParser(add_help=False, allow_abbrev=False, exit_on_error=False)
    for name in ("--method", "--output_dir"):
        first.add_argument(name)
    first.add_argument("--resume", action="store_true")
    try:
        found, _ = first.parse_known_args(list(words))
    except argparse.ArgumentError:  # The command's own parser says what is wrong.
        return None
    if found.method is None and found.resume and found.output_dir is not None:
        try:
            return common.stored_config(pathlib.Path(found.output_dir)).method
        except DataLensError:  # The command says what is wrong with the run.
            return None
    return found.method


def _of_other_methods(name: str, method: str) -> str | None:
    """Refusal of a flag that other methods have; None where no method has it."""
    having = [other for other, kind in registry.config_classes().items() if name in declared(kind)]
    return (f"Expected no --{name}: it is no setting of the method {method}. Leave it out, or choose a --method that "
            f"has it: {', '.join(having)}." if having else None)


def _page(parser: Parser) -> str:
    """The help for a first reader, before a method is chosen."""
    methods = [(name, about.choose_when) for name, about in registry.methods().items()]
    return f"""usage: {parser.usage}

Train a generator and write a run folder. What most people need:
{table([
    ("--method NAME", f"one of the methods below (default: {registry.DEFAULT})"),
    ("--dataset NAME", "the sensitive data, one of the kinds below"),
    ("--epsilon X", "privacy budget (default: the smallest of the data set's preset, else 1)"),
    ("--delta X", "the budget's other half (default: 1e-05)"),
    ("--preset NAME", "the settings made for a data set (default: those for --dataset, if there are any)"),
    ("--output_dir FOLDER", "the run folder, new or with --resume"),
    ("--resume", "continue an interrupted run with its own settings"),
    ("--data_dir FOLDER", common.DATA_DIR_HELP),
], column=23)}

Methods, and when to choose which:
{table(methods, column=18)}

Data:
{table(list(data_registry.known_datasets().items()), column=18)}

datalens train --method NAME --help lists all settings of a method, each with its default.
"""


def _train(args: argparse.Namespace) -> None:
    """`datalens train`."""
    folder = pathlib.Path(args.output_dir)
    config, place = _training_config(args, folder)
    options = PerformanceOptions(**given_settings(args, PerformanceOptions))
    has_teachers = isinstance(config, VotingConfig)
    if options.distribute is None:
        options = dataclasses.replace(options, num_threads=options.num_threads or os.cpu_count())
    elif not config.CAN_DISTRIBUTE:
        raise InvalidArgumentError(f"--distribute is not available: {config.method} runs in one process. Leave out "
                                   "--distribute.")
    if has_teachers:
        common.one_core_per_operation(options.num_threads or os.cpu_count() or 1)
    dataset: Any
    if isinstance(config, VotingConfig) and config.num_owners:
        if options.distribute is None:
            raise InvalidArgumentError(f"Missing --distribute: with num_owners={config.num_owners} say where the "
                                       "owners are, for example --distribute ray.")
        dataset = distributed.Owners(config.replace(dataset=place), options, args.data_dir)
        dataset.name = config.dataset
    else:
        loaded = data_registry.load_dataset(place, data_dir=args.data_dir, classes=config.classes)
        dataset = dataclasses.replace(loaded, name=config.dataset)
    files = run_folder.RunFolder(folder)
    files.create()
    if not args.resume:
        common.write_sources(folder, {"dataset": place})
    progress = callbacks.Progress(config.epsilon)
    synthesis = registry.synthesizer(config.method)(
        config, run_dir=folder, options=options,
        callbacks=[progress, callbacks.TensorBoard(files.logs), callbacks.PrivateLog(files.private_log)])

    with common.stop_on_signals(synthesis.request_stop):
        try:
            synthesis.fit_dataset(dataset)
        finally:
            progress.on_end()  # Errors start on a line of their own.
    common.write_sources(folder, {"dataset": place})  # The same records may have moved.
    statement = synthesis.privacy_statement()
    guarantee = statement["title"]
    if statement["private"]:
        guarantee = (f"epsilon {statements.round_up(statement['epsilon'])} ({statement['accountant']}), "
                     f"delta {statement['delta']:g}")
    steps = f", {statement['num_steps']} steps" if has_teachers else ""
    print(f"{guarantee}{steps}\nstatement {files.statement_text}\npicture {files.samples_png}")


def _training_config(args: argparse.Namespace, folder: pathlib.Path) -> tuple[MethodConfig, str]:
    """Settings of the run to start or to resume, and where its data is.

    Refuses to start over a run, or to resume with other settings.
    """
    holds_run = any((folder / name).exists() for name in ("ledger.jsonl", "private/releases", "private/data.json"))
    if holds_run and not args.resume:
        raise InvalidArgumentError(f"{folder} holds a run: continue it with --resume, or choose another --output_dir.")
    if args.resume and not holds_run:
        raise InvalidArgumentError(f"{folder} holds no run to resume: leave out --resume, or check --output_dir.")
    if not args.resume:
        given = given_settings(args, registry.config_class(getattr(args, "method", registry.DEFAULT)))
        if not (hasattr(args, "preset") or "dataset" in given):
            raise InvalidArgumentError("Missing --dataset: name the data, for example --dataset mnist.")
        config = _fresh_config(args, given)
        place = common.located(config.dataset)
        return config.replace(dataset=args.data_name or _text.without_folders(place)), place
    stored = common.stored_config(folder)
    given = given_settings(args, registry.config_class(getattr(args, "method", stored.method)))
    if hasattr(args, "preset") or given.get("method", stored.method) != stored.method:
        wanted = _fresh_config(args, given)
    else:
        wanted = stored.replace(**given)
    asked = wanted.dataset if "dataset" in given or hasattr(args, "preset") else None
    place, name = common.data_of_run(folder, stored.dataset, asked, args.data_name)
    wanted = wanted.replace(dataset=name)
    for field in dataclasses.fields(stored):
        mine, theirs = getattr(wanted, field.name, None), getattr(stored, field.name)
        # What the data and the budget decide is in the stored settings only.
        if mine != theirs and not (field.name in _RESOLVED and mine is None):
            raise CheckpointError(f"{folder} was trained with {field.name}={theirs!r}, not {mine!r}: resume with the "
                                  "same settings (--resume alone takes them), or choose another --output_dir.")
    return stored, place


def _fresh_config(args: argparse.Namespace, given: dict[str, Any]) -> MethodConfig:
    """The preset's settings, else those of the data set's own preset, else those for any data; with the given ones."""
    known = given.get("dataset") in {dataset for dataset, _ in registry.presets()}
    if hasattr(args, "preset") or known:
        base = common.preset_config(args)
    else:
        kind = registry.config_class(given.get("method", registry.DEFAULT))
        base = kind.for_budget(given.get("epsilon", kind().epsilon))
    return base.replace(**given)


COMMANDS = {"train": Command(_add_arguments, _train)}
