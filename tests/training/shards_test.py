"""Sums over several files: bit by bit those of one process, and nothing charged for a worker that is lost."""

import dataclasses
import io
import json
import os
import signal

import numpy as np
import pyarrow
import pytest
from PIL import Image
from pyarrow import parquet

from datalens_tf import cli
from datalens_tf.accounting.ledger import PrivacyLedger
from datalens_tf.data.datasets import as_dataset
from datalens_tf.data.registry import load_dataset
from datalens_tf.data.writing import write_images
from datalens_tf.errors import DataError, InvalidArgumentError
from datalens_tf.mechanisms.correct_counts import CorrectCounts
from datalens_tf.mechanisms.mean_embedding import MeanEmbedding, RandomFourierFeatures
from datalens_tf.mechanisms.second_moment import SecondMoment
from datalens_tf.methods import sum_questions
from datalens_tf.methods.registry import synthesizer
from datalens_tf.options import PerformanceOptions
from datalens_tf.training import shards
from datalens_tf.training.checkpoint import ReleaseStore
from datalens_tf.training.classifier import QuickClassifier
from datalens_tf.training.shards import Shards, ShardWorker
from datalens_tf.training.untrained_networks import UntrainedNetworks
from tests.methods import datalens_plus_test, dp_merf_test
from tests.training import tiny

RAY = PerformanceOptions(distribute="ray", num_actors=2)
CONFIG = dp_merf_test.CONFIG.replace(autoencoder_dim=5)


class InProcess:
    """Workers in this process, in place of `Actors`."""

    def __init__(self, count, options, kind):
        self._workers = [kind(number) for number in range(count or 2)]

    def __len__(self):
        return len(self._workers)

    def start(self, recipe):
        return [getattr(worker, method)(*arguments) for number, worker in enumerate(self._workers)
                for method, arguments in recipe(number)]

    def ask(self, request, check):
        return [getattr(worker, method)(*arguments) for number, worker in enumerate(self._workers)
                for method, arguments in [request(number)]]

    def put(self, value):
        return value

    def close(self):
        self._workers = []


@pytest.fixture
def in_process(monkeypatch):
    monkeypatch.setattr(shards, "Actors", InProcess)


def write_parts(folder, counts=(13, 1040, 7, 5)):
    """Files of unequal length, and all records together: one file is longer than a chunk."""
    whole = tiny.dataset(sum(counts))
    for number, rows in enumerate(np.split(np.arange(sum(counts)), np.cumsum(counts)[:-1])):
        np.savez(folder / f"{number}.npz", x=whole.images[rows], y=whole.labels[rows])
    return whole, f"npz:{folder}/{{0..{len(counts) - 1}}}.npz"


def questions():
    """Every kind, each with its mechanism."""
    random = np.random.default_rng(0)
    frequencies = RandomFourierFeatures(num_features=40, bandwidths=(2.0,), dimension=64, seed=0).frequencies()
    means = MeanEmbedding(noise_multiplier=1.0)
    squares = SecondMoment(clip_norm=2.0, noise_multiplier=1.0)
    halves = sum_questions.Points(square=2, centres=random.random((3, 16)))
    data = tiny.CONFIG.data
    judges = [QuickClassifier((8, 8, 1), 3, seed).weights() for seed in range(2)]
    networks = UntrainedNetworks.for_images(
        random.random((30, 8, 8, 1)).astype(np.float32), np.arange(30) % 3, seed=0, num_networks=2, filters=4, clip=1.0)
    return [(means, sum_questions.Embeddings(
                features=sum_questions.NetworkMap(networks=networks), num_rows=6,
                points=sum_questions.Points(square=2, nearest_to=random.random((3, 2, 16))))),
            (means, sum_questions.Embeddings(
                features=sum_questions.FeatureMap(frequencies=frequencies), num_rows=3)),
            (means, sum_questions.Means(points=halves, clip=3.0, num_rows=3)),
            (squares, sum_questions.Squares(points=dataclasses.replace(halves, together=True), num_rows=1)),
            (squares, sum_questions.ImageSquares()),
            (CorrectCounts(num_candidates=2, noise_multiplier=1.0),
             sum_questions.Votes(classifiers=judges, data=data))]


@pytest.mark.parametrize("num_actors", [1, 3, 4])
def test_sums_over_files_are_those_of_one_process_to_the_bit(tmp_path, in_process, num_actors):
    whole, name = write_parts(tmp_path)
    records = Shards(CONFIG.replace(dataset=name), RAY.replace(num_actors=num_actors))
    assert (len(records), records.image_shape, records.num_classes) == (1065, (8, 8, 1), 3)
    for mechanism, question in questions():
        np.testing.assert_array_equal(records.answer(mechanism, question), question.answer(mechanism, whole))


def test_a_run_on_files_releases_what_a_run_in_one_process_does(tmp_path, in_process):
    whole, name = write_parts(tmp_path, (9, 6, 5))
    config, found = CONFIG.replace(insecure_noise_seed=1), []
    for number, dataset in enumerate((whole, Shards(config.replace(dataset=name), RAY))):
        run = synthesizer("dp_merf")(config, run_dir=tmp_path / f"run{number}")
        run.fit_dataset(dataset)
        store = ReleaseStore(run.folder.releases)
        found.append([store.load(release) for release in range(1, len(store) + 1)])
    for mine, theirs in zip(*found, strict=True):
        np.testing.assert_array_equal(mine, theirs)


def write_folder(path, images, labels):
    for number, (image, label) in enumerate(zip(images, labels)):
        folder = path / ("cat", "dog")[label]
        folder.mkdir(parents=True, exist_ok=True)
        Image.fromarray(image[..., 0]).save(folder / f"{number}.png")


def write_parquet(path, images, labels):
    pictures = []
    for image in images:
        buffer = io.BytesIO()
        Image.fromarray(image[..., 0]).save(buffer, "PNG")
        pictures.append({"bytes": buffer.getvalue(), "path": None})
    parquet.write_table(pyarrow.table({"image": pictures, "label": [("cat", "dog")[label] for label in labels]}), path)


def write_tfrecords(path, images, labels):
    write_images(path, "tfds", images, labels, ("cat", "dog"))


@pytest.mark.parametrize("kind, file, write", [
    ("folder", "{}", write_folder), ("parquet", "{}.parquet", write_parquet), ("tfds", "{}", write_tfrecords)])
def test_folders_parquet_and_tfrecords_are_files_too(kind, file, write, tmp_path, in_process):
    random = np.random.default_rng(0)
    images, labels = random.integers(0, 256, (12, 8, 8, 1)).astype(np.uint8), np.arange(12) % 2
    for number in range(2):
        write(tmp_path / file.format(number), images[number::2][:6], labels[:6])
    records = Shards(CONFIG.replace(dataset=f"{kind}:{tmp_path}/{file.format('{0..1}')}"), RAY)
    parts = [load_dataset(f"{kind}:{tmp_path}/{file.format(number)}") for number in range(2)]
    whole = as_dataset(np.concatenate([part.images for part in parts]),
                       np.concatenate([part.labels for part in parts]), 2)
    mechanism, question = SecondMoment(clip_norm=2.0, noise_multiplier=1.0), sum_questions.ImageSquares()
    assert records.class_names == ("cat", "dog") and len(records) == 12
    np.testing.assert_array_equal(records.answer(mechanism, question), question.answer(mechanism, whole))


def test_what_does_not_go_together_is_refused(tmp_path, in_process):
    _, name = write_parts(tmp_path, (5, 5))
    with pytest.raises(InvalidArgumentError, match="unit='patient' to be none where records are in several files"):
        Shards(CONFIG.replace(dataset=name, unit="patient"), RAY)
    records = Shards(CONFIG.replace(dataset=name), RAY)
    records.num_records = 2**28
    with pytest.raises(InvalidArgumentError, match="num_records=268435456 <= 134217728, up to which sums of SecondM"):
        records.answer(*questions()[3])
    np.savez(tmp_path / "1.npz", x=np.zeros((4, 9, 9, 1), np.uint8), y=np.arange(4) % 3)
    with pytest.raises(DataError, match=r"1.npz has image_shape \(9, 9, 1\)"):
        Shards(CONFIG.replace(dataset=name), RAY)
    with pytest.raises(DataError, match="files changed while they were used"):
        records._check(ShardWorker(0).load([f"npz:{tmp_path}/1.npz"], None, None, None))


def test_the_command_line_says_what_lacks(tmp_path, capsys):
    _, name = write_parts(tmp_path, (5, 5))
    flags = ["train", "--dataset", name, "--output_dir", str(tmp_path / "run")]
    assert cli.main([*flags, "--method=dp_merf"]) == 2
    assert "Missing --distribute: say where" in capsys.readouterr().err
    assert cli.main([*flags, "--method=dp_gan", "--distribute=ray"]) == 2
    assert "to be one file: dp_gan does no mere adding up" in capsys.readouterr().err


@pytest.mark.slow
def test_a_worker_that_is_killed_is_asked_again_and_nothing_is_charged_for_it(tmp_path, monkeypatch):
    """On Ray: it dies in its first sum. The releases are those of one process, the charges those of the plan."""
    whole, name = write_parts(tmp_path, (9, 6, 5))
    config = datalens_plus_test.CONFIG.replace(insecure_noise_seed=1, **datalens_plus_test.SETTINGS["clusters"])

    class Dying(ShardWorker):
        def answer(self, mechanism, question):
            mark = tmp_path / "died"
            if not mark.exists():
                mark.touch()
                os.kill(os.getpid(), signal.SIGKILL)
            return super().answer(mechanism, question)

    monkeypatch.setattr(shards, "ShardWorker", Dying)
    found = []
    for number, make in enumerate((lambda: whole, lambda: Shards(config.replace(dataset=name), RAY))):
        run = synthesizer("datalens_plus")(config, run_dir=tmp_path / f"run{number}")
        run.fit_dataset(make())
        store = ReleaseStore(run.folder.releases)
        found.append([store.load(release) for release in range(1, len(store) + 1)])
        assert PrivacyLedger.read(run.folder.ledger).num_charges == run.config.num_charges
    assert (tmp_path / "died").exists()
    for mine, theirs in zip(*found, strict=True):
        np.testing.assert_array_equal(mine, theirs)


@pytest.mark.slow
def test_the_command_line_trains_on_files(tmp_path):
    _, name = write_parts(tmp_path, (20, 15, 9))
    flags = ["train", "--method=dp_merf", "--dataset", name, "--output_dir", str(tmp_path / "run"),
             "--num_features=40", "--bandwidths=2", "--batch_size=6", "--fit_steps=4", "--generator_filters=4",
             "--generator_units=8", "--latent_dim=4", "--distribute=ray", "--num_actors=2"]
    assert cli.main(flags) == 0
    statement = json.loads((tmp_path / "run" / "privacy.json").read_text())
    assert statement["private"] and statement["num_records"] == 44 and "{0..2}" in statement["dataset"]
