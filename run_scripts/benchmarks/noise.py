"""How long the privacy noise of one generator step takes to draw.

    python run_scripts/benchmarks/noise.py [--repeats 20]

The time is compared with that of a step, which `training_speed.py` and `large_banks.py` measure
(docs/research/speed.md).
"""

import argparse
import statistics
import time

from datalens_tf.mechanisms.noise import RoundedGaussianNoise, SecureGaussianNoise

# Images, numbers per image, sigma, and seconds of a generator step at the preset's number of teachers. The last one is
# a part of the sums of products that DataLens+ releases of 64 x 64 colour images, once.
RELEASES = (("mnist", 15, 784, 5000.0, 18.9), ("celeba_hair", 27, 12288, 9000.0, 8000 * 0.0281),
            ("products", 256, 3072, 1e9, None))


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--repeats", type=int, default=20)
    repeats = parser.parse_args().repeats
    print("| release | noise | median | share of a step |\n|---|---|---|---|")
    for name, count, dimension, stddev, step in RELEASES:
        for source in (RoundedGaussianNoise(), SecureGaussianNoise()):
            seconds = []
            for index in range(repeats):
                start = time.perf_counter()
                source.draw((count, dimension), stddev, index)
                seconds.append(time.perf_counter() - start)
            median = statistics.median(seconds)
            share = "-" if step is None else f"{100 * median / step:.3f} %"
            print(f"| {name}, {count} x {dimension}, sigma {stddev:g} | {type(source).__name__} | "
                  f"{1000 * median:.1f} ms | {share} |", flush=True)


if __name__ == "__main__":
    main()
