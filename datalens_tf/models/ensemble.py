"""Layers with a leading teacher axis: T small networks computed as batched matrix products.

Nothing is shared between teachers: every parameter and every statistic has the teacher axis first, and no operation
reduces over it. A label plane is constant over the image, so its convolution is a per-class bias map; a label
concatenated to features is a per-class bias vector. Both are computed as such, which is exact.
"""

import functools

import numpy as np
import tensorflow as tf

from datalens_tf.models.padding import pad

_TAPS = 5  # All convolutions are 5x5, stride 2, SAME: output i reads inputs 2i - 1 ... 2i + 3.
_STDDEV = 0.02


def _truncated_normal() -> tf.keras.initializers.Initializer:
    """Initializer for convolutions, fresh each time: a re-used instance would draw the same values again."""
    return tf.keras.initializers.TruncatedNormal(stddev=_STDDEV)


def _normal() -> tf.keras.initializers.Initializer:
    """Initializer for dense layers, fresh each time."""
    return tf.keras.initializers.RandomNormal(stddev=_STDDEV)


@functools.lru_cache
def _patch_indices(height: int, width: int) -> np.ndarray:
    """Input position of tap (a, b) at output (i, j): int32 [H/2 * W/2 * 25], with H * W for zero padding."""
    rows = 2 * np.arange(height // 2)[:, None] - 1 + np.arange(_TAPS)
    cols = 2 * np.arange(width // 2)[:, None] - 1 + np.arange(_TAPS)
    inside = ((rows >= 0) & (rows < height))[:, None, :, None] & ((cols >= 0) & (cols < width))[None, :, None, :]
    return np.where(inside, rows[:, None, :, None] * width + cols[None, :, None, :], height * width).astype(
        np.int32).reshape(-1)


@functools.lru_cache
def _neighbour_indices(height: int, width: int) -> np.ndarray:
    """The 3x3 neighbourhood of every position: int32 [H * W * 9], with H * W for zero padding."""
    padded = np.full((height + 2, width + 2), height * width, np.int32)
    padded[1:-1, 1:-1] = np.arange(height * width).reshape(height, width)
    windows = np.lib.stride_tricks.sliding_window_view(padded, (3, 3))
    return np.ascontiguousarray(windows).reshape(-1)


@functools.lru_cache
def _adjoint_taps() -> np.ndarray:
    """Tap that carries the gradient at output q + s to input 2q + e: int32 [3, 3, 2, 2], with 25 for none."""
    offset, parity = np.arange(-1, 2)[:, None], np.arange(2)[None, :]
    tap = parity + 1 - 2 * offset
    valid = (tap >= 0) & (tap < _TAPS)
    both = valid[:, None, :, None] & valid[None, :, None, :]
    return np.where(both, tap[:, None, :, None] * _TAPS + tap[None, :, None, :], _TAPS**2).astype(np.int32)


def _gather_positions(x: tf.Tensor, indices: np.ndarray) -> tf.Tensor:
    """Rows of x [..., positions, C] at constant indices, where index `positions` reads zeros."""
    shape = tf.shape(x)
    flat = tf.reshape(x, [-1, x.shape[-2], x.shape[-1]])
    gathered = tf.gather(tf.pad(flat, [[0, 0], [0, 1], [0, 0]]), indices, axis=1)
    return tf.reshape(gathered, tf.concat([shape[:-2], [len(indices), x.shape[-1]]], 0))


def conv_patches(images: tf.Tensor) -> tf.Tensor:
    """Patches of the 5x5 stride-2 SAME convolution: [..., H, W, C] -> [..., H/2 * W/2, 25 * C]."""
    height, width, channels = images.shape[-3:]
    lead = tf.shape(images)[:-3]
    flat = tf.reshape(images, tf.concat([lead, [height * width, channels]], 0))
    gathered = _gather_positions(flat, _patch_indices(height, width))
    return tf.reshape(gathered, tf.concat([lead, [height * width // 4, _TAPS**2 * channels]], 0))


def image_patches(images: tf.Tensor) -> tf.Tensor:
    """`conv_patches` of images of any size, padded to the next multiples of 4."""
    return conv_patches(pad(images))


def _conv_adjoint(gradient: tf.Tensor, kernel: tf.Tensor) -> tf.Tensor:
    """Gradient with respect to the images of `_conv`: [T, B, H/2, W/2, F], [T, 25, C, F] -> [T, B, H, W, C].

    Scattering patch gradients is slow. Each input position of one parity is reached from a 3x3 neighbourhood of
    outputs, so the adjoint is a 3x3 convolution to 2x2 sub-pixels, and again a matrix product.
    """
    teachers, batch = tf.unstack(tf.shape(gradient)[:2])
    half_height, half_width, filters = gradient.shape[-3:]
    channels = kernel.shape[2]
    positions = half_height * half_width
    neighbours = _gather_positions(
        tf.reshape(gradient, [teachers, batch, positions, filters]), _neighbour_indices(half_height, half_width))
    taps = tf.gather(tf.pad(kernel, [[0, 0], [0, 1], [0, 0], [0, 0]]), _adjoint_taps().reshape(9, 4), axis=1)
    matrix = tf.reshape(tf.transpose(taps, [0, 1, 4, 2, 3]), [teachers, 9 * filters, 4 * channels])
    blocks = tf.matmul(tf.reshape(neighbours, [teachers, batch * positions, 9 * filters]), matrix)
    blocks = tf.reshape(blocks, [teachers * batch, half_height, half_width, 4 * channels])
    return tf.reshape(tf.nn.depth_to_space(blocks, 2), [teachers, batch, 2 * half_height, 2 * half_width, channels])


@tf.custom_gradient
def _conv(images: tf.Tensor, kernel: tf.Tensor):
    """Convolves images [T, B, H, W, C] with each teacher's kernel [T, 25, C, F]: [T, B, H/2, W/2, F]."""
    teachers, batch = tf.unstack(tf.shape(images)[:2])
    height, width, channels = images.shape[-3:]
    filters = kernel.shape[-1]
    positions = height * width // 4
    patches = tf.reshape(conv_patches(images), [teachers, batch * positions, _TAPS**2 * channels])
    matrix = tf.reshape(kernel, [teachers, _TAPS**2 * channels, filters])
    output = tf.reshape(tf.matmul(patches, matrix), [teachers, batch, height // 2, width // 2, filters])

    def gradients(upstream):
        flat = tf.reshape(upstream, [teachers, batch * positions, filters])
        kernel_gradient = tf.reshape(tf.matmul(patches, flat, transpose_a=True), tf.shape(kernel))
        return _conv_adjoint(upstream, kernel), kernel_gradient

    return output, gradients


class EnsembleConv2D(tf.keras.layers.Layer):
    """One 5x5 stride-2 SAME convolution per teacher over images and their label planes.

    Input shape: images [T, B, H, W, C] with even H and W, one-hot labels [T, B, Y].
    Output shape: [T, B, H/2, W/2, filters].

    Args:
      num_teachers: T.
      filters: output channels.
      use_bias: False where batch normalisation follows and would cancel it.
    """

    def __init__(self, num_teachers: int, filters: int, use_bias: bool = True, **kwargs):
        super().__init__(**kwargs)
        self.num_teachers, self.filters, self.use_bias = num_teachers, filters, use_bias

    def build(self, input_shape):
        image_shape, label_shape = input_shape
        height, width, channels = image_shape[-3:]
        lead = (self.num_teachers, _TAPS**2)
        self.half_size = (height // 2, width // 2)
        self.kernel = self.add_weight(
            "kernel", (*lead, channels, self.filters), initializer=_truncated_normal())
        self.label_kernel = self.add_weight(
            "label_kernel", (*lead, label_shape[-1], self.filters), initializer=_truncated_normal())
        if self.use_bias:
            self.bias = self.add_weight("bias", (self.num_teachers, self.filters), initializer="zeros")
        # Which taps fall on the image at each output position: a label plane is 1 there and 0 in the padding.
        self.inside = (_patch_indices(height, width) < height * width).reshape(-1, _TAPS**2).astype(np.float32)
        super().build(input_shape)

    def _label_maps(self, labels: tf.Tensor) -> tf.Tensor:
        """Contribution of the label planes (and the bias) to the output: [T, B, H/2 * W/2 * filters]."""
        label_kernel = tf.cast(self.label_kernel, self.compute_dtype)
        maps = tf.einsum("pk,tkyf->typf", tf.cast(self.inside, self.compute_dtype), label_kernel)
        if self.use_bias:
            maps += tf.cast(self.bias, self.compute_dtype)[:, None, None, :]
        return tf.matmul(labels, tf.reshape(maps, [self.num_teachers, labels.shape[-1], -1]))

    def _add_labels(self, output: tf.Tensor, labels: tf.Tensor) -> tf.Tensor:
        shape = [self.num_teachers, -1, *self.half_size, self.filters]
        return tf.reshape(output, shape) + tf.reshape(self._label_maps(labels), shape)

    def call(self, inputs):
        images, labels = inputs
        return self._add_labels(_conv(images, self.kernel), labels)

    def from_patches(self, patches: tf.Tensor, labels: tf.Tensor) -> tf.Tensor:
        """Output for patches [T, B, H/2 * W/2, 25 * C] made by `conv_patches`, not differentiable in them."""
        flat = tf.reshape(tf.cast(patches, self.compute_dtype), [self.num_teachers, -1, patches.shape[-1]])
        matrix = tf.reshape(tf.cast(self.kernel, self.compute_dtype), [self.num_teachers, -1, self.filters])
        return self._add_labels(tf.matmul(flat, matrix), tf.cast(labels, self.compute_dtype))

    def image_gradient(self, gradient: tf.Tensor) -> tf.Tensor:
        """Gradient with respect to the images, given that of the output: float32 [T, B, H, W, C]."""
        kernel = tf.cast(self.kernel, self.compute_dtype)
        return tf.cast(_conv_adjoint(tf.cast(gradient, self.compute_dtype), kernel), tf.float32)

    def get_config(self):
        return {**super().get_config(), "num_teachers": self.num_teachers, "filters": self.filters,
                "use_bias": self.use_bias}


class EnsembleDense(tf.keras.layers.Layer):
    """One dense layer per teacher over features and the one-hot label beside them.

    Input shape: features [T, B, D], one-hot labels [T, B, Y]. Output shape: [T, B, units].

    Args:
      num_teachers: T.
      units: output features.
      use_bias: False where batch normalisation follows and would cancel it.
    """

    def __init__(self, num_teachers: int, units: int, use_bias: bool = True, **kwargs):
        super().__init__(**kwargs)
        self.num_teachers, self.units, self.use_bias = num_teachers, units, use_bias

    def build(self, input_shape):
        feature_shape, label_shape = input_shape
        self.kernel = self.add_weight(
            "kernel", (self.num_teachers, feature_shape[-1], self.units), initializer=_normal())
        self.label_kernel = self.add_weight(
            "label_kernel", (self.num_teachers, label_shape[-1], self.units), initializer=_normal())
        if self.use_bias:
            self.bias = self.add_weight("bias", (self.num_teachers, self.units), initializer="zeros")
        super().build(input_shape)

    def call(self, inputs):
        features, labels = inputs
        per_class = self.label_kernel + self.bias[:, None, :] if self.use_bias else self.label_kernel
        return tf.matmul(features, self.kernel) + tf.matmul(labels, per_class)

    def get_config(self):
        return {**super().get_config(), "num_teachers": self.num_teachers, "units": self.units,
                "use_bias": self.use_bias}


@tf.custom_gradient
def _normalize(x: tf.Tensor, epsilon: tf.Tensor):
    """Zero mean, unit variance over axis 2 of [T, G, n, F], with a backward pass of few memory sweeps."""
    mean = tf.reduce_mean(x, 2, keepdims=True)
    centred = x - mean
    inverse = tf.math.rsqrt(tf.reduce_mean(tf.square(centred), 2, keepdims=True) + epsilon)
    output = centred * inverse

    def gradients(upstream):
        projection = tf.reduce_mean(upstream * output, 2, keepdims=True)
        return inverse * (upstream - tf.reduce_mean(upstream, 2, keepdims=True) - output * projection), None

    return output, gradients


class EnsembleBatchNormalization(tf.keras.layers.Layer):
    """Batch normalisation per teacher and per group of its batch (real and fake apart), with batch statistics only.

    A teacher is never used for inference, so no moving statistics exist.

    Input shape: [T, groups * B, ..., F]; the groups stand one after the other. Output shape: the same.

    Args:
      num_teachers: T.
      epsilon: added to the variance.
    """

    def __init__(self, num_teachers: int, epsilon: float = 1e-5, **kwargs):
        super().__init__(**kwargs)
        self.num_teachers, self.epsilon = num_teachers, epsilon

    def build(self, input_shape):
        shape = (self.num_teachers, input_shape[-1])
        self.gamma = self.add_weight("gamma", shape, initializer="ones")
        self.beta = self.add_weight("beta", shape, initializer="zeros")
        super().build(input_shape)

    def call(self, inputs, groups: int = 1):
        grouped = tf.reshape(inputs, [self.num_teachers, groups, -1, inputs.shape[-1]])
        normalized = _normalize(grouped, self.epsilon)
        scaled = normalized * self.gamma[:, None, None, :] + self.beta[:, None, None, :]
        return tf.reshape(scaled, tf.shape(inputs))

    def get_config(self):
        return {**super().get_config(), "num_teachers": self.num_teachers, "epsilon": self.epsilon}
