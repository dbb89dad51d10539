"""Checksums of the files in a folder, in the format of sha256sum."""

import hashlib
import pathlib
import re
from collections.abc import Collection, Iterable

from datalens_tf import _files

NAME = "SHA256SUMS"
_LINE = re.compile(r"([0-9a-f]{64})  ([^\n]+)\n")


def of_file(path: pathlib.Path) -> str:
    """SHA-256 of a file, as hexadecimal digits."""
    with open(path, "rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def text_of(folder: pathlib.Path, files: Iterable[pathlib.Path]) -> str:
    """A line for each file, sorted by the file's path below the folder."""
    names = sorted(path.relative_to(folder).as_posix() for path in files)
    return "".join(f"{of_file(folder / name)}  {name}\n" for name in names)


def write(folder: pathlib.Path, files: Iterable[pathlib.Path]) -> None:
    """Writes `SHA256SUMS` into the folder.

    Raises:
      DataLensError: the operating system refuses.
    """
    _files.atomic_write(folder / NAME, text_of(folder, files))


def copy(sums: pathlib.Path, folder: pathlib.Path, names: Collection[str]) -> None:
    """Writes the lines of another folder's checksums for these files; what was changed before still differs."""
    kept = [f"{digest}  {name}\n" for digest, name in _LINE.findall(sums.read_text(encoding="ascii")) if name in names]
    _files.atomic_write(folder / NAME, "".join(kept))


def problems(folder: pathlib.Path, sums: pathlib.Path) -> tuple[list[str], set[str]]:
    """Differences from the checksums.

    Args:
      folder: the folder that the names in the file are relative to.
      sums: the file of checksums.

    Returns:
      Two values. The first has a phrase for each file that is missing or differs, and for a file of checksums that
      cannot be understood. The second has the names of the files that have a checksum.
    """
    try:
        text = sums.read_bytes().decode("ascii")
    except (OSError, UnicodeDecodeError):
        return [f"{sums.name} cannot be read"], set()
    pairs = _LINE.findall(text)
    if "".join(f"{digest}  {name}\n" for digest, name in pairs) != text:
        return [f"{sums.name} is not what this program writes"], set()
    found, names = [], set()
    for digest, name in pairs:
        path = folder / name
        names.add(name)
        if pathlib.PurePosixPath(name).is_absolute() or ".." in pathlib.PurePosixPath(name).parts:
            found.append(f"{name} is outside of the folder")
        elif not path.is_file():
            found.append(f"{name} is missing")
        elif of_file(path) != digest:
            found.append(f"{name} was changed")
    return found, names
