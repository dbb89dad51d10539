"""Facts about data before anything is trained on it: public facts, and private ones."""

import dataclasses
import pathlib
from collections.abc import Mapping

import numpy as np

from datalens_tf.data.datasets import Dataset, Units


@dataclasses.dataclass(frozen=True, kw_only=True)
class SurveyedFacts:
    """Facts that are the same for all data sets that differ in one record.

    Attributes:
      name: name by which the data was asked for.
      num_records: number n of records, or of units; a file that cannot be read is a record.
      num_slots: number of slots; no more teachers than slots can be trained. Records that share a slot are never apart:
        in a folder, files of one name in several classes.
      class_names: one text per class.
      declared: whether classes were declared.
      image_shape: (H, W, C) that images are brought to.
      layout: how the data is laid out: `class folders`, `labels.csv`, `unlabelled`, `parquet`, `arrays` or `known`.
      formats: endings of the files' names, sorted, `.png` for example; empty where records are not files.
      splits: folders of the splits; empty where the data is not a folder. Without `test`, there is no test split.
      unit: the unit whose records are protected together; None where each record is by itself.
    """

    name: str
    num_records: int
    num_slots: int
    class_names: tuple[str, ...]
    declared: bool
    image_shape: tuple[int, int, int]
    layout: str
    formats: tuple[str, ...] = ()
    splits: Mapping[str, pathlib.Path] = dataclasses.field(default_factory=dict)
    unit: str | None = None

    @property
    def num_classes(self) -> int:
        """Number of classes Y."""
        return len(self.class_names)


@dataclasses.dataclass(frozen=True, kw_only=True)
class PrivateFacts:
    """Facts that depend on single records: for the owner's eyes, and for no file that is passed on.

    Attributes:
      class_counts: usable records of each class, in the classes' order.
      undeclared: records of no declared class, which keep their slot and contribute nothing.
      unreadable: files that cannot be read as pictures, relative to the folder, and why; as far as their headers tell.
      sizes: smallest and largest (width, height) of the pictures; empty where they are arrays.
      largest_number: the largest number in some pictures of 16 or 32 bits, and the number that is white; empty where
        none of the first pictures is such.
      without_colour: how many of the first pictures show no colour, and how many these are; empty where grey images
        are wanted, or records are not files.
      unit_sizes: smallest and largest number of records that a unit has; empty where records are units.
      largest_unit: the first files of a unit that has most records; empty where records are no files, or are units.
      left_out: names of files beside the classes' folders, and of what is beside those of the splits.
    """

    class_counts: tuple[int, ...]
    undeclared: int = 0
    unreadable: Mapping[str, str] = dataclasses.field(default_factory=dict)
    sizes: tuple[tuple[int, int], ...] = ()
    largest_number: tuple[int, ...] = ()
    without_colour: tuple[int, ...] = ()
    unit_sizes: tuple[int, ...] = ()
    largest_unit: tuple[str, ...] = ()
    left_out: tuple[str, ...] = ()


@dataclasses.dataclass(frozen=True, kw_only=True)
class Survey:
    """Facts about data, the public ones apart from the private ones."""

    public: SurveyedFacts
    private: PrivateFacts


def extremes(units: Units | None) -> tuple[int, ...]:
    """Smallest and largest number of records that a unit has; empty where records are units."""
    if units is None:
        return ()
    counts = np.bincount(units.of, minlength=units.count)
    return int(counts.min()), int(counts.max())


def of_dataset(dataset: Dataset, layout: str) -> Survey:
    """The survey of data that was loaded whole."""
    usable = np.ones(len(dataset), bool) if dataset.usable is None else dataset.usable
    counts = np.bincount(dataset.labels[usable], minlength=dataset.num_classes)
    return Survey(
        public=SurveyedFacts(
            name=dataset.name, num_records=dataset.num_units, num_slots=dataset.num_slots,
            class_names=dataset.class_names, declared=dataset.declared, image_shape=dataset.image_shape, layout=layout,
            unit=dataset.unit),
        private=PrivateFacts(class_counts=tuple(map(int, counts)), undeclared=int((~usable).sum()),
                             unit_sizes=extremes(dataset.units)))
