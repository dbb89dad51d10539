"""Images of Gaussian models: one for each class, or for each of a few clusters of it."""

import numpy as np
import scipy.special
import tensorflow as tf


class FactorGenerator(tf.Module):
    """means[y, k] + z factors[y, k] directions, cut off at 0 and 1, with k drawn by the weights of class y.

    Input shape: latents float32 [n, latent_dim] from N(0, 1), the last of which draws k; labels integer [n].
    Output shape: images float32 [n, H, W, C] in [0, 1].

    Args:
      image_shape: (H, W, C).
      means: means of images, per class and cluster: [Y, K, HWC].
      factors: rows F with F^T F the covariance of coordinates, per class and cluster: [Y, K, r, d].
      directions: images that coordinates stand for: [d, HWC].
      weights: weights of a class's clusters, at least 0, not all 0: [Y, K].

    Rows that are zero everywhere are left out, and arrays are kept in half precision, which pixels of 8 bits do not
    show. So files are smaller.
    """

    def __init__(self, image_shape: tuple[int, int, int], means: np.ndarray, factors: np.ndarray,
                 directions: np.ndarray, weights: np.ndarray, name: str | None = None):
        super().__init__(name=name)
        most = np.finfo(np.float16).max  # Noise may be larger, where it hides everything.
        means, factors, directions = (
            np.clip(array, -most, most).astype(np.float16) for array in (means, factors, directions))
        used = factors.any((0, 1, 3))
        used[0] = True
        factors = factors[:, :, used]
        self.num_classes, self._clusters, rank = factors.shape[:3]
        self.image_shape, self.latent_dim = tuple(image_shape), rank + 1
        sums = np.cumsum(weights, 1)
        bounds = scipy.special.ndtri(sums / sums[:, -1:])
        self.means, self.factors = (tf.Variable(array.reshape(-1, *array.shape[2:]), trainable=False)
                                    for array in (means, factors))
        self.directions = tf.Variable(directions, trainable=False)
        self.bounds = tf.Variable(bounds, trainable=False, dtype=tf.float32)

    def __call__(self, inputs, training: bool = False):
        latents, labels = inputs
        bounds = tf.gather(self.bounds, labels)[:, :-1]  # Of all clusters but the last.
        later = tf.cast(latents[:, -1:] >= bounds, tf.int32)
        own = tf.cast(labels, tf.int32) * self._clusters + tf.reduce_sum(later, 1)
        factors, means, directions = (
            tf.cast(array, tf.float32) for array in (self.factors, self.means, self.directions))
        coordinates = tf.einsum("nr,nrd->nd", latents[:, :-1], tf.gather(factors, own))
        flat = tf.gather(means, own) + tf.matmul(coordinates, directions)
        return tf.reshape(tf.clip_by_value(flat, 0.0, 1.0), [-1, *self.image_shape])
