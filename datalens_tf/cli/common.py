"""Parts that the commands share: presets, runs and generators by their path, places of data, signals."""

from __future__ import annotations

import argparse
import contextlib
import functools
import json
import os
import pathlib
from collections.abc import Callable, Sequence

from etils import epy

from datalens_tf import _files, _text
from datalens_tf.cli import running
from datalens_tf.config import MethodConfig
from datalens_tf.errors import CheckpointError, InvalidArgumentError
from datalens_tf.methods import registry
from datalens_tf.settings import COLORS, DEFAULT_COLOR, DEFAULT_IMAGE_SIZE

with epy.lazy_imports():
    import numpy as np
    import tensorflow as tf

    from datalens_tf.accounting import verification
    from datalens_tf.data import datasets
    from datalens_tf.data import registry as data_registry
    from datalens_tf.methods import base
    from datalens_tf.serving import export, sampling

DATA_DIR_HELP = "folder of TensorFlow Datasets; by default TFDS_DATA_DIR"


def add_run_arguments(parser: argparse.ArgumentParser) -> None:
    """Adds the flags of every command that trains: the run folder, and where the data is."""
    parser.add_argument("--output_dir", required=True, help="the run folder")
    parser.add_argument("--resume", action="store_true", default=False,
                        help="continue the run in --output_dir, with its own settings")
    parser.add_argument("--data_dir", default=None, help=DATA_DIR_HELP)
    parser.add_argument("--data_name", type=data_name, default=None, metavar="NAME",
                        help="public name of the data (default: that of its file or folder)")
    running.add_progress_arguments(parser)


def add_picture_arguments(parser: argparse.ArgumentParser, *, unlabelled: bool = True) -> None:
    """Adds the flags that say what becomes of pictures; they are public, and depend on no picture.

    Args:
      parser: gets them.
      unlabelled: whether records may be without classes.
    """
    parser.add_argument("--image_size", type=image_size, default=None, metavar="H[xW]",
                        help="size that pictures are cut and resampled to (default for files: "
                             f"{DEFAULT_IMAGE_SIZE[0]})")
    parser.add_argument("--color", choices=tuple(COLORS), default=None,
                        help=f"colours of the images (default for files: {DEFAULT_COLOR})")
    if unlabelled:
        parser.add_argument("--unlabelled", action="store_true", default=False,
                            help="there is one class, of all records")


def image_size(text: str) -> tuple[int, int]:
    """A type of `--image_size`."""
    sides = text.lower().split("x")
    if not (1 <= len(sides) <= 2 and all(side.isdecimal() and 8 <= int(side[:9]) <= 1024 for side in sides)):
        raise argparse.ArgumentTypeError(f"{text!r:.99} is no size: give H or HxW, of 8 to 1024 pixels each, "
                                         "for example 28 or 48x64")
    return int(sides[0]), int(sides[-1])


def pictures(args: argparse.Namespace, place: str, shape: tuple[int, int, int] | None = None, *,
             num_classes: int | None = None, skip_unreadable: bool = False) -> datasets.Pictures:
    """Choices about pictures: the flags' own, else those that lead to the images that there are.

    Args:
      args: flags, those of `add_picture_arguments` among them or not.
      place: the data.
      shape: of images that it must fit; None where there are none yet.
      num_classes: Y of these; one class means that there are no labels.
      skip_unreadable: whether files that cannot be read keep their place.

    Raises:
      InvalidArgumentError: the flags ask for other images than there are.
    """
    asked = datasets.Pictures(
        image_size=getattr(args, "image_size", None), color=getattr(args, "color", None),
        skip_unreadable=skip_unreadable, unlabelled=getattr(args, "unlabelled", False) or num_classes == 1)
    if shape is None:
        return asked
    fitting = datasets.Pictures.of_shape(shape, unlabelled=asked.unlabelled, skip_unreadable=skip_unreadable)
    for name in ("image_size", "color"):
        wanted, there = getattr(asked, name), getattr(fitting, name)
        if wanted not in (None, there):
            raise InvalidArgumentError(f"Expected {name}={wanted!r} to be {there!r}, as of the images that there are: "
                                       f"leave out --{name}.")
    return fitting


def say_defaults(args: argparse.Namespace, place: str) -> None:
    """Says what pictures became where no flag said it."""
    if data_registry.decodes_pictures(place) and None in (args.image_size, args.color):
        (height, width), color = args.image_size or DEFAULT_IMAGE_SIZE, args.color or DEFAULT_COLOR
        print(f"pictures are brought to {height} x {width} pixels, {color}: --image_size and --color choose others")


def write_unreadable(folder: pathlib.Path, skip_unreadable: bool, *loaded: datasets.Dataset) -> None:
    """Lists skipped files in the private folder, which must exist; the line that is printed is always the same."""
    if skip_unreadable:
        path = folder / "private" / "unreadable.txt"
        _files.atomic_write(path, "".join(f"{file}: {reason}\n" for dataset in loaded
                                          for file, reason in dataset.unreadable.items()))
        print(f"files that cannot be read, if there are any: {path}")


def preset_help() -> str:
    """The help of `--preset`."""
    names = sorted({dataset for dataset, _ in registry.presets()})
    return f"take the settings made for this data set: {', '.join(names)}"


def preset_config(args: argparse.Namespace) -> MethodConfig:
    """The preset for the budget, by default the smallest one that it was made for."""
    name, method = getattr(args, "preset", None) or args.dataset, getattr(args, "method", registry.DEFAULT)
    made_for = [epsilon for dataset, epsilon in registry.presets() if dataset == name]
    private = registry.config_class(method).adjacency != "none"
    return registry.preset(name, getattr(args, "epsilon", min(made_for, default=1.0) if private else None), method)


def stored_config(folder: pathlib.Path) -> MethodConfig:
    """The settings in a run folder."""
    try:
        return registry.config_from_json((folder / "config.json").read_text(encoding="utf-8"))
    except (OSError, UnicodeDecodeError) as error:
        raise CheckpointError(f"Cannot read {folder / 'config.json'}, the settings of the run: {error}.") from error
    except InvalidArgumentError as error:
        raise CheckpointError(f"Damaged {folder / 'config.json'}: {error}") from error


def located(dataset: str) -> str:
    """Turns what `--dataset` names into a place that a later command finds from wherever it is started."""
    dataset = _with_kind(dataset)
    kind, _, place = dataset.partition(":")
    path = pathlib.Path(place).expanduser()
    is_path = kind in ("npz", "folder", "parquet") or (kind == "tfds" and (path / "dataset_info.json").is_file())
    # Owners have their data on machines of their own.
    return f"{kind}:{os.path.abspath(path)}" if place and is_path and "{owner}" not in place else dataset


def _with_kind(dataset: str) -> str:
    """A path with the kind of data that is there; what is a name of data, or has a kind, as it is."""
    known, path = data_registry.known_datasets(), pathlib.Path(dataset).expanduser()
    kinds = {name.partition(":")[0] for name in known if ":" in name}
    if dataset in known or (dataset.partition(":")[0] in kinds and ":" in dataset):
        return dataset
    if path.is_dir():
        return f"{'tfds' if (path / 'dataset_info.json').is_file() else 'folder'}:{dataset}"
    kind = path.suffix.lower().removeprefix(".")
    return f"{kind}:{dataset}" if kind in kinds and path.is_file() else dataset


def data_name(name: str) -> str:
    """A type of `--data_name`."""
    if not name or not name.isprintable() or "/" in name or os.sep in name or len(name) > 100:
        raise argparse.ArgumentTypeError(
            f"{name!r:.120} is no name: give 1 to 100 characters that can be seen, no / among them")
    return name


def read_sources(folder: pathlib.Path) -> dict[str, str]:
    """Places of a run's data and models on this machine, which only its private folder says; {} of older runs."""
    path = folder / "private" / "sources.json"
    try:
        sources = _files.parse_json(path.read_text(encoding="utf-8"))
        if not (isinstance(sources, dict) and all(isinstance(place, str) for place in sources.values())):
            raise ValueError("it holds no names of files")
        return sources
    except FileNotFoundError:
        return {}
    except (OSError, ValueError) as error:
        raise CheckpointError(f"Cannot read {path}: {error}. Delete it, and give --dataset.") from error


def write_sources(folder: pathlib.Path, sources: dict[str, str]) -> None:
    """Inverse of `read_sources`; `private` must exist."""
    _files.atomic_write(folder / "private" / "sources.json", json.dumps(sources) + "\n")


def data_of_run(folder: pathlib.Path, stored: str, given: str | None = None, name: str | None = None
                ) -> tuple[str, str]:
    """Place of a run's data, and its public name; of the data that is given instead, if it is given.

    Args:
      folder: of the run.
      stored: `dataset` in its settings.
      given: of `--dataset`.
      name: of `--data_name`.
    """
    place = read_sources(folder).get("dataset", located(stored))
    if given is None or located(given) == place:
        return place, name or stored
    return located(given), name or _text.without_folders(located(given))


def read_token(file: str) -> str:
    """The token of a server, which a file has."""
    try:
        token = pathlib.Path(file).read_text(encoding="ascii").strip()
    except (OSError, UnicodeDecodeError) as error:
        raise InvalidArgumentError(f"Cannot read --token_file={file}: {error}.") from error
    if len(token) < 16 or not token.isprintable() or " " in token:
        raise InvalidArgumentError(f"Expected --token_file={file} to hold one word of at least 16 letters and digits.")
    return token


def load_run(folder: pathlib.Path) -> base.RunSynthesizer:
    """The finished run in a folder."""
    running.check_finished(folder)
    return registry.synthesizer(stored_config(folder).method).load(folder)


def drawer(model: str, *, looking: bool = False) -> tuple[Callable[..., tuple[np.ndarray, np.ndarray]], Sequence[str]]:
    """`Synthesizer.sample` of a run folder, or of a SavedModel or a folder of its versions; and the classes' names.

    Args:
      model: the folder.
      looking: whether images are for people, and need no grain.
    """
    folder = pathlib.Path(model)
    if (folder / "config.json").is_file():
        generator = export.load_generator(load_run(folder).folder.generator)
    else:
        generator = export.load_generator(folder)
        verification.export_statement(generator.path)
    draw = functools.partial(generator.sample, looking=looking)
    return functools.partial(sampling.sample_from, draw, generator.num_classes), generator.class_names


def one_core_per_operation(num_threads: int) -> None:
    """Chunks of teachers side by side, each on one core, keep cores busier than operations split over cores."""
    with contextlib.suppress(RuntimeError):  # TensorFlow has started already, in a process that used it before.
        tf.config.threading.set_intra_op_parallelism_threads(1)
        tf.config.threading.set_inter_op_parallelism_threads(num_threads)
