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
