"""Labelled images and their assignment to teachers."""

from datalens_tf.data.datasets import KNOWN_DATASETS, Dataset, as_dataset, load_dataset, to_unit, usable_only
from datalens_tf.data.partition import partition_indices, usable_indices, user_indices

__all__ = ["KNOWN_DATASETS", "Dataset", "as_dataset", "load_dataset", "partition_indices", "to_unit",
           "usable_indices", "usable_only", "user_indices"]
