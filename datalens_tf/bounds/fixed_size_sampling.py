"""The price of answering from one sampled part of the data, or from a sample of fixed size, by privacy losses.

dp_accounting prices `SampledWithoutReplacementDpEvent` by Renyi divergences only, with constants that cost a good part
of the budget. This module computes the distribution of the privacy loss, for neighbours that differ in one replaced
record.

The bound on one step. Outputs are distributed as P = (1 - q) A + q B on one data set and as Q = (1 - q) A + q B' on its
neighbour. Here q is the probability that the record is in the sample, and A, B, B' are mixtures of Gaussians with
standard deviation z. All means of A, B and B' are at most 1 apart. For epsilon >= 0 and epsilon' = ln(1 + q (e^epsilon
- 1)), advanced joint convexity (Balle, Barthe and Gaboardi 2018, theorem 2) bounds the hockey-stick divergence by

    delta_{P,Q}(epsilon') <= q ((1 - beta) delta_{B,A}(epsilon) + beta delta_{B,B'}(epsilon)),  0 <= beta <= 1.

By joint convexity, both terms are bounded by the divergence of two Gaussians 1 apart:
delta(epsilon') = q delta_Gauss(epsilon). (Samples of more than one record are paired, one of A with one of B, so that
the two differ in one record.) Exchanging P and Q does not change the bound, so
delta(-epsilon') = 1 - e^-epsilon' + e^-epsilon' delta(epsilon').

Composition. That curve is convex in e^epsilon' and is therefore the curve of some pair of distributions. The pair
dominates every step, and dominating pairs compose adaptively (Zhu, Dong and Wang 2022, "Optimal Accounting of
Differential Privacy via Characteristic Function"). Connecting the curve's points at a grid by lines in e^epsilon' only
raises it (Doroshenko et al. 2022, "Connect the Dots").

Requirements on the mechanism: given everything released before, the sample is fresh and secret, and the set that it is
drawn from is a function of the records and of the earlier releases alone. See `mechanisms.sanitized_gradients`.
"""

import math
from collections.abc import Sequence

import dp_accounting
import numpy as np
from dp_accounting.pld import pld_pmf, privacy_loss_distribution
from numpy.typing import NDArray
from scipy import special

# What is left of delta beyond this many standard deviations is below 1e-19; it is added to that of an infinite loss.
_TAIL = 9.0


def epsilon(tally: Sequence[tuple[dp_accounting.SampledWithoutReplacementDpEvent, int]], delta: float) -> float:
    """An upper bound on epsilon, at this delta, for sampled Gaussian releases, each with how often it was made."""
    interval = min(_interval(event) for event, _ in tally)
    total = privacy_loss_distribution.identity(interval)
    for event, count in tally:
        total = total.compose(_distribution(event, interval).self_compose(count))
    return float(total.get_epsilon_for_delta(delta))


def step_delta(losses: NDArray[np.float64], rate: float, shift: float) -> NDArray[np.float64]:
    """delta(epsilon') of one step; the module's docstring derives it.

    Args:
      losses: epsilon' >= 0, float64 [n].
      rate: q in (0, 1].
      shift: sensitivity divided by the noise's standard deviation, 1 / z.
    """
    with np.errstate(over="ignore"):
        inner = np.where(losses < 1, np.log1p(np.expm1(losses) / rate),
                         losses + np.log1p((rate - 1) * np.exp(-losses)) - math.log(rate))
    first = special.log_ndtr(shift / 2 - inner / shift)
    second = inner + special.log_ndtr(-shift / 2 - inner / shift)
    deltas: NDArray[np.float64] = -rate * np.exp(first) * np.expm1(np.minimum(second - first, 0.0))
    return deltas


def _distribution(event: dp_accounting.SampledWithoutReplacementDpEvent, interval: float
                  ) -> privacy_loss_distribution.PrivacyLossDistribution:
    """Distribution of the privacy loss of one step, on a grid."""
    rate, shift = _rate_and_shift(event)
    largest = np.logaddexp(np.log1p(-rate) if rate < 1 else -np.inf,
                           math.log(rate) + shift**2 / 2 + _TAIL * shift)
    count = max(1, math.ceil(largest / interval))
    losses = interval * np.arange(count + 1)
    upper = step_delta(losses, rate, shift)
    lower = np.exp(-losses[1:]) * upper[1:] - np.expm1(-losses[1:])
    # Rounding must not make the curve rise anywhere.
    deltas = np.maximum.accumulate(np.concatenate([lower[::-1], upper])[::-1])[::-1]
    return privacy_loss_distribution.PrivacyLossDistribution(
        pld_pmf.create_pmf_pessimistic_connect_dots_fixed_gap(interval, -count, count, np.minimum(deltas, 1.0)))


def _interval(event: dp_accounting.SampledWithoutReplacementDpEvent) -> float:
    """A grid fine enough for a step's losses, most of which are far smaller than the largest."""
    rate, shift = _rate_and_shift(event)
    return min(3e-4 * max(1.0, shift**2), 0.1 * rate * math.sqrt(math.expm1(min(shift**2, 50.0))))


def _rate_and_shift(event: dp_accounting.SampledWithoutReplacementDpEvent) -> tuple[float, float]:
    """Sampling rate, and sensitivity divided by the noise's standard deviation; never so small that its square is 0."""
    return event.sample_size / event.source_dataset_size, max(1e-8, 1.0 / event.event.noise_multiplier)
