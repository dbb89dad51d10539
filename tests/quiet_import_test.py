"""TensorFlow's lines about itself, and those that are about something else."""

import os
import subprocess
import sys

import pytest

ABOUT_ITSELF = ("WARNING: All log messages before absl::InitializeLog() is called are written to STDERR",
                "I0000 00:00:1795592889.026324   15262 port.cc:153] oneDNN custom operations are on.",
                "I0000 00:00:1795592889.026663   15262 cudart_stub.cc:31] Could not find cuda drivers.")
OTHERS = ("E0000 00:00:1795592889.026324   15262 port.cc:153] oneDNN is broken.", "F0000 no AVX")


def imported(folder, code, **environment):
    """What a process writes to stderr that imports a package in TensorFlow's place, by way of ours."""
    lines = "".join(f"{line}\n" for line in ABOUT_ITSELF + OTHERS)
    (folder / "tensorflow.py").write_text(f"import os\nos.write(2, {lines.encode()!r})\n{code}")
    settings = {name: value for name, value in os.environ.items() if name != "TF_CPP_MIN_LOG_LEVEL"}
    ours = "import datalens_tf, tensorflow, os; os.write(2, b'I0000 port.cc:1] x')"
    settings |= {"PYTHONPATH": os.pathsep.join([str(folder), *sys.path])} | environment
    done = subprocess.run([sys.executable, "-c", ours], capture_output=True, text=True, check=False, env=settings)
    return done.stderr.splitlines()


def test_what_tensorflow_says_of_itself_when_it_is_imported_is_not_shown(tmp_path):
    *shown, later = imported(tmp_path, "")
    assert tuple(shown) == OTHERS and later == "I0000 port.cc:1] x"


def test_nothing_is_lost_where_tensorflow_ends_the_process(tmp_path):
    assert tuple(imported(tmp_path, "os.abort()")) == OTHERS
    assert imported(tmp_path, "raise ImportError('no AVX')")[-1] == "ImportError: no AVX"


@pytest.mark.parametrize("environment", [{"TF_CPP_MIN_LOG_LEVEL": "0"}, {"PATH": "/nonexistent"}])
def test_all_is_shown_to_who_asks_for_it_and_where_there_is_no_grep(tmp_path, environment):
    *shown, _ = imported(tmp_path, "", **environment)
    assert tuple(shown) == ABOUT_ITSELF + OTHERS
