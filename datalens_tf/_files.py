"""Durable writing: files appear whole or not at all, and what the operating system refuses becomes one clear line."""

import contextlib
import io
import json
import os
import pathlib
import uuid
import zipfile
from typing import Any, Iterator, Sequence

import numpy as np

from datalens_tf.errors import DataLensError

PathLike = str | os.PathLike[str]


@contextlib.contextmanager
def clear_os_errors(path: PathLike) -> Iterator[None]:
    """Turns an OSError raised inside (disk full, read-only, no permission) into a DataLensError naming `path`."""
    try:
        yield
    except OSError as error:
        reason = error.strerror or str(error)
        raise DataLensError(f"Cannot write {os.fspath(path)}: {reason}. Free space or choose another place.") from error


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


def fsync_directory(path: PathLike) -> None:
    """Makes renames and new files in a folder durable; raises DataLensError if the operating system refuses."""
    with clear_os_errors(path):
        descriptor = os.open(path, os.O_RDONLY | os.O_DIRECTORY)
        try:
            os.fsync(descriptor)
        finally:
            os.close(descriptor)


def temporary_sibling(path: PathLike) -> pathlib.Path:
    """A new hidden name in the folder of `path`, hence on its file system, where a rename is atomic."""
    return pathlib.Path(path).with_name(f".{uuid.uuid4().hex}.tmp")


def parse_json(text: str | bytes) -> Any:
    """`json.loads` that raises ValueError whatever it is given, text nested deeper than Python's stack included."""
    try:
        return json.loads(text)
    except RecursionError as error:
        raise ValueError("nested too deeply") from error


def read_npz(path: PathLike, names: Sequence[str] | None = None) -> dict[str, np.ndarray]:
    """Arrays of an npz file, all or those of the given names that it has; never unpickled.

    Raises:
      FileNotFoundError: there is no such file.
      ValueError: it is no readable npz file of plain arrays, or would not fit in memory.
    """
    try:
        with zipfile.ZipFile(path) as archive:
            size = sum(member.file_size for member in archive.infolist())  # zipfile reads no more than that.
        if size > os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES"):
            raise ValueError(f"its {size} bytes are more than this machine's memory")
        with np.load(path, allow_pickle=False) as archive:
            arrays = {name: archive[name] for name in archive.files if names is None or name in names}
        for name, array in arrays.items():
            if not isinstance(array, np.ndarray):
                raise ValueError(f"{name} is no array")
        return arrays
    except FileNotFoundError:
        raise
    except Exception as error:  # pylint: disable=broad-exception-caught
        # Parsers of damaged archives raise nearly anything: zlib.error, NotImplementedError, struct.error, SyntaxError.
        raise ValueError(str(error).partition("\n")[0] or type(error).__name__) from error


def npz_bytes(arrays: dict[str, np.ndarray]) -> bytes:
    """Named arrays as a compressed npz file."""
    buffer = io.BytesIO()
    np.savez_compressed(buffer, **arrays)
    return buffer.getvalue()
