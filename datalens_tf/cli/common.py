"""Parts that the commands share: flags that are the fields of settings, runs and generators by their path, signals."""

import argparse
import contextlib
import functools
import json
import operator
import os
import pathlib
import signal
import types
import typing
from collections.abc import Callable, Collection, Iterator, Sequence
from typing import Any

import numpy as np

from datalens_tf import _files, _text
from datalens_tf.config import MethodConfig, check_classes, numbered
from datalens_tf.errors import CheckpointError, InvalidArgumentError
from datalens_tf.methods.datalens import PRESETS
from datalens_tf.methods.registry import config_class, config_from_json, preset
from datalens_tf.settings import Settings, declared

PRESET_HELP = f"take the settings made for this data set: {', '.join(sorted({dataset for dataset, _ in PRESETS}))}"
DATA_DIR_HELP = "folder of TensorFlow Datasets; by default TFDS_DATA_DIR"
DATA_NAME_HELP = ("what public files call the data, instead of --dataset; by default the name of its file or folder "
                  "without the folders above, or the data set's")

CLASSES = "NUMBER|NAME,...|FILE"

# Known from the data; and the one that switches privacy off, which is for tests in Python.
NOT_FLAGS = {"image_shape", "num_classes", "insecure_noise_seed"}


def add_fields(parser: Any, settings: type[Settings], names: Collection[str] | None = None) -> None:
    """A flag for each of the settings, or for those that are named; absent from the namespace unless given."""
    for name, setting in declared(settings).items():
        if name not in NOT_FLAGS and (names is None or name in names):
            add_field(parser, name, [setting.hint], setting.help)


def add_field(parser: Any, name: str, hints: Sequence[Any], text: str) -> None:
    """One flag, of a type that all hints agree on but for None."""
    text = text.replace("%", "%%")
    if name == "classes":
        parser.add_argument("--classes", type=read_classes, metavar=CLASSES, help=text)
    elif set(hints) == {bool}:
        parser.add_argument(f"--{name}", action="store_true", help=text)
    else:
        parser.add_argument(f"--{name}", type=_from_text(functools.reduce(operator.or_, hints)), metavar="VALUE",
                            help=text)


def read_classes(text: str) -> tuple[str, ...] | None:
    """Classes as they are declared on the command line: a number, names with commas, a file of one name a line, none.

    Raises:
      argparse.ArgumentTypeError: they are something else.
    """
    try:
        if text.lower() == "none":
            return None
        if text.isdecimal():
            return numbered(int(text[:20]))
        if "," in text:
            return check_classes([name.strip() for name in text.split(",")])
        return check_classes([line.strip() for line in pathlib.Path(text).read_text(encoding="utf-8").splitlines()
                              if line.strip()])
    except (OSError, UnicodeDecodeError) as error:
        raise argparse.ArgumentTypeError(
            f"Expected classes={text!r} to be a number, names separated by commas, or a text file with one name a "
            f"line: {getattr(error, 'strerror', None) or 'it is no text'}.") from error
    except InvalidArgumentError as error:
        raise argparse.ArgumentTypeError(str(error)) from error


def _from_text(hint: Any) -> Callable[[str], Any]:
    """Reads a value of the type; `none` is None where the type allows it."""
    kinds = sorted(typing.get_args(hint) or (hint,), key=lambda kind: kind is types.NoneType)

    def read(text: str) -> Any:
        return None if types.NoneType in kinds and text.lower() == "none" else kinds[0](text)

    read.__name__ = kinds[0].__name__  # Named in argparse's message.
    return read


def given_fields(args: argparse.Namespace, settings: type) -> dict[str, Any]:
    """The fields of a dataclass that the command line gave."""
    return {name: getattr(args, name) for name in declared(settings) if hasattr(args, name)}


def integers(text: str) -> list[int]:
    """`3,1,4`."""
    return [int(part) for part in text.split(",")]


integers.__name__ = "list of integers"


@contextlib.contextmanager
def stop_on_signals(request_stop: Callable[[], Any]) -> Iterator[None]:
    """The first SIGINT or SIGTERM asks to stop after the current step, the second stops at once."""
    received = []

    def handle(number: int, frame: types.FrameType | None) -> None:
        del frame
        received.append(number)
        if len(received) > 1:
            raise KeyboardInterrupt
        # Not print: the signal may have come in the middle of one.
        os.write(2, b"\ndatalens: stopping after this step; once more to stop at once\n")
        request_stop()

    previous = {number: signal.signal(number, handle) for number in (signal.SIGINT, signal.SIGTERM)}
    try:
        yield
    finally:
        for number, handler in previous.items():
            signal.signal(number, handler)


def preset_config(args: argparse.Namespace) -> MethodConfig:
    """The preset for the budget, by default the smallest one that it was made for."""
    name, method = getattr(args, "preset", None) or args.dataset, getattr(args, "method", "datalens")
    made_for = [epsilon for dataset, epsilon in PRESETS if dataset == name]
    private = config_class(method).ADJACENCY != "none"
    return preset(name, getattr(args, "epsilon", min(made_for, default=1.0) if private else None), method)


def stored_config(folder: pathlib.Path) -> MethodConfig:
    """The settings in a run folder."""
    try:
        return config_from_json((folder / "config.json").read_text(encoding="utf-8"))
    except (OSError, UnicodeDecodeError) as error:
        raise CheckpointError(f"Cannot read {folder / 'config.json'}, the settings of the run: {error}.") from error
    except InvalidArgumentError as error:
        raise CheckpointError(f"Damaged {folder / 'config.json'}: {error}") from error


def located(dataset: str) -> str:
    """Turns what `--dataset` names into a place that a later command finds from wherever it is started."""
    kind, _, place = dataset.partition(":")
    path = pathlib.Path(place).expanduser()
    is_path = kind in ("npz", "folder") or (kind == "tfds" and (path / "dataset_info.json").is_file())
    # Owners have their data on machines of their own.
    return f"{kind}:{os.path.abspath(path)}" if place and is_path and "{owner}" not in place else dataset


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


def load_run(folder: pathlib.Path):
    """The finished run in a folder."""
    config = stored_config(folder)

    from datalens_tf.methods.registry import synthesizer

    return synthesizer(config.method).load(folder)


def drawer(model: str) -> tuple[Callable[..., tuple[np.ndarray, np.ndarray]], Sequence[str]]:
    """`Synthesizer.sample` of a run folder, or of a SavedModel or a folder of its versions; and the classes' names."""
    from datalens_tf.accounting.verification import export_statement
    from datalens_tf.serving.export import load_generator, read_metadata
    from datalens_tf.serving.sampling import sample_from

    folder = pathlib.Path(model)
    if (folder / "config.json").is_file():
        run = load_run(folder)
        return run.sample, read_metadata(run.folder.generator / "1")["class_names"]
    generator = load_generator(folder)
    export_statement(generator.path)
    return functools.partial(sample_from, generator.sample, generator.num_classes), generator.class_names


def one_core_per_operation(num_threads: int) -> None:
    """Chunks of teachers side by side, each on one core, keep cores busier than operations split over cores."""
    import tensorflow as tf

    with contextlib.suppress(RuntimeError):  # TensorFlow has started already, in a process that used it before.
        tf.config.threading.set_intra_op_parallelism_threads(1)
        tf.config.threading.set_inter_op_parallelism_threads(num_threads)
