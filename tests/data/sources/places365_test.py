"""Places365 in its official format, built small by TensorFlow Datasets' own builder."""

import io
import os
import tarfile

import numpy as np
import pytest
from PIL import Image

from datalens_tf.data.partition import partition_indices, usable_indices
from datalens_tf.data.registry import load_dataset
from datalens_tf.data.sources.places365 import CLASSES
from datalens_tf.errors import DataError
from tests.data.records import store_tfds

# Categories of the official list, and pictures of each; airfield and yard belong to none of the classes.
TRAIN = {"airfield": 3, "badlands": 2, "lake/natural": 4, "forest_path": 3, "yard": 2}
VALIDATION = {"airfield": 1, "butte": 1, "ocean": 2}


def picture(shade, size=256):
    buffer = io.BytesIO()
    Image.fromarray(np.full((size, size, 3), shade, np.uint8)).save(buffer, "JPEG", quality=95)
    return buffer.getvalue()


def shade(category, number):
    """Says which picture it is, whatever the order in which records are stored."""
    return 20 * sorted({*TRAIN, *VALIDATION}).index(category) + 4 * number + 10


def prepare(root, size=256):
    """A folder of TensorFlow Datasets, from archives in the official layout."""
    import tensorflow_datasets as tfds
    from tensorflow_datasets.image_classification import places365_small  # Registers the name.

    del places365_small
    with open(tfds.core.tfds_path("image_classification/categories_places365.txt"), encoding="utf-8") as file:
        categories = file.read().split()
    (root / "lists").mkdir()
    rows = {"train": [], "validation": [], "test": [("Places365_test_00000001.jpg", None, 1)]}
    for category, count in TRAIN.items():
        rows["train"] += [(f"/{category[0]}/{category}/{i:08d}.jpg", categories.index(category), shade(category, i))
                          for i in range(count)]
    for category, count in VALIDATION.items():
        for i in range(count):
            file_name = f"Places365_val_{len(rows['validation']):08d}.jpg"
            rows["validation"].append((file_name, categories.index(category), shade(category, i)))
    archives = {}
    for split, prefix, file_name in (("train", "data_256", "places365_train_standard.txt"),
                                     ("validation", "val_256/", "places365_val.txt"),
                                     ("test", "test_256/", "places365_test.txt")):
        (root / "lists" / file_name).write_text("".join(
            f"{name} {label}\n" if label is not None else f"{name}\n" for name, label, _ in rows[split]))
        archives[split] = root / f"{split}.tar"
        with tarfile.open(archives[split], "w") as archive:
            for name, _, grey in rows[split]:
                info = tarfile.TarInfo(prefix + name)
                content = picture(grey, size)
                info.size = len(content)
                archive.addfile(info, io.BytesIO(content))
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(tfds.download.DownloadManager, "download", lambda self, _: archives)
        patch.setattr(tfds.download.DownloadManager, "download_and_extract", lambda self, _: str(root / "lists"))
        tfds.builder("places365_small", data_dir=root / "prepared").download_and_prepare()
    return str(root / "prepared")


@pytest.fixture(name="prepared", scope="module")
def fixture_prepared(tmp_path_factory):
    return prepare(tmp_path_factory.mktemp("places365"))


def test_three_classes_keep_everybodys_index(prepared):
    dataset = load_dataset("places365", data_dir=prepared)
    assert dataset.images.shape == (sum(TRAIN.values()), 64, 64, 3) and dataset.images.dtype == np.uint8
    assert dataset.class_names == tuple(CLASSES) and dataset.num_classes == 3
    assert dataset.usable.sum() == 2 + 4 + 3
    expected = {shade(category, number): label for category, label in
                (("badlands", 0), ("lake/natural", 1), ("forest_path", 2)) for number in range(TRAIN[category])}
    found = {round(float(image.mean())): int(label) for image, label in zip(
        dataset.images[dataset.usable], dataset.labels[dataset.usable])}
    assert {min(expected, key=lambda grey: abs(grey - mean)): label for mean, label in found.items()} == expected
    assert not dataset.images[~dataset.usable].any()  # Not even decoded.


def test_the_validation_split_is_the_test_split(prepared):
    dataset = load_dataset("places365", data_dir=prepared, split="test")
    assert dataset.usable is None and sorted(dataset.labels.tolist()) == [0, 1, 1]


def test_a_record_that_changes_its_category_changes_its_own_teacher_only(prepared):
    dataset = load_dataset("places365", data_dir=prepared)
    partitions = partition_indices(len(dataset), 4, seed=0)
    before = usable_indices(partitions, dataset.usable)
    for record in range(len(dataset)):
        usable = dataset.usable.copy()
        usable[record] = not usable[record]
        changed = (usable_indices(partitions, usable) != before).any(1)
        assert not changed[~(partitions == record).any(1)].any()


TOP_LEVEL = ("indoor", "outdoor_natural", "outdoor_manmade")


def store_reduced(root, labels, size=64):
    """A folder `places_64` below `root`, whose pictures have shades that say which they are."""
    import tensorflow_datasets as tfds

    def record(index, label):
        return {"file_name": f"{index:05d}.jpg", "image": io.BytesIO(picture(10 + 9 * index, size)), "label": label,
                "category": label}

    splits = {"train": labels, "validation": labels[:3]}
    return store_tfds(
        root, "places_64", {split: [record(*pair) for pair in enumerate(part)] for split, part in splits.items()},
        {"file_name": tfds.features.Text(), "category": tfds.features.ClassLabel(names=["abbey", "valley", "yard"]),
         "image": tfds.features.Image(shape=(size, size, 3), encoding_format="jpeg"),
         "label": tfds.features.ClassLabel(names=TOP_LEVEL)})


LABELS = (2, 2, 0, 1, 0, 1, 2)


def test_reduced_pictures_have_the_classes_of_the_top_level(tmp_path):
    store_reduced(tmp_path, LABELS)
    train, test = (load_dataset("places365", data_dir=str(tmp_path), split=split) for split in ("train", "test"))
    assert train.class_names == test.class_names == TOP_LEVEL and train.num_classes == 3
    assert train.labels.tolist() == list(LABELS) and test.labels.tolist() == list(LABELS[:3])
    assert train.usable is None and train.images.shape == (len(LABELS), 64, 64, 3)
    np.testing.assert_allclose(train.images.mean((1, 2, 3)), 10 + 9 * np.arange(len(LABELS)), atol=1)


def test_a_neighbour_of_reduced_pictures_differs_in_one_record(tmp_path):
    """Whatever a record's class is, no other record moves."""
    store_reduced(tmp_path / "one", LABELS)
    store_reduced(tmp_path / "other", (*LABELS[:4], 2, *LABELS[5:]))
    one, other = (load_dataset("places365", data_dir=str(tmp_path / folder)) for folder in ("one", "other"))
    np.testing.assert_array_equal(one.images, other.images)
    assert np.flatnonzero(one.labels != other.labels).tolist() == [4]


def test_all_pictures_are_taken_where_reduced_ones_are_there_too(prepared, tmp_path):
    (tmp_path / "places365_small").symlink_to(f"{prepared}/places365_small")
    store_reduced(tmp_path, LABELS)
    assert load_dataset("places365", data_dir=str(tmp_path)).class_names == tuple(CLASSES)


def test_reduced_pictures_of_another_size_are_one_clear_line(tmp_path):
    store_reduced(tmp_path, LABELS, size=32)
    with pytest.raises(DataError, match="expected pictures of 64 x 64 pixels, got 32 x 32"):
        load_dataset("places365", data_dir=str(tmp_path))


@pytest.mark.skipif(not os.path.isdir(os.path.join(os.environ.get("TFDS_DATA_DIR", ""), "places_64")),
                    reason="TFDS_DATA_DIR has no places_64")
def test_real_scenes():
    dataset = load_dataset("places365", split="test")
    assert dataset.class_names == TOP_LEVEL and dataset.images.shape[1:] == (64, 64, 3)
    assert (np.bincount(dataset.labels) / len(dataset)).min() > 0.2
    # The lower edge of what people built or live in is less green than that of what grows.
    green = dataset.images[:, -16:].astype(float)
    green = (green[..., 1] - green[..., [0, 2]].mean(-1)).mean((1, 2))
    assert green[dataset.labels == 1].mean() > green[dataset.labels == 0].mean()


def test_every_category_belongs_to_one_class():
    members = [category for categories in CLASSES.values() for category in categories]
    assert len(members) == len(set(members)) == 24


def test_pictures_of_another_size_are_one_clear_line(tmp_path):
    with pytest.raises(DataError, match="expected pictures of 256 x 256 pixels, got 128 x 128"):
        load_dataset("places365", data_dir=prepare(tmp_path, size=128))


def test_missing_data_names_the_folder_and_the_way_out(tmp_path):
    with pytest.raises(DataError, match=f"places365: .*places365_small.*{tmp_path}"):
        load_dataset("places365", data_dir=str(tmp_path))
