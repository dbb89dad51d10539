"""What people hold in Python is taken, or refused with the line that converts it."""

import numpy as np
import pytest

from datalens_tf.data import arrays
from datalens_tf.errors import DataError, DataWarning, InvalidArgumentError

IMAGES = np.random.default_rng(0).integers(0, 256, (12, 8, 8, 3)).astype(np.uint8)
LABELS = np.arange(12) % 3
NAMES = np.array(["cat", "dog", "emu"])[LABELS]


def same(dataset, names=("0", "1", "2")):
    np.testing.assert_array_equal(dataset.images, IMAGES)
    np.testing.assert_array_equal(dataset.labels, LABELS)
    return dataset.class_names == names


def test_names_become_public_classes_and_a_warning_says_so():
    for labels in (NAMES, NAMES.tolist(), NAMES.astype(object)):
        with pytest.warns(DataWarning, match=r"the 3 classes cat, dog, emu were read from the labels.*classes=\[...\]"):
            assert same(arrays.of_python(IMAGES, labels), ("cat", "dog", "emu"))


def test_of_declared_names_others_keep_their_place_and_contribute_nothing(recwarn):
    dataset = arrays.of_python(IMAGES, NAMES, classes=("emu", "cat", "fox"))
    assert dataset.class_names == ("emu", "cat", "fox") and dataset.declared and not recwarn.list
    assert dataset.labels[dataset.usable].tolist() == [1, 0] * 4 and not dataset.images[~dataset.usable].any()


def test_without_labels_there_is_one_class():
    assert arrays.of_python(IMAGES).num_classes == 1


@pytest.mark.parametrize("labels", [LABELS, NAMES])
def test_labels_of_known_classes_are_names_or_places(labels):
    assert same(arrays.of_python(IMAGES, labels, class_names=("cat", "dog", "emu")), ("cat", "dog", "emu"))
    with pytest.raises(InvalidArgumentError, match="label"):
        arrays.of_python(IMAGES, labels, class_names=("cat", "dog"))


@pytest.mark.parametrize("images, labels, line", [
    (IMAGES.transpose(0, 3, 1, 2), LABELS, r"channels come first: images.transpose\(0, 2, 3, 1\)"),
    (IMAGES.astype(np.float32), LABELS, r"from 0 to 255: images / 255 converts them, or images.astype\('uint8'\)"),
    (IMAGES / 127.5 - 1, LABELS, r"\(images \+ 1\) / 2 converts them"),
    (IMAGES * 300.0, LABELS, "where low and high are what such images can have"),
    (IMAGES.astype(int), LABELS, r"got int64: images.astype\('uint8'\)"),
    (IMAGES, np.eye(3)[LABELS], r"labels.argmax\(1\)"),
    (IMAGES, LABELS[:, None], r"labels.reshape\(-1\)"),
    (IMAGES, LABELS.astype(float), r"labels.astype\(int\)"),
    ([IMAGES[0], IMAGES[0, 1:]], [0, 1], "resize them"),
])
def test_what_is_refused_comes_with_the_line_that_converts_it(images, labels, line):
    with pytest.raises(DataError, match=line):
        arrays.of_python(images, labels)


def test_tensors_of_tf_data_are_taken_in_batches_or_not():
    import tensorflow as tf

    records = tf.data.Dataset.from_tensor_slices((IMAGES, LABELS))
    for data in (records, records.batch(5), records.map(lambda image, label: {"image": image, "label": label})):
        assert same(arrays.of_python(data))
    with pytest.warns(DataWarning):
        assert same(arrays.of_python(tf.data.Dataset.from_tensor_slices((IMAGES, NAMES))), ("cat", "dog", "emu"))
    for data, line in [(records.repeat(), "leave out repeat"), (records.map(lambda image, label: image), "pairs"),
                       (records.batch(2).batch(2), "shape"), (records.take(0), "at least one record")]:
        with pytest.raises(DataError, match=line):
            arrays.of_python(data)
    with pytest.raises(DataError, match="leave out labels"):
        arrays.of_python(records, LABELS)


def test_data_sets_of_other_libraries_are_refused_with_the_line_that_converts_them():
    hugging_face = type("Dataset", (), {"to_parquet": None, "features": None})
    torch = type("Dataset", (), {"__module__": "torch.utils.data"})
    with pytest.raises(DataError, match="data.to_parquet"):
        arrays.of_python(hugging_face())
    with pytest.raises(DataError, match="np.stack"):
        arrays.of_python(torch())


def test_units_are_protected_together():
    dataset = arrays.of_python(IMAGES, LABELS, units=np.arange(12) // 4, unit="patient")
    assert (dataset.unit, dataset.num_units, len(dataset)) == ("patient", 3, 12)
    assert arrays.of_python(IMAGES, LABELS).unit is None
