"""Public facts about data, and a method's word on how well it suits them."""

import dataclasses
import math
from typing import Any, NamedTuple

from datalens_tf import _validate
from datalens_tf.settings import SMALLEST_SIDE

RECORDS_PER_TEACHER = 15  # of the DataLens authors' teachers: 60,000 records for 4,000


def check_image_shape(name: str, shape: Any) -> None:
    """Refuses a value of the setting `name` that is no shape (H, W, C) of images.

    Raises:
      InvalidArgumentError: it is none, or images are too small.
    """
    sound = (isinstance(shape, tuple) and len(shape) == 3 and all(isinstance(size, int) and size > 0 for size in shape)
             and min(shape[:2]) >= SMALLEST_SIDE)
    _validate.require(sound, name, shape, f"to be (H, W, C) with H and W at least {SMALLEST_SIDE}")


class DataSpec(NamedTuple):
    """Public facts about the images that a run learns from, and that a generator is built for.

    Attributes:
      image_shape: (H, W, C).
      num_classes: number of classes Y.
    """

    image_shape: tuple[int, int, int]
    num_classes: int


@dataclasses.dataclass(frozen=True, kw_only=True)
class DataFacts:
    """Public facts about data, none of them about one record: all that settings and the choice of a method may know.

    Attributes:
      num_records: n, public where neighbours differ in a replaced record; else a public bound on it.
      image_shape: (H, W, C).
      num_classes: number of classes Y.
      num_slots: places in partitions that records have; None where each record has its own.
      unit: the setting of that name; `num_records` counts units where there is one.
    """

    num_records: int
    image_shape: tuple[int, int, int]
    num_classes: int
    num_slots: int | None = None
    unit: str | None = None

    @property
    def dimension(self) -> int:
        """Numbers in an image, H * W * C."""
        return math.prod(self.image_shape)

    @property
    def num_teachers(self) -> int:
        """The largest number of teachers that all have enough records to learn from, at least 1."""
        return max(1, (self.num_slots or self.num_records) // RECORDS_PER_TEACHER)

    def __str__(self) -> str:
        height, width, channels = self.image_shape
        kind = {1: "grey ", 3: "colour "}.get(channels, "")
        counted = (f"{kind}picture{'s' * (self.num_records > 1)}" if self.unit is None else
                   f"units by {self.unit} with {kind}pictures")
        classes = "1 class" if self.num_classes == 1 else f"{self.num_classes:,} classes"
        return f"{self.num_records:,} {counted} of {height} x {width} in {classes}"


class Suitability(NamedTuple):
    """A method's own word on how well it suits data.

    Attributes:
      usefulness: expected accuracy of a classifier that learned from the method's images, divided by the accuracy of
        one that learned from the records themselves.
      why: a clause that says what the number rests on.
    """

    usefulness: float
    why: str
