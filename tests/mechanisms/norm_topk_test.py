"""NormTopK: which coordinates it keeps, how long what is left can be, and what that is charged as."""

import dataclasses
import math

import dp_accounting
import hypothesis
import numpy as np
import pytest
import tensorflow as tf
from hypothesis import strategies as st
from hypothesis.extra import numpy as npst

from datalens_tf.errors import InvalidArgumentError
from datalens_tf.mechanisms.gaussian_sum import _STEPS, GaussianSum
from datalens_tf.mechanisms.noise import RoundedGaussianNoise
from datalens_tf.mechanisms.norm_topk import NormTopKSum, dimension_topk, norm_topk

C = 0.7
FLOATS = st.one_of(
    st.floats(width=32, allow_subnormal=False), st.floats(-10, 10, width=32, allow_subnormal=False),
    st.sampled_from([float(np.float32(x)) for x in (0, -0.0, 1, -1, 3e38, -3e38, 2e-38, np.inf, np.nan, C,
                                                    C / math.sqrt(2))]))
VECTORS = npst.arrays(np.float32, st.integers(1, 40), elements=FLOATS)
KS = st.one_of(st.sampled_from([0.6, 0.8, 1.0, 1e-9, 1 - 1e-12]), st.floats(0.01, 1))
cheaply = hypothesis.settings(max_examples=150, deadline=None)


def length(vector):
    return math.sqrt(math.fsum(float(x)**2 for x in vector))


def one_by_one(vector, k):
    """The definition, for integers, whose squares add up exactly."""
    result, left = np.zeros_like(vector), k * sum(int(x)**2 for x in vector)
    for index in sorted(range(len(vector)), key=lambda i: -abs(vector[i])):
        left -= int(vector[index])**2
        if left < 0:
            break
        result[index] = vector[index]
    return result


# The function.


@pytest.mark.parametrize("vector, k, expected", [
    ([3, -4, 0], 0.64, [0, -4, 0]), ([3, -4, 0], 0.63, [0, 0, 0]), ([3, -4, 0], 0.99, [0, -4, 0]),
    ([1, 1, 1, 1, 1], 0.6, [1, 1, 1, 0, 0]), ([1, -2, 1, 2, 1], 0.85, [1, -2, 0, 2, 0]), ([0, 0], 0.5, [0, 0]),
    ([1, -2, 1, 2, 1], 1.0, [1, -2, 1, 2, 1]), ([np.nan, 1], 0.5, [0, 0]), ([np.inf, 1], 1.0, [0, 0])])
def test_the_largest_are_kept_while_their_squares_fit(vector, k, expected):
    np.testing.assert_array_equal(norm_topk(np.array(vector, np.float32), k), expected)


@cheaply
@hypothesis.given(npst.arrays(np.int32, st.integers(1, 60), elements=st.integers(-2**20, 2**20) | st.integers(-3, 3)),
                  KS)
def test_it_equals_the_definition(integers, k):
    vector = integers.astype(np.float32)
    np.testing.assert_array_equal(norm_topk(vector, k), one_by_one(vector, k) if k < 1 else vector)


def test_it_equals_the_definition_on_a_long_vector_with_many_ties():
    random = np.random.default_rng(0)
    vector = np.rint(random.standard_t(2, 20_000) * 40).astype(np.float32)
    for k in (0.1, 0.5, 0.8, 0.999):
        np.testing.assert_array_equal(norm_topk(vector, k), one_by_one(vector, k))
    assert len(np.unique(np.abs(vector))) < 2000


@cheaply
@hypothesis.given(VECTORS, KS, st.sampled_from([math.inf, 1.0, 1e-3]))
def test_no_vector_is_too_long_afterwards(vector, k, norm_bound):
    kept = norm_topk(vector, k, norm_bound=norm_bound)
    assert np.isfinite(kept).all() and np.all((kept == vector) | (kept == 0))
    largest = math.sqrt(k) * (length(vector) if k == 1 else min(length(vector), norm_bound))
    if np.isfinite(vector).all():
        assert length(kept) <= largest * (1 + 1e-12)


@cheaply
@hypothesis.given(VECTORS, st.integers(0, 50))
def test_dimensions_are_counted(vector, count):
    kept = dimension_topk(vector, count)
    if not np.isfinite(vector).all():
        assert not kept.any()
        return
    order = np.argsort(-np.abs(vector), kind="stable")[:count]
    expected = np.zeros_like(vector)
    expected[order] = vector[order]
    np.testing.assert_array_equal(kept, expected)


def test_one_k_is_refused():
    for k in (0.0, -1.0, 1.1, math.nan):
        with pytest.raises(InvalidArgumentError, match="k="):
            norm_topk(np.ones(3, np.float32), k)


# The sum.


def make(**changes):
    return NormTopKSum(**{"clip_norm": C, "noise_multiplier": 1.3, "adjacency": "add-or-remove-one",
                          "sampling_probability": 0.1, **changes})


def total(mechanism, rows):
    found = np.zeros(rows.shape[1])
    for row in rows:
        positions, units = mechanism.compress(row)
        found[positions] += units
    return found


def check_sensitivity(mechanism, random):
    """No record among them changes the sum by more than is charged for; some by nearly as much."""
    largest = 0.0
    for _ in range(60):
        d = int(random.integers(1, 50))
        rows = (random.standard_normal((4, d)) * 10.0**random.integers(-3, 4, (4, 1))).astype(np.float32)
        odd = [np.full(d, 5.0), np.full(d, 3e38), np.full(d, np.nan), np.eye(d)[0] * 9, np.zeros(d), np.full(d, 1e-40),
               np.resize([1e38, -np.inf], d), C / np.sqrt(d) * np.ones(d), np.where(np.arange(d) < 5, 2.0, 0.0)]
        rows[0] = odd[random.integers(len(odd))]
        for removed in range(4):
            change = np.linalg.norm(total(mechanism, rows) - total(mechanism, np.delete(rows, removed, 0)))
            largest = max(largest, change * C / _STEPS)
    assert largest <= mechanism.l2_sensitivity
    return largest


@pytest.mark.parametrize("changes", [{"top_k_norm": 0.8}, {"top_k_norm": 0.6}, {}, {"top_k_dimensions": 0.5},
                                     {"top_k_norm": 0.8, "top_k_dimensions": 0.5}])
def test_neighbouring_data_differ_by_at_most_the_sensitivity(changes):
    mechanism = make(**changes)
    assert mechanism.l2_sensitivity == math.sqrt(mechanism.top_k_norm) * C
    assert check_sensitivity(mechanism, np.random.default_rng(1)) > 0.97 * mechanism.l2_sensitivity


class FewerDimensionsLessNoise(NormTopKSum):
    """As if a share of the coordinates had that share of the squared norm."""

    @property
    def l2_sensitivity(self):
        return math.sqrt(self.top_k_dimensions) * C


class OnlySelected(NormTopKSum):
    """As if the selection were a clipping."""

    def compress(self, vector):
        return np.arange(len(vector)), norm_topk(np.trunc(vector * np.float32(_STEPS / C)), self.top_k_norm)


@pytest.mark.parametrize("kind, changes", [
    (FewerDimensionsLessNoise, {"top_k_dimensions": 0.5}), (OnlySelected, {"top_k_norm": 0.8})])
def test_a_wrong_sensitivity_is_caught(kind, changes):
    with pytest.raises(AssertionError):
        check_sensitivity(kind(**dataclasses.asdict(make(**changes))), np.random.default_rng(1))


def test_the_exact_square_root_of_k_is_attained_and_not_passed():
    """Integers on the bound: 16 + 9 = 25 of the grid, of which 16 are 0.64."""
    mechanism = make(clip_norm=1.0, top_k_norm=0.64)
    _, units = mechanism.compress(np.array([0.6, 0.8], np.float32))
    assert sorted(np.abs(units)) in ([0, np.trunc(0.8 * _STEPS)], [0, 0])
    for vector in ([0.6, 0.8], [60, 80], [3e37, 4e37]):
        assert length(mechanism.compress(np.array(vector, np.float32))[1]) <= 0.8 * _STEPS


def test_all_kept_is_plain_dp_sgd_to_the_bit():
    random = np.random.default_rng(2)
    rows = (random.standard_normal((30, 200)) * 10.0**random.integers(-3, 3, (30, 1))).astype(np.float32)
    rows[:, random.random(200) < 0.5] = 0
    plain = GaussianSum(**{field.name: getattr(make(), field.name) for field in dataclasses.fields(GaussianSum)})
    expected = np.zeros(200)
    for row in rows:
        positions, units = plain.clip_sparse(row)
        expected[positions] += units
    np.testing.assert_array_equal(total(make(), rows), expected)
    assert make().l2_sensitivity == plain.l2_sensitivity and make().dp_event() == plain.dp_event()
    # The batch's own clipping has a margin of 1e-4 for float32.
    clipped = tf.reduce_sum(tf.cast(plain.clip(tf.constant(rows)), tf.float64), 0).numpy()
    np.testing.assert_allclose(expected, clipped, atol=30 * 2e-4 * _STEPS)


def test_the_noise_is_a_square_root_of_k_smaller_at_the_same_price():
    whole, part = make(), make(top_k_norm=0.64)
    assert whole.dp_event() == part.dp_event() == dp_accounting.PoissonSampledDpEvent(
        0.1, dp_accounting.GaussianDpEvent(1.3))
    drawn = [mechanism.privatize(np.zeros(20_000), RoundedGaussianNoise(), 0).std() for mechanism in (whole, part)]
    np.testing.assert_allclose(drawn, [1.3 * C, 0.8 * 1.3 * C], rtol=6 / math.sqrt(2 * 20_000))
    # A share of the coordinates saves nothing.
    assert make(top_k_dimensions=0.1).l2_sensitivity == C


def test_bad_settings_are_named():
    for changes in ({"top_k_norm": 0.0}, {"top_k_norm": 1.5}, {"top_k_dimensions": 0.0}):
        with pytest.raises(InvalidArgumentError, match=next(iter(changes))):
            make(**changes)
