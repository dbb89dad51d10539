"""Effects of GS-WGAN's sampling rate, steps and noise: epsilon, accuracy and Fréchet distance, one factor at a time.

    python run_scripts/studies/gs_wgan_sweep.py --output_dir OUT [--dataset mnist]

After section 5.3 of GS-WGAN (Chen et al. 2020). All else is as in BASE. The rate is one discriminator in N per step,
and each has 1/N of the records. Writes OUT/gs_wgan_sweep.csv and .png, and OUT/gradient_norms.png, which shows how long
the gradients of BASE were before and after clipping.

Every epsilon is the run's own, from its `privacy.json`. The norms are PRIVATE, computed from the records without noise:
draw them for public data, or do not share the picture.

The same command continues what was interrupted. More than an hour of processor time.
"""

import argparse
import csv
import io
import json
import pathlib

from datalens_tf import _files
from datalens_tf.accounting.accountants import round_up
from datalens_tf.data.datasets import Dataset
from datalens_tf.data.registry import load_dataset
from datalens_tf.evaluation.charts import MARKERS, PALETTE, png_bytes
from datalens_tf.evaluation.context import EFFORTS
from datalens_tf.evaluation.evaluate import evaluate
from datalens_tf.methods.gs_wgan import GsWgan, GsWganConfig
from datalens_tf.training.progress import Progress

BASE = {"num_discriminators": 500, "num_steps": 2000, "noise_multiplier": 0.4}
SWEPT = {"num_discriminators": (125, 1000), "num_steps": (500, 8000), "noise_multiplier": (0.1, 0.2, 0.8)}
NAMES = {"num_discriminators": "discriminators, N (rate 1/N)", "num_steps": "steps",
         "noise_multiplier": "noise, in joint sensitivities"}
BUDGET = 1e4  # So that nothing stops early: what was spent is what is reported.
COLUMNS = (*BASE, "epsilon", "delta", "accountant", "adjacency", "epsilon as published (wrong)", "accuracy", "frechet")


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--output_dir", type=pathlib.Path, required=True)
    parser.add_argument("--dataset", default="mnist", help="as for `datalens train`")
    args = parser.parse_args()
    args.output_dir.mkdir(parents=True, exist_ok=True)

    train, test = load_dataset(args.dataset), load_dataset(args.dataset, split="test")
    settings = [BASE, *(BASE | {name: value} for name, values in SWEPT.items() for value in values)]
    rows = [measured(setting, train, test, args.output_dir) for setting in settings]
    _files.atomic_write(args.output_dir / "gs_wgan_sweep.csv", as_csv(rows))
    _files.atomic_write(args.output_dir / "gs_wgan_sweep.png", png_bytes(draw_sweep(rows)))
    norms = json.loads((folder_of(BASE, train, args.output_dir) / "private" / "gradient_norms.json").read_text())
    _files.atomic_write(args.output_dir / "gradient_norms.png", png_bytes(draw_norms(norms)))
    print(as_csv(rows), end="")


def folder_of(setting: dict[str, float], train: Dataset, output_dir: pathlib.Path) -> pathlib.Path:
    name = "N{num_discriminators}_T{num_steps}_noise{noise_multiplier:g}".format(**setting)
    return output_dir / train.name.replace(":", "_") / name


def measured(setting: dict[str, float], train: Dataset, test: Dataset, output_dir: pathlib.Path) -> dict[str, object]:
    """A row of the table: trains and evaluates, unless that is done."""
    folder = folder_of(setting, train, output_dir)
    if (folder / "row.json").exists():
        return json.loads((folder / "row.json").read_text())
    config = GsWganConfig(dataset=train.name, epsilon=BUDGET, warmup_steps=20, **setting)
    run = GsWgan(config, run_dir=folder, callbacks=[Progress(config.epsilon)]).fit_dataset(train)
    found = evaluate(lambda seed: run.sample(10_000, seed=seed), train, test, source=folder.name, varied="nothing",
                     effort=EFFORTS["quick"], metrics=("utility", "quality")).metrics
    statement = run.privacy_statement()
    row = setting | {
        "epsilon": round_up(statement["epsilon"]), "delta": statement["delta"], "accountant": statement["accountant"],
        "adjacency": statement["adjacency"],
        "epsilon as published (wrong)": round_up(statement["invalid_epsilon_as_published"]),
        "accuracy": round(found["utility"]["accuracy_mean"], 4),
        "frechet": round(found["quality"]["frechet_domain_classifier"]["value"], 1)}
    _files.atomic_write(folder / "row.json", json.dumps(row) + "\n")
    return row


def as_csv(rows: list[dict[str, object]]) -> str:
    text = io.StringIO()
    writer = csv.DictWriter(text, COLUMNS, lineterminator="\n")
    writer.writeheader()
    writer.writerows(rows)
    return text.getvalue()


def draw_sweep(rows: list[dict[str, object]]):
    """A column of panels for each factor: accuracy above, epsilon below."""
    from matplotlib.figure import Figure

    figure = Figure(figsize=(9.5, 4.8), layout="constrained")
    for column, (name, panels) in enumerate(zip(SWEPT, figure.subplots(2, 3, sharex="col", sharey="row").T)):
        mine = sorted((row for row in rows if all(row[other] == BASE[other] for other in BASE if other != name)),
                      key=lambda row: row[name])
        for axes, value in zip(panels, ("accuracy", "epsilon")):
            axes.plot([row[name] for row in mine], [float(row[value]) for row in mine], color=PALETTE[column + 1],
                      marker=MARKERS[column], lw=1.5)
            axes.set(xscale="log")
            axes.grid(alpha=0.25)
            axes.spines[["top", "right"]].set_visible(False)
            axes.set_xticks([row[name] for row in mine], [f"{row[name]:g}" for row in mine], minor=False)
            axes.set_xticks([], minor=True)
            if column == 0:
                axes.set_ylabel({"accuracy": "accuracy on real test data"}.get(value, value))
        panels[0].set(ylim=(0, 1))
        panels[1].set(yscale="log", xlabel=NAMES[name])
    return figure


def draw_norms(norms: dict[str, object]):
    """Histograms of the gradients' l2 norms, before and after clipping."""
    from matplotlib.figure import Figure

    figure = Figure(figsize=(5.6, 3.2), layout="constrained")
    axes = figure.subplots()
    edges = norms["edges"][1:]  # From the first edge above 0; norms below it are counted with it.
    for name, colour, style in (("before_clipping", PALETTE[0], "-"), ("after_clipping", PALETTE[2], "--")):
        counts = norms[name]
        axes.stairs([counts[0] + counts[1], *counts[2:-1]], edges, color=colour, ls=style, lw=1.5,
                    label=name.replace("_", " "))
    axes.axvline(norms["clip_norm"], color="0.5", lw=1)
    axes.annotate("clip_norm", (norms["clip_norm"], 1), xycoords=("data", "axes fraction"), xytext=(3, -10),
                  textcoords="offset points", color="0.35")
    axes.set(xscale="log", xlabel="l2 norm of an image's gradient", ylabel="gradients")
    axes.grid(alpha=0.25)
    axes.spines[["top", "right"]].set_visible(False)
    axes.legend(frameon=False, loc="upper left")
    return figure


if __name__ == "__main__":
    main()
