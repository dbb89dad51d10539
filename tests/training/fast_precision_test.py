"""Cheap dropout drops what it says; the paper's protocol says in which precision it was computed, and so resumes."""

import numpy as np
import pytest
import tensorflow as tf

from datalens_tf.training import classifier, condensed
from datalens_tf.training.fast_precision import ByteDropout, fast_precision


@pytest.mark.parametrize("rate, dropped", [(0.2, 51 / 256), (0.25, 0.25), (0.0, 0.0)])
@pytest.mark.parametrize("dtype", ["float32", "bfloat16"])
def test_a_share_of_the_values_is_dropped_and_the_mean_stays(rate, dropped, dtype):
    out = tf.cast(ByteDropout(rate, 3, dtype=dtype)(tf.ones([201, 997]), training=True), tf.float64).numpy()
    size = out.size
    assert abs(np.mean(out == 0) - dropped) <= 5.5 * (dropped * (1 - dropped) / size) ** 0.5
    kept = np.unique(out[out != 0])
    np.testing.assert_allclose(kept, [1 / (1 - dropped)], rtol=2**-8)


def test_each_value_each_call_and_each_seed_has_a_mask_of_its_own():
    layer, other = ByteDropout(0.5, 0), ByteDropout(0.5, 1)
    first, second, third = (drop(tf.ones([64, 64]), training=True).numpy() != 0 for drop in (layer, layer, other))
    assert 0.4 < np.mean(first != second) < 0.6 and 0.4 < np.mean(first != third) < 0.6
    assert 0.4 < np.mean(first[:32] != first[32:]) < 0.6 and 0.4 < np.mean(first[:, 1:] != first[:, :-1]) < 0.6
    np.testing.assert_array_equal(ByteDropout(0.5, 0)(tf.ones([64, 64]), training=True).numpy() != 0, first)


def test_nothing_is_dropped_when_the_network_predicts():
    values = tf.random.stateless_normal([5, 7], (0, 1))
    np.testing.assert_array_equal(ByteDropout(0.9, 0)(values, training=False), values)


def test_only_the_long_protocols_are_fast_and_they_say_so(monkeypatch):
    for known in (classifier.FROZEN, classifier.PAPER_SHORT, classifier.RESIDUAL):
        assert known.precision == "float32" and "bfloat16" not in known.text
    for known in (classifier.PAPER, classifier.PAPER_CELEBA, classifier.CONDENSED):
        monkeypatch.setattr(classifier, "fast_precision", lambda: "mixed_bfloat16")
        assert known.precision == "mixed_bfloat16" and known.text.endswith(", in bfloat16")
        monkeypatch.setattr(classifier, "fast_precision", lambda: "float32")
        assert known.precision == "float32" and "bfloat16" not in known.text


@pytest.mark.skipif(fast_precision() == "float32", reason="this processor does not multiply bfloat16")
@pytest.mark.slow
@pytest.mark.parametrize("network", ["paper", "condensed"])
def test_in_bfloat16_the_classifier_learns_what_it_learns_in_float32(network, monkeypatch):
    monkeypatch.setattr(condensed, "FILTERS", 16)
    stream, labels = np.random.default_rng(0), np.arange(2048) % 4
    images = stream.normal(128, 40, (2048, 12, 12, 1)).clip(0, 255).astype(np.uint8)
    for label in range(4):
        images[labels == label, 3 * label:3 * label + 3] |= 128
    slow, fast = (classifier.Protocol(name="short", optimizer="sgd", learning_rate=0.05, batch_size=64, epochs=8,
                                      num_synthetic=1024, every_epoch=True, network=network, fast=fast)
                  for fast in (False, True))
    results = [classifier.train_on_synthetic(images[:1024], labels[:1024], images[1024:], labels[1024:], 4,
                                             protocol=protocol) for protocol in (slow, fast)]
    np.testing.assert_allclose(results[1].epoch_accuracies[-3:], results[0].epoch_accuracies[-3:], atol=0.04)
    assert results[1].accuracy > 0.8 and results[1].probabilities.dtype == np.float32
    weights = fast.model((12, 12, 1), 4, 0, 10).trainable_variables
    assert {variable.dtype for variable in weights} == {tf.float32}
