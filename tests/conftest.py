"""What all tests share: how many threads they take, which conformance tests are fast, and how much a run ships."""

import importlib
import os

import pytest
from etils.epy.lazy_imports_utils import LazyModule

if "PYTEST_XDIST_WORKER" in os.environ:  # One worker per core. With one thread between operations, Keras may hang.
    os.environ.setdefault("TF_NUM_INTRAOP_THREADS", "1")
    os.environ.setdefault("TF_NUM_INTEROP_THREADS", "2")
    os.environ.setdefault("OMP_NUM_THREADS", "1")
    os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(items):
    """Marks as slow what conformance suites ask of every class, where another class of its family is asked as well."""
    for item in items:
        if item.get_closest_marker("once_per_family") and not item.cls.FIRST_OF_ITS_FAMILY:
            item.add_marker(pytest.mark.slow)


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
    """Finished runs ship 100 samples rather than 10,000, which take longer than the rest of a tiny run."""
    from datalens_tf.methods import base  # TensorFlow reads the number of threads when it is imported.

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(base, "NUM_SHIPPED_SAMPLES", 100)
        yield
