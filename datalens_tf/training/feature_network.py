"""Features in which classes of images differ, learned from synthetic images of these classes."""

import numpy as np
import tensorflow as tf

from datalens_tf import rng
from datalens_tf.data.datasets import as_dataset, to_unit
from datalens_tf.training.batches import ShuffledBatches

# Shares of the squared length: both convolutions, the dense layer, the probabilities.
_SHARES = (0.3, 0.35, 0.25, 0.1)
_LONGEST = 1.3  # in units of the typical length; longer features are shortened to this
_CHUNK = 1000  # images whose layers are in memory at once


class FeatureNetwork(tf.Module):
    """Features of images from the layers of a small classifier, at most 1 long.

    conv 32 5x5/2 - ReLU - conv 64 5x5/2 - ReLU - dense 128 - ReLU - dense - softmax, with dropout in training. Features
    are both convolutions, averaged over 2x2 places, the dense layer, and the probabilities. Their means over the images
    learned from are subtracted. The four parts are scaled to a mean squared length on these images of 0.3, 0.35, 0.25
    and 0.1, then by 1 / 1.3. Features longer than 1 are shortened to 1. Differentiable.

    Input shape: images float32 [n, H, W, C] in [0, 1], H and W at least 8.
    Output shape: float32 [n, D].

    Args:
      image_shape: (H, W, C).
      num_classes: Y.
      seed: seed of initial weights, order and dropout.
    """

    def __init__(self, image_shape: tuple[int, int, int], num_classes: int, seed: int, name: str | None = None):
        super().__init__(name=name)
        self._num_classes, self._seed = num_classes, seed
        layers, seeds = tf.keras.layers, iter(rng.stream(seed, "features").integers(0, 2**31, size=6).tolist())

        def weights():
            return {"kernel_initializer": tf.keras.initializers.GlorotUniform(seed=next(seeds))}

        def dropout():  # See `paper_classifier`.
            return layers.Dropout(0.3, seed=next(seeds), rng_type="stateful")

        images = layers.Input(image_shape)
        first = layers.Conv2D(32, 5, 2, "same", activation="relu", **weights())(images)
        second = layers.Conv2D(64, 5, 2, "same", activation="relu", **weights())(first)
        dense = layers.Dense(128, activation="relu", **weights())(dropout()(layers.Flatten()(second)))
        logits = layers.Dense(num_classes, **weights())(dropout()(dense))
        self._classifier = tf.keras.Model(images, logits)
        pool = layers.AveragePooling2D(2)
        parts = [layers.Flatten()(pool(first)), layers.Flatten()(pool(second)), dense, layers.Softmax()(logits)]
        self._layers = tf.keras.Model(images, layers.Concatenate()(parts))
        self._sizes = [part.shape[1] for part in parts]
        self._centre = tf.Variable(tf.zeros([sum(self._sizes)]), trainable=False)
        self._scale = tf.Variable(tf.ones([sum(self._sizes)]), trainable=False)

    def fit(self, images: np.ndarray, labels: np.ndarray, epochs: int) -> None:
        """Learns from images uint8 [n, H, W, C] with labels [n]; the features say what these images are made of."""
        data = as_dataset(images, labels, self._num_classes)
        self._classifier.compile(tf.keras.optimizers.Adam(1e-3),
                                 tf.keras.losses.SparseCategoricalCrossentropy(from_logits=True))
        self._classifier.fit(ShuffledBatches(data, 100, self._seed).stream(), epochs=epochs, verbose=0)
        seen = np.concatenate([self._layers(to_unit(images[start:start + _CHUNK]), training=False).numpy()
                               for start in range(0, len(images), _CHUNK)])
        self._centre.assign(seen.mean(0))
        variances = np.split(seen.var(0), np.cumsum(self._sizes)[:-1])
        self._scale.assign(np.concatenate([
            np.full(len(variance), np.sqrt(share / max(variance.sum(), 1e-12)) / _LONGEST)
            for share, variance in zip(_SHARES, variances)]))

    def __call__(self, images: tf.Tensor) -> tf.Tensor:
        features = (self._layers(images, training=False) - self._centre) * self._scale
        # A little shorter than 1, so that no rounding makes it longer.
        return (1 - 1e-5) * features / tf.maximum(tf.norm(features, axis=1, keepdims=True), 1.0)

    def arrays(self) -> dict[str, np.ndarray]:
        """All that was learned."""
        return {str(index): value.numpy() for index, value in enumerate(self._state())}

    def restore(self, arrays: dict[str, np.ndarray]) -> None:
        """Takes the `arrays` of another network with the same settings."""
        for index, value in enumerate(self._state()):
            value.assign(arrays[str(index)])

    def _state(self):
        return [*self._classifier.trainable_weights, self._centre, self._scale]
