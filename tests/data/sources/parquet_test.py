"""Parquet files of pictures, as Hugging Face's datasets writes them."""

import io
import json

import numpy as np
import pyarrow
import pytest
from PIL import Image
from pyarrow import parquet

from datalens_tf.data.datasets import Pictures
from datalens_tf.data.registry import load_dataset
from datalens_tf.errors import DataError
from tests.data.records import refused

SMALL = Pictures(image_size=(8, 8), color="grey")


def png(shade):
    buffer = io.BytesIO()
    Image.new("L", (9, 12), shade).save(buffer, "PNG")
    return buffer.getvalue()


def write(path, shades, labels, names=None, column="image"):
    pictures = [{"bytes": png(shade) if isinstance(shade, int) else shade, "path": None} for shade in shades]
    table = pyarrow.table({column: pictures, "label": labels})
    if names:
        about = {"info": {"features": {"label": {"names": names, "_type": "ClassLabel"}}}}
        table = table.replace_schema_metadata({"huggingface": json.dumps(about)})
    parquet.write_table(table, path)


def test_a_folder_of_splits_with_named_classes(tmp_path):
    write(tmp_path / "train-00000-of-00002.parquet", [10, 20], [1, 0], ["cat", "dog", "emu"])
    write(tmp_path / "train-00001-of-00002.parquet", [30], [1], ["cat", "dog", "emu"])
    write(tmp_path / "test-00000-of-00001.parquet", [40], [2], ["cat", "dog", "emu"])
    train, test = (load_dataset(f"parquet:{tmp_path}", split=split, pictures=SMALL) for split in ("train", "test"))
    assert train.images[:, 0, 0, 0].tolist() == [10, 20, 30] and train.labels.tolist() == [1, 0, 1]
    assert train.class_names == test.class_names == ("cat", "dog", "emu") and test.labels.tolist() == [2]
    declared = load_dataset(f"parquet:{tmp_path}", classes=("dog", "yak"), pictures=SMALL)
    assert declared.usable.tolist() == [True, False, True]


def test_one_file_with_texts_for_labels(tmp_path):
    write(tmp_path / "x.parquet", [10, 20, 30], ["b", "a", "b"])
    dataset = load_dataset(f"parquet:{tmp_path}/x.parquet", pictures=SMALL)
    assert dataset.class_names == ("a", "b") and dataset.labels.tolist() == [1, 0, 1]
    alone = load_dataset(f"parquet:{tmp_path}/x.parquet", pictures=Pictures(image_size=(8, 8), unlabelled=True))
    assert alone.num_classes == 1 and len(alone) == 3


def test_a_column_says_whose_rows_are_protected_together(tmp_path):
    write(tmp_path / "x.parquet", [10, 20, 30], ["b", "a", "b"])
    table = parquet.read_table(tmp_path / "x.parquet")
    parquet.write_table(table.append_column("patient", [[9, 4, 9]]), tmp_path / "y.parquet")
    pictures = Pictures(image_size=(8, 8))
    data = load_dataset(f"parquet:{tmp_path}/y.parquet", pictures=pictures, unit="patient")
    assert (data.unit, data.num_units, data.units.of.tolist()) == ("patient", 2, [1, 0, 1])
    with pytest.raises(DataError, match="to be a column, one of image, label"):
        load_dataset(f"parquet:{tmp_path}/x.parquet", pictures=pictures, unit="patient")
    parquet.write_table(table.append_column("patient", [[9, None, 9]]), tmp_path / "z.parquet")
    with pytest.raises(DataError, match="found some without"):
        load_dataset(f"parquet:{tmp_path}/z.parquet", pictures=pictures, unit="patient")


def test_rows_that_hold_no_picture_or_no_class_keep_their_places(tmp_path):
    write(tmp_path / "x.parquet", [10, b"no picture", None, 40, 50], [0, 1, 0, 7, 1], ["cat", "dog"])
    text = refused(load_dataset, f"parquet:{tmp_path}/x.parquet", pictures=SMALL)
    assert "cannot read 2 of 5" in text and "'row 1'" in text and "'row 2'" in text
    dataset = load_dataset(f"parquet:{tmp_path}/x.parquet",
                           pictures=Pictures(image_size=(8, 8), color="grey", skip_unreadable=True))
    assert dataset.usable.tolist() == [True, False, False, False, True] and len(dataset) == 5
    assert not dataset.images[~dataset.usable].any()


@pytest.mark.parametrize("make, said", [
    (lambda path: path.write_bytes(b"PAR1 nothing"), "as Parquet"),
    (lambda path: parquet.write_table(pyarrow.table({"a": [1], "label": [0]}), path), "one column of pictures"),
    (lambda path: parquet.write_table(pyarrow.table({"image": [b"x"]}), path), "a column label"),
    (lambda path: write(path, [1, 2], [0, 0]), "at least two classes"), (lambda path: None, "x.parquet")])
def test_files_that_are_none(tmp_path, make, said):
    make(tmp_path / "x.parquet")
    assert said in refused(load_dataset, f"parquet:{tmp_path}/x.parquet", pictures=SMALL)


def test_names_of_npz_arrays_as_keras_has_them(tmp_path):
    images = np.zeros((3, 8, 8), np.uint8)
    np.savez(tmp_path / "x.npz", x_train=images, y_train=[0, 1, 2], x_test=images[:2], y_test=[0, 1])
    train, test = (load_dataset(f"npz:{tmp_path}/x.npz", split=split) for split in ("train", "test"))
    assert train.labels.tolist() == [0, 1, 2] and test.labels.tolist() == [0, 1] and test.num_classes == 3
