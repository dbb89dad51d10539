"""Per-record gradients: each record's own, by whatever way they are computed."""

import numpy as np
import pytest
import tensorflow as tf

from datalens_tf.classification import networks
from datalens_tf.errors import InvalidArgumentError
from datalens_tf.mechanisms.noise import SecretStream

layers = tf.keras.layers


def data(count=6, shape=(12, 12, 2)):
    random = np.random.default_rng(0)
    return random.random((count, *shape), np.float32), np.arange(count) % 3


def drawn(gradients, count=6, seed=0):
    """What Dropout layers keep, from a known stream."""
    return gradients.masks(np.random.default_rng(seed), count)


def gradients_of(model, x, y):
    gradients = networks.PerExampleGradients(model, x.shape)
    return gradients(x, y, *drawn(gradients, len(x)))


def chain(*more, last=None):
    return tf.keras.Sequential([
        layers.Input((12, 12, 2)),
        layers.Conv2D(4, 3, 2, "same", activation="relu"), layers.MaxPooling2D(2, 1), layers.Conv2D(3, (2, 3)), *more,
        layers.Flatten(), layers.Dense(5, activation="tanh", use_bias=False), layers.Dense(3, activation=last)])


def branched():
    """No chain, with weights beyond Dense and Conv2D."""
    inputs = layers.Input((12, 12, 2))
    x = layers.Conv2D(4, 3, activation="relu")(inputs)
    x = layers.Add()([layers.LayerNormalization()(layers.DepthwiseConv2D(3, padding="same")(x)), x])
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
    gradients = networks.PerExampleGradients(model, x.shape)
    found = gradients(x, y, *drawn(gradients))
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
    np.testing.assert_allclose(gradients_of(model, x, y), one_at_a_time(model, x, y), atol=2e-5)


def large():
    return networks.new_network("large", (12, 12, 2), 3, 0)


@pytest.mark.parametrize("make", [chain, branched, large])
def test_a_record_does_not_see_the_others(make):
    x, y = data()
    gradients = networks.PerExampleGradients(make(), x.shape)
    before = gradients(x, y, *drawn(gradients))
    x[3] = np.random.default_rng(1).random(x[3].shape)
    after = gradients(x, y, *drawn(gradients))
    changed = np.any(before != after, axis=1)
    assert changed[3] and changed.sum() == 1


@pytest.mark.parametrize("make, shape", [
    (chain, (12, 12, 2)), (branched, (12, 12, 2)), (large, (12, 12, 2)),
    (lambda: networks.new_network("small", (32, 32, 3), 3, 0), (32, 32, 3))])
def test_where_in_a_chunk_a_record_is_has_no_part_in_its_gradient(make, shape):
    """To the bit: products of matrices of some sizes round a batch's last rows differently."""
    (x, y), places = data(64, shape), np.random.default_rng(0).permutation(64)
    gradients = networks.PerExampleGradients(make(), x.shape)
    np.testing.assert_array_equal(gradients(x[places], y[places], *(kept[places] for kept in drawn(gradients, 64))),
                                  gradients(x, y, *drawn(gradients, 64))[places])


def test_a_way_that_rounds_by_a_records_place_is_not_taken(monkeypatch):
    """Whatever this processor does: here every row is rounded differently."""
    by_hand = networks.PerExampleGradients._by_hand

    def by_place(self, inputs, labels, masks):
        found = by_hand(self, inputs, labels, masks)
        return found * (1 + 1e-6 * tf.cast(tf.range(tf.shape(found)[0]), tf.float32))[:, None]

    monkeypatch.setattr(networks.PerExampleGradients, "_by_hand", by_place)
    (x, y), places = data(8, (12, 12, 2)), np.random.default_rng(0).permutation(8)
    gradients = networks.PerExampleGradients(chain(), x.shape)
    np.testing.assert_array_equal(gradients(x[places], y[places], *(kept[places] for kept in drawn(gradients, 8))),
                                  gradients(x, y, *drawn(gradients, 8))[places])


class Mixing(layers.Layer):
    """What a hole in the table would let pass; the mean of a batch, and a state."""

    def build(self, input_shape):
        self.seen = self.add_weight(shape=(), trainable=False, initializer="zeros", name="seen")

    def call(self, x, training=None):
        self.seen.assign_add(tf.reduce_mean(x))
        return x - tf.reduce_mean(x, 0)


def test_one_record_is_altered_and_any_change_of_another_is_noticed(monkeypatch):
    """The probe of batches, though no table and no computation of single records stands before it."""
    monkeypatch.setattr(networks, "_is_linear", lambda layer: type(layer) is layers.Dense)
    monkeypatch.setattr(Mixing, "call", lambda self, x, training=None: x - tf.reduce_mean(x, 0))
    frozen = Mixing(trainable=False)
    model = tf.keras.Sequential([layers.Input((4,)), frozen, layers.Dense(3)])
    with pytest.raises(InvalidArgumentError, match="altering one record changed what it computes of others"):
        networks.PerExampleGradients(model, (5, 4))


def test_a_state_that_passes_from_record_to_record_is_noticed():
    model = tf.keras.Sequential([layers.Input((4,)), layers.Dense(3)])
    counter = Mixing(trainable=False)
    stateful = tf.keras.Sequential([layers.Input((4,)), counter, layers.Lambda(lambda x: x + counter.seen)])
    with pytest.raises(InvalidArgumentError, match="features to compute the same"):
        networks.extract(stateful, np.ones((3, 4), np.float32))
    unchanged = networks.Unchanged(model, stateful)
    unchanged.check()
    stateful(np.ones((1, 4)))
    with pytest.raises(InvalidArgumentError, match="'.*seen:0' changed: .* Nothing was written"):
        unchanged.check()


def test_features_of_an_image_do_not_depend_on_where_it_is_and_how_many_there_are():
    """To the bit: convolutions of a batch round its last images differently."""
    features = tf.keras.Sequential([
        layers.Input((32, 32, 3)), layers.Conv2D(32, 3, activation="relu"), layers.Conv2D(64, 3, 2),
        layers.GlobalAveragePooling2D()])
    images = data(129, (32, 32, 3))[0]
    found = networks.extract(features, images)
    assert found.shape == (129, 64) and found.dtype == np.float32
    np.testing.assert_allclose(found, features(images), atol=1e-6)
    np.testing.assert_array_equal(networks.extract(features, images[5:]), found[5:])
    np.testing.assert_array_equal(networks.extract(features, images[::-1])[::-1], found)
    pixels = (images * 255).astype(np.uint8)
    np.testing.assert_array_equal(networks.extract(features, pixels[:3]),
                                  networks.extract(features, pixels[:3] / np.float32(255)))


def test_sizes_of_images_that_a_model_leaves_open_are_those_of_the_records():
    model = tf.keras.Sequential([
        layers.Input((None, None, 2)), layers.Conv2D(3, 3), layers.GlobalMaxPooling2D(), layers.Dense(3)])
    x, y = data()
    networks.check_classifier(model, (12, 12, 2), 3)
    np.testing.assert_allclose(gradients_of(model, x, y), one_at_a_time(model, x, y), atol=2e-5)


def test_layers_that_are_used_twice_have_the_gradients_of_both_uses():
    shared = layers.Dense(4, activation="tanh")
    model = tf.keras.Sequential([layers.Input((4,)), shared, tf.keras.Sequential([shared]), layers.Dense(3)])
    x, y = data(shape=(4,))
    np.testing.assert_allclose(gradients_of(model, x, y), one_at_a_time(model, x, y), atol=1e-6)


def test_only_what_is_trained_has_gradients():
    model, (x, y) = chain(), data()
    model.layers[0].trainable = False
    gradients = networks.PerExampleGradients(model, x.shape)
    assert gradients.num_parameters == sum(w.shape.num_elements() for w in model.weights) - (9 * 2 * 4 + 4)
    np.testing.assert_allclose(gradients(x, y, *drawn(gradients)), one_at_a_time(model, x, y), atol=2e-5)


@pytest.mark.parametrize("more", [(), (layers.PReLU(),)])
def test_dropout_is_each_records_own_and_decided_by_the_stream(more):
    """For a batch at once, and one by one, which layers with other weights ask for."""
    model = tf.keras.Sequential([layers.Input((4,)), layers.Dropout(0.25), *more, layers.Dense(3)])
    networks.check_classifier(model, (4,), 3)
    gradients, x = networks.PerExampleGradients(model, (4000, 4)), np.ones((4000, 4), np.float32)
    y, own = np.zeros(4000, int), drawn(gradients, 4000)
    assert len(own) == 1 and own[0].shape == (4000, 4)
    found = gradients(x, y, *own)
    np.testing.assert_array_equal(found, gradients(x, y, *own))
    np.testing.assert_array_equal(found[::-1], gradients(x, y, own[0][::-1]))
    kernel = found[:, -15:-3].reshape(4000, 4, 3)
    np.testing.assert_array_equal(kernel.any(2), own[0])  # The kernel's rows of inputs that are not 0.
    assert not np.array_equal(own[0], drawn(gradients, 4000, seed=1)[0])
    kept = gradients.masks(SecretStream(), 4000)[0]
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
    (lambda: chain(layers.BatchNormalization()), "atch normalisation"),
    (lambda: chain(layers.SpatialDropout2D(0.1)), "SpatialDropout2D"),
    (lambda: tf.keras.Sequential([layers.Input((12, 12, 2)), chain(), layers.Dense(4)]), "model.output_shape"),
    (lambda: tf.keras.Sequential([layers.Input((9,)), layers.Dense(3)]), "model.input_shape"),
    (lambda: tf.keras.Sequential([layers.Input((12, 12, 2)), layers.Conv2D(3, 3, trainable=False),
                                  layers.GlobalMaxPooling2D()]), "trainable_weights")])
def test_models_that_cannot_be_trained_record_by_record_are_refused(model, message):
    with pytest.raises(InvalidArgumentError, match=message):
        networks.check_classifier(model(), (12, 12, 2), 3)


def test_frozen_batch_normalisation_is_a_layer_like_others():
    frozen = layers.BatchNormalization(trainable=False)
    model, (x, y) = chain(frozen), data()
    networks.check_classifier(model, (12, 12, 2), 3)
    np.testing.assert_allclose(gradients_of(model, x, y), one_at_a_time(model, x, y), atol=2e-5)
    np.testing.assert_array_equal(frozen.moving_mean, np.zeros(3))
