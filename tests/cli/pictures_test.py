"""Folders of pictures on the command line: size, colour, and files that cannot be read."""

import json
import shutil

import numpy as np
import PIL.Image
import pytest

from datalens_tf.cli import common
from datalens_tf.data import registry
from datalens_tf.data.datasets import Pictures, hold_out
from datalens_tf.errors import InvalidArgumentError
from tests import hostile_folder
from tests.cli.commands import refused
from tests.data.records import images_of


@pytest.fixture(name="folder", scope="module")
def fixture_folder(tmp_path_factory):
    images, labels = images_of(60, 12, 12, 3), np.arange(60) % 3
    return hostile_folder.write(tmp_path_factory.mktemp("data") / "mine", images, labels, ("a", "b", "c"), num_test=10)


def test_from_a_stranger_s_folder_to_samples(folder, tmp_path, datalens):
    words = ["train", "--method=dp_merf", "--dataset", f"folder:{folder.root}", "--epsilon=3", "--fit_steps=2",
             "--num_features=20", "--output_dir", tmp_path / "run"]
    refused(datalens(*words), "cannot read 2 of 52 files", "--skip_unreadable", *folder.broken)
    status, _, err = datalens(*words, "--image_size=9x14", "--color=grey", "--skip_unreadable")
    assert status == 0 and f"no picture is in '{folder.empty}'" in err
    config = json.loads((tmp_path / "run/config.json").read_text())
    assert config["image_shape"] == [9, 14, 1] and config["num_classes"] == 4 and config["skip_unreadable"]
    listed = (tmp_path / "run/private/unreadable.txt").read_text()
    assert all(name in listed for name in folder.broken)
    public = [path for path in (tmp_path / "run").rglob("*") if path.is_file() and "private" not in path.parts]
    assert not any(b"broken.jpg" in path.read_bytes() for path in public)
    # The run knows what its pictures became.
    assert datalens("train", "--output_dir", tmp_path / "run", "--resume")[0] == 0
    refused(datalens("train", "--output_dir", tmp_path / "run", "--resume", "--image_size=20"), "leave out --image_")
    assert datalens("sample", "--model", tmp_path / "run", "--num_samples=4", "--output", tmp_path / "x.npz")[0] == 0
    assert np.load(tmp_path / "x.npz")["x"].shape == (4, 9, 14, 1)


def test_a_scanners_bits_are_those_of_the_run(tmp_path, datalens, monkeypatch):
    for number in range(12):
        place = tmp_path / "scans" / ("train" if number < 8 else "test") / "ab"[number % 2]
        place.mkdir(parents=True, exist_ok=True)
        pixels = np.full((8, 8), 2_048, np.uint16)
        pixels[0, 0] = 150 * number
        PIL.Image.fromarray(pixels).save(place / f"{number}.png")
    loaded, original = [], registry.load_dataset
    monkeypatch.setattr(
        registry, "load_dataset", lambda *args, **more: loaded.append(original(*args, **more)) or loaded[-1])
    words = ["--method=dp_merf", "--dataset", tmp_path / "scans", "--epsilon=3", "--fit_steps=2", "--num_features=20",
             "--image_size=8", "--color=grey", "--picture_bits=12", "--no_evaluation"]
    assert datalens("train", *words, "--output_dir", tmp_path / "run")[0] == 0
    assert json.loads((tmp_path / "run/config.json").read_text())["picture_bits"] == 12
    assert datalens("train", "--resume", "--output_dir", tmp_path / "run")[0] == 0
    assert datalens("evaluate", "--samples", tmp_path / "run", "--quick", "--metrics=utility", "--epochs=1")[0] == 0
    assert len(loaded) >= 3 and all(records.images.max() == 128 for records in loaded)


def test_the_default_is_said(folder, tmp_path, datalens):
    _, out, _ = datalens("train", "--method=dp_merf", "--dataset", f"folder:{folder.root}", "--epsilon=3",
                         "--skip_unreadable", "--fit_steps=2", "--num_features=20", "--no_evaluation",
                         "--output_dir", tmp_path / "run")
    assert "brought to 32 x 32 pixels, rgb: --image_size and --color choose others" in out


@pytest.mark.parametrize("text", ["7", "8x", "x8", "8x8x1", "-8", "8.5", "9999", ""])
def test_sizes_that_are_none(text, tmp_path, datalens):
    refused(datalens("train", "--dataset=digits", f"--image_size={text}", "--output_dir", tmp_path / "r"), "is no size")


def test_data_of_one_size_is_brought_to_another(tmp_path, datalens):
    words = ["train", "--method=dp_merf", "--dataset=digits", "--epsilon=3", "--fit_steps=2", "--num_features=20",
             "--output_dir", tmp_path / "run", "--image_size=10x9", "--color=rgb", "--unlabelled"]
    assert datalens(*words)[0] == 0
    config = json.loads((tmp_path / "run/config.json").read_text())
    assert config["image_shape"] == [10, 9, 3] and config["num_classes"] == 1


def test_choices_must_lead_to_the_images_that_there_are():
    import argparse

    asked = argparse.Namespace(image_size=None, color=None, unlabelled=False)
    assert common.pictures(asked, (10, 9, 1), num_classes=1) == Pictures(
        image_size=(10, 9), color="grey", unlabelled=True)
    asked.color = "rgb"
    with pytest.raises(InvalidArgumentError, match="color='rgb' to be 'grey'"):
        common.pictures(asked, (10, 9, 1))


def pictures(folder, *classes, first=0, count=12):
    """Grey pictures of these classes, the same for the same numbers."""
    for name in classes:
        (folder / name).mkdir(parents=True)
        for number in range(first, first + count):
            pixels = np.random.default_rng([number, *map(ord, name)]).integers(0, 256, (8, 8), np.uint8)
            PIL.Image.fromarray(pixels).save(folder / name / f"{name}{number}.png")
    return folder


def trained(datalens, data, run, *words):
    made = datalens("train", "--method=dp_merf", "--dataset", data, "--epsilon=3", "--fit_steps=2", "--num_features=20",
                    "--image_size=8", "--color=grey", "--output_dir", run, "--no_evaluation", *words)
    assert made[0] == 0, made
    return run


def test_a_run_is_not_tested_on_pictures_that_it_was_trained_on(tmp_path, datalens, small_protocol):
    data = pictures(tmp_path / "mine", "cat", "dog")
    words = "evaluate", "--samples", trained(datalens, data, tmp_path / "run"), "--metrics=utility", "--epochs=1"
    shutil.copytree(data, tmp_path / "copy")
    refused(datalens(*words, "--dataset", tmp_path / "copy"), "folder:copy has the records that", "was trained on")
    refused(datalens(*words), "has no test split, and this run held no records out", "--dataset", "--holdout 0.1")
    (tmp_path / "copy" / "cat" / "cat0.png").unlink()
    refused(datalens(*words, "--dataset", tmp_path / "copy"), "23 of 23 images of folder:copy are among those that")
    later = pictures(tmp_path / "later", "cat", "dog", first=50)
    shutil.copy(data / "cat" / "cat3.png", later / "cat")
    status, _, err = datalens(*words, "--dataset", later, "--output_dir", tmp_path / "report")
    assert status == 0 and "1 of 25 images of folder:later are among those that" in err and "may flatter it" in err
    for part, first in (("train", 0), ("test", 6)):  # What is missing was said; this makes it, of the same pictures.
        for name in ("cat", "dog"):
            (data / part / name).mkdir(parents=True)
            for number in range(first, first + 6):
                (data / name / f"{name}{number}.png").rename(data / part / name / f"{name}{number}.png")
    refused(datalens(*words), "has other records to train on than when", "--dataset")


@pytest.mark.parametrize("words", [(), ("--holdout=0.25",)])
def test_pictures_that_came_later_are_tested_on_whole(tmp_path, datalens, small_protocol, words):
    run = trained(datalens, pictures(tmp_path / "mine", "cat", "dog"), tmp_path / "run", *words)
    later = pictures(tmp_path / "later", "cat", "dog", first=50, count=7)
    status, _, err = datalens("evaluate", "--samples", run, "--dataset", later, "--metrics=utility", "--epochs=1",
                                "--output_dir", tmp_path / "report")
    assert status == 0, err
    found = json.loads((tmp_path / "report/metrics.json").read_text())["utility"]
    assert found["num_test"] == 14 and found["dataset"] == "folder:later"
    refused(datalens("evaluate", "--samples", run, "--dataset", later, "--split=holdout"), "--split=holdout")


def test_pictures_that_were_held_out_are_not_taken_for_those_that_were_trained_on(tmp_path, datalens, small_protocol):
    data = pictures(tmp_path / "mine", "cat", "dog")
    run = trained(datalens, data, tmp_path / "run", "--holdout=0.25")
    records = registry.load_dataset(f"folder:{data}", pictures=Pictures(image_size=(8, 8), color="grey"))
    _, held = hold_out(records, 0.25)
    for number, (image, label) in enumerate(zip(held.images, held.labels)):
        (folder := tmp_path / "held" / held.class_names[label]).mkdir(parents=True, exist_ok=True)
        PIL.Image.fromarray(image[..., 0]).save(folder / f"{number}.png")
    words = "evaluate", "--samples", run, "--metrics=utility", "--epochs=1", "--output_dir", tmp_path / "report"
    status, _, err = datalens(*words, "--dataset", tmp_path / "held")
    assert status == 0 and "among those" not in err, err


@pytest.mark.parametrize("parts", [("Train", "Test"), ("train", "val"), ("training", "testing", "validation")])
def test_parts_of_a_data_set_are_not_taken_for_classes(tmp_path, datalens, parts):
    for number, part in enumerate(parts):
        pictures(tmp_path / "mine" / part, "cat", "dog", first=50 * number)
    for words in (["check"], ["train", "--output_dir", tmp_path / "x", "--dataset"]):
        refused(datalens(*words, tmp_path / "mine"), *parts, "look like parts to train and to test on", "--classes")
    assert datalens("check", tmp_path / "mine", "--classes", ",".join(parts))[0] == 0


def test_a_folder_without_records_to_test_on_is_told_of_before_anything_is_spent(tmp_path, datalens):
    data = pictures(tmp_path / "mine", "cat", "dog")
    _, out, _ = datalens("check", data)
    assert "nothing: train with --holdout 0.1" in out and "evaluate --samples" not in out
    pictures(data / "both/train", "cat", "dog"), pictures(data / "both/test", "cat", "dog", first=50)
    _, out, _ = datalens("check", data / "both")
    assert "--holdout" not in out and "evaluate --samples" in out


def test_what_is_there_is_not_written_over(tmp_path, datalens):
    run, records = trained(datalens, pictures(tmp_path / "mine", "cat", "dog"), tmp_path / "run"), tmp_path / "mine.npz"
    np.savez(records, x=np.zeros((3, 8, 8)), y=np.zeros(3, int))
    before = records.read_bytes()
    refused(datalens("sample", "--model", run, "--num_samples=3", "--output", records), "mine.npz to be a new file")
    (tmp_path / "notes.html").write_text("mine")
    refused(datalens("convert", "--model", run, "--output", tmp_path / "notes.html"), "notes.html' to be a new file")
    assert records.read_bytes() == before and (tmp_path / "notes.html").read_text() == "mine"
