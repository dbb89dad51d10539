"""Labelled images from the sources that the command line names, checked and in a fixed order of records.

The index of a record decides its partition, so every source has an order that does not depend on labels or pixels.
"""

import contextlib
import dataclasses
import hashlib
import math
import os
import pathlib
import urllib.parse
import warnings
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import numpy as np
from absl import logging as absl_logging

from datalens_tf import _files, _validate
from datalens_tf._text import first_line
from datalens_tf.config import LARGEST_IMAGE, LARGEST_NUM_CLASSES
from datalens_tf.errors import DataError

SPLITS = ("train", "test")
KNOWN_DATASETS = ("digits", "mnist", "fashion_mnist", "cifar10", "celeba_gender", "celeba_hair", "places365",
                  "tfds:NAME", "tfds:FOLDER", "npz:FILE", "folder:DIR")

_LARGEST_LABELS = 2**29  # bytes of the labels of both splits: 67 million records
_LONGEST_NAME = 1024  # bytes of a user's name
CHUNK = 1000  # records that `chunks` has at once
_PICTURE_SUFFIXES = (".png", ".jpg", ".jpeg")
_PICTURE_MODES = {"1": "L", "L": "L", "P": "RGB", "RGB": "RGB"}  # others (alpha, CMYK, 16 bit) would lose something


@dataclasses.dataclass(frozen=True, kw_only=True, eq=False)
class Dataset:
    """Labelled images.

    Attributes:
      images: uint8 [n, H, W, C], or float32 in [0, 1] where the source holds floats. H and W are divisible by 4.
      labels: int64 [n] in [0, num_classes).
      num_classes: number of classes Y. Treated as public: declare classes where the labels must not be asked.
      name: what the data was loaded as.
      class_names: one text per class.
      declared: whether classes were declared to be public, and not found in the data.
      usable: bool [n], or None where all are. A record that is not keeps its index, and so its partition: whether one
        record is used must not move another. Only a teacher without any usable one trains on it.
      users: [n], integers or text: who each record is of, for methods that protect users; public. None where nobody
        said.
    """

    images: np.ndarray
    labels: np.ndarray
    num_classes: int
    name: str
    class_names: tuple[str, ...]
    declared: bool = False
    usable: np.ndarray | None = None
    users: np.ndarray | None = None

    @property
    def image_shape(self) -> tuple[int, int, int]:
        """(H, W, C)."""
        return self.images.shape[1:]

    def __len__(self) -> int:
        return len(self.images)


def with_data(config, dataset):
    """Settings with what is public about the data that they are for.

    Args:
      config: settings with `replace`.
      dataset: a `Dataset`, or what has the same public attributes.

    Raises:
      InvalidArgumentError: the settings declare classes, and the data set does not have them.
    """
    classes = dataset.class_names if dataset.declared else None
    _validate.require(config.classes in (None, classes), "classes", config.classes,
                      f"to be those that the data set was loaded with, {classes}")
    return config.replace(dataset=dataset.name, image_shape=dataset.image_shape, num_classes=dataset.num_classes,
                          classes=classes)


def to_unit(images: np.ndarray) -> np.ndarray:
    """Images as float32 in [0, 1], by a scaling that depends on no data (docs/explanation/privacy.md, rule 7).

    Args:
      images: uint8 in [0, 255], divided by 255; or float in [0, 1], kept.
    """
    images = np.asarray(images)
    if images.dtype == np.uint8:
        return images.astype(np.float32) / np.float32(255)
    return images.astype(np.float32, copy=False)


def usable_only(dataset: Dataset) -> Dataset:
    """Without the records that are not usable. Whether one is among them is for itself to say, not for others."""
    if dataset.usable is None:
        return dataset
    return dataclasses.replace(
        dataset, images=dataset.images[dataset.usable], labels=dataset.labels[dataset.usable], usable=None,
        users=None if dataset.users is None else dataset.users[dataset.usable])


def padded(records: np.ndarray, size: int) -> np.ndarray:
    """Records and zeros behind them, `size` in all: what is computed of a batch is rounded as its shape has it.

    Whoever computes numbers of records in chunks leaves out those of the zeros; then how many records are in the last
    chunk, which another record decides, has no part in a record's numbers.
    """
    return np.concatenate([records, np.zeros((size - len(records), *records.shape[1:]), records.dtype)])


def chunks(dataset: Dataset, size: int = CHUNK) -> Iterator[tuple[np.ndarray, np.ndarray]]:
    """Images, float32 in [0, 1], and labels of all records, so many at a time; of no records, one chunk of none."""
    for start in range(0, max(1, len(dataset)), size):
        yield to_unit(dataset.images[start:start + size]), dataset.labels[start:start + size]


def as_dataset(images: np.ndarray, labels: np.ndarray, num_classes: int | None = None, *, name: str = "arrays",
               class_names: Sequence[str] | None = None, classes: Sequence[str] | None = None,
               usable: np.ndarray | None = None, users: np.ndarray | None = None) -> Dataset:
    """Checks arrays and makes a Dataset of them; the order of records is kept.

    Args:
      images: uint8, or float in [0, 1]; [n, H, W, C] or [n, H, W]. H and W divisible by 4.
      labels: integers in [0, num_classes), [n]; any integers where classes are declared.
      num_classes: number of classes; None takes the largest label + 1. Larger labels are an error.
      name: named in errors and in the result.
      class_names: one text per label; None numbers them.
      classes: names of the classes that are declared to be public. A label is of the class of its name in
        `class_names`, or without these of the class at its position. A record of none of these classes keeps its place
        and contributes nothing: it is not usable, its image is black and its label 0. None: all labels are classes.
      usable: bool [n]; None for all.
      users: integers or text [n], who each record is of; None where nobody said.

    Raises:
      DataError: one line that says what is wrong.
    """
    images = _checked_images(images, name)
    labels = _checked_labels(labels, len(images), num_classes, name, declared=classes is not None)
    if users is not None:
        _check_users(_files.ArrayHeader.of(users), len(labels), name)
    if classes is not None:
        labels, inside = _places(labels, class_names, classes)
        if not inside.all():
            images = images.copy()  # The caller's are left alone.
            images[~inside] = 0
            usable = inside if usable is None else inside & usable
        num_classes, class_names = len(classes), classes
    num_classes = int(labels.max()) + 1 if num_classes is None else int(num_classes)
    if num_classes > LARGEST_NUM_CLASSES:
        raise DataError(f"{name}: expected at most {LARGEST_NUM_CLASSES:,} classes, got {num_classes}.")
    class_names = map(str, range(num_classes)) if class_names is None else class_names
    return Dataset(images=images, labels=labels, num_classes=num_classes, name=name, class_names=tuple(class_names),
                   declared=classes is not None, usable=usable, users=users)


def load_dataset(name: str, *, data_dir: str | None = None, split: str = "train",
                 classes: Sequence[str] | None = None) -> Dataset:
    """Loads a data set by the name that the command line uses.

    | name | source | order of records |
    |---|---|---|
    | `digits` | scikit-learn's 1,797 real 8x8 digits; every fifth is a test record | as embedded |
    | `mnist`, `fashion_mnist`, `cifar10` | TensorFlow Datasets | as stored |
    | `celeba_gender`, `celeba_hair` | CelebA, 64x64x3, from TensorFlow Datasets or its own files | see `load_celeba` |
    | `places365` | three classes of Places365, 64x64x3, from TensorFlow Datasets | see `load_places365` |
    | `tfds:NAME` | any TensorFlow Datasets data set with an image and a class label | as stored |
    | `tfds:FOLDER` | a folder prepared by TensorFlow Datasets, with its `dataset_info.json` | as stored |
    | `npz:FILE` | arrays `x`, `y`, and `x_test`, `y_test` for the test split; `user` of `x` | as stored |
    | `folder:DIR` | PNG or JPEG pictures, one sub-folder per class, under DIR or DIR/train and DIR/test | see below |

    `user` is optional: integers or text that say who each record of `x` is of, for the federated methods.

    In `folder:DIR` the file name identifies the record. Names must differ between classes, and records are ordered by
    a keyed hash of the name alone, so that a picture that changes its class moves no other record.

    Args:
      name: one of the above.
      data_dir: folder of TensorFlow Datasets; None takes `TFDS_DATA_DIR`, else TensorFlow Datasets' default. Data
        that is not there is downloaded into it where that is possible.
      split: `train` or `test`.
      classes: names of the classes that are declared to be public, in their order; None takes those that there are. In
        `npz:FILE`, whose labels have no names, label 0 is the first of them. A record of another class keeps its place
        and contributes nothing, see `as_dataset`; of the test split it is left out.

    Raises:
      DataError: an unknown name, or data that is missing, unreadable or not what it must be.
      InvalidArgumentError: an unknown split.
    """
    _validate.one_of("split", split, SPLITS)
    dataset = _load(name, data_dir, split, classes)
    if classes is not None and not dataset.declared:
        dataset = _declare(dataset, classes)
    if split == "test" and classes is not None:
        dataset = usable_only(dataset)
        if not len(dataset):
            raise DataError(f"{name}: no record of the test split is of a declared class. Check --classes.")
    return dataset


def _load(name: str, data_dir: str | None, split: str, classes: Sequence[str] | None) -> Dataset:
    """The data set, whose classes are declared where it has no public list of them."""
    kind, _, place = name.partition(":")
    if name == "digits":
        return _load_digits(split)
    if name in ("mnist", "fashion_mnist", "cifar10"):
        return _load_tfds(name, name, data_dir, split)
    if name in ("celeba_gender", "celeba_hair"):
        from datalens_tf.data.sources.celeba import load_celeba  # It needs this module.

        return load_celeba(name, data_dir, split)
    if name == "places365":
        from datalens_tf.data.sources.places365 import load_places365  # As well.

        return load_places365(name, data_dir, split)
    if kind == "tfds" and place:
        return _load_tfds(name, place, data_dir, split)
    if kind == "npz" and place:
        return _load_npz(name, pathlib.Path(place).expanduser(), split, classes)
    if kind == "folder" and place:
        return _load_folder(name, pathlib.Path(place).expanduser(), split, classes)
    raise DataError(f"Unknown data set {name!r}. Known: {', '.join(KNOWN_DATASETS)}.")


def _checked_images(images, name: str) -> np.ndarray:
    """uint8 or float32 [n, H, W, C], or DataError."""
    try:
        images = np.asarray(images)
    except ValueError as error:
        raise DataError(f"{name}: expected images of one shape, got a ragged sequence.") from error
    _check_images(_files.ArrayHeader.of(images), name)
    if images.ndim == 3:
        images = images[..., np.newaxis]
    if images.dtype == np.uint8:
        return images
    low, high = images.min(), images.max()
    if np.isnan(low):
        raise DataError(f"{name}: expected finite images, got NaN.")
    if not 0 <= low <= high <= 1:
        raise DataError(f"{name}: expected float images in [0, 1], got values from {low:g} to {high:g}. "
                        "Scale them, or pass uint8.")
    return images.astype(np.float32, copy=False)


def _check_images(header: _files.ArrayHeader, name: str) -> None:
    """Raises DataError where shape or type cannot be that of images: known before anything is unpacked."""
    shape = list(header.shape)
    if header.dtype != np.uint8 and header.dtype.kind != "f":
        raise DataError(f"{name}: expected images of dtype uint8, or float in [0, 1], got {header.dtype}.")
    if len(shape) not in (3, 4):
        raise DataError(f"{name}: expected images of shape [n, H, W, C] or [n, H, W], got {shape}.")
    if not header.nbytes:
        raise DataError(f"{name}: expected at least one record, got images of shape {shape}.")
    if shape[1] % 4 or shape[2] % 4:
        raise DataError(f"{name}: expected H and W divisible by 4, got images of shape {shape}. Pad or resize them.")
    if math.prod(shape[1:]) > LARGEST_IMAGE:
        raise DataError(f"{name}: expected at most {LARGEST_IMAGE:,} numbers per image, got images of shape {shape}. "
                        "Resize them.")


def _check_users(header: _files.ArrayHeader, num_records: int, name: str) -> None:
    """Raises DataError where shape or type cannot be that of the users whose records they are."""
    if header.shape != (num_records,) or header.dtype.kind not in "iuUS" or header.dtype.itemsize > _LONGEST_NAME:
        raise DataError(f"{name}: expected users of shape [{num_records}], integers or short text, got "
                        f"{list(header.shape)} of dtype {header.dtype}.")


def _declare(dataset: Dataset, classes: Sequence[str]) -> Dataset:
    """A data set that has a public list of classes, with some of these: all others are undeclared."""
    if not set(classes) & set(dataset.class_names):
        raise DataError(f"{dataset.name}: has none of the declared classes {_listed(classes)}; it has "
                        f"{_listed(dataset.class_names)}.")
    labels, inside = _places(dataset.labels, dataset.class_names, classes)
    images, usable = dataset.images, dataset.usable
    if not inside.all():
        # In place where it was decoded into a file, which may be larger than the memory.
        images = images if images.flags.writeable else images.copy()
        images[~inside] = 0
        usable = inside if usable is None else inside & usable
    return dataclasses.replace(dataset, images=images, labels=labels, num_classes=len(classes), usable=usable,
                               class_names=tuple(classes), declared=True)


def _places(labels: np.ndarray, names: Sequence[str] | None, classes: Sequence[str]) -> tuple[np.ndarray, np.ndarray]:
    """Each label's place among the classes, int64 [n], 0 where it has none; and whether it has one, bool [n]."""
    if names is not None:
        place_of = {name: place for place, name in enumerate(classes)}
        labels = np.array([place_of.get(name, -1) for name in names])[labels]
    inside = (labels >= 0) & (labels < len(classes))
    return np.where(inside, labels, 0).astype(np.int64), inside


def _listed(names: Sequence[str]) -> str:
    """The first of some names."""
    return ", ".join(names[:10]) + (", ..." if len(names) > 10 else "")


def _checked_labels(labels, num_records: int, num_classes: int | None, name: str, declared: bool = False) -> np.ndarray:
    """int64 [n] of at least two classes, or DataError; any integers where classes are declared, which say the rest."""
    try:
        labels = np.asarray(labels)
    except ValueError as error:
        raise DataError(f"{name}: expected one label per record, got a ragged sequence.") from error
    if labels.shape != (num_records,):
        raise DataError(f"{name}: expected labels of shape [{num_records}], one per image, got {list(labels.shape)}.")
    if labels.dtype.kind not in "iu":
        raise DataError(f"{name}: expected integer labels, got dtype {labels.dtype}.")
    if not num_records:
        raise DataError(f"{name}: expected at least one record, got no labels.")
    if declared:
        return labels
    if labels.min() < 0:
        raise DataError(f"{name}: expected labels >= 0, got {labels.min()}.")
    if num_classes is not None and labels.max() >= num_classes:
        raise DataError(f"{name}: expected labels in [0, {num_classes}), got {labels.max()}.")
    if labels.max() >= LARGEST_NUM_CLASSES:
        raise DataError(f"{name}: expected labels below {LARGEST_NUM_CLASSES:,}, got {labels.max()}.")
    # Where their number is known, records may be of a single class: whether they are is no reason to refuse.
    if num_classes is None and labels.min() == labels.max():
        raise DataError(f"{name}: expected at least two classes, got label {labels[0]} only.")
    if num_classes is not None and num_classes < 2:
        raise DataError(f"{name}: expected at least two classes, got num_classes={num_classes}.")
    return labels.astype(np.int64, copy=False)


def _load_digits(split: str) -> Dataset:
    """scikit-learn's digits; values 0..16 scaled to 0..255."""
    from sklearn import datasets as sklearn_datasets

    digits = sklearn_datasets.load_digits()
    images = np.rint(digits.images * (255 / 16)).astype(np.uint8)
    chosen = (np.arange(len(images)) % 5 == 4) == (split == "test")
    return as_dataset(images[chosen], digits.target[chosen], 10, name="digits")


def _load_npz(name: str, path: pathlib.Path, split: str, classes: Sequence[str] | None) -> Dataset:
    """Arrays x, y, x_test, y_test of an .npz file."""
    images, labels = ("x", "y") if split == "train" else ("x_test", "y_test")

    def read(needed, others, check):
        try:
            arrays = _files.read_npz(path, check, (needed, *others))
        except FileNotFoundError as error:
            raise DataError(f"{name}: there is no file {path}.") from error
        except (OSError, ValueError) as error:
            raise DataError(f"{name}: cannot be read as an .npz archive of plain arrays, as numpy.savez makes them: "
                            f"{first_line(error)}.") from error
        if needed not in arrays:
            raise DataError(f"{name}: expected arrays {images} and {labels} for the {split} split, got no {needed}.")
        return arrays

    # Labels first: they are small, and say how many images there may be.
    small = read(labels, {"y", "y_test"} - {labels}, _files.at_most(_LARGEST_LABELS))
    y = _checked_labels(small[labels], len(small[labels]) if small[labels].ndim else 0, None, name,
                        declared=classes is not None)

    def check(headers):
        if images in headers:
            _check_images(headers[images], name)
            if headers[images].shape[:1] != y.shape:
                raise DataError(f"{name}: expected labels of shape {list(headers[images].shape[:1])}, one per image, "
                                f"got {list(y.shape)}.")
        if "user" in headers:
            _check_users(headers["user"], len(y), name)

    arrays = read(images, ["user"] if split == "train" else [], check)
    if classes is not None:
        return as_dataset(arrays[images], y, name=name, classes=classes, users=arrays.get("user"))
    # Both splits have the classes of either, so that a class rare enough to miss one of them keeps its place.
    largest = [int(array.max()) for array in small.values() if array.dtype.kind in "iu" and array.size]
    return as_dataset(arrays[images], y, 1 + max(largest), name=name, users=arrays.get("user"))


def _load_folder(name: str, root: pathlib.Path, split: str, declared: Sequence[str] | None) -> Dataset:
    """Pictures in one sub-folder per class, ordered by a keyed hash of the file name.

    Of undeclared classes they are read as all others are: whether pictures can be read must not depend on what is used.
    """
    from PIL import Image

    if not root.is_dir():
        raise DataError(f"{name}: there is no folder {root}.")
    has_splits = all((root / part).is_dir() for part in SPLITS)
    if split == "test" and not has_splits:
        raise DataError(f"{name}: has no test split. Put the pictures in {root / 'train'} and {root / 'test'}.")
    folder = root / split if has_splits else root
    classes = _subfolders(folder if declared is not None or not has_splits else root / "train")
    if declared is not None and not set(declared) & set(classes):
        raise DataError(f"{name}: expected a sub-folder, which may be empty, of one of the declared classes "
                        f"{_listed(declared)} in {folder}.")
    strange = set(_subfolders(folder)) - set(classes)
    if strange:
        raise DataError(f"{name}: class {min(strange)!r} of {folder} is missing in {root / 'train'}.")
    files = {}
    for label, class_name in enumerate(classes):
        for path in _visible(folder / class_name) if (folder / class_name).is_dir() else ():
            if path.suffix.lower() not in _PICTURE_SUFFIXES:
                raise DataError(f"{name}: expected only PNG and JPEG pictures in the folder of a class, found {path}.")
            if path.name in files:
                raise DataError(f"{name}: found {path} and {files[path.name][0]}; a file's name identifies the record "
                                "and decides its partition, so names must differ between classes. Rename one.")
            files[path.name] = path, label
    if not files:
        raise DataError(f"{name}: expected one sub-folder of PNG or JPEG pictures per class, found none in {folder}.")
    records = [files[key] for key in sorted(files, key=_keyed_hash)]
    images = []
    for path, _ in records:
        try:
            with warnings.catch_warnings():
                warnings.simplefilter("error", Image.DecompressionBombWarning)
                picture = Image.open(path, formats=("PNG", "JPEG"))
            with picture:
                mode = picture.mode
                pixels = np.asarray(picture.convert(_PICTURE_MODES.get(mode, "RGB")))
        except Exception as error:  # pylint: disable=broad-exception-caught
            # Pillow raises nearly anything for damaged files.
            raise DataError(f"{name}: cannot read {path} as a PNG or JPEG picture: {first_line(error)}.") from error
        if mode not in _PICTURE_MODES:
            raise DataError(f"{name}: expected 8-bit grey or RGB pictures, got mode {mode} in {path}.")
        images.append(pixels if pixels.ndim == 3 else pixels[..., np.newaxis])
        if images[-1].shape != images[0].shape:
            raise DataError(f"{name}: expected pictures of one size, got {list(images[0].shape)} in {records[0][0]} "
                            f"and {list(images[-1].shape)} in {path}.")
    return as_dataset(np.stack(images), np.array([label for _, label in records]), len(classes), name=name,
                      class_names=classes, classes=declared)


def _load_tfds(name: str, source: str, data_dir: str | None, split: str) -> Dataset:
    """A data set of TensorFlow Datasets, by name or by prepared folder, in stored order."""
    import tensorflow as tf
    import tensorflow_datasets as tfds

    with _only_errors_logged():
        builder = _prepared_builder(tfds, name, source, data_dir)
        _check_split(builder, name, split)
        image, label = _image_and_label(tfds, builder.info, name)
        features = builder.info.features
        try:
            records = builder.as_dataset(
                split=split, shuffle_files=False,
                read_config=_stored_order(tfds),
                decoders=tfds.decode.PartialDecoding({image: features[image], label: features[label]}))
            # Not TFDS' own batch_size=-1, which pads smaller images with black.
            count = builder.info.splits[split].num_examples
            records = records.batch(count, drop_remainder=True).get_single_element()
        except (tf.errors.OpError, OSError, AssertionError) as error:
            raise DataError(f"{name}: cannot be read from {builder.data_dir} as images of one size: {first_line(error)}"
                            ) from error
    classes = features[label]
    return as_dataset(records[image].numpy(), records[label].numpy(), classes.num_classes, name=name,
                      class_names=classes.names)


def tfds_records(name: str, source: str, data_dir: str | None, split: str, undecoded: str
                 ) -> tuple[int, Mapping[str, Any], Iterator[dict[str, Any]]]:
    """Records of a data set of TensorFlow Datasets one by one in stored order, one feature as the bytes of its file.

    Args:
      name: named in errors.
      source, data_dir, split: see `load_dataset`.
      undecoded: name of the image feature.

    Returns:
      How many there are, their features, and the records: names of features and NumPy values.

    Raises:
      DataError: data that is missing or unreadable, at once or while it is read.
    """
    import tensorflow as tf
    import tensorflow_datasets as tfds

    with _only_errors_logged():
        builder = _prepared_builder(tfds, name, source, data_dir)
        _check_split(builder, name, split)

    def read():
        try:
            with _only_errors_logged():
                yield from tfds.as_numpy(builder.as_dataset(
                    split=split, shuffle_files=False, decoders={undecoded: tfds.decode.SkipDecoding()},
                    read_config=_stored_order(tfds)))
        except (tf.errors.OpError, OSError, AssertionError) as error:
            raise DataError(f"{name}: cannot be read from {builder.data_dir}: {first_line(error)}") from error

    return builder.info.splits[split].num_examples, builder.info.features, read()


def _prepared_builder(tfds, name: str, source: str, data_dir: str | None):
    """The TFDS builder of data that is on disk, downloaded first if it was not, or DataError."""
    folder = pathlib.Path(source).expanduser()
    if (folder / "dataset_info.json").is_file():
        try:
            return tfds.builder_from_directory(folder)
        except Exception as error:  # TFDS parses JSON and protocol buffers; what it raises has no common base.
            raise DataError(
                f"{name}: {folder} is not a readable TensorFlow Datasets folder: {first_line(error)}") from error
    if source.startswith(("/", ".", "~")):
        raise DataError(f"{name}: expected a folder prepared by TensorFlow Datasets, found no dataset_info.json "
                        f"in {folder}.")
    root = pathlib.Path(data_dir or os.environ.get("TFDS_DATA_DIR") or tfds.core.constants.DATA_DIR).expanduser()
    try:
        builder = tfds.builder(source, data_dir=root)
    except tfds.core.registered.DatasetNotFoundError as error:
        raise DataError(f"{name}: TensorFlow Datasets knows no data set {source!r}, and {root} holds none.") from error
    except Exception as error:
        raise DataError(f"{name}: cannot be loaded from {root}: {first_line(error)}") from error
    if not builder.is_prepared():
        try:
            _check_reachable(builder.url_infos)
            builder.download_and_prepare()
        except Exception as error:
            command = f"python -c \"import tensorflow_datasets as tfds; tfds.load('{source}', data_dir='{root}')\""
            raise DataError(
                f"{name}: found no prepared data set {source!r} in {root}, and downloading failed "
                f"({first_line(error)}). Name its folder with --data_dir or TFDS_DATA_DIR, or prepare it on a network: "
                f"{command}") from error
    return builder


def _check_split(builder, name: str, split: str) -> None:
    """Raises DataError where the data set has no such split."""
    if split not in builder.info.splits:
        raise DataError(f"{name}: has no {split} split, only {', '.join(builder.info.splits) or 'none'}.")


def _stored_order(tfds):
    """One file after the other: the index of a record must not depend on how many are read at once."""
    return tfds.ReadConfig(interleave_cycle_length=1, try_autocache=False)


def _check_reachable(urls: Sequence[str]) -> None:
    """Raises OSError at once where there is no network; TFDS itself retries for minutes."""
    import requests

    for url in sorted(urls)[:1]:
        if url.startswith("http"):
            try:
                requests.head(url, timeout=10)
            except (requests.exceptions.ConnectionError, requests.exceptions.Timeout) as error:
                raise OSError(f"no connection to {urllib.parse.urlsplit(url).netloc}") from error


def _image_and_label(tfds, info, name: str) -> tuple[str, str]:
    """Names of the image and the class label: the supervised pair, else the only ones there are."""
    wanted = (tfds.features.Image, tfds.features.ClassLabel)
    features = dict(info.features.items()) if isinstance(info.features, tfds.features.FeaturesDict) else {}
    pair = info.supervised_keys
    if pair and len(pair) == 2 and all(isinstance(features.get(k), kind) for k, kind in zip(pair, wanted)):
        return pair
    found = [[key for key, feature in features.items() if isinstance(feature, kind)] for kind in wanted]
    if [len(keys) for keys in found] != [1, 1]:
        raise DataError(f"{name}: expected one image and one class label per record, got {', '.join(features)}.")
    return found[0][0], found[1][0]


@contextlib.contextmanager
def _only_errors_logged() -> Iterator[None]:
    """Keeps TFDS' warnings about folders it looks into off the terminal."""
    verbosity = absl_logging.get_verbosity()
    absl_logging.set_verbosity(absl_logging.ERROR)
    try:
        yield
    finally:
        absl_logging.set_verbosity(verbosity)


def _visible(folder: pathlib.Path) -> list[pathlib.Path]:
    """Entries of a folder that are not hidden, sorted by name."""
    return sorted(path for path in folder.iterdir() if not path.name.startswith("."))


def _subfolders(folder: pathlib.Path) -> list[str]:
    """Sorted names of the visible sub-folders."""
    return [path.name for path in _visible(folder) if path.is_dir()]


def _keyed_hash(file_name: str) -> bytes:
    """Public order of records: unlike a path it knows nothing of the class."""
    return hashlib.blake2b(os.fsencode(file_name), key=b"datalens_tf record order", digest_size=16).digest()


