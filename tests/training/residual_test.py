"""The small residual network: its shape, what a seed decides, and its learning rate."""

import numpy as np
import pytest

from datalens_tf.training import residual


@pytest.mark.parametrize("shape", [(32, 32, 3), (28, 28, 1), (8, 9, 1)])
def test_it_has_seven_convolutions_and_a_dense_layer_with_shortcuts(shape):
    model = residual.residual_classifier(shape, 10)
    of_blocks = [9 * before * after + 9 * after * after for before, after in ((16, 16), (16, 32), (32, 64))]
    shortcuts = [16 * 32, 32 * 64]
    assert sum(np.prod(weight.shape) for weight in model.trainable_weights) == (
        9 * shape[2] * 16 + sum(of_blocks) + sum(shortcuts) + 2 * (3 * 16 + 3 * 32 + 3 * 64) + 65 * 10)
    assert model(np.zeros([2, *shape], np.float32), training=False).shape == (2, 10)


def test_a_block_adds_to_what_it_gets():
    model = residual.residual_classifier((16, 16, 1), 4)
    images = np.random.default_rng(0).uniform(size=(4, 16, 16, 1)).astype(np.float32)
    for layer in model.layers:
        if "conv2d" in layer.name and layer.kernel.shape[:2] == (3, 3) and layer.kernel.shape[2] > 1:
            layer.kernel.assign(0 * layer.kernel)
    logits = model(images, training=False).numpy()
    assert np.abs(logits - logits[:1]).max() > 1e-3  # By the shortcuts alone.


def test_the_seed_decides_the_weights():
    one, again, other = (residual.residual_classifier((16, 16, 3), 4, seed).get_weights() for seed in (1, 1, 2))
    assert all(np.array_equal(left, right) for left, right in zip(one, again))
    assert not np.array_equal(one[0], other[0])


def test_the_learning_rate_falls_to_0():
    rate = residual.residual_optimizer(1e-3, 100)._learning_rate
    assert [float(rate(step)) for step in (0, 50, 100)] == pytest.approx([1e-3, 5e-4, 0])
