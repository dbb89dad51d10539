import itertools
import math

import dp_accounting
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import integrate, stats

from datalens_tf.accounting import accountants
from datalens_tf.bounds import gdp
from datalens_tf.config import ACCOUNTANTS
from datalens_tf.errors import InvalidArgumentError
from datalens_tf.methods.datalens import PRESETS

DELTA = 1e-5
MNIST_1 = PRESETS["mnist", 1.0].mechanism().dp_event(15)
MNIST_10 = PRESETS["mnist", 10.0].mechanism().dp_event(15)

TABLED = ("classic_rdp", "rdp", "pld", "gdp")
# Their epsilon of 5,000 / (2 sqrt(200 * 15)) at delta = 1e-5, computed independently of this package.
TABLE = {
    50: (0.75538, 0.60230, 0.54892, 0.54892),
    86: (0.99571, 0.80807, 0.73813, 0.73813),
    100: (1.07532, 0.87698, 0.80161, 0.80161),
    149: (1.31905, 1.08978, 0.99747, 0.99747),
    200: (1.53553, 1.27993, 1.17271, 1.17271),
}


def gaussian_delta_by_integration(epsilon, mu):
    """delta = integral of max(0, p - e^epsilon q) for p = N(mu, 1), q = N(0, 1), from the definition."""
    start = epsilon / mu + mu / 2
    value, _ = integrate.quad(
        lambda x: stats.norm.pdf(x - mu) - math.exp(epsilon) * stats.norm.pdf(x), start, start + 30,
        epsabs=0, epsrel=1e-10, limit=200)
    return value


def renyi_divergence_by_integration(order, mu):
    """ln E_q[(p/q)^order] / (order - 1) for the same p and q, from the definition."""
    centre = order * mu
    value, _ = integrate.quad(
        lambda x: math.exp(order * stats.norm.logpdf(x - mu) + (1 - order) * stats.norm.logpdf(x)),
        centre - 15, centre + 15, epsabs=0, epsrel=1e-12)
    return math.log(value) / (order - 1)


class TestEpsilon:
    @pytest.mark.parametrize("steps", TABLE)
    @pytest.mark.parametrize("accountant", TABLED)
    def test_equals_the_table(self, steps, accountant):
        expected = TABLE[steps][TABLED.index(accountant)]
        assert accountants.epsilon(MNIST_1, steps, DELTA, accountant) == pytest.approx(expected, abs=6e-6)

    def test_classic_rdp_by_hand(self):
        # 86 steps of 15 images cost 86 * 15 * 2 * 200 * 25 / 5000^2 = 0.516 at order 25, plus ln(1e5)/24.
        expected = 0.516 + 11.512925464970229 / 24
        assert accountants.epsilon(MNIST_1, 86, DELTA, "classic_rdp") == pytest.approx(expected, rel=1e-12)

    @pytest.mark.slow
    def test_classic_rdp_by_integration(self):
        mu = math.sqrt(86) / MNIST_1.noise_multiplier
        oracle = min(renyi_divergence_by_integration(order, mu) + math.log(1 / DELTA) / (order - 1)
                     for order in (1.1, *range(2, 60)))
        assert accountants.epsilon(MNIST_1, 86, DELTA, "classic_rdp") == pytest.approx(oracle, rel=1e-9)

    @pytest.mark.parametrize("multiplier, steps", [(45.64, 149), (45.64, 1), (1.0, 1), (0.5, 3), (200.0, 3)])
    def test_gdp_by_integration(self, multiplier, steps):
        epsilon = accountants.epsilon(dp_accounting.GaussianDpEvent(multiplier), steps, DELTA, "gdp")
        assert gaussian_delta_by_integration(epsilon, math.sqrt(steps) / multiplier) == pytest.approx(DELTA, rel=1e-7)

    def test_gdp_by_hand(self):
        # Phi(1/2 - 1) - e Phi(-1/2 - 1) = 0.308538 - 2.718282 * 0.066807 = 0.126937.
        assert math.exp(gdp.gaussian_log_delta(1.0, 1.0)) == pytest.approx(0.126937, abs=1e-6)
        assert accountants.epsilon(dp_accounting.GaussianDpEvent(1.0), 1, 0.126936737507, "gdp") == pytest.approx(1.0)

    def test_gdp_where_one_release_is_within_delta_is_zero(self):
        # Total variation 2 Phi(mu/2) - 1 = 4e-6 is below delta.
        assert accountants.epsilon(dp_accounting.GaussianDpEvent(1e5), 1, DELTA, "gdp") == 0.0

    def test_library_accountants_agree_with_the_library(self):
        peers = {"rdp": dp_accounting.rdp.RdpAccountant(), "pld": dp_accounting.pld.PLDAccountant()}
        for accountant, peer in peers.items():
            peer.compose(MNIST_1, 100)
            assert accountants.epsilon(MNIST_1, 100, DELTA, accountant) == pytest.approx(
                peer.get_epsilon(DELTA), rel=1e-3)

    @pytest.mark.parametrize("multiplier, probability", [(2.0, 1.0), (20.0, 0.3), (1.0, 0.0)])
    def test_poisson_samples_cost_what_the_library_says_to_the_bit(self, multiplier, probability):
        event = dp_accounting.PoissonSampledDpEvent(probability, dp_accounting.GaussianDpEvent(multiplier))
        for steps in (1, 101):
            peer = dp_accounting.pld.PLDAccountant().compose(event, steps)
            assert accountants.epsilon(event, steps, DELTA, "pld", "add-or-remove-one") == peer.get_epsilon(DELTA)

    @pytest.mark.parametrize("multiplier", [0.01, 0.2, 1.0, 20.0, 3000.0])
    @pytest.mark.parametrize("delta", [1e-3, 1e-5, 1e-9])
    def test_every_accountant_is_an_upper_bound_of_the_exact_value(self, multiplier, delta):
        event = dp_accounting.GaussianDpEvent(multiplier)
        exact = accountants.epsilon(event, 4, delta, "gdp")
        for accountant in ("classic_rdp", "rdp", "pld"):
            assert accountants.epsilon(event, 4, delta, accountant) >= exact * (1 - 1e-9), accountant
        assert accountants.epsilon(event, 4, delta, "pld") == pytest.approx(exact, rel=1e-3, abs=1e-5)

    @pytest.mark.parametrize("accountant", ACCOUNTANTS)
    def test_no_release_costs_nothing(self, accountant):
        assert accountants.epsilon(MNIST_1, 0, DELTA, accountant) == 0.0
        assert accountants.epsilon_of([], DELTA, accountant) == 0.0
        assert accountants.epsilon_of([dp_accounting.NoOpDpEvent()], DELTA, accountant) == 0.0

    @pytest.mark.parametrize("accountant", ACCOUNTANTS)
    def test_epsilon_depends_on_the_releases_not_on_how_they_are_written(self, accountant):
        small, large = dp_accounting.GaussianDpEvent(40.0), dp_accounting.GaussianDpEvent(60.0)
        written = dp_accounting.ComposedDpEvent(
            [dp_accounting.SelfComposedDpEvent(dp_accounting.ComposedDpEvent([small, large]), 2), small])
        flat = accountants.epsilon_of([small, small, large, small, large], DELTA, accountant)
        assert accountants.epsilon_of([written], DELTA, accountant) == flat
        # Gaussian releases add up in 1/z^2.
        together = dp_accounting.GaussianDpEvent((3 / 40**2 + 2 / 60**2) ** -0.5)
        assert accountants.epsilon(together, 1, DELTA, accountant) == pytest.approx(flat, rel=1e-4)

    @settings(max_examples=40, deadline=None, derandomize=True)
    @given(log_multiplier=st.floats(-3, 5), steps=st.integers(1, 300), accountant=st.sampled_from(
        ("classic_rdp", "rdp", "gdp")))
    def test_epsilon_is_finite_and_never_falls(self, log_multiplier, steps, accountant):
        event = dp_accounting.GaussianDpEvent(10**log_multiplier)
        first, second = (accountants.epsilon(event, n, DELTA, accountant) for n in (steps, steps + 1))
        assert 0 <= first <= second <= accountants.epsilon(event, steps + 1, DELTA / 10, accountant)
        assert accountants.epsilon(dp_accounting.GaussianDpEvent(10**log_multiplier * 1.1), steps, DELTA,
                                  accountant) <= first


GAUSSIAN, LAPLACE = dp_accounting.GaussianDpEvent, dp_accounting.LaplaceDpEvent
ADDED, REPLACED = "add-or-remove-one", "replace-one"


@pytest.mark.parametrize("accountant, relation, event, steps, expected", [
    ("rdp", REPLACED, GAUSSIAN(1.0), 10, 19.05359753163139),
    ("rdp", ADDED, GAUSSIAN(45.64), 149, 1.0898718663267),
    ("pld", REPLACED, GAUSSIAN(1.0), 10, 17.856587112274),
    ("pld", ADDED, GAUSSIAN(45.64), 149, 0.99755003852829),
    ("rdp", REPLACED, LAPLACE(2.0), 200, 57.301692824868),
    ("rdp", REPLACED, LAPLACE(20.0), 200, 3.1889915626336),
    ("pld", REPLACED, LAPLACE(20.0), 200, 2.8933659082363),
    ("rdp", ADDED, dp_accounting.PoissonSampledDpEvent(0.00853, GAUSSIAN(1.0)), 7000, 4.5979561913930),
    ("rdp", ADDED, dp_accounting.PoissonSampledDpEvent(0.1, GAUSSIAN(1.0)), 100, 7.8992550024346),
    ("rdp", ADDED, dp_accounting.PoissonSampledDpEvent(0.5, GAUSSIAN(1.6)), 7000, 492.24717422487),
    ("pld", ADDED, dp_accounting.PoissonSampledDpEvent(0.1, GAUSSIAN(1.0)), 100, 7.0466028771332),
    ("rdp", REPLACED, dp_accounting.SampledWithoutReplacementDpEvent(1000, 1, GAUSSIAN(1.07)), 20000, 1.2951185690083),
    # Of few steps: libraries round differently on different processors, and each composition adds to it. At 20,000
    # steps two machines with the same versions are 2.6e-8 apart. At 200, to switch AVX2 off makes 2.5e-10.
    ("pld", REPLACED, dp_accounting.SampledWithoutReplacementDpEvent(1000, 1, GAUSSIAN(1.07)), 200, 0.0691613775),
])
def test_no_version_of_dp_accounting_changes_a_number(accountant, relation, event, steps, expected):
    """Numbers of dp_accounting 0.4.3, as they were before there was another version."""
    assert accountants.epsilon(event, steps, DELTA, accountant, relation) == pytest.approx(expected, rel=1e-8)


class TestFailsClosed:
    @pytest.mark.parametrize("accountant", ACCOUNTANTS)
    @pytest.mark.parametrize("multiplier", [math.nan, math.inf, -math.inf, 0.0, -1.0, None])
    def test_a_noise_multiplier_that_is_no_positive_number_is_refused(self, multiplier, accountant):
        event = dp_accounting.GaussianDpEvent(multiplier)
        for events in ([event], [MNIST_1, event], [dp_accounting.SelfComposedDpEvent(event, 3)]):
            with pytest.raises(InvalidArgumentError, match="noise_multiplier="):
                accountants.epsilon_of(events, DELTA, accountant)
        with pytest.raises(InvalidArgumentError, match="noise_multiplier="):
            accountants.max_steps(event, 1.0, DELTA, accountant)

    @pytest.mark.parametrize("accountant", ACCOUNTANTS)
    def test_a_release_without_noise_costs_infinity(self, accountant):
        assert accountants.epsilon(dp_accounting.NonPrivateDpEvent(), 1, DELTA, accountant) == math.inf
        assert accountants.max_steps(dp_accounting.NonPrivateDpEvent(), 1.0, DELTA, accountant) == 0

    @pytest.mark.parametrize("accountant", ACCOUNTANTS)
    def test_almost_no_noise_costs_astronomically_much(self, accountant):
        assert accountants.epsilon(dp_accounting.GaussianDpEvent(1e-6), 1, DELTA, accountant) > 1e10

    @pytest.mark.parametrize("count", [-1, math.nan, 2.5])
    def test_a_count_that_is_no_number_of_releases_is_refused(self, count):
        with pytest.raises(InvalidArgumentError, match="count="):
            accountants.epsilon_of([dp_accounting.SelfComposedDpEvent(MNIST_1, count)], DELTA, "gdp")

    @pytest.mark.parametrize("accountant", ["classic_rdp", "gdp"])
    def test_closed_forms_refuse_what_is_not_gaussian(self, accountant):
        for event in (dp_accounting.LaplaceDpEvent(3.0), dp_accounting.PoissonSampledDpEvent(0.1, MNIST_1)):
            with pytest.raises(InvalidArgumentError, match="to be Gaussian"):
                accountants.epsilon_of([event], DELTA, accountant)

    @pytest.mark.parametrize("accountant", ["rdp", "pld"])
    def test_sampling_that_is_not_covered_by_replacing_one_record_is_refused(self, accountant):
        with pytest.raises(InvalidArgumentError, match="priced for REPLACE_ONE"):
            accountants.epsilon_of([dp_accounting.PoissonSampledDpEvent(0.1, LAPLACE(3.0))], DELTA, accountant)

    @pytest.mark.parametrize("event", [None, 3.0, dp_accounting.PoissonSampledDpEvent(
        0.1, dp_accounting.ComposedDpEvent([MNIST_1]))])
    def test_what_is_no_event_is_refused(self, event):
        with pytest.raises(InvalidArgumentError, match="event="):
            accountants.epsilon_of([event], DELTA, "rdp")

    @pytest.mark.parametrize("changes", [{"delta": 0.0}, {"delta": 1.0}, {"delta": math.nan}, {"accountant": "moments"},
                                         {"num_steps": -1}])
    def test_arguments_outside_their_domain_are_refused_by_name(self, changes):
        with pytest.raises(InvalidArgumentError, match=f"Expected {next(iter(changes))}="):
            accountants.epsilon(**{"event": MNIST_1, "num_steps": 1, "delta": DELTA, "accountant": "gdp", **changes})


class TestMaxSteps:
    @pytest.mark.parametrize("accountant, steps", list(zip(TABLED, (86, 127, 149, 149))))
    def test_mnist_at_epsilon_1(self, accountant, steps):
        assert accountants.max_steps(MNIST_1, 1.0, DELTA, accountant) == steps

    @pytest.mark.parametrize("accountant, steps", [("classic_rdp", 109), ("pld", 142), ("gdp", 142)])
    def test_mnist_at_epsilon_10(self, accountant, steps):
        assert accountants.max_steps(MNIST_10, 10.0, DELTA, accountant) == steps

    @pytest.mark.parametrize("multiplier, epsilon, accountant", [
        *itertools.product((0.7, 3.0, 45.0, 1234.5), (0.3, 2.0, 25.0), ("classic_rdp", "rdp", "gdp")),
        (45.0, 0.3, "pld")])
    def test_is_the_last_step_within_the_budget(self, multiplier, epsilon, accountant):
        event = dp_accounting.GaussianDpEvent(multiplier)
        steps = accountants.max_steps(event, epsilon, DELTA, accountant)
        assert accountants.epsilon(event, steps, DELTA, accountant) <= epsilon
        assert accountants.epsilon(event, steps + 1, DELTA, accountant) > epsilon

    @pytest.mark.parametrize("steps", [1, 2, 3, 4, 7, 8, 9])
    def test_a_budget_met_exactly_counts(self, steps):
        budget = accountants.epsilon(MNIST_1, steps, DELTA, "gdp")
        assert accountants.max_steps(MNIST_1, budget, DELTA, "gdp") == steps
        assert accountants.max_steps(MNIST_1, np.nextafter(budget, 0), DELTA, "gdp") == steps - 1

    def test_a_free_event_has_no_last_step(self):
        with pytest.raises(InvalidArgumentError, match="to limit the steps"):
            accountants.max_steps(dp_accounting.NoOpDpEvent(), 1.0, DELTA, "gdp")

    @pytest.mark.parametrize("epsilon", [0.0, -1.0, math.nan, math.inf])
    def test_a_budget_that_is_no_positive_number_is_refused(self, epsilon):
        with pytest.raises(InvalidArgumentError, match="epsilon="):
            accountants.max_steps(MNIST_1, epsilon, DELTA, "gdp")


class TestCalibration:
    @pytest.mark.parametrize("steps, epsilon, accountant", [
        *itertools.product((1,), (0.2, 10.0), ("classic_rdp", "rdp", "gdp")),
        *itertools.product((149,), (1.0,), ACCOUNTANTS)])
    def test_inverts_epsilon_from_the_safe_side(self, steps, epsilon, accountant):
        multiplier = accountants.calibrate_noise_multiplier(steps, epsilon, DELTA, accountant)
        spent = accountants.epsilon(dp_accounting.GaussianDpEvent(multiplier), steps, DELTA, accountant)
        assert spent <= epsilon and spent == pytest.approx(epsilon, rel=1e-6)

    def test_known_values(self):
        assert accountants.calibrate_noise_multiplier(1500, 1.0, DELTA, "gdp") == pytest.approx(144.487, abs=1e-3)
        for epsilon, mu in ((0.2, 0.0613), (0.5, 0.1422), (1.0, 0.2681), (2.0, 0.5016), (10.0, 2.0004)):
            assert 1 / accountants.calibrate_noise_multiplier(1, epsilon, DELTA, "gdp") == pytest.approx(mu, abs=1e-4)

    def test_the_calibrated_noise_pays_for_exactly_the_steps_asked(self):
        multiplier = accountants.calibrate_noise_multiplier(33, 1.5, DELTA, "gdp")
        assert accountants.max_steps(dp_accounting.GaussianDpEvent(multiplier), 1.5, DELTA, "gdp") == 33

    def test_an_epsilon_below_the_floor_of_the_accountant_is_refused(self):
        # With orders up to 199, classic_rdp cannot state less than ln(1e5)/198 = 0.058.
        with pytest.raises(InvalidArgumentError, match="epsilon=0.05 to be reachable"):
            accountants.calibrate_noise_multiplier(1, 0.05, DELTA, "classic_rdp")

    @pytest.mark.parametrize("arguments", [(0, 1.0), (1, 0.0), (1, math.nan)])
    def test_arguments_outside_their_domain_are_refused(self, arguments):
        with pytest.raises(InvalidArgumentError):
            accountants.calibrate_noise_multiplier(*arguments, DELTA, "gdp")


@pytest.mark.parametrize("accountant", ["rdp", "pld"])
def test_users_are_priced_as_records_are(accountant):
    """Events know sensitivities only; and what is refused for records is refused for users."""
    gaussian = dp_accounting.GaussianDpEvent(3.0)
    sampled = dp_accounting.PoissonSampledDpEvent(0.1, gaussian)
    for relation, event in itertools.product(("replace-one", "add-or-remove-one"), (gaussian, sampled)):
        assert (accountants.epsilon(event, 5, DELTA, accountant, relation)
                == accountants.epsilon(event, 5, DELTA, accountant, f"{relation}-user"))
    with pytest.raises(InvalidArgumentError, match="ADD_OR_REMOVE_ONE"):
        accountants.epsilon(dp_accounting.SampledWithoutReplacementDpEvent(9, 1, gaussian), 5, DELTA, accountant,
                            "add-or-remove-one-user")


@pytest.mark.parametrize("multiplier", [0.4, 3.73, 30.0])
def test_a_replaced_record_moves_a_sum_by_two_sensitivities(multiplier):
    found = accountants.epsilons_for_others([dp_accounting.GaussianDpEvent(multiplier)] * 2, DELTA, ADDED)
    exact = accountants.epsilon_of([dp_accounting.GaussianDpEvent(multiplier / 2)] * 2, DELTA, "gdp")
    assert found["gdp"] == exact and set(found) == set(ACCOUNTANTS)


def test_a_record_replaced_in_a_sample_costs_more_than_an_absent_one_and_less_than_two():
    event = dp_accounting.PoissonSampledDpEvent(0.05, dp_accounting.GaussianDpEvent(0.8))
    charges = [dp_accounting.SelfComposedDpEvent(event, 40), event]
    found = accountants.epsilons_for_others(charges, DELTA, "add-or-remove-one-user")
    for accountant, epsilon in found.items():
        absent = accountants.epsilon_of(charges, DELTA, accountant, ADDED)
        assert absent < epsilon < 2 * accountants.epsilon_of(charges, DELTA / 20, accountant, ADDED)
        assert epsilon == accountants.epsilon_of(charges, DELTA, accountant, REPLACED)
    assert set(found) == {"rdp", "pld"}


def test_a_sample_has_prices_under_both_relations_and_votes_have_none():
    event = dp_accounting.PoissonSampledDpEvent(0.05, GAUSSIAN(0.8))
    for relation, other in ((REPLACED, ADDED), (ADDED, REPLACED)):
        assert accountants.epsilons_for_others([event], DELTA, relation) == accountants.epsilons_of(
            [event], DELTA, other)
    for event, relation in ((LAPLACE(3.0), ADDED), (LAPLACE(3.0), REPLACED), (GAUSSIAN(3.0), REPLACED)):
        assert accountants.epsilons_for_others([event], DELTA, relation) == {}
