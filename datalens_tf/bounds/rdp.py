"""Renyi accounting with a tighter conversion, by dp_accounting, of divergences that do not depend on its version.

dp_accounting's versions agree on Gaussian noise, also from samples of fixed size. They disagree on Laplace noise and on
fractional orders of Poisson samples, which 0.4 computes as here and 0.6 bounds loosely from above. Recipients check a
statement with the version that they have, so this module computes both kinds of divergences. It also has those of
Poisson samples for replaced records, which dp_accounting lacks.
"""

import functools
import math

import dp_accounting
import numpy as np
from dp_accounting import rdp
from numpy.typing import NDArray
from scipy import special

from datalens_tf import _validate, events
from datalens_tf.bounds.accountant import RELATIONS, Accountant, Tally, by_dp_accounting

PLACE = 2

_ORDERS: NDArray[np.float64] = np.array([1 + x / 10 for x in range(1, 100)] + [*range(11, 64), 128, 256, 512, 1024])
# Below this noise multiplier, sampling is taken to save nothing: little privacy is left, and the grid would be huge.
_NEXT_TO_NO_NOISE = 0.05


class Rdp(Accountant):
    """dp_accounting's RDP accountant; Poisson samples and Laplace noise by divergences of our own."""

    note = "dp_accounting's Renyi accountant; valid"
    note_on_samples = "Renyi divergences of a replaced record in a sample, which dp_accounting lacks; valid"

    def epsilon(self, tally: Tally, delta: float, adjacency: str) -> float:
        tally = tuple((_gaussian(event), count) for event, count in tally)
        own = (dp_accounting.LaplaceDpEvent, dp_accounting.PoissonSampledDpEvent)
        if not any(isinstance(event, own) for event, _ in tally):
            return by_dp_accounting(rdp.RdpAccountant(_ORDERS, RELATIONS[adjacency]), tally, delta, adjacency)
        total = np.sum([count * _divergences(event, adjacency) for event, count in tally], axis=0)
        return float(rdp.compute_epsilon(_ORDERS, total, delta)[0])


def _gaussian(event: dp_accounting.DpEvent) -> dp_accounting.DpEvent:
    """The event, or a Gaussian one whose Renyi divergences bound its own."""
    discrete = isinstance(event, events.DiscreteGaussianDpEvent)
    return dp_accounting.GaussianDpEvent(event.noise_multiplier) if discrete else event


def _divergences(event: dp_accounting.DpEvent, adjacency: str) -> NDArray[np.float64]:
    """Renyi divergences of one release, for all orders."""
    if isinstance(event, dp_accounting.GaussianDpEvent):
        return _ORDERS / 2 / float(event.noise_multiplier) / float(event.noise_multiplier)
    if isinstance(event, dp_accounting.LaplaceDpEvent):
        # It is (1/b, 0)-private, and so (1 / 2b^2)-zCDP (Bun and Steinke 2016, proposition 1.4).
        pure = 1 / float(event.noise_multiplier)
        return np.minimum(pure, pure * pure / 2 * _ORDERS)
    _validate.require(
        isinstance(event, dp_accounting.PoissonSampledDpEvent)
        and isinstance(event.event, dp_accounting.GaussianDpEvent), "event", event,
        f"to be one that can be priced for {RELATIONS[adjacency].name} by rdp")
    _validate.between("sampling_probability", event.sampling_probability, 0, 1)
    moment = replaced_moment if RELATIONS[adjacency] is RELATIONS["replace-one"] else poisson_moment
    return np.array([moment(order, event.sampling_probability, event.event.noise_multiplier) / (order - 1)
                     for order in _ORDERS.tolist()])


@functools.lru_cache(maxsize=4096)
def poisson_moment(order: float, rate: float, multiplier: float) -> float:
    """The Renyi divergence times order - 1, that is ln E[((1 - q) + q e^((2x - 1) / 2z^2))^order] for x of N(0, z^2).

    Neither adding nor removing a record costs more (Mironov, Talwar and Zhang 2019, "Renyi Differential Privacy of the
    Sampled Gaussian Mechanism", section 3). Integer orders have a finite sum (section 3.3). For the others, the
    integral is a sum on a grid: the integrand is analytic within pi z^2 of the real line, so with steps of
    min(z, z^2) / 4 the error is below e^-70 of the integral.

    Args:
      order: > 1.
      rate: q in [0, 1], the probability that a record is in the sample.
      multiplier: z > 0, standard deviation of the noise divided by the sensitivity.
    """
    if rate == 0:
        return 0.0
    if rate == 1 or multiplier < _NEXT_TO_NO_NOISE:
        return order * (order - 1) / 2 / multiplier / multiplier
    variance = multiplier**2
    if order == int(order):
        k = np.arange(order + 1)
        terms = (special.gammaln(order + 1) - special.gammaln(k + 1) - special.gammaln(order - k + 1)
                 + k * math.log(rate) + (order - k) * math.log1p(-rate) + k * (k - 1) / (2 * variance))
    else:
        step = min(multiplier, variance) / 4
        x = np.arange(-15 * multiplier, order + 15 * multiplier, step)
        ratio = np.logaddexp(math.log1p(-rate), math.log(rate) + (2 * x - 1) / (2 * variance))
        terms = order * ratio - x**2 / (2 * variance) + math.log(step / multiplier / math.sqrt(2 * math.pi))
    return max(0.0, float(special.logsumexp(terms)))


@functools.lru_cache(maxsize=4096)
def replaced_moment(order: float, rate: float, multiplier: float) -> float:
    """The Renyi divergence times order - 1 for a replaced record: ln E_Q[(P / Q)^order].

    Here P = (1 - q) N(0, z^2) + q N(1, z^2), and Q = (1 - q) N(0, z^2) + q N(-1, z^2). No other vectors of the record
    and its replacement have a larger divergence (`bounds.poisson_sampling`). The integral is a sum on a grid. Where x
    is t z^2 off the real line, P / N(0) and Q / N(0) shrink by cos(t / 2) at most, so that with t =
    min(1, 6 / sqrt(order)) and steps of t min(z, z^2) / 8 the error is below e^-40 of the integral.

    Args:
      order: > 1.
      rate: q in [0, 1].
      multiplier: z > 0, standard deviation of the noise divided by the largest length of a record's vector.
    """
    if rate == 0:
        return 0.0
    if rate == 1 or multiplier < _NEXT_TO_NO_NOISE:
        return order * (order - 1) * 2 / multiplier / multiplier
    variance = multiplier**2
    step = min(1.0, 6 / order**0.5) * min(multiplier, variance) / 8
    x = np.arange(-1 - 15 * multiplier, 2 * order + 15 * multiplier, step)
    here, there = (np.logaddexp(math.log1p(-rate), math.log(rate) + (2 * side * x - 1) / (2 * variance))
                   for side in (1, -1))
    terms = order * here + (1 - order) * there - x**2 / (2 * variance)
    return max(0.0, float(special.logsumexp(terms)) + math.log(step / multiplier / math.sqrt(2 * math.pi)))
