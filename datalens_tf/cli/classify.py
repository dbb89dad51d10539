"""`datalens classify`: trains a differentially private classifier."""

from __future__ import annotations

import argparse
import dataclasses
import os
import pathlib
from typing import Any

from etils import epy

from datalens_tf.classification.classifier_config import ClassifierConfig
from datalens_tf.cli import common, running
from datalens_tf.cli.parser import Command, Parser, add_settings, given_settings
from datalens_tf.errors import CheckpointError, DataError, InvalidArgumentError
from datalens_tf.methods import runs
from datalens_tf.settings import declared

with epy.lazy_imports():
    from datalens_tf.accounting import wording
    from datalens_tf.classification import classifier
    from datalens_tf.data import datasets
    from datalens_tf.data import registry as data_registry
    from datalens_tf.training import progress

_MODELS = ("model", "features")


def _add_arguments(parser: Parser) -> None:
    common.add_run_arguments(parser)
    common.add_picture_arguments(parser, unlabelled=False)
    # The probability follows from the batch size and the number of records.
    add_settings(parser, ClassifierConfig, set(declared(ClassifierConfig)) - {"sampling_probability"}, brief=True)
    common.add_auto_delta(parser, f"Privacy budget delta, or auto: below 1/n. (default: {ClassifierConfig.delta:g})")


def _classify(args: argparse.Namespace) -> None:
    """The command itself."""
    folder = pathlib.Path(args.output_dir)
    config, sources = _config(args, folder)
    with running.interruptible(args, "classify", folder) as stopper, running.shown(args, folder) as shown:
        run, test = _trained(args, folder, config, sources, shown, stopper)
    _report(run, test)


def _trained(args: argparse.Namespace, folder: pathlib.Path, config: ClassifierConfig, sources: dict[str, str],
             shown: progress.Progress, stopper: running.Stopper
             ) -> tuple[classifier.PrivateClassifier, datasets.Dataset | str]:
    """Trains or continues a run; returns the classifier, and test records or the reason that there are none."""
    pictures = common.pictures_of(args, config)

    def load(split):
        loaded = data_registry.load_dataset(sources["dataset"], data_dir=args.data_dir, split=split,
                                            classes=config.classes, pictures=pictures, unit=config.unit)
        return dataclasses.replace(loaded, name=config.dataset)

    dataset = load("train")
    config = common.with_auto_delta(args, config, dataset.num_units)
    try:
        test = load("test")
    except DataError as error:
        test = str(error)
    shown.epsilon = config.epsilon
    run = classifier.PrivateClassifier(config, run_dir=folder, callbacks=[shown])
    if not args.resume:
        run.folder.create()
        runs.write_sources(folder, sources)
        common.say_defaults(args, sources["dataset"])
    if run.folder.private.is_dir():
        common.write_unreadable(folder, config.skip_unreadable, dataset)
    stopper.request_stop = run.request_stop
    run.fit_dataset(dataset)
    runs.write_sources(folder, sources)  # The files may have moved since the run began.
    return run, test


def _report(run: classifier.PrivateClassifier, test: datasets.Dataset | str) -> None:
    """Prints what was trained, and how good it is on test records or why there are none."""
    print(wording.render_text(run.privacy_statement()))
    if isinstance(test, str):
        print(f"no accuracy: {test}")
    else:
        found = run.evaluate(test)
        print(f"accuracy {found['accuracy']:.4f} on {found['num_test']} real test records of {found['dataset']}, after "
              f"the last of {found['num_steps']} steps")
    print(f"classifier {run.folder.classifier}\nstatement {run.folder.statement_text}")


def _config(args: argparse.Namespace, folder: pathlib.Path) -> tuple[ClassifierConfig, dict[str, str]]:
    """Settings of the run to start or to resume, and where its data and models are.

    Refuses to start over a run, or to resume with other settings.
    """
    given = _given(args)
    holds_run = runs.begun(folder)
    if holds_run != args.resume:
        raise InvalidArgumentError(
            f"{folder} holds a run: continue it with --resume, or choose another --output_dir." if holds_run else
            f"{folder} holds no run to resume: leave out --resume, or check --output_dir.")
    if not args.resume:
        runs.check_unused(folder)
        if "dataset" not in given:
            raise InvalidArgumentError("Missing --dataset: name the data, for example --dataset mnist.")
        place = data_registry.located(given["dataset"])
        name = data_registry.public_name(place, args.data_name)
        return ClassifierConfig(**given | {"dataset": name}), _models(given) | {"dataset": place}
    path = folder / "config.json"
    try:
        stored = ClassifierConfig.from_json(path.read_text(encoding="utf-8"))
    except (OSError, UnicodeDecodeError, InvalidArgumentError) as error:
        raise CheckpointError(f"Cannot read {path}, the settings of a classifier: {error}") from error
    place, name = runs.data_of_run(folder, stored.dataset, given.get("dataset"), args.data_name)
    known = {"model": stored.model, "features": stored.features} | runs.read_sources(folder)
    models = {kind: file for kind in _MODELS if (file := known[kind]) is not None} | _models(given)
    for setting, value in (given | {"dataset": name}).items():
        if setting not in _MODELS and getattr(stored, setting) != value:
            raise CheckpointError(f"{folder} was trained with {setting}={getattr(stored, setting)!r}, not {value!r}: "
                                  "resume with the same settings (--resume alone takes them), or choose another "
                                  "--output_dir.")
    # If a model is not the one that the run began with, its checksum shows it.
    return stored.replace(**models), models | {"dataset": place}


def _models(given: dict[str, Any]) -> dict[str, str]:
    """Files of models."""
    return {name: given[name] for name in _MODELS if given.get(name)}


def _given(args: argparse.Namespace) -> dict[str, Any]:
    """The settings that the command line gave; files by their full path, so that a run can be resumed from anywhere."""
    given = common.without_auto_delta(given_settings(args, ClassifierConfig))
    return given | {name: os.path.abspath(given[name]) for name in _MODELS if given.get(name)}


COMMANDS = {"classify": Command(_add_arguments, _classify)}
