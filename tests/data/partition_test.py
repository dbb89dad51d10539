"""Partitions: disjoint, equal, public, and functions of the index alone."""

import dataclasses
import subprocess
import sys

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from datalens_tf.data.datasets import Units, as_dataset
from datalens_tf.data.partition import UNIT_PLACES, partition_indices, teacher_indices, usable_indices, user_indices
from datalens_tf.errors import DataError, InvalidArgumentError

sizes = st.integers(1, 200).flatmap(lambda teachers: st.tuples(st.integers(teachers, 3000), st.just(teachers)))
seeds = st.integers(0, 2**64)


@settings(deadline=None)
@given(sizes, seeds)
def test_shards_are_disjoint_and_of_equal_size(size, seed):
    records, teachers = size
    shards = partition_indices(records, teachers, seed)
    assert shards.shape == (teachers, records // teachers)
    assert shards.dtype == np.int64
    assert len(np.unique(shards)) == shards.size
    assert 0 <= shards.min() and shards.max() < records
    assert records - shards.size < teachers


@settings(deadline=None)
@given(sizes, seeds)
def test_same_arguments_same_shards_and_no_global_state(size, seed):
    first = partition_indices(*size, seed)
    before = np.random.get_state()
    np.random.seed(0)
    np.testing.assert_array_equal(first, partition_indices(*size, seed))
    assert np.random.random() == np.random.RandomState(0).random_sample()
    np.random.set_state(before)


@settings(deadline=None)
@given(st.lists(st.integers(0, 5), min_size=60, max_size=400), st.data())
def test_replacing_a_record_reaches_one_teacher_whatever_the_classes(labels, data):
    # The published implementations deal by class; a changed label then moves other records, and classes too short
    # for all teachers are dealt twice.
    teachers = data.draw(st.integers(1, 20))
    index = data.draw(st.integers(0, len(labels) - 1))
    original, changed = np.array(labels), np.array(labels)
    changed[index] += 1
    read_before = original[partition_indices(len(original), teachers, 3)]
    read_after = changed[partition_indices(len(changed), teachers, 3)]
    assert (read_before != read_after).any(axis=1).sum() <= 1


@settings(deadline=None, max_examples=40)
@given(st.lists(st.integers(1, 40), min_size=8, max_size=20), st.data())
def test_replacing_a_unit_reaches_one_teacher_however_many_records_it_has(counts, data):
    def read(counts, unusable):
        """What teachers see, as (unit, number within it)."""
        of = np.random.default_rng(0).permutation(np.repeat(np.arange(len(counts)), counts))
        rank = np.zeros(len(of), int)
        for unit in range(len(counts)):
            rank[of == unit] = np.arange(counts[unit])
        dataset = dataclasses.replace(as_dataset(np.zeros((len(of), 8, 8), np.uint8), np.zeros(len(of), int), 2),
                                      units=Units.named("unit", of), usable=of != unusable)
        indices = teacher_indices(dataset, teachers, 3)
        return np.stack([of[indices], rank[indices]], -1)

    teachers, unit = data.draw(st.integers(1, 4)), data.draw(st.integers(0, len(counts) - 1))
    changed = [*counts[:unit], data.draw(st.integers(1, 60)), *counts[unit + 1:]]
    before, after = read(counts, None), read(changed, data.draw(st.sampled_from([None, unit])))
    assert before.shape == after.shape == (teachers, len(counts) // teachers * UNIT_PLACES, 2)
    assert (before != after).any((1, 2)).sum() <= 1
    owners = [set(shard[:, 0]) for shard in before]
    assert sum(map(len, owners)) == len(set.union(*owners))  # No unit is with two teachers.


def test_units_have_equally_many_places_and_none_without_usable_records():
    of = np.array([0] * 30 + [1] + [2] * 3)
    dataset = dataclasses.replace(as_dataset(np.zeros((34, 8, 8), np.uint8), np.zeros(34, int), 2),
                                  units=Units.named("unit", of), usable=np.arange(34) != 30)
    shard = teacher_indices(dataset, 1, 0)[0]
    assert len(shard) == 3 * UNIT_PLACES and np.bincount(of[shard], minlength=3)[1] == 0
    assert min(np.bincount(of[shard], minlength=3)[[0, 2]]) >= UNIT_PLACES
    only = dataclasses.replace(dataset, usable=np.zeros(34, bool))
    assert len(teacher_indices(only, 3, 0)) == 3  # Who has nothing usable keeps what it has.
    with pytest.raises(DataError, match="num_records=3 < num_teachers=4"):
        teacher_indices(dataset, 4, 0)


def test_a_unit_without_records_borrows_none():
    """Its places would else have record 0, which is with another teacher already."""
    dataset = dataclasses.replace(as_dataset(np.zeros((4, 8, 8), np.uint8), np.zeros(4, int), 2), units=Units(
        name="unit", of=np.array([0, 0, 1, 3]), count=4))
    with pytest.raises(InvalidArgumentError, match="units=.* to have a record each"):
        teacher_indices(dataset, 2, 0)


def test_shards_mix_records_stored_by_class():
    labels = np.repeat(np.arange(10), 600)
    shards = labels[partition_indices(len(labels), 20, 0)]
    counts = np.stack([(shards == label).sum(axis=1) for label in range(10)])
    # 300 records in a shard, 30 of a class on average, standard deviation 5.1.
    assert counts.min() > 5 and counts.max() < 60


def test_another_seed_other_shards():
    assert not np.array_equal(partition_indices(1000, 10, 0), partition_indices(1000, 10, 1))
    assert not np.array_equal(partition_indices(1000, 10, 0), partition_indices(1000, 10, 2**32))


def test_shards_never_change_between_versions_and_processes():
    # A resumed run, an audit and a published seed all rely on these exact numbers.
    expected = [[6, 1, 0], [5, 3, 8], [7, 9, 2]]
    assert partition_indices(10, 3, 0).tolist() == expected
    code = "from datalens_tf.data.partition import partition_indices; print(partition_indices(10, 3, 0).tolist())"
    other = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert other.stdout.strip() == str(expected)


def test_fewer_records_than_teachers_is_refused():
    with pytest.raises(DataError, match="num_records=3 < num_teachers=4. Use fewer teachers"):
        partition_indices(3, 4, 0)
    assert sorted(partition_indices(4, 4, 0).ravel()) == [0, 1, 2, 3]


@pytest.mark.parametrize("arguments, message", [
    ((10, 0, 0), "num_teachers=0 >= 1"),
    ((10, 2.0, 0), "num_teachers=2.0 to be an integer"),
    ((10, 2, -1), "seed=-1 >= 0"),
    ((10, 2, None), "seed=None to be an integer"),
])
def test_bad_arguments_are_named(arguments, message):
    with pytest.raises(InvalidArgumentError, match=message):
        partition_indices(*arguments)


class TestUsable:

    def test_all_usable_means_no_change(self):
        partitions = partition_indices(20, 4, 0)
        assert usable_indices(partitions, None) is partitions
        np.testing.assert_array_equal(usable_indices(partitions, np.ones(20, bool)), partitions)

    def test_usable_records_fill_their_own_shard_in_order(self):
        partitions = np.array([[4, 1, 7, 0, 2], [3, 5, 6, 8, 9]])
        usable = np.array([0, 1, 1, 0, 0, 0, 1, 0, 0, 0], bool)
        assert usable_indices(partitions, usable).tolist() == [[1, 2, 1, 2, 1], [6, 6, 6, 6, 6]]

    def test_a_shard_without_usable_records_borrows_from_nobody(self):
        partitions = np.array([[4, 1], [0, 2], [3, 5]])
        usable = np.array([0, 1, 0, 1, 0, 1], bool)
        assert usable_indices(partitions, usable).tolist() == [[1, 1], [0, 2], [3, 5]]

    @settings(deadline=None)
    @given(st.integers(1, 8), st.integers(1, 6), st.randoms(use_true_random=False))
    def test_replacing_a_record_changes_one_teacher(self, num_teachers, shard, random):
        count = num_teachers * shard
        partitions = partition_indices(count, num_teachers, 3)
        usable = np.array([random.random() < 0.4 for _ in range(count)])
        other = usable.copy()
        record = random.randrange(count)
        other[record] = not other[record]
        before, after = usable_indices(partitions, usable), usable_indices(partitions, other)
        owner = int(np.argwhere(partitions == record)[0, 0])
        rest = [teacher for teacher in range(num_teachers) if teacher != owner]
        np.testing.assert_array_equal(before[rest], after[rest])
        for row, mine in zip(before, partitions):
            assert set(row.tolist()) <= set(mine.tolist())


def data_of(users, usable=None):
    """Records of these users."""
    images = np.zeros((len(users), 4, 4, 1), np.uint8)
    return as_dataset(images, np.arange(len(users)) % 2, 2, users=np.array(users), usable=usable)


@settings(deadline=None)
@given(st.lists(st.integers(-3, 3), min_size=2, max_size=60))
def test_users_have_the_records_that_are_said_to_be_theirs(users):
    shards = user_indices(data_of(users), len(set(users)), 0)
    assert [[users[index] for index in shard] for shard in shards] == [
        [user] * users.count(user) for user in sorted(set(users))]
    assert sorted(np.concatenate(shards)) == list(range(len(users)))
    assert all(np.all(np.diff(shard) > 0) for shard in shards)


def test_what_is_not_usable_stays_with_its_user_and_is_not_read():
    shards = user_indices(data_of([0, 1, 0, 1, 0], np.array([True, True, False, False, True])), 2, 0)
    assert [shard.tolist() for shard in shards] == [[0, 4, 0], [1, 1]]


def test_where_nobody_said_records_are_dealt_as_to_teachers():
    data = as_dataset(np.zeros((10, 4, 4, 1), np.uint8), np.arange(10) % 2, 2)
    np.testing.assert_array_equal(user_indices(data, 3, 5), partition_indices(10, 3, 5))
    with pytest.raises(DataError, match="a record for each user, got 10 for num_users=11"):
        user_indices(data, 11, 0)


def test_another_number_of_users_is_refused():
    with pytest.raises(DataError, match="num_users=3 to be 2, the number of users whom the data name"):
        user_indices(data_of([4, 9]), 3, 0)
