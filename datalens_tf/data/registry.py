"""All data sets by the name that `--dataset` takes: a kind of data is a module of the folder `sources`.

A module is a source if it has a constant `NAMES`: a line for each name that it loads. A name such as `npz:FILE` stands
for all names that begin with `npz:`. A constant `PUBLIC_CLASSES` says whether the list of classes is public, and so the
same whatever records there are. A function `load` is a `Loader`. Other constants give `load` one argument more: with
`PICTURES`, how pictures become images; with `UNITS`, whose records are protected together; with `UNLABELLED`, whether
labels may be missing. Nothing else lists sources.

The index of a record decides its partition, so every source has an order that does not depend on labels or pixels.
"""

from __future__ import annotations

import importlib
import os
import pathlib
import zipfile
from collections.abc import Callable, Sequence
from typing import Any, Protocol

from etils import epy

from datalens_tf import _files, _folders, _text, _validate
from datalens_tf.data import sources as _folder
from datalens_tf.errors import DataError

with epy.lazy_imports():
    from datalens_tf.data import datasets
    from datalens_tf.data import survey as surveys

_ARCHIVES = (".zip", ".tar", ".gz", ".tgz", ".bz2", ".xz", ".7z", ".rar")


class Loader(Protocol):
    """The function `load` of a source."""

    def __call__(self, name: str, *, split: str, data_dir: str | None, classes: Sequence[str] | None
                 ) -> datasets.Dataset:
        """Loads a split.

        Args:
          name: one of the source's names, with the part behind the colon where it has one.
          split: `train` or `test`.
          data_dir: folder of TensorFlow Datasets; None takes `TFDS_DATA_DIR`, else TensorFlow Datasets' default.
          classes: names of the classes that were declared to be public. A source with a public list of classes loads
            all of them; `load_dataset` then picks the declared ones. Other sources pass them on to `as_dataset`.

        A source with the constant `PICTURES` has one argument more, `pictures`: a `Pictures`. One with `UNITS` has
        `unit`, as in the settings, or None. One with `UNLABELLED` has `unlabelled`: whether labels may be missing.

        Raises:
          DataError: data is missing, unreadable or invalid.
        """
        ...


def _sources() -> dict[str, _folders.Declaration]:
    return dict(_folders.declarations(tuple(_folder.__path__), "NAMES"))


def known_datasets() -> dict[str, str]:
    """A line for every name that `load_dataset` takes: first whole names, then those with a part to be filled in."""
    names = {name: line for source in _sources().values() for name, line in source.constants["NAMES"].items()}
    return dict(sorted(names.items(), key=lambda item: (":" in item[0], item[0])))


def _source_of(name: str) -> str | None:
    """The module that loads a data set; None where there is none."""
    kind, colon, _ = name.partition(":")
    for source, declaration in _sources().items():
        for known in declaration.constants["NAMES"]:
            if known == name if ":" not in known else colon and known.partition(":")[0] == kind:
                return source
    return None


def has_public_classes(name: str) -> bool:
    """Whether a data set's list of classes is public, and does not depend on the records that one has."""
    source = _source_of(name)
    return source is not None and _sources()[source].constants.get("PUBLIC_CLASSES", False)


def public_name(place: str, given: str | None = None) -> str:
    """Name of data in public files: the given one, else that of their file or folder; their kind stands before it.

    The kind stays, because the privacy statement says by it where classes come from.

    Raises:
      InvalidArgumentError: a name was given for data that have a public one.
    """
    if given is None:
        return _text.without_folders(place)
    kind, colon, _ = place.partition(":")
    _validate.require(bool(colon), "data_name", given, f"to be none for {place}, which has a public name")
    return f"{kind}:{given}"


def decodes_pictures(name: str) -> bool:
    """Whether a data set consists of files of pictures, whose kind fixes neither their size nor their colour."""
    source = _source_of(name)
    return source is not None and bool(_sources()[source].constants.get("PICTURES", False))


def has_test(name: str) -> bool:
    """Whether data have a test split, as far as can be said without loading them."""
    return ":" not in name or name.startswith("tfds:") or has_test_beside(name)


def has_test_beside(name: str) -> bool:
    """Whether a file or a folder has a test split in addition to the records to train on."""
    kind, _, place = name.partition(":")
    path = pathlib.Path(place).expanduser()
    if kind == "npz":
        try:
            with zipfile.ZipFile(path) as archive:
                return {"x_test.npy", "y_test.npy"} <= set(archive.namelist())
        except (OSError, zipfile.BadZipFile):
            return False
    if kind == "parquet":
        return path.is_dir() and any(path.rglob("test*.parquet"))
    return kind == "folder" and all((path / split).is_dir() for split in datasets.SPLITS)


def located(name: str) -> str:
    """Turns the name of data, or a path, into a name that finds the data from wherever a later command is started."""
    name = _with_kind(name)
    kind, _, place = name.partition(":")
    path = pathlib.Path(place).expanduser()
    is_path = kind in ("npz", "folder", "parquet") or (kind == "tfds" and (path / "dataset_info.json").is_file())
    # Owners have their data on machines of their own.
    return f"{kind}:{os.path.abspath(path)}" if place and is_path and "{owner}" not in place else name


def _with_kind(name: str) -> str:
    """Puts the kind of data that is there before a path; a data set's name, or a name with a kind, stays as it is."""
    known, path = known_datasets(), pathlib.Path(name).expanduser()
    kinds = {one.partition(":")[0] for one in known if ":" in one}
    if name in known or (name.partition(":")[0] in kinds and ":" in name):
        return name
    if path.is_dir():
        return f"{'tfds' if (path / 'dataset_info.json').is_file() else 'folder'}:{name}"
    kind = path.suffix.lower().removeprefix(".")
    return f"{kind}:{name}" if kind in kinds and path.is_file() else name


def load_dataset(name: str, *, data_dir: str | None = None, split: str = "train",
                 classes: Sequence[str] | None = None, pictures: datasets.Pictures | None = None,
                 unit: str | None = None) -> datasets.Dataset:
    """Loads a data set by the name that the command line uses.

    `known_datasets()` lists the names: data sets such as `digits` and `mnist`, and `tfds:NAME`, `tfds:FOLDER`,
    `npz:FILE`, `folder:DIR`. The modules in `datalens_tf/data/sources/` describe them.

    Args:
      name: name of a data set.
      data_dir: folder of TensorFlow Datasets; None takes `TFDS_DATA_DIR`, else TensorFlow Datasets' default. Data
        that is not there is downloaded into it where that is possible.
      split: `train` or `test`.
      classes: names of the classes that are declared to be public, in their order; None takes those of the data. In
        `npz:FILE`, whose labels have no names, label 0 is the first of them. A record of another class keeps its place
        and contributes nothing, see `as_dataset`; in the test split it is left out.
      pictures: size and colour of the images, and what is done with files that cannot be read.
      unit: the unit whose records of the train split are protected together, as in the setting `unit`.

    Raises:
      DataError: the name is unknown, or data is missing, unreadable or invalid.
      InvalidArgumentError: an unknown split.

    Example:
      >>> from datalens_tf import load_dataset
      >>> digits = load_dataset("digits")
      >>> len(digits), digits.image_shape, digits.num_classes
      (1438, (8, 8, 1), 10)
    """
    _validate.one_of("split", split, datasets.SPLITS)
    source = _source_of(name)
    if source is None or name.endswith(":"):
        path = pathlib.Path(name).expanduser()
        if path.suffix.lower() == ".npy":
            raise DataError(f"{name}: expected an .npz file, which has images and their classes: numpy.savez("
                            f"{path.stem + '.npz'!r}, x=images, y=labels) writes one.")
        if path.is_file():
            what = "unpack it, and give" if path.suffix.lower() in _ARCHIVES else "give"
            raise DataError(f"{name}: expected a folder of pictures, an .npz file, or Parquet files, found a file of "
                            f"another kind: {what} the folder that the pictures are in.")
        near = _files.did_you_mean(pathlib.Path(name.partition(":")[2] if source else name).expanduser())
        raise DataError(f"Unknown data set {name!r}. Known: {', '.join(known_datasets())}, and paths of files and "
                        f"folders.{near or _validate.did_you_mean(name, known_datasets())}")
    pictures = pictures or datasets.Pictures()
    load: Callable[..., datasets.Dataset] = importlib.import_module(f"{_folder.__name__}.{source}").load
    more: dict[str, Any] = {"pictures": pictures} if decodes_pictures(name) else {}
    if pictures.unlabelled and _sources()[source].constants.get("UNLABELLED", False):
        more["unlabelled"] = True
    if unit is not None and not _sources()[source].constants.get("UNITS", False):
        raise DataError(f"{name}: expected no unit={unit!r}: nothing says whose these records are. Leave it out.")
    if unit is not None and split == "train":
        more["unit"] = unit
    dataset = load(name, split=split, data_dir=data_dir, classes=classes, **more)
    dataset = datasets.shaped(dataset, pictures)
    if pictures.unlabelled and dataset.num_classes > 1:
        dataset = datasets.one_class(dataset)
    if classes is not None and not dataset.declared:
        dataset = datasets.declare(dataset, classes)
    if split == "test" and classes is not None:
        dataset = datasets.usable_only(dataset)
        if not len(dataset):
            raise DataError(f"{name}: no record of the test split is of a declared class. Check --classes.")
    return dataset


def survey(name: str, *, data_dir: str | None = None, classes: Sequence[str] | None = None,
           pictures: datasets.Pictures | None = None, unit: str | None = None) -> surveys.Survey:
    """Surveys the train split before anything is trained, the public facts apart from the private ones.

    For a folder, only the headers of its files are read.

    Args:
      name, data_dir, classes, pictures, unit: see `load_dataset`.

    Raises:
      DataError: data is missing or invalid; files that cannot be read are not an error here.
    """
    source, pictures = _source_of(name), pictures or datasets.Pictures()
    module = importlib.import_module(f"{_folder.__name__}.{source}") if source else None
    if module is not None and hasattr(module, "survey"):
        found: surveys.Survey = module.survey(name, classes=classes, pictures=pictures, unit=unit)
        return found
    dataset = load_dataset(name, data_dir=data_dir, classes=classes, pictures=pictures, unit=unit)
    return surveys.of_dataset(dataset, "arrays" if name.startswith("npz:") else "known")
