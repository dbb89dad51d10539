"""Exported generators: alone in a fresh process they draw the right images, and carry nothing but the generator."""

import io
import json
import os
import subprocess
import sys

import numpy as np
import pytest
import tensorflow as tf
from PIL import Image
from tensorflow.core.protobuf import saved_model_pb2, trackable_object_graph_pb2
from tensorflow.python.framework import tensor_util
from tensorflow_serving.apis import prediction_log_pb2

from datalens_tf import cli
from datalens_tf.errors import CheckpointError, DataLensError, InvalidArgumentError
from datalens_tf.methods import runs
from datalens_tf.models.warp import WarpedGenerator
from datalens_tf.serving import export
from datalens_tf.serving.export import copy_export, export_generator, load_generator
from datalens_tf.serving.sampling import image_seeds
from tests.models.factor_generators import SHAPE
from tests.models.factor_generators import generator as clusters
from tests.serving.tiny_generator import SETTINGS, TinyGenerator


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


@pytest.fixture(scope="module")
def signatures(exported):
    return tf.saved_model.load(str(exported)).signatures


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


@pytest.mark.slow
def test_a_foreign_process_gets_the_generators_images(generator, alone):
    folder, runs = alone
    expected = generator([np.load(folder / "latents.npy"), np.array([0, 1, 2, 2, 1])], training=False)
    for run in runs:
        assert run["images"].dtype == np.float32
        np.testing.assert_allclose(run["images"], expected, atol=1e-6)
        assert run["fresh"].dtype == run["sample"].dtype == np.uint8
        assert run["fresh"].shape == run["sample"].shape == (5, 8, 4, 1)


@pytest.mark.slow
def test_seeds_reproduce_and_default_latents_are_fresh(alone):
    first, second = alone[1]
    np.testing.assert_array_equal(first["sample"], second["sample"])
    assert not np.array_equal(first["fresh"], first["fresh_again"])
    # The exporting process had set a global seed: stored in the graph, every server would repeat itself.
    assert not np.array_equal(first["fresh"], second["fresh"])


@pytest.mark.slow
def test_tensorflows_own_program_runs_it(alone, exported, tmp_path):
    program = os.path.join(os.path.dirname(sys.executable), "saved_model_cli")
    subprocess.run([program, "run", "--dir", exported, "--tag_set", "serve", "--signature_def", "sample",
                    "--input_exprs", "labels=[0, 1, 2, 2, 1];seed=[5, 6, 7, 8, 5]",
                    "--outdir", tmp_path], check=True, capture_output=True, cwd=tmp_path)
    np.testing.assert_array_equal(np.load(tmp_path / "images.npy"), alone[1][0]["sample"])


def test_only_the_generators_variables_are_stored(generator, exported):
    stored = tf.train.list_variables(str(exported / "variables" / "variables"))
    shapes = sorted(tuple(shape) for name, shape in stored if "OBJECT_GRAPH" not in name)
    assert shapes == sorted(tuple(variable.shape) for variable in generator.variables)
    files = sorted(str(path.relative_to(exported)) for path in exported.rglob("*") if path.is_file())
    assert files == ["assets.extra/SHA256SUMS", "assets.extra/model.json", "assets.extra/picture.png",
                     "assets.extra/privacy.json", "assets.extra/tf_serving_warmup_requests",
                     "saved_model.pb", "variables/variables.data-00000-of-00001", "variables/variables.index"]
    assert os.listdir(exported.parent) == ["1"]
    assert json.loads((exported / "assets.extra/privacy.json").read_text()) == {"epsilon": 1.0}


def graphs(saved_model):
    """The graph and the functions of a SavedModel: name -> nodes."""
    proto = saved_model_pb2.SavedModel.FromString((saved_model / "saved_model.pb").read_bytes())
    (meta,) = proto.meta_graphs
    return {"": meta.graph_def.node, **{f.signature.name: f.node_def for f in meta.graph_def.library.function}}


def test_every_constant_is_of_the_computation_not_of_training(generator, exported):
    texts, stored = [path.read_bytes() for path in (exported / "assets.extra").glob("*.json")], set()
    constants = [tensor_util.MakeNdarray(node.attr["value"].tensor)
                 for nodes in graphs(exported).values() for node in nodes if node.op == "Const"]
    assert constants
    for constant in constants:
        if constant.dtype == object:  # Messages, the texts that `describe` answers, and names of what is stored.
            stored |= {text for text in constant.ravel() if len(text) > 200 and text not in texts}
        else:
            assert constant.size <= 8, constant
    (objects,) = map(trackable_object_graph_pb2.TrackableObjectGraph.FromString, stored)
    assert sum(len(node.attributes) for node in objects.nodes) == len(generator.variables)
    operations = {node.op for nodes in graphs(exported).values() for node in nodes}
    assert not operations & {"PyFunc", "EagerPyFunc", "HashTableV2", "LookupTableImportV2", "ReadFile", "WriteFile"}


def test_signatures_fit_tensorflow_serving(signatures):
    assert set(signatures) == {"serving_default", "sample", "png", "from_latents", "generate", "describe"}
    for name, function in signatures.items():
        for spec in [*function.structured_input_signature[1].values(), *function.structured_outputs.values()]:
            # A server that batches joins requests along the first dimension of everything.
            assert spec.shape.rank == 0 if name == "generate" and spec.shape.rank == 0 else spec.shape[0] is None
    assert signatures["sample"].structured_outputs["images"].shape.as_list() == [None, 8, 4, 1]
    assert {name: spec.dtype for name, spec in signatures["sample"].structured_input_signature[1].items()} == {
        "labels": tf.int64, "seed": tf.int64}


def test_warm_up_requests_are_requests_that_are_answered(exported, signatures):
    records = list(tf.data.TFRecordDataset(str(exported / "assets.extra" / "tf_serving_warmup_requests")))
    requests = [prediction_log_pb2.PredictionLog.FromString(record.numpy()).predict_log.request for record in records]
    assert [request.model_spec.signature_name for request in requests] == ["serving_default", "sample", "png"]
    for request in requests:
        signatures[request.model_spec.signature_name](
            **{name: tf.constant(tf.make_ndarray(value)) for name, value in request.inputs.items()})


def test_png_files_hold_the_sampled_images(signatures):
    inputs = dict(labels=tf.constant([2, 0, 1], tf.int64), seed=tf.constant([9, 8, 7], tf.int64))
    files = signatures["png"](**inputs)["image_bytes"].numpy()
    pictures = np.stack([np.asarray(Image.open(io.BytesIO(file))) for file in files])
    np.testing.assert_array_equal(pictures[..., None], signatures["sample"](**inputs)["images"])


class TestGenerate:

    def call(self, signatures, num_samples, seed=-1):
        found = signatures["generate"](
            num_samples=tf.constant(num_samples, tf.int64), seed=tf.constant(seed, tf.int64))
        return found["images"].numpy(), found["labels"].numpy()

    def test_classes_are_balanced_and_seeds_reproduce(self, signatures):
        images, labels = self.call(signatures, 31, seed=5)
        assert images.shape == (31, 8, 4, 1) and images.dtype == np.uint8
        assert sorted(np.bincount(labels)) == [10, 10, 11] and np.any(np.diff(labels) < 0)
        again, other = self.call(signatures, 31, seed=5), self.call(signatures, 31, seed=6)
        np.testing.assert_array_equal(images, again[0])
        np.testing.assert_array_equal(labels, again[1])
        assert not np.array_equal(images, other[0]) and not np.array_equal(labels, other[1])

    def test_without_a_seed_images_are_fresh(self, signatures):
        assert not np.array_equal(self.call(signatures, 9)[0], self.call(signatures, 9)[0])

    @pytest.mark.parametrize("num_samples, seed, message", [
        (0, 1, "num_samples must be positive"), (-5, 1, "num_samples must be positive"),
        (1025, 1, "at most 1024 images per request"), (2**62, 1, "at most 1024 images per request"),
        (3, -2, "seed must be 0 or more")])
    def test_bad_requests_are_refused_with_a_clear_message(self, signatures, num_samples, seed, message):
        with pytest.raises(tf.errors.InvalidArgumentError, match=message):
            self.call(signatures, num_samples, seed)


@pytest.mark.parametrize("signature, inputs, message", [
    ("serving_default", dict(labels=[0, -1]), r"labels must be in \[0, 3\)"),
    ("serving_default", dict(labels=[0, 3]), r"labels must be in \[0, 3\)"),
    ("serving_default", dict(labels=[0] * 1025), "at most 1024 images per request"),
    ("sample", dict(labels=[0, 3], seed=[1, 2]), r"labels must be in \[0, 3\)"),
    ("sample", dict(labels=[0, 1], seed=[1]), "one seed per label"),
    ("sample", dict(labels=[0], seed=[1] * 1025), "at most 1024"),
    ("png", dict(labels=[5], seed=[1]), r"labels must be in \[0, 3\)"),
    ("from_latents", dict(labels=[1, 2], latents=np.zeros([1, 6], np.float32)), "one label per image"),
    ("describe", dict(name=["privacy.json", "secret"]), "name must be one of model.json, privacy.json"),
])
def test_bad_requests_are_refused_by_the_model_itself(signatures, signature, inputs, message):
    inputs = {name: tf.constant(value, tf.int64) if isinstance(value, list) and not isinstance(value[0], str)
              else tf.constant(value) for name, value in inputs.items()}
    with pytest.raises(tf.errors.InvalidArgumentError, match=message):
        signatures[signature](**inputs)


def test_a_server_says_what_it_promises(signatures):
    texts = signatures["describe"](name=tf.constant(["privacy.json", "model.json"]))["text"].numpy()
    assert json.loads(texts[0]) == {"epsilon": 1.0}
    assert json.loads(texts[1])["class_names"] == ["0", "1", "2"]


def test_checksums_are_of_every_file(exported):
    shown = subprocess.run(["sha256sum", "--check", "assets.extra/SHA256SUMS"], cwd=exported, capture_output=True,
                           text=True, check=True).stdout.splitlines()
    files = {str(path.relative_to(exported)) for path in exported.rglob("*") if path.is_file()}
    assert set(shown) == {f"{name}: OK" for name in files - {"assets.extra/SHA256SUMS"}}


class TestCopyExport:

    def test_adds_assets_and_keeps_the_rest(self, exported, tmp_path):
        copied = copy_export(exported, tmp_path / "serving", version=4, assets={"privacy.json": "{}", "more.txt": "x"})
        assert copied == tmp_path / "serving" / "4"
        assert (copied / "assets.extra" / "picture.png").read_bytes() == b"\x89PNG"
        assert (copied / "assets.extra" / "privacy.json").read_text() == "{}"
        test_checksums_are_of_every_file(copied)
        np.testing.assert_array_equal(load_generator(copied).sample([0, 1], seed=3),
                                      load_generator(exported).sample([0, 1], seed=3))

    def test_a_failure_leaves_nothing(self, exported, tmp_path, monkeypatch):
        def fail(*arguments):
            raise OSError(28, "No space left on device")

        monkeypatch.setattr(os, "fsync", fail)
        with pytest.raises(DataLensError, match="^Cannot write .*: No space left on device"):
            copy_export(exported, tmp_path)
        assert not os.listdir(tmp_path)


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

    @pytest.mark.parametrize("changes, message", [
        ({"image_shape": [10**6, 10**6, 10**6]}, "at most 4,194,304 numbers"), ({"image_shape": [8, -4, 1]}, ">= 1"),
        ({"image_shape": [8, 4]}, r"\[H, W, C\]"), ({"image_shape": "abc"}, r"\[H, W, C\]"),
        ({"image_shape": [8, 4.5, 1]}, "integer"), ({"image_shape": [8, 8, 1]}, "its images are"),
        ({"latent_dim": 10**12}, "latent_dim"), ({"latent_dim": None}, "latent_dim"),
        ({"latent_distribution": []}, "latent_distribution"), ({"num_classes": 10**9}, "num_classes"),
        ({"num_classes": True}, "num_classes"), ({"class_names": ["a"] * 2}, "3 texts"),
        ({"class_names": [1, 2, 3]}, "3 texts"), ({"class_names": "abc"}, "3 texts"), ({"more": 1}, "model.json"),
    ])
    def test_metadata_that_no_generator_can_have(self, exported, tmp_path, changes, message):
        subprocess.run(["cp", "-r", exported, tmp_path / "1"], check=True)
        file = tmp_path / "1" / "assets.extra" / "model.json"
        file.write_text(json.dumps(json.loads(file.read_text()) | changes))
        (tmp_path / "1" / "assets.extra" / "SHA256SUMS").unlink()
        with pytest.raises(CheckpointError, match=message) as caught:
            load_generator(tmp_path)
        assert "\n" not in str(caught.value) and len(str(caught.value)) < 600

    def test_files_that_were_changed_or_mixed_up_are_neither_loaded_nor_copied(self, exported, tmp_path):
        subprocess.run(["cp", "-r", exported, tmp_path / "1"], check=True)
        with open(tmp_path / "1" / "variables" / "variables.index", "ab") as file:
            file.write(b"more")
        (tmp_path / "1" / "assets.extra" / "LICENSE").write_text("mine")
        for use in (load_generator, lambda path: copy_export(path / "1", tmp_path / "serving")):
            with pytest.raises(CheckpointError, match="mixed up .variables/variables.index was changed"):
                use(tmp_path)
        assert not list((tmp_path / "serving").iterdir())

    def test_metadata_of_gigabytes_is_not_read(self, exported, tmp_path):
        subprocess.run(["cp", "-r", exported, tmp_path / "1"], check=True)
        os.truncate(tmp_path / "1" / "assets.extra" / "model.json", 2**40)
        with pytest.raises(CheckpointError, match="model.json has 1099511627776 bytes"):
            load_generator(tmp_path)

    def test_more_images_than_memory_holds_are_refused(self, exported, monkeypatch):
        generator = load_generator(exported)
        monkeypatch.setattr(os, "sysconf", lambda name: 50)  # A machine of 2,500 bytes.
        with pytest.raises(InvalidArgumentError, match="num_images=90 to fit in memory"):
            generator.sample(np.zeros(90, int))

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
        (dict(num_classes=0), "num_classes=0 >= 1"),
        (dict(assets={"../escape": ""}), "asset name='../escape'"),
        (dict(assets={"model.json": ""}), "asset name='model.json'"),
        (dict(assets={"SHA256SUMS": ""}), "asset name='SHA256SUMS'"),
        (dict(class_names=["a", "b"]), "to be 3 names"),
    ])
    def test_bad_arguments_write_nothing(self, generator, tmp_path, changes, message):
        with pytest.raises(InvalidArgumentError, match=message):
            export_generator(generator, tmp_path / "model", **{**SETTINGS, **changes})
        assert not os.listdir(tmp_path)


def test_a_generator_with_grain_also_draws_without(tmp_path):
    made = WarpedGenerator(SHAPE, [clusters()], 0.0, grain=0.3)
    path = export_generator(made, tmp_path, latent_dim=made.latent_dim, latent_distribution="normal", num_classes=2)
    loaded, labels = load_generator(path), np.arange(6) % 2
    grainy, smooth = (loaded.sample(labels, seed=3, looking=looking) for looking in (False, True))
    assert grainy.dtype == smooth.dtype == np.uint8 and np.abs(grainy.astype(int) - smooth).max() > 20
    np.testing.assert_array_equal(smooth, loaded.sample(labels, seed=3, looking=True))
    assert not np.array_equal(smooth, loaded.sample(labels, looking=True))  # Fresh ones
    assert cli.main(["sample", f"--model={path}", "--num_samples=6", "--labels=0,1", "--seed=3", "--for=looking",
                     f"--output={tmp_path / 'x.npz'}"]) == 0
    with np.load(tmp_path / "x.npz") as drawn:
        np.testing.assert_array_equal(drawn["x"], smooth)
    draw, show = runs.drawers(path).for_evaluation(6)
    labels = draw(3)[1]
    np.testing.assert_array_equal(draw(3)[0], loaded.sample(labels, seed=3))
    np.testing.assert_array_equal(show(3)[0], loaded.sample(labels, seed=3, looking=True))


def test_other_generators_draw_the_same_for_all(exported):
    loaded, labels = load_generator(exported), np.arange(4) % 3
    np.testing.assert_array_equal(loaded.sample(labels, seed=1, looking=True), loaded.sample(labels, seed=1))
    assert not loaded.has_looking
