"""Settings of a differentially private classifier."""

from __future__ import annotations

import dataclasses
import types
import typing
from collections.abc import Mapping

from etils import epy

from datalens_tf import _validate
from datalens_tf.config import BoundedConfig
from datalens_tf.settings import at_least, between, one_of, positive, setting

with epy.lazy_imports():
    from datalens_tf.accounting import accountants
    from datalens_tf.mechanisms import norm_topk

NETWORKS = ("small", "large")
DEFAULT_STEPS = 1500


@dataclasses.dataclass(frozen=True, kw_only=True)
class ClassifierConfig(BoundedConfig):
    """Settings of a classifier that is trained by DP-SGD.

    Example:
      >>> from datalens_tf import ClassifierConfig
      >>> config = ClassifierConfig(epsilon=2.0, batch_size=256, top_k_norm=0.5)
      >>> config.replace(epsilon=4.0).epsilon
      4.0
    """

    method: str = "dp_sgd_classifier"
    epsilon: float | None = setting(
        1.0, "Privacy budget epsilon. Training stops before it would be exceeded. None means no noise, NOT PRIVATE.")
    # Accountants of Gaussian releases know no sampling.
    accountant: str = setting("pld", "Accountant that measures the budget: rdp or pld.", one_of("rdp", "pld"))
    seed: int = setting(
        0, "Public seed, on which the privacy noise does not depend. It decides the initial weights; not dropout, nor "
        "who is sampled.")
    batch_size: int = setting(512, "Records in a batch, on average.", at_least(1))
    sampling_probability: float | None = setting(
        None, "Probability with which a record is in a batch. With none, it is batch_size divided by records_at_most "
        "or, without that, by the number of records, which is then public.", between(0, 1, open_low=True))
    clip_norm: float = setting(10.0, "l2 norm that a record's gradient is clipped to [C].", positive)
    top_k_norm: float = setting(
        1.0, "Share of a clipped gradient's squared norm that is kept. The largest coordinates are kept, up to this "
        "share k in (0, 1], and noise shrinks by sqrt(k). 1 keeps all: plain DP-SGD.", between(0, 1, open_low=True))
    top_k_dimensions: float = setting(
        1.0, "Share of a gradient's coordinates that is kept, in (0, 1]. The largest are kept; noise does not shrink.",

        between(0, 1, open_low=True))
    noise_multiplier: float | None = setting(
        None, "Standard deviation of the noise over the sensitivity sqrt(k) C. With none, it is calibrated to the "
        "budget.")
    num_steps: int | None = setting(
        None, "Steps, each of which is charged. With none, there are as many as noise_multiplier pays for, or 1,500 "
        "if that is not given either.", at_least(1))
    learning_rate: float = setting(0.1, "Learning rate of SGD without momentum.", positive, group="training")
    learning_rate_decay: float = setting(
        0.5, "Share of last steps in which the learning rate falls to 0. It falls linearly.",
        between(0, 1),
        group="training")
    ema_decay: float = setting(
        0.9999, "Decay of the released moving average of weights. This is the largest decay; the average covers about "
        "the last fifth of the steps. 0 releases the last weights. The average is free in privacy.",
        between(0, 1, open_high=True),
        group="training")
    network: str = setting(
        "small", "Network: small, the paper's; or large, that of evaluate. They have 26,010 and 515,146 weights on "
        "MNIST.", one_of(*NETWORKS), group="training")
    model: str | None = setting(
        None, "Keras file (.keras) of a model to train instead. It keeps the weights that it has, and consists of the "
        "layers that docs/how-to/classify.md lists.", group="training")
    features: str | None = setting(
        None, "Keras file (.keras) of a fixed model that sees images first. It consists of such layers, too, and is "
        "not trained; the trained one sees its output. Without a model, a linear layer is trained.", group="training")
    model_digest: str | None = setting(None, "Checksum of the model's file.")
    features_digest: str | None = setting(None, "Checksum of the features' file.")

    GROUP: typing.ClassVar[str] = "mechanism"
    BEFORE: typing.ClassVar[Mapping[str, typing.Any]] = types.MappingProxyType(
        {**BoundedConfig.BEFORE, "adjacency": "add-or-remove-one"})
    CHOSEN: typing.ClassVar[str] = (
        "clip_norm, batch_size, learning_rate and the network are those of the DataLens paper's experiments on MNIST. "
        "How pixels are standardised, learning_rate_decay and ema_decay were chosen on MNIST, whose real test split "
        "was looked at.")
    CHOSEN_ON: typing.ClassVar[tuple[str, ...]] = ("mnist",)
    ADJACENCIES: typing.ClassVar[tuple[str, ...]] = ("replace-one", "add-or-remove-one")
    NO_OTHER: typing.ClassVar[str] = "steps on sampled records are priced for these"
    OF_UNITS: typing.ClassVar[str] = "The gradient of one is the average of its images' gradients."

    def _check(self) -> None:
        super()._check()
        if self.epsilon is None:
            _validate.require(not self.noise_multiplier, "noise_multiplier", self.noise_multiplier,
                              "to be absent where epsilon is none, which is without noise")
        elif self.noise_multiplier is not None:
            _validate.positive("noise_multiplier", self.noise_multiplier)

    def _check_epsilon(self) -> None:
        if self.epsilon is not None:
            _validate.positive("epsilon", self.epsilon)

    def public(self) -> ClassifierConfig:
        """Settings without paths on this machine; checksums say which models they had."""
        return dataclasses.replace(super().public(), model=None, features=None)

    def mechanism(self) -> norm_topk.NormTopKSum:
        """Mechanism that sums gradients, and prices the sum; the settings must be resolved."""
        return norm_topk.NormTopKSum(
            clip_norm=self.clip_norm, noise_multiplier=self.noise_multiplier or 0.0, adjacency=self.adjacency,
            sampling_probability=_validate.known("sampling_probability", self.sampling_probability, "to be resolved"),
            top_k_norm=self.top_k_norm,
            top_k_dimensions=self.top_k_dimensions)

    def resolved(self, num_records: int, num_users: int | None = None) -> ClassifierConfig:
        """Fills in the sampling probability, the noise multiplier and the number of steps; see `RunConfig.resolved`."""
        config = self
        if config.sampling_probability is None:
            config = config.replace(sampling_probability=min(1.0, config.batch_size / num_records))
        if config.noise_multiplier is None:
            num_steps = config.num_steps or DEFAULT_STEPS
            config = config.replace(num_steps=num_steps)
            if config.epsilon is not None:
                config = accountants.calibrated(config, num_steps, decimals=4)
        elif config.num_steps is None:
            affordable = accountants.max_steps(config.mechanism().dp_event(), config.budget, config.delta,
                                              config.accountant, config.adjacency)
            config = config.replace(num_steps=max(1, affordable))  # If it is 0, the ledger refuses the first step.
        return config
