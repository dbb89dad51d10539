"""Settings of the methods with Wasserstein discriminators, of parts of the records or of users."""

import dataclasses
import typing

from datalens_tf import _validate
from datalens_tf.config import MethodConfig


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
    CHOSEN: typing.ClassVar[str] = (
        "clip_norm, gradient_penalty, critic_steps, latent_dim and num_discriminators are those of the GS-WGAN paper, "
        "whose data are MNIST and Fashion-MNIST. Widths and learning rates were chosen on MNIST, whose real test split "
        "was looked at.")
    CHOSEN_ON: typing.ClassVar[tuple[str, ...]] = ("mnist", "fashion_mnist")

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
    CHOSEN: typing.ClassVar[str] = (
        "clip_norm, gradient_penalty, critic_steps and latent_dim are those of the GS-WGAN paper, whose data are MNIST "
        "and Fashion-MNIST. The other settings were tried on MNIST only.")
    CHOSEN_ON: typing.ClassVar[tuple[str, ...]] = ("mnist", "fashion_mnist")
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
    CHOSEN: typing.ClassVar[str] = (
        "clip_norm, sampling_probability, learning rates and all other settings were tried on MNIST only.")
    CHOSEN_ON: typing.ClassVar[tuple[str, ...]] = ("mnist",)
    ADJACENCY: typing.ClassVar[str] = "add-or-remove-one-user"

    def __post_init__(self):
        super().__post_init__()
        if self.num_users is not None:
            _validate.integer("num_users", self.num_users, at_least=1)
        _validate.between("sampling_probability", self.sampling_probability, 0, 1, open_low=True)
        _validate.integer("generator_steps", self.generator_steps, at_least=1)
        _validate.one_of("accountant", self.accountant, ("rdp", "pld"))  # Others know no sampling.
