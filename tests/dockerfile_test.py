"""The Dockerfile: its steps, without Docker."""

import json
import os
import pathlib
import re
import shutil
import subprocess
import sys
import sysconfig
import tomllib
import venv

import pytest

from datalens_tf.cli import COMMANDS

ROOT = pathlib.Path(__file__).parents[1]


def instructions(name):
    """Arguments of all instructions of a name; lines that are continued are joined."""
    text = re.sub(r"\\\n\s*", " ", (ROOT / "Dockerfile").read_text())
    return [line.removeprefix(name).strip() for line in text.splitlines() if line.startswith(f"{name} ")]


def test_it_names_what_the_project_has():
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    (base,), (entry,), (command,) = map(instructions, ("FROM", "ENTRYPOINT", "CMD"))
    version = re.fullmatch(r"python:([\d.]+)-slim-bookworm", base).group(1)
    assert f">={version}," in project["requires-python"]
    assert json.loads(entry) == ["datalens"] == list(project["scripts"]) and json.loads(command) == ["--help"]
    extras = re.search(r"/src\[(.*?)\]", instructions("RUN")[0]).group(1).split(",")
    assert set(extras) <= set(project["optional-dependencies"])
    shown = re.findall(r"^#.* datalens (?:\\\n# +)?(\w+)", (ROOT / "Dockerfile").read_text(), re.MULTILINE)
    assert {"train", "serve"} <= set(shown) and set(shown) - {"docker"} <= set(COMMANDS)


@pytest.mark.slow
def test_its_steps_end_in_a_program_that_draws(tmp_path):
    """With the packages that are installed here, not with the newest that the project admits."""
    places = {"/src": str(tmp_path / "src"), "/data": str(tmp_path / "data")}
    kept = [line.removeprefix("!") for line in (ROOT / ".dockerignore").read_text().splitlines() if line[0] == "!"]
    for name in kept:
        copy = shutil.copytree if (ROOT / name).is_dir() else shutil.copy
        (tmp_path / "src").mkdir(exist_ok=True)
        copy(ROOT / name, tmp_path / "src" / name)
    venv.create(tmp_path / "python", with_pip=True)
    ours, theirs = (sysconfig.get_path("purelib", vars={"base": base}) for base in (sys.prefix, tmp_path / "python"))
    (pathlib.Path(theirs) / "here.pth").write_text(ours)
    environment = os.environ | {"PATH": f"{tmp_path / 'python' / 'bin'}:/usr/bin:/bin"}
    environment.pop("PYTHONPATH", None)
    for step in instructions("RUN"):
        for place, here in places.items():
            step = step.replace(place, here)
        step = step.replace("pip install", "pip install --no-deps --force-reinstall")
        subprocess.run(["bash", "-euo", "pipefail", "-c", step], env=environment, check=True, cwd=tmp_path)
    words = ["datalens", "sample", "--model", str(ROOT / "checkpoints" / "mnist_eps1"), "--num_samples=3",
             f"--output={tmp_path / 'x.npz'}"]
    subprocess.run(words, env=environment, check=True, cwd=places["/data"])
    assert (tmp_path / "x.npz").stat().st_size > 0
