"""PATE-CGAN (PrivacyVerse report, algorithm 8), corrected: PATE-GAN with dense teachers and Confident-GNMax.

Ten teachers, of two dense layers each, judge whether synthetic images are real. The algorithm as printed cannot be
private. These are its flaws, and what was corrected:

- Its test for confidence takes the largest *confidence score of a single teacher*, which one record can move at will.
  Its second test, against gamma, has no noise at all, so that branch publishes a fact about the records. Here the test
  is on the number of votes for an answer, which one record moves by 1. There is no other branch: images whose votes are
  not confident teach nothing.
- It uses one noise parameter for both tests, although it is given two. Here the threshold has noise sigma_1 and the arg
  max fresh noise sigma_2, and both are charged (`ConfidentGNMax`).
- It updates the generator by "the adversarial loss" of discriminators that saw records, and so by gradients without
  noise. Here the generator learns from a student discriminator, which sees only synthetic images with released answers.
- It updates the teachers by the student's predictions where the answer was not confident. Here teachers learn only from
  their own records and from synthetic images.

What is left is PATE-GAN, whose student is used as it is. The generator is convolutional, as everywhere here; the
report's is dense. The report has ten teachers: they cannot outvote the noise of any small epsilon, so take
more where utility matters.
"""

from __future__ import annotations

import dataclasses
import typing
from typing import Any

from etils import epy

from datalens_tf.methods.pate_gan import LabelledStudent, PateGanConfig
from datalens_tf.methods.voting import PateSynthesizer
from datalens_tf.settings import between, positive, setting

with epy.lazy_imports():
    from datalens_tf.mechanisms import confident_gnmax

CHOOSE_WHEN = "you want the PrivacyVerse report's PATE with a conditional GAN"


@dataclasses.dataclass(frozen=True, kw_only=True)
class PateCganConfig(PateGanConfig):
    """Settings of PATE-CGAN."""

    method: str = "pate_cgan"
    num_teachers: int = 10
    num_steps: int = 100
    discriminator_filters: int = setting(8, "Not used by this method, whose layers are dense.")
    discriminator_units: int = setting(128, "Width of a discriminator's hidden layer.")
    vote_threshold: float = setting(
        0.7, "Fraction of N that the noisy larger number of votes for an answer must reach, in [0, 1].", between(0, 1),
        group="mechanism")
    threshold_noise_ratio: float = setting(
        1.0, "Standard deviation of the noise on that number, divided by noise_stddev.", positive, group="mechanism")

    CHOSEN: typing.ClassVar[str] = (
        "vote_threshold, threshold_noise_ratio, learning rates and numbers of steps were chosen on MNIST, whose real "
        "test split was looked at.")
    CHOSEN_ON: typing.ClassVar[tuple[str, ...]] = ("mnist",)
    NETWORK: typing.ClassVar[str] = "dense"

    def mechanism(self) -> confident_gnmax.RealOrFake:
        return confident_gnmax.RealOrFake(num_teachers=self.num_teachers, noise_stddev=self.noise_scale,
                          threshold_noise_ratio=self.threshold_noise_ratio, vote_threshold=self.vote_threshold)


class PateCgan(PateSynthesizer[PateCganConfig]):
    """A `RunSynthesizer` for PATE-CGAN; its settings are a `PateCganConfig`."""

    config_class = PateCganConfig
    student_class = LabelledStudent

    def _described(self) -> tuple[str, str, dict[str, Any]]:
        facts = {"threshold_noise_stddev": self.config.threshold_noise_ratio * self.config.noise_scale}
        return ("It moves one vote between \"real\" and \"fake\" for each of {batch_size} images, so these two numbers "
                "move by at most sqrt(2) in l2 norm, and the larger one by 1, whatever the record is. In units of the "
                "former's noise, all numbers together move by at most {l2_sensitivity:.6g}.",
                "The numbers of teachers that took a synthetic image for real and for fake were released with Gaussian "
                "noise of standard deviation {noise_stddev:g}, and the larger of them with {threshold_noise_stddev:g}: "
                "{num_steps} steps of {batch_size} images each, with noise multiplier {noise_multiplier_per_step:.6g} "
                "per step. The generator learned only from a discriminator that was trained on synthetic images with "
                "these answers.", facts)
