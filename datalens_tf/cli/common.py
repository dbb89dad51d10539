"""Parts that the commands share: presets, runs and generators by their path, places of data, signals."""

from __future__ import annotations

import argparse
import contextlib
import functools
import json
import os
import pathlib
import signal
import types
from collections.abc import Callable, Iterator, Sequence
from typing import Any

from etils import epy

from datalens_tf import _files, _text
from datalens_tf.config import MethodConfig
from datalens_tf.errors import CheckpointError, InvalidArgumentError
from datalens_tf.methods import registry

with epy.lazy_imports():
    import numpy as np
    import tensorflow as tf

    from datalens_tf.accounting import verification
    from datalens_tf.methods import base
    from datalens_tf.serving import export, sampling

DATA_DIR_HELP = "folder of TensorFlow Datasets; by default TFDS_DATA_DIR"


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


def add_run_arguments(parser: argparse.ArgumentParser) -> None:
    """Adds the flags of every command that trains: the run folder, and where the data is."""
    parser.add_argument("--output_dir", required=True, help="the run folder")
    parser.add_argument("--resume", action="store_true", default=False,
                        help="continue the run in --output_dir, with its own settings")
    parser.add_argument("--data_dir", default=None, help=DATA_DIR_HELP)
    parser.add_argument("--data_name", type=data_name, default=None, metavar="NAME",
                        help="public name of the data (default: that of its file or folder)")


def preset_help() -> str:
    """The help of `--preset`."""
    names = sorted({dataset for dataset, _ in registry.presets()})
    return f"take the settings made for this data set: {', '.join(names)}"


def preset_config(args: argparse.Namespace) -> MethodConfig:
    """The preset for the budget, by default the smallest one that it was made for."""
    name, method = getattr(args, "preset", None) or args.dataset, getattr(args, "method", registry.DEFAULT)
    made_for = [epsilon for dataset, epsilon in registry.presets() if dataset == name]
    private = registry.config_class(method).ADJACENCY != "none"
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
    return registry.synthesizer(stored_config(folder).method).load(folder)


def drawer(model: str) -> tuple[Callable[..., tuple[np.ndarray, np.ndarray]], Sequence[str]]:
    """`Synthesizer.sample` of a run folder, or of a SavedModel or a folder of its versions; and the classes' names."""
    folder = pathlib.Path(model)
    if (folder / "config.json").is_file():
        run = load_run(folder)
        return run.sample, export.read_metadata(run.folder.generator / "1")["class_names"]
    generator = export.load_generator(folder)
    verification.export_statement(generator.path)
    return functools.partial(sampling.sample_from, generator.sample, generator.num_classes), generator.class_names


def one_core_per_operation(num_threads: int) -> None:
    """Chunks of teachers side by side, each on one core, keep cores busier than operations split over cores."""
    with contextlib.suppress(RuntimeError):  # TensorFlow has started already, in a process that used it before.
        tf.config.threading.set_intra_op_parallelism_threads(1)
        tf.config.threading.set_inter_op_parallelism_threads(num_threads)
