import numpy as np
import pytest
import tensorflow as tf
from tensorflow_privacy.privacy.dp_query import test_utils

from datalens_tf.accounting import accountants
from datalens_tf.errors import InvalidArgumentError
from datalens_tf.mechanisms import InsecureSeededNoise, TopAgg
from datalens_tf.mechanisms.dp_query import TopAggSumQuery

GRADIENT = np.zeros((3, 24), np.float32)
GRADIENT[:, [1, 4, 9, 16, 20]] = [1, -1, 1, -1, 1]


def make(noise_stddev=4.0, noise=None, vote_threshold=0.0):
    mechanism = TopAgg(
        num_teachers=8, top_k=5, clip=None, noise_stddev=noise_stddev, vote_threshold=vote_threshold)
    return mechanism, TopAggSumQuery(mechanism, noise)


def test_the_librarys_own_driver_follows_unanimous_teachers():
    _, query = make(noise_stddev=0.0, vote_threshold=1.0)
    direction, state = test_utils.run_query(query, [tf.constant(GRADIENT)] * 8)
    np.testing.assert_array_equal(direction, GRADIENT)
    assert int(state.num_releases) == 1


def test_the_event_is_the_mechanisms_and_prices_like_it():
    mechanism, query = make()
    state = query.initial_global_state()
    _, _, event = query.get_noised_result(query.initial_sample_state(GRADIENT), state)
    assert event == mechanism.dp_event(3)
    assert accountants.epsilon_of([event], 1e-5, "pld") == accountants.epsilon(mechanism.dp_event(3), 1, 1e-5, "pld")


def test_the_batch_method_equals_record_by_record():
    _, query = make()
    records = np.stack([GRADIENT] * 4 + [-GRADIENT] * 2 + [np.full_like(GRADIENT, np.nan)] * 2)
    params = query.derive_sample_params(query.initial_global_state())
    start = query.initial_sample_state(GRADIENT)
    one_by_one = start
    for record in records:
        one_by_one = query.accumulate_record(params, one_by_one, record)
    # All selected magnitudes are equal, so the votes are certain and do not depend on the quantisation seeds.
    np.testing.assert_array_equal(query.accumulate_records(params, start, records), one_by_one)
    np.testing.assert_array_equal(one_by_one, 2 * GRADIENT)


def test_each_release_has_fresh_noise_also_in_a_graph():
    _, query = make()
    votes = query.initial_sample_state(GRADIENT)

    @tf.function
    def release(state):
        direction, state, _ = query.get_noised_result(votes, state)
        return direction, state

    state = query.initial_global_state()
    first, state = release(state)
    second, state = release(state)
    assert first.shape == (3, 24) and int(state.num_releases) == 2
    assert np.any(first != second)


def test_a_test_source_sees_the_number_of_the_release():
    mechanism, query = make(noise=InsecureSeededNoise(5))
    votes, state = query.initial_sample_state(GRADIENT), query.initial_global_state()
    for index in range(2):
        direction, state, _ = query.get_noised_result(votes, state)
        expected = mechanism.postprocess(mechanism.privatize(votes.numpy(), InsecureSeededNoise(5), index))
        np.testing.assert_array_equal(direction, expected)


def test_an_unknown_number_of_images_has_no_price():
    _, query = make()

    @tf.function(input_signature=[tf.TensorSpec([None, 24], tf.float32)], autograph=False)
    def release(votes):
        return query.get_noised_result(votes, query.initial_global_state())[0]

    with pytest.raises(InvalidArgumentError, match="sample_state.shape"):
        release(GRADIENT)


def test_records_of_another_rank_are_refused():
    _, query = make()
    with pytest.raises(InvalidArgumentError, match="record.shape"):
        query.preprocess_record((), GRADIENT[0])
