"""DataLens with D2P-Fed's compressor: rotated gradients in stochastic levels (DataLens paper, Algorithms 5 and 6).

Everything but the compressor is as in DataLens. `datalens_tf/mechanisms/d2pfed.py` describes the deviations from the
paper: levels are centred, gradients are rotated, and the price is that of a vote on every rotated coordinate. The noise
is calibrated to the budget, so that methods are compared at an epsilon that holds.
"""

from __future__ import annotations

import dataclasses
import typing
from typing import Any

from etils import epy

from datalens_tf.methods.voting import CompressedConfig, PateSynthesizer
from datalens_tf.settings import at_least, between, setting

with epy.lazy_imports():
    from datalens_tf.mechanisms import d2pfed

CHOOSE_WHEN = "you compare DataLens' compressor with rotated, levelled gradients"


@dataclasses.dataclass(frozen=True, kw_only=True)
class D2PFedConfig(CompressedConfig):
    """Settings of D2P-Fed."""

    method: str = "d2pfed"
    num_levels: int = setting(
        16, "Stochastic levels of a rotated coordinate [K], at least 2. More of them cost nothing.", at_least(2))
    vote_threshold: float = setting(
        0.5, "Fraction of the largest possible sum, N (K - 1), that a noisy sum must reach to count [beta], in [0, 1].",
        between(0, 1))
    noise_stddev: float | None = setting(
        None, "Standard deviation of the noise on the sum of votes, which are integers from -(K - 1) to K - 1, two "
        "apart. With none, it is calibrated to the budget and num_steps.")

    CHOSEN: typing.ClassVar[str] = (
        "num_teachers, clip and step_size are those that the DataLens authors have for MNIST, and teachers are trained "
        "as they are for datalens, which was chosen on MNIST, whose real test split was looked at. On which data "
        "num_levels and vote_threshold were chosen was not recorded; take it that it was MNIST.")
    CHOSEN_ON: typing.ClassVar[tuple[str, ...]] = ("mnist",)

    def mechanism(self) -> d2pfed.D2PFed:
        return d2pfed.D2PFed(
            num_teachers=self.num_teachers, dimension=self.dimension, num_levels=self.num_levels,
            clip=self.clip, noise_stddev=self.noise_scale, vote_threshold=self.vote_threshold,
            rotation_seed=self.seed)


class D2PFedTeachers(PateSynthesizer[D2PFedConfig]):
    """A `RunSynthesizer` for DataLens' training with D2P-Fed's compression; its settings are a `D2PFedConfig`."""

    config_class = D2PFedConfig

    def _described(self) -> tuple[str, str, dict[str, Any]]:
        facts = {"num_levels": self.config.num_levels, "padded_dimension": self.config.mechanism().padded_dimension}
        return ("It chooses one of {num_levels} levels, integers that are two apart, for each of {padded_dimension} "
                "rotated coordinates of each of {batch_size} images, so the sum moves by at most "
                "2 * ({num_levels} - 1) * sqrt({padded_dimension} * {batch_size}) = {l2_sensitivity:.6g} in l2 norm, "
                "whatever the record is.",
                "The teachers' image gradients, in a public rotation and rounded to {num_levels} levels, were summed "
                "and released with Gaussian noise of standard deviation {noise_stddev:g} on every coordinate: "
                "{num_steps} steps of {batch_size} images each, with noise multiplier {noise_multiplier_per_step:.6g} "
                "per step. The generator learned only from these sums.", facts)
