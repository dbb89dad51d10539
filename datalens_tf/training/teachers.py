"""The teachers' state and their part of a generator step."""

import abc
import collections
import concurrent.futures
import dataclasses
import os
import pathlib
import threading
from collections.abc import Callable, Iterator, Sequence

import numpy as np
import tensorflow as tf

from datalens_tf import rng
from datalens_tf.config import VotingConfig
from datalens_tf.data.datasets import to_unit
from datalens_tf.errors import CheckpointError, InvalidArgumentError, TrainingDivergedError
from datalens_tf.facts import DataSpec
from datalens_tf.mechanisms.base import Mechanism
from datalens_tf.models.discriminator import EnsembleDenseDiscriminator, EnsembleDiscriminator
from datalens_tf.models.ensemble import image_patches
from datalens_tf.models.warp import warp_places
from datalens_tf.options import PerformanceOptions
from datalens_tf.training.adam import adam
from datalens_tf.training.storage import FileStorage, MemoryStorage, Storage

_CHUNK_BYTES = 18 * 2**20  # Weights of one chunk: with gradients and moments they stay near the last-level cache.


class TeachersBehind(Exception):
    """Some teachers lack steps that the others have taken: all is computed again, and only these teachers work."""


@dataclasses.dataclass(frozen=True)
class TeacherRound:
    """Inputs that all teachers share in one optimizer step: public randomness and the generator's output, no records.

    Attributes:
      fakes: float32 [B, Y, H, W, C], images of B latents times Y labels, from which each teacher picks by its records'
        labels: the label alone must not separate real from fake.
      noise: float32 [2B, H, W, C], the instance noise on real and fake images, or None.
      maps: float32 [2, B, 2, 3], maps that warp the real and the fake image at each place of a batch, or None.

    Raises:
      TrainingDivergedError: a fake is NaN or infinite. The generator knows releases only, so everybody may know that it
        diverged. A teacher's own loss must never stop a run, nor show in any other way.
    """

    fakes: np.ndarray
    noise: np.ndarray | None
    maps: np.ndarray | None = None

    def __post_init__(self):
        if not np.isfinite(self.fakes).all():
            raise TrainingDivergedError("Expected the student's images to be finite, got NaN or infinity: lower "
                                        "student_learning_rate.")

    def shared(self) -> tuple[tf.Tensor, tf.Tensor | None, tf.Tensor | None]:
        """Inputs of all teachers: first-layer patches of fakes, warped, and of noise; and the maps for real images."""
        fakes = tf.constant(self.fakes)
        if self.maps is not None:
            of_labels = tf.transpose(fakes, [1, 0, 2, 3, 4])
            fakes = tf.transpose(warp_places(of_labels, tf.constant(self.maps[1])), [1, 0, 2, 3, 4])
        return (image_patches(fakes), None if self.noise is None else image_patches(tf.constant(self.noise)),
                None if self.maps is None else tf.constant(self.maps[0]))


@dataclasses.dataclass(frozen=True)
class _TeacherSettings:
    """The settings that a chunk's computation depends on, under the names that they have in `VotingConfig`."""

    NETWORK: str
    data: DataSpec
    discriminator_filters: int
    discriminator_units: int
    precision: str
    learning_rate: float
    beta_1: float
    beta_2: float

    @classmethod
    def of(cls, config: VotingConfig) -> "_TeacherSettings":
        return cls(**{field.name: getattr(config, field.name) for field in dataclasses.fields(cls)})


class _Chunk:
    """The compiled computation for a fixed number of teachers. Holds work space, not state."""

    def __init__(self, size: int, config: _TeacherSettings, mechanism: Mechanism):
        self._config, self._mechanism = config, mechanism
        self._model = build_teachers(config, size)
        # Compiled, so that every array is read and written once: memory is what limits the speed.
        self._update = tf.function(self._updated, jit_compile=True, autograph=False)
        self.advance = tf.function(self._advance, autograph=False)

    def _advance(self, iterations, state, real_images, real_labels, rounds, vote_images, vote_labels, seeds, step):
        """Trains once per round, votes, and returns the new state, the vote sum [m, d] and losses [T, rounds]."""
        patches, losses = [image_patches(images) for images in real_images], []
        count = len(state) // 3
        state = [*state[:count], *(tf.bitcast(moment, tf.bfloat16) for moment in state[count:])]
        weights = self._rounded(state)
        for i, (fakes, noise, maps) in enumerate(rounds):
            batch = i % len(patches)
            real = patches[batch] if maps is None else image_patches(warp_places(real_images[batch], maps))
            loss, gradients = self._gradients(weights, real, real_labels[batch], fakes, noise)
            state, weights = self._update(state, gradients, iterations + (i + 1))
            losses.append(loss)
        vote_sum = ()
        if vote_images is not None:
            self._load(weights)
            one_hot = tf.one_hot(vote_labels, self._config.data.num_classes)
            vote_sum = tf.reduce_sum(self._mechanism.votes(self._model, vote_images, one_hot, seeds, step), 0)
        state = [*state[:count], *(tf.bitcast(moment, tf.uint16) for moment in state[count:])]
        return state, vote_sum, tf.stack(losses, 1) if rounds else tf.zeros([self._model.num_teachers, 0])

    def _updated(self, state, gradients, step):
        """Adam's new state, and the weights to compute with."""
        state = adam(self._config, state, gradients, step)
        return state, self._rounded(state)

    def _rounded(self, state):
        """The weights in the model's precision, in which gradients arrive as well."""
        return [tf.cast(weight, variable.dtype) for weight, variable in zip(state, self._model.trainable_variables)]

    def _load(self, weights):
        """Makes the model compute with these weights."""
        for variable, value in zip(self._model.trainable_variables, weights):
            variable.assign(value)

    def _gradients(self, weights, real_patches, labels, fakes, noise):
        """Losses [T] on real patches [T, B, P, 25C] with labels [T, B] and on fakes, and gradients of the weights."""
        one_hot = tf.one_hot(labels, self._config.data.num_classes)
        positions = tf.broadcast_to(tf.range(labels.shape[1], dtype=labels.dtype), labels.shape)
        patches = tf.concat([real_patches, tf.gather_nd(fakes, tf.stack([positions, labels], -1))], 1)
        if noise is not None:
            patches += noise
        self._load(weights)
        weights = self._model.trainable_variables
        with tf.GradientTape(watch_accessed_variables=False) as tape:
            tape.watch(weights)
            logits = self._model.from_patches(patches, tf.concat([one_hot, one_hot], 1), groups=2)
            real, fake = tf.split(logits, 2, 1)
            losses = tf.reduce_mean(tf.nn.softplus(-real), 1) + tf.reduce_mean(tf.nn.softplus(fake), 1)
            total = tf.reduce_sum(losses)  # A sum: each teacher's gradient is that of its own loss alone.
        return losses, tape.gradient(total, weights)


_IDLE: dict[tuple, list[_Chunk]] = collections.defaultdict(list)
_BUILDING = threading.Lock()


def build_teachers(config: VotingConfig | _TeacherSettings, size: int
                   ) -> EnsembleDiscriminator | EnsembleDenseDiscriminator:
    """The discriminators of `size` teachers."""
    if config.NETWORK == "dense":
        return EnsembleDenseDiscriminator(
            size, *config.data, units=config.discriminator_units, precision=config.precision)
    return EnsembleDiscriminator(
        size, *config.data, filters=config.discriminator_filters,
        units=config.discriminator_units, precision=config.precision)


class Bank(abc.ABC):
    """All N teachers, wherever their state is, as a `Trainer` sees them.

    Attributes:
      batch_size: records in a teacher's batch.
      iterations: optimizer steps that all teachers have taken. Where a state outlives the process, some may be ahead:
        their steps are not repeated.
      persistent: whether the state outlives the process, and needs no snapshots.
      num_arrays: number of arrays [N, ...] that the state consists of, as far as it is in this process.
    """

    batch_size: int
    iterations: int

    @property
    @abc.abstractmethod
    def persistent(self) -> bool:
        """Whether the state is a file that outlives the process, and needs no snapshots."""
        ...

    @property
    @abc.abstractmethod
    def num_arrays(self) -> int:
        """Number of arrays [N, ...] that the state consists of."""
        ...

    @abc.abstractmethod
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
          The vote sum, float64 [m, d] (None where nobody voted, and for owners, who show none), and the teachers'
          losses, float32 [N or 0, len(rounds)] (private; NaN where a persistent state had taken the step before).
        """

    def noisy_sum(self) -> np.ndarray | None:
        """The sum of the owners' noisy votes of the last round, float64 [m, d]; None where an owner was lost."""
        raise InvalidArgumentError("Expected owners to have voted: these teachers have none.")

    @abc.abstractmethod
    def blocks(self, index: int) -> Iterator[np.ndarray]:
        """Array `index` of the state, block by block along the teacher axis. Views, not copies."""

    def replace(self, index: int, read: Callable[[int], bytes]) -> None:
        """Replaces array `index` of a state in memory; `read` returns as many raw bytes as it is asked for."""
        for block in self.blocks(index):
            block[...] = np.frombuffer(read(block.nbytes), block.dtype).reshape(block.shape)

    @abc.abstractmethod
    def flush(self) -> None:
        """Makes a persistent state durable."""

    @abc.abstractmethod
    def close(self) -> None:
        """Ends what was started for the teachers."""


class TeacherBank(Bank):
    """All N teachers in this process: weights, Adam moments (bfloat16), records; arrays have the teacher axis first.

    Teachers are visited in chunks. Each visit reads and writes a teacher's state once, takes all its optimizer steps,
    differentiates with respect to the images, compresses and adds to the vote sum. Only the sum leaves.

    Args:
      config: resolved settings (image_shape and num_classes known).
      images: records [n, H, W, C], uint8 or float32 in [0, 1].
      labels: int64 [n].
      partitions: record indices [N, records per teacher], disjoint. Fewer rows make a bank of fewer teachers.
      mechanism: compresses the image gradients into votes.
      options: chunk size, threads, and the memory above which the state lives in a file.
      path: that file; None keeps the state in memory.
      first_teacher: number of the first row's teacher among all N. A teacher's number seeds its quantisation.

    Raises:
      CheckpointError: the file cannot be used.
    """

    def __init__(self, config: VotingConfig, images: np.ndarray, labels: np.ndarray, partitions: np.ndarray,
                 mechanism: Mechanism, options: PerformanceOptions = PerformanceOptions(),
                 path: pathlib.Path | None = None, first_teacher: int = 0):
        self._config, self._mechanism, self._first_teacher = config, mechanism, first_teacher
        self._images, self._labels, self._partitions = images, labels, partitions
        self._workers = options.num_threads or 1
        self._iterations = 0
        self.num_teachers = len(partitions)
        self.batch_size = min(partitions.shape[1], config.teacher_batch_size)
        first = self._initial_teacher()
        chunk_size = min(options.chunk_size or max(1, _CHUNK_BYTES // sum(w.nbytes for w in first)),
                         self.num_teachers)
        self._spans = [slice(start, min(start + chunk_size, self.num_teachers))
                       for start in range(0, self.num_teachers, chunk_size)]
        moments = [np.zeros(w.shape, np.uint16) for w in first]  # Bits of bfloat16, which numpy does not have.
        sizes, initial = [span.stop - span.start for span in self._spans], [*first, *moments, *moments]
        if path is None or sum(a.nbytes for a in initial) * self.num_teachers <= _memory_limit(options):
            self._storage: Storage = MemoryStorage(sizes, initial)
        else:
            self._storage = FileStorage(sizes, initial, path, self._workers)

    def _initial_teacher(self) -> list[np.ndarray]:
        """One public draw that every teacher starts from: it holds no records, and makes votes comparable."""
        tf.keras.utils.set_random_seed(int(rng.tensorflow_seed(self._config.seed, "teachers")[0]))
        full = self._config.replace(precision="float32")
        return [w.numpy()[0] for w in build_teachers(full, 1).trainable_variables]

    @property
    def iterations(self) -> int:
        """Optimizer steps that all teachers have taken. In a file, some may be ahead: their steps are not repeated."""
        return self._iterations

    @iterations.setter
    def iterations(self, value: int) -> None:
        if not self.persistent:
            self._storage.iterations[:] = value
        elif self.completed < value:
            raise CheckpointError("The teachers' file is older than the student's snapshot: delete both, and --resume "
                                  "computes the state again from stored releases.")
        self._iterations = value

    @property
    def completed(self) -> int:
        """Optimizer steps that every teacher's stored state has taken: `iterations`, or more in a file."""
        return int(self._storage.iterations.min())

    @property
    def persistent(self) -> bool:
        """Whether the state is a file that outlives the process, and needs no snapshots."""
        return self._storage.persistent

    def flush(self) -> None:
        """Makes a persistent state durable."""
        self._storage.flush()

    def close(self) -> None:
        """Nothing to end here."""

    @property
    def num_arrays(self) -> int:
        """Number of arrays [N, ...] that the state consists of."""
        return len(self._storage.initial)

    def blocks(self, index: int) -> Iterator[np.ndarray]:
        """Array `index` of the state, block by block along the teacher axis. Views, not copies."""
        for number in range(len(self._spans)):
            yield self._storage.read(number)[index]

    def _batch_positions(self, count: int) -> list[np.ndarray]:
        """Positions of the next batches in every partition, public, the same for all teachers; one if all are equal."""
        size = self._partitions.shape[1]
        if self.batch_size == size:
            return [np.arange(size)]
        return [rng.stream(self._config.seed, "batch", self.iterations + i).permutation(size)[:self.batch_size]
                for i in range(count)]

    def advance(self, rounds: Sequence[TeacherRound], vote_images: tf.Tensor | None = None,
                vote_labels: tf.Tensor | None = None, step: int = 0,
                progress: Callable[[float], None] = lambda fraction: None) -> tuple[np.ndarray | None, np.ndarray]:
        """Trains and votes; see `Bank.advance`.

        A teacher that diverged has losses that are not finite. It goes on, and votes as `Mechanism.compress` says of
        such gradients: one record can make its teacher diverge, so nothing that others see may depend on it.
        """
        positions = self._batch_positions(len(rounds))
        losses = np.full([self.num_teachers, len(rounds)], np.nan, np.float32)
        vote_sum, inputs = None, [shared.shared() for shared in rounds]
        with concurrent.futures.ThreadPoolExecutor(self._workers) as executor:
            visits = executor.map(
                lambda number: self._visit(number, positions, inputs, vote_images, vote_labels, step),
                range(len(self._spans)))
            for span, (votes, new_losses) in zip(self._spans, visits):
                if votes is not None:  # Integers: the sum is exact in any order.
                    vote_sum = votes if vote_sum is None else vote_sum + votes
                losses[span, len(rounds) - new_losses.shape[1]:] = new_losses
                progress(span.stop / self.num_teachers)
        self._iterations += len(rounds)
        return vote_sum, losses

    def _visit(self, number, positions, rounds, vote_images, vote_labels, step):
        """One chunk's part of `advance`: computes from its state and replaces it. Runs in a worker thread."""
        span, seeds = self._spans[number], None
        done = int(self._storage.iterations[number]) - self._iterations  # Steps taken before the process was killed.
        if done >= len(rounds) and vote_images is None:
            return None, np.zeros([span.stop - span.start, 0], np.float32)
        self._storage.prefetch((number + self._workers) % len(self._spans))
        chunk = self._borrow(span.stop - span.start)
        if vote_images is not None:
            seeds = tf.constant([rng.tensorflow_seed(self._config.seed, "votes", step, self._first_teacher + teacher)
                                 for teacher in range(span.start, span.stop)])
        records = [self._partitions[span][:, chosen] for chosen in positions[done if len(positions) > 1 else 0:]]
        new, votes, losses = chunk.advance(
            tf.constant(self._iterations + done, tf.int64), [_alias(a) for a in self._storage.read(number)],
            [tf.constant(to_unit(self._images[r])) for r in records], [tf.constant(self._labels[r]) for r in records],
            rounds[done:], vote_images, vote_labels, seeds, tf.constant(step, tf.int32))
        if rounds[done:]:
            self._storage.write(number, [_host(tensor) for tensor in new], self._iterations + len(rounds))
        self._idle(span.stop - span.start).append(chunk)
        return None if vote_images is None else votes.numpy().astype(np.float64), losses.numpy()

    def _borrow(self, size: int) -> _Chunk:
        """Work space for this many teachers that no other thread uses."""
        try:
            return self._idle(size).pop()
        except IndexError:
            with _BUILDING:
                return _Chunk(size, _TeacherSettings.of(self._config), self._mechanism)

    def _idle(self, size: int) -> list[_Chunk]:
        """Work space for this many teachers that is not in use; all banks share it, because compiling takes seconds."""
        return _IDLE[size, _TeacherSettings.of(self._config), self._mechanism]


def _memory_limit(options: PerformanceOptions) -> float:
    """Bytes that the state may take in memory."""
    if options.bank_memory_gb is not None:
        return options.bank_memory_gb * 2**30
    return 0.8 * os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")


def _alias(array: np.ndarray) -> tf.Tensor:
    """A tensor that shares an array's memory, to be used before the array changes."""
    return tf.experimental.dlpack.from_dlpack(array.__dlpack__())


def _host(tensor: tf.Tensor) -> np.ndarray:
    """The tensor's values in main memory; they are not copied where they are there already."""
    with tf.device("CPU:0"):
        return np.asarray(memoryview(tf.identity(tensor)))
