"""Parts that the commands share: presets, runs and generators by their path, places of data, signals."""

from __future__ import annotations

import argparse
import contextlib
import os
import pathlib
from collections.abc import Mapping
from typing import Any, TypeVar

from etils import epy

from datalens_tf.accounting import delta as deltas
from datalens_tf.cli import running
from datalens_tf.config import DataConfig, MethodConfig
from datalens_tf.errors import InvalidArgumentError
from datalens_tf.methods import plans, registry, runs
from datalens_tf.settings import COLORS, DEFAULT_COLOR, DEFAULT_IMAGE_SIZE

with epy.lazy_imports():
    import tensorflow as tf

    from datalens_tf.data import datasets
    from datalens_tf.data import registry as data_registry
    from datalens_tf.methods import base
    from datalens_tf.training import run_folder

C = TypeVar("C", bound=DataConfig)
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
                        help=f"size of images (default for files: {DEFAULT_IMAGE_SIZE[0]}); --color: "
                             f"{' or '.join(COLORS)} ({DEFAULT_COLOR})")
    parser.add_argument("--color", choices=tuple(COLORS), default=None, help=argparse.SUPPRESS)
    if unlabelled:
        parser.add_argument("--unlabelled", action="store_true", default=False,
                            help="there is one class, of all records")


def add_reading_arguments(parser: argparse.ArgumentParser, skip_unreadable: str) -> None:
    """Adds the flags that say how files are read, where they are no settings of a run; one has this help."""
    parser.add_argument("--skip_unreadable", action="store_true", default=False, help=skip_unreadable)
    parser.add_argument("--picture_bits", type=int, default=None, metavar="B",
                        help="bits that pictures of 16 or 32 bits really have, as in train")


def add_auto_delta(parser: argparse.ArgumentParser, text: str) -> None:
    """Lets `--delta`, which the parser has, also be `auto`; `text` becomes the flag's help."""
    def read(word: str) -> float | str:
        return plans.AUTO if word.lower() == plans.AUTO else float(word)

    read.__name__ = "float"  # Named in argparse's message.
    action = next(action for action in parser._actions if action.dest == "delta")
    action.type = read
    action.help = text


def without_auto_delta(given: Mapping[str, Any]) -> dict[str, Any]:
    """The given settings, without a delta that only the data decide; a resumed run has its delta as a number."""
    return {name: value for name, value in given.items() if (name, value) != ("delta", plans.AUTO)}


def with_auto_delta(args: argparse.Namespace, config: C, num_records: int) -> C:
    """The settings of a new run, with the delta that follows from n where `--delta auto` asks for it."""
    if args.resume or getattr(args, "delta", None) != plans.AUTO:
        return config
    return config.replace(delta=deltas.automatic(config.known_records(num_records)))


def image_size(text: str) -> tuple[int, int]:
    """Reads a value of `--image_size`: height and width, each from 8 to 1024 pixels."""
    sides = text.lower().split("x")
    if not (1 <= len(sides) <= 2 and all(side.isdecimal() and 8 <= int(side[:9]) <= 1024 for side in sides)):
        raise argparse.ArgumentTypeError(f"{text!r:.99} is no size: give H or HxW, of 8 to 1024 pixels each, "
                                         "for example 28 or 48x64")
    return int(sides[0]), int(sides[-1])


def pictures(args: argparse.Namespace, shape: tuple[int, int, int] | None = None, *,
             num_classes: int | None = None, skip_unreadable: bool = False, bits: int | None = None
             ) -> datasets.Pictures:
    """Choices about pictures: those of the flags, or else those that lead to images like the ones that there are.

    Args:
      args: flags, with or without those of `add_picture_arguments`.
      shape: (H, W, C) of the images that the pictures must fit; None where there are no images yet.
      num_classes: number of classes Y of these images; one class means that there are no labels.
      skip_unreadable, bits: see `datasets.Pictures`.

    Raises:
      InvalidArgumentError: the flags ask for other images than there are.
    """
    asked = datasets.Pictures(
        image_size=getattr(args, "image_size", None), color=getattr(args, "color", None),
        skip_unreadable=skip_unreadable, bits=bits, unlabelled=getattr(args, "unlabelled", False))
    return asked.fitting(shape, num_classes)


def pictures_of(args: argparse.Namespace, config: DataConfig) -> datasets.Pictures:
    """Choices about pictures in a run with these settings; see `pictures`."""
    return pictures(args, config.image_shape, num_classes=config.num_classes, skip_unreadable=config.skip_unreadable,
                    bits=config.picture_bits)


def say_defaults(args: argparse.Namespace, place: str) -> None:
    """Says which size and colours pictures get where no flag says it."""
    if data_registry.decodes_pictures(place) and None in (args.image_size, args.color):
        (height, width), color = args.image_size or DEFAULT_IMAGE_SIZE, args.color or DEFAULT_COLOR
        print(f"pictures are brought to {height} x {width} pixels, {color}: --image_size and --color choose others")


def write_unreadable(folder: pathlib.Path, skip_unreadable: bool, *loaded: datasets.Dataset) -> None:
    """Lists skipped files in the private folder, which must exist, and says so."""
    if skip_unreadable:
        runs.write_unreadable(folder, *loaded)
    say_unreadable(folder, skip_unreadable)


def say_unreadable(folder: pathlib.Path, skip_unreadable: bool) -> None:
    """Says where skipped files are listed; the line is the same whether there are any or not."""
    if skip_unreadable:
        print(f"files that cannot be read, if there are any: {run_folder.RunFolder(folder).unreadable}")


def preset_help() -> str:
    """The help of `--preset`."""
    names = sorted({dataset for dataset, _ in registry.presets()})
    return f"take the settings made for this data set: {', '.join(names)}"


def preset_config(args: argparse.Namespace) -> MethodConfig:
    """The preset for the budget; by default, for the smallest budget that the preset was made for."""
    return plans.preset_config(getattr(args, "preset", None) or args.dataset,
                              getattr(args, "method", registry.DEFAULT), vars(args))


def data_name(name: str) -> str:
    """Reads a value of `--data_name`: 1 to 100 printable characters, no `/` among them."""
    if not name or not name.isprintable() or "/" in name or os.sep in name or len(name) > 100:
        raise argparse.ArgumentTypeError(
            f"{name!r:.120} is no name: give 1 to 100 characters that can be seen, no / among them")
    return name


def read_token(file: str) -> str:
    """Reads the token of a server from a file."""
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
    return runs.load_run(folder)


def drawers(model: str) -> runs.Drawers:
    """`runs.drawers` of the run or export that a user names; a run must be finished."""
    running.check_finished(pathlib.Path(model))
    return runs.drawers(pathlib.Path(model))


def one_core_per_operation(num_threads: int) -> None:
    """Lets each operation use one core, and `num_threads` operations run side by side.

    Chunks of teachers side by side, each on one core, keep cores busier than operations split over cores.
    """
    with contextlib.suppress(RuntimeError):  # TensorFlow has started already, in a process that used it before.
        tf.config.threading.set_intra_op_parallelism_threads(1)
        tf.config.threading.set_inter_op_parallelism_threads(num_threads)
