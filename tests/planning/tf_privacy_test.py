"""TensorFlow Privacy's statement: the same price as `rdp` for what both know, and a refusal for what it does not."""

import dp_accounting
import pytest

from datalens_tf.accounting import accountants
from datalens_tf.accounting.ledger import Charge
from datalens_tf.errors import InvalidArgumentError
from datalens_tf.planning import tf_privacy

pytest.importorskip("tensorflow_privacy")


def charges(event, count):
    return [Charge(index=index, step=index + 1, event=event) for index in range(count)]


@pytest.mark.parametrize("event, count", [
    (dp_accounting.GaussianDpEvent(45.6435), 149),
    (dp_accounting.GaussianDpEvent(1.5), 3),
    (dp_accounting.PoissonSampledDpEvent(512 / 60_000, dp_accounting.GaussianDpEvent(1.1)), 1500),
    (dp_accounting.PoissonSampledDpEvent(0.1, dp_accounting.GaussianDpEvent(4.0)), 7)])
def test_rdp_is_what_tensorflow_privacy_states(event, count):
    """To the three decimals that it prints; a step more or less would show."""
    ours = accountants.epsilon(event, count, 1e-5, "rdp", "add-or-remove-one")
    stated, text = tf_privacy.statement(charges(event, count), 1e-5)
    assert stated == pytest.approx(ours, abs=6e-4) and "RDP accounting" in text
    assert count == 1500 or tf_privacy.statement(charges(event, count + 1), 1e-5)[0] > stated


def test_what_it_does_not_know_is_refused():
    gaussian = dp_accounting.GaussianDpEvent(1.0)
    with pytest.raises(InvalidArgumentError, match="2 to be of one kind"):
        tf_privacy.statement([*charges(gaussian, 2), *charges(dp_accounting.GaussianDpEvent(2.0), 1)], 1e-5)
    with pytest.raises(InvalidArgumentError, match="Gaussian noise, which TensorFlow Privacy can state, got Laplace"):
        tf_privacy.statement(charges(dp_accounting.LaplaceDpEvent(1.0), 1), 1e-5)
