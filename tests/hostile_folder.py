"""A folder as a stranger's is: pictures of many sizes, modes and formats, in folders with all that lies about there."""

import dataclasses
import io
import pathlib
from collections.abc import Sequence

import numpy as np
from PIL import Image

_ORIENTATION = 0x0112  # of EXIF
_NAMES = ("IMG_", "scan (", "фото ", "写真", "naïve café ", "a'b\"c ")
_MODES = ("L", "RGB", "RGBA", "LA", "P", "1", "CMYK", "I;16", "F", "YCbCr")
_FORMATS = {  # modes that formats write; the first is the usual one
    "L": ("png", "jpg", "bmp", "tiff", "gif"), "RGB": ("jpg", "png", "webp", "bmp", "tiff"),
    "RGBA": ("png", "webp", "tiff"), "LA": ("png", "tiff"),
    "P": ("gif", "png"), "1": ("png", "tiff"), "CMYK": ("jpg", "tiff"), "I;16": ("png", "tiff"),
    "F": ("tiff",), "YCbCr": ("jpg", "tiff")}


@dataclasses.dataclass(frozen=True)
class Hostile:
    """What was written.

    Attributes:
      root: the folder.
      num_train, num_test: records of the splits, files that cannot be read included.
      broken: files of the train split that cannot be read, relative to it.
      class_names: all sub-folders, the empty one among them.
      empty: the name of the empty one.
    """

    root: pathlib.Path
    num_train: int
    num_test: int
    broken: tuple[str, ...]
    class_names: tuple[str, ...]
    empty: str


def write(root: pathlib.Path, images: np.ndarray, labels: np.ndarray, class_names: Sequence[str], *, num_test: int = 0,
          seed: int = 0) -> Hostile:
    """Writes a hostile folder of real images.

    Every kind of trouble is there once at least, if there are 40 images or more: sizes and modes of all sorts, 16 bits,
    GIF, a JPEG that EXIF turns, names with blanks and in other alphabets, `0.png` in several classes, a folder inside a
    class, an empty class, two broken files, and what macOS and Windows leave behind.

    Args:
      root: a new folder; with test images it gets `train` and `test`.
      images: uint8 [n, H, W, 1 or 3].
      labels: integers [n], of `class_names`.
      class_names: one text per class.
      num_test: images, the last ones, that go to the test split.
      seed: decides sizes, modes and names.
    """
    stream, train = np.random.default_rng(seed), len(images) - num_test
    folders = {"train": root / "train" if num_test else root, "test": root / "test"}
    for split, chosen in (("train", range(train)), ("test", range(train, len(images)))):
        for position, number in enumerate(chosen):
            folder = folders[split] / class_names[labels[number]]
            if position % 23 == 5:
                folder = folder / "älter" / "2019 spring"
            folder.mkdir(parents=True, exist_ok=True)
            mode = _MODES[position % len(_MODES)] if position % 3 == 0 else ("RGB", "L")[position % 2]
            kinds = _FORMATS[mode]
            kind = kinds[(position // len(_MODES)) % len(kinds)]
            name = str(stream.choice(_NAMES)) + f"{position:05d}"
            if position % 5 == 0:  # The most common names there are, in every class.
                mode, kind, name = "L", "png", str(sum(1 for _ in folder.glob("?*.png")))
            content = _encoded(images[number], mode, kind, stream, turned=position % 7 == 1)
            (folder / f"{name}.{kind}").write_bytes(content)
    empty = "zz empty"
    (folders["train"] / empty).mkdir()
    first, last = (folders["train"] / class_names[label] for label in (0, -1))
    for folder in (first, last):
        folder.mkdir(exist_ok=True)
    whole = _encoded(images[0], "RGB", "jpg", stream)
    (first / "broken.jpg").write_bytes(whole[:len(whole) // 2])
    (last / "no picture.png").write_bytes(b"<html>404</html>")
    for place in {root, folders["train"], first, last}:
        (place / ".DS_Store").write_bytes(b"\0\0\0\1Bud1")
        (place / "Thumbs.db").write_bytes(b"\xd0\xcf\x11\xe0")
        (place / "desktop.ini").write_text("[ViewState]\n")
    (folders["train"] / "__MACOSX" / class_names[0]).mkdir(parents=True)
    (folders["train"] / "__MACOSX" / class_names[0] / "._0.png").write_bytes(b"\0\5\26\7")
    broken = f"{class_names[0]}/broken.jpg", f"{class_names[-1]}/no picture.png"
    return Hostile(root=root, num_train=train + len(broken), num_test=num_test, broken=broken,
                   class_names=tuple(sorted({*class_names, empty})), empty=empty)


def _encoded(image: np.ndarray, mode: str, kind: str, stream: np.random.Generator, turned: bool = False) -> bytes:
    """The image as a file, somewhat larger or smaller."""
    picture = Image.fromarray(image[..., 0] if image.shape[-1] == 1 else image)
    size = [max(8, int(side * stream.uniform(0.8, 4))) for side in picture.size]
    picture = picture.resize(size, Image.Resampling.BICUBIC)
    if mode == "I;16":
        picture = Image.fromarray(np.asarray(picture.convert("L"), np.uint16) * np.uint16(257))
    elif mode == "F":
        picture = Image.fromarray(np.asarray(picture.convert("L"), np.float32) / np.float32(255))
    elif mode in ("LA", "RGBA"):
        picture = picture.convert(mode)
        picture.putalpha(Image.new("L", picture.size, 230))
    elif mode != picture.mode:
        picture = picture.convert("RGB").convert(mode)
    buffer, more = io.BytesIO(), {}
    if turned and kind == "jpg":
        picture, exif = picture.transpose(Image.Transpose.ROTATE_90), Image.Exif()
        exif[_ORIENTATION] = 6  # To be turned clockwise.
        more["exif"] = exif
    picture.save(buffer, {"jpg": "JPEG"}.get(kind, kind.upper()), **more)
    return buffer.getvalue()
