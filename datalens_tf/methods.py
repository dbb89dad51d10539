"""Settings of the methods beside DataLens, and all methods' settings by name."""

import dataclasses
import typing
from typing import Mapping

from datalens_tf import _files, _validate
from datalens_tf.config import DataLensConfig, MethodConfig
from datalens_tf.errors import InvalidArgumentError


@dataclasses.dataclass(frozen=True, kw_only=True)
class DpMerfConfig(MethodConfig):
    """Settings of DP-MERF.

    Attributes:
      num_features: random Fourier features per image [D], even.
      bandwidths: of the kernels, comma-separated standard deviations in pixel units: distances between images that
        they tell apart. Fixed numbers: a median over the records would be private.
      noise_multiplier: standard deviation of the noise divided by the sensitivity; None calibrates it to the budget.
      batch_size: synthetic images per step of the generator, the same number for each class.
      fit_steps: steps of the generator; post-processing, free in privacy.
    """

    method: str = "dp_merf"
    num_features: int = 10_000
    bandwidths: str = "5,10"
    noise_multiplier: float | None = None
    batch_size: int = 500
    fit_steps: int = 3000
    latent_dim: int = 10
    latent_distribution: str = "normal"
    student_learning_rate: float = 1e-3
    student_beta_1: float = 0.9
    ema_decay: float = 0.99

    METHODS: typing.ClassVar[tuple[str, ...]] = ("dp_merf",)

    def __post_init__(self):
        super().__post_init__()
        for name, least in (("num_features", 2), ("batch_size", 1), ("fit_steps", 1)):
            _validate.integer(name, getattr(self, name), at_least=least)
        _validate.require(self.num_features % 2 == 0, "num_features", self.num_features, "to be even")
        if self.noise_multiplier is not None:
            _validate.positive("noise_multiplier", self.noise_multiplier)
        for bandwidth in self.kernel_bandwidths:
            _validate.positive("bandwidths", bandwidth)

    @property
    def kernel_bandwidths(self) -> tuple[float, ...]:
        """`bandwidths` as numbers."""
        try:
            return tuple(float(word) for word in self.bandwidths.split(","))
        except (AttributeError, ValueError) as error:
            raise InvalidArgumentError(f"Expected bandwidths={self.bandwidths!r} to be numbers, separated by commas."
                                       ) from error


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
    batch_size: int = 128
    num_steps: int = 6000
    learning_rate: float = 2e-4
    beta_1: float = 0.5
    beta_2: float = 0.999
    discriminator_filters: int = 64
    discriminator_units: int = 256
    student_learning_rate: float = 2e-4
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
class GsWganConfig(MethodConfig):
    """Settings of GS-WGAN.

    The paper: 1,000 discriminators, batches of 32, 5 critic steps, clip_norm 1, latents of 10 numbers, 2,000 warm-up
    steps, 20,000 steps, and noise of 2.14 clip norms, which is a noise_multiplier of 1.07 / sqrt(32) = 0.189. It says
    that this costs epsilon = 10 at delta = 1e-5; it is 346.7 (`mechanisms.sanitized_gradients`). For epsilon = 10,
    these steps need a noise_multiplier of 0.465, and for epsilon = 1 of 0.944.

    Attributes:
      num_discriminators: Wasserstein discriminators [N], one per disjoint partition. A step asks one of them. They are
        in memory with two moments each: with 16 filters, 0.3 GB for 1,000 on 28x28 images; with 64, 3.1 GB.
      batch_size: synthetic images per step [m], whose gradients are released jointly.
      critic_batch_size: records in a discriminator's batch; smaller partitions are used whole.
      critic_steps: optimizer steps of a discriminator before it answers, and whenever its turn to train comes.
      warmup_steps: optimizer steps of every discriminator against the untrained generator. Free in privacy.
      clip_norm: largest l2 norm of the gradient for one image [C].
      noise_multiplier: standard deviation of the noise divided by the joint sensitivity 2 C sqrt(m) of a step; None
        calibrates it to the budget.
      gradient_penalty: weight of the discriminators' gradient penalty.
      num_steps: of the generator.
      learning_rate, beta_1, beta_2: the discriminators' Adam.
      critic_filters: channels of a discriminator's first convolution; the second has twice as many.
      partition_seed: public seed of the assignment of records to partitions.
    """

    method: str = "gs_wgan"
    num_discriminators: int = 1000
    batch_size: int = 32
    critic_batch_size: int = 32
    critic_steps: int = 5
    warmup_steps: int = 50
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
    accountant: str = "pld"

    METHODS: typing.ClassVar[tuple[str, ...]] = ("gs_wgan",)

    def __post_init__(self):
        super().__post_init__()
        for name in ("num_discriminators", "batch_size", "critic_batch_size", "critic_steps", "num_steps",
                     "critic_filters"):
            _validate.integer(name, getattr(self, name), at_least=1)
        _validate.integer("warmup_steps", self.warmup_steps, at_least=0)
        for name in ("clip_norm", "gradient_penalty", "learning_rate"):
            _validate.positive(name, getattr(self, name))
        if self.noise_multiplier is not None:
            _validate.positive("noise_multiplier", self.noise_multiplier)
        for name in ("beta_1", "beta_2"):
            _validate.between(name, getattr(self, name), 0, 1, open_high=True)
        _validate.integer("partition_seed", self.partition_seed, at_least=0)
        _validate.one_of("accountant", self.accountant, ("rdp", "pld"))  # Others know no sampling.


CONFIGS: dict[str, type[MethodConfig]] = {
    name: kind for kind in (DataLensConfig, DcganConfig, DpMerfConfig, GsWganConfig) for name in kind.METHODS}


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
