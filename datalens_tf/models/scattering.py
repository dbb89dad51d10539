"""Fixed oriented filters in two levels, by which images are described without having looked at any."""

import numpy as np
import tensorflow as tf

from datalens_tf import _validate

ORIENTATIONS = 8
_SIZE = 7  # of the filters, in pixels
_FREQUENCY = 3 * np.pi / 4  # radians per pixel
_SLANT = 0.5  # a filter is 1 / _SLANT times as long across its waves as along them
_PER_GROUP = 3  # channels that are normalised together


class Scattering(tf.Module):
    """A small scattering network (Bruna and Mallat 2013): moduli of Gabor filters, twice, pooled.

    Of every colour, 81 maps: the image itself, its moduli at two scales for 8 orientations, and the moduli of the finer
    ones' moduli. Maps are normalised within an image in groups of three (Tramer and Boneh 2021 found that classifiers
    under differential privacy need it), and the vector has length 1. Nothing is learned and nothing is random: the
    features of an image are a public function of it. Differentiable.

    Input shape: images float32 [n, H, W, C] in [0, 1], H and W divisible by 4.
    Output shape: float32 [n, C * 81 * H / 4 * W / 4], of l2 norm 1 up to rounding (0 never: an image of one colour has
    features of rounding errors' size, or zeros).
    """

    def __init__(self, image_shape: tuple[int, int, int], name: str | None = None):
        super().__init__(name=name)
        height, width, channels = image_shape
        _validate.require(height % 4 == width % 4 == 0, "image_shape", image_shape, "with H and W divisible by 4")
        self.image_shape = (height, width, channels)
        self.num_features = channels * (1 + 2 * ORIENTATIONS + ORIENTATIONS**2) * (height // 4) * (width // 4)
        self._filters = tf.constant(gabor_filters())

    def __call__(self, images: tf.Tensor) -> tf.Tensor:
        height, width, channels = self.image_shape
        count, size = tf.shape(images)[0], (height // 4) * (width // 4)
        colours = tf.reshape(tf.transpose(images, [0, 3, 1, 2]), [-1, height, width, 1])
        maps = tf.reshape(self._maps(colours), [count * channels, size, -1, _PER_GROUP])
        mean, variance = tf.nn.moments(maps, [1, 3], keepdims=True)
        maps = (maps - mean) * tf.math.rsqrt(variance + 1e-5)
        return tf.math.l2_normalize(tf.reshape(maps, [count, self.num_features]), 1, epsilon=1e-6)

    def _maps(self, images):
        """[b, H, W, 1] -> [b, H / 4, W / 4, 81]."""
        height, width = self.image_shape[:2]
        half, fine = _halve(images), _halve(self._moduli(images))
        nested = tf.reshape(tf.transpose(fine, [0, 3, 1, 2]), [-1, height // 2, width // 2, 1])
        nested = tf.reshape(_halve(self._moduli(nested)), [-1, ORIENTATIONS, height // 4, width // 4, ORIENTATIONS])
        nested = tf.reshape(tf.transpose(nested, [0, 2, 3, 1, 4]), [-1, height // 4, width // 4, ORIENTATIONS**2])
        return tf.concat([_halve(half), _halve(fine), _halve(self._moduli(half)), nested], -1)

    def _moduli(self, images):
        """[b, h, w, 1] -> [b, h, w, 8]: how much of each orientation there is, wherever its waves begin."""
        edge = min(_SIZE // 2, images.shape[1] - 1, images.shape[2] - 1)
        mirrored = tf.pad(images, [[0, 0], [edge, edge], [edge, edge], [0, 0]], "REFLECT")
        rest = _SIZE // 2 - edge
        mirrored = tf.pad(mirrored, [[0, 0], [rest, rest], [rest, rest], [0, 0]])
        waves = tf.nn.conv2d(mirrored, self._filters, 1, "VALID")
        # The small number is for the gradient at zero.
        return tf.sqrt(tf.square(waves[..., :ORIENTATIONS]) + tf.square(waves[..., ORIENTATIONS:]) + 1e-8)


def gabor_filters() -> np.ndarray:
    """Even and odd Gabor filters of all orientations, blind to brightness: float32 [7, 7, 1, 16]."""
    offsets = np.arange(_SIZE) - _SIZE // 2
    rows, columns = np.meshgrid(offsets, offsets, indexing="ij")
    filters = []
    for angle in np.pi * np.arange(ORIENTATIONS) / ORIENTATIONS:
        along = columns * np.cos(angle) + rows * np.sin(angle)
        across = rows * np.cos(angle) - columns * np.sin(angle)
        window = np.exp(-(along**2 + _SLANT**2 * across**2) / 2)
        wave = np.exp(1j * _FREQUENCY * along)
        gabor = window * (wave - np.sum(wave * window) / np.sum(window))
        filters.append(gabor / np.abs(gabor).sum())
    bank = np.stack(filters, -1)
    return np.concatenate([bank.real, bank.imag], -1)[:, :, None].astype(np.float32)


def _halve(images):
    """Means of squares of four pixels."""
    return tf.nn.avg_pool2d(images, 2, 2, "VALID")
