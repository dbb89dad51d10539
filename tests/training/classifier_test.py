"""The small classifier that chooses: what it says of an image depends on that image alone."""

import numpy as np

from datalens_tf.training.classifier import QuickClassifier


def test_an_images_class_does_not_depend_on_how_many_others_there_are():
    """An added record must not change what the others vote for, not by a rounding either."""
    images = np.random.default_rng(0).integers(0, 256, (1207, 8, 8, 1)).astype(np.uint8)
    judge, seen = QuickClassifier((8, 8, 1), 3, 0), []
    logits = judge._logits
    judge._logits = lambda batch: seen.append(batch.shape[0]) or logits(batch)
    predicted = judge.predict(images)
    assert predicted.shape == (1207,) and len(set(seen)) == 1
    for count in (1, 207, 1000, 1206):
        np.testing.assert_array_equal(judge.predict(images[:count]), predicted[:count])
    assert len(set(seen)) == 1  # One shape: the same products of matrices, whatever the number of records.


def noisy_pictures(count, seed):
    """Two classes, bright on the left or on the right, hardly to be seen."""
    stream, labels = np.random.default_rng(seed), np.arange(count) % 2
    images = stream.normal(128, 60, (count, 8, 8, 1))
    images[:, :, :4] += np.where(labels, 12, -12)[:, None, None, None]
    return images.clip(0, 255).astype(np.uint8), labels


def test_what_is_learned_is_the_average_of_the_last_weights():
    (images, labels), judge, kept = noisy_pictures(2000, 0), QuickClassifier((8, 8, 1), 2, 0), []
    step = judge._step
    judge._step = lambda *batch: (step(*batch), kept.append([w.numpy() for w in judge._model.trainable_variables]))
    judge.fit(images, labels, 10)
    expected = kept[0]
    for number, weights in enumerate(kept, 1):
        share = max(0.01, 10 / (10 + number))
        expected = [average + share * (weight - average) for average, weight in zip(expected, weights)]
    for weight, average in zip(judge._model.trainable_variables, expected):
        np.testing.assert_allclose(weight, average, rtol=1e-3, atol=1e-5)
    assert not np.allclose(expected[0], kept[-1][0], atol=1e-4)


def test_learning_again_forgets_what_was_learned():
    judge = QuickClassifier((8, 8, 1), 2, 0)
    judge.fit(*noisy_pictures(100, 0), 1)
    once = judge.weights()
    judge.fit(*noisy_pictures(5000, 1), 5)
    assert np.abs(judge.weights()[0] - once[0]).max() > 0.03
    judge.fit(*noisy_pictures(100, 0), 1)
    np.testing.assert_allclose(judge.weights()[0], once[0], atol=0.0021)  # Two steps of Adam, by other dropout.
