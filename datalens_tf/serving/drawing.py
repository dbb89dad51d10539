"""Which labels and seeds a request for synthetic images has, the same for a generator here and one on a server."""

from typing import Callable

import numpy as np

from datalens_tf import _validate, rng
from datalens_tf.errors import InvalidArgumentError


def sample_from(draw: Callable[[np.ndarray, int | None], np.ndarray], num_classes: int, num_images: int, *,
                labels: np.ndarray | None = None, seed: int | None = None) -> tuple[np.ndarray, np.ndarray]:
    """`Synthesizer.sample` of any generator.

    Args:
      draw: labels [n] and a seed -> images uint8 [n, H, W, C], for example `LoadedGenerator.sample`.
      num_classes: labels are in [0, num_classes).
      num_images, labels, seed: as for `Synthesizer.sample`.

    Raises:
      InvalidArgumentError: labels of another length or range.
    """
    _validate.integer("num_images", num_images, at_least=1)
    if labels is None:
        stream = np.random.default_rng() if seed is None else rng.stream(seed, "labels")
        labels = stream.permutation(np.arange(num_images) % num_classes)
    labels = checked_labels(labels, num_classes)
    _validate.require(len(labels) == num_images, "len(labels)", len(labels), f"== num_images={num_images}")
    return draw(labels, seed), labels


def checked_labels(labels: np.ndarray, num_classes: int) -> np.ndarray:
    """int64 [n]; raises InvalidArgumentError for labels of another shape, type or range."""
    labels = np.asarray(labels)
    if labels.ndim != 1 or (labels.size and labels.dtype.kind not in "iu"):
        raise InvalidArgumentError(
            f"Expected labels to be integers of shape [n], got {labels.dtype} {list(labels.shape)}.")
    if labels.size and not 0 <= labels.min() <= labels.max() < num_classes:
        raise InvalidArgumentError(f"Expected labels in [0, {num_classes}), got {labels.min()} to {labels.max()}.")
    return labels.astype(np.int64)


def image_seeds(seed: int, num_images: int) -> np.ndarray:
    """One seed per image for the `sample` signature, int64 [num_images]; more images only append to it."""
    _validate.integer("seed", seed)
    return rng.stream(int(seed), "images").integers(0, 2**63 - 1, size=num_images, dtype=np.int64)
