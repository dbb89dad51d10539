"""A cache of what was computed from real data, for the next evaluation on the same data.

It is a folder for this user alone (mode 700), because no epsilon covers accuracies and classifiers of real records.
An entry is named by a digest of everything that it depends on. It holds no code, and is computed again when damaged.
"""

import hashlib
import json
import os
import pathlib
from collections.abc import Callable, Mapping
from typing import Any

import numpy as np

from datalens_tf import _files
from datalens_tf.data.datasets import Dataset
from datalens_tf.data.identity import Fingerprint

_LARGEST = 2**32  # bytes of an entry; features of hundreds of thousands of records are the largest


class Cache:
    """Values by key.

    Args:
      folder: where the values are; None takes `DATALENS_CACHE`, else `datalens_tf` in the user's cache folder.
    """

    def __init__(self, folder: _files.PathLike | None = None):
        user = os.environ.get("XDG_CACHE_HOME") or "~/.cache"
        self.folder = pathlib.Path(
            folder or os.environ.get("DATALENS_CACHE") or pathlib.Path(user) / "datalens_tf").expanduser()
        with _files.clear_os_errors(self.folder):
            self.folder.mkdir(parents=True, exist_ok=True, mode=0o700)

    def json(self, key: Mapping[str, Any], compute: Callable[[], Any]) -> Any:
        """A JSON value; `compute` makes it if it is not in the cache."""
        path = self._path(key, "json")
        try:
            return _files.parse_json(path.read_text(encoding="utf-8"))["value"]
        except (OSError, ValueError, KeyError, TypeError):
            value = compute()
            _files.atomic_write(path, json.dumps({"key": key, "value": value}, indent=1) + "\n")
            return value

    def arrays(self, key: Mapping[str, Any], compute: Callable[[], list[np.ndarray]]) -> list[np.ndarray]:
        """A list of arrays; `compute` makes it if it is not in the cache."""
        path = self._path(key, "npz")
        try:
            archive = _files.read_npz(path, _files.at_most(_LARGEST))
            return [archive[f"arr_{number}"] for number in range(len(archive))]
        except (OSError, ValueError, KeyError):
            value = compute()
            _files.atomic_write(path, _files.npz_bytes({f"arr_{number}": array for number, array in enumerate(value)}))
            return value

    def _path(self, key: Mapping[str, Any], suffix: str) -> pathlib.Path:
        digest = hashlib.sha256(json.dumps(key, sort_keys=True).encode()).hexdigest()[:16]
        return self.folder / f"{key['what']}_{digest}.{suffix}"


def data_key(*datasets: Dataset) -> list[str]:
    """Hashes that tell whether the records are the same. They are private, like everything in the cache."""
    return [Fingerprint(dataset.labels, dataset.images).digest() for dataset in datasets]
