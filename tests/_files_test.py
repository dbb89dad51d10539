"""Files appear whole or not at all, durably, and failures are one clear line."""

import contextlib
import errno
import io
import os
import resource
import zipfile

import numpy as np
import pytest

from datalens_tf import _files
from datalens_tf.errors import DataLensError


@pytest.mark.parametrize("data, stored", [(b"\x00\xff", b"\x00\xff"), ("ε = 1\n", "ε = 1\n".encode())])
def test_writes_and_replaces(tmp_path, data, stored):
    path = tmp_path / "file"
    path.write_bytes(b"old and longer than the new content")
    _files.atomic_write(path, data)
    assert path.read_bytes() == stored
    assert os.listdir(tmp_path) == ["file"]


def test_data_reaches_the_disk_before_the_name_and_the_name_before_return(tmp_path, monkeypatch):
    calls = []
    fsync, replace = os.fsync, os.replace

    def recorded_fsync(descriptor):
        calls.append("fsync folder" if os.path.isdir(f"/proc/self/fd/{descriptor}") else "fsync file")
        fsync(descriptor)

    def recorded_replace(source, target):
        calls.append("rename")
        replace(source, target)

    monkeypatch.setattr(os, "fsync", recorded_fsync)
    monkeypatch.setattr(os, "replace", recorded_replace)
    _files.atomic_write(tmp_path / "file", b"data")
    assert calls == ["fsync file", "rename", "fsync folder"]


def test_a_write_that_the_system_cuts_short_leaves_the_old_file_alone(tmp_path):
    path = tmp_path / "file"
    path.write_bytes(b"old")
    limits = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (4096, limits[1]))
    try:
        with pytest.raises(DataLensError) as caught:
            _files.atomic_write(path, bytes(1_000_000))
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, limits)
    assert str(caught.value) == f"Cannot write {path}: File too large. Free space or choose another place."
    assert path.read_bytes() == b"old"
    assert os.listdir(tmp_path) == ["file"]


def test_full_disk_noticed_at_fsync_leaves_the_old_file_alone(tmp_path, monkeypatch):
    path = tmp_path / "file"
    path.write_bytes(b"old")

    def full(descriptor):
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    monkeypatch.setattr(os, "fsync", full)
    with pytest.raises(DataLensError, match="^Cannot write .*file: No space left on device"):
        _files.atomic_write(path, b"new")
    assert path.read_bytes() == b"old"
    assert os.listdir(tmp_path) == ["file"]


def test_interruption_leaves_nothing_aside(tmp_path, monkeypatch):
    def interrupt(source, target):
        raise KeyboardInterrupt

    monkeypatch.setattr(os, "replace", interrupt)
    with pytest.raises(KeyboardInterrupt):
        _files.atomic_write(tmp_path / "file", b"new")
    assert not os.listdir(tmp_path)


@pytest.mark.parametrize("parent", ["missing", "plain_file"])
def test_impossible_places_are_named(tmp_path, parent):
    (tmp_path / "plain_file").write_bytes(b"")
    path = tmp_path / parent / "file"
    with pytest.raises(DataLensError) as caught:
        _files.atomic_write(path, b"data")
    assert str(path) in str(caught.value)
    assert "\n" not in str(caught.value)


def test_files_get_the_permissions_of_ordinary_files(tmp_path):
    old = os.umask(0o027)
    try:
        _files.atomic_write(tmp_path / "file", b"data")
    finally:
        os.umask(old)
    assert (tmp_path / "file").stat().st_mode & 0o777 == 0o640


SMALL = _files.at_most(10**5)


def test_archives_are_read_whole_or_in_part_and_never_unpickled(tmp_path):
    path = tmp_path / "a.npz"
    path.write_bytes(_files.npz_bytes({"x": np.arange(3), "y": np.ones(2)}))
    assert set(_files.read_npz(path, SMALL)) == {"x", "y"} and list(_files.read_npz(path, SMALL, ["y", "z"])) == ["y"]
    np.savez(path, x=np.array([{}], object))
    with pytest.raises(ValueError, match="pickle"):
        _files.read_npz(path, SMALL)
    with pytest.raises(FileNotFoundError):
        _files.read_npz(tmp_path / "missing.npz", SMALL)


def test_every_damage_to_an_archive_is_a_value_error(tmp_path):
    path, data = tmp_path / "a.npz", _files.npz_bytes({"x": np.random.default_rng(0).integers(0, 9, 200)})
    for position in range(0, len(data), 3):
        path.write_bytes(data[:position] + bytes([data[position] ^ 0x55]) + data[position + 1:])
        with contextlib.suppress(ValueError):  # A date or a comment may be anything.
            arrays = _files.read_npz(path, SMALL)
            np.testing.assert_array_equal(arrays["x"], np.random.default_rng(0).integers(0, 9, 200))


def test_what_arrays_may_be_is_asked_before_any_is_unpacked(tmp_path, monkeypatch):
    path = tmp_path / "bomb.npz"
    path.write_bytes(_files.npz_bytes({"x": np.zeros(10**7, np.uint8), "y": np.zeros(3)}))
    assert path.stat().st_size < 10**5
    unpacked = []
    monkeypatch.setattr(np.lib.format, "read_array", lambda file, **kwargs: unpacked.append(file))
    for check, said in (
            (SMALL, "would take 10000024 bytes, more than the 100000"),
            (_files.exactly({"x": np.zeros(3), "y": np.zeros(3)}), "to be float64 .*, got uint8 .10000000"),
            (_files.exactly({"y": np.zeros(3)}), "expected arrays y, got x, y")):
        with pytest.raises(ValueError, match=said):
            _files.read_npz(path, check)
    monkeypatch.setattr(os, "sysconf", lambda name: 1000)  # A machine of a million bytes.
    with pytest.raises(ValueError, match="10000000 bytes are more than this machine's memory"):
        _files.read_npz(path, _files.at_most(10**8), ["x"])
    assert not unpacked


@pytest.mark.parametrize("shape", [(10**15,), (4,), (2,), (-3,), (2**32, 2**32)])
def test_an_array_that_is_not_as_long_as_its_header_says_is_refused(tmp_path, shape):
    header = io.BytesIO()
    np.lib.format.write_array_header_1_0(header, {"descr": "|u1", "fortran_order": False, "shape": shape})
    with zipfile.ZipFile(tmp_path / "a.npz", "w") as archive:
        archive.writestr("x.npy", header.getvalue() + b"abc")
    with pytest.raises(ValueError, match="x is not as long as it says"):
        _files.read_npz(tmp_path / "a.npz", _files.at_most(2**80))


def test_two_arrays_of_one_name_and_things_that_are_no_arrays_are_refused(tmp_path):
    whole = io.BytesIO()
    np.lib.format.write_array(whole, np.arange(3))
    for names, contents, said in ((["x.npy", "x"], [whole.getvalue()] * 2, "two of its arrays have the same name"),
                                  (["x.txt"], [b"text"], "x.txt is no array"), (["x.npy"], [b""], "x is no array")):
        with zipfile.ZipFile(tmp_path / "a.npz", "w") as archive:
            for name, content in zip(names, contents):
                archive.writestr(name, content)
        with pytest.raises(ValueError, match=said):
            _files.read_npz(tmp_path / "a.npz", SMALL)


@pytest.mark.parametrize("text", ["[" * 100_000, "{", "9" * 5000, b"\xff", ""])
def test_whatever_is_no_json_is_a_value_error(text):
    with pytest.raises(ValueError):  # noqa: PT011 (json's own, in many words)
        _files.parse_json(text)
