"""Places365 in its official format, built small by TensorFlow Datasets' own builder."""

import io
import tarfile

import numpy as np
import pytest
from PIL import Image

from datalens_tf.data.partition import partition_indices, usable_indices
from datalens_tf.data.registry import load_dataset
from datalens_tf.data.sources.places365 import CLASSES
from datalens_tf.errors import DataError

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


def test_every_category_belongs_to_one_class():
    members = [category for categories in CLASSES.values() for category in categories]
    assert len(members) == len(set(members)) == 24


def test_pictures_of_another_size_are_one_clear_line(tmp_path):
    with pytest.raises(DataError, match="expected pictures of 256 x 256 pixels, got 128 x 128"):
        load_dataset("places365", data_dir=prepare(tmp_path, size=128))


def test_missing_data_names_the_folder_and_the_way_out(tmp_path):
    with pytest.raises(DataError, match=f"places365: .*places365_small.*{tmp_path}"):
        load_dataset("places365", data_dir=str(tmp_path))
