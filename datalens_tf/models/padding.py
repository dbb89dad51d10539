"""Sizes that networks of strided convolutions take: images are padded on their way in, and cropped on their way out."""

import tensorflow as tf

_MULTIPLE = 4  # Two convolutions of stride 2.


def padded_shape(image_shape: tuple[int, int, int]) -> tuple[int, int, int]:
    """(H, W, C) with H and W raised to the next multiples of 4."""
    height, width, channels = image_shape
    return -(-height // _MULTIPLE) * _MULTIPLE, -(-width // _MULTIPLE) * _MULTIPLE, channels


def pad(images: tf.Tensor) -> tf.Tensor:
    """Images [..., H, W, C] with black below and to the right, to the size of `padded_shape`."""
    height, width = images.shape[-3:-1]
    more = [padded - size for padded, size in zip(padded_shape(tuple(images.shape[-3:])), (height, width))]
    if not any(more):
        return images
    return tf.pad(images, [*([0, 0] for _ in images.shape[:-3]), *([0, size] for size in more), [0, 0]])


def crop(images: tf.Tensor, height: int, width: int) -> tf.Tensor:
    """The upper left part [..., height, width, C] of images [..., H, W, C]: what `pad` was given."""
    return images if tuple(images.shape[-3:-1]) == (height, width) else images[..., :height, :width, :]
