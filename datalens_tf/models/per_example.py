"""Each example's own gradient for the weights of linear layers, from the inputs and outputs of a layer."""

import itertools
from collections.abc import Iterable, Iterator, Sequence
from typing import Any

import numpy as np
import tensorflow as tf
from numpy.typing import NDArray


def linear_gradients(inputs: tf.Tensor, deltas: tf.Tensor) -> tuple[tf.Tensor, tf.Tensor]:
    """Gradients of the kernel and the bias of a linear layer, for each of n examples.

    Args:
      inputs: what the layer multiplied with its kernel, at each position, float32 [n, positions, rows].
      deltas: gradient of the sum of all examples' losses with respect to what the layer put out, float32 [n, positions,
        columns]. Example i alone decides row i, where examples do not see each other.

    Returns:
      float32 [n, rows, columns] and [n, columns].
    """
    return tf.matmul(inputs, deltas, transpose_a=True), tf.reduce_sum(deltas, 1)


def averages(gradients: Iterable[NDArray[Any]], units: Iterable[int]) -> Iterator[NDArray[np.float32]]:
    """Each unit's average gradient, float32 [d], from its own examples alone, which follow each other.

    Values that are not finite, or too large for float32, stay so in their own unit's average and affect no other.
    """
    for _, rows in itertools.groupby(zip(units, gradients), key=lambda row: row[0]):
        total, count = np.zeros(()), 0
        with np.errstate(over="ignore", invalid="ignore"):
            for _, gradient in rows:
                total, count = total + gradient.astype(np.float64), count + 1
            yield (total / count).astype(np.float32)


def flattened(parts: Sequence[tf.Tensor]) -> tf.Tensor:
    """Gradients [n, ...] of several weights as one vector per example, float32 [n, d]."""
    return tf.concat([tf.reshape(part, [tf.shape(part)[0], -1]) for part in parts], 1)


def unflattened(vector: tf.Tensor, weights: Sequence[tf.Variable]) -> list[tf.Tensor]:
    """A vector [d] as tensors like the weights, which have d numbers together."""
    sizes = [weight.shape.num_elements() for weight in weights]
    return [tf.reshape(part, weight.shape) for part, weight in zip(tf.split(vector, sizes), weights)]
