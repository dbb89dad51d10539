"""Plans of DataLens+: what is released, and how the budget is divided, by how much noise hides.

The signal of a class is mu n / Y: how far the mean of one of Y classes of n records stands out of its noise. Here mu is
that of all releases together, as one Gaussian release. A plan is a part of the settings. It depends on epsilon, the
numbers of records and of classes, and the shape of the images, all of which are public. The thresholds and the plans
were chosen on held-out training records (`DataLensPlusConfig.CHOSEN`; docs/research/private_sums_prototypes.md).
"""

from __future__ import annotations

import typing

if typing.TYPE_CHECKING:
    from datalens_tf.methods.prototypes import PrototypesConfig

Plan = dict[str, typing.Any]

_ONE_GAUSSIAN: Plan = {"num_clusters": 1, "direction_charges": 0, "cluster_charges": 0}
# Few records. All classes share a mean and a covariance; cheaper fits and choices are good enough.
_SHARING: Plan = {**_ONE_GAUSSIAN, "share_covariance": True, "moments_side": 16}
_MOMENTS_ALONE: Plan = {
    **_SHARING, "centre_charges": 5, "mean_charges": 55, "covariance_charges": 36, "embedding_charges": 0,
    "selection_charges": 4, "selection_images": 6000,
    "candidates": "moments:0:0.15,moments:0.75:0.15,moments:1.5:0.15"}
_WITHOUT_A_CHOICE: Plan = _MOMENTS_ALONE | {
    "mean_charges": 57, "covariance_charges": 38, "selection_charges": 0, "candidates": "moments:0.75:0.15"}
_OF_FEW_CLASSES: Plan = _WITHOUT_A_CHOICE | {
    "centre_charges": 0, "mean_charges": 50, "covariance_charges": 50, "candidates": "moments:1:0.15"}
_WITH_AN_EMBEDDING: Plan = {
    **_SHARING, "centre_charges": 3, "mean_charges": 22, "covariance_charges": 15, "embedding_charges": 58,
    "selection_charges": 2, "selection_images": 10_000, "fit_steps": 800, "batch_size": 200,
    "candidates": "moments:0:0.15,moments:1.5:0.15,embedding:0:0.15,embedding:1.5:0.15,both:0:0.15,both:1.5:0.15"}
# Grey pictures, few records.
_OF_FEW_GREY: Plan = {
    **_SHARING, "centre_charges": 3, "mean_charges": 8, "covariance_charges": 12, "prototype_charges": 75,
    "embedding_charges": 0, "selection_charges": 2, "selection_images": 10_000, "num_networks": 16,
    "prototype_steps": 500, "prototype_cells": 1,
    "candidates": ",".join(f"prototypes:{warp}:0.15" for warp in (0, 0.75, 1.5))}
# Colour pictures, few records.
_OF_FEW_COLOUR: Plan = _OF_FEW_GREY | {"candidates": ",".join(f"prototypes:{warp}:0.1:1" for warp in (0, 0.75, 1.5))}
_WITHOUT_A_CENTRE: Plan = {"centre_charges": 0, "covariance_charges": 15}
# Grey pictures, many records. Clothes gain by two sources, and digits by prototypes alone.
_TWO_SOURCES: Plan = {
    **_ONE_GAUSSIAN, "mean_charges": 3, "covariance_charges": 35, "prototype_charges": 60, "embedding_charges": 0,
    "selection_charges": 2, "num_networks": 16, "prototype_steps": 500, "prototype_cells": 1,
    "candidates": ",".join(f"{source}:{warp}:0.15" for source in ("moments+prototypes", "prototypes")
                           for warp in (0, 0.75, 1.5))}
_CLUSTERS: Plan = {
    "num_clusters": 16, "mean_charges": 4, "direction_charges": 8, "cluster_charges": 3, "covariance_charges": 71,
    "embedding_charges": 0, "candidates": "moments:0:0.15,moments:0.75:0.15,moments:1.5:0.15"}
# Grey pictures with enough detail for networks. Prototypes are as good to learn from, mixed with the clusters or alone,
# and better to look at.
_CLUSTERS_AND_PROTOTYPES: Plan = _TWO_SOURCES | {
    "num_clusters": 16, "mean_charges": 3, "direction_charges": 6, "cluster_charges": 2, "covariance_charges": 51,
    "prototype_charges": 28, "prototype_cells": 8}
# Colour pictures, many records. Photographs gain by the larger warp, and faces, which are placed alike, by the other.
_PROTOTYPES: Plan = {
    **_ONE_GAUSSIAN, "mean_charges": 2, "covariance_charges": 13, "share_covariance": True, "embedding_charges": 0,
    "prototype_charges": 83, "selection_charges": 2, "num_networks": 16, "prototype_steps": 600,
    "candidates": ",".join(f"prototypes:{warp}:0.1:1" for warp in (0.75, 1.5))}
# Colour pictures with as many cells as there may be: what is left says how images of a cluster vary. Faces are learned
# best from both sources without rectangles. For other photographs there are prototypes alone, with rectangles.
_IN_CLUSTERS: Plan = _CLUSTERS_AND_PROTOTYPES | {
    "candidates": "moments+prototypes:0.75:0.1," + _PROTOTYPES["candidates"]}

# Fewer classes count as this many: there is more to say of each.
_LEAST_CLASSES = 10
# From this many classes on, a mean of all classes takes more from the noise of their means than it costs.
_CENTRED = 4
# Below this mu n, shares of right answers have noise of two points or more, as much as a choice would gain.
_CHOOSES = 433.0
# From the first signal on, prototypes of grey images pay. From the second on, those of colour images do, and classes
# count as what they are; images that are too small for networks get an embedding. From the third on, each class of grey
# images has a covariance of its own; this is for their _NUMBERS numbers at half the resolution.
_SEEN, _SEEN_IN_COLOUR, _COVARIANCES, _NUMBERS = 45.0, 150.0, 300.0, 14 * 14
# From this signal on, clusters pay. Beside them, a class of grey images has so many prototypes, or more.
_CLUSTERED, _BESIDE_CLUSTERS = 5000.0, 160
# Grey images of fewer pixels along a side have too little detail for untrained networks.
_DETAILED = 16
# Prototypes: a class's signal per cell, and the most cells of a class; the number of prototypes of all classes, the
# least and the largest number of a class, and the least number of a cell.
_OF_A_CELL, _MOST_CELLS, _OF_ALL, _OF_A_CLASS, _IN_A_CELL = 1500.0, 16, 1000, (10, 500), 16

# Settings that are decided together: a plan is for those who give none of them.
DECIDED = frozenset({*_WITH_AN_EMBEDDING, "learned_share", "prototype_charges", "prototype_cells"} - {
    "moments_side", "selection_images", "fit_steps", "batch_size"})


def of(config: PrototypesConfig, visible: float) -> Plan | None:
    """The plan for `visible` = mu n; None where it is what the defaults say: moments and an embedding.

    The shape of the images and the number of classes must be known to the settings.
    """
    classes, colour = config.data.num_classes, config.data.image_shape[2] > 1
    signal = visible / max(classes, _LEAST_CLASSES)
    # The more numbers an image has, the more noise covariances have; features do not.
    numbers = config.replace(**_SHARING).moments_dimension
    many = signal >= _COVARIANCES * (numbers / _NUMBERS)**0.5
    if colour and config.num_network_features > 0:
        if many:
            return prototypes(visible, classes)
        if visible / classes >= _SEEN_IN_COLOUR and visible >= _CHOOSES:
            few = _OF_FEW_COLOUR if classes >= _CENTRED else _OF_FEW_COLOUR | _WITHOUT_A_CENTRE
            return few | {"num_prototypes": _num_prototypes(classes)}
    detailed = not colour and min(config.features_data.image_shape[:2]) >= _DETAILED
    if detailed and signal >= _CLUSTERED:
        return _CLUSTERS_AND_PROTOTYPES | {"num_prototypes": max(_num_prototypes(classes), _BESIDE_CLUSTERS)}
    if signal >= _CLUSTERED:
        return _CLUSTERS
    if detailed and signal >= _SEEN:
        return (_TWO_SOURCES if many else _OF_FEW_GREY) | {"num_prototypes": _num_prototypes(classes)}
    if visible < _CHOOSES:
        return _WITHOUT_A_CHOICE if classes >= _CENTRED else _OF_FEW_CLASSES
    if many:
        return None
    return _MOMENTS_ALONE if signal < _SEEN_IN_COLOUR else _WITH_AN_EMBEDDING


def prototypes(visible: float, num_classes: int) -> Plan:
    """The plan for many colour pictures: in more cells where there is less noise, and then in clusters as well."""
    cells = min(max(round(visible / num_classes / _OF_A_CELL), 1), _MOST_CELLS)
    plan = _PROTOTYPES if cells < _MOST_CELLS else _IN_CLUSTERS
    return plan | {"prototype_cells": cells,
                   "num_prototypes": max(_num_prototypes(num_classes), _IN_A_CELL * cells)}


def _num_prototypes(num_classes: int) -> int:
    least, most = _OF_A_CLASS
    return min(max(_OF_ALL // num_classes, least), most)
