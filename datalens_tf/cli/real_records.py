"""Real records that `datalens evaluate` measures synthetic images on: which they are, and how they are read."""

from __future__ import annotations

import argparse
import dataclasses
import pathlib
import warnings

from etils import epy

from datalens_tf import _text
from datalens_tf.cli import common
from datalens_tf.config import MethodConfig
from datalens_tf.errors import DataLensError, DataWarning, InvalidArgumentError
from datalens_tf.methods import plans, runs

with epy.lazy_imports():
    from datalens_tf.data import datasets, identity
    from datalens_tf.data import registry as data_registry
    from datalens_tf.serving import export as exports
    from datalens_tf.training import run_folder

_HOW_ANOTHER = ("classes", "image_size", "color", "unlabelled", "picture_bits")  # Flags that make others of records.


@dataclasses.dataclass(frozen=True, kw_only=True)
class Choice:
    """The records to measure on, before any is loaded.

    Attributes:
      run: the run folder whose images are measured; None for images of another origin.
      config: the run's settings.
      place: of the data whose split is tested on, unless `others` are.
      name: of these data, in results.
      own: place of the data that the run was trained on; None for images of another origin.
      split: `test`, or `holdout` for what the run held out.
      others: place of other data to test on instead of a split; None for none.
      data_dir: folder of TensorFlow Datasets.
    """

    run: pathlib.Path | None
    config: MethodConfig | None
    place: str
    name: str
    own: str | None
    split: str
    others: str | None
    data_dir: str | None

    @property
    def is_own(self) -> bool:
        """Whether the splits are those of the run's own data."""
        return self.place == self.own

    @property
    def share(self) -> float:
        """Share of the data that the run held out."""
        return self.config.holdout if self.config is not None and self.is_own else 0.0


def chosen(args: argparse.Namespace) -> Choice:
    """The records that the flags ask for; raises InvalidArgumentError where a generator may have learned from them."""
    source = pathlib.Path(args.samples)
    if source.is_file() and source.suffix != ".npz":
        raise InvalidArgumentError(f"Expected --samples={source} to be an .npz file with x and y, a run folder, or a "
                                   "SavedModel that `datalens export` wrote.")
    if not (source / "config.json").is_file():
        if args.dataset is None:
            raise InvalidArgumentError("Missing --dataset: name the real data to test on, for example --dataset mnist. "
                                       "Only a run folder knows its own.")
        if args.split == "holdout":
            raise _holds_none_out()
        place = data_registry.located(args.dataset)
        return Choice(run=None, config=None, place=place, name=_text.without_folders(place), own=None, split="test",
                      others=None, data_dir=args.data_dir)
    config, sources = runs.stored_config(source), runs.read_sources(source)
    own, own_name = runs.data_of_run(source, config.dataset)
    place, name = runs.data_of_run(source, config.dataset, args.dataset)
    others = sources.get("test_dataset") if args.dataset is None else None
    if place != own and not data_registry.has_test(place):  # All of it is tested on.
        place, name, others = own, own_name, place
    choice = Choice(run=source, config=config, place=place, name=name, own=own, split="test", others=others,
                    data_dir=args.data_dir or sources.get("data_dir"))
    could_hold = choice.share > 0 and (args.dataset is None or others is None)
    split = args.split or ("holdout" if could_hold else "test")
    if split == "holdout" and not could_hold:
        raise _holds_none_out()
    if split == "test" and choice.is_own and others is None and not data_registry.has_test(place):
        raise InvalidArgumentError(f"{name} has no test split, and this run held no records out: name records that it "
                                   "was not trained on with --dataset, or train again with --holdout 0.1.")
    return dataclasses.replace(choice, split=split)


def load(choice: Choice, args: argparse.Namespace, synthetic: datasets.Dataset | None, needs_train: bool
         ) -> tuple[datasets.Dataset | None, datasets.Dataset]:
    """The records that a generator was trained on, and those to test it on.

    Args:
      choice: which.
      args: flags that say how to read them.
      synthetic: synthetic images and labels, where there is no generator to say what images are like.
      needs_train: whether the former are asked for; if not, they are None.

    Raises:
      DataError: from the data.
      InvalidArgumentError: the data are not those of the run any more, or are to be tested on.
    """
    classes = args.classes or (None if choice.config is None else choice.config.classes)

    def read(split: str, unit: str | None = None) -> datasets.Dataset:
        loaded = data_registry.load_dataset(
            choice.place, data_dir=choice.data_dir, split=split, classes=classes, unit=unit,
            pictures=_pictures(args, choice.place, choice.config, synthetic, choice.is_own))
        return dataclasses.replace(loaded, name=choice.name)

    as_trained = choice.is_own and not any(getattr(args, flag) for flag in _HOW_ANOTHER)
    train, held_out = None, None
    if needs_train or choice.split == "holdout" or (as_trained and data_registry.has_test_beside(choice.place)):
        # Which records share a unit decides which are held out.
        unit = choice.config.unit if choice.config is not None and choice.share else None
        train, held_out = datasets.hold_out(read("train", unit), choice.share)
    if train is not None and as_trained and _trained_on(choice.run, train) is False:
        raise InvalidArgumentError(
            f"{choice.name} has other records to train on than when {choice.run} was trained, which may have learned "
            "from those that are to test on now. Put them back, or name records that it was not trained on with "
            "--dataset.")

    if choice.split == "holdout" and held_out is not None:
        test = held_out
    elif choice.others is not None:
        test = plans.load_test(choice.others, choice.data_dir, classes, _pictures(
            args, choice.others, choice.config, None, False), trained_on=choice.place)
        test = dataclasses.replace(test, name=_text.without_folders(choice.others))
        if _trained_on(choice.run, test):
            raise InvalidArgumentError(f"{test.name} has the records that {choice.run} was trained on: name others.")
    else:
        test = read("test")
    learned_from = train if choice.is_own and choice.others is None else _learned_from(choice, args)
    if learned_from is not None and choice.split == "test":
        _check_apart(learned_from, test, choice.run)
    return train if needs_train or choice.split == "holdout" else None, datasets.usable_only(test)


def _learned_from(choice: Choice, args: argparse.Namespace) -> datasets.Dataset | None:
    """The records that the run was trained on; None where they are not here, or are others by now."""
    config, own = choice.config, choice.own
    if config is None or own is None or runs.is_elsewhere(config):
        return None
    try:
        loaded = data_registry.load_dataset(
            own, data_dir=choice.data_dir, split="train", classes=config.classes,
            unit=config.unit if config.holdout else None, pictures=_pictures(args, own, config, None, True))
        records, _ = datasets.hold_out(loaded, config.holdout)
    except DataLensError:  # Flags may be for the other data alone.
        return None
    return None if _trained_on(choice.run, records) is False else records


def _check_apart(train: datasets.Dataset, test: datasets.Dataset, run: pathlib.Path | None) -> None:
    """Refuses test records if most were trained on, and warns of fewer, which may be there by chance."""
    count, tested = identity.num_shared(train, test), len(datasets.usable_only(test))
    told = f"{count:,} of {tested:,} images of {test.name} are among those that {run} was trained on"
    if 2 * count > tested:
        raise InvalidArgumentError(f"{told}: name others.")
    if count:
        warnings.warn(f"{told}, so what is measured on them may flatter it.", DataWarning, stacklevel=2)


def _holds_none_out() -> InvalidArgumentError:
    return InvalidArgumentError("Expected --split=holdout for a run that holds records out of its data: train with "
                                "--holdout, or leave out --split.")


def _trained_on(run: pathlib.Path | None, records: datasets.Dataset) -> bool | None:
    return None if run is None else run_folder.RunFolder(run).trained_on(records)


def _pictures(args: argparse.Namespace, place: str, config: MethodConfig | None, synthetic: datasets.Dataset | None,
              is_own: bool) -> datasets.Pictures:
    """Choices that make real pictures like synthetic images, and bring a run's own data to their form in the run."""
    shape, num_classes, skip, bits = None, None, args.skip_unreadable, args.picture_bits
    if config is not None and (is_own or data_registry.decodes_pictures(place)):
        shape, num_classes, skip = config.image_shape, config.num_classes, skip or config.skip_unreadable
        bits = config.picture_bits if bits is None else bits
    elif data_registry.decodes_pictures(place):
        if synthetic is not None:
            shape = synthetic.image_shape
        elif config is None:
            shape = exports.load_generator(pathlib.Path(args.samples)).image_shape
    return common.pictures(args, shape, num_classes=num_classes, skip_unreadable=skip, bits=bits)
