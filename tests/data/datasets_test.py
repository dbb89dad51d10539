"""Data sets: what is accepted, what is refused in one line, and an order of records that knows no labels."""

import dataclasses
import io
import os
import pathlib
import zipfile
import zlib

import numpy as np
import pytest
from PIL import Image

from datalens_tf.data import as_dataset, load_dataset, to_unit, usable_only, user_indices
from datalens_tf.data.datasets import chunks, with_data
from datalens_tf.errors import DataError, InvalidArgumentError
from datalens_tf.methods.datalens import DataLensConfig

PREPARED = os.environ.get("TFDS_DATA_DIR")
needs_prepared_data = pytest.mark.skipif(not PREPARED, reason="TFDS_DATA_DIR names no prepared TensorFlow Datasets")


def images_of(count, height=8, width=8, channels=1, seed=0):
    return np.random.default_rng(seed).integers(0, 256, (count, height, width, channels), dtype=np.uint8)


def refused(call, *arguments, **keywords):
    """The text of the DataError, which must be one line."""
    with pytest.raises(DataError) as caught:
        call(*arguments, **keywords)
    assert "\n" not in str(caught.value)
    return str(caught.value)


class TestArrays:

    def test_uint8_is_kept_in_order_without_a_copy(self):
        images, labels = images_of(5), np.array([0, 2, 1, 1, 0], np.int32)
        dataset = as_dataset(images, labels)
        assert np.shares_memory(dataset.images, images)
        assert dataset.labels.dtype == np.int64 and dataset.labels.tolist() == [0, 2, 1, 1, 0]
        assert (dataset.num_classes, dataset.class_names, dataset.image_shape) == (3, ("0", "1", "2"), (8, 8, 1))

    def test_floats_stay_as_they_are_and_grey_images_get_their_channel(self):
        images = np.linspace(0, 1, 2 * 8 * 12).reshape(2, 8, 12)
        dataset = as_dataset(images, [0, 1], num_classes=7)
        assert dataset.images.shape == (2, 8, 12, 1) and dataset.images.dtype == np.float32
        np.testing.assert_array_equal(dataset.images[..., 0], images.astype(np.float32))
        assert dataset.num_classes == 7

    @pytest.mark.parametrize("images, message", [
        (np.full((3, 8, 8, 1), 1.5), r"float images in \[0, 1\], got values from 1.5 to 1.5"),
        (np.full((3, 8, 8, 1), -0.1), r"float images in \[0, 1\], got values from -0.1"),
        (np.full((3, 8, 8, 1), np.inf), r"float images in \[0, 1\], got values from inf"),
        (np.array([0, np.nan, 1]).repeat(64).reshape(3, 8, 8), "finite images, got NaN"),
        (np.zeros((3, 8, 8, 1), np.int64), "dtype uint8, or float .* got int64"),
        (np.zeros((3, 8, 8, 1), bool), "dtype uint8, or float .* got bool"),
        (np.zeros((3, 64), np.uint8), r"shape \[n, H, W, C\] or \[n, H, W\], got \[3, 64\]"),
        (np.zeros((0, 8, 8, 1), np.uint8), "at least one record"),
        (np.zeros((3, 8, 8, 0), np.uint8), "at least one record"),
        (np.zeros((3, 8, 10, 1), np.uint8), r"H and W divisible by 4, got images of shape \[3, 8, 10, 1\]"),
        ([np.zeros((8, 8)), np.zeros((8, 12)), np.zeros((8, 8))], "one shape, got a ragged"),
        (["cat.png", "dog.png", "emu.png"], "dtype uint8"),
    ])
    def test_bad_images(self, images, message):
        text = refused(as_dataset, images, [0, 1, 0], name="mine")
        assert text.startswith("mine: ")
        with pytest.raises(DataError, match=message):
            as_dataset(images, [0, 1, 0])

    @pytest.mark.parametrize("labels, num_classes, message", [
        ([0, 1], None, r"labels of shape \[3\], one per image, got \[2\]"),
        ([[0], [1], [0]], None, r"labels of shape \[3\], one per image, got \[3, 1\]"),
        ([0, 1, -1], None, "labels >= 0, got -1"),
        ([0.0, 1.0, 0.0], None, "integer labels, got dtype float64"),
        (["a", "b", "a"], None, "integer labels"),
        ([True, False, True], None, "integer labels, got dtype bool"),
        ([1, 1, 1], None, "at least two classes, got label 1 only"),
        ([0, 1, 2], 2, r"labels in \[0, 2\), got 2"),
        ([0, [1], 2], None, "ragged"),
    ])
    def test_bad_labels(self, labels, num_classes, message):
        refused(as_dataset, images_of(3), labels, num_classes)
        with pytest.raises(DataError, match=message):
            as_dataset(images_of(3), labels, num_classes)


class TestScaling:

    def test_fixed_for_every_byte(self):
        every = np.arange(256, dtype=np.uint8)
        assert to_unit(every).dtype == np.float32
        np.testing.assert_allclose(to_unit(every), np.arange(256) / 255, rtol=1e-7)

    def test_of_an_image_depends_on_no_other(self):
        dim = images_of(4) // 8
        with_bright_record = np.concatenate([dim, np.full_like(dim[:1], 255)])
        np.testing.assert_array_equal(to_unit(dim), to_unit(with_bright_record)[:4])

    def test_floats_are_kept(self):
        np.testing.assert_array_equal(to_unit(np.array([0, 0.3], np.float32)), np.array([0, 0.3], np.float32))


class TestDigits:

    def test_every_fifth_is_a_test_record(self):
        from sklearn.datasets import load_digits

        source = load_digits()
        train, test = load_dataset("digits"), load_dataset("digits", split="test")
        assert (len(train), len(test), train.num_classes) == (1438, 359, 10)
        np.testing.assert_array_equal(test.labels, source.target[4::5])
        np.testing.assert_array_equal(train.labels[:8], source.target[[0, 1, 2, 3, 5, 6, 7, 8]])
        np.testing.assert_allclose(test.images[..., 0] / 255, source.images[4::5] / 16, atol=0.5 / 255 + 1e-9)
        assert train.images.max() == 255


def test_unknown_names_list_the_known_ones():
    for name in ("minst", "npz:", "csv:file", ""):
        text = refused(load_dataset, name)
        assert repr(name) in text
        for known in ("digits", "mnist", "fashion_mnist", "cifar10", "tfds:NAME", "npz:FILE", "folder:DIR"):
            assert known in text


def test_unknown_splits_are_refused():
    with pytest.raises(InvalidArgumentError, match="split='validation' to be one of train, test"):
        load_dataset("digits", split="validation")


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

    def test_without_test_split(self, tmp_path):
        np.savez(tmp_path / "data.npz", x=images_of(2), y=[0, 1])
        assert "x_test and y_test for the test split" in refused(
            load_dataset, f"npz:{tmp_path}/data.npz", split="test")

    def test_missing_array_and_missing_file(self, tmp_path):
        np.savez(tmp_path / "data.npz", x=images_of(2))
        assert "got no y" in refused(load_dataset, f"npz:{tmp_path}/data.npz")
        assert f"no file {tmp_path}/other.npz" in refused(load_dataset, f"npz:{tmp_path}/other.npz")

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


def write_folder(root, files, size=8):
    """files: {"class/name.png": grey value}."""
    for name, value in files.items():
        path = pathlib.Path(root, name)
        path.parent.mkdir(parents=True, exist_ok=True)
        Image.fromarray(np.full((size, size), value, np.uint8)).save(path)


class TestFolder:

    def test_classes_are_the_sorted_sub_folders(self, tmp_path):
        write_folder(tmp_path, {"dog/a.png": 10, "cat/b.PNG": 20, "cat/c.png": 30, "emu/.hidden.png": 40,
                                "emu/d.png": 50})
        (tmp_path / "readme.txt").write_text("files beside the classes are not data")
        dataset = load_dataset(f"folder:{tmp_path}")
        assert dataset.class_names == ("cat", "dog", "emu")
        assert dataset.images.dtype == np.uint8 and dataset.image_shape == (8, 8, 1)
        found = {int(image[0, 0, 0]): int(label) for image, label in zip(dataset.images, dataset.labels)}
        assert found == {20: 0, 30: 0, 10: 1, 50: 2}

    def test_colour_jpeg(self, tmp_path):
        for name in ("cat", "dog"):
            (tmp_path / name).mkdir()
            Image.new("RGB", (12, 8), (250, 0, 0)).save(tmp_path / name / f"{name}.jpg", quality=95)
        dataset = load_dataset(f"folder:{tmp_path}")
        assert dataset.image_shape == (8, 12, 3)
        assert (dataset.images.mean(axis=(0, 1, 2)).round() // 10).tolist() == [25, 0, 0]

    def test_a_record_that_changes_its_class_moves_no_other(self, tmp_path):
        # The class is part of the path. Were records ordered by path, one changed label would shift the index, hence
        # the teacher, of many others.
        files = {f"{'ab'[i % 2]}/{i:03d}.png": i for i in range(60)}
        write_folder(tmp_path / "one", files)
        write_folder(tmp_path / "two", {**{k: v for k, v in files.items() if v != 17}, "a/017.png": 17})
        one, two = load_dataset(f"folder:{tmp_path}/one"), load_dataset(f"folder:{tmp_path}/two")
        np.testing.assert_array_equal(one.images, two.images)
        changed = np.flatnonzero(one.labels != two.labels)
        assert one.images[changed, 0, 0, 0].tolist() == [17]

    def test_a_name_in_two_classes_is_refused(self, tmp_path):
        write_folder(tmp_path, {"cat/1.png": 1, "dog/1.png": 2})
        text = refused(load_dataset, f"folder:{tmp_path}")
        assert "cat/1.png" in text and "dog/1.png" in text and "Rename" in text

    def test_splits(self, tmp_path):
        write_folder(tmp_path, {"train/cat/1.png": 1, "train/dog/2.png": 2, "train/emu/3.png": 3, "test/cat/1.png": 4,
                                "test/emu/2.png": 5})
        train, test = load_dataset(f"folder:{tmp_path}"), load_dataset(f"folder:{tmp_path}", split="test")
        assert len(train) == 3 and sorted(test.labels) == [0, 2]
        assert train.class_names == test.class_names == ("cat", "dog", "emu")
        write_folder(tmp_path, {"test/yak/9.png": 6})
        assert "class 'yak'" in refused(load_dataset, f"folder:{tmp_path}", split="test")
        assert "has no test split" in refused(load_dataset, f"folder:{tmp_path}/train", split="test")

    @pytest.mark.parametrize("side", [10_000, 60_000])
    def test_a_picture_that_would_fill_the_memory_is_refused(self, tmp_path, side):
        write_folder(tmp_path, {"cat/1.png": 1, "dog/2.png": 2})
        data = (tmp_path / "dog" / "2.png").read_bytes()
        header = data[12:16] + side.to_bytes(4, "big") * 2 + data[24:29]
        (tmp_path / "dog" / "2.png").write_bytes(data[:12] + header + zlib.crc32(header).to_bytes(4, "big") + data[33:])
        assert "decompression bomb" in refused(load_dataset, f"folder:{tmp_path}")

    def test_unfit_pictures_are_named(self, tmp_path):
        def with_file(content):
            write_folder(tmp_path, {"cat/1.png": 1, "dog/2.png": 2})
            (tmp_path / "dog" / "3.png").write_bytes(content)
            return refused(load_dataset, f"folder:{tmp_path}")

        def encoded(picture, kind="PNG"):
            buffer = io.BytesIO()
            picture.save(buffer, kind)
            return buffer.getvalue()

        noise = Image.fromarray(images_of(1, 64, 64, 3)[0])
        assert "pictures of one size" in with_file(encoded(Image.new("L", (8, 12))))
        assert "pictures of one size" in with_file(encoded(Image.new("RGB", (8, 8))))
        assert "mode RGBA" in with_file(encoded(Image.new("RGBA", (8, 8))))
        assert "mode I;16" in with_file(encoded(Image.new("I;16", (8, 8))))
        assert "cannot read" in with_file(b"")
        assert "cannot read" in with_file(b"no picture at all")
        assert "cannot read" in with_file(encoded(noise)[:3000])
        assert "cannot read" in with_file(encoded(noise, "JPEG")[:1000])
        assert "cannot read" in with_file(encoded(noise, "BMP"))

    def test_unfit_folders(self, tmp_path):
        assert "no folder" in refused(load_dataset, f"folder:{tmp_path}/missing")
        assert "one sub-folder" in refused(load_dataset, f"folder:{tmp_path}")
        write_folder(tmp_path, {"cat/1.png": 1})
        assert "two classes" in refused(load_dataset, f"folder:{tmp_path}")
        (tmp_path / "cat" / "notes.txt").write_text("")
        assert "notes.txt" in refused(load_dataset, f"folder:{tmp_path}")


def store_tfds(root, name, records, features, split="train"):
    """Writes a prepared TensorFlow Datasets folder of several files."""
    import tensorflow_datasets as tfds

    folder = pathlib.Path(root, name, "1.0.0")
    folder.mkdir(parents=True)
    features = tfds.features.FeaturesDict(features)
    identity = tfds.core.dataset_info.DatasetIdentity(
        name=name, version=tfds.core.Version("1.0.0"), data_dir=str(folder), module_name="tests")
    writer = tfds.core.SequentialWriter(tfds.core.DatasetInfo(builder=identity, features=features), 20)
    writer.initialize_splits([split])
    writer.add_examples({split: records})
    writer.close_all()
    return folder


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
        assert "one image and one class label per record, got text, label" in refused(load_dataset, f"tfds:{folder}")

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


def test_usable_only_and_chunks_keep_records_and_labels_together():
    usable = np.array([True, False, True, True, False])
    images = np.arange(5, dtype=np.uint8)[:, None, None, None] * np.ones((1, 4, 4, 1), np.uint8)
    data = dataclasses.replace(as_dataset(images, np.arange(5), 5), usable=usable, users=np.arange(5))
    kept = usable_only(data)
    assert kept.usable is None and list(kept.labels) == list(kept.users) == [0, 2, 3]
    assert usable_only(kept) is kept
    found = list(chunks(kept, 2))
    assert [len(labels) for _, labels in found] == [2, 1]
    for images, labels in found:
        assert images.dtype == np.float32
        np.testing.assert_array_equal(images[:, 0, 0, 0] * 255, labels)


class TestDeclaredClasses:
    """The number and the names of classes do not depend on the records' labels."""

    CLASSES = ("cat", "dog", "emu")

    def public(self, dataset):
        return (dataset.num_classes, dataset.class_names, dataset.image_shape, len(dataset), dataset.name,
                dataset.labels.dtype, dataset.images.dtype)

    @pytest.mark.parametrize("label", [0, 2, 3, 70_000, -1, 2**62, -2**62])
    @pytest.mark.parametrize("kind", [np.uint8, np.float32])
    def test_a_neighbour_with_any_label_has_the_same_classes(self, tmp_path, label, kind):
        images, labels = images_of(6) if kind is np.uint8 else to_unit(images_of(6)), np.array([0, 1, 0, 1, 2, 1])
        np.savez(tmp_path / "data.npz", x=images, y=labels)
        before = load_dataset(f"npz:{tmp_path}/data.npz", classes=self.CLASSES)
        labels[3] = label
        np.savez(tmp_path / "data.npz", x=images, y=labels)
        after = load_dataset(f"npz:{tmp_path}/data.npz", classes=self.CLASSES)
        assert self.public(before) == self.public(after) and before.declared and after.declared
        others = np.arange(6) != 3
        np.testing.assert_array_equal(before.images[others], after.images[others])
        np.testing.assert_array_equal(before.labels[others], after.labels[others])
        if 0 <= label < 3:
            assert after.usable is None and after.labels[3] == label
        else:  # It keeps its place, and nothing of it is left.
            assert after.usable.tolist() == others.tolist() and after.labels[3] == 0 and not after.images[3].any()

    def test_without_a_declaration_one_record_changes_their_number(self):
        """Why the statement says so."""
        assert as_dataset(images_of(3), [0, 1, 0]).num_classes == 2
        assert as_dataset(images_of(3), [0, 1, 6]).num_classes == 7
        assert not as_dataset(images_of(3), [0, 1, 6]).declared

    def test_unsigned_labels_do_not_wrap_around(self):
        labels = np.array([0, 1, 2**64 - 1, 2**63], np.uint64)
        dataset = as_dataset(images_of(4), labels, classes=self.CLASSES)
        assert dataset.usable.tolist() == [True, True, False, False] and dataset.labels.tolist() == [0, 1, 0, 0]

    def test_the_callers_arrays_are_left_alone(self):
        images, labels = images_of(3), np.array([0, 9, 1])
        kept = images.copy()
        dataset = as_dataset(images, labels, classes=self.CLASSES)
        assert np.array_equal(images, kept) and labels.tolist() == [0, 9, 1] and not dataset.images[1].any()

    @pytest.mark.parametrize("labels", [[1, 1, 1], [9, 9, 9]])
    def test_what_labels_there_are_is_no_reason_to_refuse(self, labels):
        assert as_dataset(images_of(3), labels, classes=self.CLASSES).num_classes == 3

    def test_a_number_without_a_declaration_is_checked(self):
        """Of generated images, for example, whose labels are no secret."""
        assert "labels in [0, 3), got 3" in refused(as_dataset, images_of(2), [0, 3], 3)

    def test_users_keep_their_records(self):
        dataset = as_dataset(images_of(4), [0, 9, 1, 2], classes=self.CLASSES, users=np.array([5, 5, 6, 6]))
        assert [indices.tolist() for indices in user_indices(dataset, 2, 0)] == [[0, 0], [2, 3]]

    def test_records_of_the_test_split_are_left_out(self, tmp_path):
        np.savez(tmp_path / "data.npz", x=images_of(2), y=[0, 1], x_test=images_of(3), y_test=[0, 7, 1])
        test = load_dataset(f"npz:{tmp_path}/data.npz", split="test", classes=self.CLASSES)
        assert test.labels.tolist() == [0, 1] and test.usable is None and test.num_classes == 3
        np.savez(tmp_path / "data.npz", x=images_of(2), y=[0, 1], x_test=images_of(3), y_test=[7, 7, 7])
        assert "no record of the test split" in refused(
            load_dataset, f"npz:{tmp_path}/data.npz", split="test", classes=self.CLASSES)

    def test_a_picture_that_moves_to_an_undeclared_folder_keeps_its_place(self, tmp_path):
        write_folder(tmp_path, {"cat/1.png": 1, "dog/2.png": 2, "dog/3.png": 3, "emu/4.png": 4})
        before = load_dataset(f"folder:{tmp_path}", classes=("dog", "cat", "yak"))
        (tmp_path / "new").mkdir()
        (tmp_path / "dog" / "3.png").rename(tmp_path / "new" / "3.png")
        after = load_dataset(f"folder:{tmp_path}", classes=("dog", "cat", "yak"))
        assert self.public(before) == self.public(after) and before.class_names == ("dog", "cat", "yak")
        moved = before.images[:, 0, 0, 0] == 3
        assert moved.sum() == 1 and (~after.usable)[moved].all() and not after.images[moved].any()
        np.testing.assert_array_equal(before.images[~moved], after.images[~moved])
        np.testing.assert_array_equal(before.labels[~moved], after.labels[~moved])
        assert sorted(before.labels[before.usable].tolist()) == [0, 0, 1]
        assert "yak" in refused(load_dataset, f"folder:{tmp_path}", classes=("yak", "gnu"))

    def test_folders_of_the_test_split_may_be_undeclared(self, tmp_path):
        write_folder(tmp_path, {"train/cat/1.png": 1, "train/dog/2.png": 2, "test/cat/3.png": 3, "test/new/4.png": 4})
        test = load_dataset(f"folder:{tmp_path}", split="test", classes=("cat", "dog"))
        assert test.labels.tolist() == [0] and test.class_names == ("cat", "dog")

    def test_some_classes_of_a_public_list(self):
        everything, some = load_dataset("digits"), load_dataset("digits", classes=("8", "3"))
        wanted = np.isin(everything.labels, [3, 8])
        assert some.usable.tolist() == wanted.tolist() and some.num_classes == 2 and some.declared
        np.testing.assert_array_equal(some.labels[wanted], np.where(everything.labels[wanted] == 8, 0, 1))
        np.testing.assert_array_equal(some.images[wanted], everything.images[wanted])
        assert not some.images[~wanted].any() and len(some) == len(everything)
        assert "cat" in refused(load_dataset, "digits", classes=("cat", "dog"))

    def test_settings_and_data_agree(self):
        declared = as_dataset(images_of(3), [0, 1, 9], classes=self.CLASSES)
        assert with_data(DataLensConfig(top_k=5), declared).classes == self.CLASSES
        assert with_data(DataLensConfig(top_k=5, classes=self.CLASSES), declared).num_classes == 3
        with pytest.raises(InvalidArgumentError, match="classes=.'a', 'b'. to be those"):
            with_data(DataLensConfig(top_k=5, classes=("a", "b")), declared)
        with pytest.raises(InvalidArgumentError, match="classes="):
            with_data(DataLensConfig(top_k=5, classes=self.CLASSES), as_dataset(images_of(2), [0, 1]))
