"""Per-example gradients equal those of a loop over examples."""

import numpy as np
import pytest
import tensorflow as tf

from datalens_tf.models.critic import Critic


@pytest.mark.parametrize("shape", [(8, 8, 1), (8, 12, 3)])
def test_per_example_gradients_equal_a_loop(shape):
    critic = Critic(shape, 3, filters=4, seed=0)
    stream = np.random.default_rng(0)
    images, labels = stream.random((5, *shape), np.float32), np.array([0, 1, 2, 2, 0])

    def loss(logits):
        return tf.nn.softplus(-logits)

    found = critic.per_example_gradients(tf.constant(images), tf.constant(labels), loss).numpy()
    assert found.shape == (5, critic.num_parameters)
    for i in range(5):
        with tf.GradientTape() as tape:
            alone = loss(critic(images[i:i + 1], labels[i:i + 1]))
        expected = np.concatenate([g.numpy().ravel() for g in map(tf.convert_to_tensor,
                                                                  tape.gradient(alone, critic.weights))])
        np.testing.assert_allclose(found[i], expected, rtol=1e-4, atol=1e-6)
    parts = critic.unflatten(tf.constant(found[0]))
    assert [part.shape for part in parts] == [weight.shape for weight in critic.weights]
    np.testing.assert_array_equal(np.concatenate([part.numpy().ravel() for part in parts]), found[0])


def test_examples_of_a_batch_do_not_see_each_other():
    critic = Critic((8, 8, 1), 3, filters=4, seed=0)
    images = np.random.default_rng(1).random((4, 8, 8, 1), np.float32)
    labels, changed = np.array([0, 1, 2, 0]), images.copy()
    changed[1] = 1 - changed[1]
    before, after = critic(images, labels).numpy(), critic(changed, labels).numpy()
    np.testing.assert_allclose(np.delete(before, 1), np.delete(after, 1), rtol=1e-6)
    assert before[1] != after[1]


def test_the_label_matters():
    critic = Critic((8, 8, 1), 3, filters=4, seed=0)
    image = np.random.default_rng(1).random((1, 8, 8, 1), np.float32)
    assert len({float(critic(image, np.array([label]))[0]) for label in range(3)}) == 3
