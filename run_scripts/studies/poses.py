"""What a public warp and grain are worth on the images of generators that were trained without, a row each.

    python run_scripts/studies/poses.py [--runs checkpoints/mnist_eps1 checkpoints/fashion_mnist_eps1]
        [--poses 0:0 0:0.15 0.75:0.15 1.5:0 1.5:0.15] [--num_images 20000] [--epochs 4] [--seeds 0] [--split test]

A pose is `WARP:GRAIN`, what `--output_warp` and `--output_grain` of `datalens train` or `export` put around a
generator. Training sees neither: the privacy statement is the same. A classifier learns from the images and is tested
on real records, after its last epoch: those of the test split, or with `--split train`, to choose a pose by, 10,000 of
the records that the generator was trained on. A row has the accuracy of each classifier's seed, which is that of the
images as well, and the mean.
"""

import argparse
import json
import pathlib
import statistics

import numpy as np
import tensorflow as tf

from datalens_tf.data.registry import load_dataset
from datalens_tf.models.warp import OfNormal, WarpedGenerator
from datalens_tf.serving.export import LoadedGenerator, load_generator
from datalens_tf.serving.signatures import Released
from datalens_tf.training.classifier import train_on_synthetic

CHECKPOINTS = pathlib.Path(__file__).parents[2] / "checkpoints"
FEW = 10_000  # records that a pose is chosen by
CHUNK = 1000


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--runs", nargs="+", type=pathlib.Path,
                        default=[CHECKPOINTS / "mnist_eps1", CHECKPOINTS / "fashion_mnist_eps1"])
    parser.add_argument("--poses", nargs="+", default=["0:0", "0:0.15", "0.75:0.15", "1.5:0", "1.5:0.15"],
                        metavar="WARP:GRAIN")
    parser.add_argument("--num_images", type=int, default=20_000)
    parser.add_argument("--epochs", type=int, default=4)
    parser.add_argument("--seeds", nargs="+", type=int, default=[0])
    parser.add_argument("--split", choices=("train", "test"), default="test")
    args = parser.parse_args()
    print("| run | epsilon | warp | grain | accuracy | mean |\n|---|---|---|---|---|---|")
    for run in args.runs:
        dataset = json.loads((run / "config.json").read_text(encoding="utf-8"))["dataset"]
        epsilon = json.loads((run / "privacy.json").read_text(encoding="utf-8"))["epsilon"]
        real = load_dataset(dataset, split=args.split)
        count = FEW if args.split == "train" else len(real)
        generator = load_generator(run / "generator")
        for pose in args.poses:
            warp, grain = map(float, pose.split(":"))
            found = []
            for seed in args.seeds:
                images, labels = drawn(generator, warp, grain, args.num_images, seed)
                found.append(train_on_synthetic(images, labels, real.images[:count], real.labels[:count],
                                                real.num_classes, epochs=args.epochs, seed=seed).accuracy)
            print(f"| {run.name} | {epsilon:.4f} | {warp:g} | {grain:g} | {', '.join(f'{one:.4f}' for one in found)} | "
                  f"{statistics.mean(found):.4f} |", flush=True)


def drawn(generator: LoadedGenerator, warp: float, grain: float, count: int, seed: int
          ) -> tuple[np.ndarray, np.ndarray]:
    """Posed images uint8 [count, H, W, C], and their labels, in turn."""
    source: tf.Module = Released(generator.model, generator.latent_dim)
    if generator.latent_distribution == "uniform":
        source = OfNormal(source)
    module = WarpedGenerator(tuple(generator.image_shape), [source], warp, grain, on_black=True)
    posed = tf.function(module)
    stream = np.random.default_rng(seed)
    labels = np.arange(count) % generator.num_classes
    images = []
    for part in np.split(labels, range(CHUNK, count, CHUNK)):
        latents = tf.constant(stream.standard_normal((len(part), module.latent_dim)), tf.float32)
        images.append(np.round(255 * posed([latents, tf.constant(part)]).numpy()).astype(np.uint8))
    return np.concatenate(images), labels


if __name__ == "__main__":
    main()
