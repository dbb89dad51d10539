"""Every notebook of the documents runs, cell by cell, and shows what its cells end in as a notebook would."""

import json
import os
import pathlib
import subprocess
import sys

import pytest

ROOT = pathlib.Path(__file__).parents[1]
NOTEBOOKS = sorted(ROOT.glob("docs/notebooks/*.ipynb"))
# What Jupyter does with a cell: run it, and show the last expression by its richest form.
RUNNER = """
import ast, json, sys
namespace = {"__name__": "__main__"}
for source in json.loads(sys.stdin.read()):
    tree = ast.parse(source)
    last = tree.body.pop() if isinstance(tree.body[-1], ast.Expr) else None
    exec(compile(tree, "cell", "exec"), namespace)
    if last is not None and (value := eval(compile(ast.Expression(last.value), "cell", "eval"), namespace)) is not None:
        form = next((name for name in ("_repr_html_", "_repr_png_") if hasattr(value, name)), "__repr__")
        shown = getattr(value, form)()
        print("SHOWN", form, len(shown))
        assert shown
"""


def test_there_are_two_and_they_hold_no_outputs():
    assert len(NOTEBOOKS) == 2
    for path in NOTEBOOKS:
        cells = json.loads(path.read_text(encoding="utf-8"))["cells"]
        assert not [cell for cell in cells if cell.get("outputs") or cell.get("execution_count")]


@pytest.mark.slow
@pytest.mark.parametrize("path", NOTEBOOKS, ids=lambda path: path.stem)
def test_a_notebook_runs(path, tmp_path):
    cells = json.loads(path.read_text(encoding="utf-8"))["cells"]
    sources = ["".join(cell["source"]) for cell in cells if cell["cell_type"] == "code"]
    done = subprocess.run([sys.executable, "-c", RUNNER], input=json.dumps(sources), capture_output=True, text=True,
                          cwd=tmp_path, env=os.environ | {"PYTHONPATH": str(ROOT)}, check=False)
    assert done.returncode == 0, done.stdout[-2000:] + done.stderr[-3000:]
    assert "SHOWN _repr_html_" in done.stdout and "SHOWN _repr_png_" in done.stdout
