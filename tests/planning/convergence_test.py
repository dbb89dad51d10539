"""Theorem 6's terms, and what is measured for them."""

import numpy as np
import pytest

from datalens_tf.errors import InvalidArgumentError
from datalens_tf.planning.convergence import (
    noise_constant,
    progress_factor,
    tau,
    theorem_6,
    weibull_magnitudes,
    weibull_shape,
)

GIVEN = dict(top_k=200, dimension=784, tau=0.5, gradient_norm=3.0, deviation_l2=0.1, deviation_l1=2.0, smoothness=4.0,
             step_size=1e-3, num_steps=100, gap=7.0, noise_constant=0.5, clip=1.0)


def test_the_terms_are_those_of_equation_3():
    bound = theorem_6(**GIVEN, quantization_stddev=2.0)
    assert bound.top_k == 0.5 * 9  # Less than c (d - k) M = 1752.
    assert bound.noise == pytest.approx(4e-3 * 0.5 * 200) and bound.start == pytest.approx(7 / (100 * 1e-3))
    assert bound.deviation == 4.0  # More than 0.01 + 0.3.
    assert bound.quantization == pytest.approx(2 * 4e-3 * (4 + 1))
    assert bound.total == pytest.approx(4.5 + 0.4 + 70 + 4 + 0.04)
    assert progress_factor(784) == 1 / 786 and progress_factor(784, clip=0.5) == 0.5 / 786


def test_without_quantization_the_last_term_is_the_improved_one():
    assert theorem_6(**GIVEN).quantization == pytest.approx(4e-3 * min(1.0, 9.0))
    assert theorem_6(**GIVEN | {"gradient_norm": 0.5}).quantization == pytest.approx(4e-3 * 0.25)


def test_all_coordinates_leave_nothing_out_and_few_are_bounded_by_the_clip():
    assert theorem_6(**GIVEN | {"top_k": 784, "tau": 0.0}).top_k == 0.0
    assert theorem_6(**GIVEN | {"top_k": 783, "tau": 1.0, "clip": 0.1}).top_k == pytest.approx(0.1 * 3)


def test_the_noise_is_that_of_the_mean_over_teachers():
    """A k against simulated noise on 784 coordinates, averaged over 50 teachers."""
    noise = np.random.default_rng(0).normal(0, 20.0, (2000, 784)) / 50
    expected = noise_constant(20.0, 50, 200, coordinates=784) * 200
    assert np.mean(np.sum(noise**2, 1)) == pytest.approx(expected, rel=0.01)
    assert noise_constant(20.0, 50, 200) * 200 == pytest.approx(np.mean(noise[:, 0]**2), rel=0.2)
    assert noise_constant(20.0, 50, 200, vote=1e-5) == pytest.approx(1e-10 * noise_constant(20.0, 50, 200))


@pytest.mark.parametrize("changes, message", [
    ({"top_k": 785}, "top_k=785 <= 784"), ({"tau": 1.5}, "tau=1.5"), ({"gap": -1.0}, "gap=-1.0 >= 0"),
    ({"step_size": 0.0}, "step_size=0.0 > 0"), ({"num_steps": 0}, "num_steps=0 >= 1")])
def test_values_outside_their_domain_are_named(changes, message):
    with pytest.raises(InvalidArgumentError, match=message):
        theorem_6(**GIVEN | changes)


def test_tau_is_what_a_loop_says():
    gradients = np.random.default_rng(1).normal(size=(3, 2, 12))
    found = tau(gradients)
    for index in np.ndindex(3, 2):
        for k in range(1, 13):
            row = gradients[index].copy()
            row[np.argsort(-np.abs(row))[:k]] = 0
            assert found[index][k - 1] == pytest.approx(np.linalg.norm(row) / np.linalg.norm(gradients[index]))
    assert np.all(found[..., -1] == 0) and np.all(np.diff(found) <= 0)
    np.testing.assert_allclose(tau(gradients * 1e200), found)  # No overflow.
    np.testing.assert_allclose(tau(np.ones(4)), np.sqrt([3 / 4, 2 / 4, 1 / 4, 0]))
    assert np.isnan(tau(np.zeros(4))).all() and np.isnan(tau(np.array([1, np.nan]))).all()


@pytest.mark.parametrize("shape", [0.4, 1.0, 2.5])
def test_the_shape_of_a_weibull_distribution_is_found(shape):
    drawn = np.random.default_rng(2).weibull(shape, 20_000) * 1e-5
    signs = np.random.default_rng(3).choice([-1, 1], 20_000)
    assert weibull_shape(drawn * signs) == pytest.approx(shape, rel=0.03)  # Five standard errors.
    profile = np.sort(drawn)[::-1] / np.linalg.norm(drawn)
    k = np.array([2_000, 10_000]) - 1
    np.testing.assert_allclose(tau(weibull_magnitudes(20_000, shape))[k], tau(profile)[k], rtol=0.2)


def test_heavier_tails_leave_less_out():
    found = [tau(weibull_magnitudes(784, shape))[199] for shape in (0.05, 0.3, 1.0, 3.0)]
    assert np.all(np.diff(found) > 0) and 0 <= found[0] < 1e-6
    with pytest.raises(InvalidArgumentError, match="two different magnitudes"):
        weibull_shape(np.ones(5))
