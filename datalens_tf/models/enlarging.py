"""Enlargement of small images, by operations that convert to all formats of models."""

import numpy as np
import tensorflow as tf

from datalens_tf.models.padding import crop


class Enlarged:
    """Enlarges images bicubically, cuts them off at 0 and 1, and crops them.

    Classifiers that learn from bilinearly enlarged images get sharper ones wrong.

    Args:
      image_shape: (H, W, C) of the result.
      times: how many times larger images become; 1 for images as they are.

    Attributes:
      small: (h, w) of the images that are enlarged.
    """

    def __init__(self, image_shape: tuple[int, int, int], times: int):
        self._whole = height, width = image_shape[0], image_shape[1]
        self.small = -(-height // times), -(-width // times)
        self._weights = [] if times == 1 else [_weights(size, times * size) for size in self.small]

    def __call__(self, images: tf.Tensor) -> tf.Tensor:
        if self._weights:
            images = tf.clip_by_value(_products(images, *self._weights), 0.0, 1.0)
        return crop(images, *self._whole)


def _weights(small: int, whole: int) -> np.ndarray:
    """Weights that enlarge rows as bicubic `tf.image.resize` does: float32 [small, whole].

    Products of matrices convert to all formats of models; that operation converts to few.
    """
    weights: np.ndarray = tf.image.resize(tf.eye(small)[:, :, None, None], [whole, 1], "bicubic").numpy()[:, :, 0, 0]
    return weights


def _products(images: tf.Tensor, rows: np.ndarray, columns: np.ndarray) -> tf.Tensor:
    """Images [n, h, w, C] times these matrices, [h, H] and [w, W]: [n, H, W, C].

    The products are of two-dimensional tensors: with oneDNN, `matmul` of four dimensions with two corrupts memory in
    TensorFlow 2.20 and 2.21 (TensorFlow's issue 117700).
    """
    (height, width, channels), (_, whole_height), (_, whole_width) = images.shape[1:], rows.shape, columns.shape
    wide = tf.matmul(tf.reshape(tf.transpose(images, [0, 3, 1, 2]), [-1, width]), columns)
    turned = tf.transpose(tf.reshape(wide, [-1, channels, height, whole_width]), [0, 1, 3, 2])
    high = tf.reshape(tf.matmul(tf.reshape(turned, [-1, height]), rows), [-1, channels, whole_width, whole_height])
    return tf.transpose(high, [0, 3, 2, 1])
