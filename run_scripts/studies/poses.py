"""What a public warp, grain and choice are worth on images of generators that were trained without them, a row each.

    python run_scripts/studies/poses.py [--runs checkpoints/mnist_eps1 checkpoints/fashion_mnist_eps1]
        [--poses 0:0:1 1.5:0.5:1 1.5:0.5:4] [--num_images 20000] [--epochs 4] [--seeds 0] [--split test]

A pose is `WARP:GRAIN:CHOICES`: what `--output_warp`, `--output_grain` and `--output_choices` of `datalens train` or
`export` put around a generator. Training does not see the pose: the privacy statement is the same. A classifier learns
from the images and is tested on real records, after its last epoch. They are those of the test split or, to choose a
pose by with `--split train`, the last 10,000 training records. A row has the accuracy for each seed, which is that of
the classifier and of the images, and the mean.
"""

import argparse
import json
import pathlib
import statistics

import numpy as np
import tensorflow as tf

from datalens_tf import rng
from datalens_tf.accounting.accountants import round_up
from datalens_tf.config import MethodConfig
from datalens_tf.data.registry import load_dataset
from datalens_tf.methods.registry import config_from_json
from datalens_tf.models.warp import OfNormal
from datalens_tf.serving.export import LoadedGenerator, load_generator
from datalens_tf.serving.signatures import Released
from datalens_tf.training import posing
from datalens_tf.training.classifier import train_on_synthetic

CHECKPOINTS = pathlib.Path(__file__).parents[2] / "checkpoints"
FEW = 10_000  # records that a pose is chosen by


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--runs", nargs="+", type=pathlib.Path,
                        default=[CHECKPOINTS / "mnist_eps1", CHECKPOINTS / "fashion_mnist_eps1"])
    parser.add_argument("--poses", nargs="+", default=["0:0:1", "1.5:0.5:1", "1.5:0.5:4"], metavar="WARP:GRAIN:CHOICES")
    parser.add_argument("--num_images", type=int, default=20_000)
    parser.add_argument("--epochs", type=int, default=4)
    parser.add_argument("--seeds", nargs="+", type=int, default=[0])
    parser.add_argument("--split", choices=("train", "test"), default="test")
    args = parser.parse_args()
    print("| run | epsilon | warp | grain | choices | accuracy | mean |\n|---|---|---|---|---|---|---|")
    for run in args.runs:
        config = config_from_json((run / "config.json").read_text(encoding="utf-8"))
        epsilon = json.loads((run / "privacy.json").read_text(encoding="utf-8"))["epsilon"]
        real = load_dataset(config.dataset, split=args.split)
        tested = slice(-FEW, None) if args.split == "train" else slice(None)
        generator = load_generator(run / "generator")
        for pose in args.poses:
            posed, found = with_pose(config, pose), []
            for seed in args.seeds:
                images, labels = drawn(generator, posed, args.num_images, seed)
                found.append(train_on_synthetic(images, labels, real.images[tested], real.labels[tested],
                                                real.num_classes, epochs=args.epochs, seed=seed).accuracy)
            print(f"| {run.name} | {round_up(epsilon)} | {' | '.join(pose.split(':'))} | "
                  f"{', '.join(f'{one:.4f}' for one in found)} | {statistics.mean(found):.4f} |", flush=True)


def with_pose(config: MethodConfig, pose: str) -> MethodConfig:
    """The settings, changed to those of a pose."""
    warp, grain, choices = pose.split(":")
    return config.replace(output_warp=float(warp), output_grain=float(grain), output_choices=int(choices))


def drawn(generator: LoadedGenerator, config: MethodConfig, count: int, seed: int) -> tuple[np.ndarray, np.ndarray]:
    """Images uint8 [count, H, W, C] with what the settings put around the generator, and their labels, in turn."""
    source: tf.Module = Released(generator.model, generator.latent_dim)
    posed, distribution = posing.posed(source, config.replace(latent_distribution=generator.latent_distribution))
    if distribution == "uniform":
        posed = OfNormal(posed)
    return posing.draw(posed, config.data, rng.stream(seed, "posed images"), count)


if __name__ == "__main__":
    main()
