"""What all tests share: how many threads they take, which conformance tests are fast, and how few samples make do."""

import importlib
import os
import pathlib
import subprocess
import sys

import pytest
from etils.epy.lazy_imports_utils import LazyModule

if "PYTEST_XDIST_WORKER" in os.environ:  # One worker per core. With one thread between operations, Keras may hang.
    os.environ.setdefault("TF_NUM_INTRAOP_THREADS", "1")
    os.environ.setdefault("TF_NUM_INTEROP_THREADS", "2")
    os.environ.setdefault("OMP_NUM_THREADS", "1")
    os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(config, items):
    """Of what conformance suites ask, marks as slow or leaves out what another class of the family is asked as well."""
    left_out = []
    for item in items:
        if getattr(item.cls, "FIRST_OF_ITS_FAMILY", True):
            continue
        shared, long = (item.get_closest_marker(name) for name in ("of_the_base_class", "once_per_family"))
        if shared and not item.cls.MOST_RUNS:
            left_out.append(item)
        elif shared or long:
            item.add_marker(pytest.mark.slow)
    if left_out:
        config.hook.pytest_deselected(items=left_out)
        items[:] = [item for item in items if item not in set(left_out)]


@pytest.fixture(name="monkeypatch")
def fixture_monkeypatch(monkeypatch):
    """pytest's, which puts back what an object's `__dict__` had: a module that is imported lazily has nothing there."""
    patch = monkeypatch.setattr

    def setattr_(target, *args, **kwargs):
        lazy = isinstance(target, LazyModule)
        patch(importlib.import_module(target.module_name) if lazy else target, *args, **kwargs)

    monkeypatch.setattr = setattr_
    return monkeypatch


@pytest.fixture(scope="session", autouse=True)
def few_samples():
    """Finished runs ship 100 samples rather than 10,000, and what chooses among images learns from 500, not 20,000.

    Either would take longer than the rest of a tiny run.
    """
    from datalens_tf.methods import base  # TensorFlow reads the number of threads when it is imported.
    from datalens_tf.training import posing

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(base, "NUM_SHIPPED_SAMPLES", 100)
        patch.setattr(posing, "_IMAGES", 500)
        yield


@pytest.fixture(scope="session", name="python")
def fixture_python(tmp_path_factory):
    """What stands for `python` in shell scripts, without the seconds that imports take: see `preloaded.py`."""
    program = pathlib.Path(__file__).with_name("preloaded.py")
    socket = tmp_path_factory.mktemp("python") / "socket"
    environment = os.environ | {"PYTHONPATH": str(program.parents[1]), "OPENBLAS_NUM_THREADS": "1"}  # It forks.
    with subprocess.Popen([sys.executable, program, socket], env=environment, stdin=subprocess.PIPE,
                          stdout=subprocess.PIPE) as process:
        assert process.stdout.readline() == b"ready\n"
        yield f'"{sys.executable}" -S -E "{program}" "{socket}"'
        process.stdin.close()
