"""Labels and seeds of a request for synthetic images, the same for a generator here and one on a server."""

import math
import os
from collections.abc import Callable
from typing import Any

import numpy as np

from datalens_tf import _validate, rng
from datalens_tf.config import LATENT_DISTRIBUTIONS
from datalens_tf.errors import InvalidArgumentError
from datalens_tf.settings import check_magnitudes

MOST_IMAGES = 2**27


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
    _validate.integer("num_images", num_images, at_least=1, at_most=MOST_IMAGES)
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


def empty_images(num_images: int, image_shape: tuple[int, int, int]) -> np.ndarray:
    """Space for images, uint8 [num_images, H, W, C].

    Raises:
      InvalidArgumentError: it would be more than the machine's memory.
    """
    size = num_images * math.prod(image_shape)
    _validate.require(size <= os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES"), "num_images", num_images,
                      f"to fit in memory: images of shape {tuple(image_shape)} would take {size:,} bytes")
    return np.empty((num_images, *image_shape), np.uint8)


def checked_metadata(metadata: Any) -> dict[str, Any]:
    """Description of a generator, `model.json`, with tuples for lists.

    Raises:
      InvalidArgumentError: no generator could have such attributes.
    """
    names = {"image_shape", "latent_dim", "latent_distribution", "num_classes"}
    _validate.require(isinstance(metadata, dict) and names <= set(metadata) <= names | {"class_names"}, "model.json",
                      metadata, f"to have {', '.join(sorted(names))}")
    shape, num_classes = metadata["image_shape"], metadata["num_classes"]
    _validate.require(isinstance(shape, list) and len(shape) == 3, "image_shape", shape, "to be [H, W, C]")
    for size in shape:
        _validate.integer("image_shape", size, at_least=1)
    check_magnitudes(metadata)
    _validate.integer("latent_dim", metadata["latent_dim"], at_least=1)
    _validate.one_of("latent_distribution", metadata["latent_distribution"], LATENT_DISTRIBUTIONS)
    _validate.integer("num_classes", num_classes, at_least=1)
    class_names = metadata.get("class_names") or list(map(str, range(num_classes)))
    _validate.require(isinstance(class_names, list) and len(class_names) == num_classes
                      and all(isinstance(name, str) for name in class_names), "class_names", class_names,
                      f"to be {num_classes} texts")
    return {**metadata, "image_shape": tuple(shape), "class_names": tuple(class_names)}


def image_seeds(seed: int, num_images: int) -> np.ndarray:
    """One seed per image for the `sample` signature, int64 [num_images]; a larger number only appends seeds."""
    _validate.integer("seed", seed)
    return rng.stream(int(seed), "images").integers(0, 2**63 - 1, size=num_images, dtype=np.int64)
