"""What all tests share: how many threads they take, which conformance tests are fast, and how much a run ships."""

import os

import pytest

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


@pytest.fixture(scope="session", autouse=True)
def few_samples():
    """Finished runs ship 100 samples rather than 10,000, which take longer than the rest of a tiny run."""
    from datalens_tf.methods import base  # TensorFlow reads the number of threads when it is imported.

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(base, "NUM_SHIPPED_SAMPLES", 100)
        yield
