"""Features of untrained convolutional networks, in which means of photographs are compared.

Source: Zhao and Bilen, "Dataset Condensation with Distribution Matching", WACV 2023. They compare means of many images
in the features of such networks, with new networks at every step. Here the same few networks see all records once. What
varies most in them is what all classes share, such as light. Features are therefore scaled as in linear discriminant
analysis (Fisher, 1936): synthetic images vary within their classes by as much in all directions.
"""

from __future__ import annotations

import dataclasses
import typing
from collections.abc import Callable, Sequence

from etils import epy

from datalens_tf import rng

with epy.lazy_imports():
    import numpy as np
    import tensorflow as tf

if typing.TYPE_CHECKING:
    from numpy.typing import NDArray

_LAYERS = 3
_RIDGE = 0.1  # of the mean variance, which is added to that of each direction
_SHORTER = 1 - 1e-5  # so that no rounding makes features longer than they may be


@dataclasses.dataclass(frozen=True, kw_only=True)
class UntrainedNetworks:
    """Features of images in P untrained networks; everything is public.

    Each network is three times conv 3x3 - instance normalisation - ReLU - mean of 2x2, or the mean of this over the
    image and its mirror image. The mean output on synthetic images is subtracted; the difference is scaled, and
    shortened to 1. The features are those of all networks, divided by sqrt(P), and at most 1 long. Differentiable.

    Attributes:
      seed: seed of the weights.
      num_networks: number of networks P.
      filters: number of filters of each convolution.
      channels: number of channels of the images.
      mirrored: whether each image is seen together with its mirror image.
      centres: mean output of each network on synthetic images: float32 [P, D].
      scales: matrices that the differences are multiplied by: float32 [P, D, D]; or lengths that they are divided by,
        float32 [P].
    """

    seed: int
    num_networks: int
    filters: int
    channels: int
    mirrored: bool
    centres: NDArray[np.float32]
    scales: NDArray[np.float32]

    @classmethod
    def for_images(cls, images: NDArray[np.float32], labels: NDArray[np.integer] | None, *, seed: int,
                   num_networks: int, filters: int, clip: float, mirrored: bool = False) -> UntrainedNetworks:
        """Networks with centres of these synthetic images [n, H, W, C], and `clip` times their median length as 1.

        With labels [n], the images vary within their classes by about as much in all directions.
        """
        weights = [tf.constant(layer) for layer in _weights(seed, num_networks, filters, images.shape[-1])]
        seen = tf.function(_seen, autograph=False)
        centres, scales = [], []
        for network in range(num_networks):
            found = seen(tf.constant(images), [layer[network] for layer in weights], mirrored).numpy()
            centres.append(found.mean(0))
            scaled = found - centres[-1]
            whitening = None if labels is None else _whitening(found, labels)
            if whitening is not None:
                scaled = scaled @ whitening
            length = np.float32(max(clip * float(np.median(np.linalg.norm(scaled, axis=1))), 1e-6))
            scales.append(length if whitening is None else whitening / length)
        return cls(seed=seed, num_networks=num_networks, filters=filters, channels=images.shape[-1],
                   mirrored=mirrored, centres=np.stack(centres), scales=np.stack(scales))

    @property
    def num_features(self) -> int:
        """Number of features of an image in all networks."""
        return int(self.centres.size)

    def made(self) -> Callable[[tf.Tensor], tf.Tensor]:
        """Function of images [n, H, W, C] in [0, 1]: float32 [n, P D]."""
        of_one = self.of_one()
        scale = self.num_networks**-0.5

        def of_all(images: tf.Tensor) -> tf.Tensor:
            return tf.concat([scale * of_one(images, network) for network in range(self.num_networks)], 1)

        return of_all

    def of_one(self) -> Callable[[tf.Tensor, tf.Tensor | int], tf.Tensor]:
        """Function of images and the number of a network: that network's features, float32 [n, D], at most 1 long."""
        weights = [tf.constant(layer) for layer in _weights(self.seed, self.num_networks, self.filters, self.channels)]
        centres, scales = tf.constant(self.centres), tf.constant(self.scales)

        def seen(images: tf.Tensor, network: tf.Tensor | int) -> tf.Tensor:
            raw = _seen(images, [tf.gather(layer, network) for layer in weights], self.mirrored)
            difference, scale = raw - tf.gather(centres, network), tf.gather(scales, network)
            difference = tf.matmul(difference, scale) if self.scales.ndim > 1 else difference / scale
            return _SHORTER * difference / tf.maximum(tf.norm(difference, axis=1, keepdims=True), 1.0)

        return seen


def num_features(image_shape: tuple[int, int, int], num_networks: int, filters: int) -> int:
    """Number of features in so many networks of an image of this shape (H, W, C), H and W at least 8."""
    return num_networks * filters * (image_shape[0] >> _LAYERS) * (image_shape[1] >> _LAYERS)


def _whitening(found: NDArray[np.float32], labels: NDArray[np.integer]) -> NDArray[np.float32]:
    """Matrix [D, D] by which features [n, D] have a variance of about 1 within classes, in all directions."""
    own = found.astype(np.float64)
    for label in np.unique(labels):
        own[labels == label] -= own[labels == label].mean(0)
    variances, directions = np.linalg.eigh(own.T @ own / len(own))
    smaller = 1 / np.sqrt(np.maximum(variances, 0) + max(_RIDGE * variances.mean(), 1e-12))
    whitening: NDArray[np.float32] = ((directions * smaller) @ directions.T).astype(np.float32)
    return whitening


def _weights(seed: int, num_networks: int, filters: int, channels: int) -> list[NDArray[np.float32]]:
    """Weights of each layer, for all networks [P, 3, 3, in, out]: normal, as in He and others, 2015."""
    stream, found = rng.stream(seed, "untrained networks"), []
    for _ in range(_LAYERS):
        drawn = stream.standard_normal((num_networks, 3, 3, channels, filters), np.float32)
        found.append(drawn * np.float32((2 / (9 * channels))**0.5))
        channels = filters
    return found


def _seen(images: tf.Tensor, weights: Sequence[tf.Tensor], mirrored: bool) -> tf.Tensor:
    """Features of images [n, H, W, C] in [0, 1] in one network, or of each with its mirror image: float32 [n, D]."""
    if mirrored:
        return (_seen(images, weights, False) + _seen(tf.reverse(images, [2]), weights, False)) / 2
    maps = 4.0 * (images - 0.5)
    for layer in weights:
        maps = tf.nn.conv2d(maps, layer, 1, "SAME")
        mean, variance = tf.nn.moments(maps, [1, 2], keepdims=True)
        maps = tf.nn.avg_pool2d(tf.nn.relu((maps - mean) * tf.math.rsqrt(variance + 1e-5)), 2, 2, "VALID")
    return tf.reshape(maps, [tf.shape(maps)[0], -1])
