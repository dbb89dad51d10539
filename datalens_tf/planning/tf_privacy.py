"""The price of charges by TensorFlow Privacy's own statement, beside that of the accountant `rdp`.

TensorFlow Privacy (`compute_dp_sgd_privacy_statement`) knows DP-SGD: Gaussian releases that all have one noise
multiplier, each of all records or of a Poisson sample. It prints three decimals.
"""

import math
import re
from collections.abc import Sequence

import dp_accounting

from datalens_tf import _validate
from datalens_tf.accounting.ledger import Charge
from datalens_tf.errors import InvalidArgumentError

_MANY = 10**9  # examples, so that a sampling probability is a batch's share of them
_EPSILON = r"Epsilon {}:\s+(inf|[\d.]+)"


def statement(charges: Sequence[Charge], delta: float) -> tuple[float, str]:
    """The epsilon that TensorFlow Privacy states for charges, and its whole text.

    Args:
      charges: at least one, all of one Gaussian release, sampled or not.
      delta: of the guarantee.

    Raises:
      InvalidArgumentError: charges of several kinds, or of another mechanism; or TensorFlow Privacy is not installed.
    """
    kinds = {charge.unit for charge in charges}
    _validate.require(len(kinds) == 1, "charges", len(kinds), "to be of one kind, which is all that TensorFlow Privacy "
                      "can state")
    (event,), count = kinds, sum(charge.count for charge in charges)
    sampled = isinstance(event, dp_accounting.PoissonSampledDpEvent)
    gaussian = event.event if sampled else event
    if not isinstance(gaussian, dp_accounting.GaussianDpEvent):
        raise InvalidArgumentError(f"Expected charges for Gaussian noise, which TensorFlow Privacy can state, got "
                                   f"{type(gaussian).__name__}.")
    try:
        from tensorflow_privacy.privacy.analysis import compute_dp_sgd_privacy_lib as library
    except ImportError as error:
        raise InvalidArgumentError("TensorFlow Privacy is not installed: pip install 'datalens_tf[tf-privacy]'."
                                   ) from error
    batch = max(1, round(_MANY * event.sampling_probability)) if sampled else _MANY
    # As many epochs as these steps take, less half a step, because the library rounds up.
    epochs = (count - 0.5) * (batch / _MANY) if sampled else float(count)
    text = library.compute_dp_sgd_privacy_statement(
        _MANY, batch, epochs, float(gaussian.noise_multiplier), delta, used_microbatching=False)
    line = r"assuming Poisson sampling \(\*\)" if sampled else "with each example occurring once per epoch"
    found = re.search(_EPSILON.format(line), text)
    return (math.nan if found is None else float(found[1])), text
