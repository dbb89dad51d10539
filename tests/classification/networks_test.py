"""Per-record gradients: each record's own, by whatever way they are computed."""

import numpy as np
import pytest
import tensorflow as tf

from datalens_tf.classification import networks
from datalens_tf.errors import InvalidArgumentError

layers = tf.keras.layers
SEED = np.array([1, 2], np.int32)


def data(count=6, shape=(12, 12, 2)):
    random = np.random.default_rng(0)
    return random.random((count, *shape), np.float32), np.arange(count) % 3


def chain(*more, last=None):
    return tf.keras.Sequential([
        layers.Input((12, 12, 2)),
        layers.Conv2D(4, 3, 2, "same", activation="relu"), layers.MaxPooling2D(2, 1), layers.Conv2D(3, (2, 3)), *more,
        layers.Flatten(), layers.Dense(5, activation="tanh", use_bias=False), layers.Dense(3, activation=last)])


def branched():
    """No chain, with weights beyond Dense and Conv2D."""
    inputs = layers.Input((12, 12, 2))
    x = layers.Conv2D(4, 3, activation="relu")(inputs)
    x = layers.LayerNormalization()(layers.DepthwiseConv2D(3, padding="same")(x)) + x
    return tf.keras.Model(inputs, layers.Dense(3)(layers.Flatten()(x)))


def one_at_a_time(model, x, y):
    """The slow way, with Keras' own loss."""
    rows = []
    from_logits = not networks.puts_out_probabilities(model)
    for image, label in zip(x, y):
        with tf.GradientTape() as tape:
            loss = tf.keras.losses.SparseCategoricalCrossentropy(from_logits=from_logits)(
                [label], model(image[None], training=False))
        rows.append(np.concatenate([np.ravel(tf.convert_to_tensor(part))
                                    for part in tape.gradient(loss, model.trainable_weights)]))
    return np.array(rows)


@pytest.mark.parametrize("make", [
    chain, branched, lambda: chain(last="softmax"),
    lambda: tf.keras.Sequential([layers.Input((12, 12, 2)), chain(), layers.Softmax()]),
    lambda: networks.linear_classifier((12, 12, 2), 3, 0),
    lambda: tf.keras.Sequential([layers.Input((12, 12, 2)), layers.Dense(4), layers.Flatten(), layers.Dense(3)])])
def test_they_equal_those_of_each_record_alone(make):
    model, (x, y) = make(), data()
    networks.check_classifier(model, (12, 12, 2), 3)
    gradients = networks.PerExampleGradients(model)
    found = gradients(x, y, SEED)
    assert found.shape == (6, gradients.num_parameters) and found.dtype == np.float32
    np.testing.assert_allclose(found, one_at_a_time(model, x, y), atol=2e-5)
    parts = gradients.unflatten(tf.constant(found[0]))
    assert [part.shape for part in parts] == [weight.shape for weight in model.trainable_weights]


def test_the_small_network_standardises_pixels_by_public_constants():
    """Black and white become -1/3 and 3, whatever the data; gradients are of weights behind that."""
    model = networks.small_classifier((16, 16, 1), 3, 0)
    seen = tf.keras.Model(model.inputs, model.layers[0].output)
    np.testing.assert_allclose(np.ravel(seen(np.array([0.0, 1.0]).repeat(256).reshape(2, 16, 16, 1)))[[0, -1]],
                               [-1 / 3, 3], rtol=1e-6)
    x, y = data(shape=(16, 16, 1))
    np.testing.assert_allclose(networks.PerExampleGradients(model)(x, y, SEED), one_at_a_time(model, x, y), atol=2e-5)


@pytest.mark.parametrize("make", [chain, branched, lambda: networks.new_network("large", (12, 12, 2), 3, 0)])
def test_a_record_does_not_see_the_others(make):
    x, y = data()
    gradients = networks.PerExampleGradients(make())
    before = gradients(x, y, SEED)
    x[3] = np.random.default_rng(1).random(x[3].shape)
    after = gradients(x, y, SEED)
    changed = np.any(before != after, axis=1)
    assert changed[3] and changed.sum() == 1


def test_only_what_is_trained_has_gradients():
    model, (x, y) = chain(), data()
    model.layers[0].trainable = False
    gradients = networks.PerExampleGradients(model)
    assert gradients.num_parameters == sum(w.shape.num_elements() for w in model.weights) - (9 * 2 * 4 + 4)
    np.testing.assert_allclose(gradients(x, y, SEED), one_at_a_time(model, x, y), atol=2e-5)


def test_dropout_is_each_records_own_and_decided_by_the_seed():
    model = tf.keras.Sequential([layers.Input((4,)), layers.Dropout(0.25), layers.Dense(3)])
    gradients, x = networks.PerExampleGradients(model), np.ones((4000, 4), np.float32)
    y = np.zeros(4000, int)
    found = gradients(x, y, SEED)
    np.testing.assert_array_equal(found, gradients(x, y, SEED))
    assert np.any(found != gradients(x, y, SEED + 1))
    kept = found.reshape(4000, -1)[:, :12].reshape(4000, 4, 3).any(2)  # The kernel's rows of inputs that are not 0.
    assert abs(kept.mean() - 0.75) < 6 * np.sqrt(0.25 * 0.75 / kept.size)
    assert np.all(np.abs(np.corrcoef(kept.T) - np.eye(4)) < 6 / np.sqrt(4000))  # Independent between inputs
    halves = kept[:2000] == kept[2000:]  # and between records.
    assert abs(halves.mean() - (0.75**2 + 0.25**2)) < 6 * 0.5 / np.sqrt(halves.size)


def test_the_papers_network():
    model = networks.new_network("small", (28, 28, 1), 10, 0)
    assert model.count_params() == 26_010  # That of Opacus' example.
    again, other = networks.new_network("small", (28, 28, 1), 10, 0), networks.new_network("small", (28, 28, 1), 10, 1)
    assert networks.digest(model) != networks.digest(other)
    for mine, same in zip(model.get_weights(), again.get_weights()):
        np.testing.assert_array_equal(mine, same)


@pytest.mark.parametrize("model, message", [
    (lambda: chain(layers.BatchNormalization()), "batch normalisation"),
    (lambda: chain(layers.SpatialDropout2D(0.1)), "no random layer but Dropout .* SpatialDropout2D"),
    (lambda: tf.keras.Sequential([layers.Input((12, 12, 2)), chain(), layers.Dense(4)]), "model.output_shape"),
    (lambda: tf.keras.Sequential([layers.Input((9,)), layers.Dense(3)]), "model.input_shape"),
    (lambda: tf.keras.Sequential([layers.Input((12, 12, 2)), layers.Flatten(), layers.Lambda(lambda x: x[:, :3])]),
     "trainable_weights")])
def test_models_that_cannot_be_trained_record_by_record_are_refused(model, message):
    with pytest.raises(InvalidArgumentError, match=message):
        networks.check_classifier(model(), (12, 12, 2), 3)


def test_frozen_batch_normalisation_is_a_layer_like_others():
    frozen = layers.BatchNormalization(trainable=False)
    model, (x, y) = chain(frozen), data()
    networks.check_classifier(model, (12, 12, 2), 3)
    np.testing.assert_allclose(networks.PerExampleGradients(model)(x, y, SEED), one_at_a_time(model, x, y), atol=2e-5)
    np.testing.assert_array_equal(frozen.moving_mean, np.zeros(3))
