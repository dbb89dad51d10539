"""Measures what enters Theorem 6, on teachers' gradients; draws docs/research/convergence_bound.png. NOT PRIVATE.

    python run_scripts/studies/convergence.py --output_dir OUT [--preset mnist] [--epsilon 1] [--num_teachers 40]

Trains a small ensemble and looks at its gradients before they are compressed: how much of them the k largest
coordinates leave out (tau_k), how heavy their tails are, how far teachers agree. All of that reveals information about
records, and no epsilon covers it. Run it on public data, or keep its results to yourself: they do not belong in a
release, and the run folder is deleted. `datalens plan` takes the consensus and the tail shape (of the mean gradient)
that this prints.

Gradients are in units of the clip, so that a vote is one unit. The bound is drawn for the preset's own number of
teachers, and for its noise at equal epsilon, sigma ~ sqrt(k). Two things in it are assumed, not measured: the gap, ln 2
of every image's loss, and the smoothness L.
"""

import argparse
import json
import math
import os
import pathlib
import tempfile

import numpy as np
import tensorflow as tf

from datalens_tf.data.registry import load_dataset
from datalens_tf.evaluation.charts import PALETTE, png_bytes
from datalens_tf.mechanisms.topagg import TopAgg
from datalens_tf.methods.datalens import DataLensConfig
from datalens_tf.methods.registry import preset
from datalens_tf.planning.convergence import (
    noise_constant,
    progress_factor,
    tau,
    theorem_6,
    weibull_magnitudes,
    weibull_shape,
)
from datalens_tf.training.progress import Progress
from datalens_tf.training.trainer import Trainer

SEEN: list[np.ndarray] = []  # Gradients [T, m, d] of chunks of teachers, one after the other. PRIVATE.


class Watched(TopAgg):
    """TopAgg that keeps the gradients that it compresses."""

    def compress(self, gradients, seeds):
        kept = tf.numpy_function(_keep, [gradients], tf.float32)
        return super().compress(tf.ensure_shape(kept, gradients.shape), seeds)


def _keep(gradients: np.ndarray) -> np.ndarray:
    SEEN.append(gradients.copy())
    return gradients


def watched(full: DataLensConfig, num_teachers: int, num_steps: int) -> tuple[DataLensConfig, np.ndarray]:
    """Settings of a small training, with the full one's noise per teacher, and its gradients. PRIVATE.

    Returns:
      The settings, and gradients [num_steps, num_teachers, m, d] before compression.
    """
    dataset = load_dataset(full.dataset)
    small = full.replace(
        num_teachers=num_teachers, noise_stddev=full.noise_stddev * num_teachers / full.num_teachers,
        num_steps=num_steps, epsilon=1e6, discriminator_filters=8, discriminator_units=32, generator_filters=32,
        generator_units=256, image_shape=dataset.image_shape, num_classes=dataset.num_classes)
    SEEN.clear()
    with tempfile.TemporaryDirectory() as folder:
        Trainer(small, dataset, folder, mechanism=Watched(**vars(small.mechanism())),
                callbacks=[Progress(small.epsilon)]).run()
    return small, np.concatenate(SEEN).reshape(num_steps, num_teachers, *SEEN[0].shape[1:])


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--preset", default="mnist")
    parser.add_argument("--epsilon", type=float, default=1.0)
    parser.add_argument("--num_teachers", type=int, default=40)
    parser.add_argument("--num_steps", type=int, default=10)
    parser.add_argument("--smoothness", type=float, default=None,
                        help="L, in clips per pixel unit; by default 2 M: gradients may turn around within one unit")
    parser.add_argument("--output_dir", type=pathlib.Path, required=True)
    args = parser.parse_args()
    args.output_dir.mkdir(parents=True, exist_ok=True)

    full = preset(args.preset, args.epsilon)
    small, gradients = watched(full, args.num_teachers, args.num_steps)
    found = measured(gradients / (small.clip or 1.0))
    curves = bounds(found, full, args.smoothness)
    results = {
        "PRIVATE": "computed from gradients on records without noise: not covered by any epsilon",
        "preset": args.preset, "num_teachers": args.num_teachers, "num_steps": args.num_steps,
        "gradient_unit": small.clip,
        **{name: found[name] for name in ("consensus", "tail_shape", "tail_shape_of_single_teachers", "agreement")},
        "tau": {str(k): {
            "mean": float(found["tau_mean"][k - 1]), "largest": float(found["tau_largest"][k - 1])}
            for k in sorted({full.top_k, *(2**i for i in range(int(math.log2(gradients.shape[-1])) + 1))})},
        "gradient_norm": found["gradient_norm"], "deviation_l2": found["deviation_l2"],
        "deviation_l1": found["deviation_l1"], "smoothness_assumed": curves["smoothness"],
        "left_factor": progress_factor(gradients.shape[-1]),
        "k_of_the_smallest_bound": {
            name: int(curves["k"][np.argmin(curves[f"sum, {name}"])]) for name in TOTALS}}
    descriptor = os.open(args.output_dir / "convergence.PRIVATE.json", os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600)
    with open(descriptor, "w", encoding="utf-8") as file:
        json.dump(results, file, indent=2)
    (args.output_dir / "convergence_bound.png").write_bytes(png_bytes(draw(found, curves, full)))
    print(json.dumps(results, indent=2))


def measured(gradients: np.ndarray) -> dict:
    """Quantities that Theorem 6 and the planner need, from gradients [steps, N, m, d]. PRIVATE."""
    num_teachers, dimension = gradients.shape[1], gradients.shape[-1]
    taus = tau(gradients).reshape(-1, dimension)
    deviations = gradients.std(1)  # [steps, m, d]
    signs = np.mean(np.sign(gradients), 1)
    # Signs that are fair coins have a mean square of 1/N, which is no agreement.
    consensus = math.sqrt(max(0.0, (num_teachers * np.mean(signs**2) - 1) / (num_teachers - 1)))
    magnitudes = -np.sort(-np.minimum(np.abs(gradients), 1.0), -1)
    scaled = magnitudes / np.maximum(magnitudes[..., :1], 1e-30)
    return {
        "tau_mean": np.nanmean(taus, 0), "tau_largest": np.nanmax(taus, 0), "consensus": consensus,
        "agreement": float(np.sqrt(np.mean(signs**2))), "tail_shape": weibull_shape(gradients.mean(1)),
        "tail_shape_of_single_teachers": weibull_shape(gradients[::3, ::3]),
        "gradient_norm": float(np.sqrt(np.max(np.mean(np.sum(gradients**2, -1), 1)))),
        "deviation_l2": float(np.linalg.norm(deviations, axis=-1).max()),
        "deviation_l1": float(deviations.sum(-1).max()),
        # Of votes +1 or -1 with mean `scaled`, for every k.
        "quantization_stddev": np.sqrt(np.cumsum(1 - scaled**2, -1).reshape(-1, dimension).max(0))}


TOTALS = ("noise as printed", "noise in all coordinates")


def bounds(found: dict, config, smoothness: float | None) -> dict:
    """Terms of Theorem 6 for many k; with noise at equal epsilon, whose sigma grows as sqrt(k)."""
    dimension, clip = len(found["tau_mean"]), config.clip or 1.0
    smoothness = 2 * found["gradient_norm"] if smoothness is None else smoothness
    counts = np.unique(np.rint(np.geomspace(1, dimension, 100)).astype(int))

    def bound(k, coordinates):
        stddev = config.noise_stddev * math.sqrt(k / config.top_k)
        return theorem_6(
            top_k=k, dimension=dimension, tau=float(found["tau_largest"][k - 1]), smoothness=smoothness,
            gradient_norm=found["gradient_norm"], deviation_l2=found["deviation_l2"],
            deviation_l1=found["deviation_l1"], step_size=config.step_size, num_steps=100,
            gap=math.log(2) / config.batch_size / clip, quantization_stddev=float(found["quantization_stddev"][k - 1]),
            noise_constant=noise_constant(stddev, config.num_teachers, k, coordinates))

    terms = {name: [bound(int(k), coordinates) for k in counts] for name, coordinates in zip(TOTALS, (1, dimension))}
    first = terms[TOTALS[0]][0]
    return {"k": counts, "smoothness": smoothness, "constant": first.start + first.deviation,
            "left out by top-k": np.array([term.top_k for term in terms[TOTALS[0]]]),
            "quantization": np.array([term.quantization for term in terms[TOTALS[0]]]),
            **{name: np.array([term.noise for term in of]) for name, of in terms.items()},
            **{f"sum, {name}": np.array([term.total for term in of]) for name, of in terms.items()}}


def draw(found: dict, curves: dict, config):
    """Left: tau_k. Right: the bound and its terms."""
    from matplotlib.figure import Figure

    figure = Figure(figsize=(10, 3.9), layout="constrained")
    left, right = figure.subplots(1, 2)
    dimension = len(found["tau_mean"])
    counts = np.arange(1, dimension)
    left.plot(counts, found["tau_largest"][:-1], color=PALETTE[0], label="largest")
    left.plot(counts, found["tau_mean"][:-1], color=PALETTE[1], label="mean")
    shape = found["tail_shape_of_single_teachers"]
    left.plot(counts, tau(weibull_magnitudes(dimension, shape))[:-1], ":", color=PALETTE[2],
              label=f"Weibull, shape {shape:.2f}")
    left.axvline(config.top_k, color="0.6", lw=0.8)
    left.set(xscale="log", xlabel="k", ylabel="|g - top-k(g)| / |g|", ylim=(0, 1.05),
             title=f"tau_k, {config.dataset}, measured")
    for number, name in enumerate(("left out by top-k", "quantization", *TOTALS)):
        right.plot(curves["k"], curves[name], "--", color=PALETTE[number + 2], lw=1.2, label=name)
    for number, name in enumerate(TOTALS):
        right.plot(curves["k"], curves[f"sum, {name}"] - curves["constant"], color=PALETTE[number], lw=2,
                   label=f"sum, {name}")
    right.axvline(config.top_k, color="0.6", lw=0.8)
    right.set(xscale="log", xlabel="k", ylabel=f"squared clips, above {curves['constant']:.3g}", ylim=(0, None),
              title=f"Theorem 6, terms that depend on k; L = {curves['smoothness']:.3g}")
    for axes in (left, right):
        axes.grid(alpha=0.25)
        axes.spines[["top", "right"]].set_visible(False)
        axes.legend(frameon=False, fontsize=7)
    return figure


if __name__ == "__main__":
    main()
