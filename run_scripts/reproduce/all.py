"""Every table, run by run: says what is left to do and what it will take, then does it, one run at a time.

    python run_scripts/reproduce/all.py --runs_dir RUNS [--only PATTERN ...] [--missing] [--max_minutes M] [--cost]

The runs are those of paper_tables.py, in its order. Each has a folder RUNS/NAME, and when it is done a place in
RUNS/results, which `kept_runs.py --collect RUNS` copies. The same command goes on after any stop, `kill -9` included:
training continues from its folder, an evaluation by the frozen protocol starts again, one by another protocol goes on
with the epoch that was interrupted, and what is done is skipped. A run that fails is reported, tried again by the next
call, and holds up no other.

Training that reaches its `--max_minutes`, or the limit that its table sets, is stopped by SIGINT. Its state is saved,
and it has no generator yet, so that it is in no table until a later call with a larger `--max_minutes` has finished it.
"""

import argparse
import collections
import fcntl
import fnmatch
import pathlib
import shutil
import signal
import statistics
import sys
from collections.abc import Sequence

import kept_runs
import paper_tables
from cells import Cell, call, costs_of, fill

from datalens_tf.accounting import accountants, verification
from datalens_tf.errors import DataLensError
from datalens_tf.methods import registry
from datalens_tf.training import run_folder
from datalens_tf.training.results import result_file


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--runs_dir", type=pathlib.Path, required=True)
    parser.add_argument("--only", nargs="+", default=["*"], metavar="PATTERN", help="names of runs, such as 'dp_gan_*'")
    parser.add_argument("--missing", action="store_true", help="without the runs that results/ of this checkout has")
    parser.add_argument("--max_minutes", type=float, default=None, help="of training, for each run, instead of its own")
    parser.add_argument("--cost", action="store_true", help="say what it will take, and do nothing")
    args = parser.parse_args()
    cells = [cell for cell in paper_tables.cells() if any(fnmatch.fnmatch(cell.name, pattern) for pattern in args.only)]
    if not cells:
        parser.error(f"Expected --only to name runs, got {' '.join(args.only)}; --cost shows all methods and data.")
    if args.missing:
        cells = missing(cells, kept_runs.RESULTS)
    print(cost(cells, args.runs_dir), flush=True)
    if args.cost:
        return 0
    signal.signal(signal.SIGTERM, signal.default_int_handler)
    args.runs_dir.mkdir(parents=True, exist_ok=True)
    with open(args.runs_dir / "lock", "w", encoding="utf-8") as lock:
        try:
            _wait_for_others(lock)
            unfinished = work(cells, args.runs_dir, args.max_minutes, lock.fileno())
        except KeyboardInterrupt:
            print("Stopped; the same command continues.")
            return 130
    for name, why in unfinished.items():
        print(f"{name}: {why}")
    return 1 if unfinished else 0


def missing(cells: Sequence[Cell], results: pathlib.Path) -> list[Cell]:
    """The runs that a folder of results lacks, and those whose stored releases they are made of."""
    left = {cell.name: cell for cell in cells if not kept_runs.has(cell, results)}
    waited_for = {cell.export_of for cell in left.values()}
    return [cell for cell in cells if cell.name in left or cell.name in waited_for]


def _wait_for_others(lock) -> None:
    """Takes the lock; commands that a queue has started hold it, too, so that no two work on one run."""
    try:
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        print("Waiting for another queue, or for the run that it had started.", flush=True)
        fcntl.flock(lock, fcntl.LOCK_EX)


def work(cells: Sequence[Cell], runs_dir: pathlib.Path, max_minutes: float | None, lock: int) -> dict[str, str]:
    """Does the runs that are left; returns the name of each run that is not done, with the reason."""
    unfinished = {}
    for number, cell in enumerate(cells, 1):
        print(f"{number} of {len(cells)}: {cell.name}", file=sys.stderr, flush=True)
        folder = runs_dir / cell.name
        limit = cell.max_minutes if max_minutes is None else max_minutes
        try:
            if cell.export_of is not None:
                done = export(cell, _folder_of(cell.export_of, runs_dir), folder, lock)
                why = f"waits for {cell.export_of}"
            else:
                done = fill(folder, cell.train, cell.evaluate, limit, (lock,))
                why = f"training was stopped after {limit:g} minutes" if limit is not None else ""
            if done:
                kept_runs.keep(cell, folder, runs_dir / "results")
                kept_runs.write(runs_dir / "results")
                discard(folder)
        except SystemExit as error:
            done, why = False, f"failed with exit status {error.code}"
        except DataLensError as error:
            done, why = False, f"is not kept: {error}"
        if not done:
            unfinished[cell.name] = why
            print(f"{cell.name}: {why}", file=sys.stderr, flush=True)
    return unfinished


def discard(folder: pathlib.Path) -> None:
    """Deletes files that only unfinished training needs: gigabytes of teachers, for each of hundreds of runs."""
    files = run_folder.RunFolder(folder)
    shutil.rmtree(files.checkpoints, ignore_errors=True)
    files.bank.unlink(missing_ok=True)


def _folder_of(run: str, runs_dir: pathlib.Path) -> pathlib.Path:
    return (kept_runs.PROJECT if run.startswith("checkpoints/") else runs_dir) / run


def export(cell: Cell, run: pathlib.Path, folder: pathlib.Path, lock: int) -> bool:
    """Exports and evaluates the generator that a finished run had when it had spent the cell's epsilon.

    Returns:
      Whether the run is finished.
    """
    if result_file(folder).exists():
        return True
    if not (run / verification.STATEMENT).exists():
        return False
    config = registry.config_from_json((run / "config.json").read_text())
    earlier: tuple[str, ...] = ()
    if cell.epsilon is not None and cell.epsilon < config.epsilon:
        step = accountants.max_steps(config.step_event(), cell.epsilon, config.delta, config.accountant,
                                     config.adjacency)
        earlier = (f"--step={step}",)
    if not (folder / verification.STATEMENT).exists():  # An evaluation that was interrupted may continue.
        shutil.rmtree(folder, ignore_errors=True)  # Left by an export that was interrupted.
        call(folder, "export", "export", f"--run_dir={run}", f"--output_dir={folder / 'generator'}", *earlier,
             *cell.export, pass_fds=(lock,))
        shutil.copy(folder / "generator/1/assets.extra" / verification.STATEMENT, folder)
    call(folder, "evaluation", "evaluate", f"--samples={folder / 'generator'}", f"--output_dir={folder}",
         *cell.evaluate, pass_fds=(lock,))
    return True


def cost(cells: Sequence[Cell], runs_dir: pathlib.Path) -> str:
    """A table of what is left: runs, minutes per run by earlier or kept runs or by estimate, and hours in all."""
    left: dict[tuple[str, str, str], list[float]] = collections.defaultdict(list)
    for cell in cells:
        if not result_file(runs_dir / cell.name).exists():
            minutes, source = minutes_of(cell, runs_dir)
            left[cell.method, _kind(cell), source].append(minutes)
    lines = [f"{'method':<16}{'data':<30}{'runs left':>9}  {'minutes each':>12}  {'hours':>6}"]
    lines += [f"{method:<16}{kind:<30}{len(found):>9}  {statistics.fmean(found):>12.0f}  {sum(found) / 60:>6.1f}  "
              f"{source}" for (method, kind, source), found in left.items()]
    everything = [minutes for found in left.values() for minutes in found]
    return "\n".join([*lines, f"{'in all':<46}{len(everything):>9}  {'':>12}  {sum(everything) / 60:>6.1f}"])


def minutes_of(cell: Cell, runs_dir: pathlib.Path) -> tuple[float, str]:
    """Minutes of training and evaluation, and where they come from: recorded runs, kept runs, or an estimate."""
    alike = [other.name for other in paper_tables.cells() if (other.method, _kind(other)) == (cell.method, _kind(cell))]
    recorded = [sum(part["seconds"] for name, part in found.items() if name != "commit") / 60 for name in alike
                if result_file(runs_dir / name).exists() and (found := costs_of(runs_dir / name))]
    if recorded:
        return statistics.fmean(recorded), "recorded"
    kept = [sum(found) for name in alike if (found := kept_runs.minutes_taken(name, kept_runs.RESULTS))]
    return (statistics.fmean(kept), "kept") if kept else (paper_tables.estimate(cell), "estimate")


def _kind(cell: Cell) -> str:
    """The kind of a run; runs of a method and a kind take about as long."""
    kind = "grey" if cell.dataset in paper_tables.GREY else "colour"
    for flag in cell.evaluate:
        if flag.startswith("--protocol="):
            return f"{kind}, by {flag.partition('=')[2]}"
    return f"{kind}, 1/10 of the teachers" if paper_tables.has_few_teachers(cell) else (
        f"{kind}, exported anew" if cell.export_of else kind)


if __name__ == "__main__":
    sys.exit(main())
