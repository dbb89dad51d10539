"""Quality of synthetic images beside real ones: scores, distances between sets, distances to the nearest real record.

Everything here is a function of features, logits or pixels; `domain_classifier` and `InceptionFeatures` make them. A
Frechet distance is named after its features, because distances between different features cannot be compared.
"""

import functools

import numpy as np

from datalens_tf import _validate
from datalens_tf._text import first_line
from datalens_tf.data.datasets import to_unit
from datalens_tf.errors import DataError

_CHUNK_VALUES = 50_000_000  # floats of real images at once
NEIGHBOURS = 5  # As in the papers of precision/recall and density/coverage for sets of this size.


def inception_score(logits: np.ndarray, num_splits: int = 10) -> tuple[float, float]:
    """Exponential of the mean Kullback-Leibler divergence of p(y | x) from p(y) (Salimans et al. 2016).

    Args:
      logits: [n, Y], of a classifier of real images.
      num_splits: the score is computed on so many parts of the images, in their order.

    Returns:
      Mean and standard deviation over the parts; both in [1, Y].

    Raises:
      InvalidArgumentError: fewer images than parts.
    """
    _validate.integer("num_splits", num_splits, at_least=1)
    _validate.require(len(logits) >= num_splits, "num_splits", num_splits, f"<= {len(logits)}, the number of images")
    from scipy import special

    log_p = special.log_softmax(np.asarray(logits, np.float64), axis=1)
    scores = []
    for part in np.array_split(log_p, num_splits):
        log_marginal = special.logsumexp(part, axis=0) - np.log(len(part))
        scores.append(np.exp(np.mean(np.sum(np.exp(part) * (part - log_marginal), axis=1))))
    return float(np.mean(scores)), float(np.std(scores))


def frechet_distance(features_a: np.ndarray, features_b: np.ndarray) -> float:
    """Squared 2-Wasserstein distance of the Gaussians fitted to two sets of features (Heusel et al. 2017).

    Args:
      features_a, features_b: [n, d] and [m, d], at least two rows each.

    Raises:
      InvalidArgumentError: fewer than two rows.
    """
    means, factors = [], []
    for name, features in (("features_a", features_a), ("features_b", features_b)):
        _validate.require(len(features) >= 2, f"len({name})", len(features), ">= 2, for a covariance")
        features = np.asarray(features, np.float64)
        means.append(features.mean(axis=0))
        # R with R^T R = covariance. The trace of (C_a C_b)^(1/2) is the nuclear norm of R_a R_b^T, which needs no
        # square root of a matrix that is singular whenever there are fewer images than features.
        # numpy's types do not know that mode="r" gives one array.
        factor: np.ndarray = np.linalg.qr(
            (features - means[-1]) / np.sqrt(len(features) - 1), mode="r")  # type: ignore[assignment]
        factors.append(factor)
    squared = np.sum((means[0] - means[1]) ** 2) + sum(np.sum(factor ** 2) for factor in factors)
    return float(max(0.0, squared - 2 * np.linalg.norm(factors[0] @ factors[1].T, "nuc")))


def manifold_metrics(real: np.ndarray, synthetic: np.ndarray, neighbours: int = NEIGHBOURS) -> dict[str, float]:
    """Precision and recall (Kynkaanniemi et al. 2019), density and coverage (Naeem et al. 2020).

    A record's ball reaches to its k-th nearest neighbour in its own set.

    Args:
      real, synthetic: features [n, d] and [m, d].
      neighbours: k.

    Returns:
      `precision`: share of synthetic records inside a real record's ball. `recall`: the converse. `density`: how many
      real balls a synthetic record lies in, over k; may exceed 1. `coverage`: share of real balls with a synthetic
      record inside. All are 1 (density: about 1) for two sets of the same distribution.

    Raises:
      InvalidArgumentError: not more records than neighbours.
    """
    from sklearn.metrics import pairwise_distances

    _validate.integer("neighbours", neighbours, at_least=1)
    for name, features in (("real", real), ("synthetic", synthetic)):
        _validate.require(len(features) > neighbours, f"len({name})", len(features), f"> neighbours={neighbours}")

    def radii(features):
        # Column 0 of the sorted distances is the record itself.
        return np.partition(pairwise_distances(features), neighbours, axis=1)[:, neighbours]

    distances = pairwise_distances(real, synthetic)
    radii_real = radii(real)
    in_real_ball = distances < radii_real[:, None]
    return {
        "precision": float(in_real_ball.any(axis=0).mean()),
        "recall": float((distances < radii(synthetic)[None, :]).any(axis=1).mean()),
        "density": float(in_real_ball.sum(axis=0).mean() / neighbours),
        "coverage": float((distances.min(axis=1) < radii_real).mean()),
    }


def nearest_distances(images: np.ndarray, real: np.ndarray) -> np.ndarray:
    """Euclidean distance of every image to its nearest real one, over pixels in [0, 1]: float64 [n]."""
    from sklearn.metrics import pairwise_distances_argmin_min

    def flat(pictures):
        return to_unit(pictures).reshape(len(pictures), -1)

    mine, nearest = flat(images), np.full(len(images), np.inf)
    rows = max(1, _CHUNK_VALUES // mine.shape[1])  # Real records may lie on disk and not fit in memory.
    for start in range(0, len(real), rows):
        nearest = np.minimum(nearest, pairwise_distances_argmin_min(mine, flat(real[start:start + rows]))[1])
    return nearest


def memorisation(synthetic: np.ndarray, test: np.ndarray) -> dict[str, float]:
    """Closeness of synthetic images to the records that were trained on, compared with that of unseen records.

    Args:
      synthetic, test: `nearest_distances` to the training records, of synthetic images and of unseen real ones.

    Returns:
      `synthetic_median`, `test_median`: medians. `closer_than_test_1_percent`: share of synthetic images that are
      closer to a training record than all but 1 % of test records are; far above 0.01 says that records were copied.
    """
    return {
        "synthetic_median": float(np.median(synthetic)),
        "test_median": float(np.median(test)),
        "closer_than_test_1_percent": float(np.mean(synthetic < np.quantile(test, 0.01))),
    }


class InceptionFeatures:
    """InceptionV3's pooled features [n, 2048], with the ImageNet weights of Keras.

    These are not the weights of the first FID implementations: compare only with numbers from the same weights.

    Args:
      weights: a file that `tf.keras.applications.InceptionV3(include_top=False).save_weights` wrote, such as Keras'
        `inception_v3_weights_tf_dim_ordering_tf_kernels_notop.h5`; or `download`.

    Raises:
      DataError: the weights cannot be read or downloaded.
    """

    def __init__(self, weights: str):
        import tensorflow as tf

        try:
            model = tf.keras.applications.InceptionV3(
                include_top=False, weights="imagenet" if weights == "download" else weights, pooling="avg",
                input_shape=(299, 299, 3))
        except Exception as error:  # The errors of h5py, Keras and urllib have no common base.
            raise DataError(f"inception_weights={weights}: cannot be had as weights of Keras' InceptionV3 without its "
                            f"top: {first_line(error)}. Give Keras' own file, or leave the flag out.") from error

        @functools.partial(tf.function, autograph=False)
        def features(batch):
            colour = tf.image.grayscale_to_rgb(batch) if batch.shape[-1] == 1 else batch
            return model(tf.image.resize(colour, (299, 299)) * 2 - 1, training=False)

        self._features = features

    def __call__(self, images: np.ndarray, batch_size: int = 64) -> np.ndarray:
        """Features of images [n, H, W, 1 or 3], uint8 or in [0, 1], resized to 299x299; grey is repeated."""
        return np.concatenate([self._features(to_unit(images[start:start + batch_size])).numpy()
                               for start in range(0, len(images), batch_size)])
