"""Folders of pictures: layouts, what is skipped and what is refused, and an order that knows no classes."""

import sys
import zlib

import numpy as np
import pytest
from PIL import Image

from datalens_tf.data import partition, registry
from datalens_tf.data.datasets import Pictures
from datalens_tf.errors import DataError, DataWarning
from tests import hostile_folder
from tests.data.records import images_of, refused, write_folder

SMALL = Pictures(image_size=(8, 8), color="grey")
UNLABELLED = Pictures(image_size=(8, 8), color="grey", unlabelled=True)
SKIP = Pictures(image_size=(8, 8), color="grey", skip_unreadable=True)


def load(folder, pictures=SMALL, **more):
    return registry.load_dataset(f"folder:{folder}", pictures=pictures, **more)


def shades(dataset):
    """Class of each record by the shade of its picture."""
    return {int(image[0, 0, 0]): dataset.class_names[label] for image, label in zip(dataset.images, dataset.labels)}


class TestLayouts:

    def test_classes_are_the_sorted_sub_folders(self, tmp_path):
        write_folder(tmp_path, {"dog/a.png": 10, "cat/b.PNG": 20, "cat/c.png": 30, "emu/.hidden.png": 40,
                                "emu/d.png": 50, "emu/old/2019/d.png": 60})
        (tmp_path / "readme.txt").write_text("files beside the classes are not data")
        dataset = load(tmp_path)
        assert dataset.class_names == ("cat", "dog", "emu")
        assert dataset.images.dtype == np.uint8 and dataset.image_shape == (8, 8, 1)
        assert shades(dataset) == {20: "cat", 30: "cat", 10: "dog", 50: "emu", 60: "emu"}

    def test_the_default_shape_is_the_same_for_all_folders(self, tmp_path):
        write_folder(tmp_path, {"cat/1.png": 1, "dog/2.png": 2})
        assert load(tmp_path, None).image_shape == Pictures().image_shape == (32, 32, 3)

    def test_what_systems_leave_behind_is_no_record(self, tmp_path):
        write_folder(tmp_path, {"cat/1.png": 1, "dog/2.png": 2})
        for name in (".DS_Store", "cat/.DS_Store", "cat/Thumbs.db", "dog/desktop.ini", "__MACOSX/cat/._1.png"):
            (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
            (tmp_path / name).write_bytes(b"no picture")
        dataset = load(tmp_path)
        assert len(dataset) == 2 and dataset.class_names == ("cat", "dog")

    def test_splits(self, tmp_path):
        write_folder(tmp_path, {"train/cat/1.png": 1, "train/dog/2.png": 2, "train/emu/3.png": 3, "test/cat/1.png": 4,
                                "test/emu/2.png": 5})
        train, test = load(tmp_path), load(tmp_path, split="test")
        assert len(train) == 3 and sorted(test.labels) == [0, 2]
        assert train.class_names == test.class_names == ("cat", "dog", "emu")
        write_folder(tmp_path, {"test/yak/9.png": 6})
        assert "class 'yak'" in refused(load, tmp_path, split="test")
        assert "has no test split" in refused(load, tmp_path / "train", split="test")

    @pytest.mark.parametrize("text", [
        "file,label\na.png,dog\nsub/b.png,cat\nc.png,dog\n",
        "\ufeffclass;other;file_name\r\ndog;1;a.png\r\ncat;2;./sub/b.png\r\n\r\ndog;3;c.png\r\n",
        "image\tlabel\na.png\tdog\nsub/b.png\tcat\nc.png\tdog\n"])
    def test_a_table_of_labels(self, tmp_path, text):
        write_folder(tmp_path, {"a.png": 1, "sub/b.png": 2, "c.png": 3, "unlisted.png": 4})
        (tmp_path / "labels.csv").write_text(text, encoding="utf-8", newline="")
        dataset = load(tmp_path)
        assert dataset.class_names == ("cat", "dog") and shades(dataset) == {1: "dog", 2: "cat", 3: "dog"}
        declared = load(tmp_path, classes=("dog", "yak"))
        assert declared.usable.sum() == 2 and len(declared) == 3
        assert registry.survey(f"folder:{tmp_path}").public.layout == "labels.csv"

    def test_a_column_of_a_table_says_whose_pictures_are_whose(self, tmp_path):
        write_folder(tmp_path, {"a.png": 1, "sub/b.png": 2, "c.png": 3, "d.png": 4})
        (tmp_path / "labels.csv").write_text("file,Patient,label\na.png,p7,dog\nsub/b.png,p3,cat\nc.png,p7,cat\n")
        dataset = load(tmp_path, unit="patient")
        whose = {int(image[0, 0, 0]): int(unit) for image, unit in zip(dataset.images, dataset.units.of)}
        assert whose == {1: 1, 2: 0, 3: 1} and (dataset.num_units, dataset.num_slots) == (2, 2)
        survey = registry.survey(f"folder:{tmp_path}", pictures=SMALL, unit="patient")
        assert (survey.public.num_records, survey.public.unit, survey.private.unit_sizes) == (2, "patient", (1, 2))
        assert "which has the columns file, patient, label" in refused(load, tmp_path, unit="doctor")
        # Without classes as well, where every file must have one.
        assert "found none for 1: d.png" in refused(load, tmp_path, UNLABELLED, unit="patient")
        (tmp_path / "d.png").unlink()
        assert load(tmp_path, UNLABELLED, unit="patient").num_units == 2
        (tmp_path / "labels.csv").write_text("file,patient,label\na.png,,dog\nsub/b.png,p3,cat\n")
        assert "a file and a patient in row 2" in refused(load, tmp_path, unit="patient")

    def test_a_pattern_on_names_says_whose_pictures_are_whose(self, tmp_path):
        write_folder(tmp_path, {"cat/P1_a.png": 1, "cat/P22_a.png": 2, "dog/P1_b.png": 3, "dog/old/P22_b.png": 4})
        dataset = load(tmp_path, unit="(P[0-9]+)_")
        whose = {int(image[0, 0, 0]): int(unit) for image, unit in zip(dataset.images, dataset.units.of)}
        assert whose == {1: 0, 2: 1, 3: 0, 4: 1} and dataset.num_units == 2
        assert "found none for 2: " in refused(load, tmp_path, unit="(P1)_")
        assert "one group" in refused(load, tmp_path, unit="P.*")
        assert "to be a pattern: " in refused(load, tmp_path, unit="(P")

    def test_numbers_of_a_table_are_in_their_order(self, tmp_path):
        write_folder(tmp_path, {f"{number}.png": number for number in range(12)})
        (tmp_path / "labels.csv").write_text("file,label\n" + "".join(f"{n}.png,{n}\n" for n in range(12)))
        assert load(tmp_path).class_names == tuple(map(str, range(12)))

    @pytest.mark.parametrize("text, said", [
        ("a,b\n1,2\n", "columns file and label"), ("", "columns file and label"),
        ("file,label\na.png\n", "row 2"), ("file,label\na.png,\n", "row 2"), ("file,label\n../a.png,x\n", "outside"),
        ("file,label\n/etc/passwd,x\n", "outside"), ("file,label\na.png,x\n./a.png,y\n", "second time")])
    def test_tables_that_are_none(self, tmp_path, text, said):
        (tmp_path / "labels.csv").write_text(text)
        assert said in refused(load, tmp_path)

    def test_a_row_without_its_file_is_a_file_that_cannot_be_read(self, tmp_path):
        write_folder(tmp_path, {"a.png": 1, "b.png": 2})
        (tmp_path / "labels.csv").write_text("file,label\na.png,dog\nb.png,cat\nc.png,dog\n")
        assert "'c.png' (there is no such file)" in refused(load, tmp_path)
        assert load(tmp_path, SKIP).usable.sum() == 2

    def test_without_labels_there_is_one_class(self, tmp_path):
        write_folder(tmp_path, {"1.png": 1, "some/2.png": 2, "more/deep/2.png": 3})
        assert "--unlabelled" in refused(load, tmp_path / "some")
        dataset = load(tmp_path, Pictures(image_size=(8, 8), unlabelled=True))
        assert dataset.class_names == ("pictures",) and len(dataset) == 3 and not dataset.labels.any()

    def test_unfit_folders(self, tmp_path):
        assert "no folder" in refused(load, tmp_path / "missing")
        assert "one sub-folder" in refused(load, tmp_path)
        write_folder(tmp_path, {"cat/1.png": 1})
        assert "two classes" in refused(load, tmp_path)


class TestFiles:

    def test_all_files_that_cannot_be_read_are_listed_at_once(self, tmp_path):
        write_folder(tmp_path, {"cat/1.png": 1, "dog/2.png": 2})
        noise = Image.fromarray(images_of(1, 64, 64, 3)[0])
        noise.save(tmp_path / "cat" / "half.jpg")
        half = (tmp_path / "cat" / "half.jpg").read_bytes()[:1000]
        broken = {"cat/half.jpg": half, "cat/notes.txt": b"no picture at all", "dog/empty.png": b"",
                  "dog/archive.zip": b"PK\3\4", "dog/a.eps": b"%!PS-Adobe-3.0 EPSF-3.0\n%%BoundingBox: 0 0 8 8\n"}
        for name, content in broken.items():
            (tmp_path / name).write_bytes(content)
        text = refused(load, tmp_path)
        assert "cannot read 5 of 7" in text and "--skip_unreadable" in text and all(name in text for name in broken)
        dataset = load(tmp_path, SKIP)
        assert set(dataset.unreadable) == set(broken) and len(dataset) == 7 and dataset.usable.sum() == 2
        assert not dataset.images[~dataset.usable].any() and not dataset.labels[~dataset.usable].any()

    @pytest.mark.parametrize("side", [10_000, 60_000])
    def test_a_picture_that_would_fill_the_memory_is_refused(self, tmp_path, side):
        write_folder(tmp_path, {"cat/1.png": 1, "dog/2.png": 2})
        data = (tmp_path / "dog" / "2.png").read_bytes()
        header = data[12:16] + side.to_bytes(4, "big") * 2 + data[24:29]
        (tmp_path / "dog" / "2.png").write_bytes(data[:12] + header + zlib.crc32(header).to_bytes(4, "big") + data[33:])
        assert "decompression bomb" in refused(load, tmp_path)
        assert load(tmp_path, SKIP).usable.sum() == 1

    def test_links_out_of_the_folder_are_refused(self, tmp_path):
        write_folder(tmp_path, {"in/cat/1.png": 1, "in/dog/2.png": 2, "out/3.png": 3})
        (tmp_path / "in/dog/link.png").symlink_to(tmp_path / "out/3.png")
        assert "'dog/link.png' (it is a link that leads out of the folder)" in refused(load, tmp_path / "in")
        assert load(tmp_path / "in", SKIP).usable.sum() == 2
        (tmp_path / "in/emu").symlink_to(tmp_path / "out")
        assert "link to a folder" in refused(load, tmp_path / "in", SKIP)

    def test_a_table_does_not_lead_out_through_a_linked_folder(self, tmp_path):
        write_folder(tmp_path, {"in/1.png": 1, "in/2.png": 2, "out/3.png": 3})
        (tmp_path / "in/sub").symlink_to(tmp_path / "out")
        (tmp_path / "in/labels.csv").write_text("file,label\n1.png,a\n2.png,b\nsub/3.png,a\n")
        assert "'sub/3.png' (it is a link" in refused(load, tmp_path / "in")

    def test_an_empty_folder_stays_a_class(self, tmp_path):
        write_folder(tmp_path, {"cat/1.png": 1, "dog/2.png": 2})
        (tmp_path / "emu").mkdir()
        with pytest.warns(DataWarning, match="no picture is in 'emu'.*--classes"):
            dataset = load(tmp_path)
        assert dataset.class_names == ("cat", "dog", "emu")
        assert load(tmp_path, classes=("cat", "dog")).class_names == ("cat", "dog")

    def test_kinds_without_their_library(self, tmp_path, monkeypatch):
        write_folder(tmp_path, {"cat/1.png": 1, "dog/2.png": 2})
        (tmp_path / "dog/2.png").rename(tmp_path / "dog/2.dcm")
        (tmp_path / "cat/1.png").rename(tmp_path / "cat/IMG_1.HEIC")
        for module in ("pydicom", "pillow_heif"):
            monkeypatch.setitem(sys.modules, module, None)
        for pictures in (SMALL, SKIP):  # Names say so; were the file skipped, nothing would be left of such data.
            text = refused(load, tmp_path, pictures)
            assert "pip install 'datalens_tf[dicom]'" in text and "pip install 'datalens_tf[heic]'" in text


class TestPrivacy:
    """What one file may change."""

    def test_a_record_that_changes_its_class_moves_no_other(self, tmp_path):
        # The class is part of the path. Were records ordered by path, one changed label would shift the index, hence
        # the teacher, of many others.
        files = {f"{'ab'[i % 2]}/{i:03d}.png": i for i in range(60)}
        write_folder(tmp_path / "one", files)
        write_folder(tmp_path / "two", {**{k: v for k, v in files.items() if v != 17}, "a/017.png": 17})
        one, two = load(tmp_path / "one"), load(tmp_path / "two")
        np.testing.assert_array_equal(one.images, two.images)
        changed = np.flatnonzero(one.labels != two.labels)
        assert one.images[changed, 0, 0, 0].tolist() == [17] and one.slots is None

    @pytest.mark.parametrize("change", ["picture", "class", "undeclared class", "broken", "link", "bomb", "empty"])
    @pytest.mark.parametrize("names", ["differ", "repeat"])
    def test_replacing_a_file_reaches_one_teacher(self, tmp_path, change, names):
        files = {f"{'abc'[i % 3]}/{i if names == 'differ' else i // 3}.png": 100 + i for i in range(60)}
        write_folder(tmp_path, files)
        write_folder(tmp_path, {"d/other.png": 1})
        classes = ("a", "b", "c", "d")

        def read():
            """What each of ten teachers reads; and all that is public."""
            dataset = load(tmp_path, SKIP, classes=classes)
            shards = partition.teacher_indices(dataset, 10, 0)
            usable = np.ones(len(dataset), bool) if dataset.usable is None else dataset.usable
            shown = [sorted((int(dataset.images[i].sum()), int(dataset.labels[i]), bool(usable[i])) for i in set(shard))
                     for shard in shards.tolist()]
            return shown, (len(dataset), dataset.num_slots, dataset.class_names, dataset.image_shape, shards.shape)

        before, public = read()
        victim = tmp_path / "b" / ("25.png" if names == "differ" else "8.png")
        if change == "picture":
            write_folder(tmp_path, {f"b/{victim.name}": 7})
        elif change.endswith("class"):
            place = tmp_path / ("d" if change == "class" else "new") / victim.name
            place.parent.mkdir(exist_ok=True)
            victim.rename(place)
        else:
            victim.unlink()
            if change == "link":
                victim.symlink_to("/etc/passwd")
            else:
                victim.write_bytes({"broken": b"GIF89a", "empty": b"", "bomb": b"P5 60000 60000 255\n"}[change])
        after, public_after = read()
        assert public == public_after
        assert sum(one != other for one, other in zip(before, after)) == 1

    def test_files_of_one_name_share_a_teacher(self, tmp_path):
        write_folder(tmp_path, {f"{'abc'[i % 3]}/{i // 3}.png": 10 * (i // 3) + i % 3 for i in range(18)})
        dataset = load(tmp_path)
        assert len(dataset) == 18 and dataset.num_slots == 6
        for shard in partition.teacher_indices(dataset, 6, 0):
            assert len({int(dataset.images[index, 0, 0, 0]) // 10 for index in shard}) == 1 and len(set(shard)) == 3
        with pytest.raises(DataError, match="at most 6 teachers, got 7.*one name in several classes share a teacher"):
            partition.teacher_indices(dataset, 7, 0)

    def test_a_survey_keeps_the_public_apart(self, tmp_path):
        write_folder(tmp_path, {f"{'ab'[i % 2]}/{i}.png": i for i in range(20)})
        before = registry.survey(f"folder:{tmp_path}", pictures=SMALL)
        (tmp_path / "b/7.png").rename(tmp_path / "a/7.png")
        (tmp_path / "a/4.png").write_bytes(b"")
        after = registry.survey(f"folder:{tmp_path}", pictures=SMALL)
        assert before.public == after.public and before.private.class_counts == (10, 10)
        assert after.private.class_counts == (10, 9) and after.private.unreadable == {"a/4.png": "it is empty"}
        assert before.private.sizes == ((8, 8), (8, 8))


def test_a_stranger_s_folder(tmp_path):
    images, labels = images_of(120, 12, 12, 3), np.arange(120) % 3
    made = hostile_folder.write(tmp_path / "mine", images, labels, ("cat", "dög", "emu bird"), num_test=30)
    survey = registry.survey(f"folder:{made.root}")
    assert survey.public.num_records == made.num_train and survey.public.class_names == made.class_names
    assert survey.public.num_slots < made.num_train and set(survey.public.splits) == {"train", "test"}
    text = refused(load, made.root)
    assert all(name in text for name in made.broken) and f"cannot read 2 of {made.num_train}" in text
    with pytest.warns(DataWarning, match=made.empty):
        train = load(made.root, Pictures(image_size=(12, 12), skip_unreadable=True))
    assert len(train) == made.num_train and train.usable.sum() == made.num_train - 2
    test = load(made.root, Pictures(), split="test")
    assert len(test) == made.num_test and test.class_names == train.class_names
