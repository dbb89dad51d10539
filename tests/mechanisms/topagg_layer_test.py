import json

import numpy as np
import pytest
import tensorflow as tf
from scipy import stats

from datalens_tf.errors import InvalidArgumentError
from datalens_tf.mechanisms.topagg_layer import TopAggLayer

GRADIENTS = np.random.default_rng(0).normal(size=(8, 3, 24)).astype(np.float32) * 1e-5


def make(**changes):
    return TopAggLayer(**{"top_k": 5, "noise_stddev": 4.0, "vote_threshold": 0.2, "clip": 1e-5, **changes})


def test_output_has_one_direction_per_image():
    layer = make()
    direction = layer(GRADIENTS)
    assert direction.shape == layer.compute_output_shape(GRADIENTS.shape) == (3, 24)
    assert direction.dtype == tf.float32 and set(np.unique(direction)) <= {-1.0, 0.0, 1.0}


def test_without_noise_unanimous_teachers_are_followed():
    gradient = np.zeros((3, 24), np.float32)
    gradient[:, [1, 4, 9, 16, 20]] = [1, -1, 1, -1, 1]
    np.testing.assert_array_equal(make(noise_stddev=0.0, vote_threshold=1.0)(np.stack([gradient] * 8)), gradient)


def test_unusable_gradients_do_not_vote():
    gradients = np.full((8, 3, 24), np.nan, np.float32)
    np.testing.assert_array_equal(make(noise_stddev=0.0, vote_threshold=0.1)(gradients), np.zeros((3, 24)))


@pytest.mark.parametrize("stddev, accepted", [(4.0, True), (4.0 * 2 / 3, False), (6.0, False)])
def test_noise_has_the_promised_scale(stddev, accepted):
    # Zero gradients do not vote, so a coordinate counts exactly when its noise passes the bar.
    layer = make(vote_threshold=0.5, seed=1)
    direction = layer(np.zeros((8, 40, 1000), np.float32)).numpy()
    expected = stats.norm.sf(4.0 / stddev)
    assert (stats.binomtest(int(np.sum(direction == 1)), direction.size, expected).pvalue > 1e-7) == accepted


@pytest.mark.parametrize("seed", [None, 3])
def test_two_calls_never_share_their_noise_in_eager_and_graph_mode(seed):
    layer = make(vote_threshold=0.0, seed=seed)
    for call in (layer, tf.function(layer)):
        assert np.any(call(GRADIENTS) != call(GRADIENTS))


def test_two_layers_differ_even_when_every_generator_is_seeded():
    directions = []
    for _ in range(2):
        tf.keras.utils.set_random_seed(1)
        directions.append(make(vote_threshold=0.0)(GRADIENTS))
    assert np.any(directions[0] != directions[1])


def test_a_given_seed_fixes_the_sequence_of_calls():
    first, second = make(seed=3, vote_threshold=0.0), make(seed=3, vote_threshold=0.0)
    for _ in range(2):
        np.testing.assert_array_equal(first(GRADIENTS), second(GRADIENTS))
    assert np.any(make(seed=4, vote_threshold=0.0)(GRADIENTS) != make(seed=3, vote_threshold=0.0)(GRADIENTS))


@pytest.mark.parametrize("layer", [make(), make(clip=None, seed=3, name="votes")])
def test_config_round_trip(layer):
    copy = TopAggLayer.from_config(json.loads(json.dumps(layer.get_config())))
    assert copy.get_config() == layer.get_config()
    for name in ("top_k", "noise_stddev", "vote_threshold", "clip", "seed"):
        assert getattr(copy, name) == getattr(layer, name)


def test_an_entropy_seed_is_stored_nowhere():
    layer = make()
    layer(GRADIENTS)
    assert layer.get_config()["seed"] is None and layer.weights == []


def test_a_saved_model_restores_the_layer(tmp_path):
    inputs = tf.keras.Input(batch_shape=(8, 3, 24))
    model = tf.keras.Model(inputs, make(seed=3)(inputs))
    model.save(tmp_path / "model.keras")
    restored = tf.keras.models.load_model(tmp_path / "model.keras")
    np.testing.assert_array_equal(restored(GRADIENTS), model(GRADIENTS))


def test_mixed_precision_does_not_swallow_small_gradients():
    tiny = GRADIENTS * 1e-6
    kwargs = {"noise_stddev": 0.0, "vote_threshold": 0.1, "clip": None, "seed": 3}
    np.testing.assert_array_equal(make(dtype="mixed_float16", **kwargs)(tiny), make(**kwargs)(tiny))


@pytest.mark.parametrize("changes", [{"top_k": 0}, {"noise_stddev": -1.0}, {"vote_threshold": 2.0}, {"seed": -1}])
def test_settings_outside_their_domain_are_refused_by_name(changes):
    with pytest.raises(InvalidArgumentError, match=f"Expected {next(iter(changes))}="):
        make(**changes)


def test_inputs_that_are_no_gradients_are_refused():
    with pytest.raises(InvalidArgumentError, match="Expected top_k=5 <= 4"):
        make()(np.zeros((8, 3, 4), np.float32))
    with pytest.raises(InvalidArgumentError, match="input_shape"):
        make()(np.zeros((8, 24), np.float32))
