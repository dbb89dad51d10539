"""scikit-learn's digits."""

import numpy as np

from datalens_tf.data.registry import load_dataset


class TestDigits:

    def test_every_fifth_is_a_test_record(self):
        from sklearn.datasets import load_digits

        source = load_digits()
        train, test = load_dataset("digits"), load_dataset("digits", split="test")
        assert (len(train), len(test), train.num_classes) == (1438, 359, 10)
        np.testing.assert_array_equal(test.labels, source.target[4::5])
        np.testing.assert_array_equal(train.labels[:8], source.target[[0, 1, 2, 3, 5, 6, 7, 8]])
        np.testing.assert_allclose(test.images[..., 0] / 255, source.images[4::5] / 16, atol=0.5 / 255 + 1e-9)
        assert train.images.max() == 255
