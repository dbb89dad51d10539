"""Labelled images: their form, the checks on them, and the operations that are common to all of them."""

import dataclasses
import warnings
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Protocol, Self, TypeVar

import numpy as np
from numpy.typing import ArrayLike, NDArray

from datalens_tf import _files, _validate
from datalens_tf.data import checks
from datalens_tf.errors import DataError, DataWarning, InvalidArgumentError
from datalens_tf.settings import (
    COLORS,
    DEFAULT_COLOR,
    DEFAULT_IMAGE_SIZE,
    LARGEST_NUM_CLASSES,
    SMALLEST_SIDE,
)

SPLITS = ("train", "test")
ONE_CLASS = ("pictures",)  # of data without labels
UNIT = "unit"  # name of units where none is given
CHUNK = 1000  # records that `chunks` has at once


@dataclasses.dataclass(frozen=True, kw_only=True, eq=False)
class Units:
    """Units of protection, patients for example: each has any number of records, and is protected as a whole.

    Attributes:
      name: what assigns records to units, as in the setting `unit`.
      of: number of each record's unit in [0, count), int64 [n]. Private, as is the number of records of a unit.
      count: number of units, public; a unit without usable records counts, too.
    """

    name: str
    of: NDArray[np.int64]
    count: int

    @classmethod
    def named(cls, name: str, owners: NDArray[Any]) -> Self:
        """Units in the order of their public names, from the name of each record's unit: integers or text [n]."""
        names, of = np.unique(owners, return_inverse=True)
        return cls(name=name, of=of.astype(np.int64), count=len(names))

    def records(self, units: NDArray[np.int64]) -> NDArray[np.int64]:
        """Indices of the records of some units, one unit after the other."""
        found = np.flatnonzero(np.isin(self.of, units))
        return found[np.argsort(self.of[found], kind="stable")]


@dataclasses.dataclass(frozen=True, kw_only=True, eq=False)
class Dataset:
    """Labelled images.

    Attributes:
      images: uint8 [n, H, W, C], or float32 in [0, 1] where the source holds floats.
      labels: int64 [n] in [0, num_classes).
      num_classes: number of classes Y. Treated as public: declare classes where labels must not decide it.
      name: name under which the data was loaded.
      class_names: one text per class.
      declared: whether classes were declared to be public, rather than found in the data.
      usable: bool [n], or None where all are. An unusable record keeps its index, and so its partition: whether one
        record is used must not move another. Only a teacher without any usable record trains on unusable ones.
      users: [n], integers or text: the user of each record, for methods that protect users; public. None where no
        users are given.
      slots: int64 [n], from 0 on without gaps: records of one slot are never dealt to different teachers. Public, as
        names of files are. None where each record has a slot of its own.
      units: the unit of each record, where units are protected and not records; None where a record is a unit.
      unreadable: files that could not be read, relative to the data, and why. They hold their places and are not
        usable. Private, as is their number.
      held_out: the share of places that `hold_out` took away; 0 where it took none.
    """

    images: NDArray[Any]
    labels: NDArray[np.int64]
    num_classes: int
    name: str
    class_names: tuple[str, ...]
    declared: bool = False
    usable: NDArray[np.bool_] | None = None
    users: NDArray[Any] | None = None
    slots: NDArray[np.int64] | None = None
    units: Units | None = None
    unreadable: Mapping[str, str] = dataclasses.field(default_factory=dict)
    held_out: float = 0.0

    @property
    def num_slots(self) -> int:
        """Number of slots; no method can have more teachers than this."""
        if self.units is not None:
            return self.units.count
        return len(self) if self.slots is None else int(self.slots.max()) + 1

    @property
    def num_units(self) -> int:
        """The public n: number of units, or of records where each is a unit. How many records a unit has is private."""
        return len(self) if self.units is None else self.units.count

    @property
    def unit(self) -> str | None:
        """The setting `unit`; None where a record is a unit."""
        return None if self.units is None else self.units.name

    @property
    def owners(self) -> NDArray[Any] | None:
        """Owner of each record, for methods that have users: its unit, else its user; None where neither is given."""
        return self.users if self.units is None else self.units.of

    @property
    def image_shape(self) -> tuple[int, int, int]:
        """(H, W, C)."""
        height, width, channels = self.images.shape[1:]
        return height, width, channels

    def __len__(self) -> int:
        return len(self.images)


@dataclasses.dataclass(frozen=True, kw_only=True)
class Pictures:
    """Public choices of how pictures become images. None of them depends on what the pictures show.

    Attributes:
      image_size: (H, W) that pictures are brought to, by cutting off both ends of the side that is too long, and
        resampling. None keeps the size of data whose kind has one; a folder then has 32 x 32.
      color: `rgb` or `grey`. None keeps the colour of data whose kind has one; a folder then has `rgb`.
      unlabelled: whether there is one class, of all records.
      skip_unreadable: whether a file that cannot be read holds its place and contributes nothing. It is an error
        otherwise.
      bits: B, where numbers of pictures of 16 or 32 bits are white from 2^B - 1 on; None for the range of their type,
        and for 1 where they are floating-point.
    """

    image_size: tuple[int, int] | None = None
    color: str | None = None
    unlabelled: bool = False
    skip_unreadable: bool = False
    bits: int | None = None

    def __post_init__(self) -> None:
        if self.image_size is not None:
            _validate.require(len(self.image_size) == 2, "image_size", self.image_size, "to be (H, W)")
            for side in self.image_size:
                _validate.integer("image_size", side, at_least=SMALLEST_SIDE)
        if self.color is not None:
            _validate.one_of("color", self.color, COLORS)
        if self.bits is not None:
            _validate.integer("picture_bits", self.bits, at_least=1, at_most=32)

    @classmethod
    def of_shape(cls, image_shape: tuple[int, int, int], **more: Any) -> Self:
        """The choices that lead to images of a shape (H, W, C)."""
        height, width, channels = image_shape
        color = {1: "grey", 3: "rgb"}.get(channels)
        return cls(image_size=(height, width), color=color, **more)

    def fitting(self, image_shape: tuple[int, int, int] | None, num_classes: int | None = None) -> Self:
        """Choices that lead to the images that there are; raises if these choices ask for others.

        Args:
          image_shape: (H, W, C) of the images; None where there are no images yet.
          num_classes: Y of the images; one class means that there are no labels.

        Raises:
          InvalidArgumentError: the images have another size or colour than these choices ask for.
        """
        unlabelled = self.unlabelled or num_classes == 1
        if image_shape is None:
            return dataclasses.replace(self, unlabelled=unlabelled)
        there = self.of_shape(image_shape, unlabelled=unlabelled, skip_unreadable=self.skip_unreadable, bits=self.bits)
        for name in ("image_size", "color"):
            wanted, found = getattr(self, name), getattr(there, name)
            if wanted not in (None, found):
                raise InvalidArgumentError(f"Expected {name}={wanted!r} to be {found!r}, as of the images that there "
                                           f"are: leave out --{name}.")
        return there

    @property
    def image_shape(self) -> tuple[int, int, int]:
        """(H, W, C) of pictures whose kind has no size of its own."""
        return (*(self.image_size or DEFAULT_IMAGE_SIZE), COLORS[self.color or DEFAULT_COLOR])


class PublicFacts(Protocol):
    """Public facts about a data set, or about data that owners keep."""

    @property
    def name(self) -> str:
        """Name of the data in public files."""
        ...

    @property
    def image_shape(self) -> tuple[int, int, int]:
        """(H, W, C)."""
        ...

    @property
    def num_classes(self) -> int:
        """Number of classes Y."""
        ...

    @property
    def class_names(self) -> tuple[str, ...]:
        """One text per class."""
        ...

    @property
    def declared(self) -> bool:
        """Whether the classes were declared to be public, rather than found in the data."""
        ...

    @property
    def unit(self) -> str | None:
        """The unit whose records are protected together; None where each record is by itself."""
        ...


class _Settings(Protocol):
    @property
    def classes(self) -> tuple[str, ...] | None: ...

    @property
    def unit(self) -> str | None: ...

    def replace(self, **changes: Any) -> Self: ...


_Config = TypeVar("_Config", bound=_Settings)


def with_data(config: _Config, dataset: PublicFacts) -> _Config:
    """Settings, completed with the public facts about the data that they are for.

    Args:
      config: settings with `replace`.
      dataset: a `Dataset`, or another object with the same public facts.

    Raises:
      InvalidArgumentError: the settings declare classes, or name a unit, that the data set does not have.
    """
    classes = dataset.class_names if dataset.declared else None
    _validate.require(config.classes in (None, classes), "classes", config.classes,
                      f"to be those that the data set was loaded with, {classes}")
    _validate.require(config.unit in (None, dataset.unit), "unit", config.unit,
                      f"to be that which the data set was loaded with, {dataset.unit}")
    return config.replace(dataset=dataset.name, image_shape=dataset.image_shape, num_classes=dataset.num_classes,
                          classes=classes, unit=dataset.unit)


def to_unit(images: NDArray[Any]) -> NDArray[np.float32]:
    """Images as float32 in [0, 1], by a scaling that depends on no data (docs/explanation/privacy.md, rule 7).

    Args:
      images: uint8 in [0, 255], divided by 255; or float in [0, 1], kept.
    """
    images = np.asarray(images)
    if images.dtype == np.uint8:
        return images.astype(np.float32) / np.float32(255)
    return images.astype(np.float32, copy=False)


def usable_only(dataset: Dataset) -> Dataset:
    """Leaves out records that are not usable. Whether a record is usable depends on itself alone."""
    if dataset.usable is None:
        return dataset
    return dataclasses.replace(_some(dataset, dataset.usable), usable=None)


def _some(dataset: Dataset, kept: NDArray[np.bool_]) -> Dataset:
    """The records that `kept`, bool [n], selects, in their order; units without any of them still count."""
    return dataclasses.replace(
        dataset, images=dataset.images[kept], labels=dataset.labels[kept],
        usable=None if dataset.usable is None else dataset.usable[kept],
        users=None if dataset.users is None else dataset.users[kept],
        units=dataset.units and dataclasses.replace(dataset.units, of=dataset.units.of[kept]),
        slots=None if dataset.slots is None else np.unique(dataset.slots[kept], return_inverse=True)[1])


def hold_out(dataset: Dataset, share: float) -> tuple[Dataset, Dataset | None]:
    """Divides records into those to train on and those to test on, by their places alone; no record is looked at.

    A place is that of a unit, else of a user, else of a slot, else of the record: records that belong together stay
    together. The places that are held out lie evenly, every tenth one for a share of 0.1.

    Args:
      dataset: the records.
      share: of the places to hold out, in [0, 0.5]; 0 for none.

    Returns:
      The records to train on, and those that were held out. The latter are None for a share of 0, and where this share
      was taken away before.

    Raises:
      DataError: there are too few places.
      InvalidArgumentError: another share was held out before.
    """
    if share in (0, dataset.held_out):
        return dataset, None
    _validate.require(dataset.held_out == 0, "holdout", share, f"to be {dataset.held_out}, which was held out before")
    places, count = dataset.slots, dataset.num_slots
    if dataset.units is not None:
        places = dataset.units.of
    elif dataset.users is not None:
        users, places = np.unique(dataset.users, return_inverse=True)
        count = len(users)
    # The last of every 1 / share places; the rounding keeps 0.1 * 10 at 1.
    is_held = np.diff(np.floor(np.round(np.arange(count + 1) * share, 6))) > 0
    if not is_held.any():
        raise DataError(f"{dataset.name}: expected records to hold out, got holdout={share:g} of {count}. Give a "
                        "larger share, or none.")
    of = is_held if places is None else is_held[places]
    train, test = _some(dataset, ~of), _some(dataset, of)
    if dataset.units is not None:
        numbers = np.where(is_held, np.cumsum(is_held), np.cumsum(~is_held)) - 1  # Each part counts from 0.
        train, test = (dataclasses.replace(part, units=dataclasses.replace(
            dataset.units, of=numbers[dataset.units.of[chosen]], count=int(held.sum())))
            for part, chosen, held in ((train, ~of, ~is_held), (test, of, is_held)))
    return dataclasses.replace(train, held_out=share), dataclasses.replace(test, unreadable={})


def unit_sizes(dataset: Dataset) -> NDArray[np.int64]:
    """Number of usable records that each record's unit has, int64 [n], at least 1; 1 where a record is a unit.

    A record counts as one divided by this number, so that a unit counts as the average of its records.
    """
    if dataset.units is None:
        return np.ones(len(dataset), np.int64)
    of = dataset.units.of
    counted = of if dataset.usable is None else of[dataset.usable]
    sizes: NDArray[np.int64] = np.maximum(1, np.bincount(counted, minlength=dataset.units.count))[of]
    return sizes


def sound(dataset: Dataset) -> Dataset:
    """A data set in which invalid records keep their places and are not usable.

    A record is invalid if its pixels are NaN, infinite or out of [0, 1], or if its label is no class. Each record is
    judged by itself alone, so that one record can neither end a run nor change what becomes of another. An invalid
    record gets a black image and the label 0.

    Raises:
      DataError: arrays of other shapes or types, in which a record has no place of its own.
    """
    checks.check_images(_files.ArrayHeader.of(dataset.images), dataset.name)
    for name, value in (("labels", dataset.labels), ("usable", dataset.usable)):
        if value is not None and np.shape(value) != (len(dataset),):
            raise DataError(f"{dataset.name}: expected {name} of shape [{len(dataset)}], one per image, got "
                            f"{list(np.shape(value))}.")
    found = (dataset.labels >= 0) & (dataset.labels < dataset.num_classes)
    if dataset.images.dtype != np.uint8:
        for start in range(0, len(dataset), CHUNK):  # In parts: it may be a file mapped into memory.
            pixels = dataset.images[start:start + CHUNK].reshape(len(found[start:start + CHUNK]), -1)
            found[start:start + CHUNK] &= ((pixels >= 0) & (pixels <= 1)).all(1)  # Neither holds for NaN.
    if found.all():
        return dataset
    images, labels = dataset.images.copy(), dataset.labels.copy()
    images[~found], labels[~found] = 0, 0
    return dataclasses.replace(dataset, images=images, labels=labels,
                               usable=found if dataset.usable is None else dataset.usable & found)


def shaped(dataset: Dataset, pictures: Pictures) -> Dataset:
    """A data set whose images have the size and the colour that are asked for; each depends on its own image alone.

    Images are cut and resampled as pictures of a folder are. Those that fit already are left alone, to the bit.

    Args:
      dataset: a data set of any images.
      pictures: what is asked for; a size or colour that is None stays as it is.

    Raises:
      DataError: a colour is asked of images that have neither one channel nor three.
    """
    from PIL import Image, ImageOps

    height, width, channels = dataset.image_shape
    size = pictures.image_size or (height, width)
    wanted = channels if pictures.color is None else COLORS[pictures.color]
    if (*size, wanted) == dataset.image_shape:
        return dataset
    if wanted != channels and channels not in COLORS.values():
        raise DataError(f"{dataset.name}: expected images of 1 or 3 channels for color={pictures.color!r}, got "
                        f"{channels}.")
    images = np.empty((len(dataset), *size, wanted), dataset.images.dtype)
    for number, image in enumerate(dataset.images):
        if wanted == 1 < channels:
            image = image.astype(np.float32) @ np.array([[0.299], [0.587], [0.114]], np.float32)
        planes = [np.asarray(ImageOps.fit(Image.fromarray(image[..., channel].astype(np.float32)), size[::-1],
                                          Image.Resampling.BILINEAR)) for channel in range(image.shape[-1])]
        found = np.stack(planes, -1)
        images[number] = np.rint(found) if images.dtype == np.uint8 else np.clip(found, 0, 1)
    return dataclasses.replace(dataset, images=images)


def one_class(dataset: Dataset) -> Dataset:
    """The records without their labels: all are of one class."""
    return dataclasses.replace(dataset, labels=np.zeros_like(dataset.labels), num_classes=1, class_names=ONE_CLASS)


def padded(records: NDArray[Any], size: int) -> NDArray[Any]:
    """Records and zeros behind them, `size` in all: the shape of a batch decides how its results are rounded.

    Callers that compute numbers of records in chunks leave out the numbers of the zeros. The number of records in the
    last chunk depends on other records; with the zeros, it has no part in a record's numbers.
    """
    return np.concatenate([records, np.zeros((size - len(records), *records.shape[1:]), records.dtype)])


def chunks(dataset: Dataset, size: int = CHUNK
           ) -> Iterator[tuple[NDArray[np.float32], NDArray[np.int64], NDArray[np.int64]]]:
    """Images, float32 in [0, 1], labels and `unit_sizes` of all records, `size` records at a time.

    Without records, it yields one empty chunk.
    """
    sizes = unit_sizes(dataset)
    for start in range(0, max(1, len(dataset)), size):
        part = slice(start, start + size)
        yield to_unit(dataset.images[part]), dataset.labels[part], sizes[part]


def as_dataset(images: ArrayLike, labels: ArrayLike, num_classes: int | None = None, *, name: str = "arrays",
               class_names: Sequence[str] | None = None, classes: Sequence[str] | None = None,
               usable: NDArray[np.bool_] | None = None, users: NDArray[Any] | None = None,
               units: NDArray[Any] | None = None, unit: str = UNIT) -> Dataset:
    """Checks arrays and makes a Dataset of them; the order of records is kept.

    Args:
      images: uint8, or float in [0, 1]; [n, H, W, C] or [n, H, W].
      labels: integers in [0, num_classes), [n]; any integers where classes are declared.
      num_classes: number of classes; None takes the largest label + 1. Larger labels are an error.
      name: named in errors and in the result.
      class_names: one text per label; None numbers them.
      classes: names of the classes that are declared to be public. A label belongs to the class that has its name in
        `class_names` or, without `class_names`, to the class at its position. A record of none of these classes keeps
        its place and contributes nothing: it is not usable, its image is black and its label 0. None means that all
        labels are classes.
      usable: bool [n]; None for all.
      users: integers or text [n], the user of each record; None where no users are given.
      units: integers or text [n], the unit of each record, a patient for example. All records of a unit are protected
        together. None where a record is a unit.
      unit: name of the units.

    Raises:
      DataError: one line that says what is wrong.
    """
    images = checks.checked_images(images, name)
    labels = checks.checked_labels(labels, len(images), num_classes, name, declared=classes is not None)
    for owners in (users, units):
        if owners is not None:
            checks.check_users(_files.ArrayHeader.of(owners), len(labels), name)
    if classes is not None:
        labels, inside = _places(labels, class_names, classes)
        if not inside.all():
            images = images.copy()  # The caller's are left alone.
            images[~inside] = 0
            usable = inside if usable is None else inside & usable
        num_classes, class_names = len(classes), classes
    if num_classes is None and labels.min() > 0:
        warnings.warn(f"{name}: labels begin at {labels.min()}, so that smaller ones are classes without records, "
                      "which get images that nothing was learned of. Number the classes from 0.", DataWarning,
                      stacklevel=2)
    num_classes = int(labels.max()) + 1 if num_classes is None else int(num_classes)
    if num_classes > LARGEST_NUM_CLASSES:
        raise DataError(f"{name}: expected at most {LARGEST_NUM_CLASSES:,} classes, got {num_classes}.")
    return Dataset(images=images, labels=labels, num_classes=num_classes, name=name,
                   class_names=tuple(map(str, range(num_classes)) if class_names is None else class_names),
                   declared=classes is not None, usable=usable, users=users,
                   units=None if units is None else Units.named(unit, units))


def declare(dataset: Dataset, classes: Sequence[str]) -> Dataset:
    """Declares some classes of a data set whose list of classes is public; all others become undeclared."""
    if not set(classes) & set(dataset.class_names):
        raise DataError(f"{dataset.name}: has none of the declared classes {listed(classes)}; it has "
                        f"{listed(dataset.class_names)}.")
    labels, inside = _places(dataset.labels, dataset.class_names, classes)
    images, usable = dataset.images, dataset.usable
    if not inside.all():
        # They are changed in place where they were decoded into a file, which may be larger than the memory.
        images = images if images.flags.writeable else images.copy()
        images[~inside] = 0
        usable = inside if usable is None else inside & usable
    return dataclasses.replace(dataset, images=images, labels=labels, num_classes=len(classes), usable=usable,
                               class_names=tuple(classes), declared=True)


def _places(labels: NDArray[np.int64], names: Sequence[str] | None, classes: Sequence[str]
            ) -> tuple[NDArray[np.int64], NDArray[np.bool_]]:
    """Each label's place among the classes, int64 [n], 0 where it has none; and whether it has one, bool [n]."""
    if names is not None:
        place_of = {name: place for place, name in enumerate(classes)}
        labels = np.array([place_of.get(name, -1) for name in names])[labels]
    inside = (labels >= 0) & (labels < len(classes))
    return np.where(inside, labels, 0).astype(np.int64), inside


def listed(names: Sequence[str]) -> str:
    """The first of some names."""
    return ", ".join(names[:10]) + (", ..." if len(names) > 10 else "")
