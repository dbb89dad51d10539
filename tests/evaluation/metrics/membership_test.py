"""Attacks that find copies, find nothing where there is nothing, and say how sure they are."""

import numpy as np
import pytest

from datalens_tf.errors import InvalidArgumentError
from datalens_tf.evaluation.metrics.membership import (
    classifier_scores,
    membership_attacks,
    nearest_neighbour_scores,
    strength,
)
from tests.evaluation.evaluation_data import real


def halves():
    """Members, others and a third set of real records, all of one distribution."""
    train = real("train")
    order = np.random.default_rng(0).permutation(len(train))
    return [(train.images[part], train.labels[part]) for part in np.array_split(order, 3)]


def test_strength_of_known_scores():
    stream = np.random.default_rng(0)
    perfect = strength(np.arange(100, 200), np.arange(100))
    assert perfect["auc"] == perfect["true_positive_rate"] == 1 and perfect["false_positive_rate"] <= 0.01
    blind = strength(np.ones(50), np.ones(50))
    assert blind["auc"] == 0.5 and blind["true_positive_rate"] == 0
    apart = strength(stream.normal(1, 1, 4000), stream.normal(0, 1, 4000))
    assert apart["auc_low"] < 0.7602 < apart["auc_high"] < apart["auc_low"] + 0.03  # Phi(1 / sqrt 2)


def test_the_interval_holds_the_truth_as_often_as_it_says():
    stream = np.random.default_rng(1)
    inside = [found["auc_low"] <= 0.5 <= found["auc_high"] for found in
              (strength(stream.normal(size=200), stream.normal(size=300)) for _ in range(1000))]
    assert 0.92 < np.mean(inside) < 0.98


def test_a_generator_that_copies_its_records_is_caught_by_both_attacks():
    (members, labels), (others, other_labels), _ = halves()
    noisy = np.clip(members + np.random.default_rng(0).normal(0, 8, members.shape), 0, 255).astype(np.uint8)
    found = membership_attacks(noisy, labels, members, labels, others, other_labels)
    assert found["nearest_neighbour"]["auc_low"] > 0.95 and found["nearest_neighbour"]["true_positive_rate"] > 0.9
    assert found["classifier"]["auc_low"] > 0.6


def test_fresh_records_give_nobody_away():
    (members, labels), (others, other_labels), (fresh, fresh_labels) = halves()
    found = membership_attacks(fresh, fresh_labels, members, labels, others, other_labels)
    for attack in ("nearest_neighbour", "classifier"):
        # Five standard deviations rather than the interval's two.
        width = found[attack]["auc_high"] - found[attack]["auc_low"]
        assert abs(found[attack]["auc"] - 0.5) < 1.3 * width


def test_scores_by_hand():
    zero, one = np.zeros((1, 2, 2, 1), np.uint8), np.full((1, 2, 2, 1), 255, np.uint8)
    scores = nearest_neighbour_scores(np.concatenate([zero, one, one]), np.array([0, 0, 2]),
                                      np.concatenate([zero, one]), np.array([0, 1]))
    assert scores.tolist() == [0, -2, -np.inf]  # Another class' image is no neighbour.
    odds = classifier_scores(np.concatenate([zero, one]), np.repeat(one, 30, 0), np.repeat(zero, 30, 0))
    assert odds[0] < 0 < odds[1]


def test_too_few_records_are_refused():
    with pytest.raises(InvalidArgumentError, match=r"len\(others\)=9 >= 10"):
        strength(np.ones(10), np.ones(9))
