"""DP-CGAN: DP-GAN whose gradients on synthetic images are clipped as those on real ones are."""

from __future__ import annotations

import dataclasses
import typing

from datalens_tf.methods.dp_gan import DpGan, DpGanConfig

CHOOSE_WHEN = "you want the PrivacyVerse report's variant of DP-GAN"


@dataclasses.dataclass(frozen=True, kw_only=True)
class DpCganConfig(DpGanConfig):
    """Settings of DP-CGAN: those of DP-GAN, with other defaults."""

    method: str = "dp_cgan"
    fake_clipping: str = "per_example"
    optimizer: str = "sgd"
    learning_rate: float = 0.1

    CHOSEN: typing.ClassVar[str] = (
        "clip_norm, batch_size, num_steps and learning rates were chosen on MNIST, whose real test split was looked "
        "at.")
    CHOSEN_ON: typing.ClassVar[tuple[str, ...]] = ("mnist",)


class DpCgan(DpGan):
    """A `RunSynthesizer` for DP-CGAN; its settings are a `DpCganConfig`."""

    config_class = DpCganConfig

