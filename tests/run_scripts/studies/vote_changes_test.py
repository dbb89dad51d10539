"""Changes to votes: each does what it says, costs nothing, and is gone afterwards."""

import numpy as np
import pytest
import tensorflow as tf

from datalens_tf.options import PerformanceOptions
from datalens_tf.training.teachers import TeacherBank
from datalens_tf.training.trainer import Trainer
from tests.training import tiny
from tests.training.banks import arrays, from_images, make_rounds

CONFIG = tiny.CONFIG.replace(teacher_steps=1, vote_threshold=None, quantization="sign")


def test_pooled_votes_are_signs_of_means_of_squares(study):
    with study.changing("pooled_votes"):
        mechanism = CONFIG.replace(top_k=2).mechanism()
    gradients = np.zeros([1, 1, 8, 8, 1], np.float32)
    gradients[0, 0, 2:4, 4:6, 0] = [[3, -1], [0, 0]]  # Mean 1/2, square (1, 2) of 4 x 4.
    gradients[0, 0, 6, 0, 0] = -8  # Mean -2, square (3, 0).
    gradients[0, 0, 0, :2, 0] = [9, -9]  # Mean 0.
    votes = mechanism.compress(tf.constant(gradients.reshape(1, 1, 64)), tf.zeros([1, 2], tf.int32)).numpy()
    assert votes.shape == (1, 1, 16)
    assert {place: votes[0, 0, place] for place in np.flatnonzero(votes)} == {6: 1, 12: -1}
    direction = mechanism.direction(votes[0].astype(float), 1).reshape(8, 8)
    expected = np.zeros([8, 8])
    expected[2:4, 4:6], expected[6:8, 0:2] = 1 / 8, -1 / 8
    np.testing.assert_array_equal(direction, expected)
    assert mechanism.l2_sensitivity(3) == CONFIG.replace(top_k=8).mechanism().l2_sensitivity(3) / 2


@pytest.mark.parametrize("gradient", [0.0, 1e30, np.inf, np.nan])
def test_pooled_votes_keep_within_their_sensitivity(study, gradient):
    with study.changing("pooled_votes"):
        mechanism = CONFIG.mechanism()
    votes = mechanism.compress(tf.fill([2, 3, 64], gradient), tf.zeros([2, 2], tf.int32)).numpy()
    assert set(np.unique(votes)) <= {-1, 0, 1} and np.abs(votes).sum(-1).max() <= CONFIG.top_k
    assert 2 * np.sqrt(np.square(votes[0]).sum(dtype=float)) <= mechanism.l2_sensitivity(3)


class Ayes:
    """A mechanism by which every teacher votes +1 everywhere."""

    def votes(self, teachers, images, labels, seeds, step):
        return tf.ones([teachers.num_teachers, tf.shape(images)[0], 64])


@pytest.mark.parametrize("chunk_size", [1, 3, 4])
def test_teachers_abstain_from_classes_that_they_lack(study, chunk_size):
    data = tiny.dataset(12)
    labels = np.repeat([0, 1, 2], [7, 3, 2])  # Partitions 000, 000, 011, 122.
    bank = study.AbstainingTeachers(CONFIG, data.images, labels, np.arange(12).reshape(4, 3), Ayes(),
                                    PerformanceOptions(chunk_size=chunk_size))
    votes, _ = bank.advance(from_images(make_rounds(1)), tf.zeros([4, 8, 8, 1]), tf.constant([0, 1, 2, 0]), step=1)
    np.testing.assert_array_equal(votes, np.repeat([[3], [2], [1], [3]], 64, axis=1))


@pytest.mark.parametrize("name", ["pooled_votes", "abstention"])
def test_one_replaced_record_moves_the_votes_by_the_sensitivity_at_most(study, name):
    data, other = tiny.dataset(20), tiny.dataset(20)
    other.images[7], other.labels[7] = 255 - other.images[7], (other.labels[7] + 1) % 3
    images, labels = tf.constant(data.images[:3] / np.float32(255)), tf.constant([0, 1, 2])
    sums = []
    with study.changing(name):
        mechanism = CONFIG.mechanism()
        for records in (data, other):
            bank = study.trainer.TeacherBank(CONFIG, records.images, records.labels, np.arange(20).reshape(4, 5),
                                             mechanism, PerformanceOptions(chunk_size=1))
            sums.append(bank.advance(from_images(make_rounds(1)), images, labels, step=1)[0])
    moved = np.linalg.norm(sums[0] - sums[1])
    assert 0 < moved <= mechanism.l2_sensitivity(3)


def test_abstention_changes_no_training(study):
    data, rounds = tiny.dataset(20), from_images(make_rounds(2))
    found = []
    for bank_class in (TeacherBank, study.AbstainingTeachers):
        bank = bank_class(CONFIG, data.images, data.labels, np.arange(20).reshape(4, 5), CONFIG.mechanism())
        bank.advance(rounds)
        found.append(arrays(bank))
    for mine, theirs in zip(*found):
        np.testing.assert_array_equal(mine, theirs)


@pytest.mark.slow
@pytest.mark.parametrize("name", ["pooled_votes", "abstention"])
def test_changes_last_as_long_as_their_context_and_runs_cost_the_same(study, name, tmp_path):
    before = Trainer(CONFIG, tiny.dataset(), tmp_path / "before").run()
    with study.changing(name):
        trainer = Trainer(CONFIG, tiny.dataset(), tmp_path / "changed")
        changed = trainer.run()
        assert trainer.event == CONFIG.mechanism().dp_event(CONFIG.batch_size)
    after = Trainer(CONFIG, tiny.dataset(), tmp_path / "after").run()
    assert tiny.released_bytes(before) == tiny.released_bytes(after) != tiny.released_bytes(changed)
