"""DataLens+ without each of its parts, at equal epsilon: trains and evaluates what is missing, and writes the table.

    python run_scripts/reproduce/plus_ablation.py --runs_dir RUNS [--dataset mnist] [--epsilon 1] [--seeds 1]
        [--parts whole no_warp ...] [--only_table] [-- FLAGS OF datalens train]

Where a part is left out, its charges go to the other parts: all rows have 100 charges, so the same noise per charge and
the whole budget. A cell is a run folder RUNS/PART_DATASET_epsEPSILON_seedSEED; the same command continues what was
interrupted and skips what is done. RUNS/plus_ablation.md is written after every cell.
"""

import argparse
import dataclasses
import json
import pathlib
import statistics
from typing import Any

from cells import fill
from table1 import PLUS

from datalens_tf import _files
from datalens_tf.accounting.accountants import round_up
from datalens_tf.config import MethodConfig
from datalens_tf.methods.registry import config_class
from datalens_tf.training.results import result_file

DEFAULTS = config_class(PLUS)
_BOTH = "moments+prototypes"


def _warped(source: str) -> str:
    return ",".join(f"{source}:{warp}:0.15" for warp in (0, 0.75, 1.5))


_ONE_GAUSSIAN = {"num_clusters": 1, "direction_charges": 0, "cluster_charges": 0}
_MOMENTS_ALONE = {"candidates": _warped("moments"), "embedding_charges": 0, "prototype_charges": 0}
_MEANS_ALONE = _MOMENTS_ALONE | _ONE_GAUSSIAN | {"mean_charges": 97, "covariance_charges": 1}
# Part -> what is changed: for a small budget, and for one that pays for clusters.
SMALL = {
    "whole": {},
    "no_warp": {"candidates": f"{_BOTH}:0:0.15,prototypes:0:0.15"},
    "no_grain": {"candidates": ",".join(f"{source}:{warp}" for source in (_BOTH, "prototypes")
                                        for warp in (0, 0.75, 1.5))},
    "no_choice": {"candidates": f"{_BOTH}:1.5:0.15", "selection_charges": 0, "covariance_charges": 37},
    "an_embedding_beside": {"candidates": _warped(f"{_BOTH}+embedding"), "prototype_charges": 30,
                            "embedding_charges": 30},
    "an_embedding_instead": {"candidates": _warped("moments+embedding"), "prototype_charges": 0, "mean_charges": 6,
                             "covariance_charges": 34, "embedding_charges": 58},
    "no_moments": {"candidates": _warped("prototypes")},
    "no_prototypes_alone": {"candidates": _warped(_BOTH)},
    "moments_alone": _MOMENTS_ALONE | {"mean_charges": 15, "covariance_charges": 83},
    "means_alone": _MEANS_ALONE,
}
LARGE = {
    "whole": {},
    "no_warp": SMALL["no_warp"],
    "no_grain": SMALL["no_grain"],
    "no_clusters": _ONE_GAUSSIAN | {"mean_charges": 10, "covariance_charges": 60},
    "no_prototypes": _MOMENTS_ALONE | {"mean_charges": 4, "direction_charges": 8, "cluster_charges": 3,
                                       "covariance_charges": 71},
    "means_alone": _MEANS_ALONE,
}


def whole(epsilon: float) -> MethodConfig:
    """What the defaults come to for MNIST or Fashion-MNIST, and this budget."""
    return DEFAULTS(epsilon=epsilon, image_shape=(28, 28, 1), num_classes=10).resolved(60_000)


def parts_of(epsilon: float) -> dict[str, dict[str, Any]]:
    """The parts of the defaults for this budget."""
    return SMALL if whole(epsilon).num_clusters == 1 else LARGE


def flags_of(part: str, epsilon: float) -> list[str]:
    """Flags for the defaults without a part. Where one is changed, all must be given."""
    changes = parts_of(epsilon)[part]
    if not changes:
        return []
    made = whole(epsilon).replace(**changes, noise_multiplier=None)
    defaults = DEFAULTS(epsilon=epsilon, image_shape=made.image_shape, num_classes=made.num_classes)
    return [_flag(field.name, getattr(made, field.name)) for field in dataclasses.fields(made)
            if getattr(made, field.name) != getattr(defaults, field.name)]


def _flag(name: str, value: Any) -> str:
    if isinstance(value, bool):
        return f"--{name}" if value else f"--no_{name}"
    return f"--{name}={value}"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--runs_dir", type=pathlib.Path, required=True)
    parser.add_argument("--dataset", default="mnist")
    parser.add_argument("--epsilon", type=float, default=1.0)
    parser.add_argument("--seeds", type=int, default=1, help="how many")
    parser.add_argument("--classifiers", type=int, default=1, help="how many are trained to measure a generator")
    parser.add_argument("--parts", nargs="+", choices={**SMALL, **LARGE}, help="default: all of that epsilon")
    parser.add_argument("--only_table", action="store_true", help="of what there is")
    parser.add_argument("flags", nargs="*", help="of datalens train, after --")
    args = parser.parse_args()
    parts = parts_of(args.epsilon)
    for part in args.parts or ():
        if part not in parts:
            parser.error(f"Expected --parts among {', '.join(parts)} at epsilon {args.epsilon:g}, got {part}.")
    if not args.only_table:
        for seed in range(args.seeds):
            for part in args.parts or parts:
                fill(args.runs_dir / f"{part}_{args.dataset}_eps{args.epsilon:g}_seed{seed}",
                     [f"--method={PLUS}", f"--dataset={args.dataset}", f"--epsilon={args.epsilon}",
                      f"--seed={seed}", *flags_of(part, args.epsilon), *args.flags],
                     ["--metrics=utility", f"--seeds={args.classifiers}"])
                write_table(args.runs_dir, args.dataset, args.epsilon)
    print(write_table(args.runs_dir, args.dataset, args.epsilon), end="")


def write_table(runs_dir: pathlib.Path, dataset: str, epsilon: float) -> str:
    """Writes plus_ablation.md, and returns it."""
    columns = ("variant", "charges: embedding, prototypes, means, covariances, choice", "candidates", "epsilon",
               "accountant", "accuracy", "std", "runs")
    lines = [" | ".join(columns), "|".join(["---"] * len(columns))]
    for part in parts_of(epsilon):
        folders = [path for path in sorted(runs_dir.glob(f"{part}_{dataset}_eps{epsilon:g}_seed*"))
                   if result_file(path).exists()]
        if not folders:
            continue
        config, statement = (json.loads((folders[0] / name).read_text()) for name in ("config.json", "privacy.json"))
        accuracies = [json.loads(result_file(folder).read_text())["utility"]["accuracy_mean"]
                      for folder in folders]
        charges = ", ".join(str(config[f"{name}_charges"]) for name in (
            "embedding", "prototype", "mean", "covariance", "selection"))
        lines.append(" | ".join((
            part, charges, config["candidates"], round_up(statement["epsilon"]), statement["accountant"],
            f"{statistics.fmean(accuracies):.4f}", f"{statistics.stdev(accuracies):.4f}" if accuracies[1:] else "-",
            str(len(accuracies)))))
    markdown = "".join(f"| {line} |\n" for line in lines)
    _files.atomic_write(runs_dir / "plus_ablation.md", markdown)
    return markdown


if __name__ == "__main__":
    main()
