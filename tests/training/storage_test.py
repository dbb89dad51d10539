"""Whole states only, whatever dies when; in memory and in a file alike."""

import errno
import os

import numpy as np
import pytest

from datalens_tf.errors import CheckpointError, DataLensError
from datalens_tf.training.storage import FileStorage, MemoryStorage

SIZES = [3, 3, 2]
INITIAL = [np.arange(35, dtype=np.float32).reshape(5, 7), np.zeros((), np.uint16), np.ones(3, np.uint16)]


@pytest.fixture(name="make", params=["memory", "file"])
def fixture_make(request, tmp_path):
    """A function that makes, or opens again, a storage."""
    return {"memory": lambda: MemoryStorage(SIZES, INITIAL),
            "file": lambda: FileStorage(SIZES, INITIAL, tmp_path / "bank", writers=2)}[request.param]


def open_file(path, sizes=SIZES, writers=2):
    return FileStorage(sizes, INITIAL, path, writers)


def state(chunk, value):
    return [np.full((SIZES[chunk], *array.shape), value, array.dtype) for array in INITIAL]


def check(storage, expected):
    """expected: per chunk the value written last, None for the initial state."""
    for chunk, value in enumerate(expected):
        for array, initial, size in zip(storage.read(chunk), INITIAL, [SIZES[chunk]] * 3):
            assert array.shape == (size, *initial.shape) and array.dtype == initial.dtype
            assert array.ctypes.data % 64 == 0
            np.testing.assert_array_equal(array, np.broadcast_to(initial if value is None else value, array.shape))


def test_every_chunk_starts_equal_and_is_written_alone(make):
    storage = make()
    check(storage, [None, None, None])
    assert storage.iterations.tolist() == [0, 0, 0]
    storage.write(2, state(2, 5), 1)
    check(storage, [None, None, 5])
    for round_ in range(2, 9):
        storage.prefetch(1)
        storage.write(1, state(1, round_), round_)
        storage.write(2, state(2, 10 * round_), round_)
    check(storage, [None, 8, 80])
    assert storage.iterations.tolist() == [0, 8, 8]
    storage.flush()
    check(storage, [None, 8, 80])


def test_a_file_is_continued_with_any_number_of_writers(tmp_path):
    storage = open_file(tmp_path / "bank")
    storage.write(0, state(0, 3), 4)
    storage.write(0, state(0, 4), 5)
    for writers in (1, 5):
        again = open_file(tmp_path / "bank", writers=writers)
        check(again, [4, None, None])
        assert again.iterations.tolist() == [5, 0, 0]
    again.write(1, state(1, 9), 5)
    check(open_file(tmp_path / "bank"), [4, 9, None])


def test_a_write_that_death_interrupts_leaves_the_state_of_before(tmp_path, monkeypatch):
    storage = open_file(tmp_path / "bank")
    for chunk in range(3):
        storage.write(chunk, state(chunk, chunk), 1)

    def half(target, source):
        target[:1] = source[:1]
        raise KeyboardInterrupt

    monkeypatch.setattr(np, "copyto", half)
    with pytest.raises(KeyboardInterrupt):
        storage.write(1, state(1, 77), 2)
    monkeypatch.undo()
    again = open_file(tmp_path / "bank")
    check(again, [0, 1, 2])
    assert again.iterations.tolist() == [1, 1, 1]


def test_the_death_of_the_machine_is_noticed(tmp_path):
    path = tmp_path / "bank"
    storage = open_file(path)
    storage.write(0, state(0, 3), 1)

    def boot_again():
        with open(path, "r+b") as file:
            file.seek(1)
            file.write(b"another boot")

    storage.flush()
    boot_again()
    storage = open_file(path)  # All of it was on disk.
    check(storage, [3, None, None])
    storage.write(0, state(0, 4), 2)
    boot_again()
    with pytest.raises(CheckpointError, match="machine went down .*--resume computes the state again"):
        open_file(path)


def test_other_and_damaged_files_are_refused(tmp_path):
    path = tmp_path / "bank"
    open_file(path).write(0, state(0, 3), 1)
    with pytest.raises(CheckpointError, match="another model or chunk_size"):
        open_file(path, sizes=[2, 2, 2, 2])
    whole = path.read_bytes()
    path.write_bytes(whole[:80] + b"\x7f" * 3 + whole[83:])
    with pytest.raises(CheckpointError, match="damaged"):
        open_file(path)
    path.write_bytes(whole[:5000])
    with pytest.raises(CheckpointError, match="damaged"):
        open_file(path)
    path.write_bytes(whole[:50])
    with pytest.raises(CheckpointError, match="damaged"):
        open_file(path)


def test_a_full_disk_is_one_clear_error_and_leaves_nothing(tmp_path, monkeypatch):
    def full(*_):
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    monkeypatch.setattr(os, "posix_fallocate", full)
    with pytest.raises(DataLensError, match="No space left"):
        open_file(tmp_path / "bank")
    assert not (tmp_path / "bank").exists()
