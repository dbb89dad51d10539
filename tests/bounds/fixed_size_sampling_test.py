"""Samples of fixed size: the price against what can be computed from the definition."""

import itertools
import math

import dp_accounting
import numpy as np
import pytest
from scipy import integrate

from datalens_tf.accounting import accountants
from datalens_tf.accounting.ledger import PrivacyLedger
from datalens_tf.bounds import fixed_size_sampling
from datalens_tf.errors import InvalidArgumentError
from tests.accounting.true_delta import densities, least_delta

DELTA = 1e-5


def one_of(count, multiplier):
    return dp_accounting.SampledWithoutReplacementDpEvent(count, 1, dp_accounting.GaussianDpEvent(multiplier))


def triples(shift):
    """Means at most `shift` apart, at the ends and between."""
    return itertools.product((0, shift / 2, shift), repeat=3)


@pytest.mark.parametrize("count, multiplier", [(2, 1.0), (10, 0.5), (10, 2.0), (100, 0.3)])
def test_one_step_is_bounded_and_the_bound_is_attained(count, multiplier):
    shift, attained = 1 / multiplier, 0
    for epsilon in (0.0, 0.05, 0.5, 2.0):
        beyond, other = fixed_size_sampling.tails(np.array([epsilon]), 1 / count, shift)
        bound = beyond[0] - math.exp(epsilon) * other[0]
        found = []
        for means in triples(shift):
            p, q = densities(1 / count, means, x := np.linspace(-12, 12 + shift, 40_001))
            found.append(integrate.simpson(np.maximum(0, p - math.exp(epsilon) * q), x=x))
        assert max(found) <= bound * (1 + 1e-6) + 1e-9
        attained += max(found) >= bound * (1 - 1e-3) - 1e-9
    assert attained == 4


@pytest.mark.parametrize("count, multiplier, steps", [(2, 1.0, 3), (5, 0.7, 8), (20, 0.5, 10)])
@pytest.mark.parametrize("accountant", ["rdp", "pld"])
def test_composed_steps_cost_at_most_what_is_charged(count, multiplier, steps, accountant):
    """And not much less: the losses of the worst means, convolved."""
    epsilon = accountants.epsilon(one_of(count, multiplier), steps, DELTA, accountant)
    found = [least_delta(1 / count, means, steps, epsilon) for means in triples(1 / multiplier)]
    assert max(found) <= DELTA * (1 + 1e-6)
    assert accountant == "rdp" or max(found) > 0.7 * DELTA


@pytest.mark.parametrize("count, multiplier", [(10, 0.8), (1000, 0.5)])
def test_renyi_divergences_are_bounded_by_what_rdp_charges(count, multiplier):
    for order in (2, 3, 8):
        accountant = dp_accounting.rdp.RdpAccountant([order], dp_accounting.NeighboringRelation.REPLACE_ONE)
        accountant.compose(one_of(count, multiplier))
        for means in triples(1 / multiplier):
            p, q = densities(1 / count, means, x := np.linspace(-12, 20, 40_001))
            logs = order * np.log(p) + (1 - order) * np.log(q)
            value = math.log(integrate.simpson(np.exp(logs), x=x)) / (order - 1)
            assert value <= accountant._rdp[0] * (1 + 1e-9) + 1e-9


def test_without_sampling_it_is_the_gaussian_mechanism():
    for multiplier, steps in ((1.0, 1), (40.0, 100), (5.0, 3)):
        exact = accountants.epsilon(dp_accounting.GaussianDpEvent(multiplier), steps, DELTA, "gdp")
        for accountant in ("rdp", "pld"):
            found = accountants.epsilon(one_of(1, multiplier), steps, DELTA, accountant)
            assert exact * (1 - 1e-9) <= found <= exact * (1.001 if accountant == "pld" else 1.5)


@pytest.mark.parametrize("count, multiplier, steps", [
    (1000, 0.5, 20_000), (1000, 2.0, 5000), pytest.param(3, 0.3, 4, marks=pytest.mark.slow)])
def test_it_is_above_poisson_sampling_for_absence_and_below_renyi(count, multiplier, steps):
    """A removed record's curve is the upper half of a replaced one's."""
    found = accountants.epsilon(one_of(count, multiplier), steps, DELTA, "pld")
    absent = accountants.epsilon(dp_accounting.PoissonSampledDpEvent(
        1 / count, dp_accounting.GaussianDpEvent(multiplier)), steps, DELTA, "pld", "add-or-remove-one")
    assert 0.95 * absent - 1e-4 <= found <= accountants.epsilon(one_of(count, multiplier), steps, DELTA, "rdp")


def test_epsilon_is_finite_and_falls_with_noise_and_grows_with_steps():
    for count, steps in ((1, 1), (7, 30), (1000, 20_000)):
        found = [accountants.epsilon(one_of(count, z), steps, DELTA, "pld") for z in (0.01, 0.3, 1.0, 30.0, 1e4, 1e12)]
        assert all(math.isfinite(value) for value in found) and found == sorted(found, reverse=True)
    assert accountants.epsilon(one_of(10, 1e-4), 1, DELTA, "pld") == math.inf
    costs = [accountants.epsilon(one_of(50, 1.0), steps, DELTA, "pld") for steps in (1, 10, 100, 1000)]
    assert costs == sorted(costs) and costs[0] < costs[-1]


def test_calibrated_noise_spends_the_budget():
    z = accountants.calibrate(lambda z: one_of(50, z), 200, 2.0, DELTA, "pld", precision=1e-6)
    assert accountants.epsilon(one_of(50, z), 200, DELTA, "pld") == pytest.approx(2.0, rel=1e-4)
    assert accountants.epsilon(one_of(50, z), 200, DELTA, "pld") <= 2.0
    assert accountants.max_steps(one_of(50, z), 2.0, DELTA, "pld") == 200


def test_what_it_is_not_for_is_refused():
    for accountant in ("gdp", "classic_rdp"):
        with pytest.raises(InvalidArgumentError, match="use rdp or pld"):
            accountants.epsilon(one_of(10, 1.0), 1, DELTA, accountant)
    for accountant in accountants.applicable(one_of(10, 1.0)):
        with pytest.raises(InvalidArgumentError, match="priced for ADD_OR_REMOVE_ONE"):
            accountants.epsilon(one_of(10, 1.0), 1, DELTA, accountant, "add-or-remove-one")
    with pytest.raises(InvalidArgumentError, match="source_dataset_size=0 >= 1"):
        accountants.epsilon(one_of(0, 1.0), 1, DELTA, "pld")
    for other in (dp_accounting.LaplaceDpEvent(1.0), dp_accounting.PoissonSampledDpEvent(
            0.1, dp_accounting.LaplaceDpEvent(1.0))):
        with pytest.raises(InvalidArgumentError, match="can be priced"):
            accountants.epsilon_of([one_of(10, 1.0), other], DELTA, "pld")


def test_releases_of_all_records_add_up_with_samples():
    sampled, whole = one_of(10, 1.0), dp_accounting.GaussianDpEvent(4.0)
    both, alone = (accountants.epsilon_of(events, DELTA, "pld") for events in ([sampled, whole], [whole]))
    assert alone < both < sum(accountants.epsilon_of([event], DELTA / 2, "pld") for event in (sampled, whole))


def test_the_ledger_keeps_such_charges(tmp_path):
    ledger = PrivacyLedger.create(tmp_path / "ledger.jsonl", epsilon=3.0, delta=DELTA, accountant="pld",
                                  config_digest="x", step_event=one_of(10, 2.0))
    for step in (1, 2):
        ledger.spend(one_of(10, 2.0), step=step)
    again = PrivacyLedger.open(tmp_path / "ledger.jsonl")
    assert again.charges == ledger.charges and again.step_event == one_of(10, 2.0)
    assert again.spent() == accountants.epsilon(one_of(10, 2.0), 2, DELTA, "pld")
    assert accountants.noise_multiplier(again.step_event) == 2.0
