"""Settings of the methods beside DataLens, and all methods' settings by name."""

import dataclasses
import typing
from typing import Mapping

from datalens_tf import _files, _validate
from datalens_tf.config import PRECISIONS, DataLensConfig, MethodConfig, check_top_k
from datalens_tf.errors import InvalidArgumentError


@dataclasses.dataclass(frozen=True, kw_only=True)
class DpMerfConfig(MethodConfig):
    """Settings of DP-MERF.

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

    method: str = "dp_merf"
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

    METHODS: typing.ClassVar[tuple[str, ...]] = ("dp_merf",)

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
        return _numbers("bandwidths", self.bandwidths)


@dataclasses.dataclass(frozen=True, kw_only=True)
class DataLensPlusConfig(DpMerfConfig):
    """Settings of DataLens+: generators from private sums, warps, and a private choice among their combinations.

    Those of `DpMerfConfig` are for the source `embedding`; bandwidths and clips are for 28x28 grey images, in pixel
    units, and other sizes scale them by the square root of the numbers in an image. Every charge costs the same. A
    release that so many charges pay for has as much less noise: n charges of noise multiplier z are one of z / sqrt(n).
    So the numbers of charges are shares of mu^2, and public constants.

    Attributes:
      candidates: what to choose from: SOURCE:WARP or SOURCE:WARP:GRAIN, comma-separated. Sources are `moments`,
        Gaussians of each class's mean and covariance; `embedding`, a generator fitted to mean embeddings as in DP-MERF;
        and `both`, each for half of the images. Warps say how far images are moved, in units of a handwritten digit's
        usual variation, and grain is the mean standard deviation of noise on pixels in [0, 1]: public priors. The one
        whose images make the best classifier of the records is taken; or the first, where interruptions burnt the
        charges for choosing.
      embedding_charges: charges for the classes' mean embeddings; 0 where no candidate has them.
      learned_share: share of the features' squared length that a network's have, which learned from images of the
        moments; the rest is random features'. 0 for these alone, and then the moments are needed for candidates only.
      learned_warp: how far those images are moved.
      mean_charges: charges for the classes' mean images and sizes; 0 where the moments are not needed.
      covariance_charges: charges for the covariances of classes, or of clusters; the same.
      num_clusters: Gaussians per class. 1: of images at half the resolution. More: of images at their own, in the
        directions of largest variance; only with little noise.
      direction_charges: charges for these directions; 0 for one Gaussian per class.
      num_directions: how many.
      cluster_charges: charges for each round in which clusters are looked for; 0 for one Gaussian per class.
      cluster_rounds: how many.
      mean_clip, covariance_clip, cluster_clip: l2 norms that images, their differences from their class's mean, and
        those from their cluster's, are shortened to.
      num_factors: directions, at most, in which images of one Gaussian vary.
      selection_charges: charges for choosing; 0 where there is nothing to choose.
      selection_images, selection_epochs: how long each of the classifiers by which to choose is trained, and the
        network of learned features.
      noise_multiplier: standard deviation of the noise of one charge divided by the sensitivity; None calibrates it to
        the budget.
    """

    method: str = "datalens_plus"
    candidates: str = ("moments:0:0.15,moments:1.5:0.15,embedding:0:0.15,embedding:1.5:0.15,both:0:0.15,"
                       "both:1.5:0.15")
    embedding_charges: int = 58
    learned_share: float = 0.75
    learned_warp: float = 1.5
    mean_charges: int = 6
    covariance_charges: int = 34
    num_clusters: int = 1
    direction_charges: int = 0
    num_directions: int = 80
    cluster_charges: int = 0
    cluster_rounds: int = 5
    mean_clip: float = 12.0
    covariance_clip: float = 6.5
    cluster_clip: float = 4.5
    num_factors: int = 64
    batch_size: int = 300
    fit_steps: int = 2000
    selection_charges: int = 2
    selection_images: int = 20_000
    selection_epochs: int = 4

    METHODS: typing.ClassVar[tuple[str, ...]] = ("datalens_plus",)
    SOURCES: typing.ClassVar[dict[str, tuple[str, ...]]] = {
        "moments": ("moments",), "embedding": ("embedding",), "both": ("moments", "embedding")}

    def __post_init__(self):
        super().__post_init__()
        v = _validate
        for name, least in (("num_factors", 1), ("selection_charges", 0), ("selection_images", 1),
                            ("selection_epochs", 1), ("num_clusters", 1), ("num_directions", 1), ("cluster_rounds", 1)):
            v.integer(name, getattr(self, name), at_least=least)
        for name in ("mean_clip", "covariance_clip", "cluster_clip"):
            v.positive(name, getattr(self, name))
        v.require(self.autoencoder_dim == 0, "autoencoder_dim", self.autoencoder_dim, "to be 0 for datalens_plus")
        v.one_of("latent_distribution", self.latent_distribution, ("normal",))
        v.between("learned_share", self.learned_share, 0, 1)
        v.real("learned_warp", self.learned_warp)
        v.require(self.learned_warp >= 0, "learned_warp", self.learned_warp, ">= 0")
        used = {source for sources, _, _ in self.choices for source in sources}
        if "embedding" in used and self.learned_share > 0:
            used.add("moments")
        for name, source in (("embedding_charges", "embedding"), ("mean_charges", "moments"),
                             ("covariance_charges", "moments")):
            v.integer(name, getattr(self, name), at_least=0)
            v.require((getattr(self, name) > 0) == (source in used), name, getattr(self, name),
                      f"> 0 for candidates={self.candidates}" if source in used else
                      f"to be 0: no candidate of {self.candidates} has {source}")
        clusters = self.num_clusters > 1 and "moments" in used
        for name in ("direction_charges", "cluster_charges"):
            v.integer(name, getattr(self, name), at_least=0)
            v.require((getattr(self, name) > 0) == clusters, name, getattr(self, name),
                      f"> 0 for num_clusters={self.num_clusters}" if clusters else
                      "to be 0: there are no clusters to find")
        one = len(self.choices) == 1
        v.require((self.selection_charges == 0) == one, "selection_charges", self.selection_charges,
                  "to be 0: there is one candidate" if one else f"> 0, to choose among {self.candidates}")

    @classmethod
    def for_budget(cls, epsilon: float | None) -> "DataLensPlusConfig":
        """From epsilon 5 on, where noise hides little, the budget goes to clusters: an embedding adds nothing."""
        if epsilon is None or epsilon < 5:
            return super().for_budget(epsilon)
        return cls(epsilon=epsilon, embedding_charges=0, num_clusters=16, mean_charges=4, direction_charges=8,
                   cluster_charges=3, covariance_charges=71,
                   candidates="moments:0:0.15,moments:0.75:0.15,moments:1.5:0.15")

    @property
    def num_charges(self) -> int:
        """Of the whole run."""
        return (self.embedding_charges + self.mean_charges + self.covariance_charges + self.direction_charges
                + self.cluster_rounds * self.cluster_charges + self.selection_charges)

    @property
    def choices(self) -> tuple[tuple[tuple[str, ...], float, float], ...]:
        """`candidates`, each as its sources, its warp and its grain."""
        found = []
        for text in str(self.candidates).split(","):
            source, _, numbers = text.strip().partition(":")
            _validate.one_of("candidates", source, tuple(self.SOURCES))
            numbers = _numbers("candidates", numbers.replace(":", ","))
            for number in numbers:
                _validate.real("candidates", number)
            _validate.require(len(numbers) < 3 and min(numbers) >= 0, "candidates", text,
                              "to be SOURCE:WARP or SOURCE:WARP:GRAIN with numbers >= 0")
            warp, grain = (*numbers, 0.0)[:2]
            found.append((self.SOURCES[source], warp, grain))
        return tuple(found)


@dataclasses.dataclass(frozen=True, kw_only=True)
class DcganConfig(MethodConfig):
    """Settings of the conditional DC-GAN, which is not private: what all others would be without a guarantee.

    Attributes:
      batch_size: real and synthetic images per step.
      num_steps: of discriminator and generator.
      learning_rate, beta_1, beta_2: the discriminator's Adam.
      discriminator_filters, discriminator_units: widths of its convolutions and of its dense layer.
    """

    method: str = "dcgan"
    batch_size: int = 64
    num_steps: int = 6000
    learning_rate: float = 4e-4
    beta_1: float = 0.5
    beta_2: float = 0.999
    discriminator_filters: int = 32
    discriminator_units: int = 256
    student_learning_rate: float = 4e-4
    generator_filters: int = 32
    generator_units: int = 256
    ema_decay: float = 0.999
    epsilon: float | None = None

    METHODS: typing.ClassVar[tuple[str, ...]] = ("dcgan",)
    ADJACENCY: typing.ClassVar[str] = "none"

    def __post_init__(self):
        super().__post_init__()
        for name in ("batch_size", "num_steps", "discriminator_filters", "discriminator_units"):
            _validate.integer(name, getattr(self, name), at_least=1)
        _validate.positive("learning_rate", self.learning_rate)
        for name in ("beta_1", "beta_2"):
            _validate.between(name, getattr(self, name), 0, 1, open_high=True)


@dataclasses.dataclass(frozen=True, kw_only=True)
class DpGanConfig(MethodConfig):
    """Settings of DP-GAN. Neighbours are data sets with one record more or less, as is usual for DP-SGD.

    Attributes:
      batch_size: records in a batch, on average.
      sampling_probability: with which a record is in a batch; None for batch_size divided by the number of records,
        which is then public.
      clip_norm: l2 norm that a record's gradient is clipped to.
      noise_multiplier: standard deviation of the noise divided by clip_norm; None calibrates it to the budget.
      num_steps: of the discriminator; each is charged.
      critic_steps: discriminator steps per turn of the generator.
      generator_steps: generator steps per turn; post-processing, free in privacy.
      generator_batch_size: synthetic images per step, an even number.
      loss: `non_saturating` or `wasserstein`.
      fake_clipping: `none`, or `per_example` for gradients on synthetic images clipped as those on real ones are.
      optimizer: of the discriminator: `adam`, `rmsprop` or `sgd`.
      weight_clip: bound on the discriminator's weights, for the Wasserstein loss; None for none.
      learning_rate, beta_1, beta_2: of the discriminator.
      discriminator_filters: of its first convolution; the second has twice as many.
      instance_noise: standard deviation of the noise on all images that the discriminator learns from, in pixel units;
        0 for none. No part of the privacy noise.
      mode_seeking: weight of a term that keeps the images of a class apart (Mao et al. 2019); 0 for none. Free in
        privacy.
    """

    method: str = "dp_gan"
    batch_size: int = 512
    sampling_probability: float | None = None
    clip_norm: float = 1.0
    noise_multiplier: float | None = None
    num_steps: int = 1500
    critic_steps: int = 1
    generator_steps: int = 1
    generator_batch_size: int = 128
    loss: str = "non_saturating"
    fake_clipping: str = "none"
    optimizer: str = "adam"
    weight_clip: float | None = None
    learning_rate: float = 5e-4
    beta_1: float = 0.5
    beta_2: float = 0.9
    discriminator_filters: int = 16
    instance_noise: float = 0.5
    mode_seeking: float = 0.3
    latent_dim: int = 64
    latent_distribution: str = "normal"
    generator_filters: int = 32
    generator_units: int = 256
    student_learning_rate: float = 5e-4
    student_beta_2: float = 0.9
    ema_decay: float = 0.99
    accountant: str = "pld"

    METHODS: typing.ClassVar[tuple[str, ...]] = ("dp_gan",)
    ADJACENCY: typing.ClassVar[str] = "add-or-remove-one"

    def __post_init__(self):
        super().__post_init__()
        v = _validate
        for name in ("batch_size", "num_steps", "critic_steps", "generator_steps", "generator_batch_size",
                     "discriminator_filters"):
            v.integer(name, getattr(self, name), at_least=1)
        v.require(self.generator_batch_size % 2 == 0, "generator_batch_size", self.generator_batch_size, "to be even")
        for name in ("clip_norm", "learning_rate"):
            v.positive(name, getattr(self, name))
        for name in ("noise_multiplier", "weight_clip"):
            if getattr(self, name) is not None:
                v.positive(name, getattr(self, name))
        if self.sampling_probability is not None:
            v.between("sampling_probability", self.sampling_probability, 0, 1, open_low=True)
        for name in ("instance_noise", "mode_seeking"):
            v.real(name, getattr(self, name))
            v.require(getattr(self, name) >= 0, name, getattr(self, name), ">= 0")
        v.one_of("loss", self.loss, ("non_saturating", "wasserstein"))
        v.one_of("fake_clipping", self.fake_clipping, ("none", "per_example"))
        v.one_of("optimizer", self.optimizer, ("adam", "rmsprop", "sgd"))
        for name in ("beta_1", "beta_2"):
            v.between(name, getattr(self, name), 0, 1, open_high=True)
        # Sampled releases are no Gaussian ones.
        v.one_of("accountant", self.accountant, ("rdp", "pld"))


@dataclasses.dataclass(frozen=True, kw_only=True)
class DpCganConfig(DpGanConfig):
    """Settings of DP-CGAN: those of DP-GAN, with other defaults."""

    method: str = "dp_cgan"
    fake_clipping: str = "per_example"
    optimizer: str = "sgd"
    learning_rate: float = 0.1

    METHODS: typing.ClassVar[tuple[str, ...]] = ("dp_cgan",)


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

    def __post_init__(self):
        super().__post_init__()
        for name in ("student_steps", "student_batch_size", "replay_releases"):
            _validate.integer(name, getattr(self, name), at_least=1)
        _validate.positive("student_discriminator_learning_rate", self.student_discriminator_learning_rate)


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

    def __post_init__(self):
        super().__post_init__()
        for name in ("top_k", "sketch_rows", "sketch_columns"):
            _validate.integer(name, getattr(self, name), at_least=1)
        if self.image_shape is not None:
            check_top_k(self.top_k, self.image_shape)


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
    NETWORK: typing.ClassVar[str] = "dense"

    def __post_init__(self):
        super().__post_init__()
        _validate.positive("threshold_noise_ratio", self.threshold_noise_ratio)
        _validate.between("vote_threshold", self.vote_threshold, 0, 1)


@dataclasses.dataclass(frozen=True, kw_only=True)
class CriticConfig(MethodConfig):
    """Settings of the methods with Wasserstein discriminators, each of which has a part of the records.

    Attributes:
      batch_size: synthetic images per step of the generator [m].
      critic_batch_size: records in a discriminator's batch; smaller partitions are used whole.
      critic_steps: optimizer steps of a discriminator whenever its turn comes, before it answers.
      clip_norm: largest l2 norm of the gradient for one image [C].
      noise_multiplier: standard deviation of the noise divided by the joint sensitivity 2 C sqrt(m) of a step; None
        calibrates it to the budget.
      gradient_penalty: weight of the discriminators' gradient penalty.
      num_steps: of the generator.
      learning_rate, beta_1, beta_2: the discriminators' Adam.
      critic_filters: channels of a discriminator's first convolution; the second has twice as many.
      partition_seed: public seed of the assignment of records to partitions.
    """

    batch_size: int = 32
    critic_batch_size: int = 32
    critic_steps: int = 5
    clip_norm: float = 1.0
    noise_multiplier: float | None = None
    gradient_penalty: float = 10.0
    num_steps: int = 20_000
    learning_rate: float = 5e-4
    beta_1: float = 0.5
    beta_2: float = 0.9
    critic_filters: int = 16
    partition_seed: int = 0
    latent_dim: int = 10
    latent_distribution: str = "normal"
    student_learning_rate: float = 1e-4
    student_beta_2: float = 0.9
    ema_decay: float = 0.999

    def __post_init__(self):
        super().__post_init__()
        for name in ("batch_size", "critic_batch_size", "critic_steps", "num_steps", "critic_filters"):
            _validate.integer(name, getattr(self, name), at_least=1)
        for name in ("clip_norm", "gradient_penalty", "learning_rate"):
            _validate.positive(name, getattr(self, name))
        if self.noise_multiplier is not None:
            _validate.positive("noise_multiplier", self.noise_multiplier)
        for name in ("beta_1", "beta_2"):
            _validate.between(name, getattr(self, name), 0, 1, open_high=True)
        _validate.integer("partition_seed", self.partition_seed, at_least=0)


@dataclasses.dataclass(frozen=True, kw_only=True)
class GsWganConfig(CriticConfig):
    """Settings of GS-WGAN.

    The paper: 1,000 discriminators, batches of 32, 5 critic steps, clip_norm 1, latents of 10 numbers, 2,000 warm-up
    steps, 20,000 steps, and noise of 2.14 clip norms, which is a noise_multiplier of 1.07 / sqrt(32) = 0.189. It says
    that this costs epsilon = 10 at delta = 1e-5; it is 346.7 (`mechanisms.sanitized_gradients`). For epsilon = 10,
    these steps need a noise_multiplier of 0.465, and for epsilon = 1 of 0.944.

    Attributes:
      num_discriminators: Wasserstein discriminators [N], one per disjoint partition. A step asks one of them. They are
        in memory with two moments each: with 16 filters, 0.3 GB for 1,000 on 28x28 images; with 64, 3.1 GB.
      batch_size: synthetic images per step [m], whose gradients are released jointly.
      critic_steps: optimizer steps of a discriminator before it answers, and whenever its turn to train comes.
      warmup_steps: optimizer steps of every discriminator against the untrained generator. Free in privacy.
    """

    method: str = "gs_wgan"
    num_discriminators: int = 1000
    warmup_steps: int = 50
    generator_filters: int = 32
    generator_units: int = 256
    accountant: str = "pld"

    METHODS: typing.ClassVar[tuple[str, ...]] = ("gs_wgan",)

    def __post_init__(self):
        super().__post_init__()
        _validate.integer("num_discriminators", self.num_discriminators, at_least=1)
        _validate.integer("warmup_steps", self.warmup_steps, at_least=0)
        _validate.one_of("accountant", self.accountant, ("rdp", "pld"))  # Others know no sampling.


@dataclasses.dataclass(frozen=True, kw_only=True)
class FedGsWganConfig(CriticConfig):
    """Settings of federated GS-WGAN, by which users protect themselves from the server.

    Attributes:
      num_users: users [N], each with a discriminator and records of its own; None for those whom the data name, or
        500 where they name none.
      users_per_round: users who answer about the same images; the generator takes one step along the mean of their
        answers. No matter for privacy.
      num_steps: passes over all users. In a pass every user answers once: N / users_per_round steps of the generator,
        which cost every user one release.
      warmup_steps: optimizer steps of every discriminator against the untrained generator. Free in privacy.
    """

    method: str = "fed_gs_wgan"
    num_users: int | None = None
    users_per_round: int = 10
    num_steps: int = 10
    warmup_steps: int = 20
    learning_rate: float = 1e-3
    student_learning_rate: float = 1e-3
    ema_decay: float = 0.9

    METHODS: typing.ClassVar[tuple[str, ...]] = ("fed_gs_wgan",)
    ADJACENCY: typing.ClassVar[str] = "replace-one-user"

    def __post_init__(self):
        super().__post_init__()
        if self.num_users is not None:
            _validate.integer("num_users", self.num_users, at_least=1)
        _validate.integer("users_per_round", self.users_per_round, at_least=1)
        _validate.integer("warmup_steps", self.warmup_steps, at_least=0)


@dataclasses.dataclass(frozen=True, kw_only=True)
class FedAvgGanConfig(CriticConfig):
    """Settings of Fed Avg GAN, whose users trust the server.

    Attributes:
      num_users: users [N]; None for those whom the data name, or 500 where they name none.
      sampling_probability: with which a user takes part in a round, independently of all others.
      critic_steps: optimizer steps that a user takes with its copy of the discriminator.
      clip_norm: largest l2 norm of what a user changes in the discriminator's weights [S].
      noise_multiplier: standard deviation of the noise divided by clip_norm; None calibrates it to the budget.
      num_steps: rounds; each is charged.
      generator_steps: steps of the generator per round; post-processing, free in privacy.
      learning_rate, beta_1, beta_2: the users' Adam, which starts anew in every round.
    """

    method: str = "fed_avg_gan"
    num_users: int | None = None
    sampling_probability: float = 0.1
    batch_size: int = 64
    num_steps: int = 200
    generator_steps: int = 1
    learning_rate: float = 1e-3
    clip_norm: float = 0.5
    student_learning_rate: float = 1e-3
    ema_decay: float = 0.9
    accountant: str = "pld"

    METHODS: typing.ClassVar[tuple[str, ...]] = ("fed_avg_gan",)
    ADJACENCY: typing.ClassVar[str] = "add-or-remove-one-user"

    def __post_init__(self):
        super().__post_init__()
        if self.num_users is not None:
            _validate.integer("num_users", self.num_users, at_least=1)
        _validate.between("sampling_probability", self.sampling_probability, 0, 1, open_low=True)
        _validate.integer("generator_steps", self.generator_steps, at_least=1)
        _validate.one_of("accountant", self.accountant, ("rdp", "pld"))  # Others know no sampling.


def _numbers(name: str, text: str) -> tuple[float, ...]:
    """What a setting lists; raises InvalidArgumentError."""
    try:
        return tuple(float(word) for word in text.split(","))
    except (AttributeError, ValueError) as error:
        raise InvalidArgumentError(f"Expected {name}={text!r} to be numbers, separated by commas.") from error


CONFIGS: dict[str, type[MethodConfig]] = {
    name: kind for kind in (
        D2PFedConfig, DataLensConfig, DataLensPlusConfig, DcganConfig, DpCganConfig, DpGanConfig, DpMerfConfig,
        FedAvgGanConfig, FedGsWganConfig, FetchSgdConfig, GPateConfig, GsWganConfig, PateCganConfig, PateGanConfig)
    for name in kind.METHODS}


def config_class(method: str) -> type[MethodConfig]:
    """The settings of a method; raises InvalidArgumentError for an unknown one."""
    _validate.one_of("method", method, sorted(CONFIGS))
    return CONFIGS[method]


def config_from_json(text: str) -> MethodConfig:
    """Settings of whatever method from the text of a `config.json`; raises InvalidArgumentError on anything else."""
    try:
        fields = _files.parse_json(text)
    except ValueError as error:
        raise InvalidArgumentError(f"Expected a JSON configuration: {error}.") from error
    if not isinstance(fields, Mapping):
        raise InvalidArgumentError("Expected a JSON configuration to be an object of settings.")
    method = fields.get("method", "datalens")
    _validate.require(isinstance(method, str), "method", method, "to be text")
    return config_class(method).from_json(text)
