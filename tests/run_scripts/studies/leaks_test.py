"""The study of leaks: each is one, and with none it is the package's own training."""

import sys

import numpy as np
import pytest

from datalens_tf.data.partition import partition_indices
from datalens_tf.options import PerformanceOptions
from datalens_tf.training.teachers import TeacherBank
from tests.training import tiny
from tests.training.banks import arrays, from_images, make_rounds


def trained(bank_class, data, chunk_size):
    """The state of teachers after three steps."""
    partitions = partition_indices(len(data), tiny.CONFIG.num_teachers, tiny.CONFIG.partition_seed)
    bank = bank_class(tiny.CONFIG, data.images, data.labels, partitions, tiny.CONFIG.mechanism(),
                      PerformanceOptions(chunk_size=chunk_size))
    for step in range(3):
        bank.advance(from_images(make_rounds(1, seed=step)))
    return arrays(bank)


def test_with_shared_moments_a_record_changes_other_teachers(study):
    data, other, victim = tiny.dataset(20), tiny.dataset(20), 7
    other.images[victim] = 255 - other.images[victim]
    partitions = partition_indices(20, tiny.CONFIG.num_teachers, tiny.CONFIG.partition_seed)
    owner = int(np.argwhere(partitions == victim)[0, 0])
    for bank_class, leak in ((TeacherBank, False), (study.SharedMoments, True)):
        mine, theirs = (trained(bank_class, records, 1) for records in (data, other))
        changed = {teacher for a, b in zip(mine, theirs) for teacher in range(len(a))
                   if not np.array_equal(a[teacher], b[teacher])}
        assert owner in changed
        assert (len(changed) > 1) == leak


def test_a_slot_for_every_teacher_leaks_nothing(study):
    """One chunk of all teachers: each goes on with moments of its own."""
    size = tiny.CONFIG.num_teachers
    for mine, theirs in zip(trained(study.SharedMoments, tiny.dataset(20), size),
                            trained(TeacherBank, tiny.dataset(20), size)):
        np.testing.assert_array_equal(mine, theirs)


def test_records_of_short_classes_are_dealt_twice_and_no_others(study):
    labels = np.repeat(np.arange(3), (4, 20, 12))
    data = tiny.as_dataset(np.zeros((36, 8, 8, 1), np.uint8), labels, 3)
    partitions = study.dealt_by_class(data, 6, 0)
    assert partitions.shape == (6, 6)
    assert all(np.bincount(labels[partition], minlength=3).tolist() == [2, 2, 2] for partition in partitions)
    times = np.bincount(partitions.ravel(), minlength=36)
    assert times[labels == 0].tolist() == [3] * 4
    assert times[labels == 1].max() == 1 and times[labels == 2].tolist() == [1] * 12


@pytest.mark.study
def test_rows_are_computed_once(study, tmp_path, monkeypatch, capsys):
    words = ["leaks.py", "--output_dir", str(tmp_path), "--dataset", "digits", "--num_teachers", "4",
             "--records_per_teacher", "9", "--teachers_of_a_slot", "2", "--num_steps", "2", "--num_images", "50",
             "--epochs", "2", "--seeds", "0", "1"]
    monkeypatch.setattr(sys, "argv", words)
    monkeypatch.setattr(study.votes, "HELD_OUT", 100)
    study.main()
    first = (tmp_path / "leaks.csv").read_text()
    assert len(first.splitlines()) == 1 + 2 * len(study.LEAKS)
    assert [path.name for path in tmp_path.iterdir()] == ["leaks.csv"]
    monkeypatch.setattr(study, "accuracies", None)
    study.main()
    assert (tmp_path / "leaks.csv").read_text() == first
    assert capsys.readouterr().out.count("| digits | moments | 4 | 9 | 2 | 50 | 2 | 2 |") == 2
