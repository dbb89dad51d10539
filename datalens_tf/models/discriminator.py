"""The teachers: T conditional discriminators in one model, of DC-GAN or of dense layers."""

import abc
import math

import tensorflow as tf

from datalens_tf.models.ensemble import EnsembleBatchNormalization, EnsembleConv2D, EnsembleDense, image_patches
from datalens_tf.models.padding import crop, pad, padded_shape


class _Discriminators(tf.keras.Model, abc.ABC):
    """T teachers' networks, asked about the same images."""

    num_teachers: int

    @abc.abstractmethod
    def from_patches(self, patches: tf.Tensor, labels: tf.Tensor, groups: int = 1) -> tf.Tensor:
        """Logits [T, B] for first-layer patches [T, B, H/2 * W/2, 25 * C]."""

    def logits_of_each(self, images: tf.Tensor, labels: tf.Tensor) -> tf.Tensor:
        """Logits [T, m] of each teacher for the same images [m, H, W, C] with one-hot labels [m, Y]."""
        return self.from_patches(self._tiled(image_patches(images)), self._tiled(labels))

    def _tiled(self, x: tf.Tensor) -> tf.Tensor:
        return tf.tile(x[None], [self.num_teachers] + [1] * x.shape.rank)


class EnsembleDiscriminator(_Discriminators):
    """T independent conditional discriminators, after the DataLens authors' conditional DC-GAN.

    Conv 5x5/2, leaky ReLU; conv 5x5/2, batch norm, leaky ReLU; dense, batch norm, leaky ReLU; dense 1. The label
    enters every layer, as planes or beside the features.

    Input shape: images [T, B, H, W, C] in [0, 1], padded to the next multiples of 4; one-hot labels [T, B, Y].
    Output shape: logits [T, B] of "this image is real".

    Args:
      num_teachers: T.
      image_shape: (H, W, C).
      num_classes: Y.
      filters: filters of the second convolution, without the Y of the label; the first has C + Y.
      units: width of the dense layer.
      precision: `float32`, or `mixed_bfloat16`, with which large matrix products and their variables are in bfloat16
        (normalisation and the last layer stay in float32). The code that trains them keeps the weights in float32.
    """

    def __init__(self, num_teachers: int, image_shape: tuple[int, int, int], num_classes: int, *, filters: int = 32,
                 units: int = 256, precision: str = "float32", **kwargs):
        super().__init__(**kwargs)
        self.num_teachers = num_teachers
        self.height, self.width = image_shape[:2]
        height, width, channels = padded_shape(image_shape)
        precision = precision.removeprefix("mixed_")
        self.conv_1 = EnsembleConv2D(num_teachers, channels + num_classes, dtype=precision, name="conv_1")
        self.conv_2 = EnsembleConv2D(
            num_teachers, filters + num_classes, use_bias=False, dtype=precision, name="conv_2")
        self.norm_2 = EnsembleBatchNormalization(num_teachers, name="norm_2")
        self.dense_3 = EnsembleDense(num_teachers, units, use_bias=False, dtype=precision, name="dense_3")
        self.norm_3 = EnsembleBatchNormalization(num_teachers, name="norm_3")
        self.dense_4 = EnsembleDense(num_teachers, 1, name="dense_4")
        labels = (num_teachers, None, num_classes)
        self.conv_1.build([(num_teachers, None, height, width, channels), labels])
        self.conv_2.build([(num_teachers, None, height // 2, width // 2, channels + num_classes), labels])
        self.norm_2.build((None, filters + num_classes))
        self.dense_3.build([(num_teachers, None, height * width // 16 * (filters + num_classes)), labels])
        self.norm_3.build((None, units))
        self.dense_4.build([(num_teachers, None, units), labels])
        self.built = True

    def call(self, inputs, groups: int = 1):
        images, labels = inputs
        return self._head(self.conv_1((pad(images), labels)), labels, groups)

    def from_patches(self, patches: tf.Tensor, labels: tf.Tensor, groups: int = 1) -> tf.Tensor:
        """Logits [T, B] for first-layer patches [T, B, H/2 * W/2, 25 * C], not differentiable in them."""
        return self._head(self.conv_1.from_patches(patches, labels), labels, groups)

    def image_gradients(self, images: tf.Tensor, labels: tf.Tensor) -> tf.Tensor:
        """Each teacher's gradient of mean_j log D(x_j) with respect to the same images.

        Args:
          images: [m, H, W, C]; all teachers share their patches.
          labels: one-hot [m, Y].

        Returns:
          float32 [T, m, H, W, C], pointing to where the images look more real.
        """
        labels = self._tiled(labels)
        first = self.conv_1.from_patches(self._tiled(image_patches(images)), labels)
        with tf.GradientTape(watch_accessed_variables=False) as tape:
            tape.watch(first)
            log_real = -tf.nn.softplus(-self._head(first, labels, groups=1))
            total = tf.reduce_sum(tf.reduce_mean(log_real, axis=1))
        return crop(self.conv_1.image_gradient(tape.gradient(total, first)), self.height, self.width)

    def _head(self, features: tf.Tensor, labels: tf.Tensor, groups: int) -> tf.Tensor:
        # In float32 whatever the precision: bfloat16 is for matrix products, and slow elsewhere.
        features = tf.nn.leaky_relu(tf.cast(features, tf.float32), 0.2)
        features = tf.nn.leaky_relu(self.norm_2(self.conv_2((features, labels)), groups=groups), 0.2)
        features = tf.reshape(features, [self.num_teachers, tf.shape(features)[1], self.dense_3.kernel.shape[1]])
        features = tf.nn.leaky_relu(self.norm_3(self.dense_3((features, labels)), groups=groups), 0.2)
        return self.dense_4((features, labels))[..., 0]


# Taps of the 5x5 patches of stride 2 that together hold every pixel once.
_OWN_TAPS = (6, 7, 11, 12)


class EnsembleDenseDiscriminator(_Discriminators):
    """T independent conditional discriminators of two dense layers, with leaky ReLU between them.

    Input shape: images [T, B, H, W, C], one-hot labels [T, B, Y].
    Output shape: logits [T, B] of "this image is real".

    Args:
      num_teachers: T.
      image_shape: (H, W, C); images are padded to the next multiples of 4.
      num_classes: Y.
      units: width of the hidden layer.
      precision: see `EnsembleDiscriminator`.
    """

    def __init__(self, num_teachers: int, image_shape: tuple[int, int, int], num_classes: int, *, units: int = 128,
                 precision: str = "float32", **kwargs):
        super().__init__(**kwargs)
        self.num_teachers = num_teachers
        self.padded_shape = padded_shape(image_shape)
        self.dense_1 = EnsembleDense(num_teachers, units, dtype=precision.removeprefix("mixed_"), name="dense_1")
        self.dense_2 = EnsembleDense(num_teachers, 1, name="dense_2")
        labels = (num_teachers, None, num_classes)
        self.dense_1.build([(num_teachers, None, math.prod(self.padded_shape)), labels])
        self.dense_2.build([(num_teachers, None, units), labels])
        self.built = True

    def call(self, inputs, groups: int = 1):
        images, labels = inputs
        return self.from_patches(image_patches(images), labels)

    def from_patches(self, patches: tf.Tensor, labels: tf.Tensor, groups: int = 1) -> tf.Tensor:
        """Logits [T, B] for patches [T, B, H/2 * W/2, 25 * C]; groups make no difference without batch statistics."""
        shape = tf.shape(patches)
        taps = tf.reshape(patches, tf.concat([shape[:3], [-1, self.padded_shape[-1]]], 0))
        pixels = tf.reshape(tf.gather(taps, _OWN_TAPS, axis=3), [shape[0], shape[1], math.prod(self.padded_shape)])
        hidden = tf.nn.leaky_relu(tf.cast(self.dense_1((pixels, labels)), tf.float32), 0.2)
        return self.dense_2((hidden, labels))[..., 0]
