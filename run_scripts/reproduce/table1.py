"""Tables 1 and 2 of the DataLens paper, with more methods: trains and evaluates what is missing, and writes the table.

    python run_scripts/reproduce/table1.py --runs_dir RUNS [--methods dp_merf dp_gan ...] [--datasets mnist ...]
        [--epsilons 1 10] [--seeds 1] [--classifiers 3] [--size small | full] [--only_table]

A cell of the table is a run folder RUNS/METHOD_DATASET_epsEPSILON_seedSEED. The same command continues what was
interrupted and skips what is done; RUNS/costs has what each took. RUNS/table1.md and table1.csv are written after every
cell, with a row for each run folder in RUNS, whatever the command asked for.

`small` fits two cores: minutes to an hour per cell. `full` is the size of the papers where they state one, for a GPU.
"""

import argparse
import json
import pathlib
import statistics
import sys
from collections.abc import Sequence
from typing import Any

from cells import Cell, costs_of, fill

from datalens_tf import _files
from datalens_tf.accounting.accountants import round_up
from datalens_tf.config import ACCOUNTANTS
from datalens_tf.evaluation import comparison, references
from datalens_tf.methods.registry import having
from datalens_tf.training.results import result_file

(PLUS,) = having(["share_covariance"])  # DataLens+
# In the order of the table. Other settings are the method's defaults, or its preset's.
SMALL = {
    "dcgan": [],
    "dp_gan": [],
    "dp_cgan": [],
    "pate_gan": ["--num_steps", "150"],
    "g_pate": [],
    "pate_cgan": [],
    "gs_wgan": ["--num_steps", "5000"],
    "dp_merf": [],
    "datalens": ["--output_contrast", "2"],
    PLUS: [],
}
# The width that DataLens' generator has by default.
GENERATOR = ["--generator_filters", "128", "--generator_units", "1024"]
FULL = {
    "dcgan": ["--num_steps", "20000", "--discriminator_filters", "64", *GENERATOR],
    "dp_gan": ["--num_steps", "20000", "--batch_size", "2048", "--discriminator_filters", "64"],
    "dp_cgan": ["--num_steps", "20000", "--batch_size", "2048", "--discriminator_filters", "64"],
    "pate_gan": ["--num_teachers", "4000", "--discriminator_filters", "32", "--discriminator_units", "128", *GENERATOR],
    "g_pate": ["--batch_size", "64", "--discriminator_filters", "32", "--discriminator_units", "128", *GENERATOR],
    "pate_cgan": GENERATOR,
    "gs_wgan": ["--num_steps", "20000", "--critic_filters", "64", *GENERATOR],
    "dp_merf": ["--num_features", "10000"],
    "datalens": ["--output_contrast", "2"],
    PLUS: ["--num_features", "10000"],
}
SIZES = {"small": SMALL, "full": FULL}
FRONTIER = {"methods": [PLUS, "dp_merf"], "epsilons": [0.1, 0.2, 1, 10]}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--runs_dir", type=pathlib.Path, required=True)
    parser.add_argument("--methods", nargs="+", choices=SMALL, default=list(SMALL))
    parser.add_argument("--datasets", nargs="+", default=["mnist", "fashion_mnist"])
    parser.add_argument("--epsilons", nargs="+", type=float, default=[1, 10])
    parser.add_argument("--seeds", type=int, default=1, help="how many")
    parser.add_argument("--classifiers", type=int, default=3, help="how many are trained to measure a generator")
    parser.add_argument("--size", choices=SIZES, default="small")
    parser.add_argument("--frontier", action="store_true", help="two methods at four epsilons, unless others are named")
    parser.add_argument("--only_table", action="store_true", help="of what there is")
    if "--frontier" in sys.argv:
        parser.set_defaults(**FRONTIER)
    args = parser.parse_args()
    if not args.only_table:
        for seed in range(args.seeds):
            for dataset in args.datasets:
                for method in args.methods:
                    for epsilon in [None] if method == "dcgan" else args.epsilons:
                        found = cell(method, dataset, epsilon, seed, size=args.size, classifiers=args.classifiers)
                        fill(args.runs_dir / found.name, found.train, found.evaluate)
                        write_table(args.runs_dir)
    print(write_table(args.runs_dir), end="")


def cell(method: str, dataset: str, epsilon: float | None, seed: int, *, size: str = "small", classifiers: int = 1,
         flags: Sequence[str] = (), **more: Any) -> Cell:
    """A cell of Table 1; epsilon None means no privacy.

    Args:
      method, dataset, epsilon, seed: see `Cell`.
      size: a key of `SIZES`.
      classifiers: how many are trained to measure the generator.
      flags: flags of the training, in addition to those of the size.
      more: further attributes of `Cell`.
    """
    shown = "none" if epsilon is None else f"{epsilon:g}"
    return Cell(
        name=f"{method}_{dataset}_eps{shown}_seed{seed}", method=method, dataset=dataset, epsilon=epsilon, seed=seed,
        train=(f"--method={method}", f"--preset={dataset}", f"--epsilon={shown}", f"--seed={seed}",
               *SIZES[size][method], *flags),
        evaluate=("--metrics=utility,quality", f"--seeds={classifiers}"), **{"tables": ("1",), **more})


def write_table(runs_dir: pathlib.Path) -> str:
    """Writes table1.md and table1.csv, and returns the former."""
    results = [comparison.read_result(folder) for folder in sorted(runs_dir.glob("*_*_eps*_seed*"))
               if result_file(folder).exists()]
    if not results:
        return ""
    rows = [row | more(list(map(pathlib.Path, row["runs"].split(" ")))) for row in comparison.table(results)]
    _files.atomic_write(runs_dir / "table1.md", comparison.markdown(rows))
    _files.atomic_write(runs_dir / "table1.csv", comparison.csv_text(rows))
    return comparison.markdown(rows)


def more(runs: list[pathlib.Path]) -> dict[str, str]:
    """Columns for runs that differ only in seeds: epsilon by each accountant, cost of training, published accuracy."""
    statement = json.loads((runs[0] / "privacy.json").read_text())
    costs = [found["training"] for run in runs if (found := costs_of(run))]
    published = references.published(statement["method"], statement["dataset"], statement.get("epsilon_budget"))
    epsilons = statement.get("epsilon_by_accountant") or {}
    return {
        **{f"epsilon, {name}": "" if epsilons.get(name) is None else round_up(epsilons[name]) for name in ACCOUNTANTS},
        "minutes of training": f"{statistics.fmean(cost['seconds'] for cost in costs) / 60:.0f}" if costs else "",
        "peak memory, GiB": f"{max(cost['peak_memory_gib'] for cost in costs):.1f}" if costs else "",
        "published": "; ".join(f"{value:.3f} ({source})" for source, value in published.items()),
        "runs": " ".join(run.name for run in runs)}


if __name__ == "__main__":
    main()
