"""Accuracy of the default method where persons with several pictures are protected, and where single pictures are.

    python run_scripts/studies/units.py --output_dir OUT [--epsilons 1 10] [--num_images N] [--epochs N]
        [--mnist DATASET --sizes 1 5 20] [--faces celeba_gender --unit identity] [--data_dir FOLDER]

Two tables in one file, OUT/units.csv, which gets a row when a cell is finished; the same command goes on with the cells
that it lacks. All cells of an epsilon make the same promise, but for different neighbours:

- `groups`: the pictures of MNIST in groups of 1, 5 and 20, dealt publicly at random, as if each group were a person.
  The pictures are the same in every cell; the number of units falls, and the noise for each grows.
- `persons`: CelebA's gender, with the picture as the unit (no `unit`) and with the person (`identity`).
- `one each`: the same with one picture of each person, which protects persons as well, and needs no units.

The classifier is that of the frozen protocol, trained on synthetic images and tested on the test split, once.
"""

import argparse
import dataclasses
import pathlib
import tempfile
from collections.abc import Iterator

import numpy as np
from rows import Rows

from datalens_tf import rng
from datalens_tf.config import MethodConfig
from datalens_tf.data.datasets import Dataset, Units
from datalens_tf.data.registry import load_dataset
from datalens_tf.facts import DataFacts
from datalens_tf.methods import registry
from datalens_tf.training.classifier import FROZEN, train_on_synthetic

FIELDS = ("table", "dataset", "unit", "num_units", "epsilon", "seed", "num_images", "epochs", "method", "accuracy")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--output_dir", type=pathlib.Path, required=True)
    parser.add_argument("--epsilons", nargs="+", type=float, default=[1.0, 10.0])
    parser.add_argument("--mnist", default="mnist", help="data whose pictures are grouped; none for none")
    parser.add_argument("--sizes", nargs="+", type=int, default=[1, 5, 20])
    parser.add_argument("--faces", default="celeba_gender", help="data with persons; none for none")
    parser.add_argument("--unit", default="identity", help="what says whose a picture is")
    parser.add_argument("--data_dir", help="of data sets that do not know where they are")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--num_images", type=int, default=FROZEN.num_synthetic)
    parser.add_argument("--epochs", type=int, default=FROZEN.epochs)
    args = parser.parse_args()
    args.output_dir.mkdir(parents=True, exist_ok=True)
    rows = Rows(args.output_dir / "units.csv", FIELDS, FIELDS[:-2])
    for cell, train, test in cells(args):
        for epsilon in args.epsilons:
            row = cell | {"num_units": train.num_units, "epsilon": f"{epsilon:g}", "seed": args.seed,
                          "num_images": args.num_images, "epochs": args.epochs}
            if row not in rows:
                rows.add(row | measured(train, test, epsilon, args))
    print(rows.path.read_text(encoding="utf-8"), end="")


def cells(args: argparse.Namespace) -> Iterator[tuple[dict[str, object], Dataset, Dataset]]:
    """What to measure: names for the table, records, and those to test on."""
    if args.mnist != "none":
        train, test = (load_dataset(args.mnist, data_dir=args.data_dir, split=split) for split in ("train", "test"))
        for size in args.sizes:
            yield {"table": "groups", "dataset": args.mnist, "unit": f"{size} pictures"}, grouped(
                train, size, args.seed), test
    if args.faces != "none":
        persons = load_dataset(args.faces, data_dir=args.data_dir, unit=args.unit)
        test = load_dataset(args.faces, data_dir=args.data_dir, split="test")
        for unit, train in (("picture", dataclasses.replace(persons, units=None)), (args.unit, persons),
                            ("one each", one_each(persons, args.seed))):
            yield {"table": "persons", "dataset": args.faces, "unit": unit}, train, test


def grouped(dataset: Dataset, size: int, seed: int) -> Dataset:
    """The records, dealt at random to pretended people with `size` records each."""
    of = rng.stream(seed, "groups").permutation(len(dataset)) // size
    return dataclasses.replace(dataset, units=Units.named("group", of))


def one_each(dataset: Dataset, seed: int) -> Dataset:
    """One record of each unit, by a public draw; each is then its own unit."""
    assert dataset.units is not None
    order = rng.stream(seed, "one each").permutation(len(dataset))
    kept = np.sort(order[np.unique(dataset.units.of[order], return_index=True)[1]])
    usable = None if dataset.usable is None else dataset.usable[kept]
    return dataclasses.replace(dataset, images=dataset.images[kept], labels=dataset.labels[kept], units=None,
                               usable=usable)


def measured(train: Dataset, test: Dataset, epsilon: float, args: argparse.Namespace) -> dict[str, object]:
    """The method that is taken for this number of units, and its accuracy."""
    config = settings(train, epsilon, args.seed)
    with tempfile.TemporaryDirectory() as folder:
        run = registry.synthesizer(config.method)(config, run_dir=folder).fit_dataset(train)
        images, labels = run.sample(args.num_images, seed=args.seed)
    found = train_on_synthetic(images, labels, test.images, test.labels, train.num_classes, epochs=args.epochs,
                               seed=args.seed)
    return {"method": config.method, "accuracy": f"{found.accuracy:.4f}"}


def settings(train: Dataset, epsilon: float, seed: int) -> MethodConfig:
    """Settings that the default method has for this number of units."""
    facts = DataFacts(num_records=train.num_units, image_shape=train.image_shape, num_classes=train.num_classes,
                      num_slots=train.num_slots, unit=train.unit)
    return registry.config_class(registry.best(facts, epsilon).method).for_data(facts, epsilon, {"seed": seed})


if __name__ == "__main__":
    main()
