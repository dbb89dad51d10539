"""Labels enter the critic as if their planes were drawn."""

import numpy as np
import tensorflow as tf

from datalens_tf.models.wasserstein import WassersteinCritic


def test_scores_and_their_gradients_are_those_of_convolutions_over_label_planes():
    shape, classes = (8, 12, 2), 3
    critic = WassersteinCritic(shape, classes, filters=4)
    stream = np.random.default_rng(0)
    images = tf.constant(stream.random((5, *shape), np.float32))
    labels = tf.constant([0, 2, 1, 2, 0])
    weights = [tf.constant(stream.normal(size=s).astype(np.float32)) for s in critic.shapes]

    def with_planes(weights, images):
        kernel_1, bias_1, kernel_2, bias_2, dense = weights
        maps = images
        for kernel, bias in ((kernel_1, bias_1), (kernel_2, bias_2)):
            planes = tf.ones([*maps.shape[:3], 1]) * tf.one_hot(labels, classes)[:, None, None, :]
            maps = tf.nn.leaky_relu(tf.nn.conv2d(tf.concat([maps, planes], -1), kernel, 2, "SAME") + bias, 0.2)
        return (tf.reshape(maps, [len(images), -1]) @ dense)[:, 0]

    results = []
    for score in (lambda w, x: critic(w, x, labels), with_planes):
        with tf.GradientTape() as tape:
            tape.watch([*weights, images])
            scores = score(weights, images)
            total = tf.reduce_sum(scores * tf.constant([1.0, -2.0, 3.0, 0.5, 1.0]))
        results.append([scores, *tape.gradient(total, [*weights, images])])
    for found, expected in zip(*results):
        np.testing.assert_allclose(found, expected, rtol=1e-4, atol=1e-3)
