"""TopAgg as a Keras layer, for use and study inside a TensorFlow graph."""

from collections.abc import Sequence
from typing import Any

import tensorflow as tf

from datalens_tf import _validate
from datalens_tf.mechanisms.topagg import TopAgg, topk_stochastic_sign


@tf.keras.utils.register_keras_serializable("datalens_tf")
class TopAggLayer(tf.keras.layers.Layer):
    """Compress, sum with noise, threshold: gradients of all N teachers in, one voted direction out (Algorithms 2, 3).

    **For study, unless the seed stays secret.** The noise is drawn in the graph by TensorFlow's stateless generator: it
    is float32, and not cryptographic. Without a `seed`, every call takes a fresh one from the operating system's
    entropy and stores nothing of it. With a `seed`, the noise is reproducible, also by anyone who reads the seed in the
    layer's configuration, and the output is NOT PRIVATE towards them. The layer charges no ledger. To release a
    generator use `datalens_tf.mechanisms.TopAgg` with `RoundedGaussianNoise`, which is what training does.

    The first axis counts teachers, not independent examples. Call the layer on all N at once: `predict` would cut them
    into batches and vote within each.

    Args:
      top_k: coordinates each teacher votes on, per image.
      noise_stddev: standard deviation of the noise on the vote sum, in votes, >= 0.
      vote_threshold: fraction of N that a noisy vote must reach to count, in [0, 1].
      clip: per-coordinate gradient clip; None for none.
      seed: None, or an integer >= 0 that fixes the sequence of the layer's calls.

    Input shape:
      (N, m, d) gradients: N teachers, m images, d numbers per image.

    Output shape:
      (m, d), values in {-1, 0, 1}.

    Raises:
      InvalidArgumentError: an argument outside its domain, or top_k > d.

    Example:
      >>> import tensorflow as tf
      >>> from datalens_tf import TopAggLayer
      >>> layer = TopAggLayer(top_k=1, noise_stddev=0.1, vote_threshold=0.5)
      >>> gradients = tf.constant([[[0.0, -3.0, 1.0]]] * 8)  # 8 teachers, 1 image, 3 numbers
      >>> layer(gradients).numpy().tolist()
      [[0.0, -1.0, 0.0]]
    """

    def __init__(
        self,
        top_k: int,
        noise_stddev: float,
        vote_threshold: float,
        clip: float | None = None,
        seed: int | None = None,
        **kwargs: Any,
    ):
        # Gradients near 1e-5 vanish in half precision, so a mixed-precision policy must not cast them.
        super().__init__(**{"autocast": False, **kwargs})
        _validate.between("vote_threshold", vote_threshold, 0, 1)
        TopAgg(num_teachers=1, top_k=top_k, clip=clip, noise_stddev=noise_stddev, vote_threshold=vote_threshold)
        if seed is not None:
            _validate.integer("seed", seed, at_least=0)
        self.top_k = top_k
        self.noise_stddev = noise_stddev
        self.vote_threshold = vote_threshold
        self.clip = clip
        self.seed = seed

    def build(self, input_shape: Sequence[int | None]) -> None:
        """Creates the call counter that keeps two calls with one seed from sharing their noise."""
        _validate.require(len(input_shape) == 3, "input_shape", tuple(input_shape), "to be (teachers, images, numbers)")
        _validate.top_k(self.top_k, input_shape[-1])
        if self.seed is not None:
            self.num_calls = self.add_weight(
                name="num_calls", shape=(), dtype=tf.int64, initializer="zeros", trainable=False)
        super().build(input_shape)

    def call(self, inputs: tf.Tensor) -> tf.Tensor:
        """The three phases."""
        gradients = tf.cast(inputs, tf.float32)
        shape = tf.shape(gradients)
        vote_seed, noise_seed = tf.unstack(tf.random.experimental.stateless_split(self._next_seed(), 2))

        uniforms = tf.random.stateless_uniform([shape[0], shape[1], self.top_k], vote_seed)
        votes = topk_stochastic_sign(gradients, uniforms, self.top_k, self.clip)

        noise = tf.random.stateless_normal(shape[1:], noise_seed)
        noisy = tf.reduce_sum(votes, axis=0) + self.noise_stddev * noise

        bar = self.vote_threshold * tf.cast(shape[0], tf.float32)
        return tf.where(noisy >= bar, 1.0, tf.where(noisy <= -bar, -1.0, 0.0))

    def compute_output_shape(self, input_shape: Sequence[int | None]) -> tf.TensorShape:
        """(m, d)."""
        return tf.TensorShape(input_shape[1:])

    def get_config(self) -> dict[str, Any]:
        """The arguments of `__init__`; a given seed is among them, an entropy seed never is."""
        own = {name: getattr(self, name) for name in ("top_k", "noise_stddev", "vote_threshold", "clip", "seed")}
        return {**super().get_config(), **own}

    def _next_seed(self) -> tf.Tensor:
        """int64 [2], different at every call."""
        if self.seed is None:
            return tf.raw_ops.NonDeterministicInts(shape=[2], dtype=tf.int64)
        return tf.stack([tf.constant(self.seed, tf.int64), self.num_calls.assign_add(1)])
