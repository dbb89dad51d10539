"""DataLens with FetchSGD's compressor: votes in a Count Sketch (DataLens paper, Table 5, Algorithm 7).

Everything but the compressor is as in DataLens. `datalens_tf/mechanisms/fetchsgd.py` describes the deviations from the
paper: the noise is on the summed sketch, which is what is released and priced, and the k largest coordinates are found
after the noise is added. The noise is calibrated to the budget, so that methods are compared at an epsilon that holds.
"""

from __future__ import annotations

import dataclasses
import math
import typing
from collections.abc import Mapping
from typing import Any

from etils import epy

from datalens_tf import _validate
from datalens_tf.facts import DataFacts
from datalens_tf.methods.voting import CompressedConfig, PateSynthesizer
from datalens_tf.settings import at_least, setting

with epy.lazy_imports():
    from datalens_tf.mechanisms import fetchsgd

CHOOSE_WHEN = "you compare DataLens' compressor with a sketch"


@dataclasses.dataclass(frozen=True, kw_only=True)
class FetchSgdConfig(CompressedConfig):
    """Settings of FetchSGD."""

    method: str = "fetchsgd"
    top_k: int = setting(
        200, "Coordinates on which each teacher votes, per image, and coordinates of the direction [k].", at_least(1))
    sketch_rows: int = setting(
        3, "Independent hashes of the sketch [r]; the price grows with sqrt(r).", at_least(1))
    sketch_columns: int = setting(
        512, "Buckets per row [w]; the price grows with sqrt(q), for q coordinates in a bucket.", at_least(1))
    noise_stddev: float | None = setting(
        None, "Standard deviation of the noise on the summed sketch, in votes. With none, it is calibrated to "
        "the budget and num_steps.")

    CHOSEN: typing.ClassVar[str] = (
        "num_teachers, top_k, clip and step_size are those that the DataLens authors have for MNIST, and teachers are "
        "trained as they are for datalens, which was chosen on MNIST, whose real test split was looked at. On which "
        "data sketch_rows and sketch_columns were chosen was not recorded; take it that it was MNIST.")
    CHOSEN_ON: typing.ClassVar[tuple[str, ...]] = ("mnist",)

    @classmethod
    def for_data(cls, facts: DataFacts, epsilon: float | None, given: Mapping[str, Any]) -> typing.Self:
        """Extends `VotingConfig.for_data`: teachers vote on at most half of an image's coordinates."""
        return super().for_data(facts, epsilon, {"top_k": min(cls().top_k, -(-facts.dimension // 2)), **given})

    def _check(self) -> None:
        super()._check()
        _validate.top_k(self.top_k, self.image_shape and math.prod(self.image_shape))

    def mechanism(self) -> fetchsgd.FetchSgd:
        return fetchsgd.FetchSgd(
            num_teachers=self.num_teachers, dimension=self.dimension, top_k=self.top_k,
            clip=self.clip, noise_stddev=self.noise_scale, sketch_rows=self.sketch_rows,
            sketch_columns=self.sketch_columns, hash_seed=self.seed)


class FetchSgdTeachers(PateSynthesizer[FetchSgdConfig]):
    """A `RunSynthesizer` for DataLens' training with FetchSGD's compression; its settings are a `FetchSgdConfig`."""

    config_class = FetchSgdConfig

    def _described(self) -> tuple[str, str, dict[str, Any]]:
        config, mechanism = self.config, self.config.mechanism()
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
