"""Published numbers stand beside the method, data set and budget that they are of, and beside nothing else."""

import pytest

from datalens_tf.evaluation import references
from datalens_tf.methods.registry import config_classes


@pytest.mark.parametrize("method, dataset, epsilon, expected", [
    ("datalens", "mnist", 1.0, {"DataLens paper": 0.7123}),
    ("dp_gan", "mnist", 10.0, {"DataLens paper": 0.8011, "DPImageBench": 0.927}),
    ("dp_merf", "fashion_mnist", 1.0, {"DPImageBench": 0.622}),
    ("dcgan", "mnist", None, {"DataLens paper": 0.9653}),
    ("dp_gan", "mnist", 3.0, {}), ("dp_gan", "digits", 1.0, {}), ("dp_gan", "mnist", None, {}),
    ("pate_cgan", "mnist", 1.0, {}),
])
def test_published(method, dataset, epsilon, expected):
    assert method in config_classes() and references.published(method, dataset, epsilon) == expected
