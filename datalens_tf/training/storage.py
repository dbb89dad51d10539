"""Storage of the teachers' state: in memory, or in one memory-mapped file that is its own checkpoint."""

import abc
import mmap
import os
import pathlib
import queue
from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from datalens_tf import _files
from datalens_tf.errors import CheckpointError

_ALIGNMENT = 64  # Bytes, of the memory of a tensor.
_HEADER = 80  # Bytes before the table of chunks.
_SLOTS = 2**20  # More than there are chunks.
_BOOT_ID = pathlib.Path("/proc/sys/kernel/random/boot_id")


class Storage(abc.ABC):
    """State of chunks of teachers: per chunk a list of arrays with the teacher axis first, and how far it was trained.

    Args:
      sizes: number of teachers of each chunk.
      initial: the arrays of one teacher, from which all start.
    """

    persistent = False

    def __init__(self, sizes: Sequence[int], initial: Sequence[np.ndarray]):
        self.sizes, self.initial = list(sizes), list(initial)

    @property
    @abc.abstractmethod
    def iterations(self) -> np.ndarray:
        """Optimizer steps that each chunk has taken, int64 [chunks]."""

    @abc.abstractmethod
    def read(self, chunk: int) -> list[np.ndarray]:
        """The chunk's arrays; not to be written to, and valid until its next `write`."""

    @abc.abstractmethod
    def write(self, chunk: int, arrays: Sequence[np.ndarray], iterations: int) -> None:
        """Replaces the chunk's arrays and its number of steps. Different chunks may be written at once."""

    def prefetch(self, chunk: int) -> None:  # noqa: B027 (memory needs none)
        """Says that a chunk will be read soon."""

    def flush(self) -> None:  # noqa: B027 (memory needs none)
        """Makes everything durable, where the storage is."""


class MemoryStorage(Storage):
    """Arrays in memory, written in place: arrays replaced at every write would leave holes in the heap."""

    def __init__(self, sizes: Sequence[int], initial: Sequence[np.ndarray]):
        super().__init__(sizes, initial)
        self._iterations = np.zeros(len(self.sizes), np.int64)
        self._chunks = []
        for size in self.sizes:
            memory = mmap.mmap(-1, _nbytes(initial, size), mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)
            memory.madvise(mmap.MADV_HUGEPAGE)
            self._chunks.append(_views(memory, 0, initial, size))
            _copy(initial, self._chunks[-1])

    @property
    def iterations(self) -> np.ndarray:
        return self._iterations

    def read(self, chunk: int) -> list[np.ndarray]:
        return self._chunks[chunk]

    def write(self, chunk: int, arrays: Sequence[np.ndarray], iterations: int) -> None:
        _copy(arrays, self._chunks[chunk])
        self._iterations[chunk] = iterations


class FileStorage(Storage):
    """Arrays in a memory-mapped file, larger than memory if need be, that survives the death of the process.

    A chunk is written into a free slot, and only then does the table of chunks point there. Whenever the process is
    killed, each chunk has a whole state, either the one before or the one after. If the machine goes down, what the
    system had not written yet may be lost: this is noticed, and the file is refused.

    Args:
      sizes, initial: see `Storage`.
      path: the file; continued if it is there.
      writers: how many threads will write at once.

    Raises:
      CheckpointError: the file belongs to other settings, is damaged, or the machine went down while it was in use.
    """

    persistent = True

    def __init__(self, sizes: Sequence[int], initial: Sequence[np.ndarray], path: pathlib.Path, writers: int):
        super().__init__(sizes, initial)
        self._path, chunks = path, len(self.sizes)
        self._slot_bytes = -(-_nbytes(initial, max(self.sizes)) // mmap.PAGESIZE) * mmap.PAGESIZE
        self._start = -(-(_HEADER + 8 * chunks) // mmap.PAGESIZE) * mmap.PAGESIZE
        with _files.clear_os_errors(path):
            self._memory = _map_file(path, self._start + (chunks + writers) * self._slot_bytes)
        slots = (len(self._memory) - self._start) // self._slot_bytes
        # The first byte of the header says whether anything was written since the last flush.
        self._mark: NDArray[np.uint8] = np.ndarray(64, np.uint8, self._memory, 0)
        shape: NDArray[np.int64] = np.ndarray(2, np.int64, self._memory, 64)
        # One number per chunk holds its slot + 1 and its iterations, so that both change at once; it is 0 at first.
        self._table: NDArray[np.int64] = np.ndarray(chunks, np.int64, self._memory, _HEADER)
        boot = np.frombuffer(_BOOT_ID.read_bytes().ljust(63)[:63], np.uint8)
        if self._mark[0] and not np.array_equal(self._mark[1:], boot):
            raise _unusable(path, "the machine went down while it was in use")
        if shape.any() and shape.tolist() != [chunks, self._slot_bytes]:
            raise _unusable(path, "it was made for another model or chunk_size")
        used = set((self._table % _SLOTS).tolist()) - {0}
        if len(used) != np.count_nonzero(self._table) or not used <= set(range(1, slots + 1)) or slots <= chunks:
            raise _unusable(path, "it is damaged")
        self._mark[1:], shape[:] = boot, [chunks, self._slot_bytes]
        self._free: queue.SimpleQueue[int] = queue.SimpleQueue()
        for slot in sorted(set(range(1, slots + 1)) - used):
            self._free.put(slot)
        self._untrained = {size: _views(mmap.mmap(-1, _nbytes(initial, size)), 0, initial, size)
                           for size in set(self.sizes)}
        for arrays in self._untrained.values():
            _copy(initial, arrays)

    @property
    def iterations(self) -> np.ndarray:
        return self._table // _SLOTS

    def read(self, chunk: int) -> list[np.ndarray]:
        slot = int(self._table[chunk] % _SLOTS)
        return self._slot(slot, self.sizes[chunk]) if slot else self._untrained[self.sizes[chunk]]

    def write(self, chunk: int, arrays: Sequence[np.ndarray], iterations: int) -> None:
        if not self._mark[0]:
            self._mark[0] = 1
            self._memory.flush(0, self._start)
        old, new = int(self._table[chunk] % _SLOTS), self._free.get()
        _copy(arrays, self._slot(new, self.sizes[chunk]))
        self._table[chunk] = iterations * _SLOTS + new
        for slot in (old, new):
            if slot:  # The file's pages need not stay in this process's memory.
                self._memory.madvise(mmap.MADV_DONTNEED, self._offset(slot), self._slot_bytes)
        if old:
            self._free.put(old)

    def prefetch(self, chunk: int) -> None:
        slot = int(self._table[chunk] % _SLOTS)
        if slot:
            self._memory.madvise(mmap.MADV_WILLNEED, self._offset(slot), self._slot_bytes)

    def flush(self) -> None:
        with _files.clear_os_errors(self._path):
            self._memory.flush()
            self._mark[0] = 0
            self._memory.flush(0, self._start)

    def _offset(self, slot: int) -> int:
        return self._start + (slot - 1) * self._slot_bytes

    def _slot(self, slot: int, size: int) -> list[np.ndarray]:
        return _views(self._memory, self._offset(slot), self.initial, size)


def _map_file(path: pathlib.Path, nbytes: int) -> mmap.mmap:
    """Maps the file, made with all its blocks if it is missing: a full disk is an error now, not a signal later."""
    with open(path, "a+b") as file:
        if not os.path.getsize(path):
            try:
                os.posix_fallocate(file.fileno(), 0, nbytes)
            except OSError:
                path.unlink()
                raise
        if os.path.getsize(path) < nbytes // 2:  # Far too short; a longer one is looked into.
            raise _unusable(path, "it is damaged")
        return mmap.mmap(file.fileno(), 0)


def _unusable(path: pathlib.Path, reason: str) -> CheckpointError:
    """Error in one clear line, which also says that nothing is lost."""
    return CheckpointError(f"The teachers in {path} cannot be used: {reason}. Delete it and {path.parent}/checkpoints, "
                           "and --resume computes the state again from stored releases.")


def _nbytes(initial: Sequence[np.ndarray], size: int) -> int:
    """Memory of a chunk of `size` teachers, every array aligned."""
    return sum(-(-size * array.nbytes // _ALIGNMENT) * _ALIGNMENT for array in initial)


def _views(memory: mmap.mmap, offset: int, initial: Sequence[np.ndarray], size: int) -> list[np.ndarray]:
    """Arrays [size, ...] like the initial ones, one after the other in memory, aligned as TensorFlow needs them."""
    views: list[np.ndarray] = []
    for array in initial:
        views.append(np.ndarray((size, *array.shape), array.dtype, memory, offset))
        offset += -(-size * array.nbytes // _ALIGNMENT) * _ALIGNMENT
    return views


def _copy(source: Sequence[np.ndarray], target: Sequence[np.ndarray]) -> None:
    for value, array in zip(source, target):
        np.copyto(array, value)
