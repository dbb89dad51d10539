"""Generators fitted to released mean embeddings: the settings and the training that several methods share."""

import dataclasses
from collections.abc import Callable, Iterator

import numpy as np
import tensorflow as tf

from datalens_tf import _validate, rng
from datalens_tf.config import MethodConfig
from datalens_tf.data.datasets import CHUNK, Dataset, chunks, padded
from datalens_tf.errors import InvalidArgumentError
from datalens_tf.training.student import AveragedGenerator, draw_latents

Features = Callable[[tf.Tensor], tf.Tensor]  # Of images [n, H, W, C] in [0, 1]: [n, D], each at most 1 long.


@dataclasses.dataclass(frozen=True, kw_only=True)
class EmbeddingConfig(MethodConfig):
    """What the settings of methods that release mean embeddings share.

    Attributes:
      num_features: random Fourier features per image [D], even.
      bandwidths: of the kernels, comma-separated standard deviations in pixel units: distances between images that
        they tell apart. Fixed numbers: a median over the records would be private.
      autoencoder_dim: numbers in the code of a private linear autoencoder, by which images are then compared; costs
        one more release. 0 compares pixels.
      autoencoder_clip_norm: l2 norm that images are shortened to for the autoencoder, in pixel units.
      noise_multiplier: standard deviation of the noise divided by the sensitivity; None calibrates it to the budget.
      batch_size: synthetic images per step of the generator, the same number for each class.
      fit_steps: steps of the generator; post-processing, free in privacy.
    """

    num_features: int = 4000
    bandwidths: str = "5,10"
    autoencoder_dim: int = 0
    autoencoder_clip_norm: float = 10.0
    noise_multiplier: float | None = None
    batch_size: int = 500
    fit_steps: int = 3000
    latent_dim: int = 10
    latent_distribution: str = "normal"
    generator_filters: int = 32
    generator_units: int = 256
    student_learning_rate: float = 1e-3
    student_beta_1: float = 0.9
    ema_decay: float = 0.99

    def __post_init__(self):
        super().__post_init__()
        for name, least in (("num_features", 2), ("batch_size", 1), ("fit_steps", 1), ("autoencoder_dim", 0)):
            _validate.integer(name, getattr(self, name), at_least=least)
        _validate.require(self.num_features % 2 == 0, "num_features", self.num_features, "to be even")
        _validate.positive("autoencoder_clip_norm", self.autoencoder_clip_norm)
        if self.noise_multiplier is not None:
            _validate.positive("noise_multiplier", self.noise_multiplier)
        for bandwidth in self.kernel_bandwidths:
            _validate.positive("bandwidths", bandwidth)

    @property
    def kernel_bandwidths(self) -> tuple[float, ...]:
        """`bandwidths` as numbers."""
        return numbers("bandwidths", self.bandwidths)

    @property
    def release_charges(self) -> tuple[int, ...]:
        """How many charges pay for each release, in order: the autoencoder, the embeddings."""
        return (1, 1) if self.autoencoder_dim else (1,)

    @property
    def num_charges(self) -> int:
        """Of the whole run."""
        return sum(self.release_charges)


def numbers(name: str, text: str) -> tuple[float, ...]:
    """What a setting lists; raises InvalidArgumentError."""
    try:
        return tuple(float(word) for word in text.split(","))
    except (AttributeError, ValueError) as error:
        raise InvalidArgumentError(f"Expected {name}={text!r} to be numbers, separated by commas.") from error


class EmbeddingStudent(AveragedGenerator):
    """A generator whose images' mean features per class approach the given ones.

    Args:
      config: resolved settings.
      means: released mean features per class, float32 [Y, D].
      features: of images [n, H, W, C] in [0, 1], float32 [n, D]; differentiable.
    """

    def __init__(self, config: EmbeddingConfig, means: np.ndarray, features: Features):
        super().__init__(config)
        self._means, self._features = tf.constant(means), features
        self._per_class = -(-config.batch_size // config.num_classes)
        self._step = tf.function(self._train_step, autograph=False)

    def train(self, step: int) -> float:
        """One step on public randomness of its own; returns the loss."""
        classes = self._config.num_classes
        stream = rng.stream(self._config.seed, "fit", step)
        latents = draw_latents(self._config, stream, classes * self._per_class)
        return float(self._step(latents, np.repeat(np.arange(classes), self._per_class)))

    def _train_step(self, latents, labels):
        with tf.GradientTape() as tape:
            images = self.generator([latents, labels], training=True)
            features = tf.reshape(self._features(images), [len(self._means), self._per_class, -1])
            loss = embedding_distance(features, self._means)
        self.minimize(loss, tape)
        return loss


def embedding_distance(features: tf.Tensor, means: tf.Tensor) -> tf.Tensor:
    """Sum over classes of |means - E phi|^2 - |means|^2, estimated without bias (for more than one image per class).

    Args:
      features: of n images of each class, float32 [Y, n, D].
      means: float32 [Y, D].
    """
    count = features.shape[1]
    mean = tf.reduce_mean(features, 1)
    square = tf.reduce_sum(tf.square(mean), 1)
    if count > 1:  # Each image's own square, 1 of count^2 terms, is no estimate of anything.
        own = tf.reduce_mean(tf.reduce_sum(tf.square(features), 2), 1)
        square = (count * square - own) / (count - 1.0)
    return tf.reduce_sum(square - 2.0 * tf.reduce_sum(mean * means, 1))


def feature_batches(dataset: Dataset, features: Features) -> Iterator[tuple[np.ndarray, np.ndarray]]:
    """Features [n, D] and labels [n] of all records, in chunks."""
    of = tf.function(features, autograph=False)
    for images, labels in chunks(dataset):
        yield of(padded(images, CHUNK)).numpy()[:len(images)], labels
