"""Gaussians that private sums describe: of each class, or of each of a few clusters of it.

Gaussians of classes take two releases: the sums of the classes' images at half the resolution, or less
(`moments_side`), with their numbers (`MeanEmbedding`); and the sums of r r^T over differences r between images and the
released means (`SecondMoment`). Two settings make the most of few records. With `centre_charges`, the mean of all
classes together is released first. All records share it, so noise hides little of it. The classes' sums are then of
differences from this mean. The differences are shorter than images, and so is the clip that the noise is proportional
to. With `share_covariance`, one sum of r r^T is released for all classes, where r is a record's difference from the
released mean of its own class. The noise is that of one class's sum, and for Y classes there are Y times as many
records.

Gaussians of clusters are worth it only where there is little noise. They take 3 + `cluster_rounds` releases:

- the sums of the classes' images, with their numbers;
- the sum of r r^T of all classes together, whose first eigenvectors are the directions in which all further vectors are
  expressed;
- rounds of k-means, private as in Blum, Dwork, McSherry and Nissim, "Practical privacy: the SuLQ framework", PODS 2005:
  each record is in the cluster of its class whose centre is nearest, and the clusters' released sums and sizes give the
  next round's centres;
- the sums of r r^T over differences from the last centres.

In directions in which noise hides how a cluster varies, it is taken to vary as its class does around its clusters.

All sensitivities are those of the two mechanisms, for each neighbouring relation. Whichever cluster the released
centres put a record in, the record is in one row of each release, so adding it changes one row, and replacing it
changes one or two. The same holds for the mean and the covariance of all classes together, which have one row. A
replaced record, its label included, has another vector there, of at most the same length, whichever released mean it is
a difference from. Where units of several records are protected, the records of one unit may be in any rows: both
mechanisms bound what they add to all rows together.
"""

from __future__ import annotations

import dataclasses
import types
import typing
from collections.abc import Mapping
from typing import NamedTuple

from etils import epy

from datalens_tf import rng
from datalens_tf.config import MethodConfig
from datalens_tf.methods import sum_questions, sums
from datalens_tf.settings import LARGEST_WIDTH, at_least, positive, setting
from datalens_tf.training.questions import Elsewhere, asked

with epy.lazy_imports():
    import numpy as np
    import tensorflow as tf

    from datalens_tf.data import datasets
    from datalens_tf.mechanisms import second_moment
    from datalens_tf.models import factor_generator
    from datalens_tf.training import releases as paid_releases

@dataclasses.dataclass(frozen=True, kw_only=True)
class MomentsConfig(MethodConfig):
    """Settings of methods that release means and covariances.

    Clips are for 28x28 grey images, in pixel units; other sizes scale them by the square root of the numbers per image.
    """

    mean_charges: int = setting(
        6, "Charges for the classes' mean images and sizes; 0 where the moments are not needed.", at_least(0))
    covariance_charges: int = setting(
        34, "Charges for the covariances of classes, or of clusters; 0 where the moments are not needed.", at_least(0))
    centre_charges: int = setting(
        0, "Charges for the mean image of all classes together, from which the classes' means are then released as "
        "differences; 0 releases the classes' means as they are. It helps where there are few records.", at_least(0))
    share_covariance: bool = setting(
        False, "All classes have one covariance, of the images' differences from their own class's mean. It helps "
        "where there are few records.")
    num_clusters: int = setting(
        1, "Gaussians per class. One is of images at half the resolution, or less. More are of images at their own, in "
        "the directions of largest variance, which helps only with little noise.", at_least(1))
    direction_charges: int = setting(
        0, "Charges for these directions; 0 for one Gaussian per class.", at_least(0))
    num_directions: int = setting(80, "Number of these directions.", at_least(1))
    cluster_charges: int = setting(
        0, "Charges for each round in which clusters are looked for; 0 for one Gaussian per class.", at_least(0))
    cluster_rounds: int = setting(5, "Number of these rounds.", at_least(1))
    mean_clip: float = setting(12.0, "l2 norm that images are shortened to.", positive)
    class_clip: float = setting(
        8.0, "l2 norm that differences between images and the mean of all classes are shortened to.", positive)
    covariance_clip: float = setting(
        6.5, "l2 norm that differences between images and their class's mean are shortened to.", positive)
    cluster_clip: float = setting(
        4.5, "l2 norm that differences between images and their cluster's mean are shortened to.", positive)
    moments_side: int = setting(
        32, "Longest side, in pixels, of the images that Gaussians are of. Larger ones are averaged over squares of "
        "pixels; for one Gaussian per class, over 2 x 2 at least.", at_least(4))
    num_factors: int = setting(64, "Directions, at most, in which images of one Gaussian vary.", at_least(1))

    GROUP: typing.ClassVar[str] = "mechanism"
    BEFORE: typing.ClassVar[Mapping[str, typing.Any]] = types.MappingProxyType(
        {**MethodConfig.BEFORE, "moments_side": LARGEST_WIDTH})

    @property
    def moments_square(self) -> int:
        """Side of the squares of pixels that images are averaged over; 1 for images as they are."""
        return max(1 if self.num_clusters > 1 else 2, square_for(self.data.image_shape, self.moments_side))

    @property
    def moments_dimension(self) -> int:
        """Numbers in an averaged image."""
        (height, width, channels), square = self.data.image_shape, self.moments_square
        return -(-height // square) * -(-width // square) * channels

    def moment_mechanisms(self) -> dict[str, sums.Maker]:
        """Makers of the releases' mechanisms, by the releases' names. The settings must be resolved."""
        whole, clip, classes, size = self.num_clusters > 1, clips(self), self.data.num_classes, self.moments_dimension

        def of_rows(num_rows: int, dimension: int, num_charges: int) -> sums.Maker:
            return sums.means(self, num_rows, dimension, max(1, num_charges))

        return {
            "centre": of_rows(1, size, self.centre_charges),
            "means": of_rows(classes, size, self.mean_charges),
            "directions": sums.squares(self, clip.covariance),
            "clusters": of_rows(classes * self.num_clusters, self.num_directions, self.cluster_charges),
            "covariances": sums.squares(self, clip.cluster if whole else clip.covariance)}


def square_for(image_shape: tuple[int, int, int], side: int) -> int:
    """Side of the squares of pixels, at least 1, with at most `side` squares along an image's longer side."""
    return -(-max(image_shape[:2]) // side)


_FIRST = 6  # directions in which the first centres differ
_FEW = 0.25  # share of the mean size of a class's clusters; smaller clusters are given up
_DRAWS, _ROUNDS = 2000, 20  # random images, and rounds, in which released means are made as bright as images were
_MOST = 1.5  # Where nearly all images were shortened, or noise is large, means do not say how long images were.
_LEAST = 1e-9  # in place of a product of 0
Records = typing.Union["datasets.Dataset", Elsewhere]


def class_gaussians(config: MomentsConfig, records: Records, releases: paid_releases.Releases
                    ) -> tuple[factor_generator.FactorGenerator, np.ndarray]:
    """One Gaussian per class, of images averaged over squares of pixels, and the classes' mean images."""
    means, sizes = _class_means(config, records, releases)
    differences = sum_questions.Points(
        square=config.moments_square, centres=means, together=config.share_covariance)
    if config.share_covariance:
        moment, noisy = _second_moments(differences, 1, config, "covariances", records, releases)
        shared = _factors(*moment.mean(noisy[0], sizes.sum()), config.num_factors)
        factors = np.stack([shared] * config.data.num_classes)
    else:
        moment, noisy = _second_moments(differences, config.data.num_classes, config, "covariances", records, releases)
        factors = np.stack([_factors(*moment.mean(square, size), config.num_factors)
                            for square, size in zip(noisy, sizes)])
        if not config.centre_charges:
            means = unshortened(means, factors, clips(config).mean, rng.stream(config.seed, "unshortened"))
    upscaling = _upscaling(config.data.image_shape, config.moments_square)
    return factor_generator.FactorGenerator(
        config.data.image_shape, (means @ upscaling)[:, None], factors[:, None], upscaling,
        np.ones((config.data.num_classes, 1))), _mean_images(config, means)


def cluster_gaussians(config: MomentsConfig, records: Records, releases: paid_releases.Releases
                      ) -> tuple[factor_generator.FactorGenerator, np.ndarray]:
    """One Gaussian per cluster, of images at their own resolution if small, in directions of largest variance.

    Returns them and the classes' mean images.
    """
    means, sizes = _class_means(config, records, releases)
    differences = sum_questions.Points(square=config.moments_square, centres=means)
    moment, noisy = _second_moments(
        dataclasses.replace(differences, together=True), 1, config, "directions", records, releases)
    variances, directions = second_moment.largest_eigenvectors(
        moment.mean(noisy[0], sizes.sum())[0], config.num_directions)
    directions = directions.T
    clusters = _Clusters(config, dataclasses.replace(differences, directions=directions),
                         np.sqrt(np.maximum(variances, 0)), records, releases)
    moment, noisy = _second_moments(
        clusters.differences(), clusters.sizes.size, config, "covariances", records, releases)
    noisy = noisy.reshape(*clusters.sizes.shape, *noisy.shape[1:])
    factors = np.stack([_cluster_factors(moment, squares, sizes, config.num_factors)
                        for squares, sizes in zip(noisy, clusters.sizes)])
    upscaling = _upscaling(config.data.image_shape, config.moments_square)
    centres = means[:, None] + clusters.centres @ directions
    shares = clusters.sizes / clusters.sizes.sum(1, keepdims=True)
    return factor_generator.FactorGenerator(
        config.data.image_shape, centres @ upscaling, factors, directions @ upscaling, clusters.sizes
    ), _mean_images(config, np.einsum("yk,ykd->yd", shares, centres))


def unshortened(means: np.ndarray, factors: np.ndarray, clip: float, stream: np.random.Generator) -> np.ndarray:
    """Means of Gaussians whose images, once they are shortened, have about the given means.

    Long images were shortened before they were summed, so that released means of bright classes are too dark. The
    means found are `means` times a number per class, by a few rounds of trying it on random images.

    Args:
      means: released means of the classes' shortened images, [Y, D].
      factors: rows F with F^T F the covariance of the images, [Y, r, D].
      clip: the length that images were shortened to.
      stream: public randomness.
    """
    draws, ratios = stream.standard_normal((_DRAWS, factors.shape[1])), np.ones(len(means))
    for _ in range(_ROUNDS):
        for label, (mean, factor) in enumerate(zip(means, factors)):
            seen = clip * sum_questions.shortened(ratios[label] * mean + draws @ factor, clip).mean(0)
            missing = np.vdot(mean, mean) / max(np.vdot(seen, mean), _LEAST)
            ratios[label] = np.clip(ratios[label] * missing, 1.0, _MOST)
    return means * ratios[:, None]


def _mean_images(config: MomentsConfig, means: np.ndarray) -> np.ndarray:
    """Images of means [Y, D] of `sum_questions.averaged` images: [Y, rows, columns, C] in [0, 1]."""
    (height, width, channels), square = config.data.image_shape, config.moments_square
    return np.clip(means.reshape(-1, -(-height // square), -(-width // square), channels) / square, 0.0, 1.0)


class _Clusters:
    """Clusters of each class, from released sums.

    Args:
      config: settings.
      points: points whose coordinates decide which cluster they are in.
      spread: standard deviations of all points' coordinates, the largest first: [d].
      records: the records that the points are of.
      releases: pays for the sums.

    Attributes:
      centres: [Y, K, d].
      sizes: released numbers of records, 0 for a cluster that is given up: [Y, K].
    """

    def __init__(self, config: MomentsConfig, points: sum_questions.Points, spread: np.ndarray, records: Records,
                 releases: paid_releases.Releases):
        self._points, shape = points, (config.data.num_classes, config.num_clusters)
        stream, clip = rng.stream(config.seed, "clusters"), clips(config).covariance
        spread = spread * (np.arange(len(spread)) < _FIRST)
        self.centres = stream.standard_normal((*shape, len(spread))) * spread
        for last in (False,) * (config.cluster_rounds - 1) + (True,):
            self._nearest_to = self.centres
            question = sum_questions.Means(points=self._members(), clip=clip, num_rows=self.centres[..., 0].size)
            mechanism, noisy = releases.get(config.moment_mechanisms()["clusters"], asked(question, records))
            self.centres = (mechanism.means(noisy).astype(np.float64) * clip).reshape(self.centres.shape)
            self.sizes = mechanism.counts(noisy).reshape(shape)
            few = self.sizes < _FEW * self.sizes.mean(1, keepdims=True)
            if last:
                self.sizes[few] = 0.0
            else:
                self._split_large_ones(few, stream, 0.5 * spread)

    def _split_large_ones(self, few: np.ndarray, stream: np.random.Generator, spread: np.ndarray) -> None:
        """Moves clusters that are given up next to the largest clusters of their class."""
        sizes = np.where(few, 0.0, self.sizes)
        for label, cluster in np.argwhere(few):
            largest = sizes[label].argmax()
            sizes[label, [largest, cluster]] = sizes[label, largest] / 2
            self.centres[label, cluster] = self.centres[label, largest] + stream.standard_normal(len(spread)) * spread

    def _members(self) -> sum_questions.Points:
        """Points, and the rows of their clusters, whose centres (before the last round's sums) are nearest."""
        return dataclasses.replace(self._points, nearest_to=self._nearest_to)

    def differences(self) -> sum_questions.Points:
        """Points minus the centres of their clusters, and the clusters' rows."""
        return dataclasses.replace(self._members(), less=self.centres.reshape(-1, self.centres.shape[-1]))


def _class_means(config: MomentsConfig, records: Records, releases: paid_releases.Releases
                 ) -> tuple[np.ndarray, np.ndarray]:
    """Released means [Y, D] and numbers [Y] of the classes' records."""
    points, clip = sum_questions.Points(square=config.moments_square), clips(config)
    if not config.centre_charges:
        return _means(points, config.data.num_classes, clip.mean, config, "means", records, releases)
    centre, _ = _means(dataclasses.replace(points, together=True), 1, clip.mean, config, "centre", records, releases)
    differences, sizes = _means(dataclasses.replace(points, centres=centre), config.data.num_classes, clip.of_class,
                                config, "means", records, releases)
    return centre + differences, sizes


def _means(points: sum_questions.Points, num_rows: int, clip: float, config: MomentsConfig, name: str,
           records: Records, releases: paid_releases.Releases) -> tuple[np.ndarray, np.ndarray]:
    """Released means [num_rows, D] of the rows' shortened vectors, and their numbers [num_rows]."""
    question = sum_questions.Means(points=points, clip=clip, num_rows=num_rows)
    mechanism, noisy = releases.get(config.moment_mechanisms()[name], asked(question, records))
    return mechanism.means(noisy).astype(np.float64) * clip, mechanism.counts(noisy)


def _second_moments(points: sum_questions.Points, num_rows: int, config: MomentsConfig, name: str,
                    records: Records, releases: paid_releases.Releases
                    ) -> tuple[second_moment.SecondMoment, np.ndarray]:
    """The mechanism, and its release of the rows' sums of r r^T: [num_rows, D, D]."""
    question = sum_questions.Squares(points=points, num_rows=num_rows)
    return releases.get(config.moment_mechanisms()[name], asked(question, records))


def _cluster_factors(moment: second_moment.SecondMoment, noisy: np.ndarray, sizes: np.ndarray, count: int
                     ) -> np.ndarray:
    """Factors [K, count, d] of a class's clusters: their own above the noise, the class's in other directions.

    The class's factors may be more than their own would be; cutting them off at what noise can hide made no better
    images.
    """
    shared, floor = moment.mean(noisy.sum(0), max(sizes.sum(), 1.0))
    floor, identity, found = floor * len(noisy)**0.5, np.eye(noisy.shape[-1]), []
    for square, size in zip(noisy, sizes):
        own = _factors(*moment.mean(square, max(size, 1.0)), count)
        lengths = np.linalg.norm(own, axis=1, keepdims=True)
        units = own / np.where(lengths > 0, lengths, 1)
        others = identity - units.T @ units
        own[lengths[:, 0] == 0] = _factors(others @ shared @ others, floor, np.sum(lengths == 0))
        found.append(own)
    return np.stack(found)


def _factors(covariance: np.ndarray, floor: float, count: int) -> np.ndarray:
    """Rows F [count, d] with F^T F the covariance in its largest directions above the floor; others are zero."""
    values, vectors = second_moment.largest_eigenvectors(covariance, count)
    kept = values > max(floor, 0.0)
    found = np.zeros((count, len(covariance)))
    found[:kept.sum()] = np.sqrt(values[kept])[:, None] * vectors[:, kept].T
    return found


def _upscaling(image_shape: tuple[int, int, int], square: int) -> np.ndarray:
    """The linear map from `sum_questions.averaged` back to whole resolution, smoothly: float64 [D, HWC]."""
    height, width, channels = image_shape
    rows, columns = -(-height // square), -(-width // square)
    size = rows * columns * channels
    if square == 1:
        return np.eye(size)
    units = tf.reshape(tf.eye(size), [size, rows, columns, channels])
    whole = tf.image.resize(units, [square * rows, square * columns], "bicubic")[:, :height, :width]
    return whole.numpy().reshape(size, -1).astype(np.float64) / square


class Clips(NamedTuple):
    """Lengths that vectors are shortened to: images, and differences from the mean, class means, cluster centres."""

    mean: float
    of_class: float
    covariance: float
    cluster: float


def clips(config: MomentsConfig) -> Clips:
    """Clips for this image shape."""
    return Clips(*(scale(config) * clip for clip in (
        config.mean_clip, config.class_clip, config.covariance_clip, config.cluster_clip)))


def scale(config: MomentsConfig) -> float:
    """Ratio of the length of images of this shape to that of grey ones of 28x28."""
    return float((config.dimension / 784) ** 0.5)
