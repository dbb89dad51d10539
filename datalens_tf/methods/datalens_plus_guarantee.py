"""The privacy statement of DataLens+: which sums were released, and how far one record changes them."""

from __future__ import annotations

import typing
from collections.abc import Collection

from datalens_tf.accounting import statement
from datalens_tf.methods import moments, sums
from datalens_tf.methods.datalens_plus_config import DataLensPlusConfig
from datalens_tf.training.releases import Releases

_ASSUMPTIONS = (
    "Sensitivity: {changing} one record, label included, changes the sums of features and numbers by at most "
    "{features:g} in l2 norm, in units of one record's features, those of images by at most {images:g} * {mean_clip:g},"
    "{centre}{clusters} and those of products by at most {squares}{covariance_clip:g}^2, whatever the record is: what "
    "is longer was shortened.{weights} It changes by at most {votes:g} how many more records a classifier got right "
    "than wrong.",
    "Releases are composed adaptively: later ones depend on earlier ones. One with n charges has the noise of one "
    "charge divided by sqrt(n), which costs as much as n charges, exactly.",
    "Public: the settings, {number_of_records}, the list of classes, the image shape, the random features, and that "
    "pixels are scaled by a fixed rule. Labels of synthetic images are drawn uniformly, not from the data.",
    "Noise: {noise_source}. {noise_caveat}",
)
_RELEASED = {
    "embedding": "per class, the sum of {num_features} random features of its images{learned} and their number "
                 "({embedding_charges} charges)",
    "prototypes": "per class,{cells} the sum of what {num_networks} untrained networks see of its images, "
                  "{num_network_features} numbers, and their number ({prototype_charges} charges)",
    "moments": "{centre_released}per class, the sum of its images{resolution}{differences} and their number "
               "({mean_charges} charges), and {covariances} ({covariance_charges} charges)",
    "clusters": "per class, the sum of its images{resolution} and their number ({mean_charges} charges), and of all "
                "classes together that of the products of all pairs of pixels of their images' differences from their "
                "means ({direction_charges} charges); {cluster_rounds} times, the sums and numbers of the images in "
                "{num_clusters} clusters of each class, in the directions that those say ({cluster_charges} charges "
                "each); and of each cluster the sum of products of pairs of such coordinates ({covariance_charges} "
                "charges)",
    "choice": "how many more records some classifiers of synthetic images got right than wrong ({selection_charges} "
              "charges)",
    "no choice": "nothing by which to choose among candidates, as interruptions left too little of the budget: the "
                 "first one was taken"}
_OWN_COVARIANCES = "that of the products of all pairs of their pixels"
_SHARED_COVARIANCE = ("of all classes together that of the products of all pairs of pixels of their images' "
                      "differences from their means")
_CENTRE_RELEASED = "the sum of all images{resolution} and their number ({centre_charges} charges); "
_CENTRE = " those of images' differences from the mean of all by at most {images:g} * {of_class_clip:g},"
_CELLS = (" for each of {prototype_cells} cells, by which of so many images of the moments is nearest to an image at "
          "lower resolution,")
_LEARNED = (" and of those of a network that learned from synthetic images alone (which have {learned_share:g} of the "
            "squared length),")
_CLUSTERS = (" those of clusters, whichever of them had and has the record, by at most {clusters:g} * "
             "{covariance_clip:g}, those of products in these by at most {squares}{cluster_clip:g}^2,")

_CHARGES = (". A charge has Gaussian noise of {noise_multiplier_per_step:.6g} times the sensitivity. The generator was "
            "computed from these numbers alone. {num_charges} charges were made; {num_burnt_charges} of them paid for "
            "nothing that reached the generator because the run was interrupted.")
# Settings that the texts name.
_SETTINGS = ("num_features", "learned_share", "embedding_charges", "prototype_charges", "num_networks",
             "num_network_features", "centre_charges", "mean_charges", "covariance_charges", "share_covariance",
             "num_clusters", "direction_charges", "cluster_charges", "cluster_rounds", "selection_charges")


def guarantee(config: DataLensPlusConfig, sources: Collection[str], chosen: bool, releases: Releases
              ) -> statement.Guarantee:
    """The guarantee of a run.

    Args:
      config: resolved settings.
      sources: names of the sources of images that were made.
      chosen: whether the records chose among candidates, where there is a choice.
      releases: the run's.
    """
    clips = {f"{name}_clip": value for name, value in moments.clips(config)._asdict().items()}
    bounds, square = _bounds(config), config.moments_square
    resolution = {1: "", 2: " at half the resolution"}.get(square, f" at 1/{square} of the resolution")
    parts = ["clusters" if name == "moments" and config.num_clusters > 1 else name for name in sources]
    if config.selection_charges:
        parts.append("choice" if chosen else "no choice")
    phrases = {
        "cells": _CELLS.format(prototype_cells=config.prototype_cells) if config.prototype_cells > 1 else "",
        "learned": _LEARNED.format(learned_share=config.learned_share) if config.learned_share else "",
        "clusters": _CLUSTERS.format(**clips, **bounds) if config.num_clusters > 1 else "",
        "centre": _CENTRE.format(**clips, **bounds) if config.centre_charges else "",
        "centre_released": _CENTRE_RELEASED.format(centre_charges=config.centre_charges, resolution=resolution)
        if config.centre_charges else "",
        "differences": ", less that mean," if config.centre_charges else "",
        "resolution": resolution,
        "covariances": _SHARED_COVARIANCE if config.share_covariance else _OWN_COVARIANCES,
        "weights": sums.WEIGHTS[config.adjacency]}
    return statement.Guarantee(
        event=releases.event, recalibrated=releases.recalibrated, assumptions=_ASSUMPTIONS,
        facts={name: getattr(config, name) for name in _SETTINGS} | phrases | clips
        | {name: bounds[name] for name in ("features", "images", "squares", "votes")},
        released="Once each: " + "; ".join(_RELEASED[part] for part in parts) + _CHARGES,
        seeds=f"seed {config.seed} for random features, weights, latents, labels and classifiers of synthetic images")


def _bounds(config: DataLensPlusConfig) -> dict[str, typing.Any]:
    """Sensitivities that the statement names, each that of the least favourable release of its kind."""
    def largest(*makers):
        return max(make(noise_multiplier=1.0).l2_sensitivity for make in makers)

    of_moments = config.moment_mechanisms()
    of_features = [config.prototype_mechanism()] if config.prototype_charges else []
    if config.embedding_charges or not of_features:
        of_features.append(sums.means(
            config, config.data.num_classes, config.num_features, max(1, config.embedding_charges)))
    return {"features": largest(*of_features),
            "images": largest(of_moments["centre"], of_moments["means"]), "clusters": largest(of_moments["clusters"]),
            "squares": sums.SQUARES[config.adjacency],
            "votes": 2 if config.adjacency == "replace-one" else 1}
