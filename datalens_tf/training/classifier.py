"""The paper's classifier: it judges and chooses synthetic data, and it learns from public queries.

It is trained on synthetic (or public) images alone; `evaluation.metrics.utility` says how it does on real ones.
"""

import dataclasses
import functools
import pathlib
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import tensorflow as tf

from datalens_tf import _validate, rng
from datalens_tf.data.datasets import CHUNK, Dataset, as_dataset, padded, to_unit
from datalens_tf.errors import DataError
from datalens_tf.models.places import anywhere
from datalens_tf.training.batches import Batches, ShuffledBatches
from datalens_tf.training.condensed import CONDENSED_TEXT, condensed_classifier, condensed_optimizer
from datalens_tf.training.fast_precision import ByteDropout, fast_precision
from datalens_tf.training.residual import RESIDUAL_TEXT, residual_classifier, residual_optimizer

_NETWORK = "conv 32 3x3 - max-pool - dropout 0.2 - conv 64 3x3 - dropout 0.25 - dense 64 - softmax; "
_AS_RELEASED = "pixel values as released, no augmentation, "


@dataclasses.dataclass(frozen=True, kw_only=True)
class Protocol:
    """A protocol that says how the classifier is trained. Numbers of different protocols cannot be compared.

    Attributes:
      name: name of the protocol.
      optimizer: `adam` or `sgd`, with the learning rate.
      batch_size, epochs: those of the training.
      num_synthetic: how many synthetic images the protocol asks for.
      every_epoch: whether the classifier is tested after every epoch, too. The best of these is chosen on test data.
      network: `paper`; `condensed`, that of condensed data sets, with its augmentation; or `residual`, ResNet-8.
      fast: whether the network computes in bfloat16, its weights in float32, on processors that multiply it; not the
        network `residual`.
    """

    name: str
    optimizer: str
    learning_rate: float
    batch_size: int
    epochs: int
    num_synthetic: int
    every_epoch: bool = False
    network: str = "paper"
    fast: bool = False

    @property
    def precision(self) -> str:
        """Keras' policy for the layers, on this machine."""
        return fast_precision() if self.fast else "float32"

    @property
    def text(self) -> str:
        """The protocol in one sentence."""
        network, pixels = {"paper": (_NETWORK, _AS_RELEASED), "condensed": (CONDENSED_TEXT, ""),
                           "residual": (RESIDUAL_TEXT, _AS_RELEASED)}[self.network]
        return (f"{network}{self.optimizer.capitalize()} {self.learning_rate:g}, batch {self.batch_size}, "
                f"{self.epochs} epochs, {self.num_synthetic:,} synthetic images with uniform labels, {pixels}last "
                f"epoch, real test split once{'' if self.precision == 'float32' else ', in bfloat16'}")

    def model(self, image_shape: tuple[int, int, int], num_classes: int, seed: int, num_steps: int) -> tf.keras.Model:
        """The classifier, compiled, for a training of so many steps."""
        networks: dict[str, tuple[Callable[..., tf.keras.Model], Callable[..., tf.keras.optimizers.Optimizer]]] = {
            "paper": (functools.partial(paper_classifier, precision=self.precision),
                      lambda rate, _: tf.keras.optimizers.get(
                          {"class_name": self.optimizer, "config": {"learning_rate": rate}})),
            "condensed": (functools.partial(condensed_classifier, precision=self.precision), condensed_optimizer),
            "residual": (residual_classifier, residual_optimizer)}
        made, optimizer = networks[self.network]
        model = made(image_shape, num_classes, seed)
        model.compile(optimizer(self.learning_rate, num_steps),
                      tf.keras.losses.SparseCategoricalCrossentropy(from_logits=True), metrics=["accuracy"])
        return model


# The headline everywhere: docs/reference/metrics.md.
FROZEN = Protocol(name="frozen", optimizer="adam", learning_rate=1e-3, batch_size=256, epochs=10,
                  num_synthetic=60_000)
# What the DataLens paper did, except that it reports the best of all epochs on the test data.
PAPER = Protocol(name="paper", optimizer="sgd", learning_rate=2e-3, batch_size=512, epochs=600,
                 num_synthetic=100_000, every_epoch=True, fast=True)
PAPER_CELEBA = Protocol(name="paper", optimizer="sgd", learning_rate=1e-4, batch_size=256, epochs=250,
                        num_synthetic=100_000, every_epoch=True, fast=True)
# The same in a tenth of the epochs, with a learning rate ten times as large.
PAPER_SHORT = Protocol(name="paper-short", optimizer="sgd", learning_rate=0.02, batch_size=512, epochs=60,
                       num_synthetic=100_000, every_epoch=True)
# The protocol for condensed data sets, with as many images and epochs as suit data sets of any size.
CONDENSED = Protocol(name="condensed", optimizer="sgd", learning_rate=0.01, batch_size=256, epochs=20,
                     num_synthetic=60_000, every_epoch=True, network="condensed", fast=True)
# A small residual network, where benchmarks take the mean of three large ones: 50 epochs of 1e-4 with batches of 512.
RESIDUAL = Protocol(name="residual", optimizer="adam", learning_rate=1e-3, batch_size=256, epochs=15,
                    num_synthetic=60_000, every_epoch=True, network="residual")
_QUICK_BATCH = 100
_LATEST = 0.01  # share of the latest weights in their moving average
SMALLEST_SIDE = 8  # pixels of an image that the classifier takes


@dataclasses.dataclass(frozen=True, kw_only=True)
class UtilityResult:
    """One classifier, trained on synthetic and tested on real data.

    Attributes:
      accuracy: share of real test records classified right, after the last epoch.
      per_class_accuracy: the same for the records of each class; None for a class without test records.
      num_synthetic, num_test: numbers of records.
      epochs, seed: those of the training.
      epoch_accuracies: accuracy after each epoch; None where only the last epoch was tested.
      probabilities: class probabilities of the test records, float32 [num_test, num_classes].
    """

    accuracy: float
    per_class_accuracy: tuple[float | None, ...]
    num_synthetic: int
    num_test: int
    epochs: int
    seed: int
    epoch_accuracies: tuple[float, ...] | None
    probabilities: np.ndarray

    @property
    def best_epoch_accuracy(self) -> float | None:
        """The largest accuracy of all epochs, thus chosen on test data; None where only the last epoch was tested."""
        return None if self.epoch_accuracies is None else max(self.epoch_accuracies)

    def to_json(self) -> dict[str, Any]:
        """The result without its probabilities, which are one line per real record."""
        return {field.name: getattr(self, field.name) for field in dataclasses.fields(self)
                if field.name != "probabilities"} | {"best_epoch_accuracy": self.best_epoch_accuracy}


# Names of protocols, as the command line takes them.
PROTOCOLS = (FROZEN.name, PAPER.name, PAPER_SHORT.name, CONDENSED.name, RESIDUAL.name)


def protocol(name: str, dataset: str) -> Protocol:
    """The protocol of a name, for a data set; `paper` stands for `PAPER_CELEBA` on CelebA's two tasks."""
    if name == PAPER.name and dataset.startswith("celeba"):
        return PAPER_CELEBA
    return {known.name: known for known in (FROZEN, PAPER, PAPER_SHORT, CONDENSED, RESIDUAL)}[name]


def paper_classifier(image_shape: tuple[int, int, int], num_classes: int, seed: int = 0,
                     precision: str = "float32") -> tf.keras.Model:
    """The paper's classifier (its authors' evaluation code), its initial weights and dropout drawn from the seed.

    Input shape: images [B, H, W, C] in [0, 1]. Output shape: logits float32 [B, num_classes]. In another precision
    than float32, dropout has rates of 51/256 and 64/256.
    """
    layers, policy = tf.keras.layers, tf.keras.mixed_precision.Policy(precision)
    seeds = iter(rng.stream(int(seed), "classifier").integers(0, 2**31, size=6).tolist())

    def weights():
        return tf.keras.initializers.GlorotUniform(seed=next(seeds))

    def dropout(rate):
        if precision != "float32":
            return ByteDropout(rate, next(seeds), dtype=policy)
        # The layer has a generator of its own; with other kinds, TensorFlow's global seed has an influence.
        return layers.Dropout(rate, seed=next(seeds), rng_type="stateful")

    return tf.keras.Sequential([
        layers.Input(image_shape),
        layers.Conv2D(32, 3, activation="relu", kernel_initializer=weights(), dtype=policy),
        layers.MaxPooling2D(dtype=policy),
        dropout(0.2),
        layers.Conv2D(64, 3, activation="relu", kernel_initializer=weights(), dtype=policy),
        dropout(0.25),
        layers.Flatten(dtype=policy),
        layers.Dense(64, activation="relu", kernel_initializer=weights(), dtype=policy),
        layers.Dense(num_classes, kernel_initializer=weights()),
    ])


def train_on_synthetic(images: np.ndarray, labels: np.ndarray, test_images: np.ndarray, test_labels: np.ndarray,
                       num_classes: int, *, epochs: int | None = None, seed: int = 0, protocol: Protocol = FROZEN,
                       state_dir: pathlib.Path | None = None,
                       callbacks: Sequence[tf.keras.callbacks.Callback] = ()) -> UtilityResult:
    """Trains a protocol's classifier on synthetic records and tests it on real ones, once, after the last epoch.

    Args:
      images: synthetic, uint8 or float in [0, 1], [n, H, W, C] or [n, H, W]; pixel values are used as they are.
      labels: integers in [0, num_classes), [n].
      test_images, test_labels: real records, likewise.
      num_classes: number of classes.
      epochs: passes over the synthetic data; by default the protocol's.
      seed: seed of initial weights, order and dropout.
      protocol: how to train.
      state_dir: folder where the training is saved after every epoch, and continued from if it is there; None for none.
      callbacks: Keras callbacks, for progress; under `FROZEN` they see synthetic data only.

    Raises:
      DataError: records that are not valid, or do not fit each other.
    """
    epochs = protocol.epochs if epochs is None else epochs
    _validate.integer("num_classes", num_classes, at_least=2)
    _validate.integer("epochs", epochs, at_least=1)
    _validate.integer("seed", seed, at_least=0)
    synthetic = as_dataset(images, labels, num_classes, name="synthetic data")
    real = as_dataset(test_images, test_labels, num_classes, name="real test data")
    check_fit(synthetic, real)

    batches = ShuffledBatches(synthetic, protocol.batch_size, seed)
    model = protocol.model(real.image_shape, num_classes, seed, epochs * len(batches))
    callbacks, every_epoch = list(callbacks), {}
    if protocol.every_epoch:
        every_epoch = {"validation_data": Batches(real, 1000).stream(), "validation_freq": 1}
    if state_dir is not None:
        state_dir.mkdir(parents=True, exist_ok=True, mode=0o700)
        callbacks += [tf.keras.callbacks.CSVLogger(state_dir / "epochs.csv", append=True),
                      tf.keras.callbacks.BackupAndRestore(state_dir / "state", delete_checkpoint=False)]
    history = model.fit(batches.stream(), epochs=epochs, verbose=0, callbacks=callbacks, **every_epoch).history
    tested = _logged_accuracies(state_dir / "epochs.csv") if every_epoch and state_dir is not None else history.get(
        "val_accuracy", [])

    return tested_result(predict_probabilities(model, real.images), real, num_synthetic=len(synthetic), epochs=epochs,
                   seed=seed, epoch_accuracies=tuple(map(float, tested)) or None)


class QuickClassifier:
    """A small classifier that is trained from the same initial weights again and again, by one compiled step.

    conv 16 5x5/2 - ReLU - dropout 0.2 - conv 32 5x5/2 - ReLU - dropout 0.3 - dense 64 - ReLU - dense; Adam 1e-3, batch
    100. Its final weights are a moving average of those that it had. It has a quarter of the arithmetic of
    `paper_classifier`. It puts sets of images in an order; its numbers cannot be compared with those of a protocol.

    Args:
      image_shape: (H, W, C), H and W at least 8.
      num_classes: Y.
      seed: seed of initial weights, order and dropout.
      places_shift: whether an image's class, to the bit, may not depend on where among others the image is.
    """

    def __init__(self, image_shape: tuple[int, int, int], num_classes: int, seed: int, places_shift: bool = False):
        self._num_classes, self._seed = num_classes, seed
        layers, seeds = tf.keras.layers, iter(rng.stream(seed, "quick classifier").integers(0, 2**31, size=6).tolist())

        def weights():
            return {"kernel_initializer": tf.keras.initializers.GlorotUniform(seed=next(seeds))}

        self._model = tf.keras.Sequential([
            layers.Input(image_shape),
            layers.Conv2D(16, 5, 2, "same", activation="relu", **weights()),
            layers.Dropout(0.2, seed=next(seeds), rng_type="stateful"),
            layers.Conv2D(32, 5, 2, "same", activation="relu", **weights()),
            layers.Flatten(),
            layers.Dropout(0.3, seed=next(seeds), rng_type="stateful"),
            layers.Dense(64, activation="relu", **weights()),
            layers.Dense(num_classes, **weights()),
        ])
        self._optimizer = tf.keras.optimizers.legacy.Adam(1e-3)
        self._optimizer._create_all_weights(self._model.trainable_variables)
        self._averages = [tf.Variable(weight, trainable=False) for weight in self._model.trainable_variables]
        self._state = [*self._model.trainable_variables, *self._optimizer.variables(), *self._averages]
        self._initial = [variable.numpy() for variable in self._state]
        self._step = tf.function(self._train_step, autograph=False, reduce_retracing=True)

        def logits(images):
            return self._model(_unit(images), training=False)

        self._logits = (anywhere(logits, (CHUNK, *image_shape), name="classifiers") if places_shift else
                        tf.function(logits, autograph=False, reduce_retracing=True))

    def fit(self, images: np.ndarray, labels: np.ndarray, epochs: int) -> None:
        """Forgets everything and learns from images uint8 [n, H, W, C] with labels [n]."""
        data = as_dataset(images, labels, self._num_classes, name="synthetic data")
        stream = rng.stream(self._seed, "classifier order")
        for variable, value in zip(self._state, self._initial):
            variable.assign(value)
        for _ in range(epochs):
            order = stream.permutation(len(data))
            for start in range(0, len(data), _QUICK_BATCH):
                chosen = order[start:start + _QUICK_BATCH]
                self._step(tf.constant(data.images[chosen]), tf.constant(data.labels[chosen]))
        for weight, average in zip(self._model.trainable_variables, self._averages):
            weight.assign(average)

    @property
    def network(self) -> tf.keras.Model:
        """The trained network: images float32 in [0, 1] to logits."""
        return self._model

    def weights(self) -> list[np.ndarray]:
        """All learned weights, as arrays."""
        weights: list[np.ndarray] = self._model.get_weights()
        return weights

    def restore(self, weights: Sequence[np.ndarray]) -> None:
        """Takes the `weights` of another classifier for such images."""
        self._model.set_weights(weights)

    def predict(self, images: np.ndarray) -> np.ndarray:
        """The likeliest class of each image uint8 or float in [0, 1], [n, H, W, C]: int64 [n].

        All batches have one shape, so that an image's class does not depend on how many others there are.
        """
        batches = (images[start:start + CHUNK] for start in range(0, len(images), CHUNK))
        return np.concatenate([self._logits(tf.constant(padded(batch, CHUNK))).numpy()[:len(batch)].argmax(1)
                               for batch in batches])

    def _train_step(self, images, labels):
        with tf.GradientTape() as tape:
            logits = self._model(_unit(images), training=True)
            loss = tf.reduce_mean(tf.nn.sparse_softmax_cross_entropy_with_logits(labels, logits))
        weights = self._model.trainable_variables
        self._optimizer.apply_gradients(zip(tape.gradient(loss, weights), weights))
        # The weights that the last step leaves depend on chance, the more so where images are unlike real ones. The
        # average soon forgets the first steps.
        steps = tf.cast(self._optimizer.iterations, tf.float32)
        share = tf.maximum(_LATEST, 10 / (10 + steps))
        for weight, average in zip(weights, self._averages):
            average.assign_add(share * (weight - average))


def _unit(images: tf.Tensor) -> tf.Tensor:
    """`to_unit` in a graph: float32 in [0, 1]."""
    return tf.cast(images, tf.float32) / 255.0 if images.dtype == tf.uint8 else tf.cast(images, tf.float32)


def tested_result(probabilities: np.ndarray, real: Dataset, **facts: Any) -> UtilityResult:
    """Result for the class probabilities of real test records."""
    correct = np.argmax(probabilities, axis=1) == real.labels
    return UtilityResult(
        accuracy=float(correct.mean()), num_test=len(real), probabilities=probabilities,
        per_class_accuracy=tuple(
            float(correct[of_class].mean()) if of_class.any() else None
            for of_class in (real.labels == label for label in range(real.num_classes))), **facts)


def check_fit(synthetic: Dataset, real: Dataset) -> None:
    """Raises DataError unless both have one image shape, large enough for the classifier, and the same classes.

    Real records of a single class are refused as well: there is nothing to tell apart.
    """
    if synthetic.image_shape != real.image_shape:
        raise DataError(f"Expected synthetic and real images of one shape, got {list(synthetic.image_shape)} "
                        f"and {list(real.image_shape)}.")
    if min(real.image_shape[:2]) < SMALLEST_SIDE:
        raise DataError(f"Expected images of at least {SMALLEST_SIDE}x{SMALLEST_SIDE} for the classifier, got "
                        f"{list(real.image_shape)}.")
    missing = np.setdiff1d(real.labels, synthetic.labels)
    if len(missing):
        raise DataError(f"Expected synthetic images of every class of the real data, got none of class {missing[0]}.")
    if len(np.unique(real.labels)) == 1:
        raise DataError(f"Expected real test records of several classes, got {len(real)} of one. Test on more.")


def _logged_accuracies(path: pathlib.Path) -> list[float]:
    """Test accuracies after each epoch, those before an interruption included."""
    import csv

    with open(path, encoding="utf-8") as file:
        return [float(row["val_accuracy"]) for row in csv.DictReader(file)]


def predict_probabilities(model: tf.keras.Model, images: np.ndarray) -> np.ndarray:
    """Softmax of a model's logits for images [n, H, W, C]: float32 [n, Y]."""
    batches = (images[start:start + 1000] for start in range(0, len(images), 1000))
    return np.concatenate([tf.nn.softmax(model(to_unit(batch), training=False)).numpy() for batch in batches])
