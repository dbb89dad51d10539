"""Scripts of folders that are no packages, as modules."""

import importlib
import pathlib
import sys

import pytest

FOLDERS = [str(pathlib.Path(__file__).parents[2] / "run_scripts" / name) for name in ("reproduce", "studies")]


@pytest.fixture(name="script", scope="package")
def fixture_script():
    """Name -> module of run_scripts/reproduce or run_scripts/studies."""
    before, path = set(sys.modules), list(sys.path)
    sys.path[:0] = FOLDERS
    yield importlib.import_module
    sys.path[:] = path
    for name in set(sys.modules) - before:
        if str(getattr(sys.modules[name], "__file__", "")).startswith(tuple(FOLDERS)):
            del sys.modules[name]


@pytest.fixture(name="study")
def fixture_study(script, request):
    """The script that a file of tests is named after."""
    return script(request.module.__name__.rpartition(".")[2].removesuffix("_test"))
