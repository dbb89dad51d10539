"""A table of measured runs and how useful their images were, for a first guess about other data.

Each row of `measured.csv` is one run with a method's defaults. It has what is public about the run's data, the budget,
two accuracies on real test records, and the minutes that training took. The accuracies are those of a classifier that
learned from synthetic images, and of one that learned from the training records. The minutes are of that run, or of
another one with the same settings. They were measured on one or two cores of an AMD EPYC while other work ran; without
other work, they would be fewer. DP-MERF takes the same steps for all numbers of records and epsilons. Where its minutes
were not kept, they are those of another run on images of the same shape. The rows are those of
docs/research/private_sums_few_records.md.
"""

import csv
import math
import pathlib
from typing import NamedTuple

from datalens_tf.facts import DataFacts

TABLE = pathlib.Path(__file__).with_name("measured.csv")
# Runs are alike if n epsilon / Y is up to three times as large or as small. Where there are none, ten times will do.
_LIKE = (math.log(3) + 1e-9, math.log(10) + 1e-9)


class Measured(NamedTuple):
    """One run.

    Attributes:
      dataset: its name in the documents.
      facts: what is public about it.
      epsilon: the budget.
      method: which method.
      accuracy: of a classifier of its images.
      real_accuracy: of a classifier of the records.
      minutes: of training.
    """

    dataset: str
    facts: DataFacts
    epsilon: float
    method: str
    accuracy: float
    real_accuracy: float
    minutes: float

    @property
    def worth(self) -> float:
        """Share of what the records teach a classifier, above guessing, that the images teach it; at least 0."""
        guessing = 1 / self.facts.num_classes
        return max(0.0, (self.accuracy - guessing) / max(self.real_accuracy - guessing, 1e-9))

    @property
    def signal(self) -> float:
        """Strength of what records have in common, see `signal`."""
        return signal(self.facts, self.epsilon)


def signal(facts: DataFacts, epsilon: float) -> float:
    """Strength of what records have in common compared with the noise: the logarithm of n epsilon / Y."""
    return math.log(facts.num_records * epsilon / facts.num_classes)


def rows(path: pathlib.Path | None = None) -> tuple[Measured, ...]:
    """All runs of a table, by default of the package's."""
    with (path or TABLE).open(encoding="utf-8", newline="") as file:
        return tuple(Measured(
            dataset=row["dataset"], epsilon=float(row["epsilon"]), method=row["method"],
            accuracy=float(row["accuracy"]), real_accuracy=float(row["real_accuracy"]), minutes=float(row["minutes"]),
            facts=DataFacts(num_records=int(row["num_records"]), num_classes=int(row["num_classes"]),
                            image_shape=(int(row["height"]), int(row["width"]), int(row["channels"]))))
            for row in csv.DictReader(file))


def alike(facts: DataFacts, epsilon: float, method: str, path: pathlib.Path | None = None) -> tuple[Measured, ...]:
    """Runs of a method on data alike, the most alike first.

    Data are alike if the pictures have as many channels, and if the records per class times epsilon, with which noise
    is to be compared, are up to three times as many or as few. Where there are no such runs, up to ten times will do.

    Args:
      facts: what is public about the data.
      epsilon: the budget.
      method: its name.
      path: the table; None for the package's.
    """
    def distance(row: Measured) -> float:
        return abs(row.signal - signal(facts, epsilon))

    candidates = [row for row in rows(path) if row.method == method
                  and row.facts.image_shape[2] == facts.image_shape[2]]
    found = next(filter(None, ([row for row in candidates if distance(row) <= like] for like in _LIKE)), [])
    return tuple(sorted(found, key=lambda row: (round(distance(row), 9), abs(math.log(row.epsilon / epsilon)))))
