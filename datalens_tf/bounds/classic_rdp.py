"""The DataLens paper's Renyi accounting of Gaussian releases."""

import math

import dp_accounting
import numpy as np

from datalens_tf import events
from datalens_tf.bounds.accountant import GaussianAccountant

PLACE = 1
ORDERS = np.array([1.1, *range(2, 200)])


class ClassicRdp(GaussianAccountant):
    """min over orders of order * mu^2 / 2 + ln(1/delta) / (order - 1)  (the paper's Theorems 1 and 3)."""

    note = "the paper's Renyi accounting; the loosest bound, valid"

    def supports(self, event: dp_accounting.DpEvent) -> bool:
        return super().supports(event) or isinstance(event, events.DiscreteGaussianDpEvent)

    def of_gaussian(self, squared: float, delta: float) -> float:
        return float(np.min(ORDERS * squared / 2 + math.log(1 / delta) / (ORDERS - 1)))
