"""Data-dependent privacy analysis (the paper's Theorems 4 and 5, Figure 2): a study tool whose results are PRIVATE.

Whatever is computed here depends on the records through the un-noised votes, so it must not leave the data owner's
machine, must not stop or steer training, and is no guarantee. Nothing in the package imports this module: statements,
ledgers and exports cannot reach it. It exists to show that this loses nothing (`run_scripts/studies/figure2.py`).
"""

import math

import numpy as np
from scipy import special

from datalens_tf import _validate

_MU_2 = 1 + np.geomspace(1e-2, 1e5, 400)
_FLOAT_ERROR = 1e-13  # Of sums and logarithms of numbers around 1.
_MU_1_OVER_ORDER = 1 + np.geomspace(1e-4, 1e5, 200)


def log_likeliest(vote_sum: np.ndarray, noise_stddev: float, bar: float) -> np.ndarray:
    """ln of each coordinate's probability of its likeliest released value (Theorem 5, read from its proof).

    With noise n ~ N(0, sigma^2) a coordinate f becomes +1 where f + n >= bar, -1 where f + n <= -bar, else 0.
    Coordinates are independent: the likeliest outcome of several has the sum of their logarithms, and
    q = 1 - exp(sum) is Theorem 5's Pr[outcome differs from the likely one].

    Args:
      vote_sum: un-noised votes f, any shape.
      noise_stddev: sigma > 0, in votes.
      bar: beta N > 0, in votes.

    Returns:
      float64 of the shape of `vote_sum`, <= 0. PRIVATE.
    """
    _validate.positive("noise_stddev", noise_stddev)
    _validate.positive("bar", bar)
    high = (bar - np.abs(np.asarray(vote_sum, np.float64))) / noise_stddev  # By symmetry of the noise.
    low = high - 2 * bar / noise_stddev
    with np.errstate(divide="ignore"):
        return np.maximum(special.log_ndtr(-high), np.log(special.ndtr(high) - special.ndtr(low)))


def log_likeliest_possible(num_teachers: int, top_k: int, dimension: int, noise_stddev: float, bar: float) -> float:
    """The largest sum of `log_likeliest` over an image that any votes of N teachers can have: public, not private.

    Teachers have k N votes in all. Coordinates that are to be 0 do best without votes. For coordinates that are to be
    +1 or -1, the logarithm of the probability is concave in the votes, so equally many votes for each are best. All
    numbers of such coordinates are tried out.

    Args:
      num_teachers, top_k: N and k.
      dimension: d, numbers per image.
      noise_stddev, bar: as for `log_likeliest`.
    """
    for name, value in (("num_teachers", num_teachers), ("top_k", top_k), ("dimension", dimension)):
        _validate.integer(name, value, at_least=1)
    count = np.arange(1, dimension + 1)
    votes = np.minimum(num_teachers, top_k * num_teachers / count)
    none = float(log_likeliest(0.0, noise_stddev, bar))
    some = count * log_likeliest(votes, noise_stddev, bar) + (dimension - count) * none
    return float(max(dimension * none, some.max()))


def data_dependent_rdp(log_probability: float, order: float, squared_mu: float) -> float:
    """Theorem 4's bound on the Renyi divergence of one release that has a likely outcome; infinity if it gives none.

    mu_1 and mu_2 are those of a fine grid that give the smallest bound. The release's data-independent bound is
    (order, order * squared_mu / 2)-RDP; callers take the smaller of both.

    Args:
      log_probability: ln(1 - q), from `log_likeliest`; <= 0.
      order: lambda > 1.
      squared_mu: (l2 sensitivity / noise_stddev)^2 of the release that is thresholded.

    Returns:
      The divergence's bound at this order. PRIVATE, like its argument.
    """
    _validate.require(log_probability <= 0, "log_probability", log_probability, "<= 0")
    _validate.require(order > 1, "order", order, "> 1")
    _validate.positive("squared_mu", squared_mu)
    q = -math.expm1(log_probability)
    if q == 0:
        return _FLOAT_ERROR
    log_q, mu_2 = math.log(q), _MU_2[_MU_2 * squared_mu / 2 < -math.log(q)][None]
    mu_1 = order * _MU_1_OVER_ORDER[:, None]
    if mu_2.size == 0:
        return math.inf
    alpha_1, alpha_2 = mu_1 * squared_mu / 2, mu_2 * squared_mu / 2
    limit = (mu_2 - 1) * alpha_2 - mu_2 * (np.log(mu_1 / (mu_1 - 1)) + np.log(mu_2 / (mu_2 - 1)))
    exponent = (log_q + alpha_2) * (mu_2 - 1) / mu_2
    holds = np.broadcast_to((log_q <= limit) & (exponent < 0), limit.shape)
    if not holds.any():
        return math.inf
    with np.errstate(invalid="ignore", divide="ignore", over="ignore"):
        log_a = log_probability - np.log(-np.expm1(exponent))
        log_b = alpha_1 - log_q / (mu_1 - 1)
        bound = np.logaddexp(log_probability + (order - 1) * log_a, log_q + (order - 1) * log_b) / (order - 1)
    return float(np.min(bound, where=holds, initial=np.inf)) + _FLOAT_ERROR
