"""DataLens with D2P-Fed's compressor: rotated gradients in stochastic levels (DataLens paper, Algorithms 5 and 6).

All but the compressor is DataLens. What deviates from the paper is in `datalens_tf/mechanisms/d2pfed.py`: levels are
centred, gradients are rotated, and the price is that of a vote on every rotated coordinate. The noise is calibrated to
the budget, so that methods are compared at the epsilon that holds.
"""

import math
from typing import Any

from datalens_tf.mechanisms.d2pfed import D2PFed
from datalens_tf.methods import D2PFedConfig
from datalens_tf.synthesizers.voted import PateSynthesizer


class D2PFedTeachers(PateSynthesizer):
    """See `RunSynthesizer`; the settings are a `D2PFedConfig`."""

    config_class = D2PFedConfig

    @staticmethod
    def _mechanism_of(config: D2PFedConfig) -> D2PFed:
        return D2PFed(
            num_teachers=config.num_teachers, dimension=math.prod(config.image_shape), num_levels=config.num_levels,
            clip=config.clip, noise_stddev=config.noise_stddev, vote_threshold=config.vote_threshold,
            rotation_seed=config.seed)

    def _described(self) -> tuple[str, str, dict[str, Any]]:
        facts = {"num_levels": self.config.num_levels, "padded_dimension": self._mechanism().padded_dimension}
        return ("It chooses one of {num_levels} levels, integers that are two apart, for each of {padded_dimension} "
                "rotated coordinates of each of {batch_size} images, so the sum moves by at most "
                "2 * ({num_levels} - 1) * sqrt({padded_dimension} * {batch_size}) = {l2_sensitivity:.6g} in l2 norm, "
                "whatever the record is.",
                "The teachers' image gradients, in a public rotation and rounded to {num_levels} levels, were summed "
                "and released with Gaussian noise of standard deviation {noise_stddev:g} on every coordinate: "
                "{num_steps} steps of {batch_size} images each, with noise multiplier {noise_multiplier_per_step:.6g} "
                "per step. The generator learned only from these sums.", facts)
