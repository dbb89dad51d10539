"""Images of a Gaussian model per class, moved a little, and chosen by a classifier."""

import numpy as np
import tensorflow as tf

from datalens_tf.models.scattering import Scattering

# Of one image: rotation, shear, two sizes, two shifts.
_MOVES = 6
# Their standard deviations: radians, slope, logarithms, and shares of the height and the width.
_SPREAD = (0.1, 0.1, 0.07, 0.07, 0.8 / 28, 0.8 / 28)


class FactorGenerator(tf.Module):
    """mean[y] + z factors[y], cut off at 0 and 1, then warped; the best of several by a linear scattering classifier.

    The first of the candidates whose most likely class is the label is taken; if there is none, the one for which the
    label is likeliest.

    Input shape: latents float32 [n, latent_dim] from N(0, 1), labels integer [n].
    Output shape: images float32 [n, H, W, C] in [0, 1].

    Args:
      image_shape: (H, W, C), H and W divisible by 4.
      num_classes: Y.
      num_factors: rows of a class's factors r.
      num_candidates: images drawn per image that is handed out; 1 does without the classifier.

    Attributes:
      warp: how far images are moved, in units of a handwritten digit's usual variation; 0 for not at all.
    """

    def __init__(self, image_shape: tuple[int, int, int], num_classes: int, *, num_factors: int, num_candidates: int,
                 warp: float = 0.0, name: str | None = None):
        super().__init__(name=name)
        self.image_shape, self.num_classes = tuple(image_shape), num_classes
        self._num_factors, self._num_candidates, self.warp = num_factors, num_candidates, warp
        numbers = int(np.prod(image_shape))
        self.scattering = Scattering(image_shape)
        self.means = tf.Variable(tf.zeros([num_classes, numbers]), trainable=False)
        self.factors = tf.Variable(tf.zeros([num_classes, num_factors, numbers]), trainable=False)
        # One column per class.
        self.classifier = tf.Variable(tf.zeros([self.scattering.num_features, num_classes]), trainable=False)

    @property
    def latent_dim(self) -> int:
        """Normal numbers that an image is made of."""
        return latent_dim(self._num_factors, self._num_candidates)

    def __call__(self, inputs, training: bool = False):
        latents, labels = inputs
        count = self._num_candidates
        images = self._draw(tf.reshape(latents, [-1, latent_dim(self._num_factors, 1)]), tf.repeat(labels, count))
        if count == 1:
            return images
        logits = tf.matmul(self.scattering(images), self.classifier)
        return _chosen(tf.reshape(images, [-1, count, *self.image_shape]),
                       tf.reshape(logits, [-1, count, self.num_classes]), labels)

    def _draw(self, latents, labels):
        """One image per label."""
        one_hot = tf.one_hot(labels, self.num_classes)
        # A product with all classes' factors, where the latents of all but one are zero: faster than to gather them.
        own = tf.reshape(one_hot[:, :, None] * latents[:, None, :self._num_factors],
                         [-1, self.num_classes * self._num_factors])
        flat = tf.matmul(one_hot, self.means) + tf.matmul(own, tf.reshape(self.factors, [own.shape[1], -1]))
        images = tf.reshape(tf.clip_by_value(flat, 0.0, 1.0), [-1, *self.image_shape])
        if self.warp == 0:
            return images
        return affine_warp(images, matrices(self.warp * latents[:, self._num_factors:], self.image_shape))


def latent_dim(num_factors: int, num_candidates: int) -> int:
    """Normal numbers that an image of a `FactorGenerator` is made of."""
    return num_candidates * (num_factors + _MOVES)


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


def _chosen(images, logits, labels):
    """Of candidates [n, K, ...] with logits [n, K, Y], the one for each label."""
    count = logits.shape[1]
    likelihood = tf.gather(tf.nn.softmax(logits), tf.repeat(labels[:, None], count, 1), batch_dims=2)
    right = tf.equal(tf.argmax(logits, -1, output_type=labels.dtype), labels[:, None])
    # Those that are right count 2 and more, the earlier the more; the others their likelihood.
    rank = tf.where(right, 1.0 + tf.range(count, 0, -1, tf.float32), likelihood)
    return tf.gather(images, tf.argmax(rank, 1), batch_dims=1)
