"""The teachers' state and their part of a generator step."""

import dataclasses
from typing import Callable, Iterator, Sequence

import numpy as np
import tensorflow as tf

from datalens_tf import rng
from datalens_tf.config import DataLensConfig, PerformanceOptions
from datalens_tf.data.datasets import to_unit
from datalens_tf.errors import TrainingDivergedError
from datalens_tf.mechanisms.base import Mechanism
from datalens_tf.models.discriminator import EnsembleDiscriminator
from datalens_tf.models.ensemble import conv_patches

_CHUNK_BYTES = 18 * 2**20  # Weights of one chunk: with gradients and moments they stay near the last-level cache.
_BFLOAT16 = tf.bfloat16.as_numpy_dtype


@dataclasses.dataclass(frozen=True)
class TeacherRound:
    """What all teachers share in one optimizer step: public randomness and the generator's output, no records.

    Attributes:
      fakes: first-layer patches [B, Y, H/2 * W/2, 25 * C] of B latents times Y labels, from which each teacher picks
        by its records' labels: the label alone must not separate real from fake.
      noise: first-layer patches [2B, H/2 * W/2, 25 * C] of the instance noise on real and fake images, or None.
    """

    fakes: tf.Tensor
    noise: tf.Tensor | None

    @classmethod
    def from_images(cls, images: tf.Tensor, noise: tf.Tensor | None = None) -> "TeacherRound":
        """From fakes [B, Y, H, W, C] and noise [2B, H, W, C]."""
        return cls(conv_patches(images), None if noise is None else conv_patches(noise))


class _Chunk:
    """The compiled computation for a fixed number of teachers. Holds work space, not state."""

    def __init__(self, size: int, config: DataLensConfig, mechanism: Mechanism):
        self._config, self._mechanism = config, mechanism
        self.model = build_teachers(config, size)
        self.optimizer = tf.keras.optimizers.legacy.Adam(
            config.learning_rate, beta_1=config.beta_1, beta_2=config.beta_2, epsilon=1e-8)
        self.weights = self.model.trainable_variables
        self.optimizer._create_all_weights(self.weights)  # pylint: disable=protected-access
        self.moments = [self.optimizer.get_slot(w, slot) for slot in ("m", "v") for w in self.weights]
        self.advance = tf.function(self._advance)

    def train(self, real_patches, labels, fakes, noise):
        """One optimizer step of every teacher on real [T, B, P, 25C] with labels [T, B]; returns losses [T]."""
        one_hot = tf.one_hot(labels, self._config.num_classes)
        positions = tf.broadcast_to(tf.range(labels.shape[1], dtype=labels.dtype), labels.shape)
        fake_patches = tf.gather_nd(fakes, tf.stack([positions, labels], -1))
        patches = tf.concat([real_patches, fake_patches], 1)
        if noise is not None:
            patches += noise
        with tf.GradientTape(watch_accessed_variables=False) as tape:
            tape.watch(self.weights)
            logits = self.model.from_patches(patches, tf.concat([one_hot, one_hot], 1), groups=2)
            real, fake = tf.split(logits, 2, 1)
            losses = tf.reduce_mean(tf.nn.softplus(-real), 1) + tf.reduce_mean(tf.nn.softplus(fake), 1)
            total = tf.reduce_sum(losses)  # A sum: each teacher's gradient is that of its own loss alone.
        self.optimizer.apply_gradients(zip(tape.gradient(total, self.weights), self.weights))
        return losses

    def _advance(self, iterations, weights, moments, real_images, real_labels, rounds, vote_images, vote_labels, seeds):
        """Loads the state, trains once per round, votes, and returns the new state, vote sum [m, d] and losses."""
        for variable, value in zip(self.weights, weights):
            variable.assign(value)
        for variable, value in zip(self.moments, moments):
            variable.assign(tf.cast(value, tf.float32))
        self.optimizer.iterations.assign(iterations)
        patches = [conv_patches(images) for images in real_images]
        losses = [self.train(patches[i % len(patches)], real_labels[i % len(patches)], *shared)
                  for i, shared in enumerate(rounds)]
        vote_sum = ()
        if vote_images is not None:
            gradients = self.model.image_gradients(vote_images, tf.one_hot(vote_labels, self._config.num_classes))
            flat = tf.reshape(gradients, [self.model.num_teachers, tf.shape(vote_images)[0], -1])
            vote_sum = tf.reduce_sum(self._mechanism.compress(flat, seeds), 0)
        return ([w.read_value() for w in self.weights],
                [tf.cast(m, tf.bfloat16) for m in self.moments], vote_sum, losses)


def build_teachers(config: DataLensConfig, size: int) -> EnsembleDiscriminator:
    """The discriminators of `size` teachers."""
    return EnsembleDiscriminator(
        size, config.image_shape, config.num_classes, filters=config.discriminator_filters,
        units=config.discriminator_units, precision=config.precision)


class TeacherBank:
    """All N teachers: weights, Adam moments (bfloat16) and records, as arrays with the teacher axis first.

    Teachers are visited in chunks. Each visit reads and writes a teacher's state once, takes all its optimizer steps,
    differentiates with respect to the images, compresses and adds to the vote sum. Only the sum leaves.

    Args:
      config: resolved settings (image_shape and num_classes known).
      images: records [n, H, W, C], uint8 or float32 in [0, 1].
      labels: int64 [n].
      partitions: record indices [N, records per teacher], disjoint.
      mechanism: compresses the image gradients into votes.
      options: chunk size.
    """

    def __init__(self, config: DataLensConfig, images: np.ndarray, labels: np.ndarray, partitions: np.ndarray,
                 mechanism: Mechanism, options: PerformanceOptions = PerformanceOptions()):
        self._config, self._mechanism = config, mechanism
        self._images, self._labels, self._partitions = images, labels, partitions
        self._chunks: dict[int, _Chunk] = {}
        self.iterations = 0
        self.batch_size = min(partitions.shape[1], config.teacher_batch_size)
        self.weights = self._initial_weights()
        self.moments = [np.zeros(w.shape, _BFLOAT16) for _ in ("m", "v") for w in self.weights]
        bytes_per_teacher = sum(w[0].nbytes for w in self.weights)
        self.chunk_size = min(options.chunk_size or max(1, _CHUNK_BYTES // bytes_per_teacher), config.num_teachers)

    def _initial_weights(self) -> list[np.ndarray]:
        """One public draw that every teacher starts from: it holds no records, and makes votes comparable."""
        config = self._config
        tf.keras.utils.set_random_seed(int(rng.tensorflow_seed(config.seed, "teachers")[0]))
        model = build_teachers(config, 1)
        return [np.repeat(w.numpy(), config.num_teachers, axis=0) for w in model.trainable_variables]

    def _spans(self) -> Iterator[slice]:
        for start in range(0, self._config.num_teachers, self.chunk_size):
            yield slice(start, min(start + self.chunk_size, self._config.num_teachers))

    def _batch_positions(self, count: int) -> list[np.ndarray]:
        """Positions in every partition of the next batches, public, the same for all teachers; one if all are equal."""
        size = self._partitions.shape[1]
        if self.batch_size == size:
            return [np.arange(size)]
        return [rng.stream(self._config.seed, "batch", self.iterations + i).permutation(size)[:self.batch_size]
                for i in range(count)]

    def advance(self, rounds: Sequence[TeacherRound], vote_images: tf.Tensor | None = None,
                vote_labels: tf.Tensor | None = None, step: int = 0,
                progress: Callable[[float], None] = lambda fraction: None) -> tuple[np.ndarray | None, np.ndarray]:
        """Every teacher takes one optimizer step per round; then, given images, all vote on them.

        Args:
          rounds: one for each optimizer step.
          vote_images: m synthetic images [m, H, W, C], or None to train only.
          vote_labels: their labels, int [m].
          step: generator step, which seeds the stochastic quantisation.
          progress: called with the fraction of teachers done.

        Returns:
          The vote sum, float64 [m, d] (or None), and the teachers' losses, float32 [N, len(rounds)] (private).

        Raises:
          TrainingDivergedError: a loss is NaN or infinite.
        """
        positions = self._batch_positions(len(rounds))
        losses = np.zeros([self._config.num_teachers, len(rounds)], np.float32)
        vote_sum = None
        for span in self._spans():
            votes, losses[span] = self._visit(span, positions, rounds, vote_images, vote_labels, step)
            if votes is not None:
                vote_sum = votes if vote_sum is None else vote_sum + votes
            progress(span.stop / self._config.num_teachers)
        self.iterations += len(rounds)
        if not np.isfinite(losses).all():
            raise TrainingDivergedError(
                f"Expected finite teacher losses, got NaN or infinity at teacher step {self.iterations}; "
                "lower learning_rate and train again.")
        return vote_sum, losses

    def _visit(self, span, positions, rounds, vote_images, vote_labels, step):
        """One chunk's part of `advance`: reads its state, computes, writes its state."""
        size, seeds = span.stop - span.start, None
        if size not in self._chunks:
            self._chunks[size] = _Chunk(size, self._config, self._mechanism)
        if vote_images is not None:
            seeds = np.stack([rng.tensorflow_seed(self._config.seed, "votes", step, teacher)
                              for teacher in range(span.start, span.stop)])
        records = [self._partitions[span][:, chosen] for chosen in positions]
        weights, moments, votes, losses = self._chunks[size].advance(
            tf.constant(self.iterations, tf.int64), [w[span] for w in self.weights], [m[span] for m in self.moments],
            [to_unit(self._images[r]) for r in records], [self._labels[r] for r in records],
            [(shared.fakes, shared.noise) for shared in rounds],
            vote_images, vote_labels, seeds)
        for mine, new in zip(self.weights + self.moments, weights + moments):
            mine[span] = new.numpy()
        votes = votes.numpy().astype(np.float64) if vote_images is not None else None
        return votes, np.stack([loss.numpy() for loss in losses], 1)
