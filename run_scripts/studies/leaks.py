"""What three leaks of the DataLens authors' training and evaluation are worth. NOT PRIVATE.

    python run_scripts/studies/leaks.py --output_dir OUT [--dataset mnist] [--leaks NAME ...] [--seeds 0 1 ...]
        [--num_teachers 400] [--records_per_teacher 15] [--teachers_of_a_slot 80]

Each leak is switched on alone, then both leaks of training together, on top of the preset for epsilon 1 with a tenth of
its teachers (see votes.py):

- `moments`: 80 teachers take turns with the moments of one Adam optimizer, so that a record reaches other teachers.
- `partitions`: records are dealt by class, so that every teacher has as many of each class. A class that is short
  begins again, so that some of its records are in two partitions.
- The best epoch: every row has the accuracy after the classifier's last epoch and that of its best epoch, which is
  chosen on the records that it is tested on.

No leak is covered by the accounting. Noise has a known seed, so that statements say NOT PRIVATE, and runs are deleted
as soon as they are measured. A row of `OUT/leaks.csv` is written when it is known, and a known row is not
computed again. The classifier is the frozen protocol's with 20,000 images, tested on the last 10,000 *training*
records, which teachers never see.
"""

import argparse
import contextlib
import dataclasses
import pathlib
import statistics
import tempfile
from collections.abc import Iterator
from unittest import mock

import numpy as np
import votes
from poses import drawn
from rows import Rows

from datalens_tf import rng
from datalens_tf.data.datasets import Dataset
from datalens_tf.data.registry import load_dataset
from datalens_tf.methods.registry import synthesizer
from datalens_tf.options import PerformanceOptions
from datalens_tf.serving.export import load_generator
from datalens_tf.training import trainer
from datalens_tf.training.classifier import FROZEN, train_on_synthetic
from datalens_tf.training.teachers import TeacherBank

LEAKS = {"none": (), "moments": ("moments",), "partitions": ("partitions",), "both": ("moments", "partitions")}
SETTINGS = ("num_teachers", "records_per_teacher", "num_steps", "num_images", "epochs")
TOLD = ("dataset", "leak", "seed", *SETTINGS)
ACCURACIES = ("last_epoch", "best_epoch")


class SharedMoments(TeacherBank):
    """Chunks of teachers that each begin with the moments and at the step with which the previous chunk ended."""

    def _visit(self, number, positions, rounds, *inputs):
        arrays = self._storage.read(number)
        weights = len(arrays) // 3
        for mine, others in zip(arrays[weights:], self._storage.read(number - 1)[weights:]):
            mine[...] = others
        own = self._iterations
        self._iterations = own * len(self._spans) + number * len(rounds)
        self._storage.iterations[number] = self._iterations
        try:
            return super()._visit(number, positions, rounds, *inputs)
        finally:
            self._iterations = own
            self._storage.iterations[number] = own + len(rounds)


def dealt_by_class(dataset: Dataset, num_teachers: int, seed: int) -> np.ndarray:
    """Partitions [N, r] with about equally many records of each class; records of a short class are there twice."""
    each, order = len(dataset) // dataset.num_classes, rng.stream(seed, "dealt by class")
    places = np.concatenate([np.resize(order.permutation(np.flatnonzero(dataset.labels == label)), each)
                             for label in range(dataset.num_classes)])
    return places[:len(places) // num_teachers * num_teachers].reshape(-1, num_teachers).T


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--output_dir", type=pathlib.Path, required=True)
    parser.add_argument("--dataset", default="mnist", help="one that has a preset of DataLens")
    parser.add_argument("--leaks", nargs="+", choices=LEAKS, default=list(LEAKS), metavar="NAME",
                        help=", ".join(LEAKS))
    parser.add_argument("--seeds", nargs="+", type=int, default=list(range(8)))
    parser.add_argument("--num_teachers", type=int, default=400)
    parser.add_argument("--records_per_teacher", type=int, default=15)
    parser.add_argument("--teachers_of_a_slot", type=int, default=80)
    parser.add_argument("--num_steps", type=int, help="by default as many as the preset pays for")
    parser.set_defaults(as_at=1.0)
    parser.add_argument("--num_images", type=int, default=20_000)
    parser.add_argument("--epochs", type=int, default=10)
    args = parser.parse_args()
    args.output_dir.mkdir(parents=True, exist_ok=True)
    rows, records = Rows(args.output_dir / "leaks.csv", TOLD + ACCURACIES, TOLD), load_dataset(args.dataset)
    for seed in args.seeds:
        for leak in args.leaks:
            row = {"dataset": args.dataset, "leak": leak, "seed": seed} | {
                name: getattr(args, name) or "" for name in SETTINGS}
            if row not in rows:
                rows.add(row | dict(zip(ACCURACIES, accuracies(leak, seed, records, args))))
    print(table(rows.read()))


def accuracies(leak: str, seed: int, records: Dataset, args: argparse.Namespace) -> tuple[float, float]:
    """Accuracies of a run with this leak, by the classifier's last epoch and by its best one."""
    training = votes.trained_on(records, args)
    with tempfile.TemporaryDirectory(dir=args.output_dir, prefix="not_private_") as folder, leaking(leak):
        slots = max(1, args.num_teachers // args.teachers_of_a_slot)
        options = PerformanceOptions(num_threads=1, chunk_size=slots if "moments" in LEAKS[leak] else None)
        config = votes.settings("preset", seed, records.image_shape, args).replace(
            num_classes=records.num_classes, insecure_noise_seed=seed)
        synthesizer("datalens")(config, run_dir=folder, options=options).fit(
            *training, num_classes=records.num_classes)
        images, labels = drawn(load_generator(pathlib.Path(folder) / "generator"), config, args.num_images, seed)
    test = slice(-votes.HELD_OUT, None)
    found = train_on_synthetic(images, labels, records.images[test], records.labels[test], records.num_classes,
                               epochs=args.epochs, seed=seed, protocol=dataclasses.replace(FROZEN, every_epoch=True))
    assert found.best_epoch_accuracy is not None
    return found.accuracy, found.best_epoch_accuracy


@contextlib.contextmanager
def leaking(leak: str) -> Iterator[None]:
    """Makes trainers leak inside the context."""
    with contextlib.ExitStack() as stack:
        if "moments" in LEAKS[leak]:
            stack.enter_context(mock.patch.object(trainer, "TeacherBank", SharedMoments))
        if "partitions" in LEAKS[leak]:
            stack.enter_context(mock.patch.object(trainer, "teacher_indices", dealt_by_class))
        yield


def table(rows: list[dict[str, str]]) -> str:
    """A row for all rows that differ only in seeds: means over the seeds, and standard deviations."""
    shared = [name for name in TOLD if name != "seed"]
    lines = [f"| {' | '.join(shared)} | seeds | {' | '.join(ACCURACIES)} |", "|---" * (len(shared) + 3) + "|"]
    for key in dict.fromkeys(tuple(row[name] for name in shared) for row in rows):
        found = [row for row in rows if tuple(row[name] for name in shared) == key]
        columns = (spread([float(row[name]) for row in found]) for name in ACCURACIES)
        lines.append(f"| {' | '.join(key)} | {len(found)} | {' | '.join(columns)} |")
    return "\n".join(lines)


def spread(values: list[float]) -> str:
    """Mean and, for several values, standard deviation."""
    return f"{statistics.mean(values):.4f}" + (f" ± {statistics.stdev(values):.4f}" if len(values) > 1 else "")


if __name__ == "__main__":
    main()
