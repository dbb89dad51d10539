"""Questions of the methods that release sums: of shortened vectors, of their products, of features, and of votes."""

from __future__ import annotations

import dataclasses
import typing
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

from etils import epy

from datalens_tf.facts import DataSpec
from datalens_tf.training.questions import Question
from datalens_tf.training.untrained_networks import UntrainedNetworks

with epy.lazy_imports():
    import numpy as np
    import tensorflow as tf

    from datalens_tf.data import datasets
    from datalens_tf.mechanisms import mean_embedding
    from datalens_tf.models import places
    from datalens_tf.training import classifier, feature_network

if typing.TYPE_CHECKING:
    from numpy.typing import NDArray

Features = Callable[["tf.Tensor"], "tf.Tensor"]  # Images [n, H, W, C] in [0, 1] -> [n, D], at most 1 long.
# Vectors [n, D], the rows that they count in [n], and the numbers of records of their units [n].
Batches = Iterator[tuple["np.ndarray", "np.ndarray", "np.ndarray"]]


@dataclasses.dataclass(frozen=True, kw_only=True)
class Points:
    """Vectors of records, and the rows that they count in: their labels, unless the last fields say otherwise.

    Attributes:
      square: side of the squares of pixels that images are `averaged` over.
      centres: vectors that are subtracted: one per class [Y, D], or one for all [1, D].
      directions: directions in which vectors are then expressed, [k, D].
      nearest_to: centres of clusters [Y, K, k]; a record's row is the nearest centre of its class.
      less: vectors that are subtracted last, one per row: [rows, k].
      together: whether all records count in one row.
    """

    square: int
    centres: NDArray[np.float64] | None = None
    directions: NDArray[np.float64] | None = None
    nearest_to: NDArray[np.float64] | None = None
    less: NDArray[np.float64] | None = None
    together: bool = False

    def of(self, dataset: datasets.Dataset) -> Batches:
        """Vectors float64 [n, D], rows [n] and sizes of units [n], in chunks."""
        for images, labels, sizes in datasets.chunks(dataset):
            vectors = averaged(images, self.square)
            rows = np.zeros_like(labels) if self.together else labels
            if self.centres is not None:
                vectors = vectors - (self.centres[labels] if len(self.centres) > 1 else self.centres)
            if self.directions is not None:
                # One product for each record: that of a chunk rounds some rows differently by their place in it.
                vectors = np.matmul(self.directions, vectors[:, :, np.newaxis])[:, :, 0]
            if self.nearest_to is not None:
                centres = self.nearest_to[labels]
                distances = np.square(centres).sum(2) - 2 * np.einsum("nkd,nd->nk", centres, vectors)
                rows = labels * centres.shape[1] + distances.argmin(1)
            if self.less is not None:
                vectors = vectors - self.less[rows]
            yield vectors, rows, sizes


@dataclasses.dataclass(frozen=True, kw_only=True)
class Means(Question):
    """Sums of vectors that are shortened to a clip, in units of the clip, and their numbers, for a `MeanEmbedding`.

    Attributes:
      points: the vectors.
      clip: the length that vectors are shortened to.
      num_rows: number of rows of the sums.
    """

    points: Points
    clip: float
    num_rows: int

    def answer(self, mechanism: Any, dataset: datasets.Dataset) -> NDArray[np.float64]:
        found: NDArray[np.float64] = mechanism.sums(
            ((shortened(vectors, self.clip), *others) for vectors, *others in self.points.of(dataset)), self.num_rows)
        return found


@dataclasses.dataclass(frozen=True, kw_only=True)
class Squares(Question):
    """Sums of r r^T over vectors r, one per row, for a `SecondMoment`.

    Attributes:
      points: the vectors.
      num_rows: number of rows of the sums.
    """

    points: Points
    num_rows: int

    def answer(self, mechanism: Any, dataset: datasets.Dataset) -> NDArray[np.float64]:
        total: Any = None
        for vectors, rows, sizes in self.points.of(dataset):
            total = np.zeros((self.num_rows, *2 * vectors.shape[1:])) if total is None else total
            for row in np.unique(rows):
                total[row] += mechanism.sums([(vectors[rows == row], sizes[rows == row])])
        return total


@dataclasses.dataclass(frozen=True, kw_only=True)
class ImageSquares(Question):
    """The sum of x x^T over images x, for a `SecondMoment`."""

    def answer(self, mechanism: Any, dataset: datasets.Dataset) -> NDArray[np.float64]:
        found: NDArray[np.float64] = mechanism.sums((images, sizes) for images, _, sizes in datasets.chunks(dataset))
        return found


@dataclasses.dataclass(frozen=True, kw_only=True)
class FeatureMap:
    """Features of images: random Fourier features, and those of a network, if there is one.

    Attributes:
      frequencies: frequencies of the random features, float32 [D / 2, d].
      square: side of the squares of pixels that images are averaged over first.
      network: arrays of a `FeatureNetwork`.
      learned_share: share of the squared length that the network's features have.
      data: shape and classes of the network's images, which are averages.
    """

    frequencies: NDArray[np.float32]
    square: int = 1
    network: Mapping[str, NDArray[Any]] | None = None
    learned_share: float = 0.0
    data: DataSpec | None = None

    def made(self) -> Features:
        """The function from images to features."""
        frequencies = tf.constant(self.frequencies)

        def random_features(images: tf.Tensor) -> tf.Tensor:
            return mean_embedding.RandomFourierFeatures.of(images, frequencies)

        if self.network is None or self.data is None:
            return lambda images: random_features(averaged_images(images, self.square))
        network = feature_network.FeatureNetwork(*self.data, 0)
        network.restore(dict(self.network))
        random, learned = (1 - self.learned_share)**0.5, self.learned_share**0.5

        def both(images: tf.Tensor) -> tf.Tensor:
            seen = averaged_images(images, self.square)
            return tf.concat([random * random_features(seen), learned * network(seen / self.square)], 1)

        return both


@dataclasses.dataclass(frozen=True, kw_only=True)
class NetworkMap:
    """Features of images in untrained networks.

    Attributes:
      networks: the untrained networks.
      square: side of the squares of pixels whose means the networks see.
    """

    networks: UntrainedNetworks
    square: int = 1

    def made(self) -> Features:
        """The function from images to features."""
        seen = self.networks.made()
        return lambda images: seen(averaged_images(images, self.square) / self.square)


@dataclasses.dataclass(frozen=True, kw_only=True)
class Embeddings(Question):
    """Per row, the sum of its records' features and their number, for a `MeanEmbedding`.

    Attributes:
      features: features of images.
      num_rows: number of rows of the sums.
      points: points that decide the rows; None makes each class a row.
    """

    features: FeatureMap | NetworkMap
    num_rows: int
    points: Points | None = None

    def answer(self, mechanism: Any, dataset: datasets.Dataset) -> NDArray[np.float64]:
        batches = feature_batches(dataset, self.features.made(), places_shift=_places_shift(mechanism))
        if self.points is not None:
            batches = ((features, rows, sizes) for (features, _, sizes), (_, rows, _) in zip(
                batches, self.points.of(dataset)))
        found: NDArray[np.float64] = mechanism.sums(batches, self.num_rows)
        return found


@dataclasses.dataclass(frozen=True, kw_only=True)
class Votes(Question):
    """Per classifier, the number of records that it gets right minus those that it gets wrong, for `CorrectCounts`.

    Attributes:
      classifiers: weights of each classifier, a `QuickClassifier`.
      data: shape and classes of the classifiers' images.
      square: side of the squares of pixels that records are averaged over for the classifiers.
    """

    classifiers: Sequence[Sequence[NDArray[np.float32]]]
    data: DataSpec
    square: int = 1

    def answer(self, mechanism: Any, dataset: datasets.Dataset) -> NDArray[np.float64]:
        if not len(dataset):  # No record is of a declared class, which must not show.
            return np.zeros(len(self.classifiers))
        predictions, judge = [], classifier.QuickClassifier(*self.data, 0, places_shift=_places_shift(mechanism))
        images = smaller(dataset.images, self.square)
        for weights in self.classifiers:
            judge.restore(weights)
            predictions.append(judge.predict(images))
        found: NDArray[np.float64] = mechanism.sums(predictions, dataset.labels, datasets.unit_sizes(dataset))
        return found


def _places_shift(mechanism: Any) -> bool:
    """Whether neighbouring data sets have the same records at other places: a replaced record leaves places alone."""
    shift: bool = mechanism.adjacency == "add-or-remove-one"
    return shift


def feature_batches(dataset: datasets.Dataset, features: Features, *, places_shift: bool) -> Batches:
    """Features [n, D], labels [n] and sizes of units [n] of all records, in chunks.

    With `places_shift`, a record's features are the same, to the bit, wherever in a chunk it is.
    """
    shape = (datasets.CHUNK, *dataset.image_shape)
    of = places.anywhere(features, shape, name="features") if places_shift else tf.function(features, autograph=False)
    for images, labels, sizes in datasets.chunks(dataset):
        yield of(datasets.padded(images, datasets.CHUNK)).numpy()[:len(images)], labels, sizes


def shortened(vectors: NDArray[np.float64], clip: float) -> NDArray[np.float64]:
    """Vectors in units of the clip, at most 1 long."""
    return vectors * ((1 - 1e-9) / np.maximum(np.linalg.norm(vectors, axis=1, keepdims=True), clip))


def averaged(images: NDArray[Any], square: int) -> NDArray[np.float64]:
    """Sums over squares of pixels, divided by their side: float64 [n, D]. This keeps the lengths of smooth images.

    Rows or columns at the end that do not fill a square are padded with black, which changes no length.

    Args:
      images: [n, H, W, C].
      square: side of the squares; 1 for all pixels as they are.
    """
    count, height, width, channels = images.shape
    rows, columns = -(-height // square), -(-width // square)
    if (rows * square, columns * square) != (height, width):
        images = np.pad(images, ((0, 0), (0, rows * square - height), (0, columns * square - width), (0, 0)))
    squares = np.asarray(images, np.float64).reshape(count, rows, square, columns, square, channels)
    found: NDArray[np.float64] = squares.sum((2, 4)).reshape(count, rows * columns * channels) / square
    return found


def smaller(images: NDArray[Any], square: int) -> NDArray[Any]:
    """Images [n, H, W, C], uint8 or float, with each square of `square` x `square` pixels reduced to its mean."""
    if square == 1:
        return images
    count, height, width, channels = images.shape
    shape = -(-height // square), -(-width // square), channels
    means = np.empty((count, *shape), images.dtype)
    for start in range(0, count, datasets.CHUNK):
        chunk = images[start:start + datasets.CHUNK]
        found = averaged(chunk, square).reshape(-1, *shape) / square
        means[start:start + datasets.CHUNK] = np.rint(found) if images.dtype == np.uint8 else found
    return means


def averaged_images(images: tf.Tensor, square: int) -> tf.Tensor:
    """Sums over squares of pixels, divided by their side: [n, H / square, W / square, C]. Differentiable.

    This keeps the lengths of smooth images, and so the distances that bandwidths are for. Rows or columns that do not
    fill a square are padded with black.
    """
    if square == 1:
        return images
    height, width = images.shape[1:3]
    beside = tf.pad(images, [[0, 0], [0, -height % square], [0, -width % square], [0, 0]])
    return square * tf.nn.avg_pool2d(beside, square, square, "VALID")
