"""Expected worth of a method's images on data that nobody has looked at, by a table of measured runs.

The number of records per class, times epsilon, decides how much of what records have in common is hidden by noise.
Worth is read off along this number, between the runs on one data set. Beyond these runs, worth may change as fast as it
ever does. Data sets differ, so an expectation is a range, which is wider where fewer data sets were measured.
`run_scripts/studies/advice.py` says how often the range holds for runs that the table does not have.
"""

import dataclasses
import math
import pathlib
from typing import NamedTuple

from datalens_tf.facts import DataFacts
from datalens_tf.planning import measured

NOISE = 0.4  # Below it, most of what a classifier learns from the images is noise.
_MARGIN = 0.25  # by which a worth may differ from that on a single other data set; with n of them, 1 / sqrt(n) of it
_ENLARGED = 4  # Images with so many times the numbers of any that was measured may show nothing.
_STEEPEST = 1 / math.log(10)  # Worth goes from nothing to all within ten times the signal, at the fastest.


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
        """Whether even the better end of the range is next to nothing."""
        return self.high < NOISE


def expected(facts: DataFacts, epsilon: float, method: str, path: pathlib.Path | None = None) -> Expectation | None:
    """The worth to expect, or None where no run of the method was on similar data.

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
    rows = [row for row in measured.rows(path) if row.method == method]
    ranges = [_read_off([(row.signal, row.worth) for row in rows if row.dataset == dataset],
                        measured.signal(facts, epsilon))
              for dataset in {row.dataset for row in alike}]
    lows, highs = zip(*ranges)
    margin = _MARGIN / math.sqrt(len(ranges))
    low = max(0.0, min(lows) - margin) if largest_measured(facts, method, path) is None else 0.0
    return Expectation(low, min(1.0, max(highs) + margin), alike[0])


def largest_measured(facts: DataFacts, method: str, path: pathlib.Path | None = None) -> tuple[int, int] | None:
    """Height and width of the largest images in the method's runs, if those of the data are far larger; else None."""
    sizes = [row.facts for row in measured.rows(path) if row.method == method
             and row.facts.image_shape[2] == facts.image_shape[2]]
    largest = max(sizes, key=lambda one: one.dimension, default=facts)
    return largest.image_shape[:2] if facts.dimension > _ENLARGED * largest.dimension else None


def is_below_all(facts: DataFacts, epsilon: float, method: str, path: pathlib.Path | None = None) -> bool:
    """Whether records are fewer, for their classes and epsilon, than in any run of the method with as many channels."""
    signals = [row.signal for row in measured.rows(path) if row.method == method
               and row.facts.image_shape[2] == facts.image_shape[2]]
    return bool(signals) and measured.signal(facts, epsilon) < min(signals)


def minutes(facts: DataFacts, found: Expectation) -> float:
    """Minutes of training on the table's machine: those of the nearest run, in proportion to an image's numbers."""
    return found.nearest.minutes * facts.dimension / found.nearest.facts.dimension


def memory(facts: DataFacts) -> float:
    """GiB that training takes at most, for methods that release sums over the records.

    TensorFlow takes 0.6 GiB, statistics 0.15 MiB for each number of an image that is averaged to at most 32 pixels a
    side, the generator 0.06 MiB for each number of an image, and the records 5 bytes a number, as they are stored and
    once in floating point. What untrained networks see of many colour pictures takes 0.5 GiB.

    Measured with DataLens+ at epsilon 1: 0.73 GiB for 3,000 records of 28 x 28 grey, 1.14 for 3,000 and 2.41 for 50,000
    of 32 x 32 in colour.
    """
    height, width, channels = facts.image_shape
    averaged = min(height, 32) * min(width, 32) * channels
    statistics, records = 0.15 * averaged + 0.06 * facts.dimension, 5 * facts.num_records * facts.dimension
    return 0.6 + 0.5 * (channels > 1) + statistics / 2**10 + records / 2**30


def what_helps(facts: DataFacts, epsilon: float, method: str, path: pathlib.Path | None = None
               ) -> list[tuple[str, Expectation]]:
    """Changes that make images better, by a percent at least, each with what is then expected, the best first.

    What is expected without a change is expected with it, too, even if fewer data sets were measured there.
    """
    now = expected(facts, epsilon, method, path)
    more = dataclasses.replace(facts, num_records=2 * facts.num_records)
    changes = [(f"{more.num_records:,} records", more, epsilon)]
    if facts.num_classes > 3:
        fewer = dataclasses.replace(facts, num_classes=math.ceil(facts.num_classes / 2))
        changes.append((f"{fewer.num_classes} classes", fewer, epsilon))
    if epsilon < 10:
        changes.append((f"epsilon {min(10.0, 3 * epsilon):g}", facts, min(10.0, 3 * epsilon)))
    found = [(text, expected(other, budget, method, path)) for text, other, budget in changes]
    better = [(text, there if now is None else there._replace(low=max(now.low, there.low),
                                                              high=max(now.high, there.high)))
              for text, there in found if there is not None
              and (now is None or max(there.low - now.low, there.high - now.high) >= 0.01)]
    return sorted(better, key=lambda item: (-item[1].low, -item[1].high))


def _read_off(points: list[tuple[float, float]], place: float) -> tuple[float, float]:
    """Range of worths at a place, by those at other places: linear between them, as steep as may be beyond them."""
    worths: dict[float, list[float]] = {}
    for where, worth in sorted(points):
        worths.setdefault(round(where, 6), []).append(worth)
    places = list(worths)
    if place < places[0]:
        return min(worths[places[0]]) - _STEEPEST * (places[0] - place), max(worths[places[0]])
    if place >= places[-1]:
        return min(worths[places[-1]]), max(worths[places[-1]]) + _STEEPEST * (place - places[-1])
    right = next(number for number, where in enumerate(places) if where > place)
    share = (place - places[right - 1]) / (places[right] - places[right - 1])
    before, after = worths[places[right - 1]], worths[places[right]]
    return ((1 - share) * min(before) + share * min(after), (1 - share) * max(before) + share * max(after))
