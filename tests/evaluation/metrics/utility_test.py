"""The utility protocol: learns what there is to learn, and nothing from the test data but the final number."""

import csv
import dataclasses
import json

import numpy as np
import pytest
import tensorflow as tf

from datalens_tf.cli import command_parser
from datalens_tf.data.datasets import as_dataset, to_unit
from datalens_tf.data.registry import load_dataset
from datalens_tf.errors import DataError, InvalidArgumentError
from datalens_tf.evaluation.metrics.utility import evaluate_draws
from datalens_tf.training.classifier import FROZEN, PAPER, PROTOCOLS, paper_classifier, protocol, train_on_synthetic


@pytest.fixture(scope="module")
def digits():
    return load_dataset("digits"), load_dataset("digits", split="test")


def evaluated(images, labels, test, **options):
    """The section of the same synthetic records for every seed."""
    return evaluate_draws(lambda seed: (images, labels), test, **options)


def test_network_is_the_papers():
    model = paper_classifier((28, 28, 1), 10)
    kinds = [type(layer).__name__ for layer in model.layers]
    assert kinds == ["Conv2D", "MaxPooling2D", "Dropout", "Conv2D", "Dropout", "Flatten", "Dense", "Dense"]
    assert [layer.rate for layer in model.layers if hasattr(layer, "rate")] == [0.2, 0.25]
    # 5x5 = (28 - 2) / 2 - 2 = 11 squared positions of 64 channels into dense 64.
    assert [int(np.prod(weight.shape)) for weight in model.weights] == [
        9 * 32, 32, 9 * 32 * 64, 64, 11 * 11 * 64 * 64, 64, 64 * 10, 10]


def test_real_digits_teach_the_digits(digits):
    train, test = digits
    result = train_on_synthetic(train.images, train.labels, test.images, test.labels, 10, epochs=20)
    assert result.accuracy > 0.85
    assert (result.num_synthetic, result.num_test, result.epochs) == (1438, 359, 20)
    counts = np.bincount(test.labels)
    assert np.dot(result.per_class_accuracy, counts) / counts.sum() == pytest.approx(result.accuracy)


@pytest.mark.slow
@pytest.mark.parametrize("name", ["condensed", "residual"])
def test_real_digits_teach_other_networks(digits, tmp_path, name):
    train, test = digits
    result = train_on_synthetic(train.images, train.labels, test.images, test.labels, 10, epochs=8, state_dir=tmp_path,
                                protocol=dataclasses.replace(protocol(name, "digits"), batch_size=32, fast=False))
    assert result.accuracy > 0.7 and len(result.epoch_accuracies) == 8
    assert result.accuracy == pytest.approx(result.epoch_accuracies[-1], abs=1e-6)


def test_labels_without_meaning_teach_nothing(digits):
    train, test = digits
    labels = np.random.default_rng(0).permutation(train.labels)
    assert train_on_synthetic(train.images, labels, test.images, test.labels, 10).accuracy < 0.3


def test_the_seed_decides_and_bytes_equal_their_floats(digits):
    train, test = digits

    def accuracies(images, seed):
        result = train_on_synthetic(images, train.labels, test.images, test.labels, 10, epochs=2, seed=seed)
        return result.per_class_accuracy

    tf.random.set_seed(1)
    first = accuracies(train.images, 3)
    tf.random.set_seed(2)
    assert accuracies(to_unit(train.images), 3) == pytest.approx(first, abs=0.06)  # two or three records of a class
    assert accuracies(train.images, 4) != pytest.approx(first, abs=0.06)


def test_initial_weights_follow_the_seed_alone():
    def weights(seed):
        return np.concatenate([weight.numpy().ravel() for weight in paper_classifier((8, 8, 1), 10, seed).weights])

    np.testing.assert_array_equal(weights(0), weights(0))
    assert not np.array_equal(weights(0), weights(1))


def test_training_sees_no_test_record(digits):
    train, test = digits
    history = []
    callback = tf.keras.callbacks.LambdaCallback(on_epoch_end=lambda epoch, logs: history.append(logs))
    result = train_on_synthetic(train.images, train.labels, test.images, (test.labels + 1) % 10, 10, epochs=6,
                                callbacks=[callback])
    assert [set(logs) for logs in history] == [{"loss", "accuracy"}] * 6
    assert history[-1]["accuracy"] > 0.5 and result.accuracy < 0.3


def test_classes_without_test_records_have_no_accuracy(digits):
    train, test = digits
    some = test.labels < 5
    result = train_on_synthetic(train.images, train.labels, test.images[some], test.labels[some], 10, epochs=1)
    assert result.per_class_accuracy[5:] == (None,) * 5 and None not in result.per_class_accuracy[:5]


def test_metrics_of_several_seeds(digits):
    train, test = digits
    metrics = json.loads(json.dumps(
        evaluated(train.images[:300], train.labels[:300], test, seeds=(0, 1, 2), epochs=1), allow_nan=False))
    accuracies = [run["accuracy"] for run in metrics["per_seed"]]
    assert [run["seed"] for run in metrics["per_seed"]] == [0, 1, 2]
    assert metrics["accuracy_mean"] == pytest.approx(np.mean(accuracies))
    assert metrics["accuracy_std"] == pytest.approx(np.std(accuracies, ddof=1))
    assert (metrics["dataset"], metrics["num_synthetic"], metrics["num_test"]) == ("digits", 300, 359)
    assert not metrics["follows_protocol"]
    assert "not" in metrics["privacy_note"] and "last epoch" in metrics["protocol"]
    assert evaluated(train.images[:300], train.labels[:300], test, epochs=1)["accuracy_std"] is None


def test_labels_that_are_not_uniform_do_not_follow_a_protocol(digits):
    train, test = digits
    short = dataclasses.replace(FROZEN, num_synthetic=300)
    even = np.concatenate([np.flatnonzero(train.labels == label)[:30] for label in range(10)])
    for chosen, uniform in ((even, True), (np.r_[even[:280], even[:20]], False)):
        found = evaluated(train.images[chosen], train.labels[chosen], test, protocol=short)
        assert found["follows_protocol"] == found["uniform_labels"] == uniform


def test_the_papers_protocol_continues_where_it_was_interrupted(digits, tmp_path):
    train, test = digits
    short = dataclasses.replace(PAPER, learning_rate=0.1, epochs=4)
    seen = []

    class Stop(Exception):
        pass

    def count(epoch, logs):
        seen.append(epoch)
        if len(seen) == 3:
            raise Stop

    def run(images=train.images):
        return evaluated(images, train.labels, test, protocol=short, state_dir=tmp_path,
                                callbacks=[tf.keras.callbacks.LambdaCallback(on_epoch_begin=count)])

    with pytest.raises(Stop):
        run()
    metrics = run()
    assert next(tmp_path.iterdir()).name.endswith("_bfloat16") == metrics["protocol"].endswith("in bfloat16")
    assert seen == [0, 1, 2, 2, 3] and metrics["epochs"] == 4 and metrics["protocol_name"] == "paper"
    assert "Sgd 0.1, batch 512, 4 epochs" in metrics["protocol"] and not metrics["follows_protocol"]
    result, = metrics["per_seed"]
    rows = list(csv.DictReader(next(tmp_path.glob("*/epochs.csv")).open()))
    assert [int(row["epoch"]) for row in rows] == [0, 1, 2, 3]
    assert result["accuracy"] == pytest.approx(float(rows[-1]["val_accuracy"]), abs=1e-6)
    # Of all epochs, before the interruption too.
    assert result["best_epoch_accuracy"] == pytest.approx(max(float(row["val_accuracy"]) for row in rows))
    assert result["epoch_accuracies"] == pytest.approx([float(row["val_accuracy"]) for row in rows])
    assert run()["per_seed"] == metrics["per_seed"] and len(seen) == 5  # It was done.
    seen.clear()
    with pytest.raises(Stop):  # Other images start anew.
        run(train.images[::-1])
    assert seen == [0, 1, 2]


def test_each_data_set_has_the_papers_own_protocol():
    assert protocol("paper", "mnist").epochs == 600 and protocol("paper", "celeba_hair").epochs == 250
    assert protocol("paper-short", "celeba_hair").epochs == protocol("paper-short", "mnist").epochs == 60
    assert [protocol(name, "mnist").name for name in PROTOCOLS] == list(PROTOCOLS)
    flags = {action.dest: action for action in command_parser("evaluate", [])._actions}
    assert flags["protocol"].choices == PROTOCOLS
    assert protocol("condensed", "mnist").epochs == 20 and "conv 128" in protocol("condensed", "mnist").text
    assert protocol("residual", "mnist").epochs == 15 and "ResNet-8" in protocol("residual", "mnist").text
    assert FROZEN.epochs == 10 and FROZEN.num_synthetic == 60_000 and "Adam 0.001, batch 256" in FROZEN.text


@pytest.mark.parametrize("images, labels, message", [
    (np.zeros((4, 12, 8, 1), np.uint8), [0, 1, 0, 1], r"one shape, got \[12, 8, 1\] and \[8, 8, 1\]"),
    (np.zeros((4, 8, 8, 3), np.uint8), [0, 1, 0, 1], r"one shape, got \[8, 8, 3\] and \[8, 8, 1\]"),
    (np.full((4, 8, 8, 1), np.nan), [0, 1, 0, 1], "synthetic data: expected finite images"),
    (np.zeros((4, 8, 8, 1), np.uint8), [0, 1, 0, 10], r"synthetic data: expected labels in \[0, 10\), got 10"),
    (np.zeros((4, 8, 8, 1), np.uint8), [0, 1, 0], "synthetic data: expected labels of shape"),
])
def test_bad_samples_are_refused_before_training(digits, images, labels, message):
    with pytest.raises(DataError, match=message) as caught:
        evaluated(images, labels, digits[1])
    assert "\n" not in str(caught.value)


def test_other_bad_input(digits):
    tiny = as_dataset(np.zeros((4, 4, 4, 1), np.uint8), [0, 1, 0, 1])
    with pytest.raises(DataError, match="at least 8x8"):
        evaluated(tiny.images, tiny.labels, tiny)
    with pytest.raises(DataError, match="real test data: expected labels"):
        train_on_synthetic(digits[0].images, digits[0].labels % 3, digits[1].images, digits[1].labels, 3)
    with pytest.raises(InvalidArgumentError, match="seeds"):
        evaluated(digits[0].images, digits[0].labels, digits[1], seeds=())
    with pytest.raises(InvalidArgumentError, match="epochs=0 >= 1"):
        evaluated(digits[0].images, digits[0].labels, digits[1], epochs=0)
