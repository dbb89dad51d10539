"""Settings of DataLens+: what is stored keeps its meaning, and what does not fit together is refused."""

import json

import pytest

from datalens_tf.errors import InvalidArgumentError
from datalens_tf.methods.datalens_plus_config import DataLensPlusConfig


def test_settings_from_before_sides_were_limited_keep_their_meaning():
    """Runs on large images must go on with what they have released."""
    text = DataLensPlusConfig(image_shape=(100, 64, 3), num_classes=2).to_json()
    old = {name: value for name, value in json.loads(text).items() if not name.endswith("_side")}
    config = DataLensPlusConfig.from_json(json.dumps(old))
    assert (config.moments_square, config.features_square) == (2, 1)
    assert config.features_dimension == config.dimension


def test_no_image_gets_thinner_than_its_networks_take():
    config = DataLensPlusConfig(image_shape=(100, 20, 3), num_classes=2)
    assert (config.features_square, config.features_data.image_shape) == (2, (50, 10, 3))


def test_settings_from_before_there_was_a_plan_by_size_keep_their_meaning():
    config = DataLensPlusConfig(image_shape=(28, 28, 1), num_classes=10)
    fields = json.loads(config.to_json())
    for name in ("fixed_plan", "share_covariance", "centre_charges", "class_clip"):
        del fields[name]
    stored = DataLensPlusConfig.from_json(json.dumps(fields))
    assert stored == config.replace(fixed_plan=True) and not stored.resolved(1000).share_covariance


@pytest.mark.parametrize("changes, message", [
    ({"candidates": "moments:-1"}, "candidates"), ({"candidates": "moments:0:-1"}, "candidates"),
    ({"candidates": "moments:0:0.1:2"}, "ERASED <= 1"), ({"candidates": "moments:0:0.1:1:1"}, "candidates"),
    ({"candidates": "moments"}, "candidates"),
    ({"candidates": "other:1"}, "candidates='other:1' to be of SOURCE:WARP with commas"),
    ({"candidates": "moments:inf"}, "candidates"), ({"candidates": ""}, "candidates"),
    ({"selection_charges": 0}, "selection_charges"), ({"candidates": "both:1"}, "selection_charges"),
    ({"candidates": "embedding:0,embedding:1", "learned_share": 0.0}, "mean_charges=6 to be 0"),
    ({"candidates": "embedding:0,embedding:1", "mean_charges": 0}, "mean_charges=0 > 0"),
    ({"num_clusters": 3}, "direction_charges=0 > 0 for num_clusters=3"),
    ({"cluster_charges": 1}, "cluster_charges=1 to be 0"),
    ({"num_clusters": 3, "direction_charges": 1}, "cluster_charges=0 > 0"), ({"num_clusters": 0}, "num_clusters"),
    ({"cluster_rounds": 0}, "cluster_rounds"), ({"num_directions": 0}, "num_directions"),
    ({"learned_share": 1.5}, "learned_share"), ({"learned_warp": -1.0}, "learned_warp"),
    ({"embedding_charges": 0}, "embedding_charges"),
    ({"mean_charges": 0}, "mean_charges"), ({"covariance_clip": 0.0}, "covariance_clip"),
    ({"cluster_clip": 0.0}, "cluster_clip"), ({"class_clip": 0.0}, "class_clip"),
    ({"candidates": "embedding:0,embedding:1", "learned_share": 0.0, "mean_charges": 0, "covariance_charges": 0,
      "centre_charges": 1}, "centre_charges=1 to be 0"),
    ({"num_clusters": 3, "direction_charges": 1, "cluster_charges": 1, "share_covariance": True}, "share_covariance"),
    ({"autoencoder_dim": 3}, "autoencoder_dim"), ({"latent_distribution": "uniform"}, "latent_distribution")])
def test_bad_settings_are_refused(changes, message):
    with pytest.raises(InvalidArgumentError, match=message):
        DataLensPlusConfig(**changes)
