"""Privacy events that dp_accounting does not have: they say what was released, not what it costs."""

import attr
import dp_accounting


@attr.define(frozen=True)
class DiscreteGaussianDpEvent(dp_accounting.DpEvent):
    """A sum of integers with discrete Gaussian noise, or with the sum of several owners' shares of such noise.

    Its Renyi divergences are at most those of a Gaussian release with this noise multiplier, at every order (Canonne,
    Kamath and Steinke 2020; Kairouz, Liu and Steinke 2021). Nothing more is known of it, so only accountants that
    compose Renyi divergences price it.

    Attributes:
      noise_multiplier: standard deviation of the noise divided by the l2 sensitivity.
    """

    noise_multiplier: float
