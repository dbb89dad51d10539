"""scikit-learn's 1,797 real 8x8 digits; every fifth is a test record. Records are in the order of scikit-learn."""

from collections.abc import Sequence

import numpy as np

from datalens_tf.data.datasets import Dataset, as_dataset

NAMES = {"digits": "scikit-learn's 1,797 real 8x8 digits, nothing to download"}
PUBLIC_CLASSES = True


def load(name: str, *, split: str, data_dir: str | None, classes: Sequence[str] | None) -> Dataset:
    """Loads a split; the values 0..16 are scaled to 0..255. See `registry.Loader`."""
    del data_dir, classes
    from sklearn import datasets as sklearn_datasets

    digits = sklearn_datasets.load_digits()
    images = np.rint(digits.images * (255 / 16)).astype(np.uint8)
    chosen = (np.arange(len(images)) % 5 == 4) == (split == "test")
    return as_dataset(images[chosen], digits.target[chosen], 10, name=name)
