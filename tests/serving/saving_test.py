"""SavedModels: the same bytes whatever the process did before, which may have been done with real records."""

import pathlib

import numpy as np
import pytest
import tensorflow as tf
from tensorflow.core.protobuf import saved_model_pb2

from datalens_tf.classification.classifier import _save_for_serving
from datalens_tf.errors import CheckpointError
from datalens_tf.serving import saving
from datalens_tf.serving.export import copy_export
from datalens_tf.serving.signatures import servable

CHECKPOINTS = pathlib.Path(__file__).parents[2] / "checkpoints"


class Grey(tf.Module):
    """A generator without an architecture to speak of, which has images to look at, too."""

    def __init__(self):
        super().__init__()
        self.weights = tf.Variable(np.linspace(-1, 1, 5 * 64).reshape(5, 64).astype(np.float32))

    def __call__(self, inputs, training=False):
        latents, labels = inputs
        return tf.sigmoid(tf.reshape(latents @ self.weights + tf.cast(labels, tf.float32)[:, None], [-1, 8, 8, 1]))

    to_look_at = __call__


def generator(folder):
    module, functions = servable(Grey(), 5, "normal", 3, {"model.json": "{}"})
    saving.save(module, folder, functions)


def classifier(folder):
    tf.keras.backend.clear_session()  # Names of layers count those that there were.
    model = tf.keras.Sequential([tf.keras.layers.Input([8, 8, 1]), tf.keras.layers.Conv2D(2, 3),
                                 tf.keras.layers.Flatten(), tf.keras.layers.Dense(3, activation="softmax")])
    model.set_weights([np.ones_like(array) for array in model.get_weights()])
    _save_for_serving(model, folder, (8, 8, 1))


@pytest.mark.parametrize("export", [generator, classifier])
def test_a_file_does_not_tell_how_many_tensors_there_were_before(export, tmp_path):
    export(tmp_path / "before")
    for _ in range(12_345):
        tf.constant(1.0)
    export(tmp_path / "after")
    before, after = ({str(path.relative_to(tmp_path / name)): path.read_bytes()
                      for path in (tmp_path / name).rglob("*") if path.is_file()} for name in ("before", "after"))
    assert before.keys() == after.keys() > {"saved_model.pb"}
    assert [name for name in before if before[name] != after[name]] == []


def exported_again(folder):
    """A generator that an earlier version wrote."""
    copy_export(CHECKPOINTS / "mnist_eps1" / "generator" / "1", folder.parent, version=int(folder.name))


@pytest.mark.parametrize("export", [generator, exported_again])
def test_functions_are_numbered_from_0(export, tmp_path):
    export(tmp_path / "1")
    saved = saved_model_pb2.SavedModel.FromString((tmp_path / "1" / "saved_model.pb").read_bytes())
    names = [function.signature.name for function in saved.meta_graphs[0].graph_def.library.function]
    assert not (tmp_path / "1" / "fingerprint.pb").exists()
    assert sorted(int(name.rpartition("_")[2]) for name in names) == list(range(len(names))) and names == sorted(names)


def test_what_is_renumbered_computes_the_same(tmp_path):
    module, functions = servable(Grey(), 5, "normal", 3, {"model.json": "{}"})
    tf.saved_model.save(module, str(tmp_path / "as_it_was"), signatures=functions)
    saving.save(module, tmp_path / "renumbered", functions)
    labels, seeds = tf.constant([0, 2, 1], tf.int64), tf.constant([5, 6, 7], tf.int64)
    one, other = (tf.saved_model.load(str(tmp_path / name)).signatures for name in ("as_it_was", "renumbered"))
    assert set(one) == set(other)
    for name in ("sample", "png", "looking"):
        for key, value in one[name](labels=labels, seed=seeds).items():
            np.testing.assert_array_equal(other[name](labels=labels, seed=seeds)[key], value)
    with pytest.raises(tf.errors.InvalidArgumentError, match="labels must be in"):
        other["sample"](labels=labels + 3, seed=seeds)


def test_a_damaged_file_is_one_clear_line(tmp_path):
    (tmp_path / "saved_model.pb").write_bytes(b"no model")
    with pytest.raises(CheckpointError, match=r"saved_model\.pb is damaged"):
        saving.clean(tmp_path)
