"""A classifier of the real data, whose logits and features stand in for Inception's where images are no photographs.

The papers compute Inception Scores of MNIST and Fashion-MNIST with such classifiers.
"""

import dataclasses
from collections.abc import Sequence

import numpy as np
import tensorflow as tf

from datalens_tf import rng
from datalens_tf.data.datasets import Dataset, to_unit
from datalens_tf.evaluation.cache import Cache, data_key
from datalens_tf.training.batches import ShuffledBatches
from datalens_tf.training.fast_precision import fast_precision

BATCH_SIZE = 256
LEARNING_RATE = 2e-3
FEATURES = 128
DROPOUT = 0.05


@dataclasses.dataclass(frozen=True, kw_only=True)
class DomainClassifier:
    """A trained network.

    Attributes:
      model: images [n, H, W, C] in [0, 1] -> logits [n, Y] and features [n, FEATURES].
      test_accuracy: on real test data.
      epochs: number of epochs that it was trained for.
    """

    model: tf.keras.Model
    test_accuracy: float
    epochs: int

    def __call__(self, images: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Logits float32 [n, Y] and features float32 [n, FEATURES] of images uint8 or in [0, 1]."""
        parts = [self.model(to_unit(images[start:start + 500]), training=False)
                 for start in range(0, len(images), 500)]
        return tuple(np.concatenate([part[index].numpy() for part in parts]) for index in range(2))


def domain_classifier(train: Dataset, test: Dataset, *, epochs: int, cache: Cache,
                      callbacks: Sequence[tf.keras.callbacks.Callback] = ()) -> DomainClassifier:
    """Trains the classifier on real records, or takes it from the cache.

    Args:
      train, test: real records. The network never learns from test records.
      epochs: of the training.
      cache: where to look and to store.
      callbacks: of Keras, for progress.
    """
    model = _network(train)
    # Raise the version with every change of the network or its training, so that older networks are not taken for it.
    key = {"what": "domain_classifier", "version": 6, "data": data_key(train), "epochs": epochs,
           "precision": fast_precision(), "tensorflow": tf.__version__}

    def trained():
        _train(model, train, epochs, callbacks)
        return model.get_weights()

    model.set_weights(cache.arrays(key, trained))
    classifier = DomainClassifier(model=model, test_accuracy=0.0, epochs=epochs)
    accuracy = float(np.mean(np.argmax(classifier(test.images)[0], axis=1) == test.labels))
    return dataclasses.replace(classifier, test_accuracy=accuracy)


def _network(train: Dataset) -> tf.keras.Model:
    """Convolutions with batch normalisation at three resolutions, then a dense layer: the features."""
    layers, policy = tf.keras.layers, tf.keras.mixed_precision.Policy(fast_precision())
    seeds = iter(rng.stream(0, "domain classifier").integers(0, 2**31, size=16).tolist())

    def block(x, filters):
        weights = tf.keras.initializers.HeNormal(seed=next(seeds))
        x = layers.Conv2D(filters, 3, padding="same", use_bias=False, kernel_initializer=weights, dtype=policy)(x)
        return layers.ReLU(dtype=policy)(layers.BatchNormalization(momentum=0.9, dtype=policy)(x))

    x = inputs = layers.Input(train.image_shape)
    for filters, repeats in ((32, 1), (64, 2), (128, 1)):
        for _ in range(repeats):
            x = block(x, filters)
        x = layers.MaxPooling2D(dtype=policy)(x)
    x = layers.Dropout(DROPOUT, seed=next(seeds))(layers.Flatten()(x))
    x = features = layers.Dense(FEATURES, "relu",
                                kernel_initializer=tf.keras.initializers.HeNormal(seed=next(seeds)))(x)
    x = layers.Dropout(DROPOUT, seed=next(seeds))(x)
    logits = layers.Dense(train.num_classes,
                          kernel_initializer=tf.keras.initializers.GlorotUniform(seed=next(seeds)))(x)
    return tf.keras.Model(inputs, (logits, features))


class ShiftedBatches(ShuffledBatches):
    """Batches that are moved by up to one pixel in each direction, edges repeated."""

    def __init__(self, dataset: Dataset, batch_size: int, seed: int):
        super().__init__(dataset, batch_size, seed)
        self._shifts = rng.stream(seed, "shifts")

    def __iter__(self):
        for images, labels in super().__iter__():
            height, width = images.shape[1:3]
            top, left = np.array([0, 1, 1, 2])[self._shifts.integers(0, 4, 2)]  # Along each axis, half of them stay.
            padded = np.pad(images, ((0, 0), (1, 1), (1, 1), (0, 0)), mode="edge")
            yield padded[:, top:top + height, left:left + width], labels


def _train(model: tf.keras.Model, train: Dataset, epochs: int, callbacks) -> None:
    """Adam with a decaying rate, on images that are moved by up to a pixel."""
    logits = tf.keras.Model(model.input, model.output[0])
    rate = tf.keras.optimizers.schedules.CosineDecay(LEARNING_RATE, epochs * -(-len(train) // BATCH_SIZE))
    logits.compile(tf.keras.optimizers.Adam(rate), tf.keras.losses.SparseCategoricalCrossentropy(from_logits=True),
                   metrics=["accuracy"])
    logits.fit(ShiftedBatches(train, BATCH_SIZE, seed=0).stream(), epochs=epochs, verbose=0,
               callbacks=list(callbacks))
