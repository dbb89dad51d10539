"""Theorems 4 and 5: true where they can be computed, useless in high dimension, and out of everybody's reach."""

import ast
import itertools
import math
import pathlib

import numpy as np
import pytest
from scipy import special, stats

import datalens_tf
from datalens_tf.errors import InvalidArgumentError
from datalens_tf.mechanisms import InsecureSeededNoise, TopAgg
from datalens_tf.methods.registry import preset
from run_scripts.studies.data_dependent import data_dependent_rdp, log_likeliest, log_likeliest_possible


def outcome(votes, stddev, bar):
    """Logarithms of the probabilities of -1, 0 and 1 of one coordinate."""
    down, up = stats.norm.logcdf((-bar - votes) / stddev), stats.norm.logsf((bar - votes) / stddev)
    return np.array([down, math.log(max(-np.expm1(np.logaddexp(down, up)), 1e-300)), up])


def renyi(p, q, order):
    return special.logsumexp(order * p + (1 - order) * q) / (order - 1)


def test_probability_of_the_likeliest_outcome_is_how_often_it_comes():
    mechanism = TopAgg(num_teachers=20, top_k=3, clip=None, noise_stddev=8.0, vote_threshold=0.5)
    votes = np.array([[20.0, -20, 0, 11, -3, 9]])
    direction = {0: 1, 1: -1, 2: 0, 3: 1, 4: 0, 5: 0}
    released = np.array([mechanism.postprocess(mechanism.privatize(votes, InsecureSeededNoise(0), index))[0]
                         for index in range(20_000)])
    for column, likeliest in direction.items():
        p = math.exp(log_likeliest(votes, 8.0, 10.0)[0, column])
        assert np.mean(released[:, column] == likeliest) == pytest.approx(p, abs=5 * math.sqrt(p * (1 - p) / 20_000))


def test_every_divergence_of_neighbours_is_within_theorem_4():
    """One coordinate: the divergence of the thresholded release can be computed exactly."""
    stddev, bar, helped = 40.0, 300.0, 0
    for votes in (0.0, 100.0, 200.0, 280.0, 350.0, 500.0, 700.0):
        for order in (1.1, 2.0, 5.0, 20.0, 60.0):
            bound = data_dependent_rdp(float(log_likeliest(votes, stddev, bar)), order, (2 / stddev) ** 2)
            exact = max(renyi(outcome(votes, stddev, bar), outcome(other, stddev, bar), order)
                        for other in (votes - 2, votes - 1, votes + 1, votes + 2))
            assert exact <= bound
            helped += bound < order * (2 / stddev) ** 2 / 2
    assert helped > 5  # Where teachers agree the bound is the smaller one.


def test_a_likely_outcome_helps_one_coordinate_and_many_do_not():
    log_p = float(log_likeliest(0.0, 40.0, 300.0))
    smaller = [data_dependent_rdp(count * log_p, 10.0, 4 / 40.0**2) < 10 * 4 / 40.0**2 / 2
               for count in (1, 10, 10**12)]
    assert smaller == [True, True, False]
    bounds = [data_dependent_rdp(count * log_p, 10.0, 4 / 40.0**2) for count in (1, 10, 100, 1000)]
    assert bounds == sorted(bounds)


@pytest.mark.parametrize("name,dimension", [("mnist", 784), ("fashion_mnist", 784), ("celeba_hair", 12288)])
@pytest.mark.parametrize("epsilon", [1.0, 10.0])
def test_no_votes_whatever_make_theorem_4_better_at_the_presets(name, dimension, epsilon):
    """The finding of Figure 2, for all data sets at once: no likely outcome is likely enough."""
    config = preset(name, epsilon)
    bar = config.vote_threshold * config.num_teachers
    best = log_likeliest_possible(config.num_teachers, config.top_k, dimension, config.noise_stddev, bar)
    squared_mu = 4 * config.top_k / config.noise_stddev**2
    for order in (1.1, 2.0, 10.0, 50.0, 199.0):
        assert data_dependent_rdp(best, order, squared_mu) >= order * squared_mu / 2


def test_nothing_in_the_package_can_reach_it():
    """It can neither stop training nor get into a file that leaves the machine: no module knows of it."""
    package = pathlib.Path(datalens_tf.__file__).parent
    for path in package.rglob("*.py"):
        names = [name for node in ast.walk(ast.parse(path.read_text()))
                 for name in ([alias.name for alias in node.names] if isinstance(node, ast.Import) else
                              [node.module, *(f"{node.module}.{alias.name}" for alias in node.names)]
                              if isinstance(node, ast.ImportFrom) and node.module else [])]
        assert not any("data_dependent" in name for name in names), path


@pytest.mark.parametrize("stddev,bar", [(2.0, 3.0), (0.7, 1.5), (5.0, 4.0), (1.0, 0.5)])
def test_no_votes_have_a_likelier_outcome_than_is_possible(stddev, bar):
    """All votes that 5 teachers with k = 2 can cast on 4 coordinates."""
    best = log_likeliest_possible(5, 2, 4, stddev, bar)
    sums = [votes for votes in itertools.product(range(6), repeat=4) if sum(votes) <= 10]  # Signs do not matter.
    found = log_likeliest(np.array(sums), stddev, bar).sum(axis=1).max()
    assert best - 0.2 < found <= best + 1e-12  # Equally many votes need not be a whole number.


@pytest.mark.parametrize("arguments", [(0.1, 2, 1), (math.nan, 2, 1), (-1, 1, 1), (-1, 2, 0), (-1, 2, math.nan)])
def test_bad_arguments_are_refused(arguments):
    with pytest.raises(InvalidArgumentError):
        data_dependent_rdp(*arguments)
