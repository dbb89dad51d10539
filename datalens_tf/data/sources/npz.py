"""Arrays of an .npz file: `x`, `y` and `user`, and `x_test`, `y_test` for the test split. Records are as stored.

`x_train` and `y_train` are other names of `x` and `y`. Records of one class (`--unlabelled`) need no labels.

`user` is optional: integers or text that name the user of each record of `x`, for the federated methods. Any such array
may be the unit. Labels have no names; label 0 is the first of the declared classes.
"""

import contextlib
import pathlib
import zipfile
from collections.abc import Sequence

import numpy as np

from datalens_tf import _files
from datalens_tf._text import first_line
from datalens_tf.data.checks import check_images, check_users, checked_labels
from datalens_tf.data.datasets import Dataset, as_dataset, listed, one_class
from datalens_tf.errors import DataError

NAMES = {"npz:FILE": "arrays x and y of a NumPy file, and x_test and y_test"}
PUBLIC_CLASSES = False
UNITS = True
UNLABELLED = True

_LARGEST_LABELS = 2**29  # bytes of the labels of both splits: 67 million records


def load(name: str, *, split: str, data_dir: str | None, classes: Sequence[str] | None, unit: str | None = None,
         unlabelled: bool = False) -> Dataset:
    """Loads a split; see `registry.Loader`. Labels of records that are `unlabelled` are not read."""
    del data_dir
    path = pathlib.Path(name.partition(":")[2]).expanduser()
    known = _names(path)
    train = ("x_train", "y_train") if "y_train" in known or {"x", "x_train"} & known == {"x_train"} else ("x", "y")
    images, labels = train if split == "train" else ("x_test", "y_test")

    def read(needed, others, check):
        try:
            arrays = _files.read_npz(path, check, (needed, *others))
        except FileNotFoundError as error:
            raise DataError(f"{name}: there is no file {path}.{_files.did_you_mean(path)}") from error
        except (OSError, ValueError) as error:
            raise DataError(f"{name}: cannot be read as an .npz archive of plain arrays, as numpy.savez makes them: "
                            f"{first_line(error)}.") from error
        if needed not in arrays:
            way_out = " Pictures without classes need --unlabelled." if needed == labels else ""
            got = f"no {needed}" + (f" among {listed(sorted(known))}" if known else "")
            use = " for the test split" if split == "test" else ""
            raise DataError(f"{name}: expected arrays {images} and {labels}{use}, got {got}: "
                            f"numpy.savez(file, {images}=images, {labels}=labels) writes them.{way_out}")
        return arrays

    bare = unlabelled and classes is None
    # Labels first: they are small, and say how many images there may be.
    small = {} if bare else read(labels, {train[1], "y_test"} - {labels}, _files.at_most(_LARGEST_LABELS))
    y = None if bare else checked_labels(small[labels], len(small[labels]) if small[labels].ndim else 0, None, name,
                                         declared=classes is not None)

    def check(headers):
        if images not in headers:  # `read` reports it.
            return
        check_images(headers[images], name)
        (count,) = headers[images].shape[:1]
        if y is not None and y.shape != (count,):
            raise DataError(f"{name}: expected labels of shape {[count]}, one per image, got {list(y.shape)}.")
        for owners in {"user", unit} & set(headers):
            check_users(headers[owners], count, name)

    if unit is not None and unit not in known - {images, labels}:
        raise DataError(f"{name}: expected unit={unit!r} to be an array that says whose each record is, one of "
                        f"{listed(sorted(known - {images, labels})) or 'none'}.")
    owners = {"user", unit} - {None} if split == "train" else set()
    arrays = read(images, sorted(owners), check)
    people = {"users": arrays.get("user"), **({} if unit is None else {"units": arrays[unit], "unit": unit})}
    if y is None:
        return one_class(as_dataset(arrays[images], np.zeros(len(arrays[images]), np.int64), 2, name=name, **people))
    if classes is not None:
        return as_dataset(arrays[images], y, name=name, classes=classes, **people)
    # Both splits have the classes of either, so that a class rare enough to miss one of them keeps its place.
    largest = [int(array.max()) for array in small.values() if array.dtype.kind in "iu" and array.size]
    return as_dataset(arrays[images], y, 1 + max(largest), name=name, **people)


def _names(path: pathlib.Path) -> set[str]:
    """Names of the arrays; empty where the file is not an archive, which is reported when it is read."""
    with contextlib.suppress(OSError, zipfile.BadZipFile, ValueError, NotImplementedError), \
            zipfile.ZipFile(path) as archive:
        return {name.removesuffix(".npy") for name in archive.namelist()}
    return set()
