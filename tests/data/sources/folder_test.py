"""Folders of pictures: what is accepted, what is refused, and an order that knows no classes."""

import io
import zlib

import numpy as np
import pytest
from PIL import Image

from datalens_tf.data.registry import load_dataset
from tests.data.records import images_of, refused, write_folder


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
