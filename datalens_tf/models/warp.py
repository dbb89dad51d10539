"""Images of other generators, moved a little: a public prior on what pictures of things look like."""

from typing import Sequence

import numpy as np
import tensorflow as tf

# Of one image: rotation, shear, two sizes, two shifts.
NUM_MOVES = 6
# Their standard deviations: radians, slope, logarithms, and shares of the height and the width.
_SPREAD = (0.1, 0.1, 0.07, 0.07, 0.8 / 28, 0.8 / 28)


class WarpedGenerator(tf.Module):
    """Images of one of several generators, each as likely, warped.

    Input shape: latents float32 [n, latent_dim] from N(0, 1), labels integer [n].
    Output shape: images float32 [n, H, W, C] in [0, 1].

    Args:
      image_shape: (H, W, C).
      sources: generators with a `latent_dim`, of normal latents and labels: one or two.
      warp: how far images are moved, in units of a handwritten digit's usual variation; 0 for not at all.
    """

    def __init__(self, image_shape: tuple[int, int, int], sources: Sequence[tf.Module], warp: float,
                 name: str | None = None):
        super().__init__(name=name)
        self.image_shape, self.sources, self.warp = tuple(image_shape), list(sources), warp

    @property
    def latent_dim(self) -> int:
        """Normal numbers that an image is made of: the sources' own, what chooses one of them, and the moves."""
        return max(source.latent_dim for source in self.sources) + 1 + NUM_MOVES

    def __call__(self, inputs, training: bool = False):
        latents, labels = inputs
        images = [source([latents[:, :source.latent_dim], labels], training=False) for source in self.sources]
        coin = latents[:, -1 - NUM_MOVES, None, None, None]
        images = tf.where(coin < 0, images[0], images[-1])
        if self.warp == 0:
            return images
        return affine_warp(images, matrices(self.warp * latents[:, -NUM_MOVES:], self.image_shape))


def matrices(moves: tf.Tensor, image_shape: tuple[int, int, int]) -> tf.Tensor:
    """Affine maps, from places in the warped image to places in the original: float32 [n, 2, 3].

    Args:
      moves: float32 [n, 6] in standard deviations: rotation, shear, two sizes, two shifts.
      image_shape: (H, W, C).
    """
    height, width, _ = image_shape
    angle, shear, wide, high, across, down = tf.unstack(moves * tf.constant(_SPREAD), axis=1)
    wide, high = tf.exp(wide), tf.exp(high)
    cos, sin = tf.cos(angle), tf.sin(angle)
    rows = [[cos * wide, cos * shear - sin * high, across * width],
            [sin * wide, sin * shear + cos * high, down * height]]
    return tf.stack([tf.stack(row, 1) for row in rows], 1)


def affine_warp(images: tf.Tensor, maps: tf.Tensor) -> tf.Tensor:
    """Images [n, H, W, C] warped by maps [n, 2, 3] about their middles; bilinear, edges continued."""
    height, width, channels = images.shape[1:]
    rows, columns = np.meshgrid(np.arange(height) - (height - 1) / 2, np.arange(width) - (width - 1) / 2, indexing="ij")
    places = tf.constant(np.stack([columns.ravel(), rows.ravel(), np.ones(height * width)]), tf.float32)
    source = tf.matmul(maps, tf.broadcast_to(places, [tf.shape(maps)[0], 3, height * width]))
    across = tf.clip_by_value(source[:, 0] + (width - 1) / 2, 0.0, width - 1.0)
    down = tf.clip_by_value(source[:, 1] + (height - 1) / 2, 0.0, height - 1.0)
    left, top = tf.minimum(tf.floor(across), width - 2.0), tf.minimum(tf.floor(down), height - 2.0)
    right, lower = (across - left)[..., None], (down - top)[..., None]
    flat, first = tf.reshape(images, [-1, height * width, channels]), tf.cast(top * width + left, tf.int32)

    def at(offset):
        return tf.gather(flat, first + offset, batch_dims=1)

    upper_row = at(0) * (1 - right) + at(1) * right
    lower_row = at(width) * (1 - right) + at(width + 1) * right
    return tf.reshape(upper_row * (1 - lower) + lower_row * lower, tf.shape(images))
