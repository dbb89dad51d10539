"""Every mistake of docs/how-to/mistakes.md says what the page says, and before it loads what takes seconds."""

import errno
import os
import pathlib
import re
import shlex
import shutil
import subprocess
import sys

import numpy as np
import pytest
from PIL import Image

from tests.cli.commands import refused

ROOT = pathlib.Path(__file__).parents[2]
PAGE = ROOT / "docs" / "how-to" / "mistakes.md"
MISTAKES = re.findall(r"^\$ datalens (.*)\n(datalens:.*)$", PAGE.read_text(encoding="utf-8"), re.MULTILINE)


@pytest.fixture(name="place")
def fixture_place(finished, interrupted, tmp_path, monkeypatch):
    """A folder with what the page speaks of."""
    for name in ("cat", "dog"):
        (tmp_path / "pictures" / name).mkdir(parents=True)
        for number in range(3):
            Image.new("RGB", (9, 9)).save(tmp_path / "pictures" / name / f"{name}{number}.png")
    records = np.zeros([40, 8, 8, 1], np.uint8)
    np.savez(tmp_path / "mine.npz", x=records, y=np.arange(40) % 2)
    np.savez(tmp_path / "unlabelled.npz", x=records)
    (tmp_path / "locked").mkdir()
    (tmp_path / "runs").mkdir()
    for name, run in (("first", finished), ("half", interrupted[0])):
        (tmp_path / "runs" / name).symlink_to(run)
    monkeypatch.chdir(tmp_path)
    return tmp_path


@pytest.fixture(name="refusing_system")
def fixture_refusing_system(place, monkeypatch):
    """Tests may run as root, who may write everywhere, and no disk is filled: the system is stood in for."""
    access = os.access

    def full(source, target, **more):
        if ".tmp" in str(target):
            raise shutil.Error([(f"{source}/{number}", f"{target}/{number}", str(OSError(
                errno.ENOSPC, "No space left on device"))) for number in range(11)])

    monkeypatch.setattr(shutil, "which", lambda name: name)  # The program, as it is when it is installed.
    monkeypatch.setattr(os, "access", lambda path, mode: path != place / "locked" and access(path, mode))
    monkeypatch.setattr(shutil, "copytree", full)


def test_the_page_has_fifteen():
    assert len(MISTAKES) >= 15


@pytest.mark.parametrize("words, said", MISTAKES, ids=lambda text: text[:70])
@pytest.mark.usefixtures("refusing_system")
def test_it_says_what_the_page_says(words, said, datalens, place):
    before = sorted(place.rglob("*"))
    status, out, err = datalens(*shlex.split(words))
    assert (status, out, err.strip().replace(str(place), "/home/me")) == (2, "", said)
    assert sorted(place.rglob("*")) == before or "serving" in words or "full" in words


@pytest.mark.usefixtures("place")
def test_they_do_not_wait_for_tensorflow():
    """Which takes seconds to load; in a process of their own."""
    lines = [words for words, _ in MISTAKES if not re.search("locked|full", words)]
    program = ("import shlex, sys; from datalens_tf import cli\nfor line in sys.argv[1:]:\n"
               "    assert cli.main(shlex.split(line)) == 2 and 'tensorflow' not in sys.modules, line")
    done = subprocess.run([sys.executable, "-c", program, *lines], capture_output=True, text=True,
                          env=os.environ | {"PYTHONPATH": str(ROOT)}, check=False)
    assert done.returncode == 0 and len(done.stderr.splitlines()) == len(lines), done


@pytest.mark.parametrize("command", ["train", "classify", "pate-classify"])
def test_a_run_does_not_begin_among_other_files(command, datalens, place):
    """Its last screen says that all of the folder but `private` may be shared."""
    before = sorted(place.rglob("*"))
    for folder in (place / "pictures", place):
        refused(datalens(command, "--dataset", place / "pictures", "--output_dir", folder),
                f"{folder} is not empty and holds no run: choose a new --output_dir")
    assert sorted(place.rglob("*")) == before
