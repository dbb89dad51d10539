"""A little of `run_scripts/studies/fuzz.py`, so that it stays able to run; the study itself throws 100,000 cases."""

import os
import pathlib
import subprocess
import sys

import pytest

SCRIPT = pathlib.Path(__file__).parents[3] / "run_scripts" / "studies" / "fuzz.py"


@pytest.mark.slow
def test_hostile_input_is_refused_or_understood():
    done = subprocess.run(
        [sys.executable, str(SCRIPT), "--cases", "40", "--seed", "1"], capture_output=True, text=True,
        env={**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)}, check=False, timeout=300)
    assert done.returncode == 0, done.stdout[-3000:] + done.stderr[-2000:]
    assert "480 cases, 0 failures" in done.stdout
