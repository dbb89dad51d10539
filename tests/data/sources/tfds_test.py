"""TensorFlow Datasets, by name and by folder."""

import os

import numpy as np
import pytest

from datalens_tf.data.registry import load_dataset
from tests.data.records import refused, store_tfds

PREPARED = os.environ.get("TFDS_DATA_DIR")
needs_prepared_data = pytest.mark.skipif(not PREPARED, reason="TFDS_DATA_DIR names no prepared TensorFlow Datasets")


@pytest.fixture
def tiny(tmp_path):
    import tensorflow_datasets as tfds

    records = [{"caption": "text", "kind": i % 2, "picture": np.full((8, 8, 1), i, np.uint8)} for i in range(50)]
    return store_tfds(
        tmp_path, "tiny", records,
        {"caption": tfds.features.Text(), "kind": tfds.features.ClassLabel(names=["even", "odd"]),
         "picture": tfds.features.Image(shape=(8, 8, 1))})


class TestTensorFlowDatasets:

    def test_any_prepared_data_set_in_stored_order(self, tmp_path, tiny, monkeypatch):
        by_folder = load_dataset(f"tfds:{tiny}")
        by_name = load_dataset("tfds:tiny", data_dir=str(tmp_path))
        monkeypatch.setenv("TFDS_DATA_DIR", str(tmp_path))
        by_variable = load_dataset("tfds:tiny")
        for dataset in (by_folder, by_name, by_variable):
            assert dataset.images[:, 0, 0, 0].tolist() == list(range(50))
            assert dataset.labels.tolist() == [0, 1] * 25
            assert dataset.class_names == ("even", "odd")
        assert "has no test split, only train" in refused(load_dataset, f"tfds:{tiny}", split="test")

    def test_a_feature_says_whose_records_are_protected_together(self, tiny):
        data = load_dataset(f"tfds:{tiny}", unit="kind")
        assert (data.num_units, data.units.of.tolist(), data.labels.tolist()) == (2, [0, 1] * 25, [0, 1] * 25)
        assert load_dataset(f"tfds:{tiny}", unit="caption").num_units == 1
        assert "to be a feature that is one number or text" in refused(load_dataset, f"tfds:{tiny}", unit="picture")

    def test_damaged_files(self, tiny):
        file = next(tiny.glob("*.tfrecord-00001*"))
        whole = file.read_bytes()
        for damaged in (whole[:len(whole) // 2], whole[:100] + bytes(50) + whole[150:]):
            file.write_bytes(damaged)
            assert "cannot be read" in refused(load_dataset, f"tfds:{tiny}")
        (tiny / "dataset_info.json").write_text("{")
        assert "not a readable" in refused(load_dataset, f"tfds:{tiny}")

    def test_data_without_one_image_and_one_label(self, tmp_path):
        import tensorflow_datasets as tfds

        folder = store_tfds(tmp_path, "texts", [{"text": "a", "label": i} for i in range(2)],
                            {"text": tfds.features.Text(), "label": tfds.features.ClassLabel(num_classes=2)})
        assert "one image and one class label per record, got label, text" in refused(load_dataset, f"tfds:{folder}")

    def test_pictures_of_different_sizes(self, tmp_path):
        import tensorflow_datasets as tfds

        records = [{"image": np.zeros((8 + 4 * i, 8, 3), np.uint8), "label": i} for i in range(2)]
        folder = store_tfds(tmp_path, "sizes", records,
                            {"image": tfds.features.Image(), "label": tfds.features.ClassLabel(num_classes=2)})
        assert "images of one size" in refused(load_dataset, f"tfds:{folder}")

    def test_missing_data_tells_folder_and_command_at_once(self, tmp_path, monkeypatch, capfd):
        import requests

        def offline(*arguments, **keywords):
            raise requests.exceptions.ConnectionError

        monkeypatch.setattr(requests, "head", offline)
        monkeypatch.setattr(requests.Session, "get", offline)
        for name in ("mnist", "fashion_mnist", "cifar10"):
            text = refused(load_dataset, name, data_dir=str(tmp_path))
            assert f"'{name}' in {tmp_path}," in text
            assert f"tfds.load('{name}', data_dir='{tmp_path}')" in text
        assert capfd.readouterr().err == ""

    def test_unknown_names_and_unprepared_folders(self, tmp_path):
        assert "knows no data set 'nonsense'" in refused(load_dataset, "tfds:nonsense", data_dir=str(tmp_path))
        assert "no dataset_info.json" in refused(load_dataset, f"tfds:{tmp_path}")
        assert "cannot be loaded" in refused(load_dataset, "tfds:Not A Name!", data_dir=str(tmp_path))

    @needs_prepared_data
    def test_real_mnist(self):
        test = load_dataset("mnist", split="test")
        assert test.images.shape == (10000, 28, 28, 1) and test.images.dtype == np.uint8
        assert np.bincount(test.labels).tolist() == [980, 1135, 1032, 1010, 982, 892, 958, 1028, 974, 1009]
        again = load_dataset("mnist", split="test", data_dir=PREPARED)
        np.testing.assert_array_equal(test.images, again.images)

    @needs_prepared_data
    def test_real_colour_pictures(self):
        test = load_dataset("tfds:cifar10_jpeg", split="test")
        assert test.images.shape == (10000, 32, 32, 3) and test.images.dtype == np.uint8
        assert np.bincount(test.labels).tolist() == [1000] * 10 and test.class_names[0] == "airplane"
        assert test.images.std((0, 1, 2)).min() > 40  # Three channels with pictures in them.

    @needs_prepared_data
    def test_real_fashion_mnist(self):
        test = load_dataset("fashion_mnist", split="test")
        assert np.bincount(test.labels).tolist() == [1000] * 10
        assert test.class_names[-1] == "Ankle boot"
