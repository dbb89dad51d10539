"""`datalens train`: settings of whatever method, from a preset, flags, or the run that is resumed."""

from __future__ import annotations

import argparse
import functools
import os
import pathlib
import sys
from collections.abc import Mapping, Sequence
from typing import Any

from etils import epy

from datalens_tf.cli import common, evaluation, running
from datalens_tf.cli.parser import Command, Parser, add_settings, given_settings, table
from datalens_tf.config import MethodConfig, VotingConfig
from datalens_tf.errors import DataLensError, InvalidArgumentError
from datalens_tf.methods import plans, registry, runs
from datalens_tf.options import PerformanceOptions
from datalens_tf.settings import declared

with epy.lazy_imports():
    from datalens_tf.accounting import accountants
    from datalens_tf.data import datasets
    from datalens_tf.data import registry as data_registry
    from datalens_tf.evaluation import evaluate
    from datalens_tf.training import progress, results, run_folder


def _add_arguments(parser: Parser) -> None:
    """Adds the flags of the method that the words name, or of the run that they resume."""
    common.add_run_arguments(parser)
    common.add_picture_arguments(parser)
    parser.add_argument("--method", metavar="NAME",
                        help="how to train (default: what suits the data best; a line says which method that is); "
                             "datalens methods says when to choose which")
    parser.add_argument("--preset", metavar="NAME", help=common.preset_help())
    parser.add_argument("--test_dataset", default=None, metavar="DATA",
                        help="real records that take no part in training, to measure the images on at the end; by "
                             "default those that --holdout holds out, or the test split in the data's own folder or "
                             "file")
    parser.add_argument("--no_evaluation", action="store_true", default=False,
                        help="measure nothing on real records at the end")
    method = _named_method(parser.words)
    add_settings(parser, registry.config_classes().values() if method is None else registry.config_class(method))
    add_settings(parser, PerformanceOptions)
    common.add_auto_delta(
        parser, f"{declared(MethodConfig)['delta'].help} It may be auto, a function of the number n of records alone: "
        "1e-05, and at most a tenth of 1/n. (default: that of the data set's preset, else auto)")
    if method is None:
        parser.page = lambda: _page(parser)
    else:
        about = registry.methods()[method]
        parser.description = (
            f"Method {method}. {about.summary} Choose this when {about.choose_when}. Without --preset, some defaults "
            "give way to what suits the number of records, classes and pixels; config.json in the run folder has what "
            "was used.")
        parser.explain_unknown = functools.partial(plans.no_setting_of, method=method)


def _named_method(words: Sequence[str]) -> str | None:
    """The method that the words name, or that of the run that they resume; None where neither is known.

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
    ("--holdout X", "share of the data to measure images on; --test_dataset names other data"),
    ("--resume", "continue an interrupted run with its own settings; --quiet tells less"),
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
    with running.interruptible(args, "train", folder) as stopper:
        with running.shown(args, folder) as shown:
            plan = plans.resumed(request(args), folder) if args.resume else plans.planned(request(args))
            test = None if args.no_evaluation else _testing_records(plan, folder)
            statement = _trained(args, folder, plan, options, shown, stopper)
        _print_guarantee(plan, folder, statement)
        if test is not None and plan.dataset is not None:
            stopper.request_stop = None  # The run is complete, and `--resume` measures it.
            with running.shown(args, folder) as shown:
                told = evaluation.short_evaluation(
                    folder, plan.dataset, test, held_out=plan.held_out is not None, shown=shown)
            print("", *told, "", sep="\n")
    if not args.quiet:
        print(running.last_screen(folder, plan.place, statement, tested=test is not None))


def _testing_records(plan: plans.Plan, folder: pathlib.Path) -> datasets.Dataset | None:
    """Real records to measure the images of a run on at its end; None where nothing is to be measured.

    Nothing is to be measured if there are no such records, if there are no classes to tell apart, or if the run was
    measured before.

    Raises:
      DataLensError: records that the user asks to measure on do not serve.
    """
    test = plans.testing_records(plan)
    if test is None or plan.dataset is None or results.result_file(folder).exists():
        return None
    is_asked = plan.held_out is not None or plan.request.test_dataset is not None
    reason = evaluation.why_not(plan.dataset)
    if reason is None:
        evaluate.check_alike(test, plan.dataset.image_shape, plan.dataset.class_names)
        return test
    if is_asked:
        raise InvalidArgumentError(f"{reason} Leave out the records to test on, or give --no_evaluation.")
    print(f"datalens: note: no verdict at the end. {reason}", file=sys.stderr, flush=True)
    return None


def _print_guarantee(plan: plans.Plan, folder: pathlib.Path, statement: Mapping[str, Any]) -> None:
    """Prints what is guaranteed, and where that is written."""
    guarantee = statement["title"]
    if statement["private"]:
        guarantee = (f"epsilon {accountants.round_up(statement['epsilon'])} ({statement['accountant']}), "
                     f"delta {statement['delta']:g}, {statement['adjacency']}")
    steps = f", {statement['num_steps']} steps" if isinstance(plan.config, VotingConfig) else ""
    files = run_folder.RunFolder(folder)
    print(f"{guarantee}{steps}\nstatement {files.statement_text}\npicture {files.samples_png}", flush=True)


def request(args: argparse.Namespace) -> plans.Request:
    """The request that the flags make."""
    method = getattr(args, "method", None)
    kinds = registry.config_classes().values() if method is None else [registry.config_class(method)]
    names = {name for kind in kinds for name in declared(kind)} - {"method"}
    return plans.Request(
        method=method, preset=getattr(args, "preset", None), data_name=args.data_name, data_dir=args.data_dir,
        given={name: value for name, value in vars(args).items() if name in names},
        test_dataset=args.test_dataset,
        pictures=datasets.Pictures(image_size=args.image_size, color=args.color, unlabelled=args.unlabelled))


def _trained(args: argparse.Namespace, folder: pathlib.Path, plan: plans.Plan, options: PerformanceOptions,
             shown: progress.Progress, stopper: running.Stopper) -> dict[str, Any]:
    """Trains or continues a run; returns its statement."""
    plans.check_options(plan.config, options)
    if isinstance(plan.config, VotingConfig):
        common.one_core_per_operation(options.num_threads or os.cpu_count() or 1)
    if plan.chosen is not None and not args.quiet:
        print(plan.chosen, flush=True)
    for warning in plan.warnings:
        print(f"datalens: warning: {warning}", file=sys.stderr, flush=True)
    plans.create(plan, folder)
    if not args.resume:
        common.say_defaults(args, plan.place)
    if plan.dataset is not None:
        common.say_unreadable(folder, plan.config.skip_unreadable)
    shown.epsilon = plan.config.epsilon
    run = plans.train(plan, folder, options=options, callbacks=[shown],
                     on_begin=lambda synthesizer: setattr(stopper, "request_stop", synthesizer.request_stop))
    return run.privacy_statement()


COMMANDS = {"train": Command(_add_arguments, _train)}
