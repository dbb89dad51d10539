"""Settings of the methods beside DataLens whose teachers vote, each with a part of the records."""

import dataclasses
import typing

from datalens_tf import _validate
from datalens_tf.config import PRECISIONS, MethodConfig, check_top_k


@dataclasses.dataclass(frozen=True, kw_only=True)
class PateConfig(MethodConfig):
    """Settings of the methods whose teachers vote, beside DataLens (private aggregation of teacher ensembles).

    Attributes:
      num_teachers: teacher discriminators [N], one per disjoint partition.
      batch_size: synthetic images that the teachers vote on per step [m].
      num_steps: steps, each with one release; fewer where the budget does not pay for them.
      noise_stddev: standard deviation of the noise on the number of votes for an answer; None calibrates it to the
        budget and num_steps.
      teacher_batch_size: records in a teacher's batch; smaller partitions are used whole.
      warmup_teacher_steps: optimizer steps of every teacher before the first generator step. Free in privacy.
      teacher_steps: optimizer steps of every teacher per generator step.
      instance_noise: standard deviation of the noise added to real and fake images when teachers train, in pixel
        units; 0 for none. It keeps teachers from memorising their few records. Public randomness, shared by all
        teachers; no part of the privacy noise.
      discriminator_filters, discriminator_units: widths of a teacher's convolutions and of its dense layer.
      precision: of the teachers' matrix products, `float32` or `mixed_bfloat16`.
      learning_rate, beta_1, beta_2: the teachers' Adam. beta_2 <= 0.99, so that bfloat16 second moments still decay.
      partition_seed: public seed of the assignment of records to partitions.
    """

    num_teachers: int = 1000
    batch_size: int = 32
    num_steps: int = 500
    noise_stddev: float | None = None
    teacher_batch_size: int = 32
    warmup_teacher_steps: int = 30
    teacher_steps: int = 1
    instance_noise: float = 0.3
    discriminator_filters: int = 8
    discriminator_units: int = 32
    precision: str = "float32"
    learning_rate: float = 1e-3
    beta_1: float = 0.5
    beta_2: float = 0.99
    partition_seed: int = 0
    generator_filters: int = 32
    generator_units: int = 256
    ema_decay: float = 0.99

    num_owners: typing.ClassVar[None] = None  # All records are with one party.

    def __post_init__(self):
        super().__post_init__()
        v = _validate
        for name in ("num_teachers", "batch_size", "num_steps", "teacher_batch_size", "teacher_steps",
                     "discriminator_filters", "discriminator_units"):
            v.integer(name, getattr(self, name), at_least=1)
        for name in ("warmup_teacher_steps", "partition_seed"):
            v.integer(name, getattr(self, name), at_least=0)
        if self.noise_stddev is not None:
            v.positive("noise_stddev", self.noise_stddev)
        v.real("instance_noise", self.instance_noise)
        v.require(self.instance_noise >= 0, "instance_noise", self.instance_noise, ">= 0")
        v.positive("learning_rate", self.learning_rate)
        v.between("beta_1", self.beta_1, 0, 1, open_high=True)
        v.between("beta_2", self.beta_2, 0, 0.99)
        v.one_of("precision", self.precision, PRECISIONS)


@dataclasses.dataclass(frozen=True, kw_only=True)
class PateGanConfig(PateConfig):
    """Settings of PATE-GAN.

    Attributes:
      student_steps: steps of the student discriminator, each followed by one of the generator, per release. They
        learn from the labels released so far: post-processing, free in privacy.
      student_batch_size: images in each of these steps.
      replay_releases: how many of the latest releases the student discriminator learns from.
      student_discriminator_learning_rate: of the student discriminator's Adam.
    """

    method: str = "pate_gan"
    student_steps: int = 5
    student_batch_size: int = 64
    replay_releases: int = 20
    student_discriminator_learning_rate: float = 5e-4
    student_learning_rate: float = 5e-4

    METHODS: typing.ClassVar[tuple[str, ...]] = ("pate_gan",)
    CHOSEN: typing.ClassVar[str] = (
        "num_teachers, instance_noise, learning rates and numbers of steps were chosen on MNIST, whose real test split "
        "was looked at.")
    CHOSEN_ON: typing.ClassVar[tuple[str, ...]] = ("mnist",)

    def __post_init__(self):
        super().__post_init__()
        for name in ("student_steps", "student_batch_size", "replay_releases"):
            _validate.integer(name, getattr(self, name), at_least=1)
        _validate.positive("student_discriminator_learning_rate", self.student_discriminator_learning_rate)


@dataclasses.dataclass(frozen=True, kw_only=True)
class PateCganConfig(PateGanConfig):
    """Settings of PATE-CGAN.

    Attributes:
      discriminator_units: width of a discriminator's hidden layer.
      discriminator_filters: none here: layers are dense.
      vote_threshold: fraction of N that the noisy larger number of votes for an answer must reach, in [0, 1].
      threshold_noise_ratio: standard deviation of the noise on that number, divided by noise_stddev.
    """

    method: str = "pate_cgan"
    num_teachers: int = 10
    num_steps: int = 100
    discriminator_units: int = 128
    vote_threshold: float = 0.7
    threshold_noise_ratio: float = 1.0

    METHODS: typing.ClassVar[tuple[str, ...]] = ("pate_cgan",)
    CHOSEN: typing.ClassVar[str] = (
        "vote_threshold, threshold_noise_ratio, learning rates and numbers of steps were chosen on MNIST, whose real "
        "test split was looked at.")
    CHOSEN_ON: typing.ClassVar[tuple[str, ...]] = ("mnist",)
    NETWORK: typing.ClassVar[str] = "dense"

    def __post_init__(self):
        super().__post_init__()
        _validate.positive("threshold_noise_ratio", self.threshold_noise_ratio)
        _validate.between("vote_threshold", self.vote_threshold, 0, 1)


@dataclasses.dataclass(frozen=True, kw_only=True)
class GPateConfig(PateConfig):
    """Settings of G-PATE.

    Attributes:
      projection_dim: random directions per step on which teachers vote, for each image [p].
      num_bins: bins of a projected gradient, of which each teacher chooses one [B].
      clip: bound on a projected gradient [c], of the size of a pixel's, for gradients divided by m.
      vote_threshold: fraction of N that the noisy largest number of votes for a bin must reach, in [0, 1].
      threshold_noise_ratio: standard deviation of the noise on that number, divided by noise_stddev.
      step_size: how far an image is moved along the released direction [gamma], in pixel units.
    """

    method: str = "g_pate"
    num_teachers: int = 4000
    batch_size: int = 15
    num_steps: int = 100
    teacher_batch_size: int = 15
    projection_dim: int = 100
    num_bins: int = 10
    clip: float = 1e-4
    vote_threshold: float = 0.2
    threshold_noise_ratio: float = 3.0
    step_size: float = 1e-3
    instance_noise: float = 1.0
    ema_decay: float = 0.9

    METHODS: typing.ClassVar[tuple[str, ...]] = ("g_pate",)
    CHOSEN: typing.ClassVar[str] = (
        "num_teachers is the G-PATE authors'. clip, num_bins, projection_dim, vote_threshold, threshold_noise_ratio "
        "and how teachers are trained were chosen on MNIST, whose real test split was looked at.")
    CHOSEN_ON: typing.ClassVar[tuple[str, ...]] = ("mnist",)

    def __post_init__(self):
        super().__post_init__()
        _validate.integer("projection_dim", self.projection_dim, at_least=1)
        _validate.integer("num_bins", self.num_bins, at_least=2)
        for name in ("clip", "threshold_noise_ratio", "step_size"):
            _validate.positive(name, getattr(self, name))
        _validate.between("vote_threshold", self.vote_threshold, 0, 1)


@dataclasses.dataclass(frozen=True, kw_only=True)
class CompressedConfig(PateConfig):
    """Settings of DataLens with another compressor than TopAgg.

    Attributes:
      clip: per-coordinate gradient clip [c], for gradients divided by m; None leaves gradients unclipped.
      step_size: how far an image is moved along the released direction [gamma], in pixel units.
    """

    num_teachers: int = 4000
    batch_size: int = 15
    num_steps: int = 100
    teacher_batch_size: int = 15
    clip: float | None = 1e-5
    step_size: float = 1e-3
    instance_noise: float = 1.0
    ema_decay: float = 0.9

    def __post_init__(self):
        super().__post_init__()
        if self.clip is not None:
            _validate.positive("clip", self.clip)
        _validate.positive("step_size", self.step_size)


@dataclasses.dataclass(frozen=True, kw_only=True)
class D2PFedConfig(CompressedConfig):
    """Settings of D2P-Fed.

    Attributes:
      num_levels: stochastic levels of a rotated coordinate [K], at least 2. More of them cost nothing.
      vote_threshold: fraction of the largest sum there could be, N (K - 1), that a noisy one must reach to count
        [beta], in [0, 1].
      noise_stddev: standard deviation of the noise on the sum of votes, which are integers from -(K - 1) to K - 1, two
        apart; None calibrates it to the budget and num_steps.
    """

    method: str = "d2pfed"
    num_levels: int = 16
    vote_threshold: float = 0.5

    METHODS: typing.ClassVar[tuple[str, ...]] = ("d2pfed",)
    CHOSEN: typing.ClassVar[str] = (
        "num_teachers, clip and step_size are those that the DataLens authors have for MNIST, and teachers are trained "
        "as they are for datalens, which was chosen on MNIST, whose real test split was looked at. On which data "
        "num_levels and vote_threshold were chosen was not recorded; take it that it was MNIST.")
    CHOSEN_ON: typing.ClassVar[tuple[str, ...]] = ("mnist",)

    def __post_init__(self):
        super().__post_init__()
        _validate.integer("num_levels", self.num_levels, at_least=2)
        _validate.between("vote_threshold", self.vote_threshold, 0, 1)


@dataclasses.dataclass(frozen=True, kw_only=True)
class FetchSgdConfig(CompressedConfig):
    """Settings of FetchSGD.

    Attributes:
      top_k: coordinates each teacher votes on, per image, and coordinates of the direction [k].
      sketch_rows: independent hashes of the sketch [r]; the price grows with sqrt(r).
      sketch_columns: buckets per row [w]; the price grows with sqrt(q), for q coordinates in a bucket.
      noise_stddev: standard deviation of the noise on the summed sketch, in votes; None calibrates it to the budget
        and num_steps.
    """

    method: str = "fetchsgd"
    top_k: int = 200
    sketch_rows: int = 3
    sketch_columns: int = 512

    METHODS: typing.ClassVar[tuple[str, ...]] = ("fetchsgd",)
    CHOSEN: typing.ClassVar[str] = (
        "num_teachers, top_k, clip and step_size are those that the DataLens authors have for MNIST, and teachers are "
        "trained as they are for datalens, which was chosen on MNIST, whose real test split was looked at. On which "
        "data sketch_rows and sketch_columns were chosen was not recorded; take it that it was MNIST.")
    CHOSEN_ON: typing.ClassVar[tuple[str, ...]] = ("mnist",)

    def __post_init__(self):
        super().__post_init__()
        for name in ("top_k", "sketch_rows", "sketch_columns"):
            _validate.integer(name, getattr(self, name), at_least=1)
        if self.image_shape is not None:
            check_top_k(self.top_k, self.image_shape)
