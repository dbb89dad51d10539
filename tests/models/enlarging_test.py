"""Small images made larger."""

import numpy as np
import pytest
import tensorflow as tf

from datalens_tf.models.enlarging import Enlarged


@pytest.mark.parametrize("shape, times, small", [((16, 12, 2), 2, (8, 6)), ((17, 10, 1), 3, (6, 4))])
def test_images_are_enlarged_as_tensorflow_does_it_and_cropped(shape, times, small):
    enlarged = Enlarged(shape, times)
    assert enlarged.small == small
    images = np.random.default_rng(0).random((3, *small, shape[2])).astype(np.float32)
    whole = tf.image.resize(images, [times * small[0], times * small[1]], "bicubic").numpy()
    np.testing.assert_allclose(enlarged(tf.constant(images)), np.clip(whole[:, :shape[0], :shape[1]], 0, 1), atol=1e-5)


def test_images_of_the_size_that_is_wanted_stay_as_they_are():
    images = np.random.default_rng(1).random((2, 5, 4, 3)).astype(np.float32)
    np.testing.assert_array_equal(Enlarged((5, 4, 3), 1)(tf.constant(images)), images)
