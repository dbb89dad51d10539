"""Shared code of the scripts of Tables 4, 5 and 7: variants of one method, trained and measured at equal epsilon.

Variants of a table have the same epsilon, number of steps and, unless N itself differs, number of teachers; the noise
of each is calibrated to its own sensitivity. So a variant whose votes move further has more noise, and fewer teachers
have the same noise for fewer votes. The epsilon in the table is what each run's own `privacy.json` says.

A cell is a run folder RUNS/NAME_DATASET_epsEPSILON_Nn_Tt_seedSEED, with N and T of the base; the table is written after
each cell. The same command continues what was interrupted, and skips what is done.
"""

import argparse
import csv
import dataclasses
import io
import json
import pathlib
import statistics
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from cells import Cell, fill

from datalens_tf import _files
from datalens_tf.accounting import accountants
from datalens_tf.accounting.accountants import round_up
from datalens_tf.data.registry import load_dataset
from datalens_tf.evaluation.charts import PALETTE, png_bytes
from datalens_tf.methods.datalens import DataLensConfig
from datalens_tf.methods.registry import config_class, preset
from datalens_tf.training.results import result_file

# On top of the preset. `small` has few and narrow networks, for epsilon 10: at epsilon 1 noise would drown 200 votes.
SIZES = {
    "small": {"num_teachers": 200, "num_steps": 60, "discriminator_filters": 8, "discriminator_units": 32,
              "generator_filters": 32, "generator_units": 256, "precision": "float32"},
    "full": {"num_steps": 150},
}
_OWN_FLAGS = {"method", "image_shape", "num_classes", "insecure_noise_seed", "seed"}
COLUMNS = ("variant", "N", "steps", "k", "beta", "c", "quantization", "noise stddev", "sensitivity of a step",
           "epsilon", "delta", "accountant", "accuracy", "std", "runs", "published, MNIST, epsilon 1")


@dataclasses.dataclass(frozen=True, kw_only=True)
class Variant:
    """A row of a table.

    Attributes:
      name: part of its folders' names, and its label.
      changes: settings that differ from the base's.
      method: the method that has these settings; one other than `datalens` calibrates its noise itself.
      published: the paper's accuracy on MNIST at epsilon 1.
    """

    name: str
    changes: Mapping[str, Any] = dataclasses.field(default_factory=dict)
    method: str = "datalens"
    published: float | None = None


def main(text: str, table: str, variants_of: Callable[[DataLensConfig], Sequence[Variant]]) -> None:
    """Runs the script of a table.

    Args:
      text: its documentation.
      table: name of the files that are written.
      variants_of: base settings -> rows.
    """
    parser = argparse.ArgumentParser(description=text, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--runs_dir", type=pathlib.Path, required=True)
    parser.add_argument("--dataset", default="mnist", help="one that has a preset")
    parser.add_argument("--epsilon", type=float, default=1.0)
    parser.add_argument("--settings_of", type=float, choices=(1.0, 10.0), default=None,
                        help="the paper's settings for this epsilon, by default the nearer one")
    parser.add_argument("--seeds", type=int, default=3, help="how many")
    parser.add_argument("--classifiers", type=int, default=1, help="how many are trained to measure a generator")
    parser.add_argument("--size", choices=SIZES, default="full", help="small: minutes per cell, for trying it out")
    parser.add_argument("--teachers", type=int, default=None, help="instead of the size's")
    parser.add_argument("--steps", type=int, default=None, help="instead of the size's")
    parser.add_argument("--variants", nargs="+", default=None, help="names of the rows to train; by default all")
    parser.add_argument("--only_table", action="store_true", help="of what there is")
    args = parser.parse_args()
    size = SIZES[args.size] | {name: value for name, value in (
        ("num_teachers", args.teachers), ("num_steps", args.steps)) if value is not None}
    base = preset(args.dataset, args.settings_of or args.epsilon).replace(epsilon=args.epsilon, **size)
    variants = variants_of(base)
    unknown = sorted(set(args.variants or ()) - {row.name for row in variants})
    if unknown:
        parser.error(f"Expected --variants of {', '.join(row.name for row in variants)}, got {', '.join(unknown)}.")
    if not args.only_table:
        image_shape = load_dataset(args.dataset).image_shape
        for seed in range(args.seeds):
            for variant in [row for row in variants if args.variants is None or row.name in args.variants]:
                found = cell(base, variant, seed, image_shape, args.classifiers, quick=args.size == "small")
                fill(args.runs_dir / found.name, found.train, found.evaluate)
                write_table(args.runs_dir, table, base, variants)
    print(write_table(args.runs_dir, table, base, variants), end="")


def cell(base: DataLensConfig, variant: Variant, seed: int, image_shape: tuple[int, int, int], classifiers: int = 1,
         quick: bool = False, tables: Sequence[str] = ()) -> Cell:
    """A cell of a row: base settings with the variant's changes.

    Args:
      base, variant: see `Variant`.
      seed: of training.
      image_shape: of the data.
      classifiers: how many are trained to measure the generator.
      quick: whether it is measured by the quick evaluation.
      tables: see `Cell`.
    """
    flags = [f"--{key}" if value is True else f"--{key}={'none' if value is None else value}"
             for key, value in settings_of(base, variant, image_shape).items()
             if key not in _OWN_FLAGS and value is not False]
    return Cell(
        name=folder_name(base, variant, seed), tables=tuple(tables), method=variant.method, dataset=base.dataset,
        epsilon=base.epsilon, seed=seed, train=(f"--method={variant.method}", f"--seed={seed}", *flags),
        evaluate=("--metrics=utility", f"--seeds={classifiers}", *(["--quick"] if quick else [])),
        variant=f"{base.num_teachers} teachers: {variant.name}")


def folder_name(base: DataLensConfig, variant: Variant, seed: int | str) -> str:
    equal = f"{base.dataset}_eps{base.epsilon:g}_N{base.num_teachers}_T{base.num_steps}"
    return f"{variant.name}_{equal}_seed{seed}"


def calibrated(config: DataLensConfig, image_shape: tuple[int, int, int]) -> DataLensConfig:
    """Settings with the noise at which their steps cost their epsilon, at their own sensitivity."""
    multiplier = accountants.calibrate_noise_multiplier(
        config.num_steps, config.epsilon, config.delta, config.accountant)
    sensitivity = config.replace(image_shape=image_shape).mechanism().l2_sensitivity(config.batch_size)
    return config.replace(noise_stddev=multiplier * sensitivity)


def settings_of(base: DataLensConfig, variant: Variant, image_shape: tuple[int, int, int]) -> dict[str, Any]:
    """All settings of a variant, for flags: the base's as far as its method has them, and its changes."""
    if variant.method == "datalens":
        return dataclasses.asdict(calibrated(base.replace(**variant.changes), image_shape))
    names = {field.name for field in dataclasses.fields(config_class(variant.method))} - {"noise_stddev"}
    return {name: value for name, value in dataclasses.asdict(base).items() if name in names} | dict(variant.changes)


def write_table(runs_dir: pathlib.Path, table: str, base: DataLensConfig, variants: Sequence[Variant]) -> str:
    """Writes TABLE.md, TABLE.csv and TABLE.png of the cells that are done, and returns the first."""
    rows = [row(variant, folders) for variant in variants if (folders := [
        path for path in sorted(runs_dir.glob(folder_name(base, variant, "*"))) if result_file(path).exists()])]
    if not rows:
        return ""
    text = io.StringIO()
    writer = csv.DictWriter(text, COLUMNS, lineterminator="\n")
    writer.writeheader()
    writer.writerows(rows)
    lines = [" | ".join(COLUMNS), "|".join(["---"] * len(COLUMNS)), *(" | ".join(row.values()) for row in rows)]
    markdown = "".join(f"| {line} |\n" for line in lines)
    _files.atomic_write(runs_dir / f"{table}.csv", text.getvalue())
    _files.atomic_write(runs_dir / f"{table}.md", markdown)
    _files.atomic_write(runs_dir / f"{table}.png", png_bytes(draw(rows, f"{base.dataset}, epsilon {base.epsilon:g}")))
    return markdown


def row(variant: Variant, folders: Sequence[pathlib.Path]) -> dict[str, str]:
    """A row, as text, from runs that differ only in seeds; settings and statement are those of the first run."""
    config, statement = (json.loads((folders[0] / name).read_text()) for name in ("config.json", "privacy.json"))
    accuracies = [json.loads(result_file(folder).read_text())["utility"]["accuracy_mean"] for folder in folders]
    beta, clip = (config.get(name) for name in ("vote_threshold", "clip"))
    votes = statement.get("top_k", statement.get("padded_dimension"))
    cells = (variant.name, config["num_teachers"], statement["num_steps"], votes, "none" if beta is None else beta,
             "none" if clip is None else clip, config.get("quantization", "stochastic"),
             f"{statement['noise_stddev']:.1f}", f"{statement['l2_sensitivity']:.1f}", round_up(statement["epsilon"]),
             f"{statement['delta']:g}", statement["accountant"], f"{statistics.fmean(accuracies):.4f}",
             f"{statistics.stdev(accuracies):.4f}" if len(accuracies) > 1 else "-", len(accuracies),
             variant.published or "-")
    return dict(zip(COLUMNS, map(str, cells)))


def draw(rows: Sequence[Mapping[str, str]], title: str):
    """Accuracies of the variants; bars are standard deviations over seeds."""
    from matplotlib.figure import Figure

    figure = Figure(figsize=(6.4, 1.2 + 0.28 * len(rows)), layout="constrained")
    axes = figure.subplots()
    places = range(len(rows))
    axes.errorbar([float(row["accuracy"]) for row in rows], places, fmt="o", color=PALETTE[1], capsize=3,
                  xerr=[0.0 if row["std"] == "-" else float(row["std"]) for row in rows])
    axes.set_yticks(places, [row["variant"] for row in rows])
    axes.set(xlabel="accuracy on real test data", title=title, xlim=(0, 1))
    axes.invert_yaxis()
    axes.grid(alpha=0.25)
    axes.spines[["top", "right"]].set_visible(False)
    return figure
