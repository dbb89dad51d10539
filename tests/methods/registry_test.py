"""A method is added or renamed in few places: its name stands in at most six files beside tests and logs of results."""

import pathlib
import re

import pytest

from datalens_tf.methods.registry import DEFAULT, methods

ROOT = pathlib.Path(__file__).parents[2]
FOLDERS = ("datalens_tf", "docs", "run_scripts", ".ci")
# Logs of experiments name what was run, and so does the table of them that the package quotes.
LOGS = ROOT / "docs" / "research"
TABLE = ROOT / "datalens_tf" / "planning" / "measured.csv"


@pytest.fixture(name="texts", scope="module")
def fixture_texts():
    """File -> its text."""
    inside = (path for folder in FOLDERS for path in (ROOT / folder).rglob("*") if path.is_file())
    found = {path for path in (*ROOT.glob("*.*"), *inside)
             if path.is_file() and LOGS not in path.parents and path != TABLE and "__pycache__" not in path.parts}
    assert {path.suffix for path in found} >= {".md", ".py", ".sh", ".toml", ".yml"}
    return {path.relative_to(ROOT): path.read_text(encoding="utf-8", errors="ignore") for path in found}


# The program, the package and the first method have one name.
@pytest.mark.parametrize("method", sorted(methods().keys() - {DEFAULT}))
def test_a_name_stands_in_few_files(method, texts):
    assert DEFAULT == "datalens"
    named = sorted(str(path) for path, text in texts.items() if re.search(rf"\b{method}\b", text))
    assert any(path.startswith(f"datalens_tf/methods/{method}") for path in named) and len(named) <= 6, named
