"""PNG or JPEG pictures, one sub-folder per class, under `folder:DIR`, or under its `train` and `test`.

The file name identifies the record. Names must differ between classes, and records are ordered by a keyed hash of the
name alone, so that a picture that changes its class moves no other record.
"""

import hashlib
import os
import pathlib
import warnings
from collections.abc import Iterator, Sequence

import numpy as np

from datalens_tf._text import first_line
from datalens_tf.data.datasets import SPLITS, Dataset, as_dataset, listed
from datalens_tf.errors import DataError

NAMES = {"folder:DIR": "PNG or JPEG pictures, one sub-folder per class"}
PUBLIC_CLASSES = False

_SUFFIXES = (".png", ".jpg", ".jpeg")
_MODES = {"1": "L", "L": "L", "P": "RGB", "RGB": "RGB"}  # others (alpha, CMYK, 16 bit) would lose something


def load(name: str, *, split: str, data_dir: str | None, classes: Sequence[str] | None) -> Dataset:
    """Loads a split; see `registry.Loader`.

    Pictures of undeclared classes are read as all others are: whether pictures can be read must not depend on what is
    used.
    """
    del data_dir
    files, found = _labelled_files(name, pathlib.Path(name.partition(":")[2]).expanduser(), split, classes)
    images = np.stack(list(_pictures(name, [path for path, _ in files])))
    return as_dataset(images, np.array([label for _, label in files]), len(found), name=name, class_names=found,
                      classes=classes)


def _labelled_files(name: str, root: pathlib.Path, split: str, declared: Sequence[str] | None
                    ) -> tuple[list[tuple[pathlib.Path, int]], list[str]]:
    """Files with their labels in the order of records, and the names of the classes."""
    if not root.is_dir():
        raise DataError(f"{name}: there is no folder {root}.")
    has_splits = all((root / part).is_dir() for part in SPLITS)
    if split == "test" and not has_splits:
        raise DataError(f"{name}: has no test split. Put the pictures in {root / 'train'} and {root / 'test'}.")
    folder = root / split if has_splits else root
    classes = _subfolders(folder if declared is not None or not has_splits else root / "train")
    if declared is not None and not set(declared) & set(classes):
        raise DataError(f"{name}: expected a sub-folder, which may be empty, of one of the declared classes "
                        f"{listed(declared)} in {folder}.")
    strange = set(_subfolders(folder)) - set(classes)
    if strange:
        raise DataError(f"{name}: class {min(strange)!r} of {folder} is missing in {root / 'train'}.")
    files: dict[str, tuple[pathlib.Path, int]] = {}
    for label, class_name in enumerate(classes):
        for path in _visible(folder / class_name) if (folder / class_name).is_dir() else ():
            if path.suffix.lower() not in _SUFFIXES:
                raise DataError(f"{name}: expected only PNG and JPEG pictures in the folder of a class, found {path}.")
            if path.name in files:
                raise DataError(f"{name}: found {path} and {files[path.name][0]}; a file's name identifies the record "
                                "and decides its partition, so names must differ between classes. Rename one.")
            files[path.name] = path, label
    if not files:
        raise DataError(f"{name}: expected one sub-folder of PNG or JPEG pictures per class, found none in {folder}.")
    return [files[key] for key in sorted(files, key=_keyed_hash)], classes


def _pictures(name: str, paths: Sequence[pathlib.Path]) -> Iterator[np.ndarray]:
    """Yields uint8 [H, W, C] of each file; all have the first one's shape, or DataError."""
    from PIL import Image

    shape = None
    for path in paths:
        try:
            with warnings.catch_warnings():
                warnings.simplefilter("error", Image.DecompressionBombWarning)
                picture = Image.open(path, formats=("PNG", "JPEG"))
            with picture:
                mode = picture.mode
                pixels = np.asarray(picture.convert(_MODES.get(mode, "RGB")))
        except Exception as error:
            # Pillow raises nearly anything for damaged files.
            raise DataError(f"{name}: cannot read {path} as a PNG or JPEG picture: {first_line(error)}.") from error
        if mode not in _MODES:
            raise DataError(f"{name}: expected 8-bit grey or RGB pictures, got mode {mode} in {path}.")
        pixels = pixels if pixels.ndim == 3 else pixels[..., np.newaxis]
        shape = shape or pixels.shape
        if pixels.shape != shape:
            raise DataError(f"{name}: expected pictures of one size, got {list(shape)} in {paths[0]} "
                            f"and {list(pixels.shape)} in {path}.")
        yield pixels


def _visible(folder: pathlib.Path) -> list[pathlib.Path]:
    """Entries of a folder that are not hidden, sorted by name."""
    return sorted(path for path in folder.iterdir() if not path.name.startswith("."))


def _subfolders(folder: pathlib.Path) -> list[str]:
    """Sorted names of the visible sub-folders."""
    return [path.name for path in _visible(folder) if path.is_dir()]


def _keyed_hash(file_name: str) -> bytes:
    """Public order of records: unlike a path it knows nothing of the class."""
    return hashlib.blake2b(os.fsencode(file_name), key=b"datalens_tf record order", digest_size=16).digest()
