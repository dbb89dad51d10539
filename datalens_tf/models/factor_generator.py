"""Images of a Gaussian model per class."""

import numpy as np
import tensorflow as tf


class FactorGenerator(tf.Module):
    """mean[y] + z factors[y], cut off at 0 and 1.

    Input shape: latents float32 [n, latent_dim] from N(0, 1), labels integer [n].
    Output shape: images float32 [n, H, W, C] in [0, 1].

    Args:
      image_shape: (H, W, C), H and W divisible by 4.
      means: of images, per class: [Y, HWC].
      factors: rows F with F^T F the covariance of images, per class: [Y, r, HWC].
    """

    def __init__(self, image_shape: tuple[int, int, int], means: np.ndarray, factors: np.ndarray,
                 name: str | None = None):
        super().__init__(name=name)
        self.image_shape, (self.num_classes, self.latent_dim) = tuple(image_shape), factors.shape[:2]
        self.means = tf.Variable(means, trainable=False, dtype=tf.float32)
        self.factors = tf.Variable(factors, trainable=False, dtype=tf.float32)

    def __call__(self, inputs, training: bool = False):
        latents, labels = inputs
        one_hot = tf.one_hot(labels, self.num_classes)
        # A product with all classes' factors, where the latents of all but one are zero: faster than to gather them.
        own = tf.reshape(one_hot[:, :, None] * latents[:, None], [-1, self.num_classes * self.latent_dim])
        flat = tf.matmul(one_hot, self.means) + tf.matmul(own, tf.reshape(self.factors, [own.shape[1], -1]))
        return tf.reshape(tf.clip_by_value(flat, 0.0, 1.0), [-1, *self.image_shape])
