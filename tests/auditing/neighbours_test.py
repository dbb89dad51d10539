"""The search for neighbouring inputs: every mechanism keeps to its charge, and one that does not is caught."""

import dataclasses

import numpy as np
import pytest

from datalens_tf.auditing import neighbours
from datalens_tf.errors import InvalidArgumentError
from datalens_tf.mechanisms import D2PFed, FetchSgd, TopAgg
from datalens_tf.mechanisms.correct_counts import CorrectCounts
from datalens_tf.mechanisms.gaussian_sum import GaussianSum
from datalens_tf.mechanisms.mean_embedding import MeanEmbedding
from datalens_tf.mechanisms.norm_topk import NormTopKSum
from datalens_tf.mechanisms.real_votes import RealVotes
from datalens_tf.mechanisms.sanitized_gradients import SanitizedGradients
from datalens_tf.mechanisms.second_moment import SecondMoment

# Mechanism -> the share of its charge that hostile records are known to reach.
MECHANISMS = {
    TopAgg(num_teachers=4, top_k=3, clip=None, noise_stddev=7.0, vote_threshold=0.5): 1.0,
    TopAgg(num_teachers=4, top_k=3, clip=1e-5, noise_stddev=7.0, vote_threshold=0.5, quantization="sign"): 1.0,
    D2PFed(num_teachers=4, dimension=5, num_levels=3, clip=None, noise_stddev=7.0, vote_threshold=0.5): 0.6,
    FetchSgd(num_teachers=4, dimension=12, top_k=3, clip=None, noise_stddev=7.0, sketch_columns=4): 0.5,
    RealVotes(num_teachers=4, noise_stddev=7.0): 1.0,
    GaussianSum(clip_norm=0.7, noise_multiplier=2.0, adjacency="replace-one"): 0.999,
    GaussianSum(clip_norm=0.7, noise_multiplier=2.0, adjacency="add-or-remove-one", sampling_probability=0.1): 0.999,
    GaussianSum(clip_norm=0.7, noise_multiplier=2.0, adjacency="replace-one", sampling_probability=0.1): 0.999,
    NormTopKSum(clip_norm=0.7, noise_multiplier=2.0, adjacency="add-or-remove-one", top_k_norm=0.5): 0.95,
    SanitizedGradients(clip_norm=0.7, noise_multiplier=2.0, num_images=3, num_discriminators=1): 0.999,
    MeanEmbedding(noise_multiplier=2.0): 0.999,
    SecondMoment(clip_norm=0.7, noise_multiplier=2.0): 0.999,
    CorrectCounts(num_candidates=3, noise_multiplier=2.0): 1.0,
    MeanEmbedding(noise_multiplier=2.0, adjacency="add-or-remove-one", count_weight=0.1): 0.999,
    SecondMoment(clip_norm=0.7, noise_multiplier=2.0, adjacency="add-or-remove-one"): 0.999,
    CorrectCounts(num_candidates=3, noise_multiplier=2.0, adjacency="add-or-remove-one"): 1.0,
}


@pytest.mark.parametrize("mechanism,reached", MECHANISMS.items(), ids=lambda value: type(value).__name__)
def test_every_mechanism_keeps_to_its_charge_and_nearly_takes_it(mechanism, reached):
    finding = neighbours.audit_mechanism(mechanism)
    assert not finding.caught and reached * (1 - 1e-12) <= finding.lower_bound <= 1 + 1e-9


@pytest.mark.parametrize("mechanism", [case for case, reached in MECHANISMS.items() if reached > 0.9],
                         ids=lambda value: type(value).__name__)
def test_a_halved_sensitivity_is_caught(mechanism):
    """Where the noise is half of what the event says: whichever of the two is wrong."""
    name = "noise_stddev" if hasattr(mechanism, "vote_threshold") or isinstance(mechanism, RealVotes) else (
        "noise_multiplier")

    class Halved(type(mechanism)):
        def privatize(self, sums, noise, index):
            less = dataclasses.replace(mechanism, **{name: getattr(mechanism, name) / 2})
            return less.privatize(sums, noise, index)

    halved = Halved(**{field.name: getattr(mechanism, field.name) for field in dataclasses.fields(mechanism)
                       if field.init})
    finding = neighbours.audit_mechanism(halved)
    assert finding.caught and finding.lower_bound > 1.8


def test_a_clip_that_is_forgotten_is_caught():
    class Unclipped(SecondMoment):
        def contributions(self, images, sizes):
            return np.nan_to_num(np.rint(np.float64(images) / self.clip_norm * 2**13), posinf=0.0, neginf=0.0)

    assert neighbours.audit_mechanism(Unclipped(clip_norm=0.7, noise_multiplier=2.0)).lower_bound > 10


def test_what_cannot_be_searched_is_named():
    with pytest.raises(InvalidArgumentError, match="can be searched, got object"):
        neighbours.audit_mechanism(object())
    with pytest.raises(InvalidArgumentError, match="noise_stddev=0.0 > 0"):
        neighbours.audit_mechanism(TopAgg(num_teachers=4, top_k=3, clip=None, noise_stddev=0.0, vote_threshold=0.5))
