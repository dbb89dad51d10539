import dataclasses
import math

import dp_accounting
import numpy as np
import pytest
import tensorflow as tf
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp

from datalens_tf.errors import InvalidArgumentError
from datalens_tf.mechanisms import TopAgg, topk_sign, topk_stochastic_sign
from datalens_tf.methods.datalens import PRESETS, DataLensConfig
from tests.mechanisms.conformance import MechanismConformance, seeds_of, worst_cases


def make(**changes):
    defaults = {"num_teachers": 6, "top_k": 5, "clip": 1e-5, "noise_stddev": 1.0, "vote_threshold": 0.7}
    return TopAgg(**{**defaults, **changes})


class TestTopAggConforms(MechanismConformance):
    def make(self, *, noise_stddev):
        return make(noise_stddev=noise_stddev)


class TestTopAggOfAllCoordinatesConforms(MechanismConformance):
    def make(self, *, noise_stddev):
        return make(top_k=self.dimension, clip=None, noise_stddev=noise_stddev)


class TestTopAggOfPlainSignsConforms(MechanismConformance):
    def make(self, *, noise_stddev):
        return make(quantization="sign", noise_stddev=noise_stddev)


class TestTopAggWithoutThresholdConforms(MechanismConformance):
    def make(self, *, noise_stddev):
        return make(vote_threshold=None, noise_stddev=noise_stddev)


class TestTopAggWithoutAnyConforms(MechanismConformance):
    def make(self, *, noise_stddev):
        return make(top_k=self.dimension, quantization="sign", vote_threshold=None, noise_stddev=noise_stddev)


@pytest.mark.parametrize("suite", [
    TestTopAggConforms, TestTopAggOfAllCoordinatesConforms, TestTopAggOfPlainSignsConforms,
    TestTopAggWithoutThresholdConforms, TestTopAggWithoutAnyConforms])
def test_a_smaller_sensitivity_would_be_caught(suite):
    class Wrong(TopAgg):
        def l2_sensitivity(self, num_images):
            return 0.99 * super().l2_sensitivity(num_images)

    class Caught(suite):
        def make(self, *, noise_stddev):
            return Wrong(**dataclasses.asdict(super().make(noise_stddev=noise_stddev)))

    with pytest.raises(AssertionError):
        Caught().test_swapping_one_teacher_moves_the_sum_by_at_most_the_sensitivity()


def test_the_sensitivity_of_k_would_be_caught_without_top_k():
    """The price of the paper's k, charged for votes on all coordinates."""
    class Wrong(TopAgg):
        def l2_sensitivity(self, num_images):
            return make(top_k=5).l2_sensitivity(num_images)

    class Caught(TestTopAggOfAllCoordinatesConforms):
        def make(self, *, noise_stddev):
            return Wrong(**dataclasses.asdict(super().make(noise_stddev=noise_stddev)))

    with pytest.raises(AssertionError):
        Caught().test_swapping_one_teacher_moves_the_sum_by_at_most_the_sensitivity()


def compress_row_by_loop(row, uniforms, top_k, clip):
    """Algorithm 2 as it is read, for one row; the uniforms are those of the selected coordinates in ascending order."""
    votes = np.zeros_like(row)
    if not np.all(np.isfinite(row)) or not np.any(row):
        return votes
    selected = sorted(sorted(range(len(row)), key=lambda i: (-abs(row[i]), i))[:top_k])
    clipped = [row[i] if clip is None else min(max(row[i], -clip), clip) for i in selected]
    largest = max(abs(value) for value in clipped)
    for i, value, uniform in zip(selected, clipped, uniforms):
        votes[i] = 1.0 if uniform < (1 + value / largest) / 2 else -1.0
    return votes


@settings(max_examples=60, deadline=None, derandomize=True)
@given(
    row=hnp.arrays(np.float32, 12, elements=st.one_of(
        st.sampled_from([0.0, 1.0, -1.0, 0.5, math.nan, math.inf]), st.floats(-3, 3, width=16))),
    uniform=st.sampled_from([0.0, 0.2, 0.5, 0.8, 0.999]),
    top_k=st.integers(1, 12),
    clip=st.sampled_from([None, 0.25, 1.0]))
def test_compression_equals_the_algorithm_as_it_is_read(row, uniform, top_k, clip):
    # One uniform for the whole row: the order in which top_k lists the coordinates is then of no consequence.
    votes = topk_stochastic_sign(row[np.newaxis], tf.fill([1, top_k], uniform), top_k, clip)[0]
    np.testing.assert_array_equal(votes, compress_row_by_loop(row, [uniform] * top_k, top_k, clip))


def test_every_usable_row_has_exactly_k_votes_and_every_other_row_none():
    cases = worst_cases(3, 24)
    votes = make().compress(np.stack(list(cases.values())), seeds_of(len(cases))).numpy()
    counts = dict(zip(cases, np.count_nonzero(votes, axis=-1).tolist()))
    denormal = counts.pop("denormal")
    assert set(denormal) <= {0, 5}  # whether denormals count as zero is the processor's choice
    assert counts.pop("one NaN") == [0, 5, 5]
    assert counts.pop("one infinity") == [5, 5, 0]
    for name in ("zeros", "NaN", "infinite", "opposite infinities"):
        assert counts.pop(name) == [0, 0, 0], name
    assert set(map(tuple, counts.values())) == {(5, 5, 5)}
    assert set(np.unique(votes)) == {-1.0, 0.0, 1.0}


def test_ties_go_to_the_lowest_index():
    row = np.array([[1, -2, 1, 1, -1, 1]], np.float32)
    votes = topk_stochastic_sign(row, tf.fill([1, 3], 0.3), 3)
    assert np.flatnonzero(votes[0]).tolist() == [0, 1, 2]


def test_selection_comes_before_the_clip():
    # After clipping all four coordinates tie; the largest of the unclipped ones must be taken nevertheless.
    votes = topk_stochastic_sign(np.array([[1, 2, 3, 4]], np.float32), tf.fill([1, 2], 0.5), 2, clip=0.1)
    np.testing.assert_array_equal(votes, [[0, 0, 1, 1]])


def test_the_largest_coordinate_votes_its_sign_for_certain_and_others_in_proportion():
    rows = np.tile(np.array([[-4, 2, 0.0]], np.float32), (40_000, 1))
    votes = topk_stochastic_sign(rows, tf.random.stateless_uniform([40_000, 3], [1, 2]), 3).numpy()
    assert np.all(votes[:, 0] == -1)
    # (1 + 0.5)/2 and, for a selected zero, 1/2; a mean of 40,000 signs has standard deviation below 0.005.
    assert votes[:, 1].mean() == pytest.approx(0.5, abs=0.025)
    assert votes[:, 2].mean() == pytest.approx(0.0, abs=0.025)


def test_clipping_evens_out_the_selected_coordinates():
    rows = np.tile(np.array([[-4, 1, 1]], np.float32), (500, 1))
    uniforms = tf.random.stateless_uniform([500, 3], [1, 2])
    np.testing.assert_array_equal(topk_stochastic_sign(rows, uniforms, 3, clip=0.5), np.sign(rows))
    assert np.any(topk_stochastic_sign(rows, uniforms, 3) != np.sign(rows))


GRADIENTS = np.random.default_rng(2).normal(size=(6, 3, 24)).astype(np.float32)


def test_without_top_k_every_coordinate_votes_and_each_image_costs_its_dimension():
    config = DataLensConfig(top_k=None, image_shape=(4, 4, 3), num_teachers=6, noise_stddev=7.0)
    mechanism = config.mechanism()
    assert mechanism.top_k == 48 and mechanism.l2_sensitivity(5) == 2 * math.sqrt(48 * 5)
    votes = mechanism.compress(np.tile(GRADIENTS, 2), seeds_of(6)).numpy()
    assert np.all(np.abs(votes) == 1)
    with pytest.raises(InvalidArgumentError, match="image_shape=None to be known with top_k=None"):
        config.replace(image_shape=None).mechanism()


def test_without_stochastic_quantization_votes_are_signs_whatever_the_seeds():
    off = make(quantization="sign")
    votes = off.compress(GRADIENTS, seeds_of(6)).numpy()
    np.testing.assert_array_equal(votes, off.compress(GRADIENTS, seeds_of(6, 50)))
    chosen = np.argsort(-np.abs(GRADIENTS), axis=2)[..., :5]
    expected = np.zeros_like(GRADIENTS)
    np.put_along_axis(expected, chosen, np.sign(np.take_along_axis(GRADIENTS, chosen, 2)), 2)
    np.testing.assert_array_equal(votes, expected)
    assert np.any(votes != make(clip=None).compress(GRADIENTS, seeds_of(6)).numpy())  # On, it differs.
    np.testing.assert_array_equal(topk_sign(np.array([[0, -3e-9, 5]], np.float32), 3), [[0, -1, 1]])


def test_stochastic_votes_on_average_are_what_plain_signs_lose():
    rows = np.tile(np.array([[4, 1]], np.float32), (40_000, 1))
    uniforms = tf.random.stateless_uniform([40_000, 2], [1, 2])
    assert topk_stochastic_sign(rows, uniforms, 2).numpy()[:, 1].mean() == pytest.approx(0.25, abs=0.025)
    assert np.all(topk_sign(rows, 2).numpy()[:, 1] == 1)


def test_without_threshold_the_direction_is_the_noisy_votes_over_k():
    noisy = np.array([[7.0, 6.5, 0.0, -1.0]])
    np.testing.assert_array_equal(make(vote_threshold=None).postprocess(noisy), np.float32(noisy / 5))
    np.testing.assert_array_equal(make(vote_threshold=0.0).postprocess(noisy), [[1, 1, 1, -1]])


@pytest.mark.parametrize("changes", [{"quantization": "sign"}, {"vote_threshold": None}, {"clip": None}])
def test_what_is_switched_off_leaves_the_price_as_it_is(changes):
    assert make(**changes).dp_event(3) == make().dp_event(3)
    assert make(top_k=24, **changes).dp_event(3).noise_multiplier == pytest.approx(
        make().dp_event(3).noise_multiplier * math.sqrt(5 / 24), rel=1e-12)


def test_quantisation_differs_between_teachers_images_and_seeds():
    gradients = np.tile(np.linspace(-1, 1, 24, dtype=np.float32), (2, 3, 1))
    mechanism = make(top_k=24, clip=None)
    votes = mechanism.compress(gradients, seeds_of(2)).numpy()
    assert np.any(votes[0] != votes[1]) and np.any(votes[0, 0] != votes[0, 1])
    assert np.any(votes != mechanism.compress(gradients, seeds_of(2, 5)).numpy())


def test_the_sensitivity_is_attained_so_it_cannot_be_smaller():
    gradients = np.stack([np.ones((3, 24), np.float32), -np.ones((3, 24), np.float32)])
    votes = make().compress(gradients, seeds_of(2)).numpy()
    assert np.linalg.norm(votes[0] - votes[1]) == pytest.approx(make().l2_sensitivity(3), rel=1e-6)


def test_threshold_counts_votes_at_the_bar_and_ignores_weaker_ones():
    direction = make(num_teachers=10, vote_threshold=0.7).postprocess(np.array([[7.0, 6.99, 0.0, -6.99, -7.0]]))
    np.testing.assert_array_equal(direction, [[1, 0, 0, 0, -1]])


def test_preset_reproduces_the_published_noise_multiplier():
    mechanism = PRESETS["mnist", 1.0].mechanism()
    assert mechanism.dp_event(1) == dp_accounting.GaussianDpEvent(5000 / (2 * math.sqrt(200)))
    assert mechanism.dp_event(1).noise_multiplier == pytest.approx(176.7767, rel=1e-6)
    assert mechanism.dp_event(15).noise_multiplier == pytest.approx(176.7767 / math.sqrt(15), rel=1e-6)


def test_from_config_takes_every_setting():
    config = DataLensConfig(num_teachers=7, top_k=3, clip=None, noise_stddev=9.0, vote_threshold=0.25,
                            quantization="sign")
    assert config.mechanism() == make(
        num_teachers=7, top_k=3, clip=None, noise_stddev=9.0, vote_threshold=0.25, quantization="sign")


@pytest.mark.parametrize("changes", [
    {"num_teachers": 0}, {"quantization": "none"}, {"top_k": 0}, {"top_k": 2.5}, {"clip": 0.0}, {"clip": math.nan},
    {"noise_stddev": -1.0}, {"noise_stddev": math.nan}, {"noise_stddev": math.inf}, {"vote_threshold": 1.5}])
def test_settings_outside_their_domain_are_refused_by_name(changes):
    (name,) = changes
    with pytest.raises(InvalidArgumentError, match=f"Expected {name}="):
        make(**changes)


def test_more_votes_than_coordinates_are_refused():
    with pytest.raises(InvalidArgumentError, match="Expected top_k=25 <= 24"):
        make(top_k=25).compress(np.ones((1, 3, 24), np.float32), seeds_of(1))


def test_a_release_without_images_has_no_price():
    with pytest.raises(InvalidArgumentError, match="num_images"):
        make().dp_event(0)
