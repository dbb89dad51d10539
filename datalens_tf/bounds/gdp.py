"""The closed form for Gaussian releases (Balle and Wang 2018; Dong, Roth and Su 2019)."""

import math

from scipy import optimize, special

from datalens_tf.bounds.accountant import HOPELESS, GaussianAccountant

PLACE = 4


class Gdp(GaussianAccountant):
    """Solves delta(epsilon) = delta for the composed Gaussian mechanism."""

    note = "closed form for Gaussian noise; exact"

    def of_gaussian(self, squared: float, delta: float) -> float:
        mu = math.sqrt(squared)
        if squared > HOPELESS:
            return math.inf
        if mu == 0 or gaussian_log_delta(0.0, mu) <= math.log(delta):
            return 0.0
        # The zCDP conversion bounds epsilon from above.
        upper = squared / 2 + mu * math.sqrt(2 * math.log(1 / delta))
        return float(optimize.brentq(
            lambda value: gaussian_log_delta(value, mu) - math.log(delta), 0.0, upper, xtol=1e-13, rtol=1e-13))


def gaussian_log_delta(epsilon: float, mu: float) -> float:
    """Log of the smallest delta for which one Gaussian release with sensitivity/stddev = mu > 0 is (epsilon, delta)-DP.

    delta = Phi(mu/2 - epsilon/mu) - e^epsilon Phi(-mu/2 - epsilon/mu)  (Balle and Wang 2018, Theorem 8), in logarithms
    so that neither term over- or underflows.
    """
    first = special.log_ndtr(mu / 2 - epsilon / mu)
    second = epsilon + special.log_ndtr(-mu / 2 - epsilon / mu)
    return first + math.log(-math.expm1(second - first)) if second < first else -math.inf
