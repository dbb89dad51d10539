"""Expected worth of a method's images on data that nobody has looked at, by a table of measured runs.

The number of records per class, times epsilon, decides how much of what records have in common noise hides. Worth is
read off along that, between the runs on one data set. Data sets differ, so that an expectation is a range.
"""

import dataclasses
import math
import pathlib
from typing import NamedTuple

from datalens_tf.config import DataFacts
from datalens_tf.planning import measured

NOISE = 0.4  # Below it, most of what a classifier learns from the images is noise.
# How far a worth may be beyond what was measured on other data sets, and on a single other one.
_MARGIN, _MARGIN_OF_ONE = 0.1, 0.25


class Expectation(NamedTuple):
    """Worth that a method's images are expected to have.

    Attributes:
      low, high: range of `measured.Measured.worth`.
      nearest: the run that is most alike.
    """

    low: float
    high: float
    nearest: measured.Measured

    @property
    def is_noise(self) -> bool:
        """Whether even the better end is next to nothing."""
        return self.high < NOISE


def expected(facts: DataFacts, epsilon: float, method: str, path: pathlib.Path | None = None) -> Expectation | None:
    """The worth to expect, or None where no run of the method was on anything alike.

    Args:
      facts: what is public about the data.
      epsilon: the budget.
      method: its name.
      path: the table of runs; None for the package's.

    Example:
      >>> facts = DataFacts(num_records=10**9, image_shape=(28, 28, 1), num_classes=2)
      >>> expected(facts, 1.0, "dcgan") is None
      True
    """
    alike = measured.alike(facts, epsilon, method, path)
    if not alike:
        return None
    signal, worths = measured.signal(facts, epsilon), []
    for dataset in {row.dataset for row in alike}:
        rows = sorted((row for row in measured.rows(path) if row.method == method and row.dataset == dataset),
                      key=lambda row: row.signal)
        worths.append(_read_off([(row.signal, row.worth) for row in rows], signal))
    margin = _MARGIN if len(worths) > 1 else _MARGIN_OF_ONE
    return Expectation(max(0.0, min(worths) - margin), min(1.0, max(worths) + margin), alike[0])


def what_helps(facts: DataFacts, epsilon: float, method: str, path: pathlib.Path | None = None
               ) -> list[tuple[str, Expectation]]:
    """Changes that make images better, each with what is then expected, the best first."""
    more = dataclasses.replace(facts, num_records=2 * facts.num_records)
    changes = [(f"{more.num_records:,} records", more, epsilon)]
    if facts.num_classes > 3:
        fewer = dataclasses.replace(facts, num_classes=math.ceil(facts.num_classes / 2))
        changes.append((f"{fewer.num_classes} classes", fewer, epsilon))
    if epsilon < 10:
        changes.append((f"epsilon {min(10.0, 3 * epsilon):g}", facts, min(10.0, 3 * epsilon)))
    found = [(text, expected(other, budget, method, path)) for text, other, budget in changes]
    return sorted(((text, there) for text, there in found if there is not None), key=lambda item: -item[1].low)


def _read_off(points: list[tuple[float, float]], place: float) -> float:
    """Worth at a place, linear between points in order of their places, and that of the last one beyond them."""
    before = [point for point in points if point[0] <= place]
    after = [point for point in points if point[0] > place]
    if not before or not after:
        return (before[-1] if before else after[0])[1]
    (left, low), (right, high) = before[-1], after[0]
    return low + (high - low) * (place - left) / (right - left)
