"""What is written is what other programs read."""

import csv
import os
import pathlib

import numpy as np
import pytest
import tensorflow as tf
import tensorflow_datasets as tfds

from datalens_tf.data import writing
from datalens_tf.data.registry import load_dataset
from datalens_tf.data.writing import format_of, write_images
from datalens_tf.errors import DataLensError, InvalidArgumentError

NAMES = ("cat", "dog", "eel")


@pytest.fixture(name="images", params=[1, 3])
def fixture_images(request):
    return np.random.default_rng(0).integers(0, 256, (13, 8, 4, request.param), np.uint8), np.arange(13) % 3


def test_npz(images, tmp_path):
    write_images(tmp_path / "new" / "x.npz", "npz", *images, NAMES)
    with np.load(tmp_path / "new" / "x.npz") as written:
        np.testing.assert_array_equal(written["x"], images[0])
        np.testing.assert_array_equal(written["y"], images[1])


def test_png_folders_are_what_keras_reads(images, tmp_path):
    x, y = images
    write_images(tmp_path / "samples", "png", x, y, NAMES)
    read = tf.keras.utils.image_dataset_from_directory(
        tmp_path / "samples", image_size=(8, 4), color_mode="rgb" if x.shape[-1] == 3 else "grayscale", shuffle=False)
    assert read.class_names == list(NAMES)
    pixels, labels = map(np.concatenate, zip(*read.as_numpy_iterator()))
    order = np.argsort(y, kind="stable")
    np.testing.assert_array_equal(pixels, x[order])
    np.testing.assert_array_equal(labels, y[order])
    ours = load_dataset(f"folder:{tmp_path / 'samples'}")
    assert len(ours) == 13


@pytest.mark.parametrize("names", [
    ("T-shirt/top", "Bag"), ("cat", "CAT"), ("..", "dog"), ("cat", "dog."), ("nul\0", "x"), (" a", "b"), ("", "b")])
def test_classes_whose_names_can_be_no_folders_are_numbered(names, tmp_path):
    write_images(tmp_path / "samples", "png", np.zeros((4, 8, 8, 1), np.uint8), np.arange(4) % 2, names)
    assert sorted(os.listdir(tmp_path / "samples")) == ["0", "1", "classes.csv"] and os.listdir(tmp_path) == ["samples"]
    with open(tmp_path / "samples/classes.csv", encoding="utf-8", newline="") as file:
        assert list(csv.reader(file)) == [["folder", "class"], ["0", names[0]], ["1", names[1]]]


def test_tfds_folders_are_what_tensorflow_datasets_reads(images, tmp_path):
    x, y = images
    write_images(tmp_path / "samples", "tfds", x, y, NAMES)
    builder = tfds.builder_from_directory(tmp_path / "samples")
    assert builder.info.features["label"].names == list(NAMES) and os.listdir(tmp_path) == ["samples"]
    records = list(builder.as_dataset(split="train").as_numpy_iterator())
    np.testing.assert_array_equal([record["image"] for record in records], x)
    np.testing.assert_array_equal([record["label"] for record in records], y)
    ours = load_dataset(f"tfds:{tmp_path / 'samples'}")
    np.testing.assert_array_equal(ours.images, x)
    assert ours.class_names == NAMES


@pytest.mark.parametrize("kind", ["png", "tfds"])
def test_a_failure_leaves_nothing(tmp_path, monkeypatch, kind):
    def fail(*arguments):
        pathlib.Path(arguments[0]).mkdir()
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(writing, "_write_pictures", fail)
    monkeypatch.setattr(writing, "_write_tfds", fail)
    with pytest.raises(DataLensError, match="Cannot write .*samples: No space left"):
        write_images(tmp_path / "samples", kind, np.zeros([2, 8, 4, 1], np.uint8), np.array([0, 1]), NAMES)
    assert not os.listdir(tmp_path)


def test_formats(tmp_path):
    assert format_of(tmp_path / "x.npz", None) == "npz" and format_of(tmp_path / "x", None) == "png"
    assert format_of(tmp_path / "x", "tfds") == "tfds" and format_of(tmp_path, "png") == "png"
    (tmp_path / "full").mkdir()
    (tmp_path / "full" / "file").touch()
    for target, wanted, message in ((tmp_path / "full", None, "new or empty folder"), (tmp_path / "x", "zip", "'zip'")):
        with pytest.raises(InvalidArgumentError, match=message):
            format_of(target, wanted)
