"""G-PATE: a generator that follows noisy votes on projected, binned image gradients (Long et al., NeurIPS 2021).

Every teacher projects its gradient of each synthetic image on a few public random directions and votes for the bin of
each projection. Where Confident-GNMax finds enough votes, the image moves by the chosen bin's middle along the
direction, and the generator takes a step towards the moved images, as in DataLens. Deviations:

- The price is independent of the data, and covers the arg max of every projection whether or not the threshold was
  reached (`ConfidentGNMax`). The authors account by bounds that depend on the votes, so that epsilon and the end of
  training are functions of the records.
- Noise is exact: the counts are integers (`RoundedGaussianNoise`).
- Partitions are dealt by index and a public seed, and fakes carry the labels of a teacher's own records.
- Directions have length 1 on average, so that `clip` is on the scale of DataLens' clip.
- The defaults have the authors' 4,000 teachers, but small networks and few steps, for a machine without a GPU. For this
  reason they have 100 directions per step where the authors have 10: these cost as much as ten times the steps.
  The authors' command for MNIST at epsilon = 1 has batches of 64, and noise 3,000 and 1,000 for threshold and arg max.
"""

from __future__ import annotations

import dataclasses
import typing
from typing import Any

from etils import epy

from datalens_tf.methods.voting import PateConfig, PateSynthesizer
from datalens_tf.settings import at_least, between, positive, setting

with epy.lazy_imports():
    from datalens_tf.mechanisms import confident_gnmax

CHOOSE_WHEN = "you want the baseline of votes on projected gradients"
PUBLISHED_AS = "G-PATE"


@dataclasses.dataclass(frozen=True, kw_only=True)
class GPateConfig(PateConfig):
    """Settings of G-PATE."""

    method: str = "g_pate"
    num_teachers: int = 4000
    batch_size: int = 15
    num_steps: int = 100
    teacher_batch_size: int = 15
    projection_dim: int = setting(
        100, "Random directions per step on which teachers vote, for each image [p].", at_least(1))
    num_bins: int = setting(
        10, "Bins of a projected gradient, of which each teacher chooses one [B].", at_least(2))
    clip: float = setting(
        1e-4, "Bound on a projected gradient [c], of the size of a pixel's, for gradients divided by m.", positive)
    vote_threshold: float = setting(
        0.2, "Fraction of N that the noisy largest number of votes for a bin must reach, in [0, 1].", between(0, 1))
    threshold_noise_ratio: float = setting(
        3.0, "Standard deviation of the noise on that number, divided by noise_stddev.", positive)
    step_size: float = setting(
        1e-3, "How far an image is moved along the released direction [gamma], in pixel units.", positive)
    instance_noise: float = 1.0
    ema_decay: float = 0.9

    GROUP: typing.ClassVar[str] = "mechanism"
    CHOSEN: typing.ClassVar[str] = (
        "num_teachers is the G-PATE authors'. clip, num_bins, projection_dim, vote_threshold, threshold_noise_ratio "
        "and how teachers are trained were chosen on MNIST, whose real test split was looked at.")
    CHOSEN_ON: typing.ClassVar[tuple[str, ...]] = ("mnist",)

    def mechanism(self) -> confident_gnmax.BinnedGradients:
        return confident_gnmax.BinnedGradients(
            num_teachers=self.num_teachers, num_bins=self.num_bins, noise_stddev=self.noise_scale,
            threshold_noise_ratio=self.threshold_noise_ratio, vote_threshold=self.vote_threshold,
            projection_dim=self.projection_dim, clip=self.clip, dimension=self.dimension,
            seed=self.seed)


class GPate(PateSynthesizer[GPateConfig]):
    """A `RunSynthesizer` for G-PATE; its settings are a `GPateConfig`."""

    config_class = GPateConfig

    def _described(self) -> tuple[str, str, dict[str, Any]]:
        config = self.config
        facts = {"projection_dim": config.projection_dim, "num_bins": config.num_bins,
                 "threshold_noise_stddev": config.threshold_noise_ratio * config.noise_scale}
        return ("It moves one vote from bin to bin for each of {projection_dim} projections of each of {batch_size} "
                "images, so each histogram moves by at most sqrt(2) in l2 norm, and its largest number by 1, whatever "
                "the record is. In units of the former's noise, all numbers together move by at most "
                "{l2_sensitivity:.6g}.",
                "For each of {projection_dim} public random projections of the image gradients, the numbers of "
                "teachers that voted for each of {num_bins} bins were released with Gaussian noise of standard "
                "deviation {noise_stddev:g}, and the largest of these numbers with {threshold_noise_stddev:g}: "
                "{num_steps} steps of {batch_size} images each, with noise multiplier {noise_multiplier_per_step:.6g} "
                "per step. The generator learned only from these numbers.", facts)
