"""Places365 (Zhou et al., 2017), with three classes of scenes.

The paper takes "three level-2 classes, 120,000 images" and names neither the classes nor the images. From the whole
data set, we take the three kinds of natural landscape of the official scene hierarchy, each with eight categories that
are typical of it. At 5,000 pictures a category, the most that the data set has, that is 120,000 as well. A folder
`places_64` in the form of TensorFlow Datasets holds fewer pictures, reduced already. Its classes are its labels, the
three at the top of the hierarchy: indoor; outdoor and natural; outdoor and made by people.
"""

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from datalens_tf.data.datasets import Dataset, as_dataset
from datalens_tf.data.sources.decoding import decode
from datalens_tf.data.sources.tfds import first_prepared, tfds_records

NAMES = {"places365": "scenes of Places365, 1.8 million in all, 64x64x3, three classes"}
PUBLIC_CLASSES = True

CLASSES = {
    "mountains, hills, desert, sky": (
        "badlands", "butte", "canyon", "cliff", "desert/sand", "desert/vegetation", "mountain", "valley"),
    "water, ice, snow": (
        "beach", "coast", "iceberg", "lagoon", "lake/natural", "ocean", "river", "waterfall"),
    "forest, field, jungle": (
        "bamboo_forest", "field/cultivated", "field/wild", "forest/broadleaf", "forest_path", "hayfield", "rainforest",
        "wheat_field"),
}
_WHOLE, _REDUCED = "places365_small", "places_64"  # By TensorFlow Datasets; as a folder of pictures of 64 x 64 pixels.
_SPLITS = {"train": "train", "test": "validation"}  # The official test split has no labels.


def load(name: str, *, split: str, data_dir: str | None, classes: Sequence[str] | None) -> Dataset:
    """Places365-Standard at 64x64x3 with three classes of scenes, from `places365_small` or `places_64`.

    In `places365_small`, pictures of the other 341 categories keep their index, and with it their partition, but are
    not `usable`: whether a record is used decides nothing about other records. They are not decoded. In the test split,
    which is the official validation split, they are dropped.

    Args:
      name: named in errors and in the result.
      split: `train` or `test`.
      data_dir: a folder of TensorFlow Datasets with one of the two; `places365_small` is taken where both are there.
        None takes `TFDS_DATA_DIR`, else TensorFlow Datasets' default.
      classes: not used.

    Raises:
      DataError: data is missing, unreadable or invalid.
    """
    del classes
    source = first_prepared((_WHOLE, _REDUCED), data_dir)
    count, features, records = tfds_records(name, source, data_dir, _SPLITS[split], undecoded="image")
    names, size, label_of = _classes(features["label"], whole=source == _WHOLE)
    labelled = ((record["image"], label_of(int(record["label"]))) for record in records)
    images, labels_of_three = decode(
        name, count, ((None if label is None else image, label) for image, label in labelled),
        picture=(size, size), box=(0, 0, size, size), size=64)
    if source == _REDUCED:
        return as_dataset(images, np.array(labels_of_three, np.int64), len(names), name=name, class_names=names)
    usable = np.array([label is not None for label in labels_of_three])
    labels = np.array([label or 0 for label in labels_of_three], np.int64)
    if split == "test":
        return as_dataset(images[usable], labels[usable], len(names), name=name, class_names=names)
    return as_dataset(images, labels, len(names), name=name, class_names=names, usable=usable)


def _classes(labels: Any, whole: bool) -> tuple[tuple[str, ...], int, Callable[[int], int | None]]:
    """Names of the classes, size of the stored pictures, and the class of a stored label, None if it has no class."""
    if not whole:
        return tuple(labels.names), 64, lambda label: label
    number = {labels.str2int(category): k for k, members in enumerate(CLASSES.values()) for category in members}
    return tuple(CLASSES), 256, number.get
