"""DP-MERF: a generator fitted to one private release of mean embeddings, of pixels or of a private autoencoder's codes.

Source: Harder, Adamczewski and Park, "DP-MERF: Differentially Private Mean Embeddings with Random Features for
Practical Privacy-Preserving Data Generation", AISTATS 2021. Deviations:

- Neighbours differ in one replaced record, label included. The paper's bound 2/m is for that, too, and holds for labels
  that change (`MeanEmbedding`). With `adjacency`, neighbours can instead differ in one added or removed record.
- Numbers of records per class are released with the embeddings, at no cost. The authors take them as known for balanced
  data, and release them separately for other data.
- Noise is exact (integer features, rounded Gaussian noise), and calibrated by the exact accountant.
- Bandwidths of the kernels are constants. The authors' code takes the median distance of records, which is private.
- The autoencoder (`autoencoder_dim`) is linear and is computed from one more release (`SecondMoment`). Random features
  are of linear maps of an image, so taking codes instead of pixels changes only which maps they are.
- The squared distance is estimated without bias: the mean square of a batch's mean embedding counts each image's own
  square, which would reward images for being alike.
"""

from __future__ import annotations

import dataclasses
import typing

from etils import epy

from datalens_tf.facts import DataFacts, Suitability
from datalens_tf.methods import sum_questions, sums
from datalens_tf.methods.embedding import EmbeddingConfig, EmbeddingStudent, ReleasingSynthesizer
from datalens_tf.training.questions import Elsewhere, asked

with epy.lazy_imports():
    from datalens_tf.accounting import statement as statements
    from datalens_tf.data import datasets
    from datalens_tf.mechanisms import mean_embedding
    from datalens_tf.training import releases as paid_releases

CHOOSE_WHEN = "you want a short training that is easy to explain, and coarse pictures are enough"
PUBLISHED_AS = "DP-MERF"


@dataclasses.dataclass(frozen=True, kw_only=True)
class DpMerfConfig(EmbeddingConfig):
    """Settings of DP-MERF."""

    method: str = "dp_merf"

    CHOSEN: typing.ClassVar[str] = (
        "bandwidths, num_features, autoencoder_clip_norm and how the generator is fitted were chosen on MNIST, whose "
        "real test split was looked at.")
    CHOSEN_ON: typing.ClassVar[tuple[str, ...]] = ("mnist",)

    @classmethod
    def suits(cls, facts: DataFacts, epsilon: float) -> Suitability:
        return Suitability(0.8, "the most accurate here of the methods whose memory does not grow with the square of a "
                                "picture's size")


_ASSUMPTIONS = (
    "Sensitivity: {changing} one record changes the released sums by at most {l2_sensitivity:g} in l2 norm, in units "
    "of one record's features, whatever the record and its label are.{weights} The release is made once.{autoencoder}",
    "Public: the settings, {number_of_records}, the list of classes, the image shape, the random features, and that "
    "pixels are scaled by a fixed rule. Labels of synthetic images are drawn uniformly, not from the data.",
    "Noise: {noise_source}. {noise_caveat}",
)
_AUTOENCODER = (" Before it, the sum of x x^T over records x, shortened to l2 norm {clip_norm:g}, is released once: "
                "{changing} one changes it by at most {squares}{clip_norm:g}^2.")
_CODES = (" The features are of codes of {autoencoder_dim} numbers, of an autoencoder computed from one release of all "
          "records' second moments, with as much noise.")


class DpMerf(ReleasingSynthesizer[DpMerfConfig]):
    """A `RunSynthesizer` for DP-MERF; its settings are a `DpMerfConfig`."""

    config_class = DpMerfConfig

    def _made(self, records: datasets.Dataset | Elsewhere, releases: paid_releases.Releases
              ) -> tuple[EmbeddingStudent, statements.Guarantee]:
        config = self.config
        frequencies = mean_embedding.RandomFourierFeatures(
            num_features=config.num_features, bandwidths=config.kernel_bandwidths, seed=config.seed,
            dimension=config.autoencoder_dim or config.features_dimension).frequencies()
        if config.autoencoder_dim:
            moment, noisy = releases.get(config.release_mechanisms()[0], asked(sum_questions.ImageSquares(), records))
            frequencies = frequencies @ moment.encoder(noisy, config.autoencoder_dim).T
        features = sum_questions.FeatureMap(
            frequencies=frequencies, square=1 if config.autoencoder_dim else config.features_square)
        mechanism, student = self._fitted(records, releases, features)
        return student, statements.Guarantee(
            event=releases.event, recalibrated=releases.recalibrated, assumptions=_ASSUMPTIONS,
            facts={"l2_sensitivity": mechanism.l2_sensitivity, "num_features": config.num_features,
                   "autoencoder_dim": config.autoencoder_dim,
                   "weights": sums.WEIGHTS[config.adjacency],
                   "autoencoder": _AUTOENCODER.format(
                       clip_norm=config.autoencoder_clip_norm, changing=statements.CHANGING[config.adjacency],
                       squares=sums.SQUARES[config.adjacency]) if config.autoencoder_dim else ""},
            released="Per class, the sum of {num_features} random features of its records and their number, once, with "
                     "Gaussian noise of {noise_multiplier_per_step:.6g} times the sensitivity on every coordinate. The "
                     "generator was fitted to these numbers alone." + (_CODES if config.autoencoder_dim else ""),
            seeds=f"seed {config.seed} for random features, weights, latents and labels")
