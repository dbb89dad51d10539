"""A small residual network that judges synthetic data, ResNet-8, in place of the large ones of benchmarks.

He, Zhang, Ren and Sun, "Deep residual learning for image recognition", CVPR 2016, section 4.2, with one block for each
of the three sizes. DPImageBench (2025) judges by three larger residual networks, each after 50 epochs of Adam on images
without augmentation.
"""

import tensorflow as tf

from datalens_tf import rng

FILTERS = (16, 32, 64)
RESIDUAL_TEXT = (
    f"ResNet-8 of {FILTERS[0]}, {FILTERS[1]} and {FILTERS[2]} filters with batch norm, then softmax, a learning rate "
    "that falls to 0 along half a cosine; ")


def residual_classifier(image_shape: tuple[int, int, int], num_classes: int, seed: int = 0) -> tf.keras.Model:
    """ResNet-8, its initial weights drawn from the seed.

    Input shape: images [B, H, W, C] in [0, 1]. Output shape: logits [B, num_classes].
    """
    layers, seeds = tf.keras.layers, iter(rng.stream(int(seed), "residual").integers(0, 2**31, size=10).tolist())

    def learned(kind, *args, **options):
        return kind(*args, kernel_initializer=tf.keras.initializers.HeNormal(seed=next(seeds)), **options)

    def convolved(values, filters, size=3, stride=1):
        return layers.BatchNormalization()(learned(
            layers.Conv2D, filters, size, stride, "same", use_bias=False)(values))

    images = layers.Input(image_shape)
    values = layers.ReLU()(convolved(layers.Rescaling(2.0, -1.0)(images), FILTERS[0]))
    for filters in FILTERS:
        stride = 1 if filters == FILTERS[0] else 2
        inner = convolved(layers.ReLU()(convolved(values, filters, stride=stride)), filters)
        values = layers.ReLU()(inner + (values if stride == 1 else convolved(values, filters, 1, stride)))
    return tf.keras.Model(images, learned(layers.Dense, num_classes)(layers.GlobalAveragePooling2D()(values)))


def residual_optimizer(learning_rate: float, num_steps: int) -> tf.keras.optimizers.Optimizer:
    """Adam, whose learning rate falls to 0 along half a cosine."""
    return tf.keras.optimizers.Adam(tf.keras.optimizers.schedules.CosineDecay(learning_rate, num_steps))
