"""TopAgg: gradient compression and aggregation of DataLens (Wang et al., 2021, Algorithms 2 and 3).

TensorFlow is imported only where votes are computed: pricing a mechanism must not take the seconds of its import.
"""

from __future__ import annotations

import dataclasses
import math
import typing

import dp_accounting
import numpy as np
from numpy.typing import NDArray

from datalens_tf import _validate
from datalens_tf.mechanisms.base import Mechanism, gaussian_event, noisy_vote_sum
from datalens_tf.mechanisms.noise import NoiseSource

QUANTIZATIONS = ("stochastic", "sign")

if typing.TYPE_CHECKING:
    import tensorflow as tf



def topk_stochastic_sign(
    gradients: tf.Tensor, uniforms: tf.Tensor, top_k: int, clip: float | None = None
) -> tf.Tensor:
    """Algorithm 2, `TopkStoSignGrad`: the k largest coordinates of each row become +1 or -1, the others 0.

    Takes the k coordinates of largest magnitude of each row (ties: lowest index), clips them to [-clip, clip], divides
    them by their largest magnitude and draws +1 with probability (1 + value)/2, else -1. A row that is all zero or has
    a value that is not finite votes 0; any other row has exactly k non-zeros.

    Args:
      gradients: float32 [..., d].
      uniforms: float32 [..., k], independent draws from U[0, 1).
      top_k: coordinates to keep per row, 1 <= k <= d.
      clip: bound c on each coordinate, > 0; None leaves them as they are.

    Returns:
      float32 [..., d] with values in {-1, 0, +1}.
    """
    import tensorflow as tf

    values, indices = _largest(gradients, top_k)
    uniforms = tf.reshape(uniforms, [-1, top_k])
    if clip is not None:
        values = tf.clip_by_value(values, -clip, clip)
    largest = tf.reduce_max(tf.abs(values), axis=-1, keepdims=True)
    positive = uniforms < (1.0 + tf.math.divide_no_nan(values, largest)) / 2.0
    return _in_place(tf.where(positive, 1.0, -1.0) * tf.cast(largest > 0.0, tf.float32), indices, tf.shape(gradients))


def topk_sign(gradients: tf.Tensor, top_k: int) -> tf.Tensor:
    """Algorithm 2 without stochastic quantization: the k largest coordinates of each row become their signs.

    Args:
      gradients: float32 [..., d].
      top_k: coordinates to keep per row, 1 <= k <= d.

    Returns:
      float32 [..., d] with values in {-1, 0, +1}, at most k per row other than 0. A zero has no sign, and a row with a
      value that is not finite votes 0.
    """
    import tensorflow as tf

    values, indices = _largest(gradients, top_k)
    return _in_place(tf.sign(values), indices, tf.shape(gradients))


def _largest(gradients: tf.Tensor, top_k: int) -> tuple[tf.Tensor, tf.Tensor]:
    """The k coordinates of largest magnitude of each row (ties: lowest index), and where they are: [rows, k] each."""
    import tensorflow as tf

    rows = tf.reshape(gradients, [-1, tf.shape(gradients)[-1]])
    finite = tf.reduce_all(tf.math.is_finite(rows), axis=-1, keepdims=True)
    rows = tf.where(finite, rows, 0.0)
    indices = tf.math.top_k(tf.abs(rows), top_k, sorted=False).indices
    return tf.gather(rows, indices, batch_dims=1), indices


def _in_place(votes: tf.Tensor, indices: tf.Tensor, shape: tf.Tensor) -> tf.Tensor:
    """Votes [rows, k], put where their coordinates are in an array of zeros of this shape."""
    import tensorflow as tf

    places = indices + shape[-1] * tf.range(tf.shape(indices)[0])[:, tf.newaxis]
    dense = tf.math.unsorted_segment_sum(tf.reshape(votes, [-1]), tf.reshape(places, [-1]), tf.reduce_prod(shape))
    return tf.reshape(dense, shape)


@dataclasses.dataclass(frozen=True, kw_only=True)
class TopAgg(Mechanism):
    """Top-k stochastic signs, summed over the teachers, with Gaussian noise and a threshold.

    Each of the three can be switched off (the paper's Table 7); the sensitivity is that of the k that remains.

    Attributes:
      num_teachers: number of teachers N.
      top_k: coordinates each teacher votes on, per image; d for no selection.
      clip: per-coordinate gradient clip; None for none. It affects neither privacy nor plain signs.
      noise_stddev: standard deviation sigma of the noise on the vote sum, in votes; 0 switches the noise off, and then
        `dp_event` is a non-private event.
      vote_threshold: fraction beta of N that a noisy vote must reach to count, in [0, 1]; None for no threshold: the
        direction is then the noisy votes divided by k.
      quantization: `stochastic`, or `sign` for each coordinate's own sign.

    Raises:
      InvalidArgumentError: a value outside its domain.

    Example:
      >>> import numpy as np
      >>> from datalens_tf import TopAgg
      >>> from datalens_tf.mechanisms import RoundedGaussianNoise
      >>> mechanism = TopAgg(num_teachers=100, top_k=2, clip=None, noise_stddev=5.0, vote_threshold=0.5)
      >>> mechanism.l2_sensitivity(num_images=2)
      4.0
      >>> mechanism.dp_event(num_images=2)
      GaussianDpEvent(noise_multiplier=1.25)
      >>> votes = np.array([[99, -98, 0, 1], [0, 2, 97, -99]])
      >>> noisy = mechanism.privatize(votes, RoundedGaussianNoise(), index=0)
      >>> mechanism.postprocess(noisy).tolist()
      [[1.0, -1.0, 0.0, 0.0], [0.0, 0.0, 1.0, -1.0]]
    """

    num_teachers: int
    top_k: int
    clip: float | None
    noise_stddev: float
    vote_threshold: float | None
    quantization: str = "stochastic"

    def __post_init__(self) -> None:
        _validate.integer("num_teachers", self.num_teachers, at_least=1)
        _validate.integer("top_k", self.top_k, at_least=1)
        if self.clip is not None:
            _validate.positive("clip", self.clip)
        _validate.real("noise_stddev", self.noise_stddev)
        _validate.require(self.noise_stddev >= 0, "noise_stddev", self.noise_stddev, ">= 0")
        if self.vote_threshold is not None:
            _validate.between("vote_threshold", self.vote_threshold, 0, 1)
        _validate.one_of("quantization", self.quantization, QUANTIZATIONS)

    def compress(self, gradients: tf.Tensor, seeds: tf.Tensor) -> tf.Tensor:
        """Votes in {-1, 0, +1}, at most k of them non-zero per image; see `Mechanism.compress`."""
        import tensorflow as tf

        gradients = tf.convert_to_tensor(gradients, tf.float32)
        _validate.top_k(self.top_k, gradients.shape[-1])
        if self.quantization == "sign":
            return topk_sign(gradients, self.top_k)
        row = [tf.shape(gradients)[1], self.top_k]
        uniforms = tf.map_fn(
            lambda seed: tf.random.stateless_uniform(row, seed), seeds, fn_output_signature=tf.float32)
        return topk_stochastic_sign(gradients, uniforms, self.top_k, self.clip)

    def l2_sensitivity(self, num_images: int) -> float:
        """2 sqrt(k m): one teacher's k votes per image all change sign (Lemma 1, for m images jointly).

        Plain signs and stochastic ones can all change, and the threshold comes after the noise: only k matters.
        """
        _validate.integer("num_images", num_images, at_least=1)
        return 2.0 * math.sqrt(self.top_k * num_images)

    def privatize(self, vote_sum: NDArray[np.float64], noise: NoiseSource, index: int, share: float = 1.0
                  ) -> NDArray[np.float64]:
        """Algorithm 3's sum plus N(0, sigma^2) per coordinate; see `Mechanism.privatize`."""
        return noisy_vote_sum(vote_sum, self.num_teachers, self.noise_stddev, noise, index, share)

    def postprocess(self, noisy: NDArray[np.float64]) -> NDArray[np.float32]:
        """Algorithm 3's threshold: +1 where noisy >= beta N, -1 where noisy <= -beta N, else 0. Or noisy / k."""
        if self.vote_threshold is None:
            return (noisy / self.top_k).astype(np.float32)
        bar = self.vote_threshold * self.num_teachers
        return np.where(noisy >= bar, 1.0, np.where(noisy <= -bar, -1.0, 0.0)).astype(np.float32)

    def dp_event(self, num_images: int) -> dp_accounting.DpEvent:
        """One Gaussian mechanism with noise multiplier sigma / (2 sqrt(k m)): the m images are released jointly.

        In the paper's terms (Theorem 3), these are m releases of (lambda, 2 k lambda / sigma^2)-RDP each.
        """
        return gaussian_event(self.noise_stddev, self.l2_sensitivity(num_images))
