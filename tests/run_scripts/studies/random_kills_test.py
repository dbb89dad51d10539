"""SIGKILL at a random moment of each kind of run; `run_scripts/studies/random_kills.py` does it hundreds of times."""

import os
import pathlib
import subprocess
import sys

import pytest

STUDY = pathlib.Path(__file__).parents[3] / "run_scripts" / "studies" / "random_kills.py"


@pytest.mark.slow
@pytest.mark.parametrize("method", ["datalens_plus", "classify"])
def test_a_run_that_was_killed_equals_an_uninterrupted_one_or_is_refused(method):
    done = subprocess.run(
        [sys.executable, str(STUDY), "--method", method, "--kills", "1"], capture_output=True, text=True, timeout=300,
        env={**os.environ, "PYTHONPATH": os.pathsep.join(sys.path), "TF_CPP_MIN_LOG_LEVEL": "3"}, check=False)
    assert done.returncode == 0 and f"{method}: 1 kills" in done.stdout, done.stdout + done.stderr
