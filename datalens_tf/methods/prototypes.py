"""Prototypes: a few images of each class that look to untrained networks as its records do, on average.

There is one release: per class, the sum of what many untrained networks see of its images, and their number
(`MeanEmbedding`). Where there is little noise, the release is per cell of a class. A cell has one of a few centres, and
the records whose image at half the resolution, or less, is nearest to this centre. K-means finds the centres among
images of the Gaussians that were released before, and the prototypes of a cell begin as such images. Their pixels are
then moved until their mean in the networks is that of the cell's records. This is distribution matching, as in Zhao and
Bilen, "Dataset Condensation with Distribution Matching", WACV 2023, from a single private release. In every step, the
prototypes are warped and mirrored at random, as samples will be.

The networks hardly see brightness and contrast, which their normalisation takes out. After the fit, grey prototypes
get those with which they have the mean images that were released before.

The sensitivity is that of `MeanEmbedding`: whichever cell the public centres put a record in, the record is in one row.
"""

from __future__ import annotations

import dataclasses
import types
import typing
import warnings
from collections.abc import Mapping

from etils import epy

from datalens_tf import _files, _validate, rng
from datalens_tf.methods import sum_questions, sums
from datalens_tf.methods.embedding import EmbeddingConfig
from datalens_tf.methods.moments import MomentsConfig
from datalens_tf.settings import at_least, positive, setting
from datalens_tf.training import untrained_networks

with epy.lazy_imports():
    import numpy as np
    import scipy.ndimage
    import scipy.optimize
    import sklearn.cluster
    import sklearn.exceptions
    import tensorflow as tf

    from datalens_tf.models import prototypes as models
    from datalens_tf.models import warp as warps
    from datalens_tf.training import posing

if typing.TYPE_CHECKING:
    import pathlib

_SEEN = 3000  # images of the Gaussians, which say by how much what the networks see of the records is moved and scaled
_PER_CELL = 100  # images of the Gaussians, on average, that a cell's centre and first prototypes come from
_SMOOTHED = 0.6  # standard deviation in pixels of the filter of prototypes that people see
_LEAST_CONTRAST = 1e-3  # pixel values between the levels that become black and white
_FEW = 0.25  # share of the mean size of a class's cells; smaller cells are left out


@dataclasses.dataclass(frozen=True, kw_only=True)
class PrototypesConfig(EmbeddingConfig, MomentsConfig):
    """Settings of methods that make prototypes."""

    prototype_charges: int = setting(
        0, "Charges for what untrained networks see of the classes, from which prototypes are made; 0 where no "
        "candidate has them.", at_least(0))
    num_prototypes: int = setting(100, "Prototypes of each class.", at_least(1))
    prototype_cells: int = setting(
        1, "Cells of each class, by nearness to images of the moments; each has prototypes of its own. More than one "
        "helps only with little noise.", at_least(1))
    num_networks: int = setting(32, "Number of untrained networks.", at_least(1))
    network_filters: int = setting(32, "Filters of each of their convolutions.", at_least(1))
    network_clip: float = setting(
        0.8, "Length that what a network sees is shortened to, in units of the median of the moments' images.",
        positive)
    network_whitening: bool = setting(
        True, "What networks see is scaled so that images of the moments vary within their classes by as much in all "
        "directions. Otherwise what all classes share hides what tells them apart.")
    prototype_steps: int = setting(1000, "Steps of the fit of prototypes.", at_least(1))
    prototype_rate: float = setting(
        0.02, "How far pixels in [0, 1] are moved by a step of their fit: Adam's learning rate.", positive)
    prototype_warp: float | None = setting(
        None, "How far prototypes are moved at random in each step of their fit. With none, the mean of their "
        "candidates' warps.", at_least(0))
    mirrored: bool = setting(
        True, "If they are in colour, half of the images of prototypes are mirrored, and networks see each image "
        "together with its mirror image, as suits photographs and not writing.")

    BEFORE: typing.ClassVar[Mapping[str, typing.Any]] = types.MappingProxyType(
        {**EmbeddingConfig.BEFORE, **MomentsConfig.BEFORE, "network_whitening": False})

    def _check(self) -> None:
        super()._check()
        _validate.require(self.num_prototypes >= self.prototype_cells, "num_prototypes", self.num_prototypes,
                          f">= prototype_cells={self.prototype_cells}, one for each")
        if self.prototype_charges and None not in (self.image_shape, self.num_classes):
            _validate.require(self.num_network_features > 0, "image_shape", list(self.data.image_shape),
                              "to be of 8 x 8 pixels at least, for the untrained networks of prototypes")

    @property
    def mirrors(self) -> bool:
        """Whether images and their mirror images are as likely: for photographs, which are in colour."""
        return self.mirrored and self.data.image_shape[2] > 1

    @property
    def num_network_features(self) -> int:
        """Numbers that all untrained networks see of an image."""
        return untrained_networks.num_features(self.features_data.image_shape, self.num_networks, self.network_filters)

    @property
    def network_work(self) -> float:
        """Billions of operations for what a network sees of an image, times four for the time that they take.

        Convolutions with so few filters are slower than products of matrices.
        """
        (height, width, channels), filters = self.features_data.image_shape, self.network_filters
        views = 1 + (self.mirrors and self.network_whitening)
        return views * 4 * 9e-9 * height * width * filters * (channels + filters / 4 + filters / 16)

    def prototype_mechanism(self) -> sums.Maker:
        """Maker of the mechanism of this release. The settings must be resolved."""
        return sums.means(self, self.data.num_classes * self.prototype_cells, self.num_network_features,
                          max(1, self.prototype_charges))


@dataclasses.dataclass(frozen=True, kw_only=True)
class Plan:
    """Decisions made before the records are looked at; all of them are public.

    Attributes:
      networks: networks that see the records and the prototypes.
      centres: centres of cells, as `sum_questions.averaged` images: float64 [Y, K, d].
      start: first prototypes, uint8 [Y, K, n, h, w, C].
    """

    networks: untrained_networks.UntrainedNetworks
    centres: np.ndarray
    start: np.ndarray

    def question(self, config: PrototypesConfig) -> sum_questions.Embeddings:
        """The question of the release."""
        points = sum_questions.Points(square=config.moments_square, nearest_to=self.centres)
        return sum_questions.Embeddings(
            features=sum_questions.NetworkMap(networks=self.networks, square=config.features_square),
            num_rows=self.centres.shape[0] * self.centres.shape[1], points=points)


def plan(config: PrototypesConfig, gaussians: tf.Module, kept: pathlib.Path) -> Plan:
    """Networks, cells and first prototypes, from images of the released Gaussians.

    They are kept in the file `kept`: a resumed run must use the same ones as the release.
    """
    seed, classes, cells = config.seed, config.data.num_classes, config.prototype_cells
    # Networks whose features are not whitened see no mirror images either, as in runs from before they were.
    spec: dict[str, typing.Any] = {
        "seed": seed, "num_networks": config.num_networks, "filters": config.network_filters,
        "mirrored": config.mirrors and config.network_whitening}
    scales = "scales" if config.network_whitening else "lengths"
    if not kept.exists():
        images, labels = posing.draw(
            warps.WarpedGenerator(config.data.image_shape, [gaussians], 0.0), config.data,
            rng.stream(seed, "prototypes"), max(_SEEN, classes * max(_PER_CELL * cells, config.num_prototypes)))
        small = sum_questions.smaller(images, config.features_square)
        networks = untrained_networks.UntrainedNetworks.for_images(
            small[:_SEEN].astype(np.float32) / 255, labels[:_SEEN] if config.network_whitening else None,
            clip=config.network_clip, **spec)
        points = sum_questions.averaged(images, config.moments_square) / 255
        centres, start = zip(*(_cells(config, points[labels == label], small[labels == label])
                               for label in range(classes)))
        _files.atomic_write(kept, _files.npz_bytes({
            "network_centres": networks.centres, scales: networks.scales, "centres": np.stack(centres),
            "start": np.stack(start)}))
    count, shape = config.num_networks, config.features_data.image_shape
    size = config.num_network_features // count
    arrays = _files.read_npz(kept, _files.exactly({
        "network_centres": np.zeros((count, size), np.float32),
        scales: np.zeros((count, size, size) if config.network_whitening else count, np.float32),
        "centres": np.zeros((classes, cells, config.moments_dimension)),
        "start": np.zeros((classes, cells, config.num_prototypes // cells, *shape), np.uint8)}))
    return Plan(networks=untrained_networks.UntrainedNetworks(
        channels=config.data.image_shape[2], centres=arrays["network_centres"], scales=arrays[scales], **spec),
        centres=arrays["centres"], start=arrays["start"])


def _cells(config: PrototypesConfig, points: np.ndarray, images: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Centres [K, d] of a class's cells, and equally many of the images for each cell: [K, n, h, w, C]."""
    count = config.prototype_cells
    with warnings.catch_warnings():  # Images may all be alike where noise hides how they vary.
        warnings.simplefilter("ignore", sklearn.exceptions.ConvergenceWarning)
        found = sklearn.cluster.KMeans(count, n_init=1, random_state=config.seed % 2**32).fit(points)
    own = [images[np.resize(np.flatnonzero(found.labels_ == cell), config.num_prototypes // count)]
           for cell in range(count)]
    return found.cluster_centers_.astype(np.float64), np.stack(own)


class PrototypeStudent:
    """Prototypes whose means in untrained networks approach the given ones, cell by cell.

    Args:
      config: resolved settings.
      plan: the first prototypes, and the networks.
      warp: how far they are moved at random in each step.
      means: released means of what all networks see, float32 [Y K, P D].
      counts: released numbers of records, [Y K].
      class_means: released mean images of the classes, in [0, 1], at the resolution of the release: [Y, rows, columns,
        C].
    """

    def __init__(self, config: PrototypesConfig, plan: Plan, warp: float, means: np.ndarray, counts: np.ndarray,
                 class_means: np.ndarray):
        self._warp, self._class_means = warp, class_means
        self._config, self._cells, self._own = config, plan.start.shape[:2], plan.start.shape[2]
        sizes = counts.reshape(self._cells)
        self._sizes = np.where(sizes < _FEW * sizes.mean(1, keepdims=True), 0.0, sizes)
        networks = plan.networks.num_networks
        self._means = tf.constant(networks**0.5 * means.reshape(len(means), networks, -1))
        self._seen = plan.networks.of_one()
        self._images = tf.Variable(plan.start.reshape(-1, *plan.start.shape[3:]).astype(np.float32) / 255)
        self._optimizer = tf.keras.optimizers.legacy.Adam(config.prototype_rate)
        self._optimizer._create_all_weights([self._images])
        self._step = tf.function(self._train_step, autograph=False)

    def train(self, step: int) -> float:
        """One step, in one of the networks, on public randomness of its own; returns the loss."""
        stream, count = rng.stream(self._config.seed, "fit", step), self._images.shape[0]
        network = stream.integers(0, self._means.shape[1])
        moves, coins = (stream.standard_normal((count, numbers), np.float32) for numbers in (warps.NUM_MOVES, 1))
        return float(self._step(tf.constant(network), moves, coins))

    def _train_step(self, network, moves, coins):
        with tf.GradientTape() as tape:
            images = self._images
            if self._config.mirrors:
                images = models.mirrored(images, coins[:, :, None, None])
            maps = warps.matrices(self._warp * moves, tuple(images.shape[1:]))
            seen = self._seen(warps.affine_warp(images, maps), network)
            own = tf.reduce_mean(tf.reshape(seen, [self._means.shape[0], self._own, -1]), 1)
            loss = tf.reduce_sum(tf.square(own - self._means[:, network])) / self._means.shape[0]
        self._optimizer.apply_gradients([(tape.gradient(loss, self._images), self._images)])
        self._images.assign(tf.clip_by_value(self._images, 0.0, 1.0))
        return loss

    def released(self) -> models.PrototypeGenerator:
        """The generator of these prototypes: each cell is drawn in proportion to its number of records."""
        return self._generator(0.0, models.TO_LEARN_FROM)

    def to_look_at(self, released: models.PrototypeGenerator) -> tf.Module:
        """The generator for people.

        Grey prototypes are smooth, and light leaves their black and white as they are. Those in colour are `released`
        as moved in the fit, which averages over single pixels.
        """
        if self._grey:
            return self._generator(_SMOOTHED, models.TO_LOOK_AT)
        return warps.WarpedGenerator(self._config.data.image_shape, [released], self._warp)

    @property
    def _grey(self) -> bool:
        return self._images.shape[-1] == 1

    def _generator(self, smoothed: float, light: models.Light) -> models.PrototypeGenerator:
        config, weights = self._config, np.repeat(self._sizes, self._own, axis=1)
        images = self._images.numpy().reshape(*weights.shape, *self._images.shape[1:])
        square = config.features_square
        if self._grey:  # Mean photographs are nearly of one colour, and say little of contrast.
            images = levelled(scipy.ndimage.gaussian_filter(images, (0, 0, smoothed, smoothed, 0)), weights,
                              self._class_means)
        return models.PrototypeGenerator(config.data.image_shape, np.round(255 * images).astype(np.uint8), weights,
                                         config.mirrors, square, light)

    def sample_grid(self, per_class: int = 10) -> np.ndarray:
        """Images to look at, uint8 [Y, per_class, H, W, C], one row per class."""
        source = warps.WarpedGenerator(self._config.data.image_shape, [self.released()], 0.0)
        return posing.grid(source, self._config, per_class)

    def variables(self) -> list[tf.Variable]:
        """All there is to save."""
        return [self._images, *self._optimizer.variables()]


def levelled(images: np.ndarray, weights: np.ndarray, expected: np.ndarray) -> np.ndarray:
    """Images in the one brightness and contrast that bring the means of classes as near as can be to `expected`.

    Args:
      images: in [0, 1], [Y, N, h, w, C].
      weights: weights of a class's images, at least 0, and not all 0 in a class: [Y, N].
      expected: mean images of the classes, [Y, rows, columns, C]. Those of `images` are compared with them in the same
        resolution: blurred ones would have less contrast.
    """
    shares = weights / weights.sum(1, keepdims=True)

    def shown(levels):
        black, white = levels
        return np.clip((images - black) / max(white - black, _LEAST_CONTRAST), 0.0, 1.0)

    def error(levels):
        means = tf.image.resize(np.einsum("yn,ynhwc->yhwc", shares, shown(levels)), expected.shape[1:3], "area")
        return np.sum(np.square(means.numpy() - expected))

    return shown(scipy.optimize.minimize(error, (0.0, 1.0), method="Nelder-Mead").x)
