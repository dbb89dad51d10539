"""Every block of commands in README and the documents runs as it stands, in the order of its document."""

import os
import pathlib
import re
import subprocess

import pytest

ROOT = pathlib.Path(__file__).parents[1]
# CI runs the tutorial in a clone, as its reader does, and own_pictures.sh, whose commands the page of this name varies;
# ray_local.sh is the command of distribute.md.
ELSEWHERE = {ROOT / "docs" / name for name in (
    "tutorial/first_generator.md", "how-to/own_pictures.md", "how-to/distribute.md")}
FENCE = re.compile(r"^```(bash|python)\n(.*?)^```$", re.MULTILINE | re.DOTALL)
DOCUMENTS = sorted(path for path in [*ROOT.glob("*.md"), *ROOT.glob("docs/**/*.md")]
                   if FENCE.search(path.read_text()) and path not in ELSEWHERE)


@pytest.fixture(name="folder")
def fixture_folder(tmp_path, python):
    """A folder like the project's, in whose environment everything is installed."""
    programs = tmp_path / ".venv" / "bin"
    programs.mkdir(parents=True)
    for name, words in (("python", ""), ("datalens", "-m datalens_tf")):
        (programs / name).write_text(f'#!/bin/sh\nexec {python} {words} "$@"\n')
        (programs / name).chmod(0o755)
    for extra in ("", "_eval", "_serving"):
        (tmp_path / ".venv" / f".datalens_installed{extra}").touch()
    for name in ("checkpoints", "run_scripts"):
        (tmp_path / name).symlink_to(ROOT / name)
    return tmp_path


@pytest.mark.slow
@pytest.mark.parametrize("document", DOCUMENTS, ids=lambda path: str(path.relative_to(ROOT)))
def test_every_block_runs(document, folder):
    blocks = [text if language == "bash" else f"python - <<'END'\n{text}END\n"
              for language, text in FENCE.findall(document.read_text())]
    script = "trap 'kill $(jobs -p) 2>/dev/null || true' EXIT\n" + "\n".join(blocks)
    environment = os.environ | {
        "PATH": f"{folder / '.venv' / 'bin'}:{os.environ['PATH']}", "PYTHONPATH": str(ROOT),
        "DATALENS_VENV": str(folder / ".venv"), "DATALENS_RUNS": str(folder / "runs"),
        "DATALENS_CACHE": str(folder / "cache")}
    done = subprocess.run(["bash", "-euo", "pipefail", "-c", script], cwd=folder, env=environment, capture_output=True,
                          text=True, check=False)
    assert done.returncode == 0, done.stdout[-2000:] + done.stderr[-3000:]
