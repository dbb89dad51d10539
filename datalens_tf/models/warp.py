"""Images of other generators, moved a little, partly erased, and with grain: public priors on pictures of things."""

from collections.abc import Sequence

import numpy as np
import scipy.special
import tensorflow as tf

# Moves of one image: rotation, shear, two sizes, two shifts.
NUM_MOVES = 6
# Their standard deviations: radians, slope, logarithms, and shares of the height and the width.
_SPREAD = (0.1, 0.1, 0.07, 0.07, 0.8 / 28, 0.8 / 28)
# Pixels up to here are black.
_BLACK = 0.02
# The least and the largest share of the height, and of the width, that an erased rectangle has.
_ERASED = (6 / 32, 16 / 32)


class WarpedGenerator(tf.Module):
    """Images of one of several equally likely generators, warped, with a rectangle erased, and with grain.

    Input shape: latents float32 [n, latent_dim] from N(0, 1), labels integer [n].
    Output shape: images float32 [n, H, W, C] in [0, 1].

    Args:
      image_shape: (H, W, C).
      sources: generators of normal latents and labels, with a `latent_dim`.
      warp: how far images are moved, in units of a handwritten digit's usual variation; 0 for not at all.
      grain: standard deviation of the noise on pixels, on average: an image's own is uniform from 0 to twice as much.
        Smooth images teach a classifier to rely on smoothness, which real images do not have. 0 for no grain.
      erased: share of images that have a rectangle of one random colour somewhere, as in DeVries and Taylor, "Improved
        Regularization of Convolutional Neural Networks with Cutout", 2017. Then no single part of an image is enough to
        learn its class from. 0 for none.
      on_black: whether black pixels have grain. Sources whose backgrounds are not quite black show what they are.
      looking: generators whose images people see, without moves, grain and rectangles; None for the sources.
    """

    def __init__(self, image_shape: tuple[int, int, int], sources: Sequence[tf.Module], warp: float,
                 grain: float = 0.0, erased: float = 0.0, on_black: bool = False,
                 looking: Sequence[tf.Module] | None = None, name: str | None = None):
        super().__init__(name=name)
        height, width, channels = image_shape
        self.image_shape, self.sources, self.warp, self.grain = (height, width, channels), list(sources), warp, grain
        self.erased, self.on_black = erased, on_black
        self.looking = list(sources if looking is None else looking)
        self._of_sources = max(source.latent_dim for source in (*self.sources, *self.looking))

    @property
    def latent_dim(self) -> int:
        """Normal numbers that an image is made of: the sources', the choice of a source, moves, rectangle and grain."""
        return (self._of_sources + 1 + NUM_MOVES + self._of_rectangles
                + (1 + int(np.prod(self.image_shape)) if self.grain else 0))

    @property
    def _of_rectangles(self) -> int:
        return 5 + self.image_shape[2] if self.erased else 0

    def __call__(self, inputs, training: bool = False):
        images, numbers = self._warped(inputs, self.sources, self.warp)
        rectangles, noise = tf.split(numbers, [self._of_rectangles, -1], axis=1)
        if self.erased:
            images = with_a_rectangle(images, _uniform(rectangles), self.erased)
        if self.grain:
            levels, noise = 2 * self.grain * _uniform(noise[:, 0]), tf.reshape(noise[:, 1:], tf.shape(images))
            images = grained(images, levels, noise, self.on_black)
        return images

    def to_look_at(self, inputs) -> tf.Tensor:
        """Images of these latents and labels for people, who need neither moves nor grain."""
        return self._warped(inputs, self.looking, 0.0)[0]

    def _warped(self, inputs, sources, warp):
        """Images of these sources, moved this far and no more than that, and the latents of the rest."""
        latents, labels = inputs
        coin, moves, noise = tf.split(latents[:, self._of_sources:], [1, NUM_MOVES, -1], axis=1)
        drawn = [source([latents[:, :source.latent_dim], labels], training=False) for source in sources]
        images = drawn[0]
        for bound, other in zip(scipy.special.ndtri(np.arange(1, len(drawn)) / len(drawn)), drawn[1:]):
            images = tf.where(coin[:, :, None, None] < bound, images, other)
        if warp:
            images = affine_warp(images, matrices(warp * moves, self.image_shape))
        return images, noise


class OfNormal(tf.Module):
    """Wraps a generator that takes latents from U(-1, 1), so that it takes latents from N(0, 1).

    Input and output shapes are those of the generator.
    """

    def __init__(self, generator: tf.Module, name: str | None = None):
        super().__init__(name=name)
        self.generator, self.latent_dim = generator, generator.latent_dim

    def __call__(self, inputs, training: bool = False):
        latents, labels = inputs
        return self.generator([2 * _uniform(latents) - 1, labels], training=training)


def grained(images: tf.Tensor, levels: tf.Tensor, noise: tf.Tensor, on_black: bool) -> tf.Tensor:
    """Images [n, H, W, C] with normal noise of these levels [n], also on black if `on_black`, cut off at 0 and 1."""
    noisy = tf.clip_by_value(images + levels[:, None, None, None] * noise, 0.0, 1.0)
    return noisy if on_black else tf.where(images > _BLACK, noisy, images)


def with_a_rectangle(images: tf.Tensor, numbers: tf.Tensor, share: float) -> tf.Tensor:
    """Images [n, H, W, C], this share of them with a rectangle of one colour.

    `numbers` are from U(0, 1), [n, 5 + C]: whether there is a rectangle, its height, width and place, and its colour.
    """
    height, width = images.shape[1:3]
    whether, tall, wide, down, across = tf.split(numbers[:, :5], 5, axis=1)
    least, most = _ERASED

    def inside(pixels, size, place):
        extent = (least + (most - least) * size) * pixels
        return tf.abs(tf.range(pixels, dtype=tf.float32) + 0.5 - extent / 2 - place * (pixels - extent)) <= extent / 2

    rows = inside(height, tall, down) & (whether < share)
    where = rows[:, :, None] & inside(width, wide, across)[:, None, :]
    return tf.where(where[..., None], numbers[:, None, None, 5:], images)


def _uniform(normal: tf.Tensor) -> tf.Tensor:
    """Numbers from N(0, 1) made uniform in [0, 1], to within 0.0003, without erf, which TensorFlow Lite lacks."""
    return 0.5 + 0.5 * tf.tanh((2 / np.pi)**0.5 * (normal + 0.044715 * normal**3))


def warp_places(images: tf.Tensor, maps: tf.Tensor) -> tf.Tensor:
    """Images [n, B, H, W, C] of n batches, each place in a batch warped by its own map, one of [B, 2, 3]."""
    count, (batch, height, width, channels) = tf.shape(images)[0], images.shape[1:]
    # Images that are warped alike can be channels of one image.
    places = tf.reshape(tf.transpose(images, [1, 2, 3, 0, 4]), [batch, height, width, count * channels])
    warped = tf.reshape(affine_warp(places, maps), [batch, height, width, count, channels])
    return tf.transpose(warped, [3, 0, 1, 2, 4])


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
    channels = tf.shape(images)[3] if channels is None else channels
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
