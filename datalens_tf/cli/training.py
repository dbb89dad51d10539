"""`datalens train`: settings of whatever method, from a preset, flags, or the run that is resumed."""

from __future__ import annotations

import argparse
import functools
import os
import pathlib
import sys
from collections.abc import Sequence
from typing import Any

from etils import epy

from datalens_tf.cli import common, running
from datalens_tf.cli.parser import Command, Parser, add_settings, given_settings, table
from datalens_tf.config import MethodConfig, PerformanceOptions, VotingConfig
from datalens_tf.errors import DataLensError
from datalens_tf.methods import registry, runs
from datalens_tf.settings import declared

with epy.lazy_imports():
    from datalens_tf.accounting import statement as statements
    from datalens_tf.data import datasets
    from datalens_tf.data import registry as data_registry
    from datalens_tf.training import progress, run_folder



def _add_arguments(parser: Parser) -> None:
    """Adds the flags of the method that the words name, or that the run has which they resume."""
    common.add_run_arguments(parser)
    common.add_picture_arguments(parser)
    parser.add_argument("--method", metavar="NAME",
                        help="how to train (default: what suits the data best; a line says which method that is); "
                             "datalens methods says when to choose which")
    parser.add_argument("--preset", metavar="NAME", help=common.preset_help())
    method = _named_method(parser.words)
    add_settings(parser, registry.config_classes().values() if method is None else registry.config_class(method))
    add_settings(parser, PerformanceOptions)
    _add_auto_delta(parser)
    if method is None:
        parser.page = lambda: _page(parser)
    else:
        about = registry.methods()[method]
        parser.description = f"Method {method}. {about.summary} Choose this when {about.choose_when}."
        parser.explain_unknown = functools.partial(runs.no_setting_of, method=method)


def _add_auto_delta(parser: Parser) -> None:
    """Lets `--delta` be `auto`, too."""
    def read(text: str) -> float | str:
        return runs.AUTO if text.lower() == runs.AUTO else float(text)

    read.__name__ = "float"  # Named in argparse's message.
    action = next(action for action in parser._actions if action.dest == "delta")
    action.type = read
    action.help = (f"{declared(MethodConfig)['delta'].help} It may be auto, a function of the number n of records "
                   "alone: 1e-05, and at most a tenth of 1/n. (default: that of the data set's preset, else auto)")


def _named_method(words: Sequence[str]) -> str | None:
    """The method that the words name, or that the run has which they resume; None where neither says it.

    A preset without a method is one of the default method.
    """
    first = argparse.ArgumentParser(add_help=False, allow_abbrev=False, exit_on_error=False)
    for name in ("--method", "--output_dir", "--preset"):
        first.add_argument(name)
    first.add_argument("--resume", action="store_true")
    try:
        found, _ = first.parse_known_args(list(words))
    except argparse.ArgumentError:  # The command's own parser says what is wrong.
        return None
    if found.method is None and found.resume and found.output_dir is not None:
        try:
            return runs.stored_config(pathlib.Path(found.output_dir)).method
        except DataLensError:  # The command says what is wrong with the run.
            return None
    return found.method or (None if found.preset is None else registry.DEFAULT)


def _page(parser: Parser) -> str:
    """The help for a first reader, before a method is chosen."""
    methods = [(name, about.choose_when) for name, about in registry.methods().items()]
    return f"""usage: {parser.usage}

Train a generator and write a run folder. What most people need:
{table([
    ("--method NAME", "one of the methods below (default: what suits the data best)"),
    ("--dataset NAME", "the sensitive data, one of the kinds below"),
    ("--epsilon X", "privacy budget (default: the smallest of the data set's preset, else 1)"),
    ("--delta X", "the budget's other half (default: at most 1e-05, and 0.1/n for own data)"),
    ("--preset NAME", "the settings made for a data set (default: those for --dataset, if there are any)"),
    ("--output_dir FOLDER", "the run folder, new or with --resume"),
    ("--image_size H[xW]", "size that pictures are brought to, any you like; --color rgb or grey"),
    ("--resume", "continue an interrupted run with its own settings; --quiet tells less"),
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
    runs.check_folder(folder, resume=args.resume)
    options = PerformanceOptions(**given_settings(args, PerformanceOptions))
    with running.interruptible(args, "train", folder) as stopper, running.shown(args, folder) as shown:
        plan = runs.resumed(request(args), folder) if args.resume else runs.planned(request(args))
        statement = _trained(args, folder, plan, options, shown, stopper)
    guarantee = statement["title"]
    if statement["private"]:
        guarantee = (f"epsilon {statements.round_up(statement['epsilon'])} ({statement['accountant']}), "
                     f"delta {statement['delta']:g}, {statement['adjacency']}")
    steps = f", {statement['num_steps']} steps" if isinstance(plan.config, VotingConfig) else ""
    files = run_folder.RunFolder(folder)
    print(f"{guarantee}{steps}\nstatement {files.statement_text}\npicture {files.samples_png}")
    if not args.quiet:
        print(running.last_screen(folder, plan.place, statement))


def request(args: argparse.Namespace) -> runs.Request:
    """The request that the flags make."""
    method = getattr(args, "method", None)
    kinds = registry.config_classes().values() if method is None else [registry.config_class(method)]
    names = {name for kind in kinds for name in declared(kind)} - {"method"}
    return runs.Request(
        method=method, preset=getattr(args, "preset", None), data_name=args.data_name, data_dir=args.data_dir,
        given={name: value for name, value in vars(args).items() if name in names},
        pictures=datasets.Pictures(image_size=args.image_size, color=args.color, unlabelled=args.unlabelled))


def _trained(args: argparse.Namespace, folder: pathlib.Path, plan: runs.Plan, options: PerformanceOptions,
             shown: progress.Progress, stopper: running.Stopper) -> dict[str, Any]:
    """Trains, or continues; returns the statement of the run."""
    runs.check_options(plan.config, options)
    if isinstance(plan.config, VotingConfig):
        common.one_core_per_operation(options.num_threads or os.cpu_count() or 1)
    if plan.chosen is not None and not args.quiet:
        print(plan.chosen, flush=True)
    if plan.warning is not None:
        print(f"datalens: warning: {plan.warning}", file=sys.stderr, flush=True)
    runs.create(plan, folder)
    if not args.resume:
        common.say_defaults(args, plan.place)
    if plan.dataset is not None:
        common.say_unreadable(folder, plan.config.skip_unreadable)
    shown.epsilon = plan.config.epsilon
    run = runs.train(plan, folder, options=options, callbacks=[shown],
                     on_begin=lambda synthesizer: setattr(stopper, "request_stop", synthesizer.request_stop))
    return run.privacy_statement()


COMMANDS = {"train": Command(_add_arguments, _train)}
