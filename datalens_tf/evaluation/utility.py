"""Utility of synthetic images: accuracy on real test data of a classifier that saw synthetic data only."""

import dataclasses
import statistics
from typing import Any, Callable, Sequence

import numpy as np
import tensorflow as tf

from datalens_tf import _validate, rng
from datalens_tf.data import Dataset, as_dataset, to_unit
from datalens_tf.errors import DataError

EPOCHS = 10
NUM_SYNTHETIC = 60_000
BATCH_SIZE = 256
LEARNING_RATE = 1e-3

PROTOCOL = (
    "conv 32 3x3 - max-pool - dropout 0.2 - conv 64 3x3 - dropout 0.25 - dense 64 - softmax; Adam 1e-3, batch 256, "
    "10 epochs, 60,000 synthetic images with uniform labels, pixel values as released, no augmentation, last epoch, "
    "real test split once")
PRIVACY_NOTE = (
    "Measured on real test records: epsilon does not cover these numbers. Settings chosen by them are not private "
    "with regard to those records.")


@dataclasses.dataclass(frozen=True, kw_only=True)
class UtilityResult:
    """One classifier, trained on synthetic and tested on real data.

    Attributes:
      accuracy: share of real test records classified right, after the last epoch.
      per_class_accuracy: the same for the records of each class; None for a class without test records.
      num_synthetic, num_test: numbers of records.
      epochs, seed: of the training.
    """

    accuracy: float
    per_class_accuracy: tuple[float | None, ...]
    num_synthetic: int
    num_test: int
    epochs: int
    seed: int


def paper_classifier(image_shape: tuple[int, int, int], num_classes: int, seed: int = 0) -> tf.keras.Model:
    """The paper's classifier (SPEC section 8), its initial weights and dropout drawn from the seed.

    Input shape: images [B, H, W, C] in [0, 1]. Output shape: logits [B, num_classes].
    """
    layers = tf.keras.layers
    seeds = iter(rng.stream(int(seed), "classifier").integers(0, 2**31, size=6).tolist())

    def weights():
        return tf.keras.initializers.GlorotUniform(seed=next(seeds))

    def dropout(rate):
        # A generator of its own: with other kinds TensorFlow's global seed has a say.
        return layers.Dropout(rate, seed=next(seeds), rng_type="stateful")

    return tf.keras.Sequential([
        layers.Input(image_shape),
        layers.Conv2D(32, 3, activation="relu", kernel_initializer=weights()),
        layers.MaxPooling2D(),
        dropout(0.2),
        layers.Conv2D(64, 3, activation="relu", kernel_initializer=weights()),
        dropout(0.25),
        layers.Flatten(),
        layers.Dense(64, activation="relu", kernel_initializer=weights()),
        layers.Dense(num_classes, kernel_initializer=weights()),
    ])


def train_on_synthetic(images: np.ndarray, labels: np.ndarray, test_images: np.ndarray, test_labels: np.ndarray,
                       num_classes: int, *, epochs: int = EPOCHS, seed: int = 0,
                       callbacks: Sequence[tf.keras.callbacks.Callback] = ()) -> UtilityResult:
    """Trains the paper's classifier on synthetic records and tests it on real ones, once, after the last epoch.

    Args:
      images: synthetic, uint8 or float in [0, 1], [n, H, W, C] or [n, H, W]; pixel values are used as they are.
      labels: integers in [0, num_classes), [n].
      test_images, test_labels: real records, likewise.
      num_classes: number of classes.
      epochs: passes over the synthetic data.
      seed: of initial weights, order and dropout.
      callbacks: of Keras, for progress; they see synthetic data only.

    Raises:
      DataError: records that are not what they must be, or do not fit each other.
    """
    _validate.integer("num_classes", num_classes, at_least=2)
    _validate.integer("epochs", epochs, at_least=1)
    _validate.integer("seed", seed, at_least=0)
    synthetic = as_dataset(images, labels, num_classes, name="synthetic data")
    real = as_dataset(test_images, test_labels, num_classes, name="real test data")
    if synthetic.image_shape != real.image_shape:
        raise DataError(f"Expected synthetic and real images of one shape, got {list(synthetic.image_shape)} "
                        f"and {list(real.image_shape)}.")
    if min(real.image_shape[:2]) < 8:
        raise DataError(f"Expected images of at least 8x8 for the classifier, got {list(real.image_shape)}.")

    model = paper_classifier(real.image_shape, num_classes, seed)
    model.compile(tf.keras.optimizers.Adam(LEARNING_RATE),
                  tf.keras.losses.SparseCategoricalCrossentropy(from_logits=True), metrics=["accuracy"])
    model.fit(_ShuffledBatches(synthetic, seed), shuffle=False, epochs=epochs, verbose=0, callbacks=list(callbacks))

    correct = _predict(model, real.images) == real.labels
    return UtilityResult(
        accuracy=float(correct.mean()), epochs=epochs, seed=seed, num_synthetic=len(synthetic), num_test=len(real),
        per_class_accuracy=tuple(
            float(correct[of_class].mean()) if of_class.any() else None
            for of_class in (real.labels == label for label in range(num_classes))))


def evaluate_utility(samples_x: np.ndarray, samples_y: np.ndarray, test: Dataset, *, seeds: Sequence[int] = (0,),
                     epochs: int = EPOCHS,
                     callbacks: Sequence[tf.keras.callbacks.Callback] = ()) -> dict[str, Any]:
    """`train_on_synthetic` once per classifier seed, as a dictionary for `metrics.json`.

    `accuracy_std` is the sample standard deviation over the seeds, None for a single one. `follows_protocol` says
    whether records and epochs are those of the frozen protocol, so that other numbers are not taken for it.

    Args:
      samples_x: synthetic images, uint8 or float in [0, 1], [n, H, W, C].
      samples_y: their labels, [n].
      test: real test records.
      seeds: of the classifier; not of the generator.
      epochs: passes over the synthetic data.
      callbacks: of Keras, for progress; they see synthetic data only.

    Raises:
      DataError: records that are not what they must be, or do not fit each other.
    """
    return evaluate_draws(lambda seed: (samples_x, samples_y), test, seeds=seeds, epochs=epochs, callbacks=callbacks)


def evaluate_draws(draw: Callable[[int], tuple[np.ndarray, np.ndarray]], test: Dataset, *, seeds: Sequence[int] = (0,),
                   epochs: int = EPOCHS, callbacks: Sequence[tf.keras.callbacks.Callback] = ()) -> dict[str, Any]:
    """`evaluate_utility` with new synthetic records for every seed.

    Args:
      draw: seed -> images and labels, as for `train_on_synthetic`.
      test, epochs, callbacks: as for `evaluate_utility`.
      seeds: of the draw and of the classifier.

    Raises:
      DataError: records that are not what they must be, or do not fit each other.
    """
    _validate.require(len(seeds) > 0, "seeds", tuple(seeds), "to name at least one seed")
    results = [train_on_synthetic(*draw(seed), test.images, test.labels, test.num_classes, epochs=epochs, seed=seed,
                                  callbacks=callbacks) for seed in seeds]
    accuracies = [result.accuracy for result in results]
    return {
        "dataset": test.name,
        "accuracy_mean": statistics.fmean(accuracies),
        "accuracy_std": statistics.stdev(accuracies) if len(accuracies) > 1 else None,
        "per_seed": [dataclasses.asdict(result) for result in results],
        "num_synthetic": results[0].num_synthetic,
        "num_test": results[0].num_test,
        "epochs": epochs,
        "protocol": PROTOCOL,
        "follows_protocol": epochs == EPOCHS and results[0].num_synthetic == NUM_SYNTHETIC,
        "privacy_note": PRIVACY_NOTE,
    }


class _ShuffledBatches(tf.keras.utils.Sequence):
    """Batches in a new order every epoch. Records stay as they are stored, scaled batch by batch: uint8 is 4x less."""

    def __init__(self, dataset: Dataset, seed: int):
        self._dataset, self._stream = dataset, rng.stream(int(seed), "classifier order")
        self.on_epoch_end()

    def __len__(self):
        return -(-len(self._dataset) // BATCH_SIZE)

    def __getitem__(self, index):
        chosen = self._order[index * BATCH_SIZE:(index + 1) * BATCH_SIZE]
        return to_unit(self._dataset.images[chosen]), self._dataset.labels[chosen]

    def on_epoch_end(self):
        self._order = self._stream.permutation(len(self._dataset))


def _predict(model: tf.keras.Model, images: np.ndarray) -> np.ndarray:
    """Predicted labels, int64 [n]."""
    batches = (images[start:start + 1000] for start in range(0, len(images), 1000))
    return np.concatenate([np.argmax(model(to_unit(batch), training=False), axis=1) for batch in batches])
