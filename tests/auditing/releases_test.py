"""The audit: never above the truth, not far below it where there is much to see, and awake when privacy is off."""

import dataclasses
import math

import numpy as np
import pytest
from scipy import stats

from datalens_tf.accounting import accountants
from datalens_tf.auditing.releases import (
    attack_one_run,
    attack_releases,
    best_one_run_bound,
    many_runs_bound,
    one_run_bound,
)
from datalens_tf.errors import InvalidArgumentError
from datalens_tf.mechanisms import InsecureSeededNoise, RoundedGaussianNoise, TopAgg

MECHANISM = TopAgg(num_teachers=400, top_k=5, clip=None, noise_stddev=30.0, vote_threshold=0.5)
RUN = {"batch_size": 3, "num_steps": 20, "top_k": 5}
TRUE_EPSILON = accountants.epsilon(MECHANISM.dp_event(3), 20, 1e-5, "gdp")
# What is claimed where less noise is added: no audit of 800 runs can show much more than its logarithm.
CLAIMED = accountants.epsilon(dataclasses.replace(MECHANISM, noise_stddev=100.0).dp_event(3), 20, 1e-5, "gdp")


def test_one_run_bound_of_all_coins_guessed():
    # Without delta: the epsilon at which (e^eps / (1 + e^eps))^m is 0.05.
    for count in (20, 100, 1000):
        p = 0.05 ** (1 / count)
        assert one_run_bound(count, count, count, 0.0) == pytest.approx(math.log(p / (1 - p)), abs=2e-4)
    assert one_run_bound(100, 100, 100, 1e-5) == pytest.approx(one_run_bound(100, 100, 100, 0.0), abs=0.05)
    assert one_run_bound(50, 100, 100, 0.0) == 0 == one_run_bound(0, 0, 10, 0.0)


def test_one_run_bound_is_what_the_binomial_tail_rejects():
    epsilon = one_run_bound(640, 1000, 1000, 0.0)
    q = math.exp(epsilon) / (1 + math.exp(epsilon))
    assert stats.binom.sf(639, 1000, q) <= 0.05 < stats.binom.sf(639, 1000, q + 1e-3)
    assert one_run_bound(640, 1000, 1000, 1e-3) < epsilon < one_run_bound(640, 1000, 1000, 0.0, 0.5)


def test_many_runs_bound_of_worlds_that_are_told_apart_or_not():
    apart = many_runs_bound(np.ones(400), np.zeros(400), 1e-5)
    # 200 of 200 against 0 of 200: Clopper and Pearson's intervals at 0.05 / 4.
    low = (0.05 / 4) ** (1 / 200)
    assert apart == pytest.approx(math.log((low - 1e-5) / (1 - low)), rel=1e-6) and apart > 3
    assert many_runs_bound(np.ones(400), np.ones(400), 1e-5) == 0
    assert many_runs_bound(np.zeros(400), np.ones(400), 1e-5) == 0  # An attack that is always wrong shows nothing.


@pytest.mark.parametrize("mu", [0.3, 1.0, 3.0])
def test_many_runs_bound_is_valid_for_gaussian_worlds(mu):
    """Over 200 audits of a Gaussian mechanism the bound is too large in at most 5 % of them."""
    stream = np.random.default_rng(0)
    truth = next(e for e in np.arange(0, 40, 0.01) if stats.norm.cdf(mu / 2 - e / mu) - math.exp(e) * stats.norm.cdf(
        -mu / 2 - e / mu) <= 1e-5)
    bounds = [many_runs_bound(stream.normal(mu, 1, 400), stream.normal(0, 1, 400), 1e-5) for _ in range(200)]
    assert np.mean(np.array(bounds) > truth) < 0.05 + 5 * math.sqrt(0.05 * 0.95 / 200)
    assert np.median(bounds) > {0.3: -1, 1.0: 0.2, 3.0: 2.0}[mu]


@pytest.mark.slow
def test_the_mechanism_is_as_private_as_it_says_and_the_attack_is_not_blind():
    # So many that the bound, about 1.86 +- 0.26, falls below 0.1 less than once in a million times.
    trials = 4000
    scores = attack_releases(MECHANISM, RoundedGaussianNoise(), trials=trials, **RUN)
    # The attack is the optimal one: its scores are apart by exactly the mechanism's mu, in standard deviations.
    mu = 2 * math.sqrt(RUN["batch_size"] * RUN["top_k"] * RUN["num_steps"]) / 30
    spread = (scores[0].std() + scores[1].std()) / 2
    assert (scores[0].mean() - scores[1].mean()) / spread == pytest.approx(mu, abs=6 / math.sqrt(trials / 2))
    bound = many_runs_bound(*scores, 1e-5, confidence=1 - 1e-6)
    assert bound < TRUE_EPSILON
    assert many_runs_bound(*scores, 1e-5) > 0.1


def test_one_run_with_canaries():
    scores, coins = attack_one_run(MECHANISM, RoundedGaussianNoise(), dimension=40, num_canaries=400, **RUN)
    bound = best_one_run_bound(scores, coins, 1e-5, confidence=1 - 1e-6)
    assert bound["epsilon"] < TRUE_EPSILON
    assert np.mean((scores > 0) == coins) > 0.6  # It sees something: one in two would be nothing.


def test_noise_that_is_off_is_caught():
    off = dataclasses.replace(MECHANISM, noise_stddev=0.0)
    many = many_runs_bound(*attack_releases(off, RoundedGaussianNoise(), trials=400, **RUN), 1e-5)
    scores, coins = attack_one_run(off, RoundedGaussianNoise(), dimension=4000, num_canaries=400, **RUN)
    one = best_one_run_bound(scores, coins, 1e-5)
    assert many > 3 and one["epsilon"] > 3


def test_noise_that_is_much_too_small_or_repeats_is_caught():
    small = dataclasses.replace(MECHANISM, noise_stddev=10.0)
    assert many_runs_bound(*attack_releases(small, RoundedGaussianNoise(), trials=400, **RUN), 1e-5) > CLAIMED
    # Noise that depends on the number of the charge only: the same in every run.
    assert many_runs_bound(*attack_releases(MECHANISM, InsecureSeededNoise(0), trials=400, **RUN), 1e-5) > CLAIMED


def test_bad_arguments_are_named():
    with pytest.raises(InvalidArgumentError, match=r"len\(scores_with\)=3 >= 4"):
        many_runs_bound([1, 2, 3], [1, 2, 3, 4], 0.0)
    with pytest.raises(InvalidArgumentError, match="finite"):
        many_runs_bound([1, 2, 3, np.nan], [1, 2, 3, 4], 0.0)
    with pytest.raises(InvalidArgumentError, match="as many as the others"):
        many_runs_bound([1, 2, 3, 4], [1, 2, 3, 4, 5], 0.0)
    with pytest.raises(InvalidArgumentError, match="num_guesses"):
        one_run_bound(5, 4, 10, 0.0)
    with pytest.raises(InvalidArgumentError, match="confidence=1"):
        one_run_bound(4, 4, 10, 0.0, 1)
