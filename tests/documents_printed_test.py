"""Commands of some documents print what the documents say, with `...` for what differs from machine to machine."""

import doctest
import os
import pathlib
import re
import subprocess
import sys

import pytest

ROOT = pathlib.Path(__file__).parents[1]
FENCE = re.compile(r"^```console\n(.*?)^```$", re.MULTILINE | re.DOTALL)
COMMAND = re.compile(r"^\$ (.*)\n((?:(?!\$ ).*\n)*)", re.MULTILINE)
PAGES = {"docs/how-to/plan_a_budget.md": 1, "docs/reference/versions.md": 2, "docs/how-to/own_pictures.md": 1,
         "docs/how-to/serve.md": 3}


def printed(page):
    """Commands of ours, and what the page says that they print."""
    blocks = FENCE.findall((ROOT / page).read_text(encoding="utf-8"))
    return [(words, text) for block in blocks for words, text in COMMAND.findall(block)
            if words.startswith(("datalens ", "python ")) and "Ctrl-C" not in text and text.strip()]


@pytest.fixture(name="folder")
def fixture_folder(tmp_path):
    """A folder with the released generators, where `datalens` is ours."""
    (tmp_path / "bin").mkdir()
    for name, words in (("python", ""), ("datalens", "-m datalens_tf")):
        (tmp_path / "bin" / name).write_text(f'#!/bin/sh\nexec "{sys.executable}" {words} "$@"\n')
        (tmp_path / "bin" / name).chmod(0o755)
    (tmp_path / "checkpoints").symlink_to(ROOT / "checkpoints")
    return tmp_path


@pytest.mark.parametrize("page", [pytest.param(page, marks=[] if page.endswith("budget.md") else [pytest.mark.slow])
                                  for page in PAGES])
def test_a_page_says_what_is_printed(page, folder):
    commands = printed(page)
    assert len(commands) == PAGES[page]
    environment = {name: value for name, value in os.environ.items() if name != "TF_CPP_MIN_LOG_LEVEL"} | {
        "PATH": f"{folder / 'bin'}:{os.environ['PATH']}", "PYTHONPATH": str(ROOT)}
    for words, said in commands:
        done = subprocess.run(["bash", "-c", words], cwd=folder, env=environment, stdout=subprocess.PIPE,
                              stderr=subprocess.STDOUT, text=True, check=False)
        flags = doctest.ELLIPSIS | doctest.NORMALIZE_WHITESPACE
        assert doctest.OutputChecker().check_output(said, done.stdout, flags), f"$ {words}\n{done.stdout}"
        assert done.returncode == 0
