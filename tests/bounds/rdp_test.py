import dp_accounting
import mpmath
import pytest

from datalens_tf.accounting import accountants
from datalens_tf.bounds.rdp import poisson_moment, replaced_moment
from datalens_tf.errors import InvalidArgumentError


def moment_by_integration(order, rate, multiplier):
    """From the definition, with 25 digits."""
    with mpmath.workdps(25):
        order, rate, z = (mpmath.mpf(value) for value in (order, rate, multiplier))
        value = mpmath.quad(
            lambda x: mpmath.npdf(x, 0, z) * (1 - rate + rate * mpmath.exp((2 * x - 1) / (2 * z**2)))**order,
            mpmath.linspace(-20 * z, order + 20 * z, 25))
        return float(mpmath.log(value))


@pytest.mark.parametrize("multiplier", [0.3, 1.0, 8.0])
@pytest.mark.parametrize("rate, order", [(1e-3, 1.1), (0.01, 10.9), (0.1, 5.7), (0.5, 1.5), (0.1, 20.0), (0.9, 2.3)])
def test_a_moment_is_the_integral_that_defines_it(order, rate, multiplier):
    assert poisson_moment(order, rate, multiplier) == pytest.approx(
        moment_by_integration(order, rate, multiplier), rel=1e-10, abs=1e-14)


def replaced_moment_by_integration(order, rate, multiplier):
    """From the definition, with 25 digits: the record's vector is 1, its replacement's -1."""
    with mpmath.workdps(25):
        order, rate, z = (mpmath.mpf(value) for value in (order, rate, multiplier))

        def density(x, mean):
            return (1 - rate) * mpmath.npdf(x, 0, z) + rate * mpmath.npdf(x, mean, z)

        value = mpmath.quad(lambda x: density(x, 1)**order * density(x, -1)**(1 - order),
                            mpmath.linspace(-1 - 20 * z, 2 * order + 20 * z, 40))
        return float(mpmath.log(value))


@pytest.mark.parametrize("multiplier", [0.3, 1.0, 8.0])
@pytest.mark.parametrize("rate, order", [(1e-3, 1.1), (0.01, 10.9), (0.1, 5.7), (0.5, 1.5), (0.1, 20.0), (0.9, 2.3)])
def test_a_replaced_records_moment_is_the_integral_that_defines_it(order, rate, multiplier):
    assert replaced_moment(order, rate, multiplier) == pytest.approx(
        replaced_moment_by_integration(order, rate, multiplier), rel=1e-9, abs=1e-13)


@pytest.mark.parametrize("of, distance", [(poisson_moment, 1), (replaced_moment, 2)])
@pytest.mark.parametrize("order", [1.1, 2.0, 10.9, 64.0])
def test_a_moment_grows_with_the_rate_up_to_that_without_sampling(order, of, distance):
    for multiplier in (0.04, 0.06, 0.7, 30.0):
        values = [of(order, rate, multiplier) for rate in (0.0, 1e-6, 0.1, 0.5, 1 - 1e-9, 1.0)]
        assert values[0] == 0.0 and values == sorted(values)
        assert values[-1] == pytest.approx(distance**2 * order * (order - 1) / 2 / multiplier**2, rel=1e-12)


@pytest.mark.parametrize("relation", ["replace-one", "add-or-remove-one"])
def test_less_noise_never_costs_less(relation):
    costs = [accountants.epsilon(dp_accounting.PoissonSampledDpEvent(0.1, dp_accounting.GaussianDpEvent(z)), 3, 1e-5,
                                 "rdp", relation) for z in (1e-200, 0.01, 0.0499, 0.0501, 0.3, 9.0)]
    assert costs == sorted(costs, reverse=True)


def test_kinds_of_releases_add_up():
    sampled = dp_accounting.PoissonSampledDpEvent(0.01, dp_accounting.GaussianDpEvent(1.0))
    rest = [dp_accounting.GaussianDpEvent(3.0), dp_accounting.LaplaceDpEvent(20.0)]
    total = accountants.epsilon_of([dp_accounting.SelfComposedDpEvent(sampled, 100), *rest], 1e-5, "rdp",
                                   "add-or-remove-one")
    assert total == pytest.approx(1.71155927195910, rel=1e-9)
    assert total > accountants.epsilon_of(rest, 1e-5, "rdp")


@pytest.mark.parametrize("event", [
    dp_accounting.SampledWithoutReplacementDpEvent(10, 1, dp_accounting.GaussianDpEvent(3.0)),
    dp_accounting.PoissonSampledDpEvent(0.1, dp_accounting.LaplaceDpEvent(3.0))])
def test_what_cannot_be_priced_beside_laplace_noise_is_refused(event):
    for relation in ("replace-one", "add-or-remove-one"):
        with pytest.raises(InvalidArgumentError, match="to be one that can be priced for"):
            accountants.epsilon_of([dp_accounting.LaplaceDpEvent(9.0), event], 1e-5, "rdp", relation)


@pytest.mark.parametrize("rate", [-0.1, 1.1, float("nan")])
def test_a_rate_that_is_no_probability_is_refused(rate):
    event = dp_accounting.PoissonSampledDpEvent(rate, dp_accounting.GaussianDpEvent(3.0))
    with pytest.raises(InvalidArgumentError, match="sampling_probability="):
        accountants.epsilon(event, 1, 1e-5, "rdp", "add-or-remove-one")
