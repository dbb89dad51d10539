"""Plans: the budget is kept, the model is what it says, and its optimum is one."""

import json

import numpy as np
import pytest

from datalens_tf import cli
from datalens_tf.accounting import accountants
from datalens_tf.errors import InvalidArgumentError
from datalens_tf.planning.planner import common_gradient, expected_cosine, plan, votes

GIVEN = dict(num_teachers=400, dimension=100, epsilon=4.0, num_steps=30, batch_size=5)


@pytest.mark.parametrize("accountant", ["gdp", "classic_rdp"])
def test_the_plan_costs_its_budget(accountant):
    found = plan(**GIVEN, accountant=accountant)
    assert found.epsilon == pytest.approx(4.0, rel=1e-6) and found.epsilon <= 4.0
    assert found.noise_stddev == pytest.approx(found.noise_multiplier * 2 * np.sqrt(found.top_k * 5), rel=1e-12)
    assert found.noise_multiplier == pytest.approx(
        accountants.calibrate_noise_multiplier(30, 4.0, 1e-5, accountant), rel=1e-12)


@pytest.mark.parametrize("consensus, tail_shape", [(0.05, 1.0), (0.3, 0.5), (0.9, 2.0)])
def test_the_common_gradient_has_the_consensus(consensus, tail_shape):
    signal = common_gradient(100, consensus, tail_shape)
    mean, _ = votes(signal, np.array([1.0]))
    assert np.sqrt(np.mean(mean**2)) == pytest.approx(consensus, rel=1e-6)


def simulated(signal, num_teachers, top_k, stddev, beta, repeats):
    """The model as its docstring reads: teachers choose their own k largest coordinates; noise, threshold, cosine."""
    random = np.random.default_rng(5)
    products, squares = [], []
    for _ in range(repeats):
        gradients = signal + random.normal(size=(num_teachers, len(signal)))
        chosen = np.argpartition(-np.abs(gradients), top_k - 1, axis=1)[:, :top_k]
        signs = np.zeros_like(gradients)
        np.put_along_axis(signs, chosen, np.sign(np.take_along_axis(gradients, chosen, 1)), 1)
        noisy = signs.sum(0) + random.normal(0, stddev, len(signal))
        bar = beta * num_teachers
        direction = np.where(noisy >= bar, 1, np.where(noisy <= -bar, -1, 0))
        products.append(signal @ direction)
        squares.append(direction @ direction)
    return np.mean(products) / np.linalg.norm(signal) / np.sqrt(np.mean(squares))


@pytest.mark.parametrize("top_k, stddev, beta", [(10, 20.0, 0.1), (30, 60.0, 0.3), (100, 30.0, 0.0)])
def test_the_expected_cosine_is_the_simulated_one(top_k, stddev, beta):
    signal = common_gradient(100, 0.3, 1.0)
    mean, variance = votes(signal, np.array([top_k / 100]))
    assert np.mean(mean**2 + variance) == pytest.approx(top_k / 100, rel=1e-6)  # Votes are +1 or -1 on k coordinates.
    found = expected_cosine(signal, 50, mean, variance, np.array([stddev]), beta)[0]
    assert found == pytest.approx(simulated(signal, 50, top_k, stddev, beta, 1500), abs=0.02)


def test_nothing_near_the_plan_is_better():
    found = plan(**GIVEN, consensus=0.3)
    signal = common_gradient(100, 0.3, 1.0)
    counts = np.arange(1, 101)
    mean, variance = votes(signal, counts / 100)
    stddevs = found.noise_multiplier * 2 * np.sqrt(counts * 5)
    best = max(expected_cosine(signal, 400, mean, variance, stddevs, beta).max() for beta in np.linspace(0, 1, 201))
    assert found.cosine == pytest.approx(best, rel=0.01) and found.cosine <= best
    assert 1 <= found.top_k <= 100 and 0 <= found.vote_threshold <= 1


def test_more_of_everything_helps():
    base = plan(**GIVEN).cosine
    for change in ({"num_teachers": 800}, {"epsilon": 8.0}, {"num_steps": 10}, {"batch_size": 2}, {"consensus": 0.6}):
        assert plan(**GIVEN | change).cosine > base, change


def test_heavier_tails_want_fewer_coordinates():
    assert plan(**GIVEN, tail_shape=0.3).top_k < plan(**GIVEN, tail_shape=1.5).top_k


@pytest.mark.parametrize("changes, message", [
    ({"consensus": 0.0}, r"consensus=0.0 in \(0, 1\)"), ({"consensus": 1.0}, "consensus=1.0"),
    ({"tail_shape": 0.0}, "shape=0.0 > 0"), ({"num_teachers": 0}, "num_teachers=0 >= 1"),
    ({"epsilon": 0.0}, "epsilon=0.0 > 0"), ({"accountant": "hope"}, "accountant='hope'")])
def test_bad_values_are_named(changes, message):
    with pytest.raises(InvalidArgumentError, match=message):
        plan(**GIVEN | changes)


def test_the_command_prints_settings_that_can_be_used(capsys):
    flags = ["plan", "--num_teachers=400", "--dimension=100", "--epsilon=4", "--num_steps=30", "--batch_size=5"]
    assert cli.main([*flags, "--json"]) == 0
    found = json.loads(capsys.readouterr().out)
    assert found["top_k"] == plan(**GIVEN).top_k
    assert cli.main(flags) == 0
    out = capsys.readouterr().out
    assert out.startswith(f"--top_k {found['top_k']} --vote_threshold {found['vote_threshold']:.2f} --noise_stddev ")
    assert "epsilon 4.0000 (gdp)" in out and "a model, not a promise" in out
    assert cli.main([*flags, "--consensus=2"]) == 2 and "consensus=2.0 in (0, 1)" in capsys.readouterr().err
    assert cli.main(["plan", "--dimension=100"]) == 2 and "num_teachers" in capsys.readouterr().err
