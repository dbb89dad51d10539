"""Sums over files by 1, 2 and 4 workers: seconds, and whether the sums are those of one process to the bit.

    python run_scripts/benchmarks/sharded_sums.py [--counts 20000] [--workers 1 2 4] [--files 8] [--plot growth.png]

Pictures are random, 28 x 28 and grey, in npz files of a temporary folder. Two sums are asked for: that of 4,000 random
features per picture (a product of 784 x 2,000), and that of all products of pairs of pixels. Every worker has one
thread. For the growth to a million: --counts 10000 100000 1000000, with 6 GB of memory for the comparison.
"""

import argparse
import pathlib
import resource
import tempfile
import time
import types

import numpy as np

from datalens_tf.data.datasets import as_dataset
from datalens_tf.mechanisms.mean_embedding import MeanEmbedding, RandomFourierFeatures
from datalens_tf.mechanisms.second_moment import SecondMoment
from datalens_tf.methods.sum_questions import Embeddings, FeatureMap, ImageSquares
from datalens_tf.options import PerformanceOptions
from datalens_tf.training.shards import Shards

SHAPE = (28, 28, 1)


def write(folder, count, files):
    """Files of random pictures, and all of them together."""
    random = np.random.default_rng(0)
    images, labels = random.integers(0, 256, (count, *SHAPE), np.uint8), np.arange(count) % 10
    for number, rows in enumerate(np.array_split(np.arange(count), files)):
        np.savez(folder / f"{number}.npz", x=images[rows], y=labels[rows])
    return as_dataset(images, labels, 10)


def questions():
    """Name -> mechanism and question."""
    frequencies = RandomFourierFeatures(num_features=4000, bandwidths=(5.0, 10.0), dimension=784, seed=0).frequencies()
    return {"features": (MeanEmbedding(noise_multiplier=1.0),
                         Embeddings(features=FeatureMap(frequencies=frequencies), num_classes=10)),
            "products": (SecondMoment(clip_norm=10.0, noise_multiplier=1.0), ImageSquares())}


def timed(function, *arguments):
    """What a function returns, and its seconds."""
    start = time.perf_counter()
    return function(*arguments), time.perf_counter() - start


def plot(rows, path):
    """Draws seconds over the number of pictures; rows are (pictures, workers, seconds of features, of products)."""
    from matplotlib.figure import Figure

    figure = Figure(figsize=(5, 3.5), layout="constrained")
    axes = figure.subplots()
    for workers in dict.fromkeys(row[1] for row in rows):
        of = np.array([row[::2] + row[3:] for row in rows if row[1] == workers], float).T
        name = f"{workers} worker{'s' if workers > 1 else ''}" if workers else "one process, all cores"
        (line,) = axes.loglog(of[0], of[1], "o-", label=name)
        axes.loglog(of[0], of[2], "o:", color=line.get_color())
    axes.set(xlabel="pictures of 28 x 28", ylabel="seconds (dotted: products of pixels)")
    axes.legend()
    figure.savefig(path, dpi=120)


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--counts", type=int, nargs="+", default=[20_000])
    parser.add_argument("--workers", type=int, nargs="+", default=[1, 2, 4])
    parser.add_argument("--files", type=int, default=8)
    parser.add_argument("--plot", help="a file for the picture of how seconds grow")
    args = parser.parse_args()
    rows = []
    print("| pictures | workers | start and read, s | features, s | products, s | to the bit |")
    print("|---|---|---|---|---|---|")
    for count in args.counts:
        with tempfile.TemporaryDirectory() as folder:
            whole = write(pathlib.Path(folder), count, args.files)
            exact = {name: timed(question.answer, mechanism, whole)
                     for name, (mechanism, question) in questions().items()}
            print(f"| {count:,} | this process, all cores | | {exact['features'][1]:.1f} | "
                  f"{exact['products'][1]:.1f} | |", flush=True)
            rows.append((count, 0, exact["features"][1], exact["products"][1]))
            config = types.SimpleNamespace(dataset=f"npz:{folder}/{{0..{args.files - 1}}}.npz", unit=None, classes=None)
            for workers in args.workers:
                records, start = timed(Shards, config, PerformanceOptions(distribute="ray", num_actors=workers))
                found = {name: timed(records.answer, *asked) for name, asked in questions().items()}
                records.close()
                rows.append((count, workers, found["features"][1], found["products"][1]))
                same = all(np.array_equal(found[name][0], exact[name][0]) for name in exact)
                print(f"| {count:,} | {workers} | {start:.1f} | {found['features'][1]:.1f} | "
                      f"{found['products'][1]:.1f} | {'yes' if same else 'NO'} |", flush=True)
    if args.plot:
        plot(rows, args.plot)
    print(f"largest memory of this process: {resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 2**20:.2f} GiB")


if __name__ == "__main__":
    main()
