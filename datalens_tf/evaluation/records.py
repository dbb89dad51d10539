"""Parts of records that metrics compute on."""

import dataclasses

import numpy as np

from datalens_tf import _validate, rng
from datalens_tf.data.datasets import Dataset, to_unit


def subset(dataset: Dataset, size: int | None, seed: int) -> Dataset:
    """Draws at most `size` records at random by the seed, with as equal numbers per class as the records allow."""
    return dataset if size is None or len(dataset) <= size else at(dataset, places(dataset, size, seed))


def at(dataset: Dataset, chosen: np.ndarray) -> Dataset:
    """The records at these places."""
    return dataclasses.replace(dataset, images=dataset.images[chosen], labels=dataset.labels[chosen])


def places(dataset: Dataset, size: int, seed: int) -> np.ndarray:
    """Places of the records that `subset` draws, int64 [min(n, size)], ascending."""
    if len(dataset) <= size:
        return np.arange(len(dataset))
    _validate.integer("size", size, at_least=dataset.num_classes)
    order = rng.stream(seed, "subset").permutation(len(dataset))
    # The k-th record of its class comes before every (k + 1)-th: cutting anywhere leaves classes balanced.
    rank = np.empty(len(dataset), np.int64)
    for label in range(dataset.num_classes):
        of_class = order[dataset.labels[order] == label]
        rank[of_class] = np.arange(len(of_class))
    return np.sort(order[np.argsort(rank[order], kind="stable")][:size])


def flat(images: np.ndarray) -> np.ndarray:
    """float32 [n, H * W * C] in [0, 1]."""
    return to_unit(images).reshape(len(images), -1)


def spread(count: int, rows: np.ndarray) -> np.ndarray:
    """Takes at most `count` rows, spread over all of them: stored sets may be sorted by class."""
    return rows if len(rows) <= count else rows[np.linspace(0, len(rows) - 1, count).astype(np.int64)]
