"""Utility of synthetic images: accuracy on real test data of a classifier that saw synthetic data only."""

import pathlib
import statistics
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import tensorflow as tf

from datalens_tf import _validate
from datalens_tf.data.datasets import Dataset, as_dataset
from datalens_tf.data.identity import Fingerprint
from datalens_tf.evaluation import charts
from datalens_tf.evaluation.cache import Cache, data_key
from datalens_tf.evaluation.context import Context, Section
from datalens_tf.evaluation.records import subset
from datalens_tf.evaluation.verdict import balanced, verdict
from datalens_tf.training.classifier import FROZEN, Protocol, UtilityResult, tested_result, train_on_synthetic

SUMMARY = "accuracy on real data after training on synthetic data"
POSITION = 1
NEEDS_TRAIN = False

# Of a network that learns from 600,000 images of 28 x 28 pixels, on one core of an AMD EPYC.
_SECONDS = {"paper": 130.0, "condensed": 500.0, "residual": 320.0}
_MOST_EPOCHS = 100  # of the classifier of real records

PRIVACY_NOTE = (
    "Measured on real test records: epsilon does not cover these numbers. Settings chosen by them are not private "
    "with regard to those records.")


def costs(context: Context) -> list[float]:
    """Seconds of each part; see `registry.Metric`. Those of real data are as many as of one synthetic classifier."""
    protocol, effort = context.protocol, context.effort
    height, width, _ = context.test.image_shape
    images = (context.epochs or protocol.epochs) * (effort.num_synthetic or protocol.num_synthetic)
    one = _SECONDS[protocol.network] * images / 600_000 * height * width / 784
    return [len(context.seeds) * one] + [one] * _asks_real(context)


def compute(context: Context) -> Section:
    """The headline: training on synthetic data, and the same training on real data where there is some."""
    test, stages = context.test, context.stages

    def cut(records):
        images, labels = records
        dataset = as_dataset(images, labels, test.num_classes, name="synthetic data")
        dataset = subset(dataset, context.effort.num_synthetic, 0)
        return dataset.images, dataset.labels

    values = stages.run("utility, synthetic data", lambda: evaluate_draws(
        lambda seed: cut(context.draw(seed)), test, seeds=context.seeds, epochs=context.epochs,
        protocol=context.protocol, state_dir=context.state_dir, cache=context.cache,
        callbacks=stages.keras_callbacks(len(context.seeds))))
    if _asks_real(context):
        images, labels = cut((context.real.images, context.real.labels))
        # As many steps as for synthetic images: a few epochs of few records would teach less than the records hold.
        epochs = max(values["epochs"], min(_MOST_EPOCHS, -(-values["epochs"] * values["num_synthetic"] // len(labels))))
        real = stages.run("utility, real data", lambda: train_or_recall(
            images, labels, test, context.cache, epochs=epochs, callbacks=stages.keras_callbacks()))
        of_real = balanced(confusion_matrix(test.labels, real.probabilities), test.class_names)
        values["real"] = {"accuracy": real.accuracy, "num_train": real.num_synthetic, "epochs": real.epochs,
                          "seed": real.seed,
                          # At least one record counts as right: with few records, none may be.
                          "calibrated": values["accuracy_mean"] / max(real.accuracy, 1 / real.num_test),
                          "balanced_accuracy": of_real["balanced_accuracy"],
                          "auroc_macro": roc_curves(test, [real.probabilities])["auroc_macro"]}
    values["varied"] = context.varied
    values["verdict"] = verdict(values)
    by_epoch = [of_seed["epoch_accuracies"] for of_seed in values["per_seed"] if of_seed["epoch_accuracies"]]
    return Section(values=values, charts=({"epochs": charts.epochs_chart(by_epoch)} if by_epoch else {}) | {
        "confusion": charts.confusion_chart(values["confusion_matrix"], test.class_names),
        "roc": charts.roc_chart(values["roc_curves"], values["auroc_per_class"], test.class_names)})


def headline(values: dict[str, Any]) -> str:
    """Line for the terminal; see `registry.Metric`."""
    spread = "" if values["accuracy_std"] is None else f" +- {values['accuracy_std']:.4f}"
    return (f"accuracy {values['accuracy_mean']:.4f}{spread} on {values['num_test']} real test records of "
            f"{values['dataset']}, {len(values['per_seed'])} classifier(s)"
            + ("" if values["follows_protocol"] else ", not by the full protocol") + f"\nverdict  {values['verdict']}")


def _asks_real(context: Context) -> bool:
    """Whether the same classifier is trained on real data as well."""
    return context.train is not None and context.protocol.name == FROZEN.name


def train_or_recall(images: np.ndarray, labels: np.ndarray, test: Dataset, cache: Cache | None, *,
                    epochs: int | None = None, seed: int = 0,
                    callbacks: Sequence[tf.keras.callbacks.Callback] = ()) -> UtilityResult:
    """Result of `train_on_synthetic` by the frozen protocol, from the cache if it was found before on the same data."""
    def train():
        return train_on_synthetic(images, labels, test.images, test.labels, test.num_classes, epochs=epochs, seed=seed,
                                  callbacks=callbacks)

    if cache is None:
        return train()
    epochs = FROZEN.epochs if epochs is None else epochs
    key = {"what": "utility", "data": [Fingerprint(labels, images).digest(), *data_key(test)], "epochs": epochs,
           "seed": int(seed), "protocol": FROZEN.text, "tensorflow": tf.__version__}
    probabilities, = cache.arrays(key, lambda: [train().probabilities])
    return tested_result(probabilities, test, num_synthetic=len(images), epochs=epochs, seed=seed,
                         epoch_accuracies=None)


def evaluate_draws(draw: Callable[[int], tuple[np.ndarray, np.ndarray]], test: Dataset, *, seeds: Sequence[int] = (0,),
                   epochs: int | None = None, protocol: Protocol = FROZEN, state_dir: pathlib.Path | None = None,
                   cache: Cache | None = None, callbacks: Sequence[tf.keras.callbacks.Callback] = ()) -> dict[str, Any]:
    """`train_on_synthetic` once per seed, as the section `utility` of `metrics.json`.

    `accuracy_std` is the sample standard deviation over the seeds, None for a single one. `follows_protocol` says
    whether records and epochs are those of the protocol, so that other numbers are not taken for the protocol's. The
    confusion matrix is summed over the seeds. Areas under ROC curves are averaged over the seeds, and the curves are
    those of the first seed.

    Args:
      draw: seed -> synthetic images and labels, as for `train_on_synthetic`.
      test: real test records.
      seeds: of the draw and of the classifier; not of the training of the generator.
      epochs, protocol, callbacks: as for `train_on_synthetic`.
      state_dir: as for `train_on_synthetic`, with one folder in it per seed and set of records.
      cache: has what was found before; used under `FROZEN` only.

    Raises:
      DataError: records that are not what they must be, or do not fit each other.
    """
    _validate.require(len(seeds) > 0, "seeds", tuple(seeds), "to name at least one seed")

    uniform = True

    def trained(seed):
        nonlocal uniform
        images, labels = draw(seed)
        uniform = uniform and _is_uniform(labels, test.num_classes)
        if protocol.name == FROZEN.name:
            as_dataset(images, labels, test.num_classes, name="synthetic data")
            return train_or_recall(images, labels, test, cache, epochs=epochs, seed=seed, callbacks=callbacks)
        # A training goes on in the precision in which it began, or from its start on another processor.
        name = f"seed{seed}_{Fingerprint(labels, images).digest()[:16]}"
        own = state_dir and state_dir / (name if protocol.precision == "float32" else f"{name}_bfloat16")
        return train_on_synthetic(images, labels, test.images, test.labels, test.num_classes, epochs=epochs, seed=seed,
                                  protocol=protocol, state_dir=own, callbacks=callbacks)

    results = [trained(seed) for seed in seeds]
    accuracies = [result.accuracy for result in results]
    confusion = np.sum([confusion_matrix(test.labels, result.probabilities) for result in results], axis=0)
    first = results[0]
    return {
        "dataset": test.name,
        "accuracy_mean": statistics.fmean(accuracies),
        "accuracy_std": statistics.stdev(accuracies) if len(accuracies) > 1 else None,
        "per_seed": [result.to_json() for result in results],
        "num_synthetic": first.num_synthetic,
        "num_test": first.num_test,
        "epochs": first.epochs,
        "protocol": protocol.text,
        "protocol_name": protocol.name,
        "uniform_labels": uniform,
        "follows_protocol": (first.epochs == protocol.epochs and first.num_synthetic == protocol.num_synthetic
                             and uniform),
        "class_names": list(test.class_names),
        "confusion_matrix": confusion.tolist(),
        **balanced(confusion, test.class_names),
        **roc_curves(test, [result.probabilities for result in results]),
        "privacy_note": PRIVACY_NOTE,
    }


def _is_uniform(labels: np.ndarray, num_classes: int) -> bool:
    """Whether all classes have as many labels, to within a tenth of what each would have."""
    return bool(np.ptp(np.bincount(np.ravel(labels), minlength=num_classes)) <= max(1, len(labels) / num_classes / 10))


def confusion_matrix(labels: np.ndarray, probabilities: np.ndarray) -> np.ndarray:
    """int64 [Y, Y]: how many records of each class (rows) were taken for each class (columns)."""
    from sklearn import metrics

    classes = np.arange(probabilities.shape[1])
    return metrics.confusion_matrix(labels, np.argmax(probabilities, axis=1), labels=classes)


ROC_POINTS = 41  # of each curve in metrics.json


def roc_curves(test: Dataset, probabilities: Sequence[np.ndarray]) -> dict[str, Any]:
    """Areas under the one-vs-rest ROC curves, averaged over the classifiers, and the curves of the first."""
    from sklearn import metrics

    present = [label for label in range(test.num_classes) if 0 < np.sum(test.labels == label) < len(test)]
    areas = {label: statistics.fmean(float(metrics.roc_auc_score(test.labels == label, p[:, label]))
                                     for p in probabilities) for label in present}
    grid = np.linspace(0, 1, ROC_POINTS)
    curves: list[list[float] | None] = []
    for label in range(test.num_classes):
        if label not in areas:
            curves.append(None)
            continue
        false_positives, true_positives, _ = metrics.roc_curve(test.labels == label, probabilities[0][:, label])
        curves.append(np.interp(grid, false_positives, true_positives).round(4).tolist())
    return {"auroc_per_class": [areas.get(label) for label in range(test.num_classes)],
            "auroc_macro": statistics.fmean(areas.values()),
            "roc_curves": {"false_positive_rate": grid.tolist(), "true_positive_rate_per_class": curves}}


