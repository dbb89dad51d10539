"""A whole evaluation: complete, in the documented form, and right where the answer is known."""

import io
import itertools
import json
import pathlib

import jsonschema
import numpy as np
import pytest

from datalens_tf.data.datasets import as_dataset
from datalens_tf.errors import DataError, InvalidArgumentError
from datalens_tf.evaluation import context, domain_classifier, evaluate, registry
from datalens_tf.evaluation.cache import Cache
from datalens_tf.evaluation.metrics import classifiers
from datalens_tf.training.classifier import PROTOCOLS
from datalens_tf.training.progress import Progress
from tests.evaluation.evaluation_data import TINY, all_metrics, real, tiny_evaluation

SCHEMA = json.loads((pathlib.Path(__file__).parents[2] / "docs/reference/metrics.schema.json").read_text())


def checked(metrics):
    """The metrics as they are written and read, if they have the documented form."""
    read = json.loads(json.dumps(metrics, allow_nan=False))
    jsonschema.Draft202012Validator.check_schema(SCHEMA)
    jsonschema.validate(read, SCHEMA)
    return read


def test_everything_is_measured_in_the_documented_form():
    metrics = checked(all_metrics().metrics)
    assert set(registry.declared()) <= set(metrics) and metrics["mode"] == "quick"
    assert set(metrics["classifiers"]["per_classifier"]) == set(classifiers.CLASSIFIERS)
    assert set(all_metrics().charts) == {"confusion", "roc", "classifiers", "pca", "tsne", "distances"}
    assert "not cover" in metrics["privacy_note"]


def test_the_schema_notices_what_is_wrong():
    for change in ({"schema_version": 2}, {"mode": "fast"}, {"num_synthetic": 0}, {"extra": 1}):
        with pytest.raises(jsonschema.ValidationError):
            jsonschema.validate(all_metrics().metrics | change, SCHEMA)


def test_real_data_is_as_good_as_real_data():
    metrics = all_metrics().metrics
    # The same records, the same seed: the same trees. Networks round differently from run to run.
    for name, result in metrics["classifiers"]["per_classifier"].items():
        assert result["calibrated"] == pytest.approx(1, abs=0.15 if name == "cnn" else 1e-9)
        assert result["real"]["num_train"] == 200
    quality = metrics["quality"]
    assert quality["manifold"]["precision"] > 0.7 and quality["manifold"]["recall"] > 0.7
    assert quality["nearest_real"]["synthetic_median"] == pytest.approx(0, abs=1e-3)
    assert quality["nearest_real"]["closer_than_test_1_percent"] == 1  # They are copies, and it says so.
    membership = metrics["membership"]
    assert membership["nearest_neighbour"]["auc_low"] > 0.9 > membership["control"]["nearest_neighbour"]["auc_high"]


def test_utility_is_consistent():
    utility = all_metrics().metrics["utility"]
    matrix = np.array(utility["confusion_matrix"])
    assert matrix.sum() == 2 * 359
    assert np.trace(matrix) / matrix.sum() == pytest.approx(utility["accuracy_mean"])
    np.testing.assert_array_equal(matrix.sum(axis=1), 2 * np.bincount(real("test").labels))
    assert utility["auroc_macro"] == pytest.approx(np.mean(utility["auroc_per_class"]))
    assert utility["auroc_macro"] > 0.7 and not utility["follows_protocol"]
    assert utility["real"]["calibrated"] == pytest.approx(utility["accuracy_mean"] / utility["real"]["accuracy"])


def test_constant_images_have_inception_score_one_and_lie_nowhere():
    labels = np.arange(200) % 10
    metrics = checked(tiny_evaluation(np.full((200, 8, 8, 1), 128, np.uint8), labels, metrics=("quality",)).metrics)
    assert metrics["quality"]["inception_score"]["mean"] == pytest.approx(1, abs=1e-6)
    assert metrics["quality"]["manifold"]["recall"] == metrics["quality"]["manifold"]["precision"] == 0
    assert "utility" not in metrics and metrics["quality"]["label_agreement"]["value"] == pytest.approx(0.1)


@pytest.mark.slow
def test_shuffled_labels_are_chance_and_noise_is_far_from_real(tmp_path):
    train, rng, cache = real("train"), np.random.default_rng(0), Cache(tmp_path)
    shuffled = tiny_evaluation(train.images, rng.permutation(train.labels), cache=cache,
                               metrics=("utility", "quality")).metrics
    assert shuffled["utility"]["accuracy_mean"] < 0.25 and abs(shuffled["utility"]["auroc_macro"] - 0.5) < 0.15
    assert shuffled["quality"]["label_agreement"]["value"] < 0.2
    distances = [shuffled["quality"]["frechet_domain_classifier"]["value"]]
    for scale in (40, 120):
        noisy = np.clip(train.images + rng.normal(0, scale, train.images.shape), 0, 255).astype(np.uint8)
        distances.append(tiny_evaluation(noisy, train.labels, cache=cache, metrics=("quality",)).metrics[
            "quality"]["frechet_domain_classifier"]["value"])
    assert distances == sorted(distances) and distances[2] > 3 * distances[0]


@pytest.mark.slow
def test_quality_is_of_the_images_for_people_and_utility_of_those_to_learn_from(tmp_path):
    train = real("train")
    noise = np.random.default_rng(0).integers(0, 256, train.images.shape, np.uint8)
    found = tiny_evaluation(noise, train.labels, show=lambda seed: (train.images, train.labels),
                            metrics=("utility", "quality"), cache=Cache(tmp_path))
    checked(found.metrics)
    assert found.metrics["utility"]["accuracy_mean"] < 0.4
    quality, both = found.metrics["quality"], all_metrics().metrics["quality"]
    assert (quality["purpose"], both["purpose"]) == ("looking", "training")
    assert quality["inception_score"]["mean"] == pytest.approx(both["inception_score"]["mean"], rel=0.02)
    assert quality["manifold"]["precision"] > 0.8


@pytest.mark.slow
def test_what_was_computed_is_kept(tmp_path, monkeypatch):
    first = tiny_evaluation(cache=Cache(tmp_path)).metrics
    monkeypatch.setattr(classifiers, "train_classifier", None)
    monkeypatch.setattr(domain_classifier, "_train", None)
    again = tiny_evaluation(cache=Cache(tmp_path)).metrics
    assert again["classifiers"] == first["classifiers"]
    assert again["quality"]["inception_score"]["mean"] == pytest.approx(first["quality"]["inception_score"]["mean"])
    train = real("train")
    with pytest.raises(TypeError):  # Other data, so computed: by what is None here.
        tiny_evaluation(train.images[:-1], train.labels[:-1], cache=Cache(tmp_path), metrics=("classifiers",))


def test_larger_images_are_measured_on_fewer_records():
    quick, default, full = (context.EFFORTS[name] for name in ("quick", "default", "full"))
    small, large = (28, 28, 1), (64, 64, 3)
    largest_train = classifiers.largest_train
    assert largest_train(default, "lda", (8, 8, 1)) == largest_train(default, "lda", small) == 60_000
    assert largest_train(default, "lda", large) * 64 * 64 * 3 <= 60_000 * 784
    assert largest_train(default, "cnn", large) == 60_000 and largest_train(quick, "cnn", large) == 1_000
    assert {largest_train(full, name, large) for name in classifiers.CLASSIFIERS} == {None}


def test_the_schema_knows_every_protocol():
    assert tuple(SCHEMA["properties"]["utility"]["properties"]["protocol_name"]["enum"]) == PROTOCOLS


def test_progress_names_every_part(tmp_path):
    stream = io.StringIO()
    train = real("train")
    evaluate.evaluate(lambda seed: (train.images, train.labels), train, real("test"), effort=TINY, source="", varied="",
                      metrics=("quality",), cache=Cache(tmp_path),
                      progress=Progress(stream=stream, detail="verbose", clock=itertools.count().__next__))
    lines = [line for line in stream.getvalue().splitlines() if line.startswith("measure:") and "epoch" not in line]
    assert [line.split(";")[0].split(": ")[1] for line in lines] == [
        "domain classifier", "features, synthetic data", "features, real data", "precision, recall, density, coverage",
        "nearest real records", "pca picture", "tsne picture"]


def test_progress_tells_how_far_the_trainings_are_and_what_they_will_take(tmp_path):
    stream = io.StringIO()
    train = real("train")
    evaluate.evaluate(lambda seed: (train.images, train.labels), train, real("test"), effort=TINY, source="",
                      varied="", metrics=("utility",), cache=Cache(tmp_path),
                      progress=Progress(stream=stream, detail="verbose", clock=itertools.count().__next__))
    told = [line for line in stream.getvalue().splitlines() if "epoch" in line]
    assert [line.split("; ")[0].removeprefix("measure: utility, ") for line in told][:4] == [
        "synthetic data, classifier 1 of 2, epoch 1 of 2", "synthetic data, classifier 1 of 2, epoch 2 of 2",
        "synthetic data, classifier 2 of 2, epoch 1 of 2", "synthetic data, classifier 2 of 2, epoch 2 of 2"]
    assert all(line.endswith(" left") and "not known" not in line for line in told)


@pytest.mark.parametrize("change, message", [
    (lambda x, y: (x[:, :4], y), r"one shape, got \[4, 8, 1\] and \[8, 8, 1\]"),
    (lambda x, y: (np.where(np.arange(len(x))[:, None, None, None] == 7, np.nan, x / 255), y), "finite images"),
    (lambda x, y: (x[y != 4], y[y != 4]), "every class of the real data, got none of class 4"),
    (lambda x, y: (x, y[:-1]), r"labels of shape \[1438\], one per image, got \[1437\]"),
    (lambda x, y: (x, y + 1), r"labels in \[0, 10\), got 10"),
    (lambda x, y: (x, y / 1.0), "integer labels, got dtype float64"),
    (lambda x, y: (x[:0], y[:0]), "at least one record"),
])
def test_bad_samples_are_refused_before_anything_is_computed(change, message):
    with pytest.raises(DataError, match=message):
        tiny_evaluation(*change(real("train").images, real("train").labels))


def test_bad_requests_are_refused():
    with pytest.raises(InvalidArgumentError, match="metric='beauty'"):
        tiny_evaluation(metrics=("beauty",))
    with pytest.raises(DataError, match="inception_weights=nowhere.h5"):
        tiny_evaluation(metrics=("quality",), inception_weights="nowhere.h5")


@pytest.mark.parametrize("shape, names, message", [
    ((8, 8, 1), "abc", None),
    ((8, 8, 1), "012", None),  # Numbers are no names: any three classes may be meant.
    ((8, 12, 1), "abc", r"\[8, 8, 1\] of records and \[8, 12, 1\]. .* --image_size 8x12 --color grey brings"),
    ((8, 8, 3), "abc", r"--image_size 8x8 --color rgb"),
    ((8, 8, 1), "acb", r"the 3 classes of the synthetic images, a, c, b, got 3 of records: a, b, c. .* --classes"),
    ((8, 8, 1), "0123", r"4 classes .* 0, 1, 2, 3, got 3 of records"),
])
def test_other_classes_or_sizes_than_the_images_are_refused(shape, names, message):
    test = as_dataset(np.zeros((3, 8, 8, 1), np.uint8), [0, 1, 2], name="records", class_names=("a", "b", "c"))
    if message is None:
        evaluate.check_alike(test, shape, names)
        return
    with pytest.raises(DataError, match=message):
        evaluate.check_alike(test, shape, names)
