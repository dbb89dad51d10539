"""The sensitivity of a linear classifier's summed gradients, on neighbouring data; their noise; and the gradient."""

import dp_accounting
import numpy as np
import pytest
import tensorflow as tf
from scipy import stats

from datalens_tf.errors import InvalidArgumentError
from datalens_tf.mechanisms import linear_gradient
from datalens_tf.mechanisms.linear_gradient import _STEPS, LinearGradient
from datalens_tf.mechanisms.noise import RoundedGaussianNoise
from tests.mechanisms.conformance import with_odd_rows

MECHANISM = LinearGradient(clip_norm=0.5, noise_multiplier=3.0)
D, Y = 5, 3


def features(random, count):
    """Of length 1, and what no image has: zero, huge, infinite, NaN, slightly too long."""
    found = random.normal(size=(count, D))
    found /= np.linalg.norm(found, axis=1, keepdims=True)
    odd = [np.zeros(D), np.full(D, 1e300), np.full(D, np.inf), np.full(D, np.nan), [1 + 1e-4, 0, 0, 0, 0],
           [-1, 0, 0, 0, 0], [1, 0, 0, 0, 0]]
    return with_odd_rows(found, odd, random)


def sums(rows, labels, weights, mechanism=MECHANISM):
    return mechanism.sums([(mechanism.grid(rows), labels)], weights)


def test_replacing_one_record_changes_the_sum_by_at_most_the_sensitivity():
    random, largest = np.random.default_rng(0), 0.0
    for _ in range(400):
        weights = random.normal(size=(D, Y)) * random.choice([0.0, 1.0, 100.0, 1e30])
        rows, labels = features(random, 6), random.integers(0, Y, 6)
        others, other_labels = rows.copy(), labels.copy()
        place = random.integers(6)
        others[place] = rows[place] if random.random() < 0.3 else features(random, 1)[0]
        if random.random() < 0.5:
            others[place] = -rows[place]
        other_labels[place] = random.integers(0, Y)
        change = sums(rows, labels, weights) - sums(others, other_labels, weights)
        largest = max(largest, np.linalg.norm(change))
    assert largest <= MECHANISM.L2_SENSITIVITY
    assert largest > 0.99 * MECHANISM.L2_SENSITIVITY  # It is attained, so it cannot be smaller.


def test_weights_that_overflow_leave_no_record_out_of_bounds():
    random = np.random.default_rng(1)
    grid = MECHANISM.grid(features(random, 50))
    for scale in (1e38, 1e300, np.inf, np.nan):
        errors = MECHANISM.errors(grid, random.integers(0, Y, 50), np.full((D, Y), scale))
        assert np.all(np.isfinite(errors))
        assert np.all(np.square(errors).sum(1) <= _STEPS**2)


def test_it_is_the_gradient_of_the_cross_entropy():
    random = np.random.default_rng(2)
    rows, labels, weights = random.normal(size=(40, D)), random.integers(0, Y, 40), random.normal(size=(D, Y))
    rows *= 0.9 / np.linalg.norm(rows, axis=1, keepdims=True)
    wide = LinearGradient(clip_norm=2.0, noise_multiplier=1.0)
    variable = tf.Variable(weights)
    with tf.GradientTape() as tape:
        loss = tf.reduce_sum(tf.nn.sparse_softmax_cross_entropy_with_logits(labels, rows @ variable))
    found = sums(rows, labels, weights, wide) * 2.0 / _STEPS**2
    np.testing.assert_allclose(found, tape.gradient(loss, variable).numpy(), atol=40 * D / _STEPS)


def test_shortened_errors_keep_their_direction():
    rows, labels = np.eye(D)[:1], np.array([2])
    whole = LinearGradient(clip_norm=2.0, noise_multiplier=1.0)
    short = MECHANISM.errors(MECHANISM.grid(rows), labels, np.zeros((D, Y)))
    full = whole.errors(whole.grid(rows), labels, np.zeros((D, Y)))
    np.testing.assert_allclose(short / np.linalg.norm(short), full / np.linalg.norm(full), atol=1e-4)
    assert np.linalg.norm(short) == pytest.approx(_STEPS, rel=1e-4)  # Its length before was 0.82, the bound is 0.5.


def test_sums_are_exact_integers_whatever_the_chunks():
    random = np.random.default_rng(3)
    rows, labels, weights = features(random, 30), random.integers(0, Y, 30), random.normal(size=(D, Y))
    whole = sums(rows, labels, weights)
    grid = MECHANISM.grid(rows)
    parts = MECHANISM.sums([(grid[i:i + 7], labels[i:i + 7]) for i in range(0, 30, 7)], weights)
    np.testing.assert_array_equal(whole, parts)
    loop = sum(np.outer(row.astype(np.float64), error) for row, error in zip(
        grid, MECHANISM.errors(grid, labels, weights)))
    np.testing.assert_array_equal(whole, loop)


@pytest.mark.parametrize("factor, accepted", [(1.0, True), (0.5, False), (1.5, False)])
def test_the_noise_has_the_scale_that_is_charged_for(factor, accepted):
    drawn = MECHANISM.privatize(np.zeros((80, 50)), RoundedGaussianNoise(), 0)
    scale = 3.0 * 2 * MECHANISM.clip_norm
    assert (stats.kstest(drawn.ravel(), "norm", args=(0, scale * factor)).pvalue > 1e-7) == accepted
    assert MECHANISM.dp_event() == dp_accounting.GaussianDpEvent(3.0)


def test_what_is_no_sum_of_gradients_is_refused(monkeypatch):
    with pytest.raises(InvalidArgumentError, match="to be integers"):
        MECHANISM.privatize(np.full((2, 3), 0.5), RoundedGaussianNoise(), 0)
    monkeypatch.setattr(linear_gradient, "MAX_RECORDS", 3)
    with pytest.raises(InvalidArgumentError, match="for exact sums"):
        sums(np.eye(D)[:4], np.zeros(4, int), np.zeros((D, Y)))


@pytest.mark.parametrize("changes", [{"clip_norm": 0.0}, {"noise_multiplier": 0.0}, {"noise_multiplier": np.nan}])
def test_bad_settings_are_refused(changes):
    with pytest.raises(InvalidArgumentError):
        LinearGradient(**{"clip_norm": 1.0, "noise_multiplier": 1.0} | changes)
