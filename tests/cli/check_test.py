"""`datalens check`: what it tells, that the private is apart, and that its commands are understood."""

import pathlib
import shlex

import numpy as np
import PIL.Image
import pytest

from datalens_tf import cli
from datalens_tf.cli import advise
from datalens_tf.planning import measured
from tests import hostile_folder
from tests.cli.commands import refused


@pytest.fixture(name="folder", scope="module")
def fixture_folder(tmp_path_factory):
    stream = np.random.default_rng(0)
    images = stream.integers(0, 256, [60, 12, 10, 1], np.uint8)
    return hostile_folder.write(tmp_path_factory.mktemp("mine") / "it's été", images, np.arange(60) % 3,
                                ("cat", "dög", "emu bird"), num_test=10)


def parts(text):
    """The parts of the output by their headings."""
    found, heading = {}, None
    for line in text.splitlines():
        if line and not line.startswith(" "):
            heading = line.partition(":")[0]
        found.setdefault(heading, []).append(line)
    return {name: "\n".join(lines) for name, lines in found.items()}


def test_a_strangers_folder_is_told_in_parts(folder, datalens):
    status, out, err = datalens("check", folder.root, "--epsilon=3", "--image_size=12", "--color=grey")
    assert status == 0 and not err.replace("datalens: warning", "").startswith("datalens: "), err
    told = parts(out)
    assert "52 grey pictures of 12 x 12 in 4 classes" in told["PUBLIC"] and "zz empty" in told["PUBLIC"]
    assert "do not share" in told["PRIVATE"] and "no picture.png" in told["PRIVATE"] and "zz empty 0" in told["PRIVATE"]
    assert "--method datalens" in told["METHOD"]
    # What one record decides is in no other part.
    for name in ("PUBLIC", "METHOD"):
        assert "unreadable" not in told[name] and "per class" not in told[name]


def test_its_commands_are_understood(folder, datalens):
    _, out, _ = datalens("check", folder.root, "--epsilon=3", "--image_size=12", "--color=grey")
    lines = [shlex.split(line) for line in parts(out)["NEXT"].splitlines()[1:]]
    assert [words[:2] for words in lines] == [["datalens", name] for name in (
        "train", "evaluate", "sample", "export", "convert")]
    for words in lines:
        cli.parse(words[1:])
    _, args = cli.parse(lines[0][1:])
    assert args.dataset == f"folder:{folder.root}" and args.skip_unreadable and args.epsilon == 3
    assert (args.image_size, args.color) == ((12, 12), "grey")


def test_nothing_is_written(folder, datalens, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    assert datalens("check", folder.root)[0] == 0
    assert not list(tmp_path.iterdir())


def test_arrays_and_known_data(datalens, tmp_path):
    np.savez(tmp_path / "mine.npz", x=np.zeros([40, 8, 8], np.uint8), y=np.arange(40) % 2)
    status, out, _ = datalens("check", tmp_path / "mine.npz")
    assert status == 0 and "--classes declares them" in parts(out)["PUBLIC"]
    assert f"--dataset npz:{tmp_path / 'mine.npz'}" in parts(out)["NEXT"]
    status, out, _ = datalens("check", "digits", "--epsilon=10")
    assert status == 0 and "1,438 grey pictures of 8 x 8 in 10 classes" in out and "--epsilon 10" in out


def test_a_scanners_bits_are_asked_for_where_pictures_are_nearly_black(datalens, tmp_path):
    for name, label in (("a", "cat"), ("b", "dog"), ("c", "dog")):
        (tmp_path / "scans" / label).mkdir(parents=True, exist_ok=True)
        PIL.Image.fromarray(np.full((9, 9), 4_000, np.uint16)).save(tmp_path / "scans" / label / f"{name}.png")
    _, out, _ = datalens("check", tmp_path / "scans", "--image_size=8")
    told = parts(out)
    assert "up to 4,000" in told["PRIVATE"] and "nearly black. --picture_bits 12 makes 4,000 bright" in told["PRIVATE"]
    assert "picture_bits" not in told["NEXT"]  # That they are dark is private.
    _, out, _ = datalens("check", tmp_path / "scans", "--image_size=8", "--picture_bits=12")
    told = parts(out)
    assert "nearly black" not in told["PRIVATE"] and "--picture_bits 12" in told["NEXT"]
    _, out, _ = datalens("check", tmp_path / "scans", "--image_size=8", "--picture_bits=11")
    refused(datalens("check", tmp_path / "scans", "--picture_bits=40"), "picture_bits=40 <= 32")
    assert "where 2,047 is white: what is larger is cut off. --picture_bits 12" in parts(out)["PRIVATE"]


def test_grey_images_are_proposed_where_no_picture_has_a_colour(datalens, tmp_path):
    grey = np.random.default_rng(0).integers(0, 256, (9, 9, 1), np.uint8).repeat(3, -1)
    for name, label in (("a", "cat"), ("b", "dog"), ("c", "dog")):
        (tmp_path / "scans" / label).mkdir(parents=True, exist_ok=True)
        PIL.Image.fromarray(grey).save(tmp_path / "scans" / label / f"{name}.jpg")
    told = parts(datalens("check", tmp_path / "scans", "--image_size=8")[1])
    assert "colours        none in the first pictures" in told["PRIVATE"] and "--color grey" in told["PRIVATE"]
    assert "--color" not in told["NEXT"]  # That they have no colours is private.
    assert "colours" not in datalens("check", tmp_path / "scans", "--image_size=8", "--color=grey")[1]
    PIL.Image.fromarray(grey // np.array([1, 1, 2], np.uint8)).save(tmp_path / "scans" / "cat" / "a.jpg")
    assert "colours" not in datalens("check", tmp_path / "scans", "--image_size=8")[1]


def test_what_was_measured_is_quoted_if_anything_was(datalens, tmp_path, monkeypatch):
    table = tmp_path / "measured.csv"
    table.write_text("dataset,num_records,num_classes,height,width,channels,epsilon,method,accuracy,real_accuracy,"
                     "minutes\n" + "".join(f"Toys,1500,10,8,8,1,1,{name},0.61,0.93,4\n"
                                           for name in ("datalens_plus", "dp_merf")))
    monkeypatch.setattr(measured, "TABLE", table)
    _, out, _ = datalens("check", "digits")
    assert "0.61 on Toys" in out and "real pictures: 0.93" in out and "about" in out and "35 to 86 %" in out


def test_it_takes_the_words_of_train(folder, datalens, monkeypatch):
    monkeypatch.setattr(advise, "slowness", lambda: 1.0)  # It is measured anew each time.
    assert datalens("check", folder.root, "--skip_unreadable")[:2] == datalens("check", folder.root)[:2]


def test_arrays_of_numpys_other_format_are_told_what_to_do(datalens, tmp_path):
    np.save(tmp_path / "mine.npy", np.zeros([4, 8, 8]))
    refused(datalens("check", tmp_path / "mine.npy"), "mine.npy: expected an .npz file", "numpy.savez('mine.npz'")


def test_other_files_are_told_what_to_do(datalens, tmp_path):
    for name, words in (("mine.zip", "unpack it, and give the folder"), ("cat.png", "another kind: give the folder")):
        (tmp_path / name).write_bytes(b"PK")
        refused(datalens("check", tmp_path / name), name, "expected a folder of pictures", words)


def test_mistakes_are_one_line(datalens, tmp_path):
    refused(datalens("check", tmp_path / "nowhere"), "Unknown data set")
    refused(datalens("check", "digits", "--epsilon=-1"), "epsilon=-1")
    (tmp_path / "empty").mkdir()
    refused(datalens("check", tmp_path / "empty", "--image_size=12", "--color=grey"), "found no picture")


def test_train_understands_a_path_without_its_kind(tmp_path, monkeypatch):
    from datalens_tf.data import registry as data_registry

    np.savez(tmp_path / "mine.npz", x=np.zeros([4, 8, 8], np.uint8), y=np.arange(4) % 2)
    (tmp_path / "pictures").mkdir()
    (tmp_path / "digits").mkdir()
    monkeypatch.chdir(tmp_path)
    assert data_registry.located("mine.npz") == f"npz:{tmp_path / 'mine.npz'}"
    assert data_registry.located("pictures") == f"folder:{tmp_path / 'pictures'}"
    assert data_registry.located("digits") == "digits"  # A name of data is one.
    assert data_registry.located(f"folder:{pathlib.Path('pictures')}") == f"folder:{tmp_path / 'pictures'}"
    assert data_registry.located("nothing") == "nothing"


def test_what_lies_beside_the_classes_is_named(datalens, tmp_path):
    for part in ("train", "test", "val"):
        for name in ("cat", "dog"):
            (tmp_path / "mine" / part / name).mkdir(parents=True)
            for number in range(3):
                pixels = np.random.default_rng(number).integers(0, 256, (8, 8), np.uint8)
                PIL.Image.fromarray(pixels).save(tmp_path / "mine" / part / name / f"{part}{number}.png")
    (tmp_path / "mine/train/loose.png").write_bytes(b"")
    told = parts(datalens("check", tmp_path / "mine")[1])
    assert "loose.png, val, because it lies beside" in told["PRIVATE"]
    (tmp_path / "mine/train/loose.png").unlink()
    assert "left out" not in datalens("check", tmp_path / "mine/test")[1]
