"""Docstrings: each opens with a phrase that stands alone, and the examples of exported names run."""

import ast
import doctest
import pathlib

import pytest

import datalens_tf

ROOT = pathlib.Path(__file__).parents[1]
# Words that open a fragment, which only the name behind it completes.
OPENERS = frozenset("""
    Of By In From With Without For To At On As Who What Where When Which How Why That Those These It They See Because If
    After Before Then And Or
""".split())  # noqa: SIM905 (a list in quotes and commas is harder to read)
SLOW = ("DataLens", "fit")  # They build the graphs of a training.


def docstrings():
    for path in sorted((ROOT / "datalens_tf").rglob("*.py")):
        for node in ast.walk(ast.parse(path.read_text())):
            if isinstance(node, ast.FunctionDef | ast.ClassDef | ast.Module) and (text := ast.get_docstring(node)):
                yield f"{path.relative_to(ROOT)}: {getattr(node, 'name', 'module')}", text


def test_every_docstring_opens_with_a_phrase_that_stands_alone():
    found = list(docstrings())
    assert len(found) > 1000
    assert not [f"{where}: {text.splitlines()[0]}" for where, text in found
                if text.split()[0].strip(",.:;") in OPENERS or text.startswith("The same")]


@pytest.mark.parametrize("name", [
    pytest.param(name, marks=[pytest.mark.slow] if name in SLOW else [])
    for name in sorted(set(datalens_tf.__all__) - {"PRESETS", "__version__"})])
def test_the_example_of_an_exported_name_runs(name, monkeypatch):
    monkeypatch.chdir(ROOT)
    found, = doctest.DocTestFinder(recurse=False).find(getattr(datalens_tf, name), name, globs={})
    assert found.examples
    said = []
    result = doctest.DocTestRunner(verbose=False, optionflags=doctest.ELLIPSIS).run(found, out=said.append)
    assert not result.failed, "".join(said)
