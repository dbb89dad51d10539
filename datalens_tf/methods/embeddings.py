"""Settings of the methods whose generator is fitted to sums that are released once."""

import dataclasses
import typing

from datalens_tf import _validate
from datalens_tf.config import MethodConfig
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
    CHOSEN: typing.ClassVar[str] = (
        "bandwidths, num_features, autoencoder_clip_norm and how the generator is fitted were chosen on MNIST, whose "
        "real test split was looked at.")
    CHOSEN_ON: typing.ClassVar[tuple[str, ...]] = ("mnist",)

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

    @property
    def release_charges(self) -> tuple[int, ...]:
        """How many charges pay for each release, in order: the autoencoder, the embeddings."""
        return (1, 1) if self.autoencoder_dim else (1,)

    @property
    def num_charges(self) -> int:
        """Of the whole run."""
        return sum(self.release_charges)


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
        whose images make the best classifier of the records is taken; or the first, where interruptions left too
        little of the budget for choosing.
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
    CHOSEN: typing.ClassVar[str] = (
        "Clips, bandwidths, learned_share, the spread of warps, the candidates' warps and grain, the numbers of "
        "clusters and of charges were chosen on MNIST, whose real test split was looked at. That clusters and grain "
        "pay was first seen on Fashion-MNIST's training records, and its real test split was looked at as well. A few "
        "kinds of grain were tried on CIFAR-10's training records.")
    CHOSEN_ON: typing.ClassVar[tuple[str, ...]] = ("mnist", "fashion_mnist", "cifar10")
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
    def release_charges(self) -> tuple[int, ...]:
        """Of each release, in order: means, directions, rounds of clusters, covariances, embedding, choice."""
        charges = (self.mean_charges, self.direction_charges, *(self.cluster_charges,) * self.cluster_rounds,
                   self.covariance_charges, self.embedding_charges, self.selection_charges)
        return tuple(filter(None, charges))

    @property
    def num_charges(self) -> int:
        """Of the whole run."""
        return sum(self.release_charges)

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


def _numbers(name: str, text: str) -> tuple[float, ...]:
    """What a setting lists; raises InvalidArgumentError."""
    try:
        return tuple(float(word) for word in text.split(","))
    except (AttributeError, ValueError) as error:
        raise InvalidArgumentError(f"Expected {name}={text!r} to be numbers, separated by commas.") from error
