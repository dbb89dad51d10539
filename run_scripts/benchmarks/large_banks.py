"""Time and memory of many or large teachers, in memory or in a file: one table from one run, on generated images.

    python run_scripts/benchmarks/large_banks.py --preset mnist --teachers 2000 10000 --bank_memory_gb 2 --folder DIR
    python run_scripts/benchmarks/large_banks.py --preset celeba_gender --teachers 300

Each row is a process of its own: one teacher step that writes every teacher for the first time, then generator steps
(teacher step, votes, state read and written), of which the first is not counted. Peak memory is the kernel's VmHWM,
disk traffic that of /proc/PID/io.
"""

import argparse
import functools
import multiprocessing
import os
import pathlib
import shutil
import statistics
import tempfile
import time

import numpy as np

SHAPES = {"mnist": ((28, 28, 1), 10), "fashion_mnist": ((28, 28, 1), 10), "cifar10": ((32, 32, 3), 10),
          "celeba_gender": ((64, 64, 3), 2), "celeba_hair": ((64, 64, 3), 3), "places365": ((64, 64, 3), 3)}


def measure(preset: str, teachers: int, limit: float | None, steps: int, threads: int, folder: str) -> dict:
    """Measures one bank; called in a fresh process."""
    os.environ["TF_CPP_MIN_LOG_LEVEL"] = "3"
    import tensorflow as tf

    from datalens_tf.methods.datalens import PRESETS
    from datalens_tf.options import PerformanceOptions
    from datalens_tf.training.teachers import TeacherBank, TeacherRound

    tf.config.threading.set_intra_op_parallelism_threads(1)
    tf.config.threading.set_inter_op_parallelism_threads(threads)
    shape, classes = SHAPES[preset]
    config = PRESETS[preset, 1.0].replace(image_shape=shape, num_classes=classes, num_teachers=teachers)
    rng, batch = np.random.default_rng(0), config.teacher_batch_size
    count = min(teachers * batch, 20_000)  # Records may repeat: what is measured does not depend on them.
    images, labels = rng.integers(0, 256, (count, *shape), dtype=np.uint8), rng.integers(0, classes, count)
    partitions = np.resize(np.arange(count), [teachers, batch])
    path = pathlib.Path(folder) / "teachers.bin"
    shared = TeacherRound(rng.random((batch, classes, *shape), np.float32),
                          rng.standard_normal((2 * batch, *shape), np.float32))
    vote_images = tf.random.uniform([config.batch_size, *shape])
    vote_labels = tf.range(config.batch_size, dtype=tf.int64) % classes
    make = functools.partial(TeacherBank, config, images, labels, mechanism=config.mechanism())
    few = make(partitions=partitions[:32], options=PerformanceOptions(num_threads=threads))
    for votes in ((None, None), (vote_images, vote_labels)):  # Compiles, for every bank of this process.
        few.advance([shared], *votes)
    bank = make(partitions=partitions, options=PerformanceOptions(num_threads=threads, bank_memory_gb=limit), path=path)

    def timed(call):
        start = time.perf_counter()
        call()
        return time.perf_counter() - start

    first = timed(lambda: bank.advance([shared]))
    seconds = [timed(lambda step=step: bank.advance([shared], vote_images, vote_labels, step))
               for step in range(1, 2 + steps)][1:]  # The first step with votes sets up what later ones find.
    flushed = timed(bank.flush)
    traffic = dict(line.split(": ") for line in pathlib.Path("/proc/self/io").read_text().splitlines())
    status = dict(line.split(":", 1) for line in pathlib.Path("/proc/self/status").read_text().splitlines())
    return {"state": sum(a.nbytes for a in bank._storage.initial) * teachers, "persistent": bank.persistent,
            "first": first, "step": statistics.median(seconds), "flush": flushed,
            "peak": 1024 * int(status["VmHWM"].split()[0]), "read": int(traffic["read_bytes"]),
            "written": int(traffic["write_bytes"])}


def disk_gb_per_second(folder: str) -> tuple[float, float]:
    """GB/s of writing with fsync, and of reading what no cache holds, sequentially, of 4 GB."""
    block, count, path = os.urandom(2**26), 60, pathlib.Path(folder) / "disk"
    start = time.perf_counter()
    with open(path, "wb") as file:
        file.writelines(block for _ in range(count))
        os.fsync(file.fileno())
        written = time.perf_counter() - start
        os.posix_fadvise(file.fileno(), 0, 0, os.POSIX_FADV_DONTNEED)
    start = time.perf_counter()
    with open(path, "rb", buffering=0) as file:
        while file.read(2**26):
            pass
    read = time.perf_counter() - start
    path.unlink()
    return count * len(block) / written / 1e9, count * len(block) / read / 1e9


def plot(rows: list, path: str) -> None:
    """Milliseconds per teacher and generator step over N."""
    import matplotlib

    matplotlib.use("Agg")
    from matplotlib import pyplot

    figure, axes = pyplot.subplots(figsize=(6, 3.5), layout="constrained")
    for persistent, marker, label in ((False, "o-", "in memory"), (True, "s--", "in a file")):
        points = [(n, 1e3 * found["step"] / n) for n, found in rows if found["persistent"] == persistent]
        if points:
            axes.plot(*zip(*points), marker, label=label)
    axes.set(xscale="log", xlabel="teachers N", ylabel="ms per teacher and generator step")
    axes.set_ylim(bottom=0)
    axes.legend()
    figure.savefig(path, dpi=120)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--preset", choices=sorted(SHAPES), default="mnist")
    parser.add_argument("--teachers", type=int, nargs="+", required=True)
    parser.add_argument("--bank_memory_gb", type=float, default=None)
    parser.add_argument("--steps", type=int, default=1, help="generator steps; the median is printed")
    parser.add_argument("--num_threads", type=int, default=os.cpu_count())
    parser.add_argument("--plot", default=None, help="a picture of milliseconds per teacher over N (needs matplotlib)")
    parser.add_argument("--folder", default=None, help="where the file goes; by default a temporary folder")
    args = parser.parse_args()
    print("| preset | N | state, GiB | where | first step, s | generator step, s | ms per teacher | read, GB | "
          "written, GB | flush, s | peak memory, GiB |\n|---|---|---|---|---|---|---|---|---|---|---|")
    rows = []
    for teachers in args.teachers:
        folder = tempfile.mkdtemp(dir=args.folder)
        try:
            with multiprocessing.get_context("spawn").Pool(1) as pool:
                found = pool.apply(measure, (
                    args.preset, teachers, args.bank_memory_gb, args.steps, args.num_threads, folder))
        finally:
            shutil.rmtree(folder)
        rows.append((teachers, found))
        print(f"| {args.preset} | {teachers} | {found['state'] / 2**30:.1f} | "
              f"{'file' if found['persistent'] else 'memory'} | {found['first']:.1f} | {found['step']:.1f} | "
              f"{1e3 * found['step'] / teachers:.2f} | {found['read'] / 1e9:.1f} | {found['written'] / 1e9:.1f} | "
              f"{found['flush']:.1f} | {found['peak'] / 2**30:.2f} |", flush=True)
    if args.plot:
        plot(rows, args.plot)
    if any(found["persistent"] for _, found in rows):
        folder = tempfile.mkdtemp(dir=args.folder)
        write, read = disk_gb_per_second(folder)
        shutil.rmtree(folder)
        print(f"\nDisk: {write:.2f} GB/s written with fsync, {read:.2f} GB/s read, of 4 GB, one stream.")


if __name__ == "__main__":
    main()
