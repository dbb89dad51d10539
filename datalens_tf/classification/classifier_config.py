"""Settings of a differentially private classifier."""

import dataclasses
import math
import typing

import dp_accounting

from datalens_tf import _validate
from datalens_tf.accounting import accountants
from datalens_tf.config import RunConfig
from datalens_tf.mechanisms.norm_topk import NormTopKSum

NETWORKS = ("small", "large")
DEFAULT_STEPS = 1500


@dataclasses.dataclass(frozen=True, kw_only=True)
class ClassifierConfig(RunConfig):
    """Settings of a classifier that is trained by DP-SGD. Neighbours are data sets with one record more or less.

    Attributes:
      epsilon: the privacy budget. Training stops before it would be exceeded. None: no noise, NOT PRIVATE.
      delta: of the budget.
      seed: of the initial weights; never of the privacy noise, dropout, or who is sampled.
      batch_size: records in a batch, on average.
      sampling_probability: with which a record is in a batch; None for batch_size divided by the number of records,
        which is then public.
      clip_norm: l2 norm that a record's gradient is clipped to [C].
      top_k_norm: k in (0, 1]: of the clipped gradient the largest coordinates are kept, up to k of its squared norm.
        Noise shrinks by sqrt(k). 1 keeps all: plain DP-SGD.
      top_k_dimensions: share of the coordinates that is kept, the largest ones; in (0, 1]. Noise does not shrink.
      noise_multiplier: standard deviation of the noise divided by the sensitivity sqrt(k) C [sigma]; None calibrates
        it to the budget.
      num_steps: each is charged; None for as many as noise_multiplier pays for, or 1,500 if that is not given either.
      learning_rate: of SGD without momentum.
      learning_rate_decay: share of the steps, the last ones, over which the learning rate falls to 0, linearly.
      ema_decay: decay, at most, of the exponential moving average of the weights that is released; it covers about the
        last fifth of the steps. 0 releases the last weights. Post-processing, free in privacy.
      network: `small`, the network of the paper's experiments, 26,010 weights on MNIST; or `large`, the one that
        `datalens evaluate` trains, 515,146.
      model: `.keras` file of a model to train instead, from the weights that it has, of the layers that
        docs/how-to/classify.md lists.
      features: `.keras` file of a model of such layers that is not trained, and whose output is what the trained one
        sees. Without `model`, a linear layer is trained.
      model_digest, features_digest: checksums of these.
    """

    method: str = "dp_sgd_classifier"
    accountant: str = "pld"
    batch_size: int = 512
    sampling_probability: float | None = None
    clip_norm: float = 10.0
    top_k_norm: float = 1.0
    top_k_dimensions: float = 1.0
    noise_multiplier: float | None = None
    num_steps: int | None = None
    learning_rate: float = 0.1
    learning_rate_decay: float = 0.5
    ema_decay: float = 0.9999
    network: str = "small"
    model: str | None = None
    features: str | None = None
    model_digest: str | None = None
    features_digest: str | None = None

    METHODS: typing.ClassVar[tuple[str, ...]] = ("dp_sgd_classifier",)
    CHOSEN: typing.ClassVar[str] = (
        "clip_norm, batch_size, learning_rate and the network are those of the DataLens paper's experiments on MNIST. "
        "How pixels are standardised, learning_rate_decay and ema_decay were chosen on MNIST, whose real test split "
        "was looked at.")
    CHOSEN_ON: typing.ClassVar[tuple[str, ...]] = ("mnist",)
    ADJACENCY: typing.ClassVar[str] = "add-or-remove-one"

    def __post_init__(self):
        super().__post_init__()
        v = _validate
        v.integer("batch_size", self.batch_size, at_least=1)
        if self.num_steps is not None:
            v.integer("num_steps", self.num_steps, at_least=1)
        for name in ("clip_norm", "learning_rate"):
            v.positive(name, getattr(self, name))
        for name in ("top_k_norm", "top_k_dimensions"):
            v.between(name, getattr(self, name), 0, 1, open_low=True)
        v.between("learning_rate_decay", self.learning_rate_decay, 0, 1)
        v.between("ema_decay", self.ema_decay, 0, 1, open_high=True)
        if self.epsilon is None:
            v.require(not self.noise_multiplier, "noise_multiplier", self.noise_multiplier,
                      "to be absent where epsilon is none, which is without noise")
        elif self.noise_multiplier is not None:
            v.positive("noise_multiplier", self.noise_multiplier)
        if self.sampling_probability is not None:
            v.between("sampling_probability", self.sampling_probability, 0, 1, open_low=True)
        v.one_of("network", self.network, NETWORKS)
        # Sampled releases are no Gaussian ones.
        v.one_of("accountant", self.accountant, ("rdp", "pld"))

    def _check_epsilon(self):
        if self.epsilon is not None:
            _validate.positive("epsilon", self.epsilon)

    def public(self) -> "ClassifierConfig":
        """See `RunConfig.public`; which models they were, checksums say."""
        return dataclasses.replace(super().public(), model=None, features=None)

    def mechanism(self) -> NormTopKSum:
        """What sums gradients, and prices the sum. Of resolved settings."""
        return NormTopKSum(
            clip_norm=self.clip_norm, noise_multiplier=self.noise_multiplier or 0.0, adjacency=self.ADJACENCY,
            sampling_probability=self.sampling_probability, top_k_norm=self.top_k_norm,
            top_k_dimensions=self.top_k_dimensions)

    def step_event(self) -> dp_accounting.DpEvent | None:
        """What a step costs; None where there is no budget."""
        return None if self.epsilon is None else self.mechanism().dp_event()

    def resolved(self, num_records: int) -> "ClassifierConfig":
        """With the sampling probability for this many records, and what the budget decides of noise and steps.

        Raises:
          InvalidArgumentError: no noise reaches so small an epsilon.
        """
        config = self
        if config.sampling_probability is None:
            config = config.replace(sampling_probability=min(1.0, config.batch_size / num_records))
        if config.noise_multiplier is None:
            config = config.replace(num_steps=config.num_steps or DEFAULT_STEPS)
            if config.epsilon is not None:
                multiplier = accountants.calibrate(
                    lambda z: config.replace(noise_multiplier=z).step_event(), config.num_steps, config.epsilon,
                    config.delta, config.accountant, config.ADJACENCY)
                config = config.replace(noise_multiplier=math.ceil(multiplier * 1e4) / 1e4)
        elif config.num_steps is None:
            affordable = accountants.max_steps(config.step_event(), config.epsilon, config.delta, config.accountant,
                                              config.ADJACENCY)
            config = config.replace(num_steps=max(1, affordable))  # The ledger says what lacks for the first.
        return config
