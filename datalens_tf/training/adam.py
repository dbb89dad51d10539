"""Adam as a function from state to state, for networks whose state lives outside of them."""

from collections.abc import Sequence
from typing import Protocol

import tensorflow as tf

_EPSILON = 1e-8  # As in TensorFlow 1, which the DataLens authors used.


class AdamSettings(Protocol):
    """Settings that name Adam's rates."""

    @property
    def learning_rate(self) -> float:
        """Learning rate."""
        ...

    @property
    def beta_1(self) -> float:
        """Decay of the first moments."""
        ...

    @property
    def beta_2(self) -> float:
        """Decay of the second moments."""
        ...


def adam(config: AdamSettings, state: Sequence[tf.Tensor], gradients: Sequence[tf.Tensor], step: tf.Tensor
         ) -> list[tf.Tensor]:
    """One Adam step (Kingma and Ba, 2015, in the form before their section 2.1), elementwise.

    Args:
      config: learning_rate, beta_1, beta_2.
      state: weights float32, then first moments, then second moments; moments have one type and are rounded to it.
      gradients: one per weight, float32 or bfloat16.
      step: 1 for the first.

    Returns:
      The new state, in the same types.
    """
    count, step = len(gradients), tf.cast(step, tf.float32)
    rate = config.learning_rate * tf.sqrt(1 - config.beta_2**step) / (1 - config.beta_1**step)
    new = []
    for weight, m, v, gradient in zip(state[:count], state[count:2 * count], state[2 * count:], gradients):
        kind, gradient = m.dtype, tf.cast(gradient, tf.float32)
        m = config.beta_1 * tf.cast(m, tf.float32) + (1 - config.beta_1) * gradient
        v = config.beta_2 * tf.cast(v, tf.float32) + (1 - config.beta_2) * tf.square(gradient)
        new.append((weight - rate * m / (tf.sqrt(v) + _EPSILON), tf.cast(m, kind), tf.cast(v, kind)))
    return [array for each in zip(*new) for array in each]
