"""Makes a data set of records held in Python; the error for refused data tells how to convert them."""

from __future__ import annotations

import warnings
from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from datalens_tf import _validate
from datalens_tf.data import datasets
from datalens_tf.data.datasets import Dataset
from datalens_tf.data.sources.folder import in_order
from datalens_tf.errors import DataError, DataWarning, InvalidArgumentError

NAME = "arrays"  # of data without a file or folder
_KEYS = (("image", "label"), ("images", "labels"), ("x", "y"))  # of records that are dictionaries


def is_place(images: Any) -> bool:
    """Whether something names data rather than being data."""
    return isinstance(images, str) or hasattr(images, "__fspath__")


def of_python(images: Any, labels: Any = None, *, classes: Sequence[str] | None = None,
              class_names: Sequence[str] | None = None, users: Any = None, units: Any = None,
              unit: str | None = None) -> Dataset:
    """Records as a checked data set; their order is kept.

    Args:
      images: uint8, or float in [0, 1], [n, H, W, C] or [n, H, W], as a numpy array or as anything that numpy reads; or
        a `tf.data.Dataset` of pairs of an image and a label, in batches or not.
      labels: integers, or names of classes, [n]. None for a `tf.data.Dataset`, and for one class of all records.
      classes: names of the classes that are declared to be public; None takes those that the labels have.
      class_names: names of all classes, where they are known: labels are these names, or positions among them.
      users: the user of each record, [n]; None where no users are given.
      units: the unit of each record, [n], a patient for example. All records of a unit are protected together. None
        where a record is a unit.
      unit: name of the units.

    Raises:
      DataError: data of another kind; the message says how to convert them.
      InvalidArgumentError: a label is not one of the known classes.
    """
    if hasattr(images, "element_spec"):
        if labels is not None:
            raise DataError("Expected no labels beside a tf.data.Dataset, whose records have them: leave out labels.")
        images, labels = _of_tf_data(images)
    images = _array("images", images)
    owners: dict[str, Any] = dict(users=users, units=units, unit=unit or datasets.UNIT)
    if labels is None:
        return datasets.one_class(datasets.as_dataset(images, np.arange(len(images)) % 2, 2, name=NAME, **owners))
    labels = _array("labels", labels)
    if class_names is not None:
        if len(class_names) == 1:
            return datasets.one_class(datasets.as_dataset(images, labels, 2, name=NAME))
        return datasets.as_dataset(images, places_of(labels, class_names), len(class_names), name=NAME,
                                   class_names=class_names)
    if labels.dtype.kind == "O" and all(isinstance(label, (str, bytes)) for label in labels.flat):
        labels = labels.astype(str)
    if labels.dtype.kind != "U":
        return datasets.as_dataset(images, labels, name=NAME, classes=classes, **owners)
    found = in_order(set(labels.ravel().tolist()))
    places = {name: place for place, name in enumerate(found)}
    numbers = np.array([places[name] for name in labels.ravel()]).reshape(labels.shape)
    if classes is None:
        warnings.warn(f"the {len(found)} classes {datasets.listed(found)} were read from the labels, and are taken to "
                      "be public; classes=[...] declares them instead.", DataWarning, stacklevel=2)
    return datasets.as_dataset(images, numbers, None if classes is not None else len(found), name=NAME,
                               class_names=found, classes=classes, **owners)


def places_of(labels: Any, class_names: Sequence[str]) -> NDArray[np.int64]:
    """Positions [n] of classes, which are named or numbered.

    Args:
      labels: one label, or several in a sequence: names, or integers in [0, Y).
      class_names: names of the Y classes.

    Raises:
      InvalidArgumentError: there is no such class.
    """
    found, place_of = [], {name: place for place, name in enumerate(class_names)}
    where = f"in [0, {len(class_names)}), or names of classes"
    for label in [labels] if isinstance(labels, str) or np.ndim(labels) == 0 else labels:
        place = place_of.get(label, -1) if isinstance(label, str) else label
        if not (isinstance(place, (int, np.integer)) and not isinstance(place, bool)
                and 0 <= place < len(class_names)):
            near = "" if str(label).isdecimal() else _validate.did_you_mean(label, class_names)
            raise InvalidArgumentError(f"Expected labels {where}, got {label!r:.99}: the classes are "
                                       f"{datasets.listed(class_names)}.{near}")
        found.append(int(place))
    return np.array(found, np.int64)


def _of_tf_data(data: Any) -> tuple[Any, Any]:
    """Images and labels of a `tf.data.Dataset`."""
    spec = data.element_spec
    keys = next((pair for pair in _KEYS if isinstance(spec, dict) and set(pair) <= set(spec)), (0, 1))
    if not (isinstance(spec, dict) if keys != (0, 1) else isinstance(spec, tuple) and len(spec) == 2):
        raise DataError("Expected a tf.data.Dataset of pairs (image, label): data.map(lambda record: "
                        "(record['image'], record['label'])) makes one.")
    if int(data.cardinality()) == -1:
        raise DataError("Expected a tf.data.Dataset that ends, got one that repeats for ever: leave out repeat().")
    rank = spec[keys[0]].shape.rank
    if rank not in (3, 4):
        raise DataError(f"Expected images of shape [H, W, C] in the tf.data.Dataset, got {spec[keys[0]].shape}.")
    pairs = [(record[keys[0]], record[keys[1]]) for record in (data.unbatch() if rank == 4 else data)
             .as_numpy_iterator()]
    if not pairs:
        raise DataError("Expected at least one record, got a tf.data.Dataset of none.")
    images, labels = zip(*pairs)
    return _array("images", images), np.array([label.decode() if isinstance(label, bytes) else label
                                               for label in labels])


def _array(name: str, values: Any) -> NDArray[Any]:
    """Values as a numpy array; where numpy cannot make one, raises DataError that says what to type."""
    kinds = {kind.__module__.partition(".")[0] for kind in type(values).__mro__}
    if hasattr(values, "to_parquet") and hasattr(values, "features"):
        raise DataError("Expected arrays, got a Hugging Face Dataset: data.to_parquet('data.parquet') writes a file, "
                        "and 'parquet:data.parquet' takes the place of images.")
    if "torch" in kinds and not hasattr(values, "dtype"):
        raise DataError("Expected arrays, got a torch Dataset or DataLoader: images = np.stack([np.asarray(image) for "
                        "image, _ in data]) and labels = [int(label) for _, label in data] of its Dataset convert it.")
    try:
        array = np.asarray(values)
    except (TypeError, RuntimeError) as error:  # of tensors that are on a GPU, or have gradients
        raise DataError(f"Expected {name} that numpy can read, got {type(values).__name__}: of a torch tensor, "
                        f"{name}.detach().cpu().numpy() makes some.") from error
    except ValueError as error:
        raise DataError(f"Expected {name} of one shape, got some that differ: resize them, or put them into a folder "
                        "and give its path, with image_size.") from error
    if array.dtype.kind == "O" and name == "images":
        raise DataError(f"Expected images as an array [n, H, W, C], got {type(values).__name__}: np.stack(images) "
                        "makes one of a list of arrays.")
    return array
