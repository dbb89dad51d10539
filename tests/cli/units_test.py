"""Patients with several pictures on the command line: the same flag everywhere, and no number of pictures in public."""

import json
import re

import numpy as np
import pytest

from tests.cli.commands import refused
from tests.data.records import images_of, write_folder

MERF = ["--no_evaluation", "--method=dp_merf", "--fit_steps=2", "--num_features=20", "--epsilon=3"]


@pytest.fixture(name="arrays")
def fixture_arrays(tmp_path):
    """A file of 613 pictures of 30 patients, none of whom has as many as another."""
    np.savez(tmp_path / "data.npz", x=images_of(613), y=np.arange(613) % 3, x_test=images_of(60, seed=1),
             y_test=np.arange(60) % 3, patient=np.minimum(np.sqrt(1.4 * np.arange(613)).astype(int), 29))
    return tmp_path / "data.npz"


def says(text, number):
    """Whether a text has the number as one of its own."""
    return re.search(rf"(?<![\w.]){number:,}(?![\w.])|(?<![\w.]){number}(?![\w.])", text)


def public_texts(folder):
    """What all files of a run say that are not private."""
    return [path.read_bytes().decode("latin-1") for path in folder.rglob("*")
            if path.is_file() and "private" not in path.relative_to(folder).parts]


def test_a_table_says_whose_pictures_are_whose(tmp_path, datalens):
    files = {f"{number}.png": number % 200 for number in range(211)}
    write_folder(tmp_path / "data", files)
    (tmp_path / "data/labels.csv").write_text("file,label,patient\n" + "".join(
        f"{file},{number % 3},P{number % 37}\n" for number, file in enumerate(files)))
    words = ["--dataset", f"folder:{tmp_path / 'data'}", "--image_size=8", "--color=grey"]
    status, out, _ = datalens("check", *words[1:], "--unit=patient", "--classes=3", "--epsilon=3")
    assert status == 0
    public, private = out.split("PRIVATE")[0], out.split("PRIVATE")[1].split("METHOD")[0]
    assert "37 units by patient with grey pictures of 8 x 8" in public and not says(public, 211)
    # The files of P0 are 0.png, 37.png, 74.png and three more.
    assert "from 5 to 6 of one unit; the first of the largest: " in private
    assert re.search(r"largest: (\d+)\.png, (\d+)\.png, (\d+)\.png$", private, re.MULTILINE)
    found = [int(number) for number in re.findall(r"(\d+)\.png", private)]
    assert len({number % 37 for number in found}) == 1 and "--unit patient" in out.split("NEXT")[1]
    run = ["train", *MERF, *words, "--classes=0,1,2", "--output_dir", tmp_path / "run"]
    refused(datalens(*run, "--unit=doctor"), "which has the columns file, label, patient")
    status, out, err = datalens(*run, "--unit=patient")
    assert status == 0 and not says(out + err, 211)
    statement = json.loads((tmp_path / "run/privacy.json").read_text())
    assert statement["num_records"] == 37 and statement["unit"].startswith("one patient (all the images")
    assert not any(says(text, 211) for text in public_texts(tmp_path / "run"))
    # A run knows its unit.
    assert datalens("train", "--output_dir", tmp_path / "run", "--resume", "--no_evaluation")[0] == 0
    refused(datalens("train", "--output_dir", tmp_path / "run", "--resume", "--unit=file"),
            "trained with unit='patient'")


def test_the_choice_of_a_method_counts_units(arrays, tmp_path, datalens):
    refused(datalens("train", *MERF, "--dataset", arrays, "--unit=doctor", "--output_dir", tmp_path / "run"),
            "one of patient, x_test, y_test")
    refused(datalens("train", "--method=datalens", "--num_teachers=31", "--dataset", arrays, "--unit=patient",
                     "--epsilon=3", "--noise_stddev=90", "--output_dir", tmp_path / "run"), "num_records=30 < num_teac")
    refused(datalens("train", *MERF, "--dataset=digits", "--unit=patient", "--output_dir", tmp_path / "run"),
            "nothing says whose")


@pytest.mark.slow
@pytest.mark.parametrize("words", [
    ["classify", "--batch_size=6", "--num_steps=2", "--noise_multiplier=3", "--epsilon=50", "--image_size=16"],
    ["pate-classify", "--num_teachers=8", "--num_queries=40", "--epsilon=50", "--aggregator=gnmax"]])
def test_classifiers_protect_units_as_well(arrays, tmp_path, datalens, words):
    status, out, err = datalens(*words, "--dataset", arrays, "--unit=patient", "--output_dir", tmp_path / "run")
    assert status == 0, err
    statement = json.loads((tmp_path / "run/privacy.json").read_text())
    assert statement["num_records"] == 30 and statement["unit"].startswith("one patient (all the images")
    assert not any(says(text, 613) for text in public_texts(tmp_path / "run"))
    assert "30 units" in out


def test_made_up_users_are_warned_of(arrays, tmp_path, datalens):
    """Records of nobody are dealt to users who do not exist, whom the guarantee is about."""
    words = ["train", f"--dataset=npz:{arrays}", "--method=fed_avg_gan", "--epsilon=3", "--num_steps=1",
             "--num_users=20", "--accountant=rdp", "--no_evaluation", "--quiet"]
    warned = "records are dealt to made-up users"
    assert warned in datalens(*words, "--output_dir", tmp_path / "nobody")[2]
    _, _, err = datalens(*[word for word in words if "num_users" not in word], "--unit=patient", "--output_dir",
                         tmp_path / "patients")
    assert warned not in err


def test_owners_without_their_number_are_told(tmp_path, datalens):
    refused(datalens("train", f"--dataset=npz:{tmp_path}/{{owner}}.npz", "--epsilon=1", "--output_dir", tmp_path / "r"),
            "Missing --num_owners", "{owner}")
