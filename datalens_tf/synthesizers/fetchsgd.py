"""DataLens with FetchSGD's compressor: votes in a Count Sketch (DataLens paper, Table 5, Algorithm 7).

All but the compressor is DataLens. What deviates from the paper is in `datalens_tf/mechanisms/fetchsgd.py`: the noise
is on the summed sketch, which is what is released and priced; the k largest coordinates are found after it. The noise
is calibrated to the budget, so that methods are compared at the epsilon that holds.
"""

import math
from typing import Any

from datalens_tf.mechanisms.fetchsgd import FetchSgd
from datalens_tf.methods import FetchSgdConfig
from datalens_tf.synthesizers.voted import PateSynthesizer


class FetchSgdTeachers(PateSynthesizer):
    """See `RunSynthesizer`; the settings are a `FetchSgdConfig`."""

    config_class = FetchSgdConfig

    @staticmethod
    def _mechanism_of(config: FetchSgdConfig) -> FetchSgd:
        return FetchSgd(
            num_teachers=config.num_teachers, dimension=math.prod(config.image_shape), top_k=config.top_k,
            clip=config.clip, noise_stddev=config.noise_stddev, sketch_rows=config.sketch_rows,
            sketch_columns=config.sketch_columns, hash_seed=config.seed)

    def _described(self) -> tuple[str, str, dict[str, Any]]:
        config, mechanism = self.config, self._mechanism()
        facts = {"top_k": config.top_k, "sketch_rows": config.sketch_rows, "sketch_columns": config.sketch_columns,
                 "largest_bucket": mechanism.largest_bucket}
        return ("It votes +1 or -1 on at most {top_k} coordinates of each of {batch_size} images. Each of these votes "
                "is in one bucket of each of {sketch_rows} rows of the sketch, and a bucket has at most "
                "{largest_bucket} coordinates, so the summed sketches move by at most {l2_sensitivity:.6g} in l2 norm, "
                "whatever the record is.",
                "The teachers' votes on image gradients were sketched by public hashes to {sketch_rows} rows of "
                "{sketch_columns} buckets per image, summed, and released with Gaussian noise of standard deviation "
                "{noise_stddev:g} votes on every bucket: {num_steps} steps of {batch_size} images each, with noise "
                "multiplier {noise_multiplier_per_step:.6g} per step. The generator learned only from these sums.",
                facts)
