"""The study of units: who is in which group, that cells promise the same, and that a stopped table goes on."""

import csv
import pathlib
import sys

import numpy as np
import pytest

from datalens_tf.data.datasets import unit_sizes
from datalens_tf.data.registry import load_dataset
from datalens_tf.methods.registry import config_class
from tests.data.records import images_of
from tests.training import tiny

SCRIPT = pathlib.Path(__file__).parents[3] / "run_scripts" / "studies" / "units.py"


@pytest.fixture(name="persons")
def fixture_persons(tmp_path):
    """Ninety pictures of twelve persons, as a file."""
    np.savez(tmp_path / "faces.npz", x=images_of(90), y=np.arange(90) % 3, x_test=images_of(30, seed=1),
             y_test=np.arange(30) % 3, person=np.arange(90) % 12)
    return f"npz:{tmp_path / 'faces.npz'}"


def test_groups_have_so_many_pictures_each_and_one_each_has_every_person_once(study, persons):
    data = tiny.dataset(23)
    found = study.grouped(data, 5, 0)
    assert found.num_units == 5 and sorted(np.bincount(found.units.of)) == [3, 5, 5, 5, 5]
    assert list(unit_sizes(study.grouped(data, 1, 0))) == [1] * 23
    people = load_dataset(persons, unit="person")
    alone = study.one_each(people, 0)
    assert len(alone) == alone.num_units == 12 and alone.units is None
    whose = [people.units.of[np.all(people.images == image, (1, 2, 3))].tolist() for image in alone.images]
    assert sorted(whose) == [[number] for number in range(12)]


def test_settings_follow_from_the_number_of_units(study, persons):
    assert study.settings(load_dataset(persons, unit="person"), 1.0, 3).seed == 3


@pytest.mark.study
def test_a_tiny_run_fills_the_table_and_goes_on_where_it_stopped(study, persons, tmp_path, monkeypatch, capsys):
    small = config_class("dp_merf")(epsilon=3.0, num_features=20, fit_steps=2, batch_size=10, generator_filters=4,
                                    generator_units=8)
    monkeypatch.setattr(study, "settings", lambda train, epsilon, seed: small.replace(epsilon=epsilon, seed=seed))
    words = [str(SCRIPT), f"--output_dir={tmp_path / 'out'}", "--mnist", persons, "--faces", persons, "--unit=person",
             "--epsilons", "3", "--num_images=30", "--epochs=1", "--sizes", "9"]
    monkeypatch.setattr(sys, "argv", words)
    study.main()
    rows = list(csv.DictReader(capsys.readouterr().out.splitlines()))
    assert [(row["table"], row["unit"], row["num_units"]) for row in rows] == [
        ("groups", "9 pictures", "10"), ("persons", "picture", "90"), ("persons", "person", "12"),
        ("persons", "one each", "12")]
    assert all(0 <= float(row["accuracy"]) <= 1 and row["method"] == "dp_merf" for row in rows)
    monkeypatch.setattr(study, "measured", None)  # Nothing is measured again.
    study.main()
    assert list(csv.DictReader(capsys.readouterr().out.splitlines())) == rows
