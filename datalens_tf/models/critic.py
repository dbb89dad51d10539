"""A small conditional discriminator whose gradients are known for every example."""

from collections.abc import Callable

import tensorflow as tf

from datalens_tf import rng
from datalens_tf.models.ensemble import conv_patches
from datalens_tf.models.padding import pad, padded_shape
from datalens_tf.models.per_example import flattened, linear_gradients, unflattened

_SLOPE = 0.2  # of leaky ReLU


class Critic(tf.Module):
    """Conv 5x5/2, conv 5x5/2, dense; leaky ReLU between. No normalisation: examples of a batch must not see each other.

    The dense layer has a score for images in general and one per class; the output for label y is their sum.

    Args:
      image_shape: (H, W, C); images are padded to the next multiples of 4.
      num_classes: Y.
      filters: channels of the first convolution; the second has twice as many.
      seed: seed of the initial weights.
    """

    def __init__(self, image_shape: tuple[int, int, int], num_classes: int, *, filters: int, seed: int):
        super().__init__()
        height, width, channels = padded_shape(image_shape)
        self.num_classes = num_classes
        sizes = ((25 * channels, filters), (25 * filters, 2 * filters),
                 (height * width // 16 * 2 * filters, num_classes + 1))
        stream = rng.stream(seed, "critic")
        self.kernels = [tf.Variable(stream.normal(0, (2 / rows) ** 0.5, (rows, columns)).astype("float32"))
                        for rows, columns in sizes]
        self.biases = [tf.Variable(tf.zeros([columns])) for _, columns in sizes]

    @property
    def weights(self) -> list[tf.Variable]:
        """Weights in the order of `per_example_gradients`."""
        return [*self.kernels, *self.biases]

    @property
    def num_parameters(self) -> int:
        """Numbers in all weights together."""
        return sum(weight.shape.num_elements() for weight in self.weights)

    def __call__(self, images: tf.Tensor, labels: tf.Tensor) -> tf.Tensor:
        """Logits [n] of images [n, H, W, C] with labels [n]."""
        return self._score(self._layers(images)[1][-1], labels)

    def per_example_gradients(self, images: tf.Tensor, labels: tf.Tensor, loss: Callable[[tf.Tensor], tf.Tensor]
                              ) -> tf.Tensor:
        """Each example's gradient of its own loss with respect to all weights: float32 [n, num_parameters].

        Args:
          images, labels: [n, H, W, C] and [n].
          loss: loss of a logit, elementwise.
        """
        with tf.GradientTape() as tape:
            inputs, outputs = self._layers(images)
            total = tf.reduce_sum(loss(self._score(outputs[-1], labels)))
        # Gradients of the sum; but example i alone decides rows i of the layers' outputs.
        deltas = tape.gradient(total, outputs)
        kernels, biases = zip(*map(linear_gradients, inputs, deltas))
        return flattened([*kernels, *biases])

    def unflatten(self, vector: tf.Tensor) -> list[tf.Tensor]:
        """A vector [num_parameters] as tensors like `weights`."""
        return unflattened(vector, self.weights)

    def _layers(self, images):
        """Inputs of each linear layer as positions [n, p, rows], and outputs [n, p, columns]."""
        inputs, outputs, maps = [], [], pad(images)
        for kernel, bias in zip(self.kernels[:2], self.biases[:2]):
            inputs.append(conv_patches(tf.stop_gradient(maps)))
            # The same as the patches' product, with a gradient for the maps that needs no scattering.
            maps = tf.nn.conv2d(maps, tf.reshape(kernel, [5, 5, maps.shape[-1], -1]), 2, "SAME") + bias
            positions = maps.shape[1] * maps.shape[2]
            outputs.append(tf.reshape(maps, [-1, positions, maps.shape[-1]]))
            maps = tf.nn.leaky_relu(tf.reshape(outputs[-1], [-1, *maps.shape[1:]]), _SLOPE)
        inputs.append(tf.reshape(maps, [-1, 1, self.kernels[2].shape[0]]))
        outputs.append(inputs[-1] @ self.kernels[2] + self.biases[2])
        return inputs, outputs

    def _score(self, scores, labels):
        """The general score plus that of the label."""
        return scores[:, 0, self.num_classes] + tf.gather(scores[:, 0], labels, axis=1, batch_dims=1)
