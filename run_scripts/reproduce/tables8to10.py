"""Tables 8, 9 and 10 of the DataLens paper, DP-SGD with TopAgg: trains what is missing, and writes the table.

    python run_scripts/reproduce/tables8to10.py --table 8 | 9 | 10 --runs_dir RUNS [--epsilons 0.2 1] [--ks 0.8 1]
        [--seeds 3] [--dataset mnist] [--only_table] [-- FLAGS OF datalens classify]

A cell is a run of `datalens classify` in RUNS/NAME_epsEPSILON_seedSEED. The same command continues what was
interrupted and skips what is done. RUNS/tableN.md and tableN.csv are written after every cell, from all cells that
there are. A cell takes minutes to an hour on one core.

Table 8: TopAgg by k; k = 1 is GM-DP. Table 9: the same, compared with shares of coordinates (`--ks` is then ignored).
Table 10: with and without compression, with the noise of GM-DP, of TopAgg (cells of table 8), or none, for the same
number of steps.

Settings are those of the paper's table 11 where it has any: for epsilon 0.05, 0.2 (k = 0.8) and 1. For other epsilons
and ks we chose the nearest settings of that table. The number of steps follows from noise, sampling rate and epsilon,
by the accountant. Accuracies are of the last step, on the real test split. The paper's own accuracies are the means of
ten seeds.
"""

import argparse
import csv
import io
import json
import math
import pathlib
import statistics
import subprocess
import sys
from collections.abc import Sequence

from datalens_tf import _files
from datalens_tf.accounting.accountants import round_up
from datalens_tf.classification.classifier_config import ClassifierConfig
from datalens_tf.data.registry import load_dataset
from datalens_tf.training.results import result_file

_ADJACENCY = "add-or-remove-one"  # of the paper's epsilons
# Epsilon -> k -> C, sigma, batch size, learning rate.
TABLE_11 = {
    0.05: {0.6: (10.0, 5.8, 128, 0.01), 0.7: (5.0, 6.6, 128, 0.01), 0.8: (5.0, 7.4, 128, 0.01),
           1.0: (3.0, 8.2, 128, 0.01)},
    0.2: {0.8: (10.0, 3.6, 512, 0.1)},
    1.0: {0.6: (16.0, 1.6, 512, 0.08), 0.7: (12.0, 1.6, 512, 0.1), 0.8: (10.0, 1.6, 512, 0.1),
          1.0: (14.0, 1.8, 512, 0.04)},
}
# (Kind, k) -> epsilon -> accuracy. Kinds: `norm` for TopAgg with its own noise (k = 1 is GM-DP), `dimensions`, and, for
# table 10, those with the noise of plain DP-SGD or with none.
PUBLISHED = {
    ("norm", 0.6): {0.05: 73.87, 0.1: 85.67, 0.2: 89.84}, ("norm", 0.7): {0.05: 75.81, 0.1: 86.12, 0.2: 90.25},
    ("norm", 0.8): {0.05: 77.15, 0.1: 85.88, 0.2: 90.80, 0.3: 92.35, 0.5: 93.82, 0.7: 94.65, 1.0: 95.42},
    ("norm", 1.0): {0.05: 78.40, 0.1: 84.55, 0.2: 91.17, 0.3: 93.31, 0.5: 94.38, 0.7: 95.08, 1.0: 95.41},
    ("dimensions", 0.2): {0.05: 74.25, 0.1: 83.65, 0.2: 89.10},
    ("dimensions", 0.4): {0.05: 78.45, 0.1: 85.59, 0.2: 90.48},
    ("dimensions", 0.6): {0.05: 73.55, 0.1: 86.41, 0.2: 89.30},
    ("full_noise", 0.8): {0.1: 83.86, 1.0: 94.95}, ("full_noise", 1.0): {0.1: 85.05, 1.0: 95.56},
    ("no_noise", 0.8): {0.1: 91.96, 1.0: 98.03}, ("no_noise", 1.0): {0.1: 94.26, 1.0: 98.94},
}
EPSILONS = {8: (0.05, 0.1, 0.2, 0.3, 0.5, 0.7, 1.0), 9: (0.05, 0.1, 0.2), 10: (0.1, 1.0)}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--table", type=int, choices=(8, 9, 10), required=True)
    parser.add_argument("--runs_dir", type=pathlib.Path, required=True)
    parser.add_argument("--epsilons", nargs="+", type=float, help="by default those of the table")
    parser.add_argument("--ks", nargs="+", type=float, default=[0.6, 0.7, 0.8, 1.0], help="of table 8")
    parser.add_argument("--seeds", type=int, default=3, help="how many")
    parser.add_argument("--dataset", default="mnist")
    parser.add_argument("--only_table", action="store_true", help="of what there is")
    parser.add_argument("flags", nargs="*", help="of datalens classify, after --")
    args = parser.parse_args()
    epsilons = args.epsilons or EPSILONS[args.table]
    if not args.only_table:
        num_records = len(load_dataset(args.dataset))
        for seed in range(args.seeds):
            for epsilon in epsilons:
                for kind, k in cells(args.table, args.ks):
                    fill(args.runs_dir / f"{kind}{k:g}_eps{epsilon:g}_seed{seed}", args.dataset, seed,
                         flags(kind, k, epsilon, num_records), args.flags)
                    write_table(args.table, epsilons, args.runs_dir, cells(args.table, args.ks))
    print(write_table(args.table, epsilons, args.runs_dir, cells(args.table, args.ks)), end="")


def cells(table: int, ks: list[float]) -> list[tuple[str, float]]:
    """The columns of a table."""
    if table == 8:
        return [("norm", k) for k in ks]
    if table == 9:
        return [("norm", 0.6), ("norm", 0.7), ("norm", 0.8), ("dimensions", 0.2), ("dimensions", 0.4),
                ("dimensions", 0.6), ("norm", 1.0)]
    return [("full_noise", 0.8), ("norm", 0.8), ("no_noise", 0.8), ("full_noise", 1.0), ("no_noise", 1.0)]


def settings(epsilon: float, k: float) -> tuple[float, float, int, float]:
    """Settings of table 11, or the nearest ones there."""
    # Of two equally near ones, as for 0.1, those of the larger epsilon, with less than a tenth of the records to see.
    by_k = TABLE_11[min(TABLE_11, key=lambda known: (round(abs(math.log(known / epsilon)), 6), -known))]
    return by_k[min(by_k, key=lambda known: abs(known - k))]


def flags(kind: str, k: float, epsilon: float, num_records: int) -> dict[str, str]:
    """Flags of `datalens classify`."""
    # Table 10 varies nothing but compression and noise.
    clip_norm, sigma, batch_size, learning_rate = settings(
        epsilon, 0.8 if kind.endswith("_noise") else 1.0 if kind == "dimensions" else k)
    found = {"adjacency": _ADJACENCY, "clip_norm": clip_norm, "batch_size": batch_size, "learning_rate": learning_rate,
             "top_k_dimensions" if kind == "dimensions" else "top_k_norm": k, "epsilon": epsilon}
    if kind == "no_noise":
        found["epsilon"] = "none"
    else:  # noise_multiplier is in units of the sensitivity, which compression makes smaller.
        found["noise_multiplier"] = sigma / math.sqrt(k) if kind == "full_noise" else sigma
    if kind.endswith("_noise"):
        found["num_steps"] = ClassifierConfig(
            adjacency=_ADJACENCY, epsilon=epsilon, batch_size=batch_size,
            noise_multiplier=sigma).resolved(num_records).num_steps
    return {name: str(value) for name, value in found.items()}


def fill(folder: pathlib.Path, dataset: str, seed: int, values: dict[str, str], given: list[str]) -> None:
    """Trains one cell, unless that is done."""
    if result_file(folder, "accuracy.json").exists():
        return
    resume = ["--resume"] if (folder / "private/data.json").exists() else []
    words = [f"--{name}={value}" for name, value in values.items()] + given
    print(f"{folder.name}: {' '.join(words)}", file=sys.stderr, flush=True)
    status = subprocess.run(
        [sys.executable, "-m", "datalens_tf", "classify", f"--output_dir={folder}", f"--dataset={dataset}",
         f"--seed={seed}", *words, *resume], stdout=subprocess.DEVNULL, check=False).returncode
    if status:
        sys.exit(status)


def write_table(table: int, epsilons: Sequence[float], runs_dir: pathlib.Path, columns: list[tuple[str, float]]) -> str:
    """Writes tableN.md and tableN.csv, and returns the former."""
    rows = [row for epsilon in epsilons for kind, k in columns if (row := measured(runs_dir, kind, k, epsilon))]
    if not rows:
        return ""
    names = list(rows[0])
    lines = [names, ["---"] * len(names), *([str(row[name]) for name in names] for row in rows)]
    markdown = "".join(f"| {' | '.join(line)} |\n" for line in lines)
    text = io.StringIO()
    writer = csv.DictWriter(text, names, lineterminator="\n")
    writer.writeheader()
    writer.writerows(rows)
    _files.atomic_write(runs_dir / f"table{table}.md", markdown)
    _files.atomic_write(runs_dir / f"table{table}.csv", text.getvalue())
    return markdown


def measured(runs_dir: pathlib.Path, kind: str, k: float, epsilon: float) -> dict[str, object] | None:
    """A row, from the finished runs of a cell; None where there are none."""
    found = [path for path in sorted(runs_dir.glob(f"{kind}{k:g}_eps{epsilon:g}_seed*"))
             if result_file(path, "accuracy.json").exists()]
    if not found:
        return None
    accuracies = [100 * json.loads(result_file(folder, "accuracy.json").read_text())["accuracy"] for folder in found]
    statements = [json.loads((folder / "privacy.json").read_text()) for folder in found]
    spent = [statement["epsilon"] for statement in statements]
    config = ClassifierConfig.from_json((found[0] / "config.json").read_text())
    return {
        "cell": f"{kind}, k = {k:g}", "epsilon budget": f"{epsilon:g}",
        "epsilon spent": "none: NOT PRIVATE" if None in spent else round_up(max(spent)),
        "C": f"{config.clip_norm:g}", "noise / sensitivity": f"{config.noise_multiplier or 0:.4g}",
        "batch": config.batch_size, "learning rate": f"{config.learning_rate:g}", "steps": config.num_steps,
        "accuracy, %": f"{statistics.fmean(accuracies):.2f}"
        + (f" ± {statistics.stdev(accuracies):.2f}" if len(found) > 1 else ""),
        "seeds": len(found), "published, %": PUBLISHED.get((kind, k), {}).get(epsilon, "")}


if __name__ == "__main__":
    main()
