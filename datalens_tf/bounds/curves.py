"""Epsilon of many steps from the curve delta(epsilon) of one.

A step's curve is that of some pair of distributions, which dominates the step; dominating pairs compose adaptively
(Zhu, Dong and Wang 2022, "Optimal Accounting of Differential Privacy via Characteristic Function"). Connecting the
curve's points at a grid by lines in e^epsilon only raises it (Doroshenko et al. 2022, "Connect the Dots").
"""

import dataclasses
import math
from collections.abc import Callable, Sequence

import numpy as np
from dp_accounting.pld import pld_pmf, privacy_loss_distribution
from numpy.typing import NDArray

# What is left of delta beyond this many standard deviations is below 1e-19; it is added to that of an infinite loss.
TAIL = 9.0


@dataclasses.dataclass(frozen=True)
class Curve:
    """The curve of one step, which exchanging the two data sets does not change.

    Attributes:
      delta: delta at losses epsilon >= 0, float64 [n] -> [n]; convex in e^epsilon.
      largest: loss beyond which next to no delta is left, see `TAIL`.
      interval: a grid fine enough for the step's losses, most of which are far smaller than the largest.
    """

    delta: Callable[[NDArray[np.float64]], NDArray[np.float64]]
    largest: float
    interval: float


def epsilon(curves: Sequence[tuple[Curve, int]], delta: float) -> float:
    """An upper bound on epsilon, at this delta, for steps with these curves, each with how often it was made."""
    interval = min(curve.interval for curve, _ in curves)
    total = privacy_loss_distribution.identity(interval)
    for curve, count in curves:
        total = total.compose(_distribution(curve, interval).self_compose(count))
    return float(total.get_epsilon_for_delta(delta))


def _distribution(curve: Curve, interval: float) -> privacy_loss_distribution.PrivacyLossDistribution:
    """Distribution of the privacy loss of one step, on a grid."""
    count = max(1, math.ceil(curve.largest / interval))
    losses = interval * np.arange(count + 1)
    upper = curve.delta(losses)
    # As exchanging the data sets does not change it, delta(-epsilon) = 1 - e^-epsilon + e^-epsilon delta(epsilon).
    lower = np.exp(-losses[1:]) * upper[1:] - np.expm1(-losses[1:])
    # Rounding must not make the curve rise anywhere.
    deltas = np.maximum.accumulate(np.concatenate([lower[::-1], upper])[::-1])[::-1]
    return privacy_loss_distribution.PrivacyLossDistribution(
        pld_pmf.create_pmf_pessimistic_connect_dots_fixed_gap(interval, -count, count, np.clip(deltas, 0.0, 1.0)))
