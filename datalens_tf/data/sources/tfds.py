"""Data sets of TensorFlow Datasets, by name or by prepared folder, in stored order.

Data that is not in the folder of TensorFlow Datasets is downloaded into it where that is possible.
"""

import contextlib
import os
import pathlib
import urllib.parse
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import numpy as np
from absl import logging as absl_logging
from numpy.typing import ArrayLike

from datalens_tf._text import first_line
from datalens_tf.data.datasets import Dataset, as_dataset
from datalens_tf.errors import DataError

NAMES = {
    "mnist": "60,000 handwritten digits, 28x28",
    "fashion_mnist": "60,000 pictures of clothes, 28x28",
    "cifar10": "50,000 photographs of ten kinds of things, 32x32x3",
    "tfds:NAME": "any data set of TensorFlow Datasets with an image and a class label",
    "tfds:FOLDER": "a folder prepared by TensorFlow Datasets, with its dataset_info.json",
}
PUBLIC_CLASSES = True
UNITS = True


def load(name: str, *, split: str, data_dir: str | None, classes: Sequence[str] | None, unit: str | None = None
         ) -> Dataset:
    """Loads a split; see `registry.Loader`."""
    del classes
    import tensorflow as tf
    import tensorflow_datasets as tfds

    with _only_errors_logged():
        builder = _prepared_builder(tfds, name, name.partition(":")[2] or name, data_dir)
        _check_split(builder, name, split)
        image, label = _image_and_label(tfds, builder.info, name)
        features = builder.info.features
        owners = [] if unit is None else [checked_unit(name, features, unit)]
        try:
            records = builder.as_dataset(
                split=split, shuffle_files=False,
                read_config=_stored_order(tfds),
                decoders=tfds.decode.PartialDecoding({key: features[key] for key in (image, label, *owners)}))
            # Not TFDS' own batch_size=-1, which pads smaller images with black.
            count = builder.info.splits[split].num_examples
            records = records.batch(count, drop_remainder=True).get_single_element()
        except (tf.errors.OpError, OSError, AssertionError) as error:
            raise DataError(f"{name}: cannot be read from {builder.data_dir} as images of one size: {first_line(error)}"
                            ) from error
    known = features[label]
    return as_dataset(records[image].numpy(), records[label].numpy(), known.num_classes, name=name,
                      class_names=known.names, **({} if unit is None else named_units(unit, records[unit].numpy())))


def checked_unit(name: str, features: Mapping[str, Any], unit: str) -> str:
    """The feature that names each record's unit, by a number or a text; raises DataError where it does not."""
    if unit not in features or features[unit].shape != () or np.dtype(features[unit].np_dtype).kind not in "iuOSU":
        raise DataError(f"{name}: expected unit={unit!r} to be a feature that is one number or text, got "
                        f"{', '.join(features)}.")
    return unit


def named_units(unit: str, owners: ArrayLike) -> dict[str, Any]:
    """The arguments of `as_dataset` that give each record's unit, from the values of a feature [n]."""
    owners = np.asarray(owners)
    return {"units": owners if owners.dtype.kind in "iu" else owners.astype(str), "unit": unit}


def tfds_records(name: str, source: str, data_dir: str | None, split: str, undecoded: str
                 ) -> tuple[int, Mapping[str, Any], Iterator[dict[str, Any]]]:
    """Records of a data set of TensorFlow Datasets one by one in stored order, one feature as the bytes of its file.

    Args:
      name: named in errors.
      source, data_dir, split: see `load_dataset`.
      undecoded: name of the image feature.

    Returns:
      The number of records, their features, and the records: names of features and NumPy values.

    Raises:
      DataError: data is missing or unreadable; raised at once or while it is read.
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


def first_prepared(sources: Sequence[str], data_dir: str | None) -> str:
    """The first of these data sets that is prepared in a folder; where none is, the first, to be downloaded.

    Args:
      sources: names of TensorFlow Datasets or of prepared folders.
      data_dir: see `load_dataset`.
    """
    import tensorflow_datasets as tfds

    root = pathlib.Path(data_dir or os.environ.get("TFDS_DATA_DIR") or tfds.core.constants.DATA_DIR).expanduser()
    return next((source for source in sources if any(root.glob(f"{source}/*/dataset_info.json"))), sources[0])


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
    """Reads one file after the other: the index of a record must not depend on how many are read at once.

    TensorFlow does not tune the stream: with tuning, reading would end with a wait for the thread that tunes.
    """
    import tensorflow as tf

    options = tf.data.Options()
    options.autotune.enabled = False
    return tfds.ReadConfig(options=options, interleave_cycle_length=1, try_autocache=False)


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
        listed = ", ".join(sorted(features))  # whose order differs between versions of TFDS
        raise DataError(f"{name}: expected one image and one class label per record, got {listed}.")
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
