"""The study of what NormTopK leaves of each layer: right where the answer is known."""


import numpy as np
import pytest

from datalens_tf.classification import networks
from tests.training import tiny


def test_a_layer_with_small_gradients_is_the_one_that_loses(study):
    gradients = np.tile(np.array([1, 1, 10, 10, 0], np.float32), (3, 1))
    share, lengths = study.kept(gradients, [2, 3], clip_norm=1.0, k=0.6)
    assert share == 1 / 4  # One of the two large ones: both would be 200 of 202.
    assert lengths == pytest.approx([0, 10 / 200**0.5], rel=1e-4)
    assert study.kept(gradients, [2, 3], clip_norm=1.0, k=1.0) == (1, [1, 1])


def test_gradients_are_those_of_the_first_records(study):
    data = tiny.dataset(20)
    model = networks.new_network("linear", data.image_shape, data.num_classes, 0)
    found = study.record_gradients(model, data, 7)
    assert found.shape == (7, model.count_params()) and np.abs(found).sum(1).all()
