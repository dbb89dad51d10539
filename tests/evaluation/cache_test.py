"""What is kept is found again, and never trusted when damaged."""

import stat

import numpy as np
import pytest

from datalens_tf.data.registry import load_dataset
from datalens_tf.errors import DataLensError
from datalens_tf.evaluation.cache import Cache, data_key

KEY = {"what": "thing", "data": [1, 2]}


def never():
    raise AssertionError("computed again")


@pytest.mark.parametrize("kind, value", [("json", {"accuracy": 0.5}), ("arrays", [np.arange(3), np.ones((2, 2))])])
def test_values_are_computed_once_for_each_key(tmp_path, kind, value):
    get = getattr(Cache(tmp_path), kind)
    for found in (get(KEY, lambda: value), getattr(Cache(tmp_path), kind)(KEY, never)):
        np.testing.assert_equal(found, value)
    with pytest.raises(AssertionError, match="computed again"):
        get(KEY | {"data": [1, 3]}, never)


@pytest.mark.parametrize("kind, value", [("json", 5), ("arrays", [np.arange(300)])])
@pytest.mark.parametrize("damage", [lambda data: b"", lambda data: data[:len(data) // 2], lambda data: b"x" * 40])
def test_damaged_entries_are_computed_again(tmp_path, kind, value, damage):
    get = getattr(Cache(tmp_path), kind)
    get(KEY, lambda: value)
    path, = tmp_path.iterdir()
    path.write_bytes(damage(path.read_bytes()))
    np.testing.assert_equal(get(KEY, lambda: value), value)
    np.testing.assert_equal(get(KEY, never), value)


def test_pickles_are_not_read(tmp_path):
    cache = Cache(tmp_path)
    cache.arrays(KEY, lambda: [np.arange(3)])
    path, = tmp_path.iterdir()
    np.savez(path, arr_0=np.array([{"code": "runs"}], dtype=object))
    np.testing.assert_equal(cache.arrays(KEY, lambda: [np.arange(4)]), [np.arange(4)])


def test_the_folder_is_for_its_owner_alone(tmp_path, monkeypatch):
    monkeypatch.setenv("DATALENS_CACHE", str(tmp_path / "mine" / "cache"))
    assert Cache().folder == tmp_path / "mine" / "cache"
    assert stat.S_IMODE((tmp_path / "mine" / "cache").stat().st_mode) == 0o700
    monkeypatch.delenv("DATALENS_CACHE")
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "xdg"))
    assert Cache().folder == tmp_path / "xdg" / "datalens_tf"


def test_a_place_that_cannot_be_written_is_one_clear_line(tmp_path):
    (tmp_path / "file").write_text("")
    with pytest.raises(DataLensError, match="Cannot write .*file/cache"):
        Cache(tmp_path / "file" / "cache")


def test_other_records_have_another_key():
    train, test = load_dataset("digits"), load_dataset("digits", split="test")
    assert data_key(train, test) == data_key(train, test) != data_key(test, train)
