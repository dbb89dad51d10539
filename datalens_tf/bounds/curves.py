"""Epsilon of many steps from the pair of distributions that dominates one.

Dominating pairs compose adaptively (Zhu, Dong and Wang 2022, "Optimal Accounting of Differential Privacy via
Characteristic Function"). Connecting the pair's delta(epsilon) at a grid by lines in e^epsilon only raises it
(Doroshenko et al. 2022, "Connect the Dots"). That paper takes second differences of delta. Here, what a cell of the
grid holds is shared by its two ends, so that no probability is negative, and their sum is 1 to the last bit.
"""

import dataclasses
import math
from collections.abc import Callable, Sequence

import numpy as np
from dp_accounting.pld import pld_pmf, privacy_loss_distribution
from numpy.typing import NDArray

# What is left of delta beyond this many standard deviations is below 1e-19; it is added to that of an infinite loss.
TAIL = 9.0
_MOST_POINTS = 2**20  # of a grid; coarser ones only raise epsilon
# What one more step may take from delta by rounding. In comparisons with exact values, it was up to 7e-17.
_ROUNDING = 2.0**-52


@dataclasses.dataclass(frozen=True)
class Curve:
    """The pair of distributions P and Q of one step; exchanging them does not change it.

    Attributes:
      tails: of losses >= 0, float64 [n]: the probabilities of a larger loss under P and under Q, float64 [n] each.
      largest: loss beyond which next to no delta is left, see `TAIL`.
      interval: a grid fine enough for the step's losses, most of which are far smaller than the largest.
    """

    tails: Callable[[NDArray[np.float64]], tuple[NDArray[np.float64], NDArray[np.float64]]]
    largest: float
    interval: float


def epsilon(curves: Sequence[tuple[Curve, int]], delta: float) -> float:
    """An upper bound on epsilon, at this delta, for steps with these curves, each with how often it was made.

    It is infinite where the steps are so many, and delta so small, that rounding could have made up for it.
    """
    interval = max(min(curve.interval for curve, _ in curves), max(curve.largest for curve, _ in curves) / _MOST_POINTS)
    total = privacy_loss_distribution.identity(interval)
    for curve, count in curves:
        total = total.compose(_distribution(curve, interval).self_compose(count))
    sure = delta - _ROUNDING * sum(count for _, count in curves)
    return float(total.get_epsilon_for_delta(sure)) if sure > 0 else math.inf


def _distribution(curve: Curve, interval: float) -> privacy_loss_distribution.PrivacyLossDistribution:
    """Distribution of the privacy loss of one step, on a grid."""
    count = max(1, math.ceil(curve.largest / interval))
    losses = interval * np.arange(count + 1)
    beyond, other = curve.tails(losses)
    # What P and Q have in a cell is shared by its ends, so that P has e^loss times what Q has at each.
    cells = -np.diff(beyond)
    with np.errstate(divide="ignore"):
        cells_of_q = np.exp(losses[:-1] + np.log(-np.diff(other)))
    upper = np.clip((cells - cells_of_q) / -math.expm1(-interval), 0.0, cells)
    masses = np.append(cells - upper, 0.0) + np.append(0.0, upper)
    opposite = np.exp(-losses) * masses  # P and Q exchanged: of losses < 0
    opposite[-1] += other[-1]
    masses[0] = max(0.0, 1.0 - masses[1:].sum() - opposite[1:].sum() - beyond[-1])
    return privacy_loss_distribution.PrivacyLossDistribution(pld_pmf.DensePLDPmf(
        interval, -count, np.concatenate([opposite[:0:-1], masses]), float(beyond[-1]), True))
