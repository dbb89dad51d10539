"""`datalens train`: settings of whatever method, from a preset, flags, or the run that is resumed."""

from __future__ import annotations

import argparse
import dataclasses
import functools
import os
import pathlib
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple, TypeGuard

from etils import epy

from datalens_tf import _text, _validate
from datalens_tf.accounting import delta as deltas
from datalens_tf.cli import common, running
from datalens_tf.cli.parser import Command, Parser, add_settings, given_settings, table
from datalens_tf.config import DataFacts, MethodConfig, PerformanceOptions, VotingConfig
from datalens_tf.errors import CheckpointError, DataError, DataLensError, InvalidArgumentError
from datalens_tf.methods import registry
from datalens_tf.settings import declared

with epy.lazy_imports():
    from datalens_tf.accounting import statement as statements
    from datalens_tf.data import datasets
    from datalens_tf.data import registry as data_registry
    from datalens_tf.training import callbacks, distributed, progress, run_folder

# Filled in where they are None: by the data, or by the budget.
_RESOLVED = {"image_shape", "num_classes", "noise_multiplier", "noise_stddev", "num_users", "sampling_probability"}
_AUTO = "auto"  # A delta that follows from the number of records.


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
        parser.explain_unknown = functools.partial(_of_other_methods, method=method)


def _add_auto_delta(parser: Parser) -> None:
    """Lets `--delta` be `auto`, too."""
    def read(text: str) -> float | str:
        return _AUTO if text.lower() == _AUTO else float(text)

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
            return common.stored_config(pathlib.Path(found.output_dir)).method
        except DataLensError:  # The command says what is wrong with the run.
            return None
    return found.method or (None if found.preset is None else registry.DEFAULT)


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
    _check_folder(args, folder)
    options = PerformanceOptions(**given_settings(args, PerformanceOptions))
    with running.interruptible(args, "train", folder) as stopper, running.shown(args, folder) as shown:
        plan = _resumed(args, folder) if args.resume else planned(args)
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


def _trained(args: argparse.Namespace, folder: pathlib.Path, plan: Plan, options: PerformanceOptions,
             shown: progress.Progress, stopper: running.Stopper) -> dict[str, Any]:
    """Trains, or continues; returns the statement of the run."""
    config, place = plan.config, plan.place
    if options.distribute is None:
        options = dataclasses.replace(options, num_threads=options.num_threads or os.cpu_count())
    elif not config.CAN_DISTRIBUTE:
        raise InvalidArgumentError(f"--distribute is not available: {config.method} runs in one process. Leave out "
                                   "--distribute.")
    if isinstance(config, VotingConfig):
        common.one_core_per_operation(options.num_threads or os.cpu_count() or 1)
    dataset: Any
    if _has_owners(config):
        if options.distribute is None:
            raise InvalidArgumentError(f"Missing --distribute: with num_owners={config.num_owners} say where the "
                                       "owners are, for example --distribute ray.")
        dataset = distributed.Owners(config.replace(dataset=place), options, args.data_dir,
                                     _pictures(args, config, place))
        dataset.name = config.dataset
    else:
        dataset = dataclasses.replace(_validate.known("dataset", plan.dataset), name=config.dataset)
    if plan.chosen is not None and not args.quiet:
        print(plan.chosen, flush=True)
    files = run_folder.RunFolder(folder)
    files.create()
    if not args.resume:
        common.write_sources(folder, {"dataset": place})
        common.say_defaults(args, place)
    if plan.dataset is not None:
        common.write_unreadable(folder, config.skip_unreadable, plan.dataset)
    shown.epsilon = config.epsilon
    synthesis = registry.synthesizer(config.method)(
        config, run_dir=folder, options=options,
        callbacks=[shown, callbacks.TensorBoard(files.logs), callbacks.PrivateLog(files.private_log)])
    stopper.request_stop = synthesis.request_stop
    synthesis.fit_dataset(dataset)
    common.write_sources(folder, {"dataset": place})  # The same records may have moved.
    return synthesis.privacy_statement()


class Plan(NamedTuple):
    """A method's settings and the data that it trains on.

    Attributes:
      config: settings of the run.
      place: where its data is.
      dataset: the data; None where owners keep them.
      chosen: line that says which method was taken and why; None where it was named.
    """

    config: MethodConfig
    place: str
    dataset: datasets.Dataset | None
    chosen: str | None = None


def _check_folder(args: argparse.Namespace, folder: pathlib.Path) -> None:
    """Refuses to start over a run."""
    holds_run = running.begun(folder)
    if holds_run and not args.resume:
        raise InvalidArgumentError(f"{folder} holds a run: continue it with --resume, or choose another --output_dir.")
    if args.resume and not holds_run:
        raise InvalidArgumentError(f"{folder} holds no run to resume: leave out --resume, or check --output_dir.")


def _resumed(args: argparse.Namespace, folder: pathlib.Path) -> Plan:
    """Takes up the run of a folder; refuses other settings than it has."""
    stored = common.stored_config(folder)
    given = given_settings(args, registry.config_class(getattr(args, "method", stored.method)))
    preset = getattr(args, "preset", None)
    wanted: Any = stored
    if given.get("delta") == _AUTO:  # The run has it as a number.
        del given["delta"]
    if given.get("method", stored.method) != stored.method:
        wanted = registry.config_class(given["method"])()
    elif preset is not None and preset in _own_presets(type(stored)):
        wanted = common.preset_config(argparse.Namespace(**{**vars(args), "method": stored.method})).replace(**given)
    else:
        wanted = stored.replace(**given)
    asked = given.get("dataset", preset)
    place, name = common.data_of_run(folder, stored.dataset, asked, args.data_name)
    wanted = wanted.replace(dataset=name)
    for field in dataclasses.fields(stored):
        mine, theirs = getattr(wanted, field.name, None), getattr(stored, field.name)
        # What the data and the budget decide is in the stored settings only.
        if mine != theirs and not (field.name in _RESOLVED and mine is None):
            raise CheckpointError(f"{folder} was trained with {field.name}={theirs!r}, not {mine!r}: resume with the "
                                  "same settings (--resume alone takes them), or choose another --output_dir.")
    return Plan(stored, place, None if _has_owners(stored) else _loaded(args, stored, place))


def planned(args: argparse.Namespace) -> Plan:
    """The method for a new run, its settings, and its data.

    Raises:
      InvalidArgumentError: from the settings.
      DataError: from the data, or they are too few for so many teachers.
    """
    named = getattr(args, "method", registry.DEFAULT if hasattr(args, "preset") else None)
    names = [name for kind in registry.config_classes().values() for name in declared(kind) if hasattr(args, name)]
    given: dict[str, Any] = {name: getattr(args, name) for name in names}
    if not (hasattr(args, "preset") or "dataset" in given):
        raise InvalidArgumentError("Missing --dataset: name the data, for example --dataset mnist.")
    kinds = registry.having(given) if named is None else {named: registry.config_class(named)}
    delta = given.pop("delta", None)
    checked = given | ({} if delta in (None, _AUTO) else {"delta": delta})
    sound = _accepting(args, kinds, checked)  # Mistakes are told before data is loaded.
    place = common.located(sound.dataset)
    name = args.data_name or _text.without_folders(place)
    if _has_owners(sound):
        return Plan(sound.replace(dataset=name), place, None)
    dataset = _loaded(args, sound, place)
    known = sound.known_records(len(dataset))  # Where the number is private, nothing that follows may have it.
    facts = DataFacts(num_records=known, image_shape=dataset.image_shape, num_classes=dataset.num_classes,
                      num_slots=dataset.num_slots)
    chosen = None
    if named is None:
        choice = registry.best(facts, _epsilon(args, next(iter(kinds.values()))), given)
        named, chosen = choice.method, describe(choice, facts)
    preset = getattr(args, "preset", None) or given.get("dataset")
    if delta is None and preset in {dataset for dataset, _ in registry.presets()}:
        delta = registry.preset(str(preset)).delta
    given["delta"] = deltas.automatic(known) if delta in (None, _AUTO) else delta
    config = _fresh_config(args, registry.config_class(named), given, facts)
    config.replace(image_shape=facts.image_shape, num_classes=facts.num_classes)  # Refuses what such images cannot be.
    _check_teachers(config, facts, given)
    return Plan(config.replace(dataset=name), place, dataset, chosen)


def describe(choice: registry.Choice, facts: DataFacts) -> str:
    """The line that says which method was taken for data, and why."""
    others = "" if choice.method == registry.DEFAULT else f" DataLens' teachers train by --method {registry.DEFAULT}."
    return f"method {choice.method} for {facts}: {choice.why}.{others}"


def _has_owners(config: MethodConfig) -> TypeGuard[VotingConfig]:
    """Whether data are with owners, so that nothing is known of them here."""
    return isinstance(config, VotingConfig) and bool(config.num_owners)


def _loaded(args: argparse.Namespace, config: MethodConfig, place: str) -> datasets.Dataset:
    """The records of a run with these settings."""
    return data_registry.load_dataset(place, data_dir=args.data_dir, classes=config.classes,
                                      pictures=_pictures(args, config, place))


def _pictures(args: argparse.Namespace, config: MethodConfig, place: str) -> datasets.Pictures:
    """Choices about pictures in a run with these settings."""
    return common.pictures(args, place, config.image_shape, num_classes=config.num_classes,
                           skip_unreadable=config.skip_unreadable)


def _accepting(args: argparse.Namespace, kinds: Mapping[str, type[MethodConfig]], given: dict[str, Any]
               ) -> MethodConfig:
    """Settings of the first method that takes the given ones; raises what the first one says where none does."""
    errors = []
    for kind in kinds.values():
        try:
            return _fresh_config(args, kind, given)
        except InvalidArgumentError as error:
            errors.append(error)
    raise errors[0]


def _own_presets(kind: type[MethodConfig]) -> set[str]:
    """Data sets for which a method has settings of its own."""
    return {dataset for dataset, _ in kind.presets()}


def _epsilon(args: argparse.Namespace, kind: type[MethodConfig]) -> float | None:
    """The budget that is given, else the smallest of the data set's preset, else 1."""
    if kind.adjacency == "none":
        return getattr(args, "epsilon", None)
    name = getattr(args, "preset", None) or args.dataset
    return getattr(args, "epsilon", min((made for dataset, made in registry.presets() if dataset == name), default=1.0))


def _fresh_config(args: argparse.Namespace, kind: type[MethodConfig], given: dict[str, Any],
                  facts: DataFacts | None = None) -> MethodConfig:
    """The method's settings for the data set, else those for such data, where they are known; with the given ones."""
    name, epsilon = getattr(args, "preset", None) or given["dataset"], _epsilon(args, kind)
    if name in _own_presets(kind) or (hasattr(args, "preset") and kind.presets()):
        return kind.preset(name, epsilon).replace(**given)
    given = {"dataset": name, **given}
    return kind.for_budget(epsilon).replace(**given) if facts is None else kind.for_data(facts, epsilon, given)


def _check_teachers(config: MethodConfig, facts: DataFacts, given: dict[str, Any]) -> None:
    """Refuses more teachers than there are records, with the flags that work."""
    slots = facts.num_slots or facts.num_records
    if not isinstance(config, VotingConfig) or config.num_teachers <= slots:
        return
    free = {name: value for name, value in given.items() if name not in ("num_teachers", "noise_stddev")}
    able = type(config).for_data(facts, config.epsilon, {**free, "delta": config.delta})
    flags = f"--num_teachers {able.num_teachers}"
    if able.noise_stddev is not None:
        flags += f" --noise_stddev {able.noise_stddev:g}"
    shared = "" if slots == facts.num_records else f", with {slots} different names of files"
    raise DataError(f"Expected at least one record per teacher, got num_records={facts.num_records} < num_teachers="
                    f"{config.num_teachers}{shared}. For so many take {flags}.")


COMMANDS = {"train": Command(_add_arguments, _train)}
