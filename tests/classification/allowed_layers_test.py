"""Which models may be trained: attacks by models that mix records, and models that keep them apart."""

import functools
import io
import json
import pathlib
import zipfile

import h5py
import numpy as np
import pytest
import tensorflow as tf

from datalens_tf.classification import allowed_layers, networks
from datalens_tf.errors import InvalidArgumentError

layers = tf.keras.layers
SHAPE = (8, 8, 1)


class Shy(layers.Dense):
    """A layer that Keras knows nothing of; it mixes records."""

    def call(self, inputs):
        return super().call(inputs - tf.reduce_mean(inputs, 0))


class OwnModel(tf.keras.Sequential):
    """A container that does more than its layers."""

    def call(self, inputs, training=None, mask=None):
        return super().call(inputs - tf.reduce_mean(inputs, 0), training, mask)


def chain(*more, kind=tf.keras.Sequential, start=()):
    return kind([layers.Input(SHAPE), *start, layers.Flatten(), layers.Dense(4), *more, layers.Dense(3)])


def graph(middle):
    inputs = layers.Input(SHAPE)
    return tf.keras.Model(inputs, layers.Dense(3)(middle(layers.Dense(4)(layers.Flatten()(inputs)))))


def patched():
    model = chain()
    model.layers[1].call = lambda x: x - tf.reduce_mean(x, 0)
    return model


def of_a_fixed_batch():
    inputs = layers.Input(SHAPE, batch_size=16)
    return tf.keras.Model(inputs, layers.Dense(3)(layers.Flatten()(inputs)))


def rebuilt():
    """Softmax over the records, by a model that is built for vectors and then, in this check's eyes, for images."""
    shared = tf.keras.Sequential([layers.Softmax(axis=-2)])
    inputs = layers.Input(SHAPE)
    vectors = shared(layers.Dense(4)(layers.Flatten()(inputs)))
    images = shared(layers.Reshape((8, 8))(inputs))
    return tf.keras.Model(inputs, layers.Dense(3)(layers.Concatenate()([vectors, layers.Flatten()(images)])))


def of_other_axes():
    """Softmax over the records of a model that would be given vectors, and was built for matrices."""
    matrices = tf.keras.Sequential([layers.Input((4, 1)), layers.Softmax(axis=-2), layers.Flatten()])
    return chain(matrices)


# What the models do, and words of the refusal.
ATTACKS = {
    "SyncBatchNormalization": (lambda: chain(layers.experimental.SyncBatchNormalization()), "group or layer normalis"),
    "BatchNormalization of version 1": (
        lambda: chain(tf.compat.v1.keras.layers.BatchNormalization()), "batch_normalization_v1"),
    "the same, frozen": (
        lambda: chain(tf.compat.v1.keras.layers.BatchNormalization(trainable=False)), "batch_normalization_v1"),
    "UnitNormalization(axis=0)": (lambda: chain(layers.UnitNormalization(axis=0)), "without the batch axis"),
    "UnitNormalization(axis=-2)": (lambda: chain(layers.UnitNormalization(axis=-2)), "without the batch axis"),
    "UnitNormalization(axis=[0, 1])": (lambda: chain(layers.UnitNormalization(axis=[0, 1])), "without the batch axis"),
    "Softmax(axis=0)": (lambda: chain(layers.Softmax(axis=0)), "without the batch axis"),
    "Softmax(axis=-2)": (lambda: chain(layers.Softmax(axis=-2)), "without the batch axis"),
    "Softmax of a model that is built again": (rebuilt, "other shapes elsewhere"),
    "Softmax of a model that sees other axes": (of_other_axes, "other shapes elsewhere"),
    "Lambda": (lambda: chain(layers.Lambda(lambda a: a - tf.reduce_mean(a, 0))), "Lambda"),
    "a custom layer": (lambda: chain(Shy(4)), "Shy"),
    "a custom model": (lambda: chain(kind=OwnModel), "custom model"),
    "a custom activation": (
        lambda: chain(layers.Dense(4, activation=lambda a: a - tf.reduce_mean(a, 0))), "custom activation"),
    "an Activation of its own": (lambda: chain(layers.Activation(functools.partial(tf.nn.softmax, axis=0))),
                                 "custom activation"),
    "a call that was replaced": (patched, "call of its own"),
    "an operator": (lambda: graph(lambda x: x - tf.reduce_mean(x, 0)), "TFOpLambda"),
    "a slice": (lambda: graph(lambda x: x[::-1]), "SlicingOpLambda"),
    "Concatenate(axis=0)": (lambda: graph(lambda x: layers.Concatenate(axis=0)([x, x])), "without the batch axis"),
    "Dot": (lambda: graph(lambda x: layers.Dot(1)([x, x])), "Dot"),
    "a constant for every place in the batch": (
        lambda: graph(lambda x: layers.Add()([x, tf.constant(np.ones((64, 4), np.float32))])), "constant"),
    "Rescaling by a number for every record": (
        lambda: graph(layers.Rescaling(np.ones((64, 1), np.float32).tolist())), "`scale` and `offset`"),
    "a batch norm. that a call switches to training": (
        lambda: graph(lambda x: layers.BatchNormalization(trainable=False)(x, training=True)), "training=True"),
    "the height of an image that is the batch": (
        lambda: chain(start=(layers.Reshape((8, 8)), layers.Resizing(4, 4))), "inputs of 4 axes"),
    "a batch of a fixed size": (of_a_fixed_batch, "first axis is not the batch"),
    "a random layer": (lambda: chain(layers.GaussianNoise(0.1)), "GaussianNoise"),
    "Dropout that a call switches on": (
        lambda: graph(lambda x: layers.Dropout(0.5)(x, training=True)), "training=True"),
    "Dropout in a graph": (lambda: graph(layers.Dropout(0.5)), "Sequential, since it has Dropout"),
    "a recurrent layer": (lambda: chain(start=(layers.Reshape((8, 8)), layers.SimpleRNN(3))), "SimpleRNN"),
    "a wrapper": (lambda: chain(layers.SpectralNormalization(layers.Dense(4))), "SpectralNormalization"),
    "attention": (lambda: graph(lambda x: layers.Attention()([x, x])), "Attention"),
    "an activity regularizer": (lambda: chain(layers.Dense(4, activity_regularizer="l2")), "activity_regularizer"),
}


@pytest.mark.parametrize("attack", ATTACKS)
def test_models_that_mix_records_are_refused(attack):
    make, words = ATTACKS[attack]
    model = make()
    with pytest.raises(InvalidArgumentError, match=words) as caught:
        networks.check_classifier(model, SHAPE, 3)
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize("attack", sorted(set(ATTACKS) - {"a random layer", "Dropout in a graph"}))
def test_feature_extractors_that_mix_records_are_refused(attack):
    make, words = ATTACKS[attack]
    model = make()
    with pytest.raises(InvalidArgumentError, match=words):
        networks.check_features(model, SHAPE)


def everything():
    """A graph of most layers that are allowed, in a model in a model."""
    inputs = layers.Input((12, 12, 2))
    x = layers.Rescaling([2.0, 3.0], offset=-1.0)(layers.Normalization(axis=-1, mean=[0.5, 0.5], variance=[1.0, 2.0])(
        layers.Resizing(10, 10)(layers.ZeroPadding2D()(inputs))))
    x = layers.PReLU(shared_axes=[1, 2])(layers.Conv2D(4, 3, activation="gelu")(x))
    x = layers.BatchNormalization(trainable=False)(layers.SeparableConv2D(4, 3, padding="same")(x))
    y = layers.UnitNormalization()(layers.GroupNormalization(2)(layers.DepthwiseConv2D(3, padding="same")(x)))
    x = layers.Concatenate()([layers.Add()([x, y]), layers.LayerNormalization(axis=[1, 2, 3])(x),
                              layers.Softmax(axis=-2)(x)])
    inner = layers.Input((8, 8, 12))
    inside = tf.keras.Model(inner, layers.Multiply()([layers.Conv2DTranspose(3, 2)(inner), layers.Conv2D(
        3, 2, padding="same", activation="sigmoid")(layers.ZeroPadding2D(((0, 1), (0, 1)))(inner))]))
    x = layers.MaxPooling2D()(layers.LeakyReLU()(inside(x)))
    x = layers.Permute((2, 1))(layers.Reshape((16, 3))(layers.Cropping2D(0)(x)))
    return tf.keras.Model(inputs, layers.Dense(3)(layers.GlobalAveragePooling1D()(layers.Conv1D(4, 2)(x))))


def test_models_that_keep_records_apart_are_trained():
    model = everything()
    networks.check_classifier(model, (12, 12, 2), 3)
    networks.check_features(model, (12, 12, 2))
    networks.PerExampleGradients(model, (3, 12, 12, 2))
    model.compile("adam", "sparse_categorical_crossentropy", ["accuracy"])
    model.fit(np.ones((4, 12, 12, 2)), np.ones(4), verbose=0)  # What training elsewhere leaves does no harm.
    networks.check_classifier(model, (12, 12, 2), 3)


def test_common_feature_extractors_are_allowed():
    model = tf.keras.applications.MobileNetV2((32, 32, 3), include_top=False, weights=None, pooling="avg")
    networks.check_features(model, (32, 32, 3))
    networks.check_features(chain(layers.BatchNormalization(), layers.Dropout(0.5), layers.GaussianNoise(0.1)), SHAPE)


def test_models_of_files_are_those_that_were_saved(tmp_path):
    inner = tf.keras.Sequential([layers.Input((3,)), layers.Dense(3, kernel_regularizer="l2")])
    inner.compile("adam", "mse", ["mae"])
    outer = everything()
    model = tf.keras.Model(outer.inputs, inner(outer.outputs))
    model.compile(tf.keras.optimizers.Adam(tf.keras.optimizers.schedules.ExponentialDecay(0.1, 10, 0.5)), "mse")
    model.save(tmp_path / "model.keras")
    loaded = networks.load_keras(str(tmp_path / "model.keras"), "model")
    networks.check_classifier(loaded, (12, 12, 2), 3)
    for mine, same in zip(model.get_weights(), loaded.get_weights()):
        np.testing.assert_array_equal(mine, same)


def altered(path, change):
    """A saved model whose settings somebody changed."""
    tf.keras.Sequential([layers.Input(SHAPE), layers.Flatten(), layers.Dense(3)]).save(path)
    with zipfile.ZipFile(path) as archive:
        parts = {name: archive.read(name) for name in archive.namelist()}
    change(parts)
    with zipfile.ZipFile(path, "w") as archive:
        for name, content in parts.items():
            archive.writestr(name, content)
    return str(path)


def with_object(spot, value):
    def change(parts):
        config = json.loads(parts["config.json"])
        if spot == "layer":
            config["config"]["layers"].insert(1, value)
        else:
            config["config"]["layers"][-1]["config"][spot] = value
        parts["config.json"] = json.dumps(config)

    return change


@pytest.mark.parametrize("spot, value", [
    ("layer", {"class_name": "Spy", "module": "spy", "config": {}, "registered_name": None}),
    ("layer", {"class_name": "Spy", "module": "spy", "config": {}, "registered_name": "Spy", "build_config": {}}),
    ("kernel_initializer", {"class_name": "Spy", "module": "spy", "config": {}, "registered_name": None}),
    ("kernel_regularizer", {"class_name": "function", "module": "spy", "config": "spy", "registered_name": "spy"}),
    ("activation", {"class_name": "function", "module": "spy", "config": "spy", "registered_name": "spy"})])
def test_nothing_in_a_file_is_run_before_it_is_allowed(tmp_path, monkeypatch, spot, value):
    """Keras imports the modules that a file names, in its safe mode, too."""
    (tmp_path / "spy.py").write_text(f"open({str(tmp_path / 'seen')!r}, 'w')\nclass Spy: pass\ndef spy(x): return x\n")
    monkeypatch.syspath_prepend(tmp_path)
    path = altered(tmp_path / "model.keras", with_object(spot, value))
    with pytest.raises(InvalidArgumentError, match="of spy"):
        networks.load_keras(path, "model")
    assert not (tmp_path / "seen").exists()


@pytest.mark.parametrize("value", [
    {"class_name": "Lambda", "module": "keras.initializers", "config": {}, "registered_name": None},
    {"class_name": "get_file", "module": "keras.utils", "config": {}, "registered_name": None},
    {"class_name": "Lambda", "config": {}}, {"class_name": ["Dense"], "module": "keras.layers", "config": {}},
    {"class_name": "__lambda__", "module": None, "config": {"value": ["eA==", None, None]}}])
def test_names_in_files_are_those_of_the_table(tmp_path, value):
    path = altered(tmp_path / "model.keras", with_object("layer", value))
    with pytest.raises(InvalidArgumentError, match="Keras that keep records apart"):
        networks.load_keras(path, "model")


def test_models_with_code_are_refused_in_every_format(tmp_path, monkeypatch):
    model = chain(layers.Lambda(lambda a: a - tf.reduce_mean(a, 0)))
    for name in ("model.keras", "model.h5", "folder"):
        model.save(tmp_path / name)
    (tmp_path / "other.keras").write_bytes((tmp_path / "model.h5").read_bytes())
    monkeypatch.setattr(tf.keras.models, "load_model", pytest.fail)
    for name in ("model.keras", "model.h5", "folder", "other.keras"):
        with pytest.raises(InvalidArgumentError, match="Keras"):
            networks.load_keras(str(tmp_path / name), "features")


def test_pickled_weights_are_not_read(tmp_path):
    """Which Keras would do, in its safe mode, too."""
    class Spy:
        def __reduce__(self):
            return open, (str(tmp_path / "seen"), "w")

    def pickled(parts):
        buffer = io.BytesIO()
        np.savez(buffer, **{name: np.array(Spy(), object) for name in ("layers/dense", "__root__")})
        del parts["model.weights.h5"]
        parts["model.weights.npz"] = buffer.getvalue()

    with pytest.raises(InvalidArgumentError, match="model.weights.h5 alone"):
        networks.load_keras(altered(tmp_path / "model.keras", pickled), "model")
    assert not (tmp_path / "seen").exists()


def with_weights(change):
    """Changes the file of weights inside a model's file."""
    def changed(parts):
        buffer = io.BytesIO(parts["model.weights.h5"])
        with h5py.File(buffer, "r+") as file:
            del file["layers/dense/vars/0"]
            change(file["layers/dense/vars"])
        parts["model.weights.h5"] = buffer.getvalue()

    return changed


def test_weights_are_read_from_the_file_itself_only(tmp_path):
    """A link would bring any HDF5 file, external storage any file, of this machine into what is released."""
    with h5py.File(tmp_path / "secret.h5", "w") as file:
        file["secret"] = np.ones((64, 3))
    (tmp_path / "secret").write_bytes(bytes(64 * 3 * 4))

    def linked(group):
        group["0"] = h5py.ExternalLink(tmp_path / "secret.h5", "secret")

    def external(group):
        group.create_dataset("0", (64, 3), np.float32, external=[(str(tmp_path / "secret"), 0, 64 * 3 * 4)])

    for change, words in ((linked, "a link"), (external, "another file")):
        with pytest.raises(InvalidArgumentError, match=words):
            networks.load_keras(altered(tmp_path / "model.keras", with_weights(change)), "model")


def test_models_that_would_fill_the_memory_are_refused_before_they_do(tmp_path):
    def huge(group):
        group.create_dataset("0", (2**20, 2**20), np.float32, chunks=(2**10, 2**10), compression="gzip")

    with pytest.raises(InvalidArgumentError, match="would unfold to 4398046511104 bytes"):
        networks.load_keras(altered(tmp_path / "model.keras", with_weights(huge)), "model")
    with zipfile.ZipFile(tmp_path / "model.keras") as archive:
        parts = {name: archive.read(name) for name in archive.namelist()}
    with zipfile.ZipFile(tmp_path / "model.keras", "w", zipfile.ZIP_DEFLATED) as archive:
        for name, content in parts.items():
            archive.writestr(name, content)
    with pytest.raises(InvalidArgumentError, match="compressed"):
        networks.load_keras(str(tmp_path / "model.keras"), "model")


def test_the_documented_table_is_that_of_the_code():
    text = (pathlib.Path(__file__).parents[2] / "docs/how-to/classify.md").read_text(encoding="utf-8")
    assert allowed_layers.as_markdown() in text
