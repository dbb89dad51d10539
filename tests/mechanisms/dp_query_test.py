import math
import subprocess
import sys

import dp_accounting
import hypothesis
import numpy as np
import pytest
import tensorflow as tf
from hypothesis import strategies as st
from hypothesis.extra import numpy as npst

from datalens_tf.accounting import accountants
from datalens_tf.errors import InvalidArgumentError
from datalens_tf.mechanisms import InsecureSeededNoise, TopAgg
from tests.mechanisms.norm_topk_test import FLOATS, C, length

tfp = pytest.importorskip("tensorflow_privacy", exc_type=ImportError)
test_utils = pytest.importorskip("tensorflow_privacy.privacy.dp_query.test_utils", exc_type=ImportError)
dp_query = pytest.importorskip("datalens_tf.mechanisms.dp_query")
TopAggSumQuery, NormTopKSumQuery = dp_query.TopAggSumQuery, dp_query.NormTopKSumQuery

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


# NormTopK.


RECORDS = st.tuples(npst.arrays(np.float32, (2, 3), elements=FLOATS), npst.arrays(np.float32, (4,), elements=FLOATS))


@hypothesis.settings(max_examples=60, deadline=None)
@hypothesis.given(RECORDS, st.sampled_from([0.3, 0.8, 1.0]))
def test_a_preprocessed_record_is_short_over_all_tensors(record, k):
    query = NormTopKSumQuery(C, 1.0, k)
    params = query.derive_sample_params(query.initial_global_state())
    parts = query.preprocess_record(params, list(map(tf.constant, record)))
    assert [part.shape for part in parts] == [(2, 3), (4,)]
    found = length(np.concatenate([part.numpy().ravel() for part in parts]))
    clip_norm = float(np.float32(C))
    assert found <= (clip_norm * (1 + 1e-6) if k == 1 else math.sqrt(k) * clip_norm)


def records(count, scale=1.0):
    random = np.random.default_rng(3)
    return [[tf.constant(random.normal(0, scale, (5, 4)).astype(np.float32)),
             tf.constant(random.normal(0, scale, 7).astype(np.float32))] for _ in range(count)]


def test_with_all_kept_the_query_is_the_librarys_to_the_bit_with_its_noise():
    for scale in (0.01, 1.0, 100.0):
        results = []
        for query in (NormTopKSumQuery(C, 1.5, 1.0), tfp.GaussianSumQuery(C, 1.5 * C)):
            tf.random.set_seed(4)
            results.append(test_utils.run_query(query, records(9, scale))[0])
        for mine, theirs in zip(*results):
            np.testing.assert_array_equal(mine, theirs)


def test_the_query_takes_the_largest_of_all_tensors_together():
    query = NormTopKSumQuery(10.0, 0.0, 0.9)
    record = [tf.constant([[3.0, 1.0]]), tf.constant([-4.0, 2.0])]  # Squares 9, 1, 16, 4; 27 at most.
    result, _ = test_utils.run_query(query, [record] * 2)
    np.testing.assert_allclose(result[0], [[6, 0]])
    np.testing.assert_allclose(result[1], [-8, 0])


def test_the_querys_noise_and_event():
    query = NormTopKSumQuery(2.0, 1.5, 0.25)
    state = query.initial_global_state()
    result, _, event = query.get_noised_result(tf.zeros(20_000), state)
    assert event == dp_accounting.GaussianDpEvent(1.5)
    np.testing.assert_allclose(np.std(result), 0.5 * 2.0 * 1.5, rtol=6 / math.sqrt(2 * 20_000))
    quiet = NormTopKSumQuery(2.0, 0.0, 0.25)
    assert quiet.get_noised_result(tf.zeros(3), quiet.initial_global_state())[2] == dp_accounting.NonPrivateDpEvent()


def fitted(optimizer):
    random = np.random.default_rng(5)
    x, y = random.standard_normal((24, 6)).astype(np.float32), random.integers(0, 3, 24)
    tf.keras.utils.set_random_seed(6)
    model = tf.keras.Sequential([tf.keras.layers.Dense(5, activation="relu"), tf.keras.layers.Dense(3)])
    model.compile(optimizer, tf.keras.losses.SparseCategoricalCrossentropy(
        from_logits=True, reduction=tf.keras.losses.Reduction.NONE))
    model.fit(x, y, batch_size=8, epochs=2, verbose=0, shuffle=False)
    return model.get_weights()


@pytest.mark.slow
def test_keras_optimizers_of_the_library_train_with_it():
    generic, theirs = tfp.GenericDPSGDOptimizer, tfp.DPKerasSGDOptimizer
    plain = fitted(theirs(l2_norm_clip=0.5, noise_multiplier=0.0, num_microbatches=8, learning_rate=0.3))
    whole, part = (fitted(generic(NormTopKSumQuery(0.5, 0.0, k), num_microbatches=8, learning_rate=0.3))
                   for k in (1.0, 0.7))
    for mine, other in zip(whole, plain):
        np.testing.assert_array_equal(mine, other)
    assert any(np.any(mine != compressed) for mine, compressed in zip(whole, part))
    assert np.isfinite(part[0]).all()


def test_without_tensorflow_privacy_one_line_says_how_to_get_it():
    done = subprocess.run([sys.executable, "-c", "import sys\nsys.modules['tensorflow_privacy'] = None\n"
                           "import datalens_tf.mechanisms.dp_query"], capture_output=True, text=True, check=False)
    assert done.returncode == 1 and done.stderr.splitlines()[-1].endswith(
        "pip install 'datalens_tf[tf-privacy]', with Python 3.11, brings it.")
