"""CelebA (Liu et al., 2015) with the two labellings of the DataLens paper, from TensorFlow Datasets or its own files.

Images are the middle 178 x 178 pixels, reduced to 64 x 64 x 3. A folder `celeba_64` in the form of TensorFlow Datasets
holds pictures that were reduced already, of all records or of some.
"""

import os
import pathlib
from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np

from datalens_tf._text import first_line
from datalens_tf.data.datasets import Dataset, as_dataset
from datalens_tf.data.sources.decoding import decode
from datalens_tf.data.sources.tfds import checked_unit, first_prepared, named_units, tfds_records
from datalens_tf.errors import DataError

NAMES = {
    "celeba_gender": "faces of CelebA, 162,770 in all, 64x64x3, female or male",
    "celeba_hair": "faces of CelebA, 64x64x3, with black, blond or brown hair",
}
PUBLIC_CLASSES = True
UNITS = True

_HAIR = ("Black_Hair", "Blond_Hair", "Brown_Hair")
_WHOLE, _REDUCED = "celeb_a", "celeba_64"  # By TensorFlow Datasets; as a folder of pictures of 64 x 64 pixels.
_PERSON, _PEOPLE = "identity", "identity_CelebA.txt"
_SPLIT_NUMBERS = {"train": 0, "test": 2}  # In list_eval_partition.txt; 1 is the validation split.


def load(name: str, *, split: str, data_dir: str | None, classes: Sequence[str] | None, unit: str | None = None
         ) -> Dataset:
    """CelebA with the label of `celeba_gender` (attribute Male) or `celeba_hair` (black, blond or brown).

    Pictures with none or several of the three hair colours keep their index, and with it their partition, but are
    not `usable`: whether a record is used decides nothing about other records. In the test split they are dropped.

    Args:
      name: `celeba_gender` or `celeba_hair`.
      split: `train` or `test`.
      data_dir: a folder with the official `img_align_celeba/`, `list_attr_celeba.txt` and `list_eval_partition.txt`,
        or a folder of TensorFlow Datasets with `celeb_a` or `celeba_64`; `celeb_a` is taken where both are there.
        None takes `TFDS_DATA_DIR`, else TensorFlow Datasets' default.
      classes: not used.
      unit: `identity` for the person in a picture, as `identity_CelebA.txt` or the feature of this name says.

    Raises:
      DataError: data is missing, unreadable or invalid.
    """
    del classes
    root = pathlib.Path(data_dir or os.environ.get("TFDS_DATA_DIR") or ".").expanduser()
    picture, box = (178, 218), (0, 20, 178, 198)
    if (root / "img_align_celeba").is_dir():
        count, records = _official_records(name, root, split, unit)
    else:
        source = first_prepared((_WHOLE, _REDUCED), data_dir)
        count, records = _tfds_records(name, source, data_dir, split, unit)
        if source == _REDUCED:
            picture, box = (64, 64), (0, 0, 64, 64)
    images, rows = decode(name, count, records, picture=picture, box=box, size=64)
    attributes = {attribute: np.array([row[attribute] for row in rows], bool) for attribute in ("Male", *_HAIR)}
    people = {} if unit is None else named_units(unit, [row[unit] for row in rows])
    if name == "celeba_gender":
        return as_dataset(images, attributes["Male"].astype(np.int64), 2, name=name, class_names=("female", "male"),
                          **people)
    hair = np.stack([attributes[colour] for colour in _HAIR], 1)
    usable, labels = hair.sum(1) == 1, hair.argmax(1)
    names = ("black", "blond", "brown")
    if split == "test":
        return as_dataset(images[usable], labels[usable], 3, name=name, class_names=names)
    return as_dataset(images, np.where(usable, labels, 0), 3, name=name, class_names=names, usable=usable,
                      **people)


def _official_records(name: str, root: pathlib.Path, split: str, unit: str | None
                      ) -> tuple[int, Iterator[tuple[bytes, dict[str, Any]]]]:
    """Number of records, and each one's file content and attributes, in the order of file names."""
    rows = {}
    if unit not in (None, _PERSON):
        raise DataError(f"{name}: expected unit={unit!r} to be {_PERSON}.")
    for file_name in ("list_eval_partition.txt", "list_attr_celeba.txt", *([] if unit is None else [_PEOPLE])):
        try:
            rows[file_name] = [line.split() for line in (root / file_name).read_text(encoding="utf-8").splitlines()]
        except (OSError, UnicodeDecodeError) as error:
            raise DataError(f"{name}: cannot read {root / file_name}: {first_line(error)}.") from error
    try:
        parts = {row[0]: int(row[1]) for row in rows["list_eval_partition.txt"] if row}
        _, columns, *table = rows["list_attr_celeba.txt"]  # The first line is the number of pictures.
        positions = {attribute: 1 + columns.index(attribute) for attribute in ("Male", *_HAIR)}
        values = {row[0]: {attribute: int(row[position]) > 0 for attribute, position in positions.items()}
                  for row in table if row}
        people = {row[0]: int(row[1]) for row in rows.get(_PEOPLE, []) if row}
    except (ValueError, IndexError) as error:
        raise DataError(f"{name}: the lists in {root} are not those of CelebA: {first_line(error)}.") from error
    files = sorted(file for file, part in parts.items() if part == _SPLIT_NUMBERS[split])
    unknown = [file for file in files if file not in values]
    if unknown:
        raise DataError(f"{name}: {unknown[0]} is in list_eval_partition.txt and not in list_attr_celeba.txt.")
    if unit is not None and (nobodys := [file for file in files if file not in people]):
        raise DataError(f"{name}: {nobodys[0]} is in list_eval_partition.txt and not in {_PEOPLE}.")

    def read():
        for file in files:
            try:
                content = (root / "img_align_celeba" / file).read_bytes()
            except OSError as error:
                raise DataError(f"{name}: cannot read img_align_celeba/{file} in {root}: {error.strerror}.") from error
            yield content, values[file] if unit is None else {**values[file], unit: people[file]}

    return len(files), read()


def _tfds_records(name: str, source: str, data_dir: str | None, split: str, unit: str | None
                  ) -> tuple[int, Iterator[tuple[bytes, dict[str, Any]]]]:
    """Number of records, and each one's file content and attributes, in stored order."""
    count, features, records = tfds_records(name, source, data_dir, split, undecoded="image")
    owners = [] if unit is None else [checked_unit(name, features, unit)]
    return count, ((record["image"], {**{key: bool(record["attributes"][key]) for key in ("Male", *_HAIR)},
                                      **{key: record[key] for key in owners}}) for record in records)
