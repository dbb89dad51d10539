"""The paper's Figure 2: would a data-dependent bound have been smaller? Draws docs/research/data_dependent_bound.png.

    python run_scripts/studies/figure2.py --output_dir OUT

Trains teachers on real data and looks at their votes before the noise. What it computes from them is PRIVATE, as it
reveals information about records: run it on public data, or keep its results to yourself. With fewer teachers than the
preset has, and less noise in proportion, the ratios of votes, threshold and noise are the same, in less time. The
epsilons drawn are those of the preset's own noise. Curves are by the paper's accountant, Theorems 1 and 3.
"""

import argparse
import functools
import json
import math
import os
import pathlib
import tempfile

import numpy as np
from data_dependent import data_dependent_rdp, log_likeliest, log_likeliest_possible

from datalens_tf.bounds import classic_rdp
from datalens_tf.data.registry import load_dataset
from datalens_tf.evaluation.charts import PALETTE, png_bytes
from datalens_tf.mechanisms.topagg import TopAgg
from datalens_tf.methods.registry import preset
from datalens_tf.training.progress import Progress
from datalens_tf.training.trainer import Trainer

SEEN: list[np.ndarray] = []  # ln probabilities of the likeliest outcome, [m, d] per step. PRIVATE.
BINS = np.concatenate([-np.geomspace(1e-12, 2, 60)[::-1], [0.0]])


class Watched(TopAgg):
    """TopAgg that looks at votes before the noise."""

    def privatize(self, vote_sum, noise, index, share=1.0):
        SEEN.append(log_likeliest(vote_sum, self.noise_stddev, self.vote_threshold * self.num_teachers))
        return super().privatize(vote_sum, noise, index, share)


@functools.lru_cache(None)
def rdp(log_probability, order, squared_mu):
    """The smaller bound of one release, at one order."""
    return min(data_dependent_rdp(log_probability, order, squared_mu), order * squared_mu / 2)


def epsilons(curves, delta):
    """Epsilons [T] of the composed steps, from RDP [T, orders]."""
    orders = classic_rdp.ORDERS
    return np.min(np.cumsum(curves, axis=0) + math.log(1 / delta) / (orders - 1), axis=1)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--preset", default="mnist")
    parser.add_argument("--epsilon", type=float, default=1.0)
    parser.add_argument("--num_teachers", type=int, default=400)
    parser.add_argument("--num_steps", type=int, default=86)
    parser.add_argument("--output_dir", type=pathlib.Path, required=True)
    args = parser.parse_args()
    args.output_dir.mkdir(parents=True, exist_ok=True)

    full = preset(args.preset, args.epsilon)
    dataset = load_dataset(full.dataset)
    small = full.replace(
        num_teachers=args.num_teachers, noise_stddev=full.noise_stddev * args.num_teachers / full.num_teachers,
        num_steps=args.num_steps, epsilon=1e6, image_shape=dataset.image_shape, num_classes=dataset.num_classes)
    mechanism = Watched(**vars(small.mechanism()))
    with tempfile.TemporaryDirectory() as folder:
        Trainer(small, dataset, folder, mechanism=mechanism, callbacks=[Progress(small.epsilon)]).run()

    orders, dimension = classic_rdp.ORDERS, math.prod(dataset.image_shape)
    image_mu, coordinate_mu = 4 * full.top_k / full.noise_stddev**2, 4 / full.noise_stddev**2
    log_p = np.array(SEEN)  # [T, m, d]
    independent = np.tile(full.batch_size * orders * image_mu / 2, (len(log_p), 1))
    per_image = np.array([[sum(rdp(value, order, image_mu) for value in image) for order in orders]
                          for image in log_p.sum(axis=2)])
    # Rounded down, to fewer different values: the bound grows with the probability of other outcomes.
    counts = np.array([np.histogram(step, [*BINS, np.inf])[0][:len(BINS)] for step in log_p])
    assert counts.sum() == log_p.size
    used = np.flatnonzero(counts.sum(axis=0))
    per_coordinate = counts[:, used] @ np.array([[rdp(BINS[i], order, coordinate_mu) for order in orders]
                                                for i in used])
    curves = {"data-independent (Theorem 3)": epsilons(independent, full.delta),
              "data-dependent, an outcome per image": epsilons(per_image, full.delta),
              "data-dependent, an outcome per coordinate": epsilons(per_coordinate, full.delta)}
    likeliest = float(log_p.sum(axis=2).max())
    results = {
        "PRIVATE": "computed from un-noised votes: not covered by any epsilon",
        "preset": args.preset, "num_teachers": args.num_teachers, "num_steps": len(log_p),
        "epsilon_after_last_step": {name: float(values[-1]) for name, values in curves.items()},
        "log10_probability_of_the_likeliest_image_direction": likeliest / math.log(10),
        "median_probability_of_a_coordinates_likeliest_value": float(np.exp(np.median(log_p))),
        "log10_largest_probability_that_any_votes_could_have": {
            f"{name}, epsilon {epsilon:g}": possible(preset(name, epsilon), size) / math.log(10)
            for name, epsilon, size in PRESETS}}
    descriptor = os.open(args.output_dir / "figure2.PRIVATE.json", os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600)
    with open(descriptor, "w", encoding="utf-8") as file:
        json.dump(results, file, indent=2)
    (args.output_dir / "data_dependent_bound.png").write_bytes(png_bytes(draw(curves, full, dimension)))
    print(json.dumps(results, indent=2))


PRESETS = (("mnist", 1.0, 784), ("mnist", 10.0, 784), ("celeba_hair", 1.0, 12288))


def possible(config, dimension):
    """`log_likeliest_possible` of a preset."""
    return log_likeliest_possible(config.num_teachers, config.top_k, dimension, config.noise_stddev,
                                  config.vote_threshold * config.num_teachers)


def draw(curves, config, dimension):
    """Left: epsilon over the steps. Right: how much the best possible votes could gain, by dimension."""
    import matplotlib.figure

    figure = matplotlib.figure.Figure(figsize=(10, 3.8), layout="constrained")
    left, right = figure.subplots(1, 2)
    for (name, values), style, colour, width in zip(curves.items(), ("-", ":", "--"), PALETTE[:3], (1.5, 3.5, 1.5)):
        left.plot(range(1, len(values) + 1), values, style, color=colour, lw=width, label=name)
    left.set(xlabel="generator step", ylabel="epsilon (classic RDP)", ylim=(0, None),
             title=f"{config.dataset}: d = {dimension}, k = {config.top_k}, sigma = {config.noise_stddev:g}")
    left.legend(frameon=False, fontsize=8)
    dimensions = np.unique(np.geomspace(1, 2e4, 60).astype(int))
    for number, (name, epsilon, size) in enumerate(PRESETS):
        settings, order = preset(name, epsilon), 10.0
        # A teacher has k votes at most, and d at most on d coordinates: the sensitivity of an image of d numbers.
        gains = [rdp(possible(settings, int(count)), order, mu) / (order * mu / 2) for count in dimensions
                 for mu in [4 * min(settings.top_k, count) / settings.noise_stddev**2]]
        right.plot(dimensions, gains, color=PALETTE[number + 1], ls=("-", "--", ":")[number], lw=1.5 + number,
                   label=f"{name}, epsilon {epsilon:g} (d = {size})")
        right.axvline(size, color=PALETTE[number + 1], lw=0.7)
    right.set(xscale="log", xlabel="numbers per image d", ylabel="Theorem 4 / Theorem 3, order 10", ylim=(0, 1.08),
              title="the best that any votes could reach")
    right.legend(frameon=False, fontsize=8)
    for axes in (left, right):
        axes.grid(alpha=0.25)
        axes.spines[["top", "right"]].set_visible(False)
    return figure


if __name__ == "__main__":
    main()
