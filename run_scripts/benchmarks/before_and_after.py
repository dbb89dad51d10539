"""How long `datalens train` takes with an older checkout and with this one, one after the other, on the same records.

    git worktree add OLDER d96937d
    python run_scripts/benchmarks/before_and_after.py --older OLDER --method METHOD
        [--datasets mnist tfds:cifar10_jpeg celeba_gender] [--records N] [--epsilon 1] [--delta 1e-5] [--keep RUNS]

Both checkouts read the training records, or the first N of them, from one npz file, give the same promise, and start
from nothing. A row is printed as soon as it is known: seconds from the start of the command to its end, loading and
imports included, the processor's seconds, and the largest memory. RUNS keeps the runs as RUNS/DATASET/before and after,
so that `datalens evaluate` can say whether accuracy was lost. Run it on a machine that does nothing else. Both
checkouts need the same Python packages, which are those of the Python that runs this.
"""

import argparse
import os
import pathlib
import subprocess
import sys
import tempfile
import time

import numpy as np

from datalens_tf.data.registry import load_dataset

ROOT = pathlib.Path(__file__).parents[2]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--older", type=pathlib.Path, required=True, help="another checkout of this repository")
    parser.add_argument("--datasets", nargs="+", default=["mnist", "tfds:cifar10_jpeg", "celeba_gender"])
    parser.add_argument("--data_dir", help="of data sets that do not know where they are")
    parser.add_argument("--records", type=int, help="by default all")
    parser.add_argument("--method", required=True)
    parser.add_argument("--epsilon", default="1")
    parser.add_argument("--delta", default="1e-5", help="of both, whatever their defaults are")
    parser.add_argument("--keep", type=pathlib.Path, metavar="RUNS", help="a folder for the runs; by default they go")
    args = parser.parse_args()
    print("| data | records | commit | seconds | processor seconds | peak memory, GiB |\n|---|---|---|---|---|---|")
    for name in args.datasets:
        records = load_dataset(name, data_dir=args.data_dir)
        with tempfile.TemporaryDirectory() as folder:
            path = pathlib.Path(folder) / "records.npz"
            chosen = slice(args.records)
            np.savez(path, x=records.images[chosen], y=records.labels[chosen])
            count = len(records.labels[chosen])
            del records
            runs = pathlib.Path(folder) if args.keep is None else args.keep.resolve() / name.replace(":", "_")
            for when, checkout in {"before": args.older, "after": ROOT}.items():
                words = ["train", "--method", args.method, "--epsilon", args.epsilon, "--delta", args.delta,
                         "--dataset", f"npz:{path}", "--output_dir", str(runs / when)]
                found = " | ".join(f"{value:.1f}" for value in measured(checkout.resolve(), words))
                print(f"| {name} | {count:,} | {commit(checkout)} | {found} |", flush=True)


def measured(checkout: pathlib.Path, words: list[str]) -> tuple[float, float, float]:
    """Seconds, processor seconds and largest memory in GiB of a command of a checkout."""
    start = time.monotonic()
    with subprocess.Popen([sys.executable, "-m", "datalens_tf", *words], cwd=checkout, stdout=subprocess.DEVNULL,
                          env=os.environ | {"PYTHONPATH": str(checkout)}) as process:
        _, status, used = os.wait4(process.pid, 0)
        process.returncode = os.waitstatus_to_exitcode(status)
    if process.returncode:
        sys.exit(f"datalens {' '.join(words)} in {checkout} ended with status {process.returncode}.")
    return time.monotonic() - start, used.ru_utime + used.ru_stime, used.ru_maxrss / 2**20


def commit(checkout: pathlib.Path) -> str:
    """The commit that is checked out, for the table."""
    return subprocess.run(["git", "-C", checkout, "rev-parse", "--short", "HEAD"], capture_output=True, text=True,
                          check=False).stdout.strip()


if __name__ == "__main__":
    main()
