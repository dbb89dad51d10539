"""Pictures decoded in parallel into a temporary file, which need not fit in memory."""

import concurrent.futures
import io
import itertools
import os
import tempfile
from collections.abc import Iterable
from typing import TypeVar

import numpy as np

from datalens_tf._text import first_line
from datalens_tf.errors import DataError

Known = TypeVar("Known")

_BLOCK = 1024  # Pictures decoded in parallel.


def decode(name: str, count: int, records: Iterable[tuple[bytes | None, Known]], *, picture: tuple[int, int],
           box: tuple[int, int, int, int], size: int) -> tuple[np.ndarray, list[Known]]:
    """Decodes one part of every picture, reduced, into a file without a name, which need not fit in memory.

    Args:
      name: named in errors.
      count: how many records there are.
      records: the content of a JPEG or PNG file, and other facts about the record, for each record. Without content
        (None) the picture stays black and takes no room on the disk.
      picture: (width, height) that pictures must have.
      box: (left, upper, right, lower), the part of the picture that is kept.
      size: its new width and height.

    Returns:
      uint8 [count, size, size, 3], and the other facts about the records.

    Raises:
      DataError: there is no record, or a picture is unreadable or of another size.
    """
    from PIL import Image

    def reduced(content: bytes) -> np.ndarray:
        try:
            with Image.open(io.BytesIO(content), formats=("JPEG", "PNG")) as opened:
                if opened.size != picture:
                    raise DataError(f"{name}: expected pictures of {picture[0]} x {picture[1]} pixels, got "
                                    f"{opened.size[0]} x {opened.size[1]}.")
                return np.asarray(opened.convert("RGB").resize((size, size), Image.Resampling.BILINEAR, box))
        except DataError:
            raise
        except Exception as error:
            # Pillow raises nearly anything for damaged files.
            raise DataError(f"{name}: cannot read a picture: {first_line(error)}.") from error

    if not count:
        raise DataError(f"{name}: expected at least one record, found none.")
    with tempfile.TemporaryFile() as file:  # The mapping keeps it alive; even a process that is killed leaves nothing.
        images = np.memmap(file, np.uint8, "w+", shape=(count, size, size, 3))
    records = iter(records)
    known: list[Known] = []
    with concurrent.futures.ThreadPoolExecutor(os.cpu_count()) as executor:
        while block := list(itertools.islice(records, _BLOCK)):
            present = [len(known) + i for i, (content, _) in enumerate(block) if content is not None]
            for index, image in zip(present, executor.map(reduced, (c for c, _ in block if c is not None))):
                images[index] = image
            known += [about for _, about in block]
    return images, known
