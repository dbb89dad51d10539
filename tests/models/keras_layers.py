"""Ordinary Keras layers that equal one teacher of an ensemble's."""

import numpy as np
import tensorflow as tf


def label_planes(labels, height, width):
    return tf.tile(labels[:, None, None, :], [1, height, width, 1])


def keras_conv(layer, teacher):
    """The ordinary Keras layer over images with label planes that equals one teacher of an EnsembleConv2D."""
    kernel = np.concatenate([layer.kernel[teacher], layer.label_kernel[teacher]], 1)
    conv = tf.keras.layers.Conv2D(layer.filters, 5, 2, "same", use_bias=layer.use_bias)
    conv.build((None, None, None, kernel.shape[1]))
    conv.set_weights([kernel.reshape(5, 5, -1, layer.filters), *([layer.bias[teacher]] if layer.use_bias else [])])
    return conv


def keras_dense(layer, teacher):
    """The ordinary Keras layer over features and one-hot label that equals one teacher of an EnsembleDense."""
    kernel = np.concatenate([layer.kernel[teacher], layer.label_kernel[teacher]], 0)
    dense = tf.keras.layers.Dense(layer.units, use_bias=layer.use_bias)
    dense.build((None, len(kernel)))
    dense.set_weights([kernel, *([layer.bias[teacher]] if layer.use_bias else [])])
    return dense
