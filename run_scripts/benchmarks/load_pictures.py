"""How long a folder of JPEG pictures takes to load, and how much memory: measured on some, extrapolated to many.

    python run_scripts/benchmarks/load_pictures.py --count 2000
"""

import argparse
import json
import os
import pathlib
import resource
import tempfile
import time

import numpy as np
from PIL import Image

from datalens_tf.data.datasets import Pictures
from datalens_tf.data.registry import load_dataset


def write(folder: pathlib.Path, count: int, side: int) -> None:
    """Pictures as smooth as photographs are: noise of an eighth of the size, enlarged."""
    stream = np.random.default_rng(0)
    for number in range(count):
        small = Image.fromarray(stream.integers(0, 256, (side // 8, side // 8, 3), np.uint8))
        place = folder / str(number % 10)
        place.mkdir(exist_ok=True)
        small.resize((side, side), Image.Resampling.BICUBIC).save(place / f"{number}.jpg", quality=90)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--count", type=int, default=2000)
    parser.add_argument("--side", type=int, default=500)
    parser.add_argument("--image_size", type=int, default=32)
    parser.add_argument("--extrapolate", type=int, default=200_000)
    args = parser.parse_args()
    with tempfile.TemporaryDirectory() as name:
        write(pathlib.Path(name), args.count, args.side)
        before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
        start, work = time.monotonic(), time.process_time()
        dataset = load_dataset(f"folder:{name}", pictures=Pictures(image_size=(args.image_size,) * 2))
        seconds, work = time.monotonic() - start, time.process_time() - work
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    times = args.extrapolate / args.count
    images = min(dataset.images.nbytes * times, 2**30) / 2**20  # Images beyond 1 GiB are in a file.
    print(json.dumps({
        "pictures": args.count, "side": args.side, "image_size": args.image_size, "cores": os.cpu_count(),
        "seconds": round(seconds, 2), "processor_seconds": round(work, 2),
        "peak_mib": round(peak / 1024), "before_mib": round(before / 1024),
        f"minutes_for_{args.extrapolate}": round(seconds * times / 60, 1),
        f"processor_minutes_for_{args.extrapolate}": round(work * times / 60, 1),
        f"peak_mib_for_{args.extrapolate}": round(peak / 1024 - dataset.images.nbytes / 2**20 + images)}))


if __name__ == "__main__":
    main()
