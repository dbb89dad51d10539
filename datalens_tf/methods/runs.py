"""Run folders, and what is found in them again, for the command line and for Python."""

from __future__ import annotations

import dataclasses
import functools
import json
import pathlib
from collections.abc import Callable, Sequence
from typing import Any

from etils import epy

from datalens_tf import _files
from datalens_tf.config import MethodConfig
from datalens_tf.data import shards
from datalens_tf.errors import CheckpointError, InvalidArgumentError
from datalens_tf.methods import registry

with epy.lazy_imports():
    import numpy as np

    from datalens_tf.accounting import verification
    from datalens_tf.data import datasets
    from datalens_tf.data import registry as data_registry
    from datalens_tf.methods import base
    from datalens_tf.serving import export, sampling
    from datalens_tf.training import run_folder


def check_folder(folder: pathlib.Path, *, resume: bool) -> None:
    """Checks the folder before anything is loaded.

    Raises:
      InvalidArgumentError: a new run would start over another run or among other files, or there is no run to resume.
      DataLensError: the folder cannot be written to.
    """
    if begun(folder) and not resume:
        raise InvalidArgumentError(f"{folder} holds a run: continue it with --resume, or choose another --output_dir.")
    if resume and not begun(folder):
        raise InvalidArgumentError(f"{folder} holds no run to resume: leave out --resume, or check --output_dir.")
    if not resume:
        check_unused(folder)
    _files.check_writable(folder)


def check_unused(folder: pathlib.Path) -> None:
    """Raises InvalidArgumentError where other files, perhaps the records, would lie among those that may be shared."""
    begins = any((folder / name).exists() for name in ("config.json", "private"))  # A run that was stopped at once.
    if folder.is_dir() and not begins and any(folder.iterdir()):
        raise InvalidArgumentError(f"{folder} is not empty and holds no run: choose a new --output_dir, since all of a "
                                   "run but its folder private may be shared.")


def begun(folder: pathlib.Path) -> bool:
    """Whether the folder holds a run that can be resumed."""
    return any((folder / name).exists() for name in ("ledger.jsonl", "private/releases", "private/data.json"))


def is_elsewhere(config: MethodConfig) -> bool:
    """Whether data are with owners, or in files that workers read, so that they are not loaded here."""
    return has_owners(config) or shards.has_shards(config.dataset)


def has_owners(config: MethodConfig) -> bool:
    """Whether data are with owners, so that nothing is known of them here."""
    return bool(config.num_owners)


def stored_config(folder: pathlib.Path) -> MethodConfig:
    """The settings in a run folder; raises CheckpointError where there are none."""
    try:
        return registry.config_from_json((folder / "config.json").read_text(encoding="utf-8"))
    except FileNotFoundError as error:
        raise CheckpointError(f"{folder} is no run folder, it has no config.json: give the --output_dir of `datalens "
                              f"train`.{_files.did_you_mean(folder)}") from error
    except (OSError, UnicodeDecodeError) as error:
        raise CheckpointError(f"Cannot read {folder / 'config.json'}, the settings of the run: {error}.") from error
    except InvalidArgumentError as error:
        if (folder / "classifier.keras").is_file():
            raise CheckpointError(f"{folder} has a classifier, which draws no images: use its classifier.keras or "
                                  "saved_model, or give the --output_dir of `datalens train`.") from error
        raise CheckpointError(f"Damaged {folder / 'config.json'}: {error}") from error


def read_sources(folder: pathlib.Path) -> dict[str, str]:
    """Places of a run's data and models on this machine, which only its private folder has; {} for older runs."""
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


def write_unreadable(folder: pathlib.Path, *loaded: datasets.Dataset) -> None:
    """Lists skipped files in the private folder, which must exist."""
    _files.atomic_write(run_folder.RunFolder(folder).unreadable, "".join(
        f"{file}: {reason}\n" for dataset in loaded for file, reason in dataset.unreadable.items()))


def data_of_run(folder: pathlib.Path, stored: str, given: str | None = None, name: str | None = None
                ) -> tuple[str, str]:
    """Place and public name of a run's data, or of other data that is given instead.

    Args:
      folder: the run folder.
      stored: `dataset` in its settings.
      given: other data, as `--dataset` names them.
      name: their public name.
    """
    place = read_sources(folder).get("dataset", data_registry.located(stored))
    if given is None or data_registry.located(given) == place:
        return place, stored if name in (None, stored) else data_registry.public_name(place, name)
    place = data_registry.located(given)
    # Older versions wrote the name that was given, without the kind of the data.
    return place, stored if name == stored else data_registry.public_name(place, name)


def load_run(folder: pathlib.Path) -> base.RunSynthesizer[Any]:
    """The finished run in a folder."""
    return registry.synthesizer(stored_config(folder).method).load(folder)


def class_names(path: pathlib.Path) -> tuple[str, ...]:
    """Names of the classes of a generator, in a run folder or exported; the generator is not loaded."""
    folder = path / "generator" if (path / "config.json").is_file() else path
    names: tuple[str, ...] = export.read_metadata(export.version_folder(folder))["class_names"]
    return names


@dataclasses.dataclass(frozen=True, eq=False)
class Drawers:
    """Ways to draw from a generator, as `Synthesizer.sample` draws.

    Attributes:
      training: images for classifiers to learn from.
      looking: images for people, without the moves, grain and rectangles that are there for classifiers; `training`
        itself where the generator has no others.
      class_names: names of the labels.
    """

    training: Callable[..., tuple[np.ndarray, np.ndarray]]
    looking: Callable[..., tuple[np.ndarray, np.ndarray]]
    class_names: Sequence[str]

    def for_evaluation(self, num_images: int) -> tuple[Callable[..., Any], Callable[..., Any] | None]:
        """Arguments `draw` and `show` of `evaluation.evaluate.evaluate`, for `num_images` images."""
        # The first seed's images are asked for in several places; those of all seeds together may be gigabytes.
        draw = functools.lru_cache(maxsize=1)(lambda seed: self.training(num_images, seed=seed))
        return draw, None if self.looking is self.training else lambda seed: self.looking(num_images, seed=seed)


def drawers(path: pathlib.Path) -> Drawers:
    """Ways to draw from the generator of a run folder, of a SavedModel, or of a folder of its versions."""
    if (path / "config.json").is_file():
        generator = export.load_generator(load_run(path).folder.generator)
    else:
        generator = export.load_generator(path)
        verification.export_statement(generator.path)

    def drawer(looking):
        return functools.partial(sampling.sample_from, functools.partial(generator.sample, looking=looking),
                                 generator.num_classes)

    training = drawer(False)
    return Drawers(training, drawer(True) if generator.has_looking else training, generator.class_names)
