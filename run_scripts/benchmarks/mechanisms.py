"""Processor time of one aggregation by each compressor, at the sizes of the DataLens paper's Table 6.

    python run_scripts/benchmarks/mechanisms.py [--repeats 5] [--sizes mnist celeba_gender] [--teachers_share 0.1]

An aggregation compresses every teacher's gradients, sums them, adds the noise and post-processes. Training teachers and
computing gradients are left out, as they are the same for all. Teachers come in chunks, so that memory stays below a
few GiB; all chunks have the same random gradients. Times are seconds of one core, added up over cores, so that other
work on the machine matters little; and the mechanisms take turns within each repetition. The table has medians.
`--teachers_share` measures that share of the teachers, and scales the time: compressing is linear in them, and the rest
takes a few milliseconds.
"""

import argparse
import statistics
import time

import numpy as np
import tensorflow as tf

from datalens_tf.mechanisms import D2PFed, FetchSgd, RoundedGaussianNoise, TopAgg
from datalens_tf.methods.datalens import PRESETS

SIZES = {"mnist": 28 * 28, "celeba_gender": 64 * 64 * 3}  # Numbers per image.
CHUNK = 2**23  # Gradients at once.
PUBLISHED = {"mnist": ("338", "492", "785"), "celeba_gender": ("1197", "3683", "2622")}


def mechanisms(name: str, num_teachers: int) -> list:
    """The three mechanisms, with the preset's settings for epsilon 1 where they have them."""
    preset = PRESETS[name, 1.0]
    common = {"num_teachers": num_teachers, "clip": preset.clip, "noise_stddev": preset.noise_stddev}
    sketch = {"sketch_rows": 3, "sketch_columns": 512 if name == "mnist" else 4096}
    return [TopAgg(**common, top_k=preset.top_k, vote_threshold=preset.vote_threshold),
            D2PFed(**common, dimension=SIZES[name], num_levels=3, vote_threshold=preset.vote_threshold),
            FetchSgd(**common, dimension=SIZES[name], top_k=preset.top_k, **sketch)]


def aggregate(mechanism, compress_sum, gradients: tf.Tensor, noise, index: int) -> tuple[float, float]:
    """Processor seconds of compressing and summing, and of noise and post-processing."""
    start, total = time.process_time(), 0.0
    for first in range(0, mechanism.num_teachers, len(gradients)):
        count = min(len(gradients), mechanism.num_teachers - first)
        seeds = np.stack([np.arange(first, first + count), np.full(count, index)], axis=1).astype(np.int32)
        total = total + compress_sum(gradients[:count], seeds).numpy().astype(np.float64)
    middle = time.process_time()
    mechanism.postprocess(mechanism.privatize(total, noise, index))
    return middle - start, time.process_time() - middle


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--repeats", type=int, default=5)
    parser.add_argument("--sizes", nargs="+", choices=SIZES, default=list(SIZES))
    parser.add_argument("--teachers_share", type=float, default=1.0)
    args = parser.parse_args()
    tf.get_logger().setLevel("ERROR")  # TensorFlow mistakes six graphs for one that is traced again and again.
    print("| size | N measured | mechanism | numbers released per image | compress and sum, s | noise and the rest, s "
          "| at the preset's N, s | beside TopAgg | published, s per epoch |\n" + "|---" * 9 + "|", flush=True)
    for name in args.sizes:
        preset = PRESETS[name, 1.0]
        num_teachers = max(1, round(args.teachers_share * preset.num_teachers))
        shape = (max(1, CHUNK // (preset.batch_size * SIZES[name])), preset.batch_size, SIZES[name])
        gradients = tf.random.stateless_normal(shape, [1, 2]) * 1e-5
        all_of_them, noise = mechanisms(name, num_teachers), RoundedGaussianNoise()
        graphs = [tf.function(lambda g, s, m=m: tf.reduce_sum(m.compress(g, s), 0), input_signature=[
            tf.TensorSpec([None, *shape[1:]], tf.float32), tf.TensorSpec([None, 2], tf.int32)]) for m in all_of_them]
        times = [[] for _ in all_of_them]
        for graph in graphs:  # Traces the graphs, and allocates everything.
            graph(gradients, np.zeros((len(gradients), 2), np.int32))
        for repeat in range(args.repeats):
            for mechanism, graph, mine in zip(all_of_them, graphs, times):
                mine.append(aggregate(mechanism, graph, gradients, noise, repeat))
        scaled = [statistics.median(preset.num_teachers / num_teachers * compress + rest for compress, rest in mine)
                  for mine in times]
        for mechanism, graph, mine, whole, published in zip(all_of_them, graphs, times, scaled, PUBLISHED[name]):
            compress, rest = (statistics.median(column) for column in zip(*mine))
            width = graph.get_concrete_function().output_shapes[-1]
            print(f"| {name} | {num_teachers} | {type(mechanism).__name__} | {width} | {compress:.2f} | {rest:.3f} | "
                  f"{whole:.1f} | {whole / scaled[0]:.2f} | {published} |", flush=True)


if __name__ == "__main__":
    main()
