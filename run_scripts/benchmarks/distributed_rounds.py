"""What a round of distributed teachers costs beyond the teachers' own computing: one table from one run.

    python run_scripts/benchmarks/distributed_rounds.py [--repeats 5] [--actors 1 2 4 8]

Actors here answer at once with sums of the right size, so that what is measured is serialisation, Ray and the driver's
sum. Bytes are counted from the arrays that are sent. Times are medians.
"""

import argparse
import statistics
import time

import numpy as np
import ray

from datalens_tf.training.teachers import TeacherRound

# Name, side, channels, classes Y, teacher batch B, images m.
SHAPES = [("MNIST", 28, 1, 10, 15, 15), ("CIFAR-10, B = 12", 32, 3, 10, 12, 15), ("CelebA-Gender", 64, 3, 2, 27, 27),
          ("MNIST, m = 60", 28, 1, 10, 15, 60)]


@ray.remote(num_cpus=0)
class Echo:
    """An actor whose teachers take no time."""

    def advance(self, rounds, images, labels):
        return np.ones([len(images), images[0].size], np.int32)


def measure(handles, side, channels, classes, batch, images, repeats):
    """Seconds of a round with these actors, bytes to an actor's machine, bytes from an actor."""
    shape = (side, side, channels)
    shared = TeacherRound(np.zeros((batch, classes, *shape), np.float32), np.zeros((2 * batch, *shape), np.float32))
    votes, labels = np.zeros((images, *shape), np.float32), np.zeros(images, np.int64)
    seconds = []
    for _ in range(repeats + 1):
        start = time.perf_counter()
        message = ray.put([shared])
        total = sum(answer.astype(np.float64) for answer in ray.get(
            [handle.advance.remote(message, votes, labels) for handle in handles]))
        seconds.append(time.perf_counter() - start)
    assert total.flat[0] == len(handles)
    sent = shared.fakes.nbytes + shared.noise.nbytes + votes.nbytes + labels.nbytes
    return statistics.median(seconds[1:]), sent, total.nbytes // 2


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--repeats", type=int, default=5)
    parser.add_argument("--actors", type=int, nargs="+", default=[1, 2, 4, 8])
    args = parser.parse_args()
    ray.init(address="local", num_cpus=max(args.actors), include_dashboard=False, log_to_driver=False)
    handles = [Echo.remote() for _ in range(max(args.actors))]
    print("| data | actors | to an actor, MB | from an actor, MB | a round, ms |\n|---|---|---|---|---|")
    for name, *shape in SHAPES:
        for actors in args.actors:
            seconds, sent, received = measure(handles[:actors], *shape, args.repeats)
            print(f"| {name} | {actors} | {sent / 1e6:.2f} | {received / 1e6:.3f} | {1e3 * seconds:.1f} |", flush=True)


if __name__ == "__main__":
    main()
