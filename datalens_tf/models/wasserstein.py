"""A Wasserstein discriminator ("critic") as a function of explicit weights.

Thousands of them are kept as arrays with a leading axis and visited one at a time. There is no batch normalisation: an
image's score, and its gradient, must not depend on the other images of its batch. Otherwise the gradient penalty would
punish the wrong thing, and clipping per image would bound nothing.
"""

import numpy as np
import tensorflow as tf

from datalens_tf import rng
from datalens_tf.models.padding import pad, padded_shape

_KERNEL = 5
_SLOPE = 0.2


class WassersteinCritic:
    """f(x, y): two 5x5 convolutions of stride 2 over the image with its label's plane, leaky ReLU, one dense unit.

    Args:
      image_shape: (H, W, C); images are padded to the next multiples of 4.
      num_classes: Y.
      filters: channels of the first convolution [F]; the second has 2 F.

    Attributes:
      shapes: shapes of the weights: kernel and bias of both convolutions, and the dense kernel.
    """

    def __init__(self, image_shape: tuple[int, int, int], num_classes: int, *, filters: int):
        height, width, channels = padded_shape(image_shape)
        self._num_classes = num_classes
        self.shapes = [(_KERNEL, _KERNEL, channels + num_classes, filters), (filters,),
                       (_KERNEL, _KERNEL, filters + num_classes, 2 * filters), (2 * filters,),
                       (height * width // 16 * 2 * filters, 1)]

    def initial(self, count: int, seed: int) -> list[np.ndarray]:
        """Weights of `count` critics, each its own: float32 [count, *shape], He's normal distribution, biases 0."""
        weights = []
        for index, shape in enumerate(self.shapes):
            if len(shape) == 1:
                weights.append(np.zeros((count, *shape), np.float32))
            else:
                stddev = np.float32(np.sqrt(2 / np.prod(shape[:-1])))
                stream = rng.stream(seed, "critics", index)
                weights.append(stddev * stream.standard_normal((count, *shape), np.float32))
        return weights

    def __call__(self, weights: list[tf.Tensor], images: tf.Tensor, labels: tf.Tensor) -> tf.Tensor:
        """Scores [B] of images float32 [B, H, W, C] with integer labels [B]; higher is more real."""
        kernel_1, bias_1, kernel_2, bias_2, dense = weights
        one_hot = tf.one_hot(labels, self._num_classes)

        def convolved(maps, kernel, bias):
            _, height, width, channels = maps.shape
            # A label's plane is constant, so it adds one map per class; most of a kernel is for planes.
            planes = tf.reshape(kernel[:, :, channels:], [_KERNEL, _KERNEL, 1, -1])
            added = tf.nn.conv2d(tf.ones([1, height, width, 1]), planes, 2, "SAME")
            added = tf.reshape(added, [height // 2, width // 2, self._num_classes, -1]) + bias
            maps = tf.nn.conv2d(maps, kernel[:, :, :channels], 2, "SAME")
            return tf.nn.leaky_relu(maps + tf.einsum("by,hwyf->bhwf", one_hot, added), _SLOPE)

        hidden = convolved(convolved(pad(images), kernel_1, bias_1), kernel_2, bias_2)
        return tf.matmul(tf.reshape(hidden, [tf.shape(images)[0], -1]), dense)[:, 0]

    def loss(self, weights: list[tf.Tensor], real: tf.Tensor, fake: tf.Tensor, labels: tf.Tensor, mix: tf.Tensor,
             penalty: float) -> tf.Tensor:
        """The discriminator's loss with gradient penalty (Gulrajani et al. 2017; equation 12 of GS-WGAN).

        Args:
          weights: weights of one critic.
          real, fake: images [B, H, W, C] of the same labels [B]: the label alone must not tell them apart.
          labels: integers [B].
          mix: the places between fake (0) and real (1) where the gradient's norm should be 1, float32 [B].
          penalty: weight of the gradient penalty.
        """
        between = fake + mix[:, None, None, None] * (real - fake)
        gradients = self.image_gradients(weights, between, labels)
        norms = tf.sqrt(tf.reduce_sum(tf.square(gradients), [1, 2, 3]) + 1e-12)
        distance = tf.reduce_mean(self(weights, real, labels) - self(weights, fake, labels))
        return penalty * tf.reduce_mean(tf.square(norms - 1.0)) - distance

    def image_gradients(self, weights: list[tf.Tensor], images: tf.Tensor, labels: tf.Tensor) -> tf.Tensor:
        """Gradient of each image's score with respect to the image, [B, H, W, C], towards looking more real."""
        with tf.GradientTape(watch_accessed_variables=False) as tape:
            tape.watch(images)
            total = tf.reduce_sum(self(weights, images, labels))
        return tape.gradient(total, images)
