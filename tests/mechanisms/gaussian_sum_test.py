"""Clipped sums: their sensitivity on neighbouring data, their noise, their price."""

import dataclasses

import dp_accounting
import numpy as np
import pytest
import tensorflow as tf
from scipy import stats

from datalens_tf.accounting import accountants
from datalens_tf.errors import InvalidArgumentError
from datalens_tf.mechanisms.gaussian_sum import _STEPS, GaussianSum
from datalens_tf.mechanisms.noise import RoundedGaussianNoise
from tests.mechanisms.odd_vectors import C, D, vectors

SUM = GaussianSum(clip_norm=C, noise_multiplier=4.0, adjacency="replace-one")
SAMPLED = GaussianSum(clip_norm=C, noise_multiplier=1.1, adjacency="add-or-remove-one", sampling_probability=0.01)
REPLACED = dataclasses.replace(SAMPLED, adjacency="replace-one")


def total(mechanism, rows):
    return tf.reduce_sum(tf.cast(mechanism.clip(tf.constant(rows)), tf.float64), 0).numpy()


def test_neighbouring_data_differ_by_at_most_the_sensitivity():
    random, largest = np.random.default_rng(0), {"replaced": 0.0, "removed": 0.0}
    for _ in range(300):
        rows = vectors(random, 6)
        other = rows.copy()
        other[2] = -rows[2] if random.random() < 0.5 else vectors(random, 1)[0]
        for name, neighbour in (("replaced", other), ("removed", np.delete(rows, 2, 0))):
            change = np.linalg.norm(total(SUM, rows) - total(SUM, neighbour)) * C / _STEPS
            largest[name] = max(largest[name], change)
    assert largest["removed"] <= SAMPLED.l2_sensitivity == REPLACED.record_norm == C
    assert largest["replaced"] <= SUM.l2_sensitivity == REPLACED.l2_sensitivity == 2 * C
    assert largest["removed"] > 0.999 * C and largest["replaced"] > 0.999 * 2 * C  # They are attained.


def test_short_vectors_stay_and_long_ones_keep_their_direction():
    rows = np.array([[0.1, -0.2, 0.3, 0, 0], [30, 0, -40, 0, 0]], np.float32)
    clipped = SUM.clip(tf.constant(rows)).numpy() * C / _STEPS
    np.testing.assert_allclose(clipped[0], rows[0], atol=C / _STEPS)
    np.testing.assert_allclose(clipped[1], [0.6 * C, 0, -0.8 * C, 0, 0], rtol=2e-4)


def test_off_means_off():
    """No noise and no clipping is the plain sum; either one on differs."""
    rows = np.random.default_rng(1).normal(size=(20, D)).astype(np.float32)
    off = GaussianSum(clip_norm=100.0, noise_multiplier=0.0, adjacency="replace-one")
    found = off.privatize(total(off, rows), RoundedGaussianNoise(), 0)
    np.testing.assert_allclose(found, rows.sum(0), atol=20 * 100 / _STEPS)
    clipping = GaussianSum(clip_norm=0.1, noise_multiplier=0.0, adjacency="replace-one")
    assert np.abs(clipping.privatize(total(clipping, rows), RoundedGaussianNoise(), 0) - rows.sum(0)).max() > 0.1
    assert off.dp_event() == dp_accounting.NonPrivateDpEvent()


@pytest.mark.parametrize("mechanism", [SUM, SAMPLED, REPLACED])
@pytest.mark.parametrize("factor, accepted", [(1.0, True), (2 / 3, False), (1.5, False)])
def test_the_noise_has_the_scale_that_is_charged_for(mechanism, factor, accepted):
    drawn = mechanism.privatize(np.zeros(4000), RoundedGaussianNoise(), 0)
    scale = mechanism.noise_multiplier * C * factor
    assert (stats.kstest(drawn, stats.norm(0, scale).cdf).pvalue > 1e-7) == accepted


def test_the_price_is_that_of_the_sampling_done():
    assert SUM.dp_event() == dp_accounting.GaussianDpEvent(2.0)
    assert SAMPLED.dp_event() == dp_accounting.PoissonSampledDpEvent(0.01, dp_accounting.GaussianDpEvent(1.1))
    assert REPLACED.dp_event() == SAMPLED.dp_event()  # What a record's presence changes is the same.


def test_the_price_is_that_of_tensorflow_privacys_own_statement():
    tfp = pytest.importorskip("tensorflow_privacy.privacy.analysis.compute_dp_sgd_privacy_lib")
    theirs, _ = tfp.compute_dp_sgd_privacy(n=10_000, batch_size=100, noise_multiplier=1.1, epochs=10, delta=1e-5)
    ours = accountants.epsilon(SAMPLED.dp_event(), 1000, 1e-5, "rdp", "add-or-remove-one")
    assert 0.98 * theirs < ours <= theirs  # With fewer orders.
    assert accountants.epsilon(SAMPLED.dp_event(), 1000, 1e-5, "pld", "add-or-remove-one") < ours


def test_what_cannot_be_right_is_refused():
    with pytest.raises(InvalidArgumentError, match="to be integers"):
        SUM.privatize(np.full(3, 0.5), RoundedGaussianNoise(), 0)
    for changes, message in (({"clip_norm": 0}, "clip_norm=0 > 0"), ({"noise_multiplier": -1}, "noise_multiplier=-1"),
                             ({"sampling_probability": 0}, "sampling_probability=0")):
        with pytest.raises(InvalidArgumentError, match=message):
            GaussianSum(**{"clip_norm": 1.0, "noise_multiplier": 1.0, "adjacency": "add-or-remove-one", **changes})
