"""Shared code of the tables' scripts: a cell is a run folder that is trained and evaluated once, and then skipped.

COSTS/NAME.json, beside the folder NAME, has the costs of a cell, over all sittings.
"""

import dataclasses
import json
import os
import pathlib
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Sequence

from datalens_tf import _files
from datalens_tf.training.results import result_file


@dataclasses.dataclass(frozen=True, kw_only=True)
class Cell:
    """A run that tables show.

    Attributes:
      name: of its folder.
      tables: numbers of the DataLens paper's tables that show its accuracy.
      method, dataset, epsilon, seed: what is trained, on what data, for what budget; epsilon None means no privacy.
      variant: how it differs from the method's usual settings, in words.
      train, evaluate: flags of these commands, without those that name the folder.
      max_minutes: minutes after which training is stopped.
      export_of: name of a run, or `checkpoints/NAME`. Its generator is exported anew, as it was when the run had spent
        `epsilon`, and nothing is trained.
      export: further flags of this export.
    """

    name: str
    tables: tuple[str, ...]
    method: str
    dataset: str
    epsilon: float | None
    seed: int
    train: tuple[str, ...] = ()
    evaluate: tuple[str, ...] = ()
    variant: str = ""
    max_minutes: float | None = None
    export_of: str | None = None
    export: tuple[str, ...] = ()


def fill(folder: pathlib.Path, train: Sequence[str], evaluate: Sequence[str], max_minutes: float | None = None,
         pass_fds: Sequence[int] = ()) -> bool:
    """Trains and evaluates a cell, or continues with it.

    Args:
      folder: of the run.
      train, evaluate: flags of these commands, without those that name the folder.
      max_minutes: minutes after which training is stopped, over all sittings; the run can be continued with more.
      pass_fds: files that the commands hold open.

    Returns:
      Whether the cell is done; if not, training was stopped.
    """
    if result_file(folder).exists():
        return True
    if not folder.exists():  # Costs of a run that was deleted are not this one's.
        _costs_file(folder).unlink(missing_ok=True)
    if not (folder / "privacy.json").exists():
        spent = costs_of(folder).get("training", {}).get("seconds", 0.0)
        left = None if max_minutes is None else max(0.0, 60 * max_minutes - spent)
        begun = (folder / "ledger.jsonl").exists() or (folder / "private" / "data.json").exists()
        resume = ["--resume"] if begun else []
        if left == 0 or not call(folder, "training", "train", *resume, f"--output_dir={folder}", *train, seconds=left,
                                 pass_fds=pass_fds):
            return False
    call(folder, "evaluation", "evaluate", f"--samples={folder}", *evaluate, pass_fds=pass_fds)
    return True


def costs_of(folder: pathlib.Path) -> dict:
    """Costs of each part of a cell: seconds, processor seconds, peak memory, sittings; and the commit of the code."""
    path = _costs_file(folder)
    return json.loads(path.read_text()) if path.exists() else {}


def call(folder: pathlib.Path, what: str, *arguments: str, seconds: float | None = None,
         pass_fds: Sequence[int] = ()) -> bool:
    """Runs the program, and adds its cost to the costs of the cell in this folder.

    A signal that asks this script to stop is passed on once, so that the training so far is saved.

    Returns:
      Whether the program came to its end; if not, it was stopped after `seconds`.

    Raises:
      SystemExit: the program failed; has its exit status.
      KeyboardInterrupt: this script was asked to stop.
    """
    print("datalens", *arguments, file=sys.stderr, flush=True)
    start, interrupted, expired = time.monotonic(), False, threading.Event()
    # A session of its own: a terminal's Ctrl-C would reach it twice, and a second Ctrl-C stops it without saving.
    process = subprocess.Popen([sys.executable, "-m", "datalens_tf", *arguments], start_new_session=True,
                               pass_fds=pass_fds)

    def expire():
        expired.set()
        os.kill(process.pid, signal.SIGINT)

    timer = threading.Timer(threading.TIMEOUT_MAX if seconds is None else seconds, expire)
    timer.daemon = True
    timer.start()
    while True:
        try:
            _, status, usage = os.wait4(process.pid, 0)
            break
        except KeyboardInterrupt:
            interrupted = True
            os.kill(process.pid, signal.SIGINT)
    timer.cancel()
    known = costs_of(folder)
    before = known.get(what, {"seconds": 0.0, "processor_seconds": 0.0, "peak_memory_gib": 0.0, "sittings": 0})
    known[what] = {
        "seconds": round(before["seconds"] + time.monotonic() - start, 1),
        "processor_seconds": round(before.get("processor_seconds", 0.0) + usage.ru_utime + usage.ru_stime, 1),
        "peak_memory_gib": round(max(before["peak_memory_gib"], usage.ru_maxrss / 2**20), 2),
        "sittings": before["sittings"] + 1}
    known["commit"] = commit()
    path = _costs_file(folder)
    path.parent.mkdir(parents=True, exist_ok=True)
    _files.atomic_write(path, json.dumps(known) + "\n")
    if interrupted:
        raise KeyboardInterrupt
    if status and not expired.is_set():
        sys.exit(os.waitstatus_to_exitcode(status))
    return not status


def commit() -> str:
    """The commit of the code that runs, with a plus where files were changed since; empty outside a checkout."""
    folder = pathlib.Path(__file__).parent
    asked = [subprocess.run(["git", "-C", folder, *words], capture_output=True, text=True, check=False)
             for words in (("rev-parse", "--short=10", "HEAD"), ("status", "--porcelain", "--untracked-files=no"))]
    return asked[0].stdout.strip() + ("+" if asked[1].stdout.strip() else "")


def _costs_file(folder: pathlib.Path) -> pathlib.Path:
    return folder.parent / "costs" / f"{folder.name}.json"
