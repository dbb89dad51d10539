"""`datalens advise`: what to expect of data and a budget, before anybody has looked at a record."""

from __future__ import annotations

import argparse
import math
import os
import time

from etils import epy

from datalens_tf import _validate
from datalens_tf.accounting import delta as deltas
from datalens_tf.cli import common
from datalens_tf.cli.parser import Command, Parser
from datalens_tf.facts import DataFacts
from datalens_tf.methods import registry
from datalens_tf.planning import advice
from datalens_tf.settings import COLORS, DEFAULT_COLOR, DEFAULT_IMAGE_SIZE

with epy.lazy_imports():
    import numpy as np

    from datalens_tf.bounds import gdp

_REFERENCE = 205.0  # GFLOP/s of large float32 products on the two cores that minutes were measured on


def _add_arguments(parser: Parser) -> None:
    parser.add_argument("--num_records", type=int, required=True, metavar="N", help="how many records there are")
    parser.add_argument("--num_classes", type=int, default=10, metavar="N", help="of the records (default: 10)")
    parser.add_argument("--epsilon", type=float, default=1.0, metavar="X", help="privacy budget (default: 1)")
    parser.add_argument("--method", default=None, metavar="NAME", help="by default the best for such data")
    common.add_picture_arguments(parser, unlabelled=False)


def _advise(args: argparse.Namespace) -> None:
    """The command itself: it reads the table of measured runs alone."""
    for name in ("num_records", "num_classes"):
        _validate.integer(f"--{name}", getattr(args, name), at_least=1)
    _validate.positive("--epsilon", args.epsilon)
    size, color = args.image_size or DEFAULT_IMAGE_SIZE, args.color or DEFAULT_COLOR
    facts = DataFacts(num_records=args.num_records, num_classes=args.num_classes, image_shape=(*size, COLORS[color]))
    if args.method is None:
        choice = registry.best(facts, args.epsilon)
        method, why = choice.method, choice.why
    else:
        _validate.one_of("--method", args.method, tuple(registry.methods()))
        method, why = args.method, f"choose it when {registry.methods()[args.method].choose_when}"
    delta = deltas.automatic(facts.num_records)
    parts = {"DATA": [("", str(facts))], "MEANING": _meaning(args.epsilon, delta),
             "METHOD": [(method, why)], "EXPECT": expectation(facts, args.epsilon, method),
             "WHAT HELPS": [(text, in_words(there)) for text, there in
                            advice.what_helps(facts, args.epsilon, method)]}
    print("\n\n".join("\n".join([title, *(f"  {name:<15}{text}" if name else f"  {text}" for name, text in rows)])
                      for title, rows in parts.items() if rows))


def _meaning(epsilon: float, delta: float) -> list[tuple[str, str]]:
    """A sentence on epsilon, and one on delta."""
    most = math.ceil(1000 * guess(epsilon, delta)) / 10
    return [(f"epsilon {epsilon:g}", "somebody who knows all records but one, and guesses which of two pictures that "
                                     f"one is, is right {most:.1f} % of the time at most where "
                                     "noise is Gaussian; blind guesses are right 50 % of it"),
            (f"delta {delta:g}", f"the chance that this fails, at most one in {round(1 / delta):,}")]


def guess(epsilon: float, delta: float) -> float:
    """The best chance to guess which of two records was used, by any test of Gaussian releases (Dong et al. 2019)."""
    from scipy import optimize, special

    priced = gdp.Gdp()
    mu = optimize.brentq(lambda mu: priced.of_gaussian(mu**2, delta) - epsilon, 1e-9, 10 + 2 * epsilon)
    return float(special.ndtr(mu / 2))


def expectation(facts: DataFacts, epsilon: float, method: str) -> list[tuple[str, str]]:
    """Lines on the worth that images of a method are expected to have, and on the time that they take."""
    found = advice.expected(facts, epsilon, method)
    if found is None and advice.is_below_all(facts, epsilon, method):
        return [("worth", "none: these are fewer records, for so many classes and this epsilon, than were ever "
                          "measured, and the images will be noise")]
    if found is None:
        return [("worth", f"nothing like it was measured with {method}")]
    row = found.nearest
    minutes = max(1, math.ceil(advice.minutes(facts, found) * slowness()))
    takes = f"{minutes} minute{'s' * (minutes > 1)}" if minutes < 120 else f"{math.ceil(minutes / 60)} hours"
    memory, whole = advice.memory(facts), os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") / 2**30
    largest = advice.largest_measured(facts, method)
    warnings = ["Most of what these images show will be noise."] * found.is_noise
    if largest is not None:
        warnings.append(f"No pictures as large were measured: {largest[0]} x {largest[1]} at most. Choose a smaller "
                        "--image_size, unless you can try it.")
    if memory > whole:
        warnings.append("That does not fit into the memory of this machine: choose a smaller --image_size.")
    worth = "with one class, there is nothing for a classifier to tell apart"
    if facts.num_classes > 1:
        worth = in_words(found)
    rows = [("worth", worth),
            ("nearest run", f"{row.accuracy:.2f} on {row.dataset}, {row.facts}, at epsilon {row.epsilon:g} (real "
                            f"pictures: {row.real_accuracy:.2f})"),
            ("time", f"about {takes}, by that run and the speed of this machine now"),
            ("memory", f"up to about {memory:.1f} GiB, of the {whole:.1f} GiB of this machine")]
    return rows[:1] + [("warning", text) for text in warnings] + rows[1:]


def in_words(found: advice.Expectation) -> str:
    """An expectation in a clause."""
    return f"{100 * found.low:.0f} to {100 * found.high:.0f} % of what real pictures teach a classifier, above guessing"


def slowness() -> float:
    """This machine's time for what takes 1 on two cores of the machines that runs were measured on."""
    matrix, times = np.ones((1024, 1024), np.float32), []
    for _ in range(5):
        start = time.perf_counter()
        matrix @ matrix
        times.append(time.perf_counter() - start)
    return sorted(times)[2] * _REFERENCE * 1e9 / (2 * len(matrix)**3)


COMMANDS = {"advise": Command(_add_arguments, _advise)}
