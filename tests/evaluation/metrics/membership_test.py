"""Attacks that find copies, find nothing where there is nothing, and say how sure they are."""

import dataclasses

import numpy as np
import pytest

from datalens_tf.errors import InvalidArgumentError
from datalens_tf.evaluation.metrics import membership
from datalens_tf.evaluation.metrics.membership import (
    classifier_scores,
    control,
    membership_attacks,
    nearest_neighbour_scores,
    strength,
)
from datalens_tf.evaluation.records import at
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


def test_the_control_shows_what_training_and_test_records_differ_by():
    """Here, the test records are a little brighter; no generator has seen anything."""
    train = real("train")
    order = np.random.default_rng(0).permutation(len(train))  # Digits are in the order of their writers.
    same, rest = at(train, order[:700]), at(train, order[700:])
    brighter = dataclasses.replace(same, images=np.maximum(same.images, 40))
    for size, scored in ((300, 300), (10_000, len(rest) // 2)):
        apart, alike = control(rest, brighter, size), control(rest, same, size)
        assert apart["num_members"] == alike["num_members"] == scored and apart["num_others"] == 700
        assert apart["classifier"]["auc_low"] > 0.8
        for attack in ("nearest_neighbour", "classifier"):
            assert abs(alike[attack]["auc"] - 0.5) < 1.3 * (alike[attack]["auc_high"] - alike[attack]["auc_low"])


def test_a_control_scores_none_that_it_sees(monkeypatch):
    train, seen = real("train"), []
    monkeypatch.setattr(membership, "membership_attacks", lambda *arrays: seen.append(arrays) or {})
    for size in (400, 10_000):
        control(train, train, size)
        sights, scored = ({image.tobytes() for image in seen[-1][place]} for place in (0, 2))
        assert len(sights & scored) <= 2  # Digits that two people wrote alike.
    assert control(at(train, np.arange(19)), train, 100) is None


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
