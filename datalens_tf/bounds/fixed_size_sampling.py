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
the two differ in one record.) Exchanging P and Q does not change the bound. It is convex in e^epsilon', so that it is
the curve of some pair of distributions, and composes (`bounds.curves`).

Requirements on the mechanism: given everything released before, the sample is fresh and secret, and the set that it is
drawn from is a function of the records and of the earlier releases alone. See `mechanisms.sanitized_gradients`.
"""

import functools
import math

import dp_accounting
import numpy as np
from numpy.typing import NDArray
from scipy import special

from datalens_tf.bounds.curves import TAIL, Curve


def curve(event: dp_accounting.SampledWithoutReplacementDpEvent) -> Curve:
    """The curve of one Gaussian release from a sample of fixed size, for one replaced record.

    Args:
      event: its noise multiplier is the noise's standard deviation divided by the sensitivity to that change.
    """
    # Never so small that its square is 0.
    rate, shift = event.sample_size / event.source_dataset_size, max(1e-8, 1.0 / event.event.noise_multiplier)
    largest = np.logaddexp(np.log1p(-rate) if rate < 1 else -np.inf,
                           math.log(rate) + shift**2 / 2 + TAIL * shift)
    return Curve(functools.partial(tails, rate=rate, shift=shift), float(largest),
                 min(3e-4 * max(1.0, shift**2), 0.1 * rate * math.sqrt(math.expm1(min(shift**2, 50.0)))))


def tails(losses: NDArray[np.float64], rate: float, shift: float) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """The probabilities of a larger loss of one step under the pair's distributions, float64 [n] each.

    They follow from the curve: the second is minus its derivative in e^epsilon', and delta = P - e^epsilon' Q.

    Args:
      losses: epsilon' >= 0, float64 [n].
      rate: q in (0, 1].
      shift: sensitivity divided by the noise's standard deviation, 1 / z.
    """
    with np.errstate(over="ignore"):
        inner = np.where(losses < 1, np.log1p(np.expm1(losses) / rate),
                         losses + np.log1p((rate - 1) * np.exp(-losses)) - math.log(rate))
    other = special.ndtr(-shift / 2 - inner / shift)
    return rate * special.ndtr(shift / 2 - inner / shift) + (1 - rate) * other, other
