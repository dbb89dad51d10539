"""TensorFlow imported without its messages about itself.

`TF_CPP_MIN_LOG_LEVEL` silences all of them but some lines of TensorFlow 2.21. TensorFlow writes these lines before it
has read that variable, from C++, to the file descriptor of stderr. While TensorFlow is imported, `grep` removes these
lines. It lets all others through at once, so that what a process says before it aborts is not lost.
"""

from __future__ import annotations

import contextlib
import importlib.abc
import importlib.machinery
import importlib.util
import os
import subprocess
import sys
import types
from collections.abc import Iterator, Sequence

# Each of these lines says that all is well: what the libraries are built for, and that there is no GPU.
_LINES = (r"^WARNING: All log messages before absl::InitializeLog\(\) is called are written to STDERR$"
          r"|^I[0-9]{4} .* (port|cudart_stub|cpu_feature_guard|cuda_[a-z_]+)\.cc:[0-9]+\] ")


def install() -> None:
    """Makes the next import of TensorFlow quiet, if there was none yet and the log level asks for it."""
    if "tensorflow" not in sys.modules and os.environ.get("TF_CPP_MIN_LOG_LEVEL", "0") != "0":
        sys.meta_path.insert(0, _Finder())


class _Finder(importlib.abc.MetaPathFinder):
    """Finds TensorFlow once, in the place where other finders would have found it."""

    def find_spec(self, fullname: str, path: Sequence[str] | None, target: types.ModuleType | None = None
                  ) -> importlib.machinery.ModuleSpec | None:
        if fullname != "tensorflow":
            return None
        sys.meta_path.remove(self)
        spec = importlib.util.find_spec(fullname)
        if spec is not None and spec.loader is not None:
            spec.loader = _Loader(spec.loader)
        return spec


class _Loader(importlib.abc.Loader):
    """Loads a module as another loader does, with a filter on stderr."""

    def __init__(self, loader: importlib.abc.Loader):
        self._loader = loader

    def create_module(self, spec: importlib.machinery.ModuleSpec) -> types.ModuleType | None:
        return self._loader.create_module(spec)

    def exec_module(self, module: types.ModuleType) -> None:
        module.__loader__ = self._loader
        if module.__spec__ is not None:
            module.__spec__.loader = self._loader
        with _filtered_stderr():
            self._loader.exec_module(module)


@contextlib.contextmanager
def _filtered_stderr() -> Iterator[None]:
    """Removes the lines of `_LINES` from the file descriptor of stderr; does nothing if there is no `grep`."""
    try:
        kept = os.dup(2)
        written, read = os.pipe()[::-1]
        grep = subprocess.Popen(["grep", "--line-buffered", "-v", "-E", _LINES], stdin=read, stdout=kept)
    except OSError:
        yield
        return
    os.close(read)
    try:
        os.dup2(written, 2)
        yield
    finally:
        os.dup2(kept, 2)
        os.close(kept)
        os.close(written)
        # A process that was started meanwhile may hold the pipe open, and go on writing to grep.
        with contextlib.suppress(subprocess.TimeoutExpired):
            grep.wait(timeout=2)
