"""Settings of the methods with one discriminator: not private, or trained by DP-SGD."""

import dataclasses
import typing

from datalens_tf import _validate
from datalens_tf.config import MethodConfig


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
    CHOSEN: typing.ClassVar[str] = (
        "Widths, learning rates and num_steps were chosen on MNIST, whose real test split was looked at.")
    CHOSEN_ON: typing.ClassVar[tuple[str, ...]] = ("mnist",)
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
    CHOSEN: typing.ClassVar[str] = (
        "clip_norm, batch_size, num_steps, learning rates, instance noise and mode seeking were chosen on MNIST, whose "
        "real test split was looked at.")
    CHOSEN_ON: typing.ClassVar[tuple[str, ...]] = ("mnist",)
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
    CHOSEN: typing.ClassVar[str] = (
        "clip_norm, batch_size, num_steps and learning rates were chosen on MNIST, whose real test split was looked "
        "at.")
    CHOSEN_ON: typing.ClassVar[tuple[str, ...]] = ("mnist",)
