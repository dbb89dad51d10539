"""How useful generators from few records are: the default, DP-MERF and two controls against real data, one row a cell.

    python run_scripts/studies/few_records.py --output_dir OUT [--datasets mnist ...] [--sizes 1000 3000 10000]
        [--epsilons 1 3] [--columns real control merf default ...] [--seed 0] [--image_size 32] [--held_out]

A cell is a column for a data set, a number of records and epsilon. OUT/few_records.csv gets a row when a cell is
finished, and the same command goes on with the cells that it lacks. Records are drawn from the training split by the
seed. The classifier is that of the frozen protocol and is tested on the test split. With `--held_out`, to choose
settings, it is tested on 10,000 other training records. Columns:

- default: the method that runs where none is named.
- merf: DP-MERF by its defaults.
- control: class means and one covariance that classes share, half of mu^2 each, moved by 1, with grain.
- old: the first of these methods with what was its plan for many records: moments and an embedding.
- clusters: the same method with its plan for the most records, which has clusters for grey pictures.
- prototypes: the same method with its plan for many colour pictures, for any pictures; mirrored only in colour.
- real: the records themselves, in as many steps as the protocol takes, but 100 epochs at most; it has no epsilon.
"""

import argparse
import math
import pathlib
import tempfile
import time

import numpy as np
from rows import Rows

from datalens_tf import rng
from datalens_tf.config import MethodConfig
from datalens_tf.data.datasets import Dataset, Pictures
from datalens_tf.data.registry import load_dataset
from datalens_tf.facts import DataFacts
from datalens_tf.methods import registry, signal_plans
from datalens_tf.training.classifier import FROZEN, train_on_synthetic

DATASETS = ("mnist", "fashion_mnist", "tfds:cifar10_jpeg", "celeba_gender", "places365")
COLUMNS = ("real", "control", "merf", "default", "old", "clusters", "prototypes")
FIELDS = ("dataset", "records", "epsilon", "seed", "tested_on", "column", "method", "accuracy", "seconds", "num_images",
          "epochs")
TOLD = ("dataset", "records", "epsilon", "seed", "tested_on", "column", "num_images", "epochs")
_HELD_OUT = 10_000


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--output_dir", type=pathlib.Path, required=True)
    parser.add_argument("--datasets", nargs="+", default=list(DATASETS))
    parser.add_argument("--data_dir", help="of data sets that do not know where they are")
    parser.add_argument("--sizes", nargs="+", type=int, default=[1000, 3000, 10_000])
    parser.add_argument("--epsilons", nargs="+", type=float, default=[1.0, 3.0])
    parser.add_argument("--columns", nargs="+", choices=COLUMNS, default=["real", "control", "merf", "default"])
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--image_size", type=int, help="of pictures that are larger")
    parser.add_argument("--num_images", type=int, default=FROZEN.num_synthetic)
    parser.add_argument("--epochs", type=int, default=FROZEN.epochs)
    parser.add_argument("--held_out", action="store_true", help="test on other training records, to choose settings")
    args = parser.parse_args()
    args.output_dir.mkdir(parents=True, exist_ok=True)
    rows = Rows(args.output_dir / "few_records.csv", FIELDS, TOLD)
    pictures = Pictures() if args.image_size is None else Pictures(image_size=(args.image_size, args.image_size))
    for name in args.datasets:
        shown = name if args.image_size is None else f"{name} {args.image_size}x{args.image_size}"
        train = load_dataset(name, data_dir=args.data_dir, pictures=pictures)
        order = rng.stream(args.seed, "few records").permutation(len(train))
        test = (train.images[order[-_HELD_OUT:]], train.labels[order[-_HELD_OUT:]]) if args.held_out else None
        if test is None:
            split = load_dataset(name, data_dir=args.data_dir, split="test", pictures=pictures)
            test = split.images, split.labels
        for size in args.sizes:
            for epsilon in args.epsilons:
                for column in args.columns:
                    spent = "" if column == "real" else f"{epsilon:g}"
                    cell = {"dataset": shown, "records": size, "epsilon": spent, "seed": args.seed,
                            "tested_on": "training records" if args.held_out else "test split", "column": column,
                            "num_images": args.num_images, "epochs": args.epochs}
                    if cell not in rows:
                        rows.add(cell | measured(column, train, order[:size], test, epsilon, args))
    print(rows.path.read_text(encoding="utf-8"), end="")


def measured(column: str, train: Dataset, chosen: np.ndarray, test: tuple[np.ndarray, np.ndarray], epsilon: float,
             args: argparse.Namespace) -> dict[str, object]:
    """Accuracy of a column, and the seconds that training took."""
    images, labels, start, epochs = train.images[chosen], train.labels[chosen], time.monotonic(), args.epochs
    method, num_classes = "", train.num_classes
    if column == "real":
        epochs = min(100, math.ceil(args.epochs * args.num_images / len(labels)))
    else:
        config = settings(column, DataFacts(
            num_records=len(labels), image_shape=train.image_shape, num_classes=num_classes), epsilon).replace(
            seed=args.seed)
        method = config.method
        with tempfile.TemporaryDirectory() as folder:
            run = registry.synthesizer(method)(config, run_dir=folder).fit(images, labels, num_classes=num_classes)
            seconds = time.monotonic() - start
            images, labels = run.sample(args.num_images, seed=args.seed)
    found = train_on_synthetic(images, labels, *test, num_classes, epochs=epochs, seed=args.seed)
    return {"method": method, "accuracy": f"{found.accuracy:.4f}",
            "seconds": "" if column == "real" else f"{seconds:.0f}"}


def settings(column: str, facts: DataFacts, epsilon: float) -> MethodConfig:
    """Settings of a column's generator."""
    if column == "merf":
        (method,) = (name for name, found in registry.methods().items() if found.published_as == "DP-MERF")
        return registry.config_class(method).for_budget(epsilon)
    if column == "default":
        return registry.config_class(registry.best(facts, epsilon).method).for_budget(epsilon)
    (of_sums,) = registry.having(["share_covariance"]).values()
    if column == "old":
        return of_sums(epsilon=epsilon, fixed_plan=True)
    known = of_sums(epsilon=epsilon, image_shape=facts.image_shape, num_classes=facts.num_classes)
    if column == "clusters":
        return known.resolved(10**9).replace(noise_multiplier=None)
    if column == "prototypes":
        whole = known.resolved(facts.num_records)
        mu = whole.num_charges**0.5 / whole.noise_multiplier
        plan = signal_plans.prototypes(mu * facts.num_records, facts.num_classes)
        return of_sums(epsilon=epsilon, mirrored=facts.image_shape[2] > 1, **plan)
    return of_sums(epsilon=epsilon, share_covariance=True, mean_charges=50, covariance_charges=50, embedding_charges=0,
                   selection_charges=0, candidates="moments:1:0.15")


if __name__ == "__main__":
    main()
