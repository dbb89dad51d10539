"""The network that judges condensed data sets, ConvNet-3, and the augmentation of its training images.

Zhao, Mopuri and Bilen, "Dataset condensation with gradient matching", ICLR 2021; the augmentation follows Zhao and
Bilen, "Dataset condensation with differentiable siamese augmentation", ICML 2021, with layers of Keras.
"""

from typing import Any

import tensorflow as tf

from datalens_tf import rng

FILTERS, BLOCKS = 128, 3
_WEIGHT_DECAY = 5e-4
_MOMENTUM = 0.9
CONDENSED_TEXT = (
    f"{BLOCKS} times conv {FILTERS} 3x3 - instance norm - ReLU - mean of 2x2, then softmax, on images that are shifted "
    "by up to an eighth, turned by up to 15 degrees, scaled by up to a fifth, lit by up to a fifth, and mirrored if "
    "they are in colour; ")


class InstanceNormalization(tf.keras.layers.Layer):
    """Keras' `GroupNormalization(-1)` of [B, H, W, C], its moments in float32, in a form that suits bfloat16.

    Keras' layer casts whole images to float32 and back, which makes a step in bfloat16 a fifth longer.
    """

    def __init__(self, **options: Any):
        super().__init__(autocast=False, **options)

    def build(self, shape: tf.TensorShape) -> None:
        self._gamma = self.add_weight("gamma", shape[-1:], tf.float32, "ones", experimental_autocast=False)
        self._beta = self.add_weight("beta", shape[-1:], tf.float32, "zeros", experimental_autocast=False)
        super().build(shape)

    def call(self, inputs: tf.Tensor) -> tf.Tensor:
        precise = tf.cast(inputs, tf.float32)
        mean = tf.reduce_mean(precise, [1, 2], keepdims=True)
        variance = tf.reduce_mean(tf.square(precise), [1, 2], keepdims=True) - tf.square(mean)
        scale = self._gamma * tf.math.rsqrt(tf.maximum(variance, 0.0) + 1e-3)
        return inputs * tf.cast(scale, inputs.dtype) + tf.cast(self._beta - mean * scale, inputs.dtype)


def condensed_classifier(image_shape: tuple[int, int, int], num_classes: int, seed: int = 0,
                         precision: str = "float32") -> tf.keras.Model:
    """ConvNet-3 of 128 filters, its initial weights and the moves of its training images drawn from the seed.

    Input shape: images [B, H, W, C] in [0, 1], H and W at least 8. Output shape: logits float32 [B, num_classes]. The
    Keras layers that move images do so unless they are called with `training=False`.
    """
    layers, policy = tf.keras.layers, tf.keras.mixed_precision.Policy(precision)
    seeds = iter(rng.stream(int(seed), "condensed").integers(0, 2**31, size=9).tolist())

    def learned(kind, *args, **options):
        return kind(*args, kernel_initializer=tf.keras.initializers.HeNormal(seed=next(seeds)),
                    kernel_regularizer=tf.keras.regularizers.L2(_WEIGHT_DECAY / 2), **options)

    moves = [layers.RandomTranslation(1 / 8, 1 / 8, "constant", seed=next(seeds)),
             layers.RandomRotation(15 / 360, "constant", seed=next(seeds)),
             layers.RandomZoom(0.2, fill_mode="constant", seed=next(seeds)),
             layers.RandomBrightness(0.2, value_range=(0, 1), seed=next(seeds))]
    mirrored = layers.RandomFlip("horizontal", seed=next(seeds))
    blocks = [layer for _ in range(BLOCKS) for layer in (
        learned(layers.Conv2D, FILTERS, 3, padding="same", dtype=policy), InstanceNormalization(dtype=policy),
        layers.ReLU(dtype=policy), layers.AveragePooling2D(dtype=policy))]
    return tf.keras.Sequential([
        layers.Input(image_shape), *moves, *[mirrored] * (image_shape[2] > 1), layers.Rescaling(4.0, -2.0), *blocks,
        layers.Flatten(), learned(layers.Dense, num_classes)])


def condensed_optimizer(learning_rate: float, num_steps: int) -> tf.keras.optimizers.Optimizer:
    """SGD with momentum, whose learning rate falls to a tenth after half of the steps."""
    return tf.keras.optimizers.SGD(tf.keras.optimizers.schedules.PiecewiseConstantDecay(
        [max(1, num_steps // 2)], [learning_rate, learning_rate / 10]), momentum=_MOMENTUM)
