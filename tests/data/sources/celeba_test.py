"""CelebA in its official formats, built small: both sources give the same records, and the filter moves nobody."""

import io
import os
import zipfile

import numpy as np
import pytest
from PIL import Image

from datalens_tf.data.partition import partition_indices, usable_indices
from datalens_tf.data.registry import load_dataset
from datalens_tf.errors import DataError
from tests.data.records import store_tfds

TRAIN, VALIDATION, TEST = 12, 2, 5
COLOURS = ("Black_Hair", "Blond_Hair", "Brown_Hair")


def picture(index):
    """A smooth picture of the official size, as a JPEG."""
    across, down = np.meshgrid(np.linspace(0, 1, 178), np.linspace(0, 1, 218))
    waves = [np.sin((index + 1) * across + channel) * np.cos(index * down) for channel in range(3)]
    buffer = io.BytesIO()
    Image.fromarray((127 + 120 * np.stack(waves, -1)).astype(np.uint8)).save(buffer, "JPEG", quality=95)
    return buffer.getvalue()


def file_name(index):
    return f"{index + 1:06d}.jpg"


@pytest.fixture(name="rows", scope="module")
def fixture_rows():
    """Attributes of every picture; each combination of hair colours occurs."""
    return [{"Male": index % 2, **{colour: (index >> bit) & 1 for bit, colour in enumerate(COLOURS)}}
            for index in range(TRAIN + VALIDATION + TEST)]


@pytest.fixture(name="official", scope="module")
def fixture_official(tmp_path_factory, rows):
    """A folder in the official layout."""
    from tensorflow_datasets.datasets.celeb_a import celeb_a_dataset_builder as celeb_a

    root = tmp_path_factory.mktemp("celeba")
    (root / "img_align_celeba").mkdir()
    for index in range(len(rows)):
        (root / "img_align_celeba" / file_name(index)).write_bytes(picture(index))
    parts = [0] * TRAIN + [1] * VALIDATION + [2] * TEST
    (root / "list_eval_partition.txt").write_text(
        "".join(f"{file_name(i)} {part}\n" for i, part in enumerate(parts)))

    def table(headings, value):
        lines = [str(len(rows)), " ".join(headings) + " "]
        lines += [f"{file_name(i)} " + " ".join(f"{value(i, name):2d}" for name in headings) for i in range(len(rows))]
        return "\n".join(lines) + "\n"

    (root / "list_attr_celeba.txt").write_text(
        table(celeb_a.ATTR_HEADINGS, lambda i, name: 1 if rows[i].get(name) else -1))
    (root / "list_landmarks_align_celeba.txt").write_text(table(celeb_a.LANDMARK_HEADINGS, lambda i, name: i))
    (root / "identity_CelebA.txt").write_text("".join(f"{file_name(i)} {i}\n" for i in range(len(rows))))
    return root


@pytest.fixture(name="prepared", scope="module")
def fixture_prepared(tmp_path_factory, official):
    """The same, prepared by TensorFlow Datasets' own builder."""
    import tensorflow_datasets as tfds

    archive = tmp_path_factory.mktemp("archive") / "img_align_celeba.zip"
    with zipfile.ZipFile(archive, "w") as file:
        for path in sorted((official / "img_align_celeba").iterdir()):
            file.write(path, f"img_align_celeba/{path.name}")
    downloaded = {"img_align_celeba": archive, "list_eval_partition": official / "list_eval_partition.txt",
                  "list_attr_celeba": official / "list_attr_celeba.txt",
                  "landmarks_celeba": official / "list_landmarks_align_celeba.txt",
                  "identity_celeba": official / "identity_CelebA.txt"}
    root = tmp_path_factory.mktemp("tensorflow_datasets")
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(tfds.download.DownloadManager, "download", lambda self, _: downloaded)
        tfds.builder("celeb_a", data_dir=root).download_and_prepare()
    return root


def store_reduced(root, rows):
    """A folder `celeba_64` below `root`, with the middle of each picture reduced to 64 x 64 pixels."""
    import tensorflow_datasets as tfds

    def record(index):
        middle = Image.open(io.BytesIO(picture(index))).resize((64, 64), Image.Resampling.BILINEAR, (0, 20, 178, 198))
        buffer = io.BytesIO()
        middle.save(buffer, "JPEG", quality=100, subsampling=0)
        return {"file_name": file_name(index), "image": io.BytesIO(buffer.getvalue()), "identity": index,
                "attributes": {key: bool(rows[index][key]) for key in ("Male", *COLOURS)}}

    splits = {"train": range(TRAIN), "validation": range(TRAIN, TRAIN + VALIDATION),
              "test": range(TRAIN + VALIDATION, len(rows))}
    return store_tfds(
        root, "celeba_64", {split: [record(index) for index in indices] for split, indices in splits.items()},
        {"file_name": tfds.features.Text(), "identity": np.int64,
         "image": tfds.features.Image(shape=(64, 64, 3), encoding_format="jpeg"),
         "attributes": dict.fromkeys(("Male", *COLOURS), np.bool_)})


def test_a_person_with_several_pictures_may_be_the_unit(official, rows, tmp_path, monkeypatch):
    (tmp_path / "identity_CelebA.txt").write_text("".join(f"{file_name(i)} {100 - i // 3}\n" for i in range(len(rows))))
    for path in official.iterdir():
        if path.name != "identity_CelebA.txt":
            (tmp_path / path.name).symlink_to(path)
    data = load_dataset("celeba_gender", data_dir=str(tmp_path), unit="identity")
    assert (data.num_units, data.unit, len(data)) == (4, "identity", TRAIN)
    assert list(data.units.of) == [3 - i // 3 for i in range(TRAIN)]  # By their names.
    store_reduced(tmp_path / "reduced", rows)
    reduced = load_dataset("celeba_hair", data_dir=str(tmp_path / "reduced"), unit="identity")
    assert reduced.num_units == TRAIN and list(reduced.units.of) == list(range(TRAIN))
    assert load_dataset("celeba_hair", data_dir=str(tmp_path / "reduced"), split="test", unit="identity").units is None
    for folder, unit in ((tmp_path, "Male"), (tmp_path / "reduced", "image"), (tmp_path / "reduced", "nobody")):
        with pytest.raises(DataError, match=f"expected unit='{unit}' to be"):
            load_dataset("celeba_gender", data_dir=str(folder), unit=unit)
    (tmp_path / "identity_CelebA.txt").write_text(f"{file_name(0)} 1\n")
    with pytest.raises(DataError, match=r"000002.jpg is in .* and not in identity_CelebA.txt"):
        load_dataset("celeba_gender", data_dir=str(tmp_path), unit="identity")


@pytest.mark.parametrize("name", ["celeba_gender", "celeba_hair"])
@pytest.mark.parametrize("split", ["train", "test"])
def test_reduced_pictures_are_the_same_records(official, rows, tmp_path, name, split):
    store_reduced(tmp_path, rows)
    whole, reduced = (load_dataset(name, data_dir=str(root), split=split) for root in (official, tmp_path))
    assert reduced.images.shape == whole.images.shape and reduced.class_names == whole.class_names
    assert np.abs(reduced.images.astype(int) - whole.images).max() <= 8  # They were a JPEG once more.
    assert reduced.labels.tolist() == whole.labels.tolist()
    assert (reduced.usable is None) == (whole.usable is None)
    assert reduced.usable is None or reduced.usable.tolist() == whole.usable.tolist()


def test_a_neighbour_of_reduced_pictures_differs_in_one_record(rows, tmp_path):
    """Whatever a record's attributes are, no other record moves, and none becomes or ceases to be usable."""
    changed = 5
    store_reduced(tmp_path / "one", rows)
    store_reduced(tmp_path / "other", [
        {key: not value for key, value in row.items()} if index == changed else row for index, row in enumerate(rows)])
    for name in ("celeba_gender", "celeba_hair"):
        one, other = (load_dataset(name, data_dir=str(tmp_path / folder)) for folder in ("one", "other"))
        np.testing.assert_array_equal(one.images, other.images)
        usable = [data.usable if data.usable is not None else np.ones(TRAIN, bool) for data in (one, other)]
        differs = (one.labels != other.labels) | (usable[0] != usable[1])
        assert np.flatnonzero(differs).tolist() == [changed]


def test_all_pictures_are_taken_where_reduced_ones_are_there_too(prepared, rows, tmp_path):
    (tmp_path / "celeb_a").symlink_to(prepared / "celeb_a")
    store_reduced(tmp_path, [dict.fromkeys(row, 0) for row in rows])
    assert load_dataset("celeba_gender", data_dir=str(tmp_path)).labels.any()


@pytest.mark.slow
@pytest.mark.skipif(not os.path.isdir(os.path.join(os.environ.get("TFDS_DATA_DIR", ""), "celeba_64")),
                    reason="TFDS_DATA_DIR has no celeba_64")
def test_real_faces():
    gender, hair = (load_dataset(name, split="test") for name in ("celeba_gender", "celeba_hair"))
    assert gender.images.shape[1:] == (64, 64, 3) and len(gender) >= len(hair) > 1000
    assert 0.3 < gender.labels.mean() < 0.5  # 0.42 of all pictures are of men.
    assert (np.bincount(hair.labels) / len(hair)).min() > 0.1
    brightness = [hair.images[hair.labels == colour][:, :12].mean() for colour in range(2)]
    assert brightness[0] < brightness[1]  # Above the face, black hair is darker than blond hair.


def test_images_are_the_middle_of_the_picture(official, rows):
    dataset = load_dataset("celeba_gender", data_dir=str(official))
    assert dataset.images.shape == (TRAIN, 64, 64, 3) and dataset.images.dtype == np.uint8
    assert dataset.class_names == ("female", "male") and dataset.usable is None
    assert dataset.labels.tolist() == [row["Male"] for row in rows[:TRAIN]]
    whole = np.asarray(Image.open(io.BytesIO(picture(3))))[20:198]
    np.testing.assert_allclose(
        dataset.images[3].mean((0, 1)), whole.mean((0, 1)), atol=1)  # Reducing keeps the mean.
    corner = whole[:9, :9].mean((0, 1))
    np.testing.assert_allclose(dataset.images[3][:3, :3].mean((0, 1)), corner, atol=4)


def test_hair_counts_only_where_one_colour_is_named(official, rows):
    dataset = load_dataset("celeba_hair", data_dir=str(official))
    expected = [[row[colour] for colour in COLOURS] for row in rows[:TRAIN]]
    assert len(dataset) == TRAIN and dataset.num_classes == 3  # Nobody's index moves.
    assert dataset.usable.tolist() == [sum(row) == 1 for row in expected]
    assert [int(label) for label in dataset.labels[dataset.usable]] == [
        row.index(1) for row in expected if sum(row) == 1]
    test = load_dataset("celeba_hair", data_dir=str(official), split="test")
    names = [[row[colour] for colour in COLOURS] for row in rows[-TEST:]]
    assert test.usable is None and test.labels.tolist() == [row.index(1) for row in names if sum(row) == 1]


@pytest.mark.parametrize("name", ["celeba_gender", "celeba_hair"])
@pytest.mark.parametrize("split", ["train", "test"])
def test_both_sources_hold_the_same_records(official, prepared, name, split):
    mine, theirs = (load_dataset(name, data_dir=str(root), split=split) for root in (official, prepared))

    def as_set(dataset):
        usable = [True] * len(dataset) if dataset.usable is None else dataset.usable.tolist()
        return sorted(zip((image.tobytes() for image in dataset.images), dataset.labels.tolist(), usable))

    assert as_set(mine) == as_set(theirs) and len(as_set(mine)) > 1


def test_the_order_of_records_does_not_depend_on_their_attributes(official, tmp_path):
    for path in official.iterdir():
        (tmp_path / path.name).symlink_to(path)
    (tmp_path / "list_attr_celeba.txt").unlink()
    lines = (official / "list_attr_celeba.txt").read_text().splitlines()
    lines[2:] = [line.replace(" 1", " 0").replace("-1", " 1").replace(" 0", "-1") for line in lines[2:]]
    (tmp_path / "list_attr_celeba.txt").write_text("\n".join(lines) + "\n")
    one, other = (load_dataset("celeba_hair", data_dir=str(root)) for root in (official, tmp_path))
    np.testing.assert_array_equal(one.images, other.images)
    assert one.usable.tolist() != other.usable.tolist()


def test_nothing_is_left_on_disk(official, tmp_path, monkeypatch):
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    dataset = load_dataset("celeba_gender", data_dir=str(official))
    assert not list(tmp_path.iterdir())
    assert dataset.images[0].any()


def damaged(official, tmp_path, name, content):
    for path in official.iterdir():
        (tmp_path / path.name).symlink_to(path)
    (tmp_path / name).unlink()
    if content is not None:
        (tmp_path / name).write_bytes(content)
    return str(tmp_path)


@pytest.mark.parametrize("name,content,message", [
    ("list_attr_celeba.txt", None, "cannot read .*list_attr_celeba.txt"),
    ("list_attr_celeba.txt", b"2\nMale Young\n000001.jpg 1 1\n", "not those of CelebA"),
    ("list_attr_celeba.txt", b"0\nMale Black_Hair Blond_Hair Brown_Hair\n", "000001.jpg is in list_eval_partition"),
    ("list_eval_partition.txt", b"000001.jpg\n", "not those of CelebA"),
    ("list_eval_partition.txt", b"999999.jpg 1\n", "at least one record"),
])
def test_bad_lists_are_one_clear_line(official, tmp_path, name, content, message):
    with pytest.raises(DataError, match=message) as caught:
        load_dataset("celeba_gender", data_dir=damaged(official, tmp_path, name, content))
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize("content,message", [(None, "cannot read img_align_celeba/000002.jpg"),
                                             (b"no picture", "cannot read a picture"),
                                             (picture(0)[:700], "cannot read a picture")])
def test_bad_pictures_are_one_clear_line(official, tmp_path, content, message):
    for path in official.iterdir():
        if path.is_file():
            (tmp_path / path.name).symlink_to(path)
    (tmp_path / "img_align_celeba").mkdir()
    for path in (official / "img_align_celeba").iterdir():
        (tmp_path / "img_align_celeba" / path.name).symlink_to(path)
    damaged_file = tmp_path / "img_align_celeba" / file_name(1)
    damaged_file.unlink()
    if content is not None:
        damaged_file.write_bytes(content)
    with pytest.raises(DataError, match=message):
        load_dataset("celeba_gender", data_dir=str(tmp_path))


def test_missing_data_names_the_folder_and_the_way_out(tmp_path):
    with pytest.raises(DataError, match=f"celeba_hair: .*celeb_a.*{tmp_path}"):
        load_dataset("celeba_hair", data_dir=str(tmp_path))


def test_a_record_that_becomes_usable_changes_its_own_teacher_only(official):
    dataset = load_dataset("celeba_hair", data_dir=str(official))
    partitions = partition_indices(TRAIN, 4, seed=0)
    before = usable_indices(partitions, dataset.usable)
    for record in range(TRAIN):
        usable = dataset.usable.copy()
        usable[record] = not usable[record]
        changed = (usable_indices(partitions, usable) != before).any(1)
        owner = (partitions == record).any(1)
        assert not changed[~owner].any()


@pytest.mark.slow
def test_a_generator_is_trained_on_it(official, tmp_path):
    from datalens_tf.training.trainer import Trainer
    from tests.training import tiny

    dataset = load_dataset("celeba_hair", data_dir=str(official))
    config = tiny.CONFIG.replace(
        dataset=dataset.name, image_shape=dataset.image_shape, num_classes=3, num_teachers=3, num_steps=1)
    student = Trainer(config, dataset, tmp_path).run()
    assert student.sample_grid(2).shape == (3, 2, 64, 64, 3)
