"""G-PATE: a generator that follows noisy votes on projected, binned image gradients (Long et al., NeurIPS 2021).

Every teacher projects its gradient of each synthetic image on a few public random directions and votes for the bin of
each projection. Where Confident-GNMax finds enough votes, the image moves by the chosen bin's middle along the
direction, and the generator takes a step towards the moved images, as in DataLens. What deviates:

- The price is independent of the data, and covers the arg max of every projection whether or not the threshold was
  reached (`ConfidentGNMax`). The authors account by bounds that depend on the votes, so that epsilon and the end of
  training are functions of the records.
- Noise is exact: the counts are integers (`RoundedGaussianNoise`).
- Partitions are dealt by index and a public seed, and fakes carry the labels of a teacher's own records.
- Directions have length 1 on average, so that `clip` is on the scale of DataLens' clip.
- By default the authors' 4,000 teachers, but small networks and few steps, for a machine without GPU, hence 100
  directions per step where the authors have 10: they cost as much as ten times the steps.
  The authors' command for MNIST at epsilon = 1 has batches of 64, and noise 3,000 and 1,000 for threshold and arg max.
"""

import math
from typing import Any

from datalens_tf.mechanisms.confident_gnmax import BinnedGradients
from datalens_tf.methods import GPateConfig
from datalens_tf.synthesizers.voted import PateSynthesizer


class GPate(PateSynthesizer):
    """See `RunSynthesizer`; the settings are a `GPateConfig`."""

    config_class = GPateConfig

    @staticmethod
    def _mechanism_of(config: GPateConfig) -> BinnedGradients:
        return BinnedGradients(
            num_teachers=config.num_teachers, num_bins=config.num_bins, noise_stddev=config.noise_stddev,
            threshold_noise_ratio=config.threshold_noise_ratio, vote_threshold=config.vote_threshold,
            projection_dim=config.projection_dim, clip=config.clip, dimension=math.prod(config.image_shape),
            seed=config.seed)

    def _described(self) -> tuple[str, str, dict[str, Any]]:
        config = self.config
        facts = {"projection_dim": config.projection_dim, "num_bins": config.num_bins,
                 "threshold_noise_stddev": config.threshold_noise_ratio * config.noise_stddev}
        return ("It moves one vote from bin to bin for each of {projection_dim} projections of each of {batch_size} "
                "images, so each histogram moves by at most sqrt(2) in l2 norm, and its largest number by 1, whatever "
                "the record is. In units of the former's noise, all numbers together move by at most "
                "{l2_sensitivity:.6g}.",
                "For each of {projection_dim} public random projections of the image gradients, the numbers of "
                "teachers that voted for each of {num_bins} bins were released with Gaussian noise of standard "
                "deviation {noise_stddev:g}, and the largest of these numbers with {threshold_noise_stddev:g}: "
                "{num_steps} steps of {batch_size} images each, with noise multiplier {noise_multiplier_per_step:.6g} "
                "per step. The generator learned only from these numbers.", facts)
