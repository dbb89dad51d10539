"""Per-record budgets: proportions, who trains on whom, and that nothing depends on what is in a record."""

import numpy as np
import pytest

from datalens_tf.classification.budgets import (
    budget_groups,
    deal_budgets,
    read_shares,
    upsampled_partitions,
    votes_per_record,
    weighted_partitions,
)
from datalens_tf.errors import DataError, InvalidArgumentError

BUDGETS = np.array([1.0, 2.0, 2.5, 1.0, 2.0] * 20)


def test_votes_are_the_fewest_whole_numbers_in_proportion():
    np.testing.assert_array_equal(votes_per_record(BUDGETS)[:3], [2, 4, 5])
    np.testing.assert_array_equal(votes_per_record(np.array([1.0, 3.0])), [1, 3])
    np.testing.assert_array_equal(votes_per_record(np.full(4, 7.3)), [1, 1, 1, 1])
    np.testing.assert_array_equal(votes_per_record(np.array([1.0, 1.37]), 0), [1, 1])
    np.testing.assert_array_equal(votes_per_record(np.array([1.0, 1.37]), 2), [100, 137])


@pytest.mark.parametrize("bad", [[0.04, 1], [-1.0, 1], [np.nan, 1], [np.inf, 1], [], [[1.0]]])
def test_what_is_no_budget_is_refused(bad):
    with pytest.raises(InvalidArgumentError, match="budgets="):
        votes_per_record(np.array(bad))


def test_upsampled_records_are_in_as_many_different_teachers_as_they_have_votes():
    votes = votes_per_record(BUDGETS)
    shards = upsampled_partitions(votes, 7, seed=3)
    assert len(shards) == 7 and np.ptp([len(shard) for shard in shards]) <= 1
    for shard in shards:
        assert len(np.unique(shard)) == len(shard)
    np.testing.assert_array_equal(np.bincount(np.concatenate(shards)), votes)


def test_equal_budgets_give_disjoint_partitions():
    shards = upsampled_partitions(np.ones(30, int), 4, seed=0)
    assert sorted(np.concatenate(shards)) == list(range(30))


def test_weighted_teachers_have_records_of_one_budget_each():
    votes = votes_per_record(BUDGETS)
    shards, weights = weighted_partitions(votes, 10, seed=3)
    members = np.concatenate(shards)
    assert len(np.unique(members)) == len(members) and len(shards) == len(weights) == 10
    for shard, weight in zip(shards, weights):
        assert np.all(votes[shard] == weight)
    np.testing.assert_array_equal(np.unique(weights, return_counts=True), [[2, 4, 5], [4, 4, 2]])


def test_a_small_group_has_a_teacher():
    _, weights = weighted_partitions(np.array([1] * 97 + [5] * 3), 10, seed=0)
    assert list(weights) == [1] * 9 + [5]


def test_partitions_depend_on_the_public_seed():
    votes = votes_per_record(BUDGETS)
    for deal in (lambda seed: upsampled_partitions(votes, 5, seed),
                 lambda seed: weighted_partitions(votes, 5, seed)[0]):
        first, again, other = (np.concatenate(deal(seed)) for seed in (1, 1, 2))
        np.testing.assert_array_equal(first, again)
        assert not np.array_equal(first, other)


def test_budgets_are_dealt_in_shares_by_a_public_seed():
    budgets = deal_budgets({1.0: 0.34, 2.0: 0.43, 3.0: 0.23}, 1000, seed=0)
    np.testing.assert_array_equal(np.unique(budgets, return_counts=True), [[1, 2, 3], [340, 430, 230]])
    np.testing.assert_array_equal(budgets, deal_budgets({1.0: 0.34, 2.0: 0.43, 3.0: 0.23}, 1000, seed=0))
    assert np.any(np.diff(budgets) < 0)  # In no order.
    assert read_shares("1:0.5,3:0.5") == {1.0: 0.5, 3.0: 0.5}
    for text, message in (("1:0.5", "add up to 1"), ("0:1", "budget=0.0 > 0"), ("1:2,2:-1", "share=2.0")):
        with pytest.raises(InvalidArgumentError, match=message):
            deal_budgets(read_shares(text), 10, 0)
    with pytest.raises(InvalidArgumentError, match="BUDGET:SHARE"):
        read_shares("1,3")


def test_groups_name_every_budget():
    groups = budget_groups(BUDGETS, votes_per_record(BUDGETS))
    assert [(group.epsilon, group.record_votes, group.num_records) for group in groups] == [
        (1.0, 2, 40), (2.0, 4, 40), (2.5, 5, 20)]


def test_too_few_teachers_or_records_are_refused():
    with pytest.raises(InvalidArgumentError, match="num_teachers=4 >= 5"):
        upsampled_partitions(np.array([1, 5, 5]), 4, 0)
    with pytest.raises(InvalidArgumentError, match="num_teachers=1 >= 2"):
        weighted_partitions(np.array([1, 5, 5]), 1, 0)
    for deal in (upsampled_partitions, weighted_partitions):
        with pytest.raises(DataError, match="num_teachers=9"):
            deal(np.ones(3, int), 9, 0)
