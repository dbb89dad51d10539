"""`datalens train`: settings of whatever method, from a preset, flags, or the run that is resumed."""

import argparse
import dataclasses
import os
import pathlib
from collections.abc import Callable
from typing import Any

from datalens_tf import _text
from datalens_tf.accounting.statement import round_up
from datalens_tf.cli.common import (
    DATA_DIR_HELP,
    DATA_NAME_HELP,
    NOT_FLAGS,
    PRESET_HELP,
    add_field,
    add_fields,
    data_name,
    data_of_run,
    given_fields,
    located,
    one_core_per_operation,
    preset_config,
    stop_on_signals,
    stored_config,
    write_sources,
)
from datalens_tf.config import MethodConfig, PerformanceOptions
from datalens_tf.errors import CheckpointError, InvalidArgumentError
from datalens_tf.methods.datalens import PRESETS, DataLensConfig
from datalens_tf.methods.registry import config_class, config_classes
from datalens_tf.methods.voting import PateConfig
from datalens_tf.settings import declared

# Filled in where they are None: by the data, or by the budget.
_RESOLVED = {"image_shape", "num_classes", "noise_multiplier", "noise_stddev", "num_users", "sampling_probability"}


def add_commands(command: Callable) -> None:
    """Adds the command's parser, which `command` makes from a name, a function and a text."""
    train = command("train", _train, "train a generator and write a run folder")
    train.add_argument("--output_dir", required=True, help="the run folder")
    train.add_argument("--resume", action="store_true", default=False,
                       help="continue the run in --output_dir, with its own settings")
    train.add_argument("--preset", metavar="NAME", help=PRESET_HELP)
    train.add_argument("--data_dir", default=None, help=DATA_DIR_HELP)
    train.add_argument("--data_name", type=data_name, default=None, metavar="NAME", help=DATA_NAME_HELP)
    _add_settings(train.add_argument_group("settings, by default the preset's"))
    add_fields(train.add_argument_group("speed"), PerformanceOptions)


def _add_settings(parser: Any) -> None:
    """A flag for every setting of any method; its help says for which, unless it is the same for all."""
    kinds = {method: declared(kind) for method, kind in config_classes().items()}
    for name in dict.fromkeys(name for settings in kinds.values() for name in settings if name not in NOT_FLAGS):
        having = {method: settings[name] for method, settings in kinds.items() if name in settings}
        methods: dict[str, list[str]] = {}
        for method, setting in having.items():
            methods.setdefault(setting.help, []).append(method)
        whole = len(methods) == 1 and len(having) == len(kinds)
        text = "; ".join(text if whole else f"{', '.join(of)}: {text}" for text, of in methods.items())
        add_field(parser, name, [setting.hint for setting in having.values()], text)


def _train(args: argparse.Namespace) -> None:
    """`datalens train`."""
    folder = pathlib.Path(args.output_dir)
    config, place = _training_config(args, folder)
    options = PerformanceOptions(**given_fields(args, PerformanceOptions))

    from datalens_tf.data.registry import load_dataset
    from datalens_tf.methods.registry import synthesizer
    from datalens_tf.training.callbacks import PrivateLog, Progress, TensorBoard
    from datalens_tf.training.run_folder import RunFolder

    has_teachers = isinstance(config, (DataLensConfig, PateConfig))
    if options.distribute is None:
        options = dataclasses.replace(options, num_threads=options.num_threads or os.cpu_count())
    elif not isinstance(config, DataLensConfig):
        raise InvalidArgumentError(f"Expected no --distribute: the method {config.method} runs in one process.")
    if has_teachers:
        one_core_per_operation(options.num_threads or os.cpu_count() or 1)
    if isinstance(config, DataLensConfig) and config.num_owners:
        from datalens_tf.training.distributed import Owners

        if options.distribute is None:
            raise InvalidArgumentError(f"Expected --distribute with num_owners={config.num_owners}: where they are.")
        dataset = Owners(config.replace(dataset=place), options, args.data_dir)
        dataset.name = config.dataset
    else:
        loaded = load_dataset(place, data_dir=args.data_dir, classes=config.classes)
        dataset = dataclasses.replace(loaded, name=config.dataset)
    files = RunFolder(folder)
    files.create()
    if not args.resume:
        write_sources(folder, {"dataset": place})
    progress = Progress(config.epsilon)
    synthesis = synthesizer(config.method)(
        config, run_dir=folder, options=options,
        callbacks=[progress, TensorBoard(files.logs), PrivateLog(files.private_log)])

    with stop_on_signals(synthesis.request_stop):
        try:
            synthesis.fit_dataset(dataset)
        finally:
            progress.on_end()  # Errors start on a line of their own.
    write_sources(folder, {"dataset": place})  # The same records may have moved.
    statement = synthesis.privacy_statement()
    guarantee = (f"epsilon {round_up(statement['epsilon'])} ({statement['accountant']}), delta {statement['delta']:g}"
                 if statement["private"] else statement["title"])
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
        given = _method_settings(args, getattr(args, "method", "datalens"))
        if not (hasattr(args, "preset") or "dataset" in given):
            raise InvalidArgumentError("Expected --preset or --dataset: what to train on.")
        config = _fresh_config(args, given)
        place = located(config.dataset)
        return config.replace(dataset=args.data_name or _text.without_folders(place)), place
    stored = stored_config(folder)
    given = _method_settings(args, getattr(args, "method", stored.method))
    if hasattr(args, "preset") or given.get("method", stored.method) != stored.method:
        wanted = _fresh_config(args, given)
    else:
        wanted = stored.replace(**given)
    asked = wanted.dataset if "dataset" in given or hasattr(args, "preset") else None
    place, name = data_of_run(folder, stored.dataset, asked, args.data_name)
    wanted = wanted.replace(dataset=name)
    for field in dataclasses.fields(stored):
        mine, theirs = getattr(wanted, field.name, None), getattr(stored, field.name)
        # What the data and the budget decide is in the stored settings only.
        if mine != theirs and not (field.name in _RESOLVED and mine is None):
            raise CheckpointError(f"{folder} was trained with {field.name}={theirs!r}, not {mine!r}: resume with the "
                                  "same settings (--resume alone takes them), or choose another --output_dir.")
    return stored, place


def _method_settings(args: argparse.Namespace, method: str) -> dict[str, Any]:
    """The settings that the command line gave; refuses those of other methods."""
    kind = config_class(method)
    given = given_fields(args, kind)
    for other in config_classes().values():
        for name in sorted(set(given_fields(args, other)) - set(given)):
            raise InvalidArgumentError(f"Expected no --{name}: it is no setting of the method {method}.")
    return given


def _fresh_config(args: argparse.Namespace, given: dict[str, Any]) -> MethodConfig:
    """The preset's settings, else those of the data set's own preset, else those for any data; with the given ones."""
    known = given.get("dataset") in {dataset for dataset, _ in PRESETS}
    if hasattr(args, "preset") or known:
        base = preset_config(args)
    else:
        kind = config_class(given.get("method", "datalens"))
        base = kind.for_budget(given.get("epsilon", kind().epsilon))
    return base.replace(**given)
