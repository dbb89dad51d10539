"""The network that judges condensed data sets, ConvNet-3, and the augmentation of its training images.

Zhao, Mopuri and Bilen, "Dataset condensation with gradient matching", ICLR 2021; the augmentation follows Zhao and
Bilen, "Dataset condensation with differentiable siamese augmentation", ICML 2021, with layers of Keras.
"""

import tensorflow as tf

from datalens_tf import rng

FILTERS, BLOCKS = 128, 3
_WEIGHT_DECAY = 5e-4
_MOMENTUM = 0.9
CONDENSED_TEXT = (
    f"{BLOCKS} times conv {FILTERS} 3x3 - instance norm - ReLU - mean of 2x2, then softmax, on images that are shifted "
    "by up to an eighth, turned by up to 15 degrees, scaled by up to a fifth, lit by up to a fifth, and mirrored if "
    "they are in colour; ")


def condensed_classifier(image_shape: tuple[int, int, int], num_classes: int, seed: int = 0) -> tf.keras.Model:
    """ConvNet-3 of 128 filters, its initial weights and the moves of its training images drawn from the seed.

    Input shape: images [B, H, W, C] in [0, 1], H and W at least 8. Output shape: logits [B, num_classes]. The Keras
    layers that move images do so unless they are called with `training=False`.
    """
    layers, seeds = tf.keras.layers, iter(rng.stream(int(seed), "condensed").integers(0, 2**31, size=9).tolist())

    def learned(kind, *args, **options):
        return kind(*args, kernel_initializer=tf.keras.initializers.HeNormal(seed=next(seeds)),
                    kernel_regularizer=tf.keras.regularizers.L2(_WEIGHT_DECAY / 2), **options)

    moves = [layers.RandomTranslation(1 / 8, 1 / 8, "constant", seed=next(seeds)),
             layers.RandomRotation(15 / 360, "constant", seed=next(seeds)),
             layers.RandomZoom(0.2, fill_mode="constant", seed=next(seeds)),
             layers.RandomBrightness(0.2, value_range=(0, 1), seed=next(seeds))]
    mirrored = layers.RandomFlip("horizontal", seed=next(seeds))
    blocks = [layer for _ in range(BLOCKS) for layer in (
        learned(layers.Conv2D, FILTERS, 3, padding="same"), layers.GroupNormalization(-1), layers.ReLU(),
        layers.AveragePooling2D())]
    return tf.keras.Sequential([
        layers.Input(image_shape), *moves, *[mirrored] * (image_shape[2] > 1), layers.Rescaling(4.0, -2.0), *blocks,
        layers.Flatten(), learned(layers.Dense, num_classes)])


def condensed_optimizer(learning_rate: float, num_steps: int) -> tf.keras.optimizers.Optimizer:
    """SGD with momentum, whose learning rate falls to a tenth after half of the steps."""
    return tf.keras.optimizers.SGD(tf.keras.optimizers.schedules.PiecewiseConstantDecay(
        [max(1, num_steps // 2)], [learning_rate, learning_rate / 10]), momentum=_MOMENTUM)
