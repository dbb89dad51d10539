"""Synthetic images in memory: how they show, and what they become."""

import sys
import types

import numpy as np
import pytest

from datalens_tf.errors import DataLensError
from datalens_tf.samples import Samples


@pytest.fixture(name="samples")
def fixture_samples():
    """Thirty images of three classes in turn."""
    images = np.random.default_rng(0).integers(0, 256, (30, 8, 8, 1)).astype(np.uint8)
    return Samples(images, np.arange(30) % 3, ["cat", "dog", "emu"])


def test_they_unpack_and_say_what_they_are(samples):
    images, labels = samples
    assert images is samples.images and labels is samples.labels
    assert repr(samples) == "Samples: 30 images [8, 8, 1] of 3 classes"


def test_notebooks_show_a_picture(samples):
    width, height = samples.picture().size
    assert width == 8 / 3 * height


def test_they_become_tf_data_and_a_folder(samples, tmp_path):
    pairs = list(samples.to_tf_data().as_numpy_iterator())
    np.testing.assert_array_equal([image for image, _ in pairs], samples.images)
    assert [label for _, label in pairs] == samples.labels.tolist()
    assert len(list(samples.to_folder(tmp_path / "x").glob("*/*.png"))) == 30


def test_they_become_data_sets_of_other_libraries(samples, monkeypatch):
    """The libraries are stood in for here: they are no dependencies, and large."""
    torch = types.SimpleNamespace(from_numpy=lambda array: array, utils=types.SimpleNamespace(
        data=types.SimpleNamespace(TensorDataset=lambda *tensors: tensors)))
    monkeypatch.setitem(sys.modules, "torch", torch)
    images, labels = samples.to_torch()
    assert images.shape == (30, 1, 8, 8) and images.dtype == np.float32 and images.flags.c_contiguous
    np.testing.assert_array_equal(np.rint(images[:, 0] * 255), samples.images[..., 0])
    assert labels is samples.labels
    for name, convert in (("torch", samples.to_torch), ("datasets", samples.to_hugging_face)):
        monkeypatch.setitem(sys.modules, name, None)
        with pytest.raises(DataLensError, match=f"pip install {name}$"):
            convert()
