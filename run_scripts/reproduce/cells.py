"""What the tables' scripts share: a cell is a run folder that is trained and evaluated, and skipped where that is done.

COSTS/NAME.json, beside the folder NAME, says what a cell took, over all sittings.
"""

import json
import os
import pathlib
import subprocess
import sys
import time
from collections.abc import Sequence

from datalens_tf import _files
from datalens_tf.training.results import result_file


def fill(folder: pathlib.Path, train: Sequence[str], evaluate: Sequence[str]) -> None:
    """Trains and evaluates a cell, or continues with it.

    Args:
      folder: of the run.
      train, evaluate: flags of these commands, without those that name the folder.
    """
    costs = folder.parent / "costs" / f"{folder.name}.json"
    if result_file(folder).exists():
        return
    if not (folder / "privacy.json").exists():
        resume = ["--resume"] if (folder / "config.json").exists() else []
        call(costs, "training", "train", *resume, f"--output_dir={folder}", *train)
    call(costs, "evaluation", "evaluate", f"--samples={folder}", *evaluate)


def call(costs: pathlib.Path, what: str, *arguments: str) -> None:
    """Runs the program, and adds what it took to the file."""
    print("datalens", *arguments, file=sys.stderr, flush=True)
    start = time.monotonic()
    process = subprocess.Popen([sys.executable, "-m", "datalens_tf", *arguments])
    _, status, usage = os.wait4(process.pid, 0)
    known = json.loads(costs.read_text()) if costs.exists() else {}
    before = known.get(what, {"seconds": 0.0, "peak_memory_gib": 0.0, "sittings": 0})
    known[what] = {"seconds": round(before["seconds"] + time.monotonic() - start, 1),
                   "peak_memory_gib": round(max(before["peak_memory_gib"], usage.ru_maxrss / 2**20), 2),
                   "sittings": before["sittings"] + 1}
    costs.parent.mkdir(parents=True, exist_ok=True)
    _files.atomic_write(costs, json.dumps(known) + "\n")
    if status:
        sys.exit(os.waitstatus_to_exitcode(status))
