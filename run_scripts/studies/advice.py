"""How often the expectations of `datalens advise` hold for runs that its table does not have.

    python run_scripts/studies/advice.py [--tables FILE ...] [--output FILE.csv]

Every run of the tables is predicted twice, by other runs: once without all runs on its data set, and once without the
runs on its data set with its number of records. A prediction is a hit where the measured worth is in the stated range.
Where no run is alike, no range is stated, and the prediction is not counted.

A table is one like `datalens_tf/planning/measured.csv`, which is the default, or one that
`run_scripts/studies/few_records.py` writes; of the latter, the columns `default` and `merf` are taken. Where several
tables have a run, the last one counts.
"""

import argparse
import csv
import pathlib
import sys
import tempfile
from collections.abc import Sequence
from typing import NamedTuple

from datalens_tf.planning import advice, measured

FIELDS = ("dataset", "num_records", "num_classes", "height", "width", "channels", "epsilon", "method", "accuracy",
          "real_accuracy", "minutes")
# Data sets of few_records.py: name in the documents, classes, height, width, channels.
NAMES = {"mnist": ("MNIST", 10, 28, 28, 1), "fashion_mnist": ("Fashion-MNIST", 10, 28, 28, 1),
         "tfds:cifar10_jpeg": ("CIFAR-10", 10, 32, 32, 3), "celeba_gender": ("CelebA, gender", 2, 64, 64, 3),
         "places365": ("Places365", 3, 64, 64, 3)}
SHOWN = ("without", "dataset", "num_records", "epsilon", "method", "low", "high", "measured", "hit")


class Prediction(NamedTuple):
    """One run, predicted by others.

    Attributes:
      without: which runs were left out: `data set` or `size`.
      run: what was measured.
      found: the expectation; None where there is none.
    """

    without: str
    run: measured.Measured
    found: advice.Expectation | None

    @property
    def hit(self) -> bool | None:
        """Whether the measured worth is in the range; None where there is none."""
        return None if self.found is None else self.found.low <= self.run.worth <= self.found.high

    def row(self) -> dict[str, object]:
        """The prediction as a row of the printed table."""
        run, found = self.run, self.found
        shown = ("", "", f"{run.worth:.2f}", "") if found is None else (
            f"{found.low:.2f}", f"{found.high:.2f}", f"{run.worth:.2f}", "yes" if self.hit else "NO")
        return dict(zip(SHOWN, (self.without, run.dataset, run.facts.num_records, f"{run.epsilon:g}", run.method,
                                *shown)))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--tables", nargs="+", type=pathlib.Path, default=[measured.TABLE])
    parser.add_argument("--output", type=pathlib.Path, help="a file for the predictions, beside the terminal")
    args = parser.parse_args()
    found = predictions(rows_of(args.tables))
    write(sys.stdout, found)
    stated = [prediction for prediction in found if prediction.found is not None]
    hits = sum(bool(prediction.hit) for prediction in stated)
    width = sum(one.found.high - one.found.low for one in stated if one.found) / max(1, len(stated))
    print(f"{hits} of {len(stated)} in the stated range, which is {width:.2f} wide on average; nothing is stated of "
          f"{len(found) - len(stated)}")
    if args.output is not None:
        with args.output.open("w", encoding="utf-8", newline="") as file:
            write(file, found)


def write(file, found: Sequence[Prediction]) -> None:
    """Writes predictions as CSV."""
    writer = csv.DictWriter(file, SHOWN, lineterminator="\n")
    writer.writeheader()
    writer.writerows(prediction.row() for prediction in found)


def rows_of(tables: Sequence[pathlib.Path]) -> list[dict[str, str]]:
    """Rows like those of `measured.csv`, from tables of either kind, each run once."""
    found: dict[tuple[str, ...], dict[str, str]] = {}
    for path in tables:
        with path.open(encoding="utf-8", newline="") as file:
            rows = list(csv.DictReader(file))
        for row in rows if not rows or "num_records" in rows[0] else few_records(rows):
            found[row["dataset"], row["num_records"], f"{float(row['epsilon']):g}", row["method"]] = row
    return list(found.values())


def few_records(rows: Sequence[dict[str, str]]) -> list[dict[str, str]]:
    """Rows of `few_records.py` in the form of `measured.csv`: methods by their defaults, on the test split."""
    tested = [row for row in rows if row["tested_on"] == "test split"]
    real = {(row["dataset"], row["records"]): row["accuracy"] for row in tested if row["column"] == "real"}
    return [dict(zip(FIELDS, (*facts_of(row["dataset"], row["records"]), row["epsilon"], row["method"], row["accuracy"],
                              real[row["dataset"], row["records"]], f"{max(0.01, float(row['seconds']) / 60):.2f}")))
            for row in tested if row["column"] in ("default", "merf") and (row["dataset"], row["records"]) in real]


def facts_of(shown: str, records: str) -> tuple[str, ...]:
    """The first six fields of a run on a data set, whose name may be followed by another size of its pictures."""
    dataset, _, size = shown.partition(" ")
    name, classes, height, width, channels = NAMES[dataset]
    sides = size.split("x") if size else [str(height), str(width)]
    return (name, records, str(classes), *sides, str(channels))


def predictions(rows: Sequence[dict[str, str]]) -> list[Prediction]:
    """Each run, predicted without its data set, and without its number of records of that data set."""
    made = []
    with tempfile.TemporaryDirectory() as folder:
        for without, same in (("data set", ("dataset",)), ("size", ("dataset", "num_records"))):
            for row in rows:
                others = [other for other in rows if any(other[field] != row[field] for field in same)]
                run, = read([row], pathlib.Path(folder))
                table = stored(others, pathlib.Path(folder))
                made.append(Prediction(without, run, advice.expected(run.facts, run.epsilon, run.method, table)))
    return made


def stored(rows: Sequence[dict[str, str]], folder: pathlib.Path) -> pathlib.Path:
    """A table of the rows."""
    path = folder / "table.csv"
    with path.open("w", encoding="utf-8", newline="") as file:
        writer = csv.DictWriter(file, FIELDS, extrasaction="ignore")
        writer.writeheader()
        writer.writerows(rows)
    return path


def read(rows: Sequence[dict[str, str]], folder: pathlib.Path) -> tuple[measured.Measured, ...]:
    """The rows as runs."""
    return measured.rows(stored(rows, folder))


if __name__ == "__main__":
    main()
