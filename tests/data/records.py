"""Small records for tests of data: images, folders of pictures, prepared TensorFlow Datasets; and one-line refusals."""

import pathlib

import numpy as np
import pytest
from PIL import Image

from datalens_tf.errors import DataError


def images_of(count, height=8, width=8, channels=1, seed=0):
    return np.random.default_rng(seed).integers(0, 256, (count, height, width, channels), dtype=np.uint8)


def refused(call, *arguments, **keywords):
    """The text of the DataError, which must be one line."""
    with pytest.raises(DataError) as caught:
        call(*arguments, **keywords)
    assert "\n" not in str(caught.value)
    return str(caught.value)


def write_folder(root, files, size=8):
    """files: {"class/name.png": grey value}."""
    for name, value in files.items():
        path = pathlib.Path(root, name)
        path.parent.mkdir(parents=True, exist_ok=True)
        Image.fromarray(np.full((size, size), value, np.uint8)).save(path)


def store_tfds(root, name, records, features):
    """Writes a prepared TensorFlow Datasets folder of several files: of a training split, or of {split: records}."""
    import tensorflow_datasets as tfds

    folder = pathlib.Path(root, name, "1.0.0")
    folder.mkdir(parents=True)
    features = tfds.features.FeaturesDict(features)
    identity = tfds.core.dataset_info.DatasetIdentity(
        name=name, version=tfds.core.Version("1.0.0"), data_dir=str(folder), module_name="tests")
    writer = tfds.core.SequentialWriter(tfds.core.DatasetInfo(builder=identity, features=features), 20)
    records = records if isinstance(records, dict) else {"train": records}
    writer.initialize_splits(list(records))
    writer.add_examples(records)
    writer.close_all()
    return folder
