"""Arrays of an .npz file: what is accepted, and what is refused before it is unpacked."""

import os
import zipfile

import numpy as np
import pytest

from datalens_tf.data.datasets import Pictures
from datalens_tf.data.registry import load_dataset
from tests.data.records import images_of, refused


class TestNpz:

    def test_both_splits(self, tmp_path):
        path = tmp_path / "data.npz"
        x, x_test = images_of(4), images_of(3, seed=1) / 255
        np.savez(path, x=x, y=[0, 1, 0, 1], x_test=x_test, y_test=np.array([2, 0, 1], np.uint8))
        train, test = load_dataset(f"npz:{path}"), load_dataset(f"npz:{path}", split="test")
        np.testing.assert_array_equal(train.images, x)
        np.testing.assert_array_equal(test.images, x_test.astype(np.float32))
        assert test.labels.tolist() == [2, 0, 1]
        assert train.num_classes == test.num_classes == 3

    @pytest.mark.parametrize("users", [[7, 3, 7], ["b", "a", "b"]])
    def test_who_records_are_of(self, tmp_path, users):
        path = tmp_path / "data.npz"
        np.savez(path, x=images_of(3), y=[0, 1, 0], user=users, x_test=images_of(2), y_test=[0, 1])
        assert load_dataset(f"npz:{path}").users.tolist() == users
        assert load_dataset(f"npz:{path}", split="test").users is None

    @pytest.mark.parametrize("users", [[1, 2], [[1], [2], [3]], [0.5, 1.0, 2.0]])
    def test_users_who_are_nobody(self, tmp_path, users):
        np.savez(tmp_path / "data.npz", x=images_of(3), y=[0, 1, 0], user=users)
        assert "users of shape [3], integers or short text" in refused(load_dataset, f"npz:{tmp_path}/data.npz")

    @pytest.mark.parametrize("patients", [[7, 3, 7], ["b", "a", "b"]])
    def test_an_array_says_whose_records_are_protected_together(self, tmp_path, patients):
        np.savez(tmp_path / "data.npz", x=images_of(3), y=[0, 1, 0], patient=patients, x_test=images_of(2),
                 y_test=[0, 1])
        data = load_dataset(f"npz:{tmp_path}/data.npz", unit="patient")
        assert (data.unit, data.num_units, data.units.of.tolist(), data.users) == ("patient", 2, [1, 0, 1], None)
        assert load_dataset(f"npz:{tmp_path}/data.npz", split="test", unit="patient").units is None
        assert load_dataset(f"npz:{tmp_path}/data.npz").units is None
        assert "one of patient, x_test, y_test" in refused(load_dataset, f"npz:{tmp_path}/data.npz", unit="person")
        assert "users of shape [3]" in refused(load_dataset, f"npz:{tmp_path}/data.npz", unit="y_test")
        assert "nothing says whose" in refused(load_dataset, "digits", unit="patient")

    def test_without_test_split(self, tmp_path):
        np.savez(tmp_path / "data.npz", x=images_of(2), y=[0, 1])
        assert "x_test and y_test for the test split" in refused(
            load_dataset, f"npz:{tmp_path}/data.npz", split="test")

    def test_missing_array_and_missing_file(self, tmp_path):
        np.savez(tmp_path / "data.npz", images=images_of(2), labels=[0, 1])
        assert "got no y among images, labels: " in refused(load_dataset, f"npz:{tmp_path}/data.npz")
        np.savez(tmp_path / "data.npz", x=images_of(2))
        assert "got no y among x" in refused(load_dataset, f"npz:{tmp_path}/data.npz")
        assert f"no file {tmp_path}/other.npz" in refused(load_dataset, f"npz:{tmp_path}/other.npz")

    @pytest.mark.parametrize("name", ["x", "x_train"])
    def test_records_of_one_class_need_no_labels(self, tmp_path, name):
        np.savez(tmp_path / "data.npz", **{name: images_of(3)}, patient=[7, 3, 7], x_test=images_of(2, seed=1))
        assert "Pictures without classes need --unlabelled" in refused(load_dataset, f"npz:{tmp_path}/data.npz")
        train, test = (load_dataset(f"npz:{tmp_path}/data.npz", split=split, pictures=Pictures(unlabelled=True),
                                    unit="patient") for split in ("train", "test"))
        np.testing.assert_array_equal(train.images, images_of(3))
        np.testing.assert_array_equal(test.images, images_of(2, seed=1))
        assert (train.labels.tolist(), train.class_names, train.num_units) == ([0, 0, 0], ("pictures",), 2)
        assert test.num_classes == 1 and not train.declared  # Nobody declared a class, of which there must be two.

    def test_what_is_no_image_is_told_without_labels_too(self, tmp_path):
        np.savez(tmp_path / "data.npz", x=np.zeros((3, 8, 8), np.int64), patient=[1, 2])
        for unit, wanted in ((None, "dtype uint8"), ("patient", "dtype uint8")):
            assert wanted in refused(load_dataset, f"npz:{tmp_path}/data.npz", pictures=Pictures(unlabelled=True),
                                     unit=unit)
        np.savez(tmp_path / "data.npz", x=images_of(3), patient=[1, 2])
        assert "users of shape [3]" in refused(load_dataset, f"npz:{tmp_path}/data.npz", unit="patient",
                                               pictures=Pictures(unlabelled=True))

    def test_pickled_objects_are_never_loaded(self, tmp_path):
        class Bomb:
            def __reduce__(self):
                return os.mkdir, (str(tmp_path / "executed"),)

        bombs = np.array([Bomb(), Bomb()], object)
        for arrays, said in (({"x": images_of(2), "y": bombs}, "plain arrays"), ({"x": bombs, "y": [0, 1]}, "uint8")):
            np.savez(tmp_path / "data.npz", **arrays)
            assert said in refused(load_dataset, f"npz:{tmp_path}/data.npz")
            assert not (tmp_path / "executed").exists()

    @pytest.mark.parametrize("x,y,said", [
        ((4_000_000,), np.arange(4_000_000, dtype=np.uint8) % 2, "expected images of shape"),
        ((1000, 4, 1000), np.zeros(1000, int), "at least two classes"),
        ((1000, 4, 1000), np.zeros(0, int), "at least one record"),
        ((1000, 4, 1000), np.arange(999) % 2, "expected labels of shape [1000]"),
        ((1000, 4, 1000), np.arange(1000) / 1000, "expected integer labels"),
        ((2, 1020, 1020, 8), np.arange(2), "at most 4,194,304 numbers per image"),
    ])
    def test_a_small_file_that_unfolds_to_what_cannot_be_images_is_never_unfolded(
            self, tmp_path, monkeypatch, x, y, said):
        np.savez_compressed(tmp_path / "data.npz", x=np.zeros(x, np.uint8), y=y)
        read = np.lib.format.read_array

        def small_only(*args, **kwargs):
            array = read(*args, **kwargs)
            assert array.shape[:1] == y.shape and array.ndim == 1, "images were unfolded"
            return array

        monkeypatch.setattr(np.lib.format, "read_array", small_only)
        assert said in refused(load_dataset, f"npz:{tmp_path}/data.npz")

    def test_damaged_files(self, tmp_path):
        path = tmp_path / "data.npz"
        np.savez_compressed(path, x=images_of(50), y=np.arange(50) % 2)
        whole = path.read_bytes()
        for damaged in (b"", b"text", whole[:len(whole) // 2], whole[:200] + bytes(200) + whole[400:]):
            path.write_bytes(damaged)
            refused(load_dataset, f"npz:{path}")
        with zipfile.ZipFile(path, "w") as archive:
            archive.writestr("x.npy", b"no array")
            archive.writestr("y.npy", b"no array")
        refused(load_dataset, f"npz:{path}")
        np.save(tmp_path / "data.npy", images_of(2))
        assert "as numpy.savez makes them: File is not a zip file" in refused(load_dataset, f"npz:{tmp_path}/data.npy")
