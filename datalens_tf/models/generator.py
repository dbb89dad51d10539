"""The student: a conditional DC-GAN generator."""

import tensorflow as tf

from datalens_tf.models.enlarging import Enlarged
from datalens_tf.models.padding import crop, padded_shape

_MOMENTUM = 0.9


def _normal():
    """A fresh N(0, 0.02^2) initializer: a re-used instance would draw the same values again."""
    return tf.keras.initializers.RandomNormal(stddev=0.02)


class Generator(tf.keras.Model):
    """The conditional DC-GAN generator of the DataLens authors' code.

    [z, y] -> dense, BN, ReLU -> dense filters * H/4 * W/4, BN, ReLU -> transposed conv 5x5/2, BN, ReLU -> transposed
    conv 5x5/2, sigmoid; the label joins every layer.

    Input shape: latents [B, z] float32, labels [B] integer.
    Output shape: images [B, H, W, C] in [0, 1].

    Args:
      image_shape: (H, W, C). The feature maps are for the next multiples of 4, and the excess is cut off.
      num_classes: Y.
      latent_dim: z.
      units: width of the first dense layer.
      filters: channels of the hidden feature maps.
      contrast: factor by which the sigmoid is stretched about 1/2, before it is cut off at 0 and 1.
      enlarge: the layers make an image this many times smaller, which is then enlarged.
    """

    def __init__(self, image_shape: tuple[int, int, int], num_classes: int, latent_dim: int, *, units: int = 1024,
                 filters: int = 128, contrast: float = 1.0, enlarge: int = 1, **kwargs):
        super().__init__(**kwargs)
        self._enlarged = Enlarged(image_shape, enlarge)
        height, width, channels = padded_shape((*self._enlarged.small, image_shape[2]))
        self.num_classes, self.latent_dim, self.contrast = num_classes, latent_dim, contrast
        self.dense_1 = tf.keras.layers.Dense(units, use_bias=False, kernel_initializer=_normal())
        self.dense_2 = tf.keras.layers.Dense(
            filters * height * width // 16, use_bias=False, kernel_initializer=_normal())
        self.to_map = tf.keras.layers.Reshape((height // 4, width // 4, filters))
        self.deconv_3 = tf.keras.layers.Conv2DTranspose(
            filters, 5, 2, "same", use_bias=False, kernel_initializer=_normal())
        self.deconv_4 = tf.keras.layers.Conv2DTranspose(channels, 5, 2, "same", kernel_initializer=_normal())
        self.norms = [tf.keras.layers.BatchNormalization(momentum=_MOMENTUM, epsilon=1e-5) for _ in range(3)]
        self([tf.zeros([1, latent_dim]), tf.zeros([1], tf.int32)])

    def call(self, inputs, training: bool = False):
        latents, labels = inputs
        one_hot = tf.one_hot(labels, self.num_classes)
        planes = one_hot[:, None, None, :]

        def join(maps):
            shape = tf.concat([tf.shape(maps)[:3], [self.num_classes]], 0)
            return tf.concat([maps, tf.broadcast_to(planes, shape)], -1)

        hidden = tf.nn.relu(self.norms[0](self.dense_1(tf.concat([latents, one_hot], 1)), training=training))
        hidden = tf.nn.relu(self.norms[1](self.dense_2(tf.concat([hidden, one_hot], 1)), training=training))
        hidden = tf.nn.relu(self.norms[2](self.deconv_3(join(self.to_map(hidden))), training=training))
        return self._enlarged(self._stretch(tf.sigmoid(crop(self.deconv_4(join(hidden)), *self._enlarged.small))))

    def _stretch(self, images):
        """Applies the contrast, with the gradient of the sigmoid alone: a pixel that is cut off can still learn."""
        stretched = tf.clip_by_value(0.5 + self.contrast * (images - 0.5), 0.0, 1.0)
        return tf.stop_gradient(stretched) + (images - tf.stop_gradient(images))

    def set_statistics(self, latents: tf.Tensor, labels: tf.Tensor) -> None:
        """Sets the statistics used outside training to those of this batch, which should be large."""
        for norm in self.norms:
            norm.momentum = 0.0
        self([latents, labels], training=True)
        for norm in self.norms:
            norm.momentum = _MOMENTUM
