"""Durable writing: files appear whole or not at all, and what the operating system refuses becomes one clear line."""

from __future__ import annotations

import contextlib
import difflib
import errno
import io
import json
import math
import os
import pathlib
import shutil
import types
import uuid
import zipfile
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from typing import IO, Any, NamedTuple

from etils import epy

from datalens_tf.errors import DataLensError

with epy.lazy_imports():
    import numpy as np
    from numpy import typing as npt

PathLike = str | os.PathLike[str]
_NO_PERMISSION = (errno.EACCES, errno.EPERM, errno.EROFS)


@contextlib.contextmanager
def clear_os_errors(path: PathLike) -> Iterator[None]:
    """Turns an OSError raised inside (disk full, read-only, no permission) into a DataLensError naming `path`."""
    try:
        yield
    except OSError as error:
        reason = error.strerror or str(error)
        if isinstance(error, shutil.Error) and error.args and isinstance(error.args[0], list):
            # The error of a copied folder has a reason for every file. All are alike, and end in what the system said.
            reason = str(error.args[0][0][-1]).rpartition("] ")[2].partition(": '")[0]
        way_out = "Choose a place that you may write to" if error.errno in _NO_PERMISSION else \
            "Free space or choose another place"
        raise DataLensError(f"Cannot write {os.fspath(path)}: {reason}. {way_out}.") from error


def check_writable(path: PathLike) -> None:
    """Raises DataLensError if the system would refuse to make a folder, before there is anything to write."""
    path = pathlib.Path(path)
    with clear_os_errors(path):
        above = next(folder for folder in (path, *path.absolute().parents) if folder.exists())
        if not above.is_dir():
            raise NotADirectoryError(errno.ENOTDIR, f"{above} is no folder")
        if not os.access(above, os.W_OK | os.X_OK):
            raise PermissionError(errno.EACCES, f"no permission to write in {above}")


def atomic_write(path: PathLike, data: bytes | str) -> None:
    """Writes a file that appears whole or not at all, and survives a crash once this returns.

    Args:
      path: the file; an existing one is replaced. Its folder must exist.
      data: bytes, or text to be stored as UTF-8.

    Raises:
      DataLensError: the operating system refused; whatever was at `path` before is still there.
    """
    path = pathlib.Path(path)
    aside = temporary_sibling(path)
    with clear_os_errors(path):
        try:
            with open(aside, "xb") as file:
                file.write(data.encode() if isinstance(data, str) else data)
                file.flush()
                os.fsync(file.fileno())
            os.replace(aside, path)
        except BaseException:
            with contextlib.suppress(OSError):
                aside.unlink()
            raise
    fsync_directory(path.parent)


def did_you_mean(path: PathLike) -> str:
    """A question to follow an error's full stop, ` Did you mean pictures?`; empty if no name near it is similar."""
    path = pathlib.Path(path)
    try:
        names = [entry.name for entry in path.parent.iterdir() if not entry.name.startswith(".")]
    except OSError:
        return ""
    close = difflib.get_close_matches(path.name, names, 1)
    return f" Did you mean {path.with_name(close[0])}?" if close and not path.exists() else ""


def fsync_directory(path: PathLike) -> None:
    """Makes renames and new files in a folder durable; raises DataLensError if the operating system refuses."""
    with clear_os_errors(path):
        descriptor = os.open(path, os.O_RDONLY | os.O_DIRECTORY)
        try:
            os.fsync(descriptor)
        finally:
            os.close(descriptor)


def temporary_sibling(path: PathLike) -> pathlib.Path:
    """A new hidden name in the folder of `path`. It is on the same file system, where a rename is atomic."""
    return pathlib.Path(path).with_name(f".{uuid.uuid4().hex}.tmp")


def parse_json(text: str | bytes) -> Any:
    """Like `json.loads`, but raises ValueError for any bad text, even if it is nested deeper than Python's stack."""
    try:
        return json.loads(text)
    except RecursionError as error:
        raise ValueError("nested too deeply") from error


class ArrayHeader(NamedTuple):
    """Shape and type of an array, known before it is unpacked."""

    shape: tuple[int, ...]
    dtype: np.dtype[Any]

    @classmethod
    def of(cls, array: Any) -> ArrayHeader:
        """Header of an array, or of anything else with a shape and a dtype, such as a TensorFlow variable."""
        return cls(tuple(array.shape), np.dtype(getattr(array.dtype, "as_numpy_dtype", array.dtype)))

    @property
    def nbytes(self) -> int:
        """Bytes of the array."""
        return math.prod(self.shape) * self.dtype.itemsize

    def __str__(self) -> str:
        return f"{self.dtype} {list(self.shape)}"


HeaderCheck = Callable[[Mapping[str, ArrayHeader]], None]


def at_most(num_bytes: int) -> HeaderCheck:
    """A check for `read_npz`: arrays of any kind that together take no more than this many bytes."""
    def check(headers: Mapping[str, ArrayHeader]) -> None:
        total = sum(header.nbytes for header in headers.values())
        if total > num_bytes:
            raise ValueError(f"its arrays would take {total} bytes, more than the {num_bytes} that they may")

    return check


def exactly(arrays: Mapping[str, Any], optional: Mapping[str, Any] = types.MappingProxyType({})) -> HeaderCheck:
    """A check for `read_npz`: arrays of these names, shapes and types. Of other arrays, only the optional ones pass."""
    def check(headers: Mapping[str, ArrayHeader]) -> None:
        wanted = {name: ArrayHeader.of(array) for name, array in [*arrays.items(), *optional.items()]}
        if not set(arrays) <= set(headers) <= set(wanted):
            raise ValueError(f"expected arrays {_listed(arrays)}, got {_listed(headers)}")
        for name, header in headers.items():
            if header != wanted[name]:
                raise ValueError(f"expected {name} to be {wanted[name]}, got {header}")

    return check


def _listed(names: Collection[str], shown: int = 5) -> str:
    """The first few names; an archive may have thousands."""
    return ", ".join(sorted(names)[:shown]) + (f" and {len(names) - shown} more" if len(names) > shown else "")


def read_npz(path: PathLike, check: HeaderCheck, names: Sequence[str] | None = None) -> dict[str, npt.NDArray[Any]]:
    """Arrays of an npz file: all of them, or those of the given names that the file has. They are never unpickled.

    A few kilobytes may unpack to gigabytes. So the headers are read first, and nothing is unpacked that the caller does
    not expect.

    Args:
      path: the file.
      check: called with the headers of the arrays to be read, by name; raises ValueError, or an error of this package,
        if it does not allow them. See `at_most` and `exactly`.
      names: names of the arrays to be read; None for all.

    Raises:
      FileNotFoundError: there is no such file.
      ValueError: the file is no readable npz file of plain arrays, the check does not allow its arrays, or they would
        not fit in memory.
      DataLensError: from the check.
    """
    try:
        with zipfile.ZipFile(path) as archive:
            members = {info.filename.removesuffix(".npy"): info for info in archive.infolist()}
            if len(members) < len(archive.infolist()):
                raise ValueError("two of its arrays have the same name")
            members = {name: info for name, info in members.items() if names is None or name in names}
            headers = {name: _header(archive, name, info) for name, info in members.items()}
            check(headers)
            _check_memory(headers)
            arrays = {}
            for name, info in members.items():
                with archive.open(info) as file:
                    arrays[name] = np.lib.format.read_array(file, allow_pickle=False)
        return arrays
    except (FileNotFoundError, DataLensError):
        raise
    except Exception as error:
        # Parsers of damaged archives raise nearly anything: zlib.error, NotImplementedError, struct.error, SyntaxError.
        raise ValueError(str(error).partition("\n")[0] or type(error).__name__) from error


def _check_memory(headers: Mapping[str, ArrayHeader]) -> None:
    """Raises ValueError where arrays would take more than this machine's memory."""
    total = sum(header.nbytes for header in headers.values())
    if total > os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES"):
        raise ValueError(f"its {total} bytes are more than this machine's memory")


def _header(archive: zipfile.ZipFile, name: str, info: zipfile.ZipInfo) -> ArrayHeader:
    """Header of one array, which must be as long as its header says. zipfile unpacks no more than it was told."""
    with archive.open(info) as file:
        if file.read(len(np.lib.format.MAGIC_PREFIX)) != np.lib.format.MAGIC_PREFIX:
            raise ValueError(f"{name:.99} is no array")
        file.seek(0)
        version = np.lib.format.read_magic(file)
        readers: dict[tuple[int, int], Callable[[IO[bytes]], Any]] = {
            (1, 0): np.lib.format.read_array_header_1_0,
            (2, 0): np.lib.format.read_array_header_2_0}
        if version not in readers:
            raise ValueError(f"{name:.99} is no plain array")
        shape, _, dtype = readers[version](file)
        header, start = ArrayHeader(shape, dtype), file.tell()
    # Pickled objects are of any length; numpy will refuse them.
    if min(shape, default=0) < 0 or (not dtype.hasobject and start + header.nbytes != info.file_size):
        raise ValueError(f"{name:.99} is not as long as it says")
    return header


def npz_bytes(arrays: dict[str, npt.NDArray[Any]]) -> bytes:
    """Named arrays as a compressed npz file."""
    buffer = io.BytesIO()
    np.savez_compressed(buffer, **arrays)
    return buffer.getvalue()
