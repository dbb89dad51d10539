"""Repeated releases: within the claim where all is well, and above it where noise or sums are not what is charged."""

import dataclasses
import math

import numpy as np
import pytest

from datalens_tf.auditing import neighbours, repeated
from datalens_tf.mechanisms.mean_embedding import MeanEmbedding
from datalens_tf.mechanisms.noise import NoiseSource, RoundedGaussianNoise
from datalens_tf.methods import registry
from tests.training import tiny

SURE = 1 - 1e-6
SMALL = {"num_features": 20, "batch_size": 6, "generator_filters": 4, "generator_units": 8, "latent_dim": 4,
         "epsilon": 10.0}
METHODS = {
    "dp_merf": SMALL | {"autoencoder_dim": 4, "autoencoder_clip_norm": 2.0},
    "datalens_plus": SMALL | {
        "candidates": "moments:0:0.15,both:1.5:0.15", "embedding_charges": 4, "mean_charges": 2,
        "covariance_charges": 4, "selection_charges": 2, "num_factors": 3, "learned_share": 0.5, "num_clusters": 1,
        "direction_charges": 0, "cluster_charges": 0},
    "datalens_plus with prototypes": {
        "epsilon": 10.0, "candidates": "prototypes:1.5:0.1", "embedding_charges": 0, "prototype_charges": 6,
        "mean_charges": 2, "covariance_charges": 4, "selection_charges": 0, "num_factors": 3, "num_prototypes": 4,
        "prototype_cells": 2, "num_networks": 2, "network_filters": 4, "num_clusters": 1, "direction_charges": 0,
        "cluster_charges": 0}}


class Half(NoiseSource):
    """Half of the noise that is asked for."""

    is_secure, description, caveat = True, "half", "none"

    def draw(self, shape, stddev, index):
        return RoundedGaussianNoise().draw(shape, stddev / 2, index)


@pytest.fixture(name="watched", scope="module", params=[
    "dp_merf", *(pytest.param(name, marks=pytest.mark.slow) for name in METHODS if name != "dp_merf")])
def fixture_watched(request, tmp_path_factory):
    method = request.param.split()[0]
    config = registry.config_class(method)(**METHODS[request.param])
    dataset, others = repeated.worst_neighbours(tiny.dataset(), "replace-one")
    return repeated.watch(registry.synthesizer(method), config, dataset, others,
                          tmp_path_factory.mktemp(method) / "run")


def test_both_worlds_have_the_same_releases_and_nearly_the_distance_that_is_charged(watched):
    assert len({len(pairs) for pairs in watched.pairs}) == 1 and len(watched.pairs) == 4
    for pairs in watched.pairs:
        assert all(0 <= pair.share <= 1 for pair in pairs)
    # A choice among candidates that agree on neither image moves less than it may.
    assert 0.9 * watched.claimed_mu < repeated.total_mu(watched.worst()) <= watched.claimed_mu * (1 + 1e-9)


def test_an_honest_run_is_not_caught_and_half_the_noise_is(watched):
    honest = repeated.audit_repeated(watched, 1e-5, trials=500, confidence=SURE)
    assert not any(finding.caught for finding in honest)
    assert honest[0].lower_bound > 0.5 * watched.claimed_mu  # It is not blind.
    halved = dataclasses.replace(watched, noise=Half())
    found = repeated.audit_repeated(halved, 1e-5, trials=500, confidence=SURE)
    assert found[0].caught and found[0].quantity == "mu"


def test_a_charge_that_is_lost_is_caught(watched):
    """Without the ledger's largest charge, the releases are further apart than what it allows."""
    forgetful = dataclasses.replace(watched, claimed_mu=watched.claimed_mu / 2)
    assert repeated.audit_repeated(forgetful, 1e-5, trials=500, confidence=SURE)[0].caught


def test_a_halved_sensitivity_is_caught_by_the_neighbours(tmp_path, monkeypatch):
    monkeypatch.setattr(MeanEmbedding, "l2_sensitivity", 1.0)
    dataset, others = repeated.worst_neighbours(tiny.dataset(), "replace-one")
    found = repeated.watch(registry.synthesizer("dp_merf"), registry.config_class("dp_merf")(**SMALL), dataset, others,
                           tmp_path / "run")
    finding = neighbours.audit_pairs([pair for pairs in found.pairs for pair in pairs], "sums")
    assert finding.caught and finding.lower_bound == pytest.approx(2.0, rel=1e-3)


def test_mu_bound_is_what_clopper_and_pearson_say():
    """Without errors in n: each probability is at most 1 - (risk / 2)^(1 / n)."""
    from scipy import stats

    high = 1 - (0.05 / 2)**(1 / 100)
    assert repeated.mu_bound(np.ones(100), -np.ones(100), 0.95) == pytest.approx(-2 * stats.norm.ppf(high))
    assert repeated.mu_bound(-np.ones(100), np.ones(100), 0.95) == 0


@pytest.mark.parametrize("mu", [0.3, 2.0])
def test_mu_bound_is_valid_for_gaussian_worlds(mu):
    stream = np.random.default_rng(0)
    bounds = [repeated.mu_bound(stream.normal(mu**2 / 2, mu, 500), stream.normal(-mu**2 / 2, mu, 500), 0.9)
              for _ in range(300)]
    assert np.mean(np.array(bounds) > mu) < 0.1 + 5 * math.sqrt(0.09 / 300) and np.median(bounds) > mu - 0.3
