"""Any picture as an image of one shape. The image depends on that picture alone.

A picture is turned as its EXIF orientation says, laid over white where it is transparent, scaled from the range of its
kind of numbers or of as many bits as it is said to have, cut at both ends of the side that is too long, and resampled.
Of several frames, the first counts.
"""

from __future__ import annotations

import concurrent.futures
import contextlib
import functools
import importlib
import io
import itertools
import logging
import math
import os
import pathlib
import tempfile
import warnings
from collections.abc import Callable, Iterable, Iterator
from typing import Any

import numpy as np

from datalens_tf._text import first_line

Source = pathlib.Path | bytes  # A file, or its content.

IN_MEMORY = 2**30  # bytes of images that stay in memory; more are in a file without a name
_BLOCK = 1024  # pictures that are waited for together
_COLOURLESS = 4  # No channel is further from another; what JPEG leaves of grey pictures' colours is nearer.
_WHITE = (255, 255, 255, 255)
_NUMBERS = ("I", "F")  # Pillow's modes of 16 or 32 bits begin so.
# EPS starts another program; the others are stubs, which name a format and cannot read it.
_NEVER = {"EPS", "BUFR", "GRIB", "HDF5", "WMF", "MPEG"}
# Kinds of pictures that another package reads: endings of names, its module, and its name, which an extra installs.
_OTHERS = {"DICOM": ((".dcm", ".dicom"), "pydicom", "pydicom"),
           "HEIC": ((".heic", ".heif", ".hif"), "pillow_heif", "pillow-heif")}
# What HEIC files begin with, after four bytes; AVIF files begin alike, and Pillow reads them.
_HEIC = tuple(b"ftyp" + brand for brand in (b"heic", b"heix", b"heim", b"heis", b"hevc", b"hevx", b"mif1", b"msf1"))


class UnreadableError(Exception):
    """A file that is not a picture, or must not be read; the text says why."""


def read(source: Source, shape: tuple[int, int, int], bits: int | None = None) -> np.ndarray:
    """A picture as an image uint8 [H, W, C] of this shape.

    Args:
      source: the picture.
      shape: (H, W, C) of the image.
      bits: numbers of 16 or 32 bits are white from 2^bits - 1 on; None for the range of their type, and for 1 where
        they are floating-point.

    Raises:
      UnreadableError: it is not a picture, or is too large.
    """
    side = max(shape[:2])
    with _refusing(), _opened(source) as picture:
        if not hasattr(picture, "draft"):  # Numbers of a DICOM file.
            return _resampled(picture, shape, bits)
        # JPEG can be decoded at a fraction of its size; twice the side that is wanted leaves something to average.
        picture.draft(None, (2 * side, 2 * side))
        return _resampled(_upright(picture), shape, bits)


def size_of(source: Source) -> tuple[int, int]:
    """(width, height) by the header alone.

    Raises:
      UnreadableError: the header is not that of a picture, or the picture is too large.
    """
    with _refusing(), _opened(source, header_only=True) as picture:
        return picture if isinstance(picture, tuple) else picture.size


def largest_number(sources: Iterable[Source], bits: int | None = None) -> tuple[int, ...]:
    """The largest number in pictures of 16 or 32 bits, and the largest number that is white in any of them.

    Pictures of other kinds, and those that cannot be read, do not count; empty where there are no others.
    """
    found: list[tuple[int, int]] = []

    def look_into(numbered: tuple[int, Source]) -> None:
        with _refusing(), _opened(numbered[1]) as picture:
            if getattr(picture, "mode", "").startswith(_NUMBERS):
                picture.load()
                numbers, white = _numbers(picture, bits)
                found.append((math.ceil(numbers.max()), white))

    for _ in _side_by_side(look_into, enumerate(sources)):
        pass
    return tuple(max(column) for column in zip(*found))


def without_colour(sources: Iterable[Source]) -> tuple[int, int]:
    """Number of pictures in which nothing has a colour, as far as 32 x 32 pixels show, and of all that can be read."""
    colours: list[int] = []

    def look_at(numbered: tuple[int, Source]) -> None:
        colours.append(int(np.ptp(read(numbered[1], (32, 32, 3)), axis=-1).max()))

    for _ in _side_by_side(look_at, enumerate(sources)):
        pass
    return sum(largest <= _COLOURLESS for largest in colours), len(colours)


def read_all(sources: Iterable[Source | None], count: int, shape: tuple[int, int, int], bits: int | None = None
             ) -> tuple[np.ndarray, dict[int, str]]:
    """Reads pictures in parallel into one array; one that cannot be read stays black.

    Args:
      sources: the pictures; None for one that must not be read.
      count: number of sources.
      shape: (H, W, C) of the images.
      bits: see `read`.

    Returns:
      uint8 [count, H, W, C], writable, in memory up to 1 GiB and in a file without a name beyond; and the reasons why
      pictures cannot be read, by their numbers.
    """
    if count * int(np.prod(shape)) <= IN_MEMORY:
        images = np.zeros((count, *shape), np.uint8)
    else:
        with tempfile.TemporaryFile() as file:  # The mapping keeps it alive; a process that is killed leaves nothing.
            images = np.memmap(file, np.uint8, "w+", shape=(count, *shape))

    def one(numbered: tuple[int, Source]) -> None:
        number, source = numbered
        images[number] = read(source, shape, bits)

    wanted = ((number, source) for number, source in enumerate(sources) if source is not None)
    return images, dict(_side_by_side(one, wanted))


def sizes_of(sources: Iterable[Source]) -> tuple[list[tuple[int, int]], dict[int, str]]:
    """Sizes (width, height) of the pictures that have a header, and why others have none, by their numbers."""
    sizes: list[tuple[int, int]] = []
    failed = dict(_side_by_side(lambda numbered: sizes.append(size_of(numbered[1])), enumerate(sources)))
    return sizes, failed


def _side_by_side(work: Callable[[tuple[int, Source]], None], numbered: Iterable[tuple[int, Source]]
                  ) -> Iterator[tuple[int, str]]:
    """Works in threads, as Pillow lets others run while it decodes; yields the numbers of failed items, and why."""
    def attempt(item: tuple[int, Source]) -> tuple[int, str] | None:
        try:
            work(item)
        except UnreadableError as error:
            return item[0], str(error)
        return None

    numbered = iter(numbered)
    # Set for all threads at once: filters of warnings belong to the process.
    with warnings.catch_warnings(), concurrent.futures.ThreadPoolExecutor(os.cpu_count()) as executor:
        warnings.simplefilter("ignore")
        while block := list(itertools.islice(numbered, _BLOCK)):
            yield from filter(None, executor.map(attempt, block))


@contextlib.contextmanager
def _refusing() -> Iterator[None]:
    """Turns whatever goes wrong with a picture into UnreadableError."""
    try:
        yield
    except UnreadableError:
        raise
    except MemoryError as error:
        raise UnreadableError("it does not fit into the memory") from error
    except Exception as error:  # Libraries raise nearly anything for damaged files.
        what = "it is no picture" if type(error).__name__ == "UnidentifiedImageError" else first_line(error)
        raise UnreadableError(what) from error


@contextlib.contextmanager
def _opened(source: Source, header_only: bool = False) -> Iterator[Any]:
    """A Pillow picture that is not decoded yet; for DICOM, numbers in [0, 1], or its size alone."""
    from PIL import Image

    if isinstance(source, pathlib.Path) and not source.is_file():  # Reading a pipe would wait.
        raise UnreadableError("there is no such file" if not source.exists() else "it is no ordinary file")
    with open(source, "rb") if isinstance(source, pathlib.Path) else io.BytesIO(source) as file:
        start = file.read(132)
        file.seek(0)
        if start[128:] == b"DICM":
            yield _dicom(file, header_only)
            return
        if not start:
            raise UnreadableError("it is empty")
        Image.init()
        _let_pillow_read_heic()
        if start[4:].startswith(_HEIC):
            _require("HEIC")
        picture = Image.open(file, formats=[kind for kind in Image.OPEN if kind not in _NEVER])
        with picture:
            _check_pixels(*picture.size)
            yield picture


def _check_pixels(width: int, height: int) -> None:
    from PIL import Image

    limit = Image.MAX_IMAGE_PIXELS or 2**26
    if width * height > limit:
        raise UnreadableError(f"{width} x {height} pixels are more than {limit:,}, as of a decompression bomb")


def _upright(picture):
    """The picture as it was held; a damaged EXIF block turns nothing."""
    from PIL import ImageOps

    picture.load()
    try:
        turned = ImageOps.exif_transpose(picture)
        if hasattr(picture, "tag_v2"):  # It says what kind of numbers TIFF has.
            turned.tag_v2 = picture.tag_v2
        return turned
    except Exception:  # noqa: BLE001 (EXIF blocks are damaged in many ways)
        return picture


def _resampled(picture, shape: tuple[int, int, int], bits: int | None) -> np.ndarray:
    """A decoded picture as uint8 [H, W, C]."""
    from PIL import Image, ImageOps

    height, width, channels = shape
    picture = _flat(picture, "L" if channels == 1 else "RGB", bits)
    pixels = np.asarray(ImageOps.fit(picture, (width, height), Image.Resampling.BILINEAR))
    if pixels.dtype != np.uint8:
        pixels = np.rint(np.clip(pixels, 0, 255)).astype(np.uint8)
    return np.broadcast_to(pixels[..., None] if pixels.ndim == 2 else pixels, shape)


def _flat(picture, mode: str, bits: int | None):
    """A picture without transparency: of this mode, or of mode F with numbers in [0, 255]."""
    from PIL import Image

    if isinstance(picture, np.ndarray):
        if picture.ndim == 2:
            return Image.fromarray(np.float32(255) * picture.astype(np.float32))
        return Image.fromarray(np.rint(255 * picture).astype(np.uint8)).convert(mode)
    if picture.mode.startswith(_NUMBERS):
        numbers, white = _numbers(picture, bits)
        return Image.fromarray(np.float32(255) * (np.clip(numbers, 0.0, float(white)) / white).astype(np.float32))
    if picture.mode == "LAB":
        from PIL import ImageCms

        picture = ImageCms.applyTransform(picture, ImageCms.buildTransform(
            ImageCms.createProfile("LAB"), ImageCms.createProfile("sRGB"), "LAB", "RGB"))
    if picture.has_transparency_data:
        picture = (picture.convert("LA") if picture.mode == "La" else picture).convert("RGBA")
        picture = Image.alpha_composite(Image.new("RGBA", picture.size, _WHITE), picture)
    if picture.mode in ("P", "PA", "CMYK", "HSV", "YCbCr"):
        picture = picture.convert("RGB")
    return picture.convert(mode)


def _numbers(picture, bits: int | None) -> tuple[np.ndarray, int]:
    """Numbers of 16 or 32 bits [H, W], and the number that is white.

    It is the largest of so many bits; by default that of the type, and 1 for floating-point numbers.
    """
    numbers = np.asarray(picture)
    if numbers.dtype.kind == "f":
        return np.nan_to_num(numbers, nan=0.0), 1 if bits is None else 2**bits - 1
    tags = getattr(picture, "tag_v2", {})  # of TIFF, the one format with 32 bits, or with a sign
    own, signed = (int(np.ravel(tags.get(tag, default))[0]) for tag, default in ((258, 16), (339, 1)))
    if own == 32 and signed != 2:
        numbers = numbers.view(np.uint32)
    return numbers, 2**(own - (signed == 2) if bits is None else bits) - 1


def missing_reader(kind: str) -> str | None:
    """Says what to install before pictures of a kind can be read, `DICOM` or `HEIC`; None where it is installed."""
    _, module, package = _OTHERS[kind]
    try:
        importlib.import_module(module)
    except ImportError:
        return f"{kind} needs {package}: pip install 'datalens_tf[{kind.lower()}]'"
    return None


def missing_readers(files: Iterable[str]) -> list[str]:
    """Says what to install for files of these names, whatever they contain."""
    endings = {os.path.splitext(file)[1].lower() for file in files}
    return list(filter(None, (missing_reader(kind) for kind, (known, _, _) in _OTHERS.items()
                              if endings.intersection(known))))


def _require(kind: str) -> None:
    """Raises UnreadableError where no package reads pictures of a kind."""
    missing = missing_reader(kind)
    if missing is not None:
        raise UnreadableError(missing)


@functools.cache
def _let_pillow_read_heic() -> None:
    """Registers the reader where it is installed, before any picture is seen: none decides how others are read."""
    if missing_reader("HEIC") is None:
        import pillow_heif

        pillow_heif.register_heif_opener()


def _dicom(file, header_only: bool) -> Any:
    """The first frame of a DICOM file in [0, 1], through its own window, or from its smallest to its largest number."""
    _require("DICOM")
    import pydicom
    from pydicom import pixels as decoders

    pixels: Any = decoders  # Its types do not say what it exports.
    logging.getLogger("pydicom").setLevel(logging.ERROR)
    about = pydicom.dcmread(file, stop_before_pixels=header_only)
    size = int(about.Columns), int(about.Rows)
    _check_pixels(*size)
    if header_only:
        return size
    array = pixels.pixel_array(about, index=0)
    if array.ndim == 3:
        return array / np.float32(2 ** int(about.get("BitsStored", 8)) - 1)
    array = np.asarray(pixels.apply_modality_lut(array, about), np.float64)
    centre, width = (np.ravel(about.get(name, ()))[:1] for name in ("WindowCenter", "WindowWidth"))
    if len(centre) and len(width) and float(width[0]) > 0:
        low, high = float(centre[0]) - float(width[0]) / 2, float(centre[0]) + float(width[0]) / 2
    else:
        low, high = float(array.min()), float(array.max())
    unit = np.clip((array - low) / (high - low), 0, 1) if high > low else np.zeros(array.shape)
    return 1 - unit if about.get("PhotometricInterpretation") == "MONOCHROME1" else unit
