"""Pictures in Parquet files, as Hugging Face's `datasets` stores them; records are in the stored order.

`parquet:PLACE` is a file, or a folder with files `train*.parquet` and `test*.parquet`. One column holds the pictures,
as bytes or as a struct with `bytes`; a column `label` holds numbers or names of classes. Classes have the names that
the file's own description gives them, and are read from the labels otherwise.
"""

from __future__ import annotations

import json
import pathlib
from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np

from datalens_tf._text import first_line
from datalens_tf.data.datasets import ONE_CLASS, SPLITS, Dataset, Pictures, Units
from datalens_tf.data.sources.folder import LABEL_COLUMNS, dataset_of, in_order
from datalens_tf.errors import DataError

NAMES = {"parquet:PLACE": "pictures in Parquet files, in the form of Hugging Face's datasets"}
PUBLIC_CLASSES = False
PICTURES = True
UNITS = True

_BATCH = 256  # pictures that are in memory before they are decoded


def load(name: str, *, split: str, data_dir: str | None, classes: Sequence[str] | None, pictures: Pictures,
         unit: str | None = None) -> Dataset:
    """Loads a split; see `registry.Loader`."""
    del data_dir
    from pyarrow import parquet

    path = pathlib.Path(name.partition(":")[2]).expanduser()
    found: tuple[str, ...]
    try:
        tables = [parquet.ParquetFile(file) for file in _files_of(name, path, split)]
        image, label, known = _columns(name, tables[0].schema_arrow, pictures.unlabelled)
        values = [] if label is None else [value for table in tables for value in
                                           table.read(columns=[label])[label].to_pylist()]
        count = sum(table.metadata.num_rows for table in tables)
        if not count:
            raise DataError(f"{name}: expected at least one record in {path}, found none.")
        if label is None:
            labels, found = [ONE_CLASS[0]] * count, ONE_CLASS
        else:
            # A label that is missing, or out of range, is of a class that nobody declared.
            labels = [_class_of(value, known) for value in values]
            found = known or in_order(set(labels) - {""})
        if classes is None and len(found) < 2 and not pictures.unlabelled:
            raise DataError(f"{name}: expected at least two classes, found {', '.join(found) or 'none'} only. Give "
                            "--unlabelled if the pictures have no classes, or declare --classes.")
        return dataset_of(name, _contents(tables, image), [f"row {number}" for number in range(count)], labels, found,
                          classes, pictures, units=None if unit is None else _units(name, tables, unit))
    except DataError:
        raise
    except Exception as error:  # Readers of damaged files raise nearly anything.
        raise DataError(f"{name}: cannot read {path} as Parquet: {first_line(error)}.") from error


def _files_of(name: str, path: pathlib.Path, split: str) -> list[pathlib.Path]:
    """Files of a split, in the order of their names; one file alone is the train split."""
    if path.is_file() and split == "train":
        return [path]
    files = sorted(path.rglob(f"{split}*.parquet")) if path.is_dir() else []
    if path.is_dir() and not files and split == "train":
        files = sorted(file for file in path.glob("*.parquet") if not file.name.startswith("test"))
    if not files:
        raise DataError(f"{name}: found no file {split}*.parquet in {path}." if path.is_dir() else
                        f"{name}: there is no {split} split in {path}; put {' and '.join(SPLITS)} files in a folder.")
    return files


def _columns(name: str, schema: Any, unlabelled: bool) -> tuple[str, str | None, tuple[str, ...]]:
    """The columns of pictures and of labels, and the names of classes that the file's description has."""
    import pyarrow

    def holds_pictures(kind: Any) -> bool:
        if pyarrow.types.is_struct(kind):
            return any(field.name == "bytes" for field in kind)
        return pyarrow.types.is_binary(kind) or pyarrow.types.is_large_binary(kind)

    images = [field.name for field in schema if holds_pictures(field.type)]
    labels = [column for column in LABEL_COLUMNS if column in schema.names]
    if len(images) != 1 or not (labels or unlabelled):
        raise DataError(f"{name}: expected one column of pictures and a column label, got {', '.join(schema.names)}.")
    label = None if unlabelled else labels[0]
    about = json.loads((schema.metadata or {}).get(b"huggingface", b"{}")).get("info", {}).get("features", {})
    names = about.get(label, {}).get("names") if isinstance(about.get(label), dict) else None
    return images[0], label, tuple(map(str, names or ()))


def _units(name: str, tables: Sequence[Any], unit: str) -> Units:
    """The unit of each row, as a column says."""
    if unit not in tables[0].schema_arrow.names:
        raise DataError(f"{name}: expected unit={unit!r} to be a column, one of "
                        f"{', '.join(tables[0].schema_arrow.names)}.")
    owners = [value for table in tables for value in table.read(columns=[unit])[unit].to_pylist()]
    if any(owner in (None, "") for owner in owners):
        raise DataError(f"{name}: expected a value of {unit} in every row, found some without.")
    return Units.named(unit, np.array(list(map(str, owners))))


def _class_of(value: Any, known: Sequence[str]) -> str:
    """Name of the class of a label."""
    if known and isinstance(value, int):
        return known[value] if 0 <= value < len(known) else ""
    return "" if value is None else str(value)


def _contents(tables: Sequence[Any], column: str) -> Iterator[bytes | None]:
    """Content of each picture; b"" where a row has none."""
    for table in tables:
        for batch in table.iter_batches(_BATCH, columns=[column]):
            for value in batch.column(0).to_pylist():
                yield (value.get("bytes") if isinstance(value, dict) else value) or b""
