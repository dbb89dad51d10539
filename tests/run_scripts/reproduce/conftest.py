"""Scripts of a folder that is no package, as modules."""

import importlib
import pathlib
import sys

import pytest

FOLDER = pathlib.Path(__file__).parents[3] / "run_scripts" / "reproduce"


@pytest.fixture(name="script", scope="package")
def fixture_script():
    """Name -> module of run_scripts/reproduce."""
    before = set(sys.modules)
    sys.path.insert(0, str(FOLDER))
    yield importlib.import_module
    sys.path.remove(str(FOLDER))
    for name in set(sys.modules) - before:
        if str(FOLDER) in str(getattr(sys.modules[name], "__file__", "")):
            del sys.modules[name]
