"""Checks of arrays of images, labels and users; each refusal says how to convert what was given."""

import math
import warnings
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from datalens_tf import _files
from datalens_tf.errors import DataError, DataWarning
from datalens_tf.settings import COLORS, LARGEST_IMAGE, LARGEST_NUM_CLASSES, SMALLEST_SIDE

_LONGEST_NAME = 1024  # bytes of a user's name
_FIRST = 1000  # images, of which none may be white
_ROUNDED = 0.01  # beyond 0 and 1, by arithmetic with floats


def checked_images(images: ArrayLike, name: str) -> NDArray[Any]:
    """uint8 or float32 [n, H, W, C], or DataError."""
    try:
        images = np.asarray(images)
    except ValueError as error:
        raise DataError(f"{name}: expected images of one shape, got a ragged sequence.") from error
    check_images(_files.ArrayHeader.of(images), name)
    if images.ndim == 3:
        images = images[..., np.newaxis]
    if images.dtype == np.uint8:
        if images[:_FIRST].max() == 1:
            warnings.warn(f"{name}: the first images have no number above 1 of 255, so they are nearly black. If 1 is "
                          "white, images * 255 converts them.", DataWarning, stacklevel=2)
        return images
    low, high = images.min(), images.max()
    if np.isnan(low):
        raise DataError(f"{name}: expected finite images, got NaN.")
    if not 0 <= low <= high <= 1:
        convert = ("images.clip(0, 1) undoes what rounding added" if -_ROUNDED <= low <= high <= 1 + _ROUNDED else
                   "images / 255 converts them, or images.astype('uint8') whole numbers" if 0 <= low <= high <= 255 else
                   "(images + 1) / 2 converts them" if -1 <= low <= high <= 1 else
                   "(images - low) / (high - low) converts them, where low and high are what such images can have, not "
                   "what these have")
        raise DataError(f"{name}: expected float images in [0, 1], got values from {low:g} to {high:g}: {convert}.")
    return images.astype(np.float32, copy=False)


def check_images(header: _files.ArrayHeader, name: str) -> None:
    """Raises DataError where shape or type cannot be that of images; known before anything is unpacked."""
    shape = list(header.shape)
    if header.dtype != np.uint8 and header.dtype.kind != "f":
        convert = ("images * numpy.uint8(255) converts them." if header.dtype.kind == "b" else
                   "images.astype('uint8') converts whole numbers from 0 to 255, and images / 4095 those of a scanner "
                   "with 12 bits.")
        raise DataError(f"{name}: expected images of dtype uint8, or float in [0, 1], got {header.dtype}: {convert}")
    if len(shape) not in (3, 4):
        raise DataError(f"{name}: expected images of shape [n, H, W, C] or [n, H, W], got {shape}.")
    if not header.nbytes:
        raise DataError(f"{name}: expected at least one record, got images of shape {shape}.")
    if len(shape) == 4 and shape[1] in COLORS.values() and min(shape[2:]) >= SMALLEST_SIDE:
        raise DataError(f"{name}: expected images [n, H, W, C], got {shape}, whose channels come first: "
                        "images.transpose(0, 2, 3, 1) converts an array, images.permute(0, 2, 3, 1) a torch tensor.")
    if min(shape[1:3]) < SMALLEST_SIDE:
        raise DataError(f"{name}: expected H and W of at least {SMALLEST_SIDE}, got images of shape {shape}. Choose an "
                        "--image_size.")
    if math.prod(shape[1:]) > LARGEST_IMAGE:
        raise DataError(f"{name}: expected at most {LARGEST_IMAGE:,} numbers per image, got images of shape {shape}. "
                        "Resize them.")


def check_users(header: _files.ArrayHeader, num_records: int, name: str) -> None:
    """Raises DataError where shape or type cannot be that of one user, or unit, for each record."""
    if header.shape != (num_records,) or header.dtype.kind not in "iuUS" or header.dtype.itemsize > _LONGEST_NAME:
        raise DataError(f"{name}: expected users of shape [{num_records}], integers or short text, got "
                        f"{list(header.shape)} of dtype {header.dtype}.")


def checked_labels(labels: ArrayLike, num_records: int, num_classes: int | None, name: str, declared: bool = False
                   ) -> NDArray[np.int64]:
    """Labels int64 [n] of at least two classes, or DataError; where classes are declared, any integers are kept."""
    try:
        labels = np.asarray(labels)
    except ValueError as error:
        raise DataError(f"{name}: expected one label per record, got a ragged sequence.") from error
    if labels.shape != (num_records,):
        convert = ""
        if labels.ndim == 2 and len(labels) == num_records:
            convert = f": labels.{'reshape(-1)' if labels.shape[1] == 1 else 'argmax(1)'} converts them"
        raise DataError(f"{name}: expected labels of shape [{num_records}], one per image, got {list(labels.shape)}"
                        f"{convert}.")
    if labels.dtype.kind not in "iu":
        raise DataError(f"{name}: expected integer labels, got dtype {labels.dtype}: labels.astype(int) converts "
                        "numbers, numpy.unique(labels, return_inverse=True)[1] anything else.")
    if not num_records:
        raise DataError(f"{name}: expected at least one record, got no labels.")
    if declared:
        return labels
    if labels.min() < 0:
        raise DataError(f"{name}: expected labels >= 0, got {labels.min()}.")
    if num_classes is not None and labels.max() >= num_classes:
        convert = ": labels - 1 numbers them from 0" if labels.min() > 0 and labels.max() == num_classes else ""
        raise DataError(f"{name}: expected labels in [0, {num_classes}), got {labels.max()}{convert}.")
    if labels.max() >= LARGEST_NUM_CLASSES:
        raise DataError(f"{name}: expected labels below {LARGEST_NUM_CLASSES:,}, got {labels.max()}.")
    # Where the number of classes is known, all records may be of a single class: that is no reason to refuse them.
    if num_classes is None and labels.min() == labels.max():
        raise DataError(f"{name}: expected at least two classes, got label {labels[0]} only.")
    if num_classes is not None and num_classes < 2:
        raise DataError(f"{name}: expected at least two classes, got num_classes={num_classes}.")
    return labels.astype(np.int64, copy=False)
