"""Durable training state: teacher and student snapshots and stored releases."""

import json
import os
import pathlib
import shutil
import time
import zlib
from collections.abc import Iterable, Sequence
from typing import BinaryIO

import numpy as np

from datalens_tf import _files
from datalens_tf.accounting.ledger import PrivacyLedger
from datalens_tf.errors import CheckpointError
from datalens_tf.training.student import Student
from datalens_tf.training.teachers import Bank

_SYNC_BYTES = 2**27
_LARGEST_RELEASE = 2**31  # bytes of a noisy sum; second moments of 64 x 64 x 3 numbers are the largest
_PLACES = {False: "in memory", True: "in a file"}


class ReleaseStore:
    """The stored noisy sums of a run. Storing one is the release; a resumed run re-uses it and never draws again.

    Each is stored with the charge that paid for it and the hash of its line in the ledger.

    Args:
      directory: folder of the files, one per generator step.
    """

    def __init__(self, directory: pathlib.Path):
        self._directory = directory
        with _files.clear_os_errors(directory):
            directory.mkdir(exist_ok=True)

    def store(self, step: int, charge: int, noisy: np.ndarray, ledger: PrivacyLedger) -> None:
        """Writes the noisy sum of a step durably; `charge` is the index of the ledger's charge that paid for it."""
        _files.atomic_write(self._path(step), _files.npz_bytes({
            "noisy": noisy, "charge": np.array(charge, np.int64), "ledger_head": np.array(ledger.hash_of(charge))}))

    def load(self, step: int) -> np.ndarray | None:
        """The noisy sum of a step, or None if it was never stored. Raises CheckpointError if damaged."""
        arrays = self._read(step)
        return None if arrays is None else arrays["noisy"]

    def get(self, step: int) -> np.ndarray:
        """`load` of a sum that must be there; raises CheckpointError if it was never stored."""
        noisy = self.load(step)
        if noisy is None:
            raise CheckpointError(f"Expected step={step} to have been released; the last is step {len(self)}.")
        return noisy

    def charge(self, step: int) -> int:
        """Index of the charge that paid for a stored step."""
        return int(self._paid(step)["charge"])

    def __len__(self) -> int:
        """Number of stored sums, those of steps 1 to len."""
        return len(list(self._directory.glob("*.npz")))

    def charges(self) -> set[int]:
        """Indices of the charges whose noisy sums are stored. All others are burnt."""
        return {self.charge(step) for step in range(1, len(self) + 1)}

    def check(self, ledger: PrivacyLedger) -> None:
        """Checks that every stored sum is paid for: a ledger that lost charges would understate epsilon.

        Raises:
          LedgerError: a sum is not paid for.
        """
        for step in range(1, len(self) + 1):
            paid = self._paid(step)
            head = str(paid["ledger_head"]) if "ledger_head" in paid else None
            ledger.check_ancestor(head, self._path(step), int(paid["charge"]) + 1)

    def _path(self, step: int) -> pathlib.Path:
        return self._directory / f"{step:06d}.npz"

    def _read(self, step: int) -> dict[str, np.ndarray] | None:
        if not self._path(step).exists():
            return None
        return self._checked(step, _read_npz(self._path(step)), {"noisy", "charge"})

    def _paid(self, step: int) -> dict[str, np.ndarray]:
        """Charge that paid for a step, according to the step's file."""
        return self._checked(step, _read_npz(self._path(step), ("charge", "ledger_head")), {"charge"})

    def _checked(self, step: int, arrays: dict[str, np.ndarray], needed: set[str]) -> dict[str, np.ndarray]:
        if set(arrays) - {"ledger_head"} != needed or arrays["charge"].shape or arrays["charge"].dtype.kind != "i":
            raise CheckpointError(f"Damaged file {self._path(step)}: it holds no noisy sum with its charge.")
        return arrays


class Saver:
    """Snapshots of bank and student after whole generator steps. The newest one is kept.

    If the bank's state is a file already, the snapshot holds nothing of the bank.

    Args:
      directory: folder of the snapshots.
      bank, student: what is saved and restored.
      ledger: the run's ledger. Its configuration and its head are written into each snapshot. A snapshot of another
        configuration, or of charges that the ledger does not have, is refused.
      seconds_between: least time between two snapshots of `save_if_due`.
    """

    def __init__(self, directory: pathlib.Path, bank: Bank, student: Student, ledger: PrivacyLedger,
                 seconds_between: float):
        self._directory, self._bank, self.student = directory, bank, student
        self._ledger, self._pause = ledger, seconds_between
        self._last = time.monotonic()

    def save_if_due(self, step: int) -> None:
        """Saves when the last snapshot is old enough."""
        if time.monotonic() - self._last >= self._pause:
            self.save(step)

    def save(self, step: int) -> None:
        """Writes the snapshot aside, makes it durable, then drops older ones.

        Raises DataLensError with the operating system's reason when the snapshot cannot be written; older ones stay.
        """
        final = self._directory / f"step-{step:06d}"
        with _files.clear_os_errors(final):
            self._directory.mkdir(exist_ok=True)
            for aside in self._directory.glob(".*.tmp"):
                shutil.rmtree(aside)
            aside = _files.temporary_sibling(final)
            aside.mkdir()
            self._bank.flush()
            checksums = {name: _write_blocks(aside / name, self._bank.blocks(index))
                         for index, name in enumerate(self._names())}
            student = _files.npz_bytes(self.student.state())
            _files.atomic_write(aside / "student.npz", student)
            checksums["student.npz"] = zlib.crc32(student)
            meta = {"step": step, "iterations": self._bank.iterations, "config_digest": self._ledger.config_digest,
                    "ledger_head": self._ledger.head, "persistent_bank": self._bank.persistent, "checksums": checksums}
            _files.atomic_write(aside / "meta.json", json.dumps(meta | {"checksum": _checksum(meta)}))
            shutil.rmtree(final, ignore_errors=True)
            os.replace(aside, final)
            _files.fsync_directory(self._directory)
            for other in self._directory.glob("step-*"):
                if other != final:
                    shutil.rmtree(other)
        self._last = time.monotonic()

    def restore(self) -> int:
        """Loads the newest snapshot; returns its generator step. Without one, everything stays as it was made: step 0.

        Raises:
          CheckpointError: the snapshot is damaged or of another configuration.
          LedgerError: the ledger lacks charges that the snapshot rests on.
        """
        snapshots = sorted(self._directory.glob("step-*"))
        if not snapshots:
            return 0
        folder, name = snapshots[-1], "meta.json"
        try:
            meta = _files.parse_json((folder / "meta.json").read_text())
            if meta.pop("checksum") != _checksum(meta):
                raise _damaged(folder / name)
            if meta["config_digest"] != self._ledger.config_digest:
                raise CheckpointError(f"{folder} belongs to another configuration: choose another run folder.")
            self._ledger.check_ancestor(meta.get("ledger_head"), folder, meta["step"])
            if meta["persistent_bank"] != self._bank.persistent:
                raise CheckpointError(f"{folder} was saved with the teachers {_PLACES[not self._bank.persistent]}, and "
                                      f"now they are {_PLACES[self._bank.persistent]}: choose bank_memory_gb as then.")
            for index, name in enumerate(self._names()):
                with open(folder / name, "rb") as file:
                    reader = _Reader(file)
                    self._bank.replace(index, reader.read)
                    if file.read(1) or reader.checksum != meta["checksums"][name]:
                        raise _damaged(folder / name)
            name = "student.npz"
            student = (folder / name).read_bytes()
            if zlib.crc32(student) != meta["checksums"][name]:
                raise _damaged(folder / name)
            self.student.restore(_read_npz(folder / name, check=_files.exactly(self.student.state())))
            self._bank.iterations = int(meta["iterations"])
            return int(meta["step"])
        except (OSError, ValueError, KeyError, TypeError, AttributeError) as error:
            raise _damaged(folder / name) from error

    def forget(self) -> None:
        """Deletes all snapshots: everything will be computed again."""
        shutil.rmtree(self._directory, ignore_errors=True)

    def _names(self) -> list[str]:
        """File names of the bank's arrays."""
        return [] if self._bank.persistent else [
            f"teachers-{index:03d}.bin" for index in range(self._bank.num_arrays)]


def _checksum(meta: dict) -> int:
    """Checksum of a snapshot's description of itself."""
    return zlib.crc32(json.dumps(meta, sort_keys=True).encode())


def _damaged(path: pathlib.Path) -> CheckpointError:
    """Error in one clear line, which also says that nothing is lost."""
    return CheckpointError(
        f"Damaged checkpoint {path}: delete its folder, and --resume computes the state again from stored releases.")


def _write_blocks(path: pathlib.Path, blocks: Iterable[np.ndarray]) -> int:
    """Writes the blocks' raw bytes one after the other, durably; returns their CRC-32."""
    checksum = unsynced = 0
    with open(path, "wb") as file:
        for block in blocks:
            view = np.ascontiguousarray(block).reshape(-1).view(np.uint8).data
            checksum = zlib.crc32(view, checksum)
            file.write(view)
            unsynced += view.nbytes
            if unsynced >= _SYNC_BYTES:
                # Gigabytes of dirty pages must never compete with the bank for memory.
                unsynced = 0
                _sync(file)
        _sync(file)
    return checksum


def _sync(file: BinaryIO) -> None:
    """Makes what was written durable and lets go of the memory that caches it."""
    file.flush()
    os.fdatasync(file.fileno())
    os.posix_fadvise(file.fileno(), 0, 0, os.POSIX_FADV_DONTNEED)


class _Reader:
    """Reads a file piece by piece and computes its checksum."""

    def __init__(self, file: BinaryIO):
        self._file, self.checksum = file, 0

    def read(self, size: int) -> bytes:
        """The next `size` bytes; raises ValueError if the file has fewer."""
        content = self._file.read(size)
        if len(content) != size:
            raise ValueError("the file is too short")
        self.checksum = zlib.crc32(content, self.checksum)
        return content


def _read_npz(path: pathlib.Path, names: Sequence[str] | None = None,
              check: _files.HeaderCheck = _files.at_most(_LARGEST_RELEASE)) -> dict[str, np.ndarray]:  # noqa: B008
    """All arrays of an npz file, or those of these names; never unpickled."""
    try:
        return _files.read_npz(path, check, names)
    except (OSError, ValueError) as error:
        raise CheckpointError(f"Damaged file {path}: it holds no readable arrays.") from error
