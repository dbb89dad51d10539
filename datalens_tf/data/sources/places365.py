"""Places365 (Zhou et al., 2017), with three classes of landscapes.

The paper takes "three level-2 classes, 120,000 images" and names neither the classes nor the images. Ours are the three
kinds of natural landscape of the official scene hierarchy, each with eight categories that are typical of it: at 5,000
pictures a category, as the data set has at most, 120,000 as well.
"""

from collections.abc import Sequence

import numpy as np

from datalens_tf.data.datasets import Dataset, as_dataset
from datalens_tf.data.sources.decoding import decode
from datalens_tf.data.sources.tfds import tfds_records

NAMES = {"places365": "1.8 million landscapes and other scenes of Places365, 64x64x3, three classes"}
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
_SPLITS = {"train": "train", "test": "validation"}  # The official test split has no labels.


def load(name: str, *, split: str, data_dir: str | None, classes: Sequence[str] | None) -> Dataset:
    """Places365-Standard at 64x64x3 with three classes of scenes, from TensorFlow Datasets' `places365_small`.

    Pictures of the other 341 categories keep their index, and with it their partition, but are not `usable`: whether a
    record is used decides nothing about other records. They are not decoded. Of the test split, which
    is the official validation split, they are dropped.

    Args:
      name: named in errors and in the result.
      split: `train` or `test`.
      data_dir: a folder of TensorFlow Datasets; None takes `TFDS_DATA_DIR`, else TensorFlow Datasets' default.
      classes: not used.

    Raises:
      DataError: data that is missing, unreadable or not what it must be.
    """
    del classes
    count, features, records = tfds_records(name, "places365_small", data_dir, _SPLITS[split], undecoded="image")
    label_of = {features["label"].str2int(category): label
                for label, members in enumerate(CLASSES.values()) for category in members}
    labelled = ((record["image"], label_of.get(int(record["label"]))) for record in records)
    images, labels_of_three = decode(
        name, count, ((None if label is None else image, label) for image, label in labelled),
        picture=(256, 256), box=(0, 0, 256, 256), size=64)
    usable = np.array([label is not None for label in labels_of_three])
    labels = np.array([label or 0 for label in labels_of_three], np.int64)
    if split == "test":
        return as_dataset(images[usable], labels[usable], len(CLASSES), name=name, class_names=tuple(CLASSES))
    return as_dataset(images, labels, len(CLASSES), name=name, class_names=tuple(CLASSES), usable=usable)
