"""Arrays that cannot be images or labels are refused in one line, by the function that everybody calls."""

import warnings

import numpy as np
import pytest

from datalens_tf.data import checks
from datalens_tf.data.datasets import as_dataset
from datalens_tf.errors import DataError, DataWarning
from tests.data.records import images_of, refused


@pytest.mark.parametrize("images, message", [
    (np.full((3, 8, 8, 1), 1.5), r"float images in \[0, 1\], got values from 1.5 to 1.5"),
    (np.full((3, 8, 8, 1), 1.001), r"to 1.001: images.clip\(0, 1\) undoes what rounding added"),
    (np.full((3, 8, 8, 1), -0.1), r"float images in \[0, 1\], got values from -0.1"),
    (np.full((3, 8, 8, 1), np.inf), r"float images in \[0, 1\], got values from inf"),
    (np.array([0, np.nan, 1]).repeat(64).reshape(3, 8, 8), "finite images, got NaN"),
    (np.zeros((3, 8, 8, 1), np.int64), "dtype uint8, or float .* got int64"),
    (np.zeros((3, 8, 8, 1), np.uint16), "got uint16: .* images / 4095 those of a scanner with 12 bits"),
    (np.zeros((3, 8, 8, 1), bool), r"dtype uint8, or float .* got bool: images \* numpy.uint8\(255\) converts them"),
    (np.zeros((3, 64), np.uint8), r"shape \[n, H, W, C\] or \[n, H, W\], got \[3, 64\]"),
    (np.zeros((0, 8, 8, 1), np.uint8), "at least one record"),
    (np.zeros((3, 8, 8, 0), np.uint8), "at least one record"),
    (np.zeros((3, 8, 3, 1), np.uint8), r"H and W of at least 4, got images of shape \[3, 8, 3, 1\]"),
    ([np.zeros((8, 8)), np.zeros((8, 12)), np.zeros((8, 8))], "one shape, got a ragged"),
    (["cat.png", "dog.png", "emu.png"], "dtype uint8"),
])
def test_bad_images(images, message):
    text = refused(as_dataset, images, [0, 1, 0], name="mine")
    assert text.startswith("mine: ")
    with pytest.raises(DataError, match=message):
        as_dataset(images, [0, 1, 0])


def test_whole_numbers_of_which_1_is_white_are_pointed_out():
    with pytest.warns(DataWarning, match="nearly black. If 1 is white, images [*] 255"):
        checks.checked_images(np.eye(8, dtype=np.uint8)[None], "masks")
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        checks.checked_images(np.zeros([3, 8, 8], np.uint8), "black")
        checks.checked_images(np.eye(8, dtype=np.uint8)[None] * 2, "dark")


@pytest.mark.parametrize("labels, num_classes, message", [
    ([0, 1], None, r"labels of shape \[3\], one per image, got \[2\]"),
    ([[0], [1], [0]], None, r"labels of shape \[3\], one per image, got \[3, 1\]"),
    ([1, 2, 3], 3, r"labels in \[0, 3\), got 3: labels - 1 numbers them from 0"),
    ([0, 1, -1], None, "labels >= 0, got -1"),
    ([0.0, 1.0, 0.0], None, "integer labels, got dtype float64"),
    (["a", "b", "a"], None, "integer labels"),
    ([True, False, True], None, "integer labels, got dtype bool"),
    ([1, 1, 1], None, "at least two classes, got label 1 only"),
    ([0, 1, 2], 2, r"labels in \[0, 2\), got 2"),
    ([0, [1], 2], None, "ragged"),
])
def test_bad_labels(labels, num_classes, message):
    refused(as_dataset, images_of(3), labels, num_classes)
    with pytest.raises(DataError, match=message):
        as_dataset(images_of(3), labels, num_classes)
