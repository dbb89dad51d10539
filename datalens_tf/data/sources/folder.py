"""A folder of pictures: a sub-folder for each class, or a table of labels, or one class.

| layout | records |
|---|---|
| `class folders` | the files in a sub-folder, and in folders inside it, are of the class that the sub-folder names |
| `labels.csv` | the files that the table lists, in a column `file` and a column `label` |
| `unlabelled` | all files |

Where there are sub-folders `train` and `test`, each is such a folder. Hidden files and files that systems leave behind
are not records. Every other file is a record, whether it can be read or not.

A file's name, inside its class, identifies the record. Records are ordered by a keyed hash of the name alone, so that a
picture that changes its class moves no other record; files of one name in several classes share a slot, see `Dataset`.
"""

from __future__ import annotations

import csv
import dataclasses
import hashlib
import os
import pathlib
import re
import warnings
from collections.abc import Iterator, Sequence

import numpy as np

from datalens_tf import _files
from datalens_tf.data import survey as surveys
from datalens_tf.data.checks import check_images
from datalens_tf.data.datasets import ONE_CLASS, SPLITS, Dataset, Pictures, Units, listed
from datalens_tf.data.sources import pictures as decoding
from datalens_tf.errors import DataError, DataWarning
from datalens_tf.settings import LARGEST_NUM_CLASSES

NAMES = {"folder:DIR": "pictures in one sub-folder per class, or with labels.csv, or --unlabelled"}
PUBLIC_CLASSES = False
PICTURES = True
UNITS = True

TABLE = "labels.csv"
_SHOWN_FILES = 3  # of one unit
_LOOKED_INTO = 200  # pictures that a survey decodes, to see their colours and how bright they are
_FILE_COLUMNS = ("file", "file_name", "filename", "path", "image", "name", "id")
LABEL_COLUMNS = ("label", "class", "class_name", "target", "y", "category")
# Folders of these names are parts of a data set, unless classes are declared.
_SPLIT_WORDS = frozenset({"train", "training", "test", "testing", "val", "valid", "validation", "dev", "eval"})
# What systems and programs leave in folders; hidden files, .DS_Store among them, begin with a dot.
_SYSTEM_FILES = frozenset({"thumbs.db", "ehthumbs.db", "desktop.ini", "__macosx", "icon\r", "$recycle.bin",
                           "system volume information", "lost+found", "@eadir"})


@dataclasses.dataclass(frozen=True)
class _Listing:
    """The records of one split, in their order; nothing was opened yet.

    Attributes:
      root: folder of the split.
      files: paths inside root, [n].
      labels: names of classes, [n].
      names: what identifies the records, [n].
      class_names: all classes.
      layout: how the folder is laid out.
      units: the unit of each picture, where units are asked for.
    """

    root: pathlib.Path
    files: list[str]
    labels: list[str]
    names: list[str]
    class_names: tuple[str, ...]
    layout: str
    units: Units | None = None

    @property
    def slots(self) -> np.ndarray | None:
        """Number of each record's name; None where all names differ."""
        numbers: dict[str, int] = {}
        slots = [numbers.setdefault(name, len(numbers)) for name in self.names]
        return None if len(numbers) == len(slots) else np.array(slots, np.int64)


def load(name: str, *, split: str, data_dir: str | None, classes: Sequence[str] | None,
         pictures: Pictures, unit: str | None = None) -> Dataset:
    """Loads a split; see `registry.Loader`.

    Pictures of undeclared classes are read like all others: which pictures can be read must not depend on which are
    used.
    """
    del data_dir
    listing = _listing(name, split, classes, pictures, unit)
    _check_readers(name, listing.files)
    sources = (_inside(listing, file) for file in listing.files)
    dataset = dataset_of(name, sources, listing.files, listing.labels, listing.class_names, classes, pictures,
                         slots=listing.slots, units=listing.units)
    if split == "train" and classes is None:
        _warn_of_empty(listing)
    return dataset


def dataset_of(name: str, sources: Iterator[decoding.Source | None], files: Sequence[str], labels: Sequence[str],
               found: Sequence[str], declared: Sequence[str] | None, pictures: Pictures,
               slots: np.ndarray | None = None, units: Units | None = None) -> Dataset:
    """Reads pictures and makes a data set of them.

    Args:
      name: named in errors and in the result.
      sources: where each picture is; None for one that must not be read.
      files: name of each picture in errors.
      labels: class of each picture.
      found: names of the classes that there are.
      declared: names of the classes that were declared to be public.
      pictures: how pictures become images.
      slots, units: see `Dataset`.

    Raises:
      DataError: pictures cannot be read, unless they are to be skipped; all of them are named at once.
    """
    shape, names = pictures.image_shape, tuple(found if declared is None else declared)
    if len(names) > LARGEST_NUM_CLASSES:
        raise DataError(f"{name}: expected at most {LARGEST_NUM_CLASSES:,} classes, got {len(names)}.")
    check_images(_files.ArrayHeader((len(files), *shape), np.dtype(np.uint8)), name)
    refused: dict[int, str] = {}
    images, failed = decoding.read_all(_some(sources, refused), len(files), shape, pictures.bits)
    failed |= refused
    unreadable = dict(sorted((files[number], reason) for number, reason in failed.items()))
    if unreadable and not pictures.skip_unreadable:
        shown = "; ".join(f"{file!r} ({reason})" for file, reason in unreadable.items())
        raise DataError(f"{name}: cannot read {len(unreadable)} of {len(files)} files as pictures: {shown}. Mend or "
                        "remove them; or give --skip_unreadable, with which they keep their places and contribute "
                        "nothing.")
    place_of = {class_name: place for place, class_name in enumerate(names)}
    places = np.array([place_of.get(label, -1) for label in labels], np.int64)
    usable = places >= 0
    usable[list(failed)] = False
    if not usable.all():
        images[~usable] = 0
    return Dataset(images=images, labels=np.where(usable, places, 0), num_classes=len(names), name=name,
                   class_names=names, declared=declared is not None, usable=None if usable.all() else usable,
                   slots=slots, units=units, unreadable=unreadable)


def _some(sources: Iterator[decoding.Source | None], refused: dict[int, str]) -> Iterator[decoding.Source | None]:
    """The sources; the numbers of those that must not be read are put aside in `refused`."""
    for number, source in enumerate(sources):
        if source is None:
            refused[number] = "it is a link that leads out of the folder"
        yield source


def survey(name: str, *, classes: Sequence[str] | None, pictures: Pictures, unit: str | None = None
           ) -> surveys.Survey:
    """Surveys a folder by names and headers; see `registry.survey`."""
    listing = _listing(name, "train", classes, pictures, unit)
    shape, names = pictures.image_shape, listing.class_names if classes is None else tuple(classes)
    refused: dict[int, str] = {}
    sources = [source or pathlib.Path(os.devnull) for source in _some(
        (_inside(listing, file) for file in listing.files), refused)]
    sizes, failed = decoding.sizes_of(sources)
    failed = {**failed, **refused}
    counts = dict.fromkeys(names, 0)
    undeclared = 0
    for number, label in enumerate(listing.labels):
        undeclared += label not in counts
        if label in counts and number not in failed:
            counts[label] += 1
    has_splits = listing.root.name == "train" and (listing.root.parent / "test").is_dir()
    left_out = [] if listing.layout != "class folders" else [
        entry.name for entry in _visible(listing.root) if not entry.is_dir()]
    if has_splits:
        left_out += [entry.name for entry in _visible(listing.root.parent) if entry.name not in SPLITS]
    splits = {"train": listing.root, **({"test": listing.root.parent / "test"} if has_splits else {})}
    return surveys.Survey(
        public=surveys.SurveyedFacts(
            name=name, class_names=names, unit=unit,
            num_records=len(listing.files) if listing.units is None else listing.units.count,
            num_slots=len(set(listing.names)) if listing.units is None else listing.units.count,
            declared=classes is not None, image_shape=shape, layout=listing.layout, splits=splits,
            formats=tuple(sorted({pathlib.PurePath(file).suffix.lower() for file in listing.files}))),
        private=surveys.PrivateFacts(
            class_counts=tuple(counts.values()), undeclared=undeclared, unit_sizes=surveys.extremes(listing.units),
            largest_unit=_largest_unit(listing),
            unreadable={listing.files[number]: failed[number] for number in sorted(failed)},
            sizes=(min(sizes), max(sizes)) if sizes else (), left_out=tuple(left_out),
            largest_number=decoding.largest_number(sources[:_LOOKED_INTO], pictures.bits),
            without_colour=decoding.without_colour(sources[:_LOOKED_INTO]) if shape[2] == 3 else ()))


def _largest_unit(listing: _Listing) -> tuple[str, ...]:
    """The first files of a unit that has most of them, which show a wrong pattern; empty where files are units."""
    if listing.units is None:
        return ()
    largest = np.bincount(listing.units.of).argmax()
    return tuple(listing.files[number] for number in np.flatnonzero(listing.units.of == largest)[:_SHOWN_FILES])


def _listing(name: str, split: str, declared: Sequence[str] | None, pictures: Pictures, unit: str | None = None
             ) -> _Listing:
    """The records of a split in their order."""
    root = pathlib.Path(name.partition(":")[2]).expanduser()
    found: tuple[str, ...]
    if not root.is_dir():
        raise DataError(f"{name}: there is no folder {root}.{_files.did_you_mean(root)}")
    has_splits = all((root / part).is_dir() for part in SPLITS)
    if split == "test" and not has_splits:
        raise DataError(f"{name}: has no test split. Put the pictures in {root / 'train'} and {root / 'test'}.")
    folder = root / split if has_splits else root
    if pictures.unlabelled:
        files = [file for file in _files_in(name, folder) if file != TABLE]
        rows, found, layout = [(file, ONE_CLASS[0], file) for file in files], ONE_CLASS, "unlabelled"
    elif (folder / TABLE).is_file():
        rows, found, layout = _of_table(name, root, folder, split if has_splits else None, declared)
    else:
        rows, found, layout = _of_folders(name, root, folder, has_splits, declared)
    if not rows:
        loose = sum(not entry.is_dir() for entry in _visible(folder))
        raise DataError(f"{name}: expected one sub-folder of pictures per class, or {TABLE}, found "
                        f"{f'{loose:,} files' if loose else 'no picture'} in {folder}"
                        f"{' itself' if loose else ''}. Pictures without classes need --unlabelled.")
    if declared is not None and not set(declared) & set(found):
        raise DataError(f"{name}: expected one of the declared classes {listed(declared)}, found "
                        f"{listed(found)} in {folder}.")
    if declared is None and len(found) < 2 and not pictures.unlabelled:
        raise DataError(f"{name}: expected at least two classes, found {listed(found)} only. Give --unlabelled if the "
                        "pictures have no classes, or declare --classes.")
    rows.sort(key=lambda row: (_keyed_hash(row[2]), row[1]))
    files, labels, names = ([row[column] for row in rows] for column in range(3))
    units = None if unit is None else Units.named(unit, np.array(_owners(name, folder, files, names, unit)))
    return _Listing(folder, files, labels, names, tuple(found), layout, units)


def _owners(name: str, folder: pathlib.Path, files: Sequence[str], names: Sequence[str], unit: str) -> list[str]:
    """The unit of each picture: what the table has for it in the column, else what the pattern finds in its name."""
    path, column = folder / TABLE, unit.lower()
    titles = _cells(name, path)[0] if path.is_file() else []
    if column in titles:
        table = _table(name, path, (column,))
        found = [table.get(file) for file in files]
        where = f"in the column {unit} of {path}"
    else:
        try:
            pattern = re.compile(unit)
        except re.error as error:
            raise DataError(f"{name}: expected unit={unit!r} to be a pattern: {error}.") from error
        if pattern.groups != 1:
            columns = f", which has the columns {listed(titles)}" if titles else ""
            raise DataError(f"{name}: expected unit={unit!r} to be a column of {TABLE}{columns}, or a pattern on names "
                            "of files with one group, such as '(P[0-9]+)_'.")
        matches = [pattern.search(file_name) for file_name in names]
        found = [None if match is None else match.group(1) for match in matches]
        where = f"by the pattern {unit!r}"
    without = [file for file, owner in zip(files, found) if not owner]
    if without:
        raise DataError(f"{name}: expected a unit for every file {where}, found none for {len(without)}: "
                        f"{listed(without)}.")
    return [owner for owner in found if owner]


def _of_folders(name: str, root: pathlib.Path, folder: pathlib.Path, has_splits: bool,
                declared: Sequence[str] | None) -> tuple[list[tuple[str, str, str]], tuple[str, ...], str]:
    """Files, classes and names by the sub-folders; all classes; the layout's name."""
    own = _subfolders(folder)
    if declared is None and not has_splits and len(own) > 1 and _SPLIT_WORDS.issuperset(map(str.lower, own)):
        raise DataError(f"{name}: {listed(own)} in {folder} look like parts to train and to test on, not like "
                        "classes. Name them train and test, without others beside them; or, if they are classes, give "
                        f"--classes {','.join(own)}.")
    found = _subfolders(root / "train") if has_splits and declared is None else own
    strange = sorted(set(own) - set(found))
    if strange:
        raise DataError(f"{name}: class {strange[0]!r} of {folder} is missing in {root / 'train'}.")
    for entry in _visible(folder):
        if entry.is_dir():
            _check_no_link(name, entry)
    return [(f"{class_name}/{file}", class_name, file) for class_name in own
            for file in _files_in(name, folder / class_name)], tuple(found), "class folders"


def _of_table(name: str, root: pathlib.Path, folder: pathlib.Path, split: str | None, declared: Sequence[str] | None
              ) -> tuple[list[tuple[str, str, str]], tuple[str, ...], str]:
    """Files, classes and names by the rows of a table; all classes; the layout's name."""
    table = _table(name, folder / TABLE)
    labels = set(table.values())
    if split == "test" and declared is None and (root / "train" / TABLE).is_file():
        known = set(_table(name, root / "train" / TABLE).values())
        if labels - known:
            raise DataError(f"{name}: class {min(labels - known)!r} of {folder / TABLE} is missing in "
                            f"{root / 'train' / TABLE}.")
        labels = known
    return [(file, label, file) for file, label in table.items()], in_order(labels), TABLE


def _cells(name: str, path: pathlib.Path) -> tuple[list[str], list[list[str]]]:
    """Titles of the columns, in small letters, and the other rows of a table."""
    try:
        with open(path, encoding="utf-8-sig", newline="") as file:
            header = file.readline()
            file.seek(0)
            separator = next((mark for mark in "\t;" if mark in header), ",")
            rows = [row for row in csv.reader(file, delimiter=separator) if any(cell.strip() for cell in row)]
    except (OSError, UnicodeDecodeError, csv.Error) as error:
        raise DataError(f"{name}: cannot read {path} as a table: {error}.") from error
    return [cell.strip().lower() for cell in rows[0]] if rows else [], rows[1:]


def _table(name: str, path: pathlib.Path, columns: Sequence[str] = LABEL_COLUMNS) -> dict[str, str]:
    """Labels by file, from a table; or the texts of the first of these columns that the table has."""
    titles, rows = _cells(name, path)
    file_column, label_column = (next((titles.index(known) for known in wanted if known in titles), -1)
                                 for wanted in (_FILE_COLUMNS, columns))
    if min(file_column, label_column) < 0:
        raise DataError(f"{name}: expected a first line with the columns file and {columns[0]} in {path}, got "
                        f"{listed(titles) or 'nothing'}.")
    table: dict[str, str] = {}
    for number, cells in enumerate(rows, 2):
        row = [cell.strip() for cell in cells]
        if len(row) <= max(file_column, label_column) or not (row[file_column] and row[label_column]):
            raise DataError(f"{name}: expected a file and a {columns[0]} in row {number} of {path}.")
        place = pathlib.PurePosixPath(row[file_column])
        if place.is_absolute() or ".." in place.parts:
            raise DataError(f"{name}: row {number} of {path} names a file outside of the folder.")
        if str(place) in table:
            raise DataError(f"{name}: row {number} of {path} names {str(place)!r} a second time.")
        table[str(place)] = row[label_column]
    return table


def in_order(labels: set[str]) -> tuple[str, ...]:
    """Labels in the order of their numbers, if all are numbers, else in alphabetical order."""
    numbers = all(label.isdecimal() and len(label) < 20 for label in labels)
    return tuple(sorted(labels, key=lambda label: (int(label) if numbers else 0, label)))


def _warn_of_empty(listing: _Listing) -> None:
    """Says which classes have no pictures; they stay classes, since a folder's name is public."""
    empty = sorted(set(listing.class_names) - set(listing.labels)) if listing.layout == "class folders" else ()
    if empty:
        warnings.warn(f"no picture is in {', '.join(map(repr, empty[:10]))}{', ...' if len(empty) > 10 else ''}; "
                      "a sub-folder is a class even so, and gets images that nothing was learned of. --classes names "
                      "the classes that there are.", DataWarning, stacklevel=2)


def _check_readers(name: str, files: Sequence[str]) -> None:
    """Raises DataError where a name says that a file needs a package which is missing, whatever the file contains."""
    missing = decoding.missing_readers(files)
    if missing:
        raise DataError(f"{name}: {'; '.join(missing)}.")


def _inside(listing: _Listing, file: str) -> pathlib.Path | None:
    """Path of a file; None for a link that leads out of the folder."""
    path = listing.root / file
    linked = path.is_symlink() or listing.layout == TABLE  # whose files may be in linked folders
    return path if not linked or path.resolve().is_relative_to(listing.root.resolve()) else None


def _visible(folder: pathlib.Path) -> list[os.DirEntry[str]]:
    """Entries of a folder that are neither hidden nor left by a system, sorted by name."""
    with os.scandir(folder) as entries:
        return sorted((entry for entry in entries
                       if not entry.name.startswith(".") and entry.name.lower() not in _SYSTEM_FILES),
                      key=lambda entry: entry.name)


def _subfolders(folder: pathlib.Path) -> tuple[str, ...]:
    """Sorted names of the visible sub-folders."""
    return tuple(entry.name for entry in _visible(folder) if entry.is_dir())


def _files_in(name: str, folder: pathlib.Path, prefix: str = "") -> Iterator[str]:
    """Visible files of a folder and of those inside it, relative to it; links to folders are refused."""
    for entry in _visible(folder):
        if entry.is_dir():
            _check_no_link(name, entry)
            yield from _files_in(name, folder / entry.name, f"{prefix}{entry.name}/")
        else:
            yield f"{prefix}{entry.name}"


def _check_no_link(name: str, entry: os.DirEntry[str]) -> None:
    if entry.is_symlink():
        raise DataError(f"{name}: {entry.path} is a link to a folder. Put the pictures themselves there.")


def _keyed_hash(file_name: str) -> bytes:
    """Key of the public order of records; unlike a path, it does not depend on the class."""
    return hashlib.blake2b(os.fsencode(file_name), key=b"datalens_tf record order", digest_size=16).digest()
