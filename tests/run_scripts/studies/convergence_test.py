"""The study of gradients: what it measures is right where the answer is known, and watching changes no vote."""

import math

import numpy as np
import pytest

from datalens_tf.mechanisms import TopAgg
from datalens_tf.methods.registry import preset
from tests.mechanisms.conformance import seeds_of

RANDOM = np.random.default_rng(0)


def test_teachers_who_agree_have_consensus_and_no_deviation(study):
    gradients = np.tile(RANDOM.normal(size=(2, 1, 3, 50)), (1, 20, 1, 1))
    found = study.measured(gradients)
    assert found["consensus"] == pytest.approx(1.0) == found["agreement"]
    assert found["deviation_l2"] == pytest.approx(0.0, abs=1e-12)
    assert found["gradient_norm"] == pytest.approx(np.linalg.norm(gradients, axis=-1).max())


def test_independent_teachers_have_none(study):
    """Their votes agree by chance, with root mean square 1 / sqrt(N)."""
    found = study.measured(RANDOM.normal(size=(5, 20, 10, 200)))
    assert found["consensus"] < 0.05 and found["agreement"] == pytest.approx(1 / math.sqrt(20), rel=0.05)
    assert found["deviation_l1"] == pytest.approx(200, rel=0.1)


def test_without_spread_in_magnitude_votes_are_certain(study):
    found = study.measured(np.where(RANDOM.random((1, 4, 2, 30)) < 0.5, -5.0, 5.0) + RANDOM.normal(size=30) * 1e-3)
    assert np.all(found["quantization_stddev"] == 0)  # All are clipped to 1.
    np.testing.assert_allclose(found["tau_mean"], np.sqrt(1 - np.arange(1, 31) / 30), atol=1e-2)


def test_noise_in_all_coordinates_makes_large_k_dear(study):
    found, config = study.measured(RANDOM.normal(size=(2, 20, 3, 784))), preset("mnist", 1.0)
    curves = study.bounds(found, config, smoothness=None)
    assert np.all(np.diff(curves["left out by top-k"]) <= 0) and curves["left out by top-k"][-1] == 0
    printed, whole = (curves[name] for name in study.TOTALS)
    np.testing.assert_allclose(whole, 784 * printed)
    np.testing.assert_allclose(printed / printed[0], curves["k"])  # At equal epsilon sigma^2 grows as k.
    assert study.draw(found | {"tail_shape": 1.0}, curves, config)


def test_watching_changes_no_vote(study):
    settings = dict(num_teachers=4, top_k=5, clip=None, noise_stddev=1.0, vote_threshold=0.5)
    gradients = RANDOM.normal(size=(4, 3, 24)).astype(np.float32)
    votes = study.Watched(**settings).compress(gradients, seeds_of(4)).numpy()
    np.testing.assert_array_equal(votes, TopAgg(**settings).compress(gradients, seeds_of(4)))
    np.testing.assert_array_equal(study.SEEN[-1], gradients)
