"""Images drawn from a few prototypes of each class, mirrored and in changing light: public priors on photographs."""

import dataclasses

import numpy as np
import scipy.special
import tensorflow as tf

from datalens_tf.models.enlarging import Enlarged


@dataclasses.dataclass(frozen=True)
class Light:
    """The spread of light over images.

    Attributes:
      contrast: standard deviation of the logarithm of an image's contrast.
      brightness: standard deviation of its brightness, in pixel values.
      edge: how near to black or white a pixel value has to be for light to change it less, and the less the nearer.
        Black backgrounds stay black. With 0, light changes all pixels alike.
    """

    contrast: float
    brightness: float
    edge: float = 0.0

    def falling(self, images: tf.Tensor, contrast: tf.Tensor, brightness: tf.Tensor) -> tf.Tensor:
        """Images [n, H, W, C] in [0, 1], each in a light of its own, by numbers [n, 1, 1, 1] from N(0, 1)."""
        lit = 0.5 + (images - 0.5) * tf.exp(self.contrast * contrast) + self.brightness * brightness
        if self.edge:
            lit = images + tf.minimum(1.0, tf.minimum(images, 1.0 - images) / self.edge) * (lit - images)
        return tf.clip_by_value(lit, 0.0, 1.0)


TO_LEARN_FROM = Light(contrast=0.2, brightness=0.08)
# Of grey pictures. No classifier learns from these images, so that backgrounds may stay as they are.
TO_LOOK_AT = Light(contrast=0.4, brightness=0.08, edge=0.25)


class PrototypeGenerator(tf.Module):
    """One of the prototypes of a class, as it is or mirrored, lighter or darker, with more or less contrast.

    Input shape: latents float32 [n, 4] from N(0, 1), for the prototype, the mirror, contrast, and brightness; labels
    integer [n].
    Output shape: images float32 [n, H, W, C] in [0, 1].

    Args:
      image_shape: (H, W, C).
      prototypes: uint8 [Y, N, h, w, C].
      weights: how often each prototype is drawn, at least 0, and not all 0 in a class: [Y, N].
      mirrored: whether half of the images are mirrored.
      enlarge: how many times smaller prototypes are than images.
      light: how light varies.
    """

    latent_dim = 4

    def __init__(self, image_shape: tuple[int, int, int], prototypes: np.ndarray, weights: np.ndarray, mirrored: bool,
                 enlarge: int = 1, light: Light = TO_LEARN_FROM, name: str | None = None):
        super().__init__(name=name)
        self._light = light
        self.num_classes, self._count = prototypes.shape[:2]
        self.image_shape, self._mirrored = tuple(image_shape), mirrored
        self._enlarged = Enlarged(image_shape, enlarge)
        sums = np.cumsum(weights, 1)
        # No prototype beyond the last is drawn, whatever the rounding.
        bounds = scipy.special.ndtri(np.minimum(sums / sums[:, -1:], 1.0))[:, :-1]
        self.bounds = tf.Variable(bounds, trainable=False, dtype=tf.float32)
        self.prototypes = tf.Variable(prototypes.reshape(-1, *prototypes.shape[2:]), trainable=False, dtype=tf.uint8)

    def __call__(self, inputs, training: bool = False):
        latents, labels = inputs
        which, mirror, contrast, brightness = tf.unstack(latents[:, :, None, None, None], axis=1)
        later = tf.cast(which[:, :, 0, 0] >= tf.gather(self.bounds, labels), tf.int32)
        own = tf.cast(labels, tf.int32) * self._count + tf.reduce_sum(later, 1)
        images = self._enlarged(tf.cast(tf.gather(self.prototypes, own), tf.float32) / 255)
        if self._mirrored:
            images = mirrored(images, mirror)
        return self._light.falling(images, contrast, brightness)


def mirrored(images: tf.Tensor, coins: tf.Tensor) -> tf.Tensor:
    """Images [n, H, W, C], mirrored where coins [n, 1, 1, 1] are negative."""
    return tf.where(coins < 0, tf.reverse(images, [2]), images)
