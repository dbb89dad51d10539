"""Exported generators: alone in a fresh process they draw the right images, and carry nothing but the generator."""

import json
import os
import subprocess
import sys

import numpy as np
import pytest
import tensorflow as tf

from datalens_tf.errors import CheckpointError, DataLensError, InvalidArgumentError
from datalens_tf.serving import export
from datalens_tf.serving.export import export_generator, image_seeds, load_generator

SETTINGS = dict(latent_dim=6, latent_distribution="uniform", num_classes=3)


class TinyGenerator(tf.keras.Model):
    """A conditional generator of 8x4 images whose batch norm tells training from inference."""

    def __init__(self):
        super().__init__()
        self.dense = tf.keras.layers.Dense(32, kernel_initializer=tf.keras.initializers.GlorotNormal(seed=1))
        self.norm = tf.keras.layers.BatchNormalization()
        self([tf.zeros([1, 6]), tf.zeros([1], tf.int32)])

    def call(self, inputs, training=False):
        latents, labels = inputs
        hidden = self.norm(self.dense(tf.concat([latents, tf.one_hot(labels, 3)], 1)), training=training)
        return tf.reshape(tf.sigmoid(3 * hidden), [-1, 8, 4, 1])


class LatentsAsImages(tf.Module):
    """Shows the latents, moved to [0, 1], and has a variable so that there is something to store."""

    def __init__(self, scale):
        super().__init__()
        self.scale = tf.Variable(scale)

    def __call__(self, inputs, training=False):
        return tf.reshape(0.5 + inputs[0] * self.scale, [-1, 40, 50, 1])


@pytest.fixture(scope="module")
def generator():
    model = TinyGenerator()
    model.norm.moving_mean.assign(tf.random.stateless_normal([32], [1, 2]))
    # What training leaves on a model must not leave with it.
    model.compile(tf.keras.optimizers.Adam(), "mse")
    model.optimizer.build(model.trainable_variables)
    return model


@pytest.fixture(scope="module")
def exported(generator, tmp_path_factory):
    tf.random.set_seed(0)  # as a training run would; fresh latents must stay fresh
    return export_generator(generator, tmp_path_factory.mktemp("serving") / "model", **SETTINGS,
                            assets={"privacy.json": '{"epsilon": 1.0}', "picture.png": b"\x89PNG"})


ALONE = """
import sys
import numpy as np
import tensorflow as tf
model = tf.saved_model.load(sys.argv[1])
labels = tf.constant([0, 1, 2, 2, 1], tf.int64)
latents = tf.constant(np.load(sys.argv[2]))
fresh = [model.signatures["serving_default"](labels=labels)["images"].numpy() for _ in range(2)]
np.savez(sys.argv[3], fresh=fresh[0], fresh_again=fresh[1],
         sample=model.signatures["sample"](labels=labels, seed=tf.constant([5, 6, 7, 8, 5], tf.int64))["images"],
         images=model.signatures["from_latents"](latents=latents, labels=labels)["images"])
sys.exit(any(name.split(".")[0] == "datalens_tf" for name in sys.modules))
"""


@pytest.fixture(scope="module")
def alone(exported, tmp_path_factory):
    """What two processes that import only TensorFlow get out of the SavedModel."""
    folder = tmp_path_factory.mktemp("alone")
    np.save(folder / "latents.npy", np.linspace(-1, 1, 30, dtype=np.float32).reshape(5, 6))
    for run in "12":
        subprocess.run([sys.executable, "-c", ALONE, exported, folder / "latents.npy", folder / f"{run}.npz"],
                       cwd=folder, check=True, env={**os.environ, "PYTHONPATH": ""})
    return folder, [dict(np.load(folder / f"{run}.npz")) for run in "12"]


def test_a_foreign_process_gets_the_generators_images(generator, alone):
    folder, runs = alone
    expected = generator([np.load(folder / "latents.npy"), np.array([0, 1, 2, 2, 1])], training=False)
    for run in runs:
        assert run["images"].dtype == np.float32
        np.testing.assert_allclose(run["images"], expected, atol=1e-6)
        assert run["fresh"].dtype == run["sample"].dtype == np.uint8
        assert run["fresh"].shape == run["sample"].shape == (5, 8, 4, 1)


def test_seeds_reproduce_and_default_latents_are_fresh(alone):
    first, second = alone[1]
    np.testing.assert_array_equal(first["sample"], second["sample"])
    assert not np.array_equal(first["fresh"], first["fresh_again"])
    # The exporting process had set a global seed: stored in the graph, every server would repeat itself.
    assert not np.array_equal(first["fresh"], second["fresh"])


def test_only_the_generators_variables_are_stored(generator, exported):
    stored = tf.train.list_variables(str(exported / "variables" / "variables"))
    shapes = sorted(tuple(shape) for name, shape in stored if "OBJECT_GRAPH" not in name)
    assert shapes == sorted(tuple(variable.shape) for variable in generator.variables)
    files = sorted(str(path.relative_to(exported)) for path in exported.rglob("*") if path.is_file())
    assert files == ["assets.extra/model.json", "assets.extra/picture.png", "assets.extra/privacy.json",
                     "fingerprint.pb", "saved_model.pb", "variables/variables.data-00000-of-00001",
                     "variables/variables.index"]
    assert os.listdir(exported.parent) == ["1"]
    assert json.loads((exported / "assets.extra/privacy.json").read_text()) == {"epsilon": 1.0}


def test_signatures_fit_tensorflow_serving(exported):
    signatures = tf.saved_model.load(str(exported)).signatures
    assert set(signatures) == {"serving_default", "sample", "from_latents"}
    for function in signatures.values():
        for spec in [*function.structured_input_signature[1].values(), *function.structured_outputs.values()]:
            assert spec.shape[0] is None
    assert signatures["sample"].structured_outputs["images"].shape.as_list() == [None, 8, 4, 1]
    assert {name: spec.dtype for name, spec in signatures["sample"].structured_input_signature[1].items()} == {
        "labels": tf.int64, "seed": tf.int64}


def test_labels_out_of_range_are_refused_by_the_model_itself(exported):
    serve = tf.saved_model.load(str(exported)).signatures["serving_default"]
    for bad in (-1, 3):
        with pytest.raises(tf.errors.InvalidArgumentError, match=r"labels must be in \[0, 3\)"):
            serve(labels=tf.constant([0, bad], tf.int64))


class TestLoadedGenerator:

    def test_tells_what_it_is(self, exported):
        for path in (exported, exported.parent):
            loaded = load_generator(path)
            assert loaded.path == exported and loaded.image_shape == (8, 4, 1)
            assert (loaded.latent_dim, loaded.latent_distribution, loaded.num_classes) == (6, "uniform", 3)

    def test_an_image_depends_on_its_label_place_and_seed_only(self, exported, monkeypatch):
        loaded = load_generator(exported)
        labels = np.arange(20) % 3
        whole = loaded.sample(labels, seed=7)
        assert whole.dtype == np.uint8 and whole.shape == (20, 8, 4, 1)
        monkeypatch.setattr(export, "_CHUNK", 7)
        in_parts = loaded.sample(labels, seed=7)
        assert np.abs(whole.astype(int) - in_parts).max() <= 1  # rounding of a sum in another order
        assert np.abs(whole[:5].astype(int) - loaded.sample(labels[:5], seed=7)).max() <= 1
        assert len(np.unique(whole.reshape(20, -1), axis=0)) == 20
        assert not np.array_equal(whole, loaded.sample(labels, seed=8))
        assert not np.array_equal(loaded.sample(labels), loaded.sample(labels))
        assert loaded.sample([], seed=1).shape == (0, 8, 4, 1)

    @pytest.mark.parametrize("labels, message", [
        ([0, 3], r"labels in \[0, 3\), got 0 to 3"), ([-1], "got -1"), ([0.5], "float64"), ([[0]], r"\[1, 1\]")])
    def test_bad_labels(self, exported, labels, message):
        with pytest.raises(InvalidArgumentError, match=message):
            load_generator(exported).sample(labels)

    def test_missing_or_damaged(self, exported, tmp_path):
        with pytest.raises(CheckpointError, match="no SavedModel in"):
            load_generator(tmp_path / "nothing")
        for name in ("saved_model.pb", "assets.extra/model.json", "variables/variables.index"):
            copy = tmp_path / name.replace("/", "_")
            subprocess.run(["cp", "-r", exported, copy], check=True)
            (copy / name).write_bytes(b"{" * 50)
            with pytest.raises(CheckpointError, match="damaged") as caught:
                load_generator(copy)
            assert "\n" not in str(caught.value)

    def test_largest_version_wins(self, generator, tmp_path):
        for version in (9, 10):
            export_generator(generator, tmp_path, version=version, **SETTINGS)
        assert load_generator(tmp_path).path.name == "10"


@pytest.mark.parametrize("distribution, mean, variance", [("uniform", 0, 1 / 3), ("normal", 0, 1)])
def test_latents_have_the_named_distribution(tmp_path, distribution, mean, variance):
    export_generator(LatentsAsImages(0.1), tmp_path, latent_dim=2000, latent_distribution=distribution, num_classes=2)
    model = load_generator(tmp_path).model
    labels = tf.zeros([50], tf.int64)
    for images in (model.signatures["serving_default"](labels=labels)["images"],
                   model.signatures["sample"](labels=labels, seed=tf.constant(image_seeds(0, 50)))["images"]):
        latents = (images.numpy() / 255 - 0.5) * 10
        # 100,000 draws: standard errors 0.0032 of the mean and at most 0.0045 of the variance; rounding adds 1e-4.
        assert latents.mean() == pytest.approx(mean, abs=0.03)
        assert latents.var() == pytest.approx(variance, abs=0.03)
        assert (np.abs(latents).max() < 1.03) == (distribution == "uniform")


def test_bytes_are_rounded_to_nearest(tmp_path):
    export_generator(LatentsAsImages(1.0), tmp_path, latent_dim=2000, latent_distribution="uniform", num_classes=2)
    model = load_generator(tmp_path).model
    seeds, labels = tf.constant([3], tf.int64), tf.zeros([1], tf.int64)
    latents = tf.random.stateless_uniform([1, 2000], tf.stack([3, 0]), -1, 1, alg="philox")
    exact = model.signatures["from_latents"](latents=latents, labels=labels)["images"].numpy()
    stored = model.signatures["sample"](labels=labels, seed=seeds)["images"].numpy()
    np.testing.assert_array_equal(stored, np.rint(255 * exact).clip(0, 255))


class TestWriting:

    def test_existing_versions_are_kept_unless_told(self, generator, tmp_path):
        path = export_generator(generator, tmp_path, **SETTINGS)
        (path / "mark").touch()
        with pytest.raises(InvalidArgumentError, match="version=1 not to exist yet, found .*overwrite"):
            export_generator(generator, tmp_path, **SETTINGS)
        assert (path / "mark").exists()
        export_generator(generator, tmp_path, **SETTINGS, overwrite=True)
        assert not (path / "mark").exists()
        assert os.listdir(tmp_path) == ["1"]
        load_generator(path)

    def test_unwritable_folders_are_named(self, generator, tmp_path):
        (tmp_path / "file").write_text("")
        with pytest.raises(DataLensError, match="Cannot write .*file/model/1") as caught:
            export_generator(generator, tmp_path / "file" / "model", **SETTINGS)
        assert "\n" not in str(caught.value)

    @pytest.mark.parametrize("failing", ["save", "fsync", "rename"])
    def test_a_failure_leaves_the_old_version_and_nothing_aside(self, generator, tmp_path, monkeypatch, failing):
        path = export_generator(generator, tmp_path, **SETTINGS)
        (path / "mark").touch()

        def fail(*arguments, **keywords):
            if failing == "save":
                raise tf.errors.ResourceExhaustedError(None, None, "No space left on device")
            raise OSError(28, "No space left on device")

        if failing == "save":
            monkeypatch.setattr(tf.saved_model, "save", fail)
        elif failing == "fsync":
            monkeypatch.setattr(os, "fsync", fail)
        else:
            rename = type(path).rename
            monkeypatch.setattr(type(path), "rename", lambda source, target:
                                fail() if (source / "saved_model.pb").exists() and not (source / "mark").exists()
                                else rename(source, target))
        with pytest.raises(DataLensError, match="^Cannot write .*: No space left on device"):
            export_generator(generator, tmp_path, **SETTINGS, overwrite=True)
        assert (path / "mark").exists()
        assert os.listdir(tmp_path) == ["1"]

    @pytest.mark.parametrize("changes, message", [
        (dict(version=0), "version=0 >= 1"),
        (dict(latent_dim=0), "latent_dim=0 >= 1"),
        (dict(latent_distribution="cauchy"), "latent_distribution='cauchy'"),
        (dict(num_classes=1), "num_classes=1 >= 2"),
        (dict(assets={"../escape": ""}), "asset name='../escape'"),
        (dict(assets={"model.json": ""}), "asset name='model.json'"),
    ])
    def test_bad_arguments_write_nothing(self, generator, tmp_path, changes, message):
        with pytest.raises(InvalidArgumentError, match=message):
            export_generator(generator, tmp_path / "model", **{**SETTINGS, **changes})
        assert not os.listdir(tmp_path)
