"""Synthetic images in the formats that other programs train on. A file or folder appears whole or not at all."""

import contextlib
import csv
import io
import os
import pathlib
import re
import shutil
from collections.abc import Sequence

import numpy as np

from datalens_tf import _files
from datalens_tf.data.image_grid import png_bytes
from datalens_tf.errors import InvalidArgumentError

FORMATS = ("npz", "png", "tfds")
# Endings of names that mean a single file, where a folder would be made.
_FILES = (".png", ".jpg", ".jpeg", ".gif", ".bmp", ".tif", ".tiff", ".webp", ".npy", ".zip", ".csv", ".parquet")

# Names of classes that folders can have on all systems.
_PLAIN = re.compile(r"\w([\w ,()+&'.-]{,100}[\w)])?")


def format_of(target: pathlib.Path, wanted: str | None) -> str:
    """The format to write a target in: by its name, unless one is wanted.

    Raises:
      InvalidArgumentError: an unknown format, a target that holds something else, or a name of another kind of file.
    """
    found = wanted or ("npz" if target.suffix == ".npz" else "png")
    if found not in FORMATS:
        raise InvalidArgumentError(f"Expected format={found!r} to be one of {', '.join(FORMATS)}.")
    if wanted is None and target.suffix.lower() in _FILES:
        raise InvalidArgumentError(f"Expected --output={target} to end in .npz, or to be a folder for a PNG per image: "
                                   f"--output {target.with_suffix('')}")
    if found == "npz" and target.exists():
        raise InvalidArgumentError(f"Expected --output={target} to be a new file, and it is there already: name "
                                   "another, or remove it.")
    if found != "npz" and target.exists() and not (target.is_dir() and not any(target.iterdir())):
        raise InvalidArgumentError(f"Expected --output={target} to be a new or empty folder, or to end in .npz, and it "
                                   f"is {'a folder with files' if target.is_dir() else 'a file'}: name another.")
    return found


def write_images(target: pathlib.Path, kind: str, images: np.ndarray, labels: np.ndarray, class_names: Sequence[str]
                 ) -> None:
    """Writes images.

    | kind | what it is |
    |---|---|
    | `npz` | arrays `x` and `y` |
    | `png` | a folder per class, for `tf.keras.utils.image_dataset_from_directory` and others |
    | `tfds` | TFRecord files with features, for `tfds.builder_from_directory` |

    Args:
      target: file or new folder; the folder it is in is made if missing.
      kind: of `FORMATS`.
      images: uint8 [n, H, W, C].
      labels: integers [n].
      class_names: one text per class.

    Raises:
      DataLensError: the operating system refuses.
    """
    with _files.clear_os_errors(target):
        target.parent.mkdir(parents=True, exist_ok=True)
    if kind == "npz":
        _files.atomic_write(target, _files.npz_bytes({"x": images, "y": labels}))
        return
    aside = _files.temporary_sibling(target)
    with _files.clear_os_errors(target):
        try:
            (_write_pictures if kind == "png" else _write_tfds)(aside, images, labels, class_names)
            os.rename(aside, target)
        finally:
            shutil.rmtree(aside, ignore_errors=True)


def _write_pictures(folder: pathlib.Path, images: np.ndarray, labels: np.ndarray, class_names: Sequence[str]) -> None:
    """PNG files `<class>/<number>.png`; classes go by name, or by number where a name does not suit every system.

    Then `classes.csv` says which number is which class.
    """
    distinct = len({name.casefold() for name in class_names}) == len(class_names)
    plain = distinct and all(_PLAIN.fullmatch(name) for name in class_names)
    if not plain:
        folder.mkdir()
        with open(folder / "classes.csv", "w", encoding="utf-8", newline="") as file:
            csv.writer(file).writerows([("folder", "class"), *enumerate(class_names)])
    for number, (image, label) in enumerate(zip(images, labels)):
        place = folder / (class_names[label] if plain else str(label))
        place.mkdir(parents=True, exist_ok=True)
        (place / f"{number:06d}.png").write_bytes(png_bytes(image))


def _write_tfds(folder: pathlib.Path, images: np.ndarray, labels: np.ndarray, class_names: Sequence[str]) -> None:
    """A data set prepared for TensorFlow Datasets, split `train`, features `image` and `label`."""
    import tensorflow as tf
    import tensorflow_datasets as tfds

    features = tfds.features.FeaturesDict({
        "image": tfds.features.Image(shape=images.shape[1:], encoding_format="png"),
        "label": tfds.features.ClassLabel(names=list(class_names))})
    records = tf.data.Dataset.from_tensor_slices({"image": images, "label": labels})
    # It would announce a download.
    tfds.disable_progress_bar()
    made = folder.with_name(f"{folder.name}.tfds")
    try:
        with contextlib.redirect_stdout(io.StringIO()):
            tfds.dataset_builders.store_as_tfds_dataset(
                name="synthetic", version="1.0.0", features=features, split_datasets={"train": records}, data_dir=made,
                description="Synthetic images, drawn from a generator.", disable_shuffling=True)
        os.rename(made / "synthetic" / "1.0.0", folder)
    finally:
        shutil.rmtree(made, ignore_errors=True)
