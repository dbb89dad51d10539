"""The price of a replaced record where each record is in a sample with probability q, by privacy losses.

dp_accounting 0.4 prices Poisson samples for records that are added or removed only. Two such steps lead to a replaced
record, but what they prove together is far above the truth. This module has the exact curve of one step.

The worst pair of one step. Let u and v be the record's vectors on the two data sets, both at most 1 long, and z the
standard deviation of the noise. Whichever other records are in the sample, outputs are, up to a shift, distributed as
P = (1 - q) N(0) + q N(u) and Q = (1 - q) N(0) + q N(v). As the hockey-stick divergence is jointly convex, that of the
mixture over all samples is at most that of the worst u and v. With A = e^epsilon >= 1, it is

    delta(epsilon) = q integral max(0, n(x - u) - (1 - q) (A - 1) / q n(x) - A n(x - v)) dx,

where n is the density of N(0). Let S be the set of all x where the integrand is positive.

- The angle between u and v. Turn v away from u, towards -u, by t. By the envelope theorem, delta changes by
  -q A d/dt integral_S n(x - v). Write x = p along v + r across it, where r grows as v turns. S is the set of all x with
  x.u > f(p) for a function f, and x.u falls in r, so that S = {r < h(p)}. The integral changes by
  |v| / z^2 integral_S r n(x - v), which is negative, as r is cut off from above. So delta never falls, and v = -|v| u.
- Lengths. On this line S is {x > c}. Here n(x - u) has more mass the longer u is, and n(x - v) has less the longer v
  is. So both are 1 long.

Hence u = 1 and v = -1, on a line, for every epsilon. Exchanging P and Q does not change the curve, which covers
epsilon < 0. The same pair has the largest Renyi divergences, as these are integrals of the curve (`bounds.rdp`).

Requirements on the mechanism: each record is in a step's sample with probability q, independently of all others and of
earlier steps, by a draw that nobody sees. See `mechanisms.gaussian_sum`.
"""

import functools
import math

import dp_accounting
import numpy as np
from numpy.typing import NDArray
from scipy import special

from datalens_tf.bounds.curves import TAIL, Curve


def curve(event: dp_accounting.PoissonSampledDpEvent) -> Curve:
    """The curve of one Gaussian release from a Poisson sample, for one replaced record.

    Args:
      event: its noise multiplier is the noise's standard deviation divided by the largest length of a record's vector.
    """
    rate, shift = float(event.sampling_probability), max(1e-8, 1.0 / event.event.noise_multiplier)
    farthest = shift * (shift + TAIL)
    with np.errstate(divide="ignore"):
        absent, present = np.log1p(-rate), math.log(rate) - shift**2 / 2
    largest = np.logaddexp(absent, present + farthest) - np.logaddexp(absent, present - farthest)
    typical = 2 * rate * math.sqrt(math.sinh(min(shift**2, 50.0)))  # standard deviation of small losses
    return Curve(functools.partial(tails, rate=rate, shift=shift), float(largest),
                 min(1e-4 * max(1.0, 4 * shift**2), 0.1 * typical))


def tails(losses: NDArray[np.float64], rate: float, shift: float) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """The probabilities of a larger loss of one step under P and under Q, float64 [n] each.

    Args:
      losses: epsilon >= 0, float64 [n].
      rate: q in (0, 1].
      shift: largest length of a record's vector divided by the noise's standard deviation, 1 / z.
    """
    with np.errstate(divide="ignore"):
        absent = np.log1p(-rate) + losses + np.log(-np.expm1(-losses))  # ln((1 - q) (A - 1))
        # The loss is epsilon at x where w = e^(x / z) solves B w^2 - (1 - q) (A - 1) w - A B = 0, B = q e^(-1 / 2z^2).
        root = np.logaddexp(2 * absent, math.log(4) + losses + 2 * math.log(rate) - shift**2) / 2
    cut = (np.logaddexp(absent, root) - math.log(2 * rate) + shift**2 / 2) / shift
    in_both = (1 - rate) * special.ndtr(-cut)
    return in_both + rate * special.ndtr(shift - cut), in_both + rate * special.ndtr(-shift - cut)
