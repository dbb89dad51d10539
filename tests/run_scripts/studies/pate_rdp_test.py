"""PATE's data-dependent bounds: those of the published code, true where that can be computed, out of reach."""

import ast
import itertools
import math
import pathlib

import mpmath
import numpy as np
import pytest
from scipy import integrate, special, stats

import datalens_tf
from datalens_tf.errors import InvalidArgumentError
from datalens_tf.mechanisms import InsecureSeededNoise
from run_scripts.studies import pate_rdp

ORDERS = np.array([1.5, 4.0, 20.0, 80.0])
VOTES = np.array([[2550, 2200, 250, 0], [4000, 600, 300, 100], [200, 30, 15, 5], [120, 110, 15, 5], [245, 5, 0, 0]])

# What tensorflow/privacy's research code (research/pate_2018/core.py) gives for these votes.
GNMAX = [
    (100.0, -5.011010705993169, [0.00015, 0.0004, 0.0007716546093086622, 0.002809166628169471]),
    (100.0, -293.1004481512909, [3.991810143833734e-128, 5.137907960232693e-128, 1.8192626127527546e-126,
                                 3.643424584412545e-118]),
    (20.0, -20.76554532591702, [1.0432008564953433e-09, 1.4933046351121066e-09, 3.050785769944459e-07,
                                0.19533727751974034]),
    (20.0, -1.0162121214228834, [0.00375, 0.01, 0.05, 0.2]),
    (10.0, -147.74930900627626, [1.0242561638290163e-63, 3.5076527017643974e-62, 4.9778210269817154e-46,
                                 0.5707990536842832])]
LNMAX = [
    (40.0, -7.761388606546219, [4.339608073978293e-05, 4.4805668004887003e-05, 5.735006597436574e-05,
                                0.0002930129568240249]),
    (100.0, -31.74298902151212, [6.599607640148488e-16, 6.683425400268344e-16, 7.292363043067347e-16,
                                 1.1298820223926192e-15]),
    (10.0, -15.153949817893965, [1.1322703140922977e-07, 1.299320489840553e-07, 6.612618538765366e-07,
                                 0.013512196326479157]),
    (20.0, -0.9294787446568133, [0.0075, 0.02, 0.08443733481413107, 0.09006805066010952]),
    (5.0, -44.914384713018066, [2.914542398556266e-20, 3.9453788879886333e-20, 3.2932515430830874e-18,
                                2.0893381750631426e-08])]
THRESHOLD = [  # T, sigma_1
    (3500.0, 1500.0, [3.3333333333333325e-07, 8.888888888888887e-07, 4.444444444444443e-06, 1.7777777777777773e-05]),
    (3500.0, 150.0, [2.2751775663746232e-05, 2.313312977751729e-05, 2.601954416372908e-05, 4.917188073797542e-05]),
    (150.0, 10.0, [3.901148538017903e-07, 6.150165487519014e-07, 0.0005585565740112366, 0.4]),
    (180.0, 15.0, [2.15939955018701e-05, 2.6988513573287157e-05, 0.0005614740332182678, 0.17777777777777776]),
    (200.0, 12.0, [7.312704467613031e-05, 9.610358143025934e-05, 0.004485617060614046, 0.27777777777777773])]


def test_values_are_those_of_the_published_code():
    for votes, (stddev, log_q, rdp), (scale, log_q_laplace, rdp_laplace), (bar, stddev_1, rdp_test) in zip(
            VOTES, GNMAX, LNMAX, THRESHOLD):
        assert pate_rdp.gnmax_log_q(votes, stddev) == pytest.approx(log_q, rel=1e-12)
        np.testing.assert_allclose(pate_rdp.gnmax_rdp(log_q, stddev, ORDERS), rdp, rtol=1e-9)
        assert pate_rdp.lnmax_log_q(votes, scale) == pytest.approx(log_q_laplace, rel=1e-12)
        np.testing.assert_allclose(pate_rdp.lnmax_rdp(log_q_laplace, scale, ORDERS), rdp_laplace, rtol=1e-9)
        log_q_test = pate_rdp.threshold_log_q(votes.max(), bar, stddev_1)
        np.testing.assert_allclose(pate_rdp.threshold_rdp(log_q_test, stddev_1, ORDERS), rdp_test, rtol=1e-9)


@pytest.mark.parametrize("log_q,stddev,order", [(-20.0, 20.0, 4.0), (-300.0, 40.0, 30.0), (-5.0, 100.0, 20.0)])
def test_theorem_6_in_high_precision(log_q, stddev, order):
    with mpmath.workdps(400):
        q, variance, order_ = mpmath.exp(log_q), mpmath.mpf(stddev) ** 2, mpmath.mpf(order)
        mu_2 = stddev * mpmath.sqrt(-mpmath.mpf(log_q))
        mu_1 = mu_2 + 1
        eps_1, eps_2 = mu_1 / variance, mu_2 / variance
        a = (1 - q) / (1 - (q * mpmath.exp(eps_2)) ** ((mu_2 - 1) / mu_2))
        b = mpmath.exp(eps_1) / q ** (1 / (mu_1 - 1))
        exact = mpmath.log((1 - q) * a ** (order_ - 1) + q * b ** (order_ - 1)) / (order_ - 1)
    assert exact < order / stddev**2
    assert pate_rdp.gnmax_rdp(log_q, stddev, [order])[0] == pytest.approx(float(exact), rel=1e-6)


def test_queries_and_orders_at_once_equal_one_after_the_other():
    log_q = pate_rdp.gnmax_log_q(VOTES, 30.0)
    together = pate_rdp.gnmax_rdp(log_q, 30.0, ORDERS)
    assert together.shape == (5, 4)
    for row, votes in zip(together, VOTES):
        for value, order in zip(row, ORDERS):
            assert pate_rdp.gnmax_rdp(pate_rdp.gnmax_log_q(votes, 30.0), 30.0, [order])[0] == value
    tested = pate_rdp.confident_gnmax_rdp(VOTES, np.array([1, 1, 0, 0, 1]), 200, 50.0, 30.0, ORDERS)
    test = pate_rdp.threshold_rdp(pate_rdp.threshold_log_q(VOTES.max(1), 200, 50.0), 50.0, ORDERS)
    np.testing.assert_allclose(tested, test + np.array([1, 1, 0, 0, 1])[:, None] * together, rtol=1e-15)
    surprise = pate_rdp.confident_gnmax_rdp(VOTES, np.zeros(5), 200, 50.0, 30.0, ORDERS, baseline=VOTES)
    np.testing.assert_allclose(surprise, np.tile(pate_rdp.threshold_rdp(
        pate_rdp.threshold_log_q(0, 200, 50.0), 50.0, ORDERS), (5, 1)))


# True divergences of what is released.


def winners(votes, stddev):
    """Logarithms of GNMax' probabilities of each answer, by quadrature over the winner's noise."""
    probabilities = []
    for winner, count in enumerate(votes):
        leads = (count - np.delete(votes, winner)) / stddev
        values, _ = integrate.quad_vec(lambda x, leads=leads: np.exp(
            stats.norm.logpdf(x) + special.log_ndtr(leads + x).sum()), -12, 12, epsrel=1e-12, epsabs=0, limit=2000)
        probabilities.append(values)
    return np.log(probabilities)


def renyi(p, q, order):
    return special.logsumexp(order * p + (1 - order) * q) / (order - 1)


@pytest.mark.parametrize("votes,stddev", [((20, 5, 5), 4.0), ((25, 3, 2), 3.0), ((40, 2), 6.0), ((14, 12, 4), 5.0)])
def test_every_divergence_of_neighbouring_votes_is_within_the_bound(votes, stddev):
    votes, helped = np.array(votes, float), 0
    here = winners(votes, stddev)
    bound = pate_rdp.gnmax_rdp(pate_rdp.gnmax_log_q(votes, stddev), stddev, ORDERS[:3])
    others = np.delete(here, np.argmax(votes))
    assert special.logsumexp(others) <= pate_rdp.gnmax_log_q(votes, stddev) + 1e-9
    for source, target in itertools.permutations(range(len(votes)), 2):
        changed = votes.copy()
        changed[source] -= 1
        changed[target] += 1
        there = winners(changed, stddev)
        for order, limit in zip(ORDERS, bound):
            assert renyi(here, there, order) <= limit * (1 + 1e-6) + 1e-12
            helped += limit < 0.9 * order / stddev**2
    assert helped or votes.max() < 20


@pytest.mark.parametrize("gap", [0, 2, 10, 40])
def test_every_divergence_of_laplace_votes_is_within_the_bound(gap):
    """Two classes: the difference of two Laplace numbers has a closed form."""
    scale = 4.0

    def log_probabilities(distance):
        lose = math.log(2 + distance / scale) - math.log(4) - distance / scale if distance >= 0 else None
        if lose is None:
            return log_probabilities(-distance)[::-1]
        return np.array([math.log1p(-math.exp(lose)), lose])

    votes = np.array([gap + 1.0, 1.0])
    bound = pate_rdp.lnmax_rdp(pate_rdp.lnmax_log_q(votes, scale), scale, ORDERS)
    for other in (gap - 2, gap - 1, gap + 1, gap + 2):
        for order, limit in zip(ORDERS, bound):
            assert renyi(log_probabilities(gap), log_probabilities(other), order) <= limit * (1 + 1e-9) + 1e-12


@pytest.mark.parametrize("largest", [0, 50, 95, 100, 130, 180])
def test_every_divergence_of_the_threshold_test_is_within_the_bound(largest):
    def outcome(number):
        return np.array([stats.norm.logsf((100 - number) / 12.0), stats.norm.logcdf((100 - number) / 12.0)])

    bound = pate_rdp.threshold_rdp(pate_rdp.threshold_log_q(largest, 100, 12.0), 12.0, ORDERS)
    for other in (largest - 1, largest + 1):
        for order, limit in zip(ORDERS, bound):
            assert renyi(outcome(largest), outcome(other), order) <= limit * (1 + 1e-9) + 1e-15


# Smooth sensitivity.


def test_local_sensitivities_are_the_published_ones():
    """The values in tensorflow/privacy's research/pate_2018/smooth_sensitivity_test.py."""
    near = pate_rdp.gnmax_local_sensitivity([[10, 0, 0]], 0.5, 1.5)[0]
    # From the next distance on the published q_0 is another one: see `_largest_useful_log_q`.
    np.testing.assert_allclose(near[:3], [3.13503646e-17, 1.60178280e-08, 5.90681786e-03], rtol=1e-8)
    far = pate_rdp.gnmax_local_sensitivity([[1000, 500, 300, 200, 0]], 250.0, 10.0)[0]
    np.testing.assert_allclose(far, [0] * 298 + [2.77693450548e-7, 2.10853979548e-6] + [2.73113623988e-6] * 1700,
                               rtol=1e-8)
    high, low = ([1.48454129e-04, 1.47826870e-02, 3.94153241e-02, 6.45775697e-02, 9.01543247e-02, 1.16054002e-01,
                  1.42180452e-01],
                 [1.60212079e-01, 2.07021132e-01, 2.07021132e-01, 1.93127860e-01, 1.68302106e-01, 1.42180452e-01,
                  1.16054002e-01, 9.01543247e-02, 6.45775697e-02, 3.94153241e-02, 1.47826870e-02, 1.48454129e-04])
    found = pate_rdp.threshold_local_sensitivity([20], 30, 16, 2.0, 10.0)[0]
    np.testing.assert_allclose(found[:20], [0] * 3 + high + high[-1:] + high + [1.68302106e-01, 1.93127860e-01],
                               rtol=3e-8, atol=1e-40)
    found = pate_rdp.threshold_local_sensitivity([20], 30, 2, 2.0, 10.0)[0]
    np.testing.assert_allclose(found, low + [0] * 18, rtol=3e-8, atol=1e-40)
    assert pate_rdp.gnmax_conditions(20.0, 10, 25.0) == (True, False)
    assert pate_rdp.gnmax_conditions(30.0, 10, 25.0) == (True, True)


@pytest.mark.parametrize("num_teachers,num_classes,stddev,order", [
    (10, 3, 0.5, 1.5), (10, 3, 1.0, 2.0), (12, 3, 2.0, 2.0), (24, 3, 3.0, 2.0), (12, 4, 1.5, 1.1)])
def test_no_votes_change_the_bound_by_more_than_the_local_sensitivity(num_teachers, num_classes, stddev, order):
    """All votes that there are, and all at each distance from them."""
    votes = np.array([v for v in itertools.product(range(num_teachers + 1), repeat=num_classes)
                      if sum(v) == num_teachers])
    rdp = pate_rdp.gnmax_rdp(pate_rdp.gnmax_log_q(votes, stddev), stddev, [order])[:, 0]
    assert rdp.min() < 0.5 * rdp.max()
    distance = np.abs(votes[:, None] - votes[None]).sum(-1) // 2
    local = np.where(distance == 1, np.abs(rdp[:, None] - rdp), 0).max(1)
    found = pate_rdp.gnmax_local_sensitivity(votes, stddev, order)
    for d in range(num_teachers):
        exact = np.where(distance <= d, local, 0).max(1)
        assert np.all(exact <= found[:, :d + 1].max(1) * (1 + 1e-9) + 1e-15)
    smooth = np.max(np.exp(-0.3 * distance) * local, axis=1)
    assert all(exact <= pate_rdp.smooth_sensitivity(row, 0.3) * (1 + 1e-9) + 1e-15 for exact, row in zip(smooth, found))


def test_where_the_conditions_fail_no_sensitivity_is_given():
    with pytest.raises(InvalidArgumentError, match="C5 and C6"):
        pate_rdp.gnmax_local_sensitivity([[20, 5, 5]], 3.0, 8.0)


def test_where_votes_never_help_nothing_is_sensitive():
    assert not np.any(pate_rdp.gnmax_local_sensitivity([[20, 5, 5]], 3.0, 5000.0))


@pytest.mark.parametrize("order,beta,stddev", [(10.0, 0.049, 10.0), (10.0, 0.02, 10.0), (3.0, 0.1, 2.0)])
def test_the_price_of_publishing_covers_every_pair_of_scales(order, beta, stddev):
    """Renyi divergences by quadrature, of numbers that differ as neighbours' may."""
    price, worst = pate_rdp.gnss_rdp(beta, stddev, order), 0.0
    for log_ratio in np.linspace(-beta, beta, 9):
        scale = math.exp(log_ratio)
        shift = min(1.0, scale) / stddev  # In units of the first one's noise.

        def log_density(x, other=stats.norm(shift, scale)):
            return order * stats.norm.logpdf(x) + (1 - order) * other.logpdf(x)

        grid = np.linspace(-60, 60, 400_001)
        divergence = special.logsumexp(log_density(grid)) + math.log(grid[1] - grid[0])
        worst = max(worst, divergence / (order - 1))
    assert worst <= price * (1 + 1e-6) and price < 1.05 * worst


def test_the_published_price_of_publishing_is_too_small_for_a_large_beta():
    """order e^(2 beta) / sigma^2 + (beta order - ln(1 - 2 order beta) / 2) / (order - 1), in the research code."""
    order, beta, stddev = 10.0, 0.049, 10.0
    published = (order * math.exp(2 * beta) / stddev**2
                 + (beta * order - 0.5 * math.log(1 - 2 * order * beta)) / (order - 1))
    assert published == pytest.approx(0.38207533, rel=1e-6)
    assert pate_rdp.gnss_rdp(beta, stddev, order) == pytest.approx(0.77795431, rel=1e-6)


def test_a_number_to_publish_has_noise_of_the_smooth_sensitivity():
    votes = np.tile([90.0, 6, 4], (50, 1))
    local = pate_rdp.gnmax_local_sensitivity(votes, 10.0, 4.0).sum(0)
    rdp = pate_rdp.gnmax_rdp(pate_rdp.gnmax_log_q(votes, 10.0), 10.0, [4.0]).sum()
    settings = dict(order=4.0, beta=0.05, relative_stddev=8.0)
    drawn = [pate_rdp.sanitized_rdp(rdp, local, **settings, noise=InsecureSeededNoise(0), index=i) for i in range(300)]
    stddev = 8.0 * pate_rdp.smooth_sensitivity(local, 0.05)
    noise = np.array([one.rdp for one in drawn]) - rdp
    assert stats.kstest(noise / stddev, "norm").pvalue > 1e-7 and drawn[0].stddev == stddev
    assert drawn[0].cost == pate_rdp.gnss_rdp(0.05, 8.0, 4.0)
    assert drawn[0].epsilon(1e-5) == pytest.approx(max(0, drawn[0].rdp) + drawn[0].cost + math.log(1e5) / 3)


def test_nothing_in_the_package_can_reach_it():
    for path in pathlib.Path(datalens_tf.__file__).parent.rglob("*.py"):
        names = [name for node in ast.walk(ast.parse(path.read_text()))
                 for name in ([alias.name for alias in node.names] if isinstance(node, ast.Import) else
                              [node.module, *(f"{node.module}.{alias.name}" for alias in node.names)]
                              if isinstance(node, ast.ImportFrom) and node.module else [])]
        assert not any("pate_rdp" in name for name in names), path


@pytest.mark.parametrize("call", [
    lambda: pate_rdp.gnmax_rdp(0.1, 1.0, [2.0]), lambda: pate_rdp.gnmax_rdp(-1.0, 0.0, [2.0]),
    lambda: pate_rdp.gnmax_rdp(-1.0, 1.0, [1.0]), lambda: pate_rdp.gnmax_log_q([3.0], 1.0),
    lambda: pate_rdp.gnmax_rdp(math.nan, 1.0, [2.0]), lambda: pate_rdp.lnmax_log_q([3.0, 1.0], -1.0),
    lambda: pate_rdp.gnss_rdp(0.3, 1.0, 10.0), lambda: pate_rdp.smooth_sensitivity(np.ones(3), 0.0)])
def test_bad_arguments_are_refused(call):
    with pytest.raises(InvalidArgumentError):
        call()
