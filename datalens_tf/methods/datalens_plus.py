"""DataLens+: a generator fitted to a few private sums, with small random warps and grain that the records choose.

Each release consists of sums over all records with Gaussian noise, and is made once:

1. Per class, the sum of its images at half the resolution, and their number (`MeanEmbedding`).
2. Per class, the sum of r r^T over differences r between its images and the released mean (`SecondMoment`).
   Where records are few for the budget, the mean of all classes is released before 1, and 2 is of all classes together.
   Where there is little noise, both are instead released for each of a few clusters of a class, once the clusters are
   found (see `moments`).
3. Per class, the sum of its images' features, and their number (`MeanEmbedding`). The features are random Fourier
   features of pixels, and the layer outputs of a classifier that learned from the Gaussians of 1 and 2
   (`FeatureNetwork`).
4. For each of a few classifiers that saw synthetic images only, how many more records it gets right than wrong
   (`CorrectCounts`).

How much noise hides decides what is released, and at what cost (`signal_plans`). Unless records are very few, what
untrained networks see of each class is released instead of 3 (see `prototypes`).

Three sources of images, which can be mixed: the Gaussians that 1 and 2 describe, without the directions that noise
alone would explain (`FactorGenerator`); a convolutional generator fitted to 3, as in DP-MERF (`EmbeddingStudent`); and
a few images of each class whose pixels are fitted to what untrained networks saw (`PrototypeGenerator`). Images are
moved a little, which suits digits but not clothes, and get grain, which suits clothes and matters little to digits;
both are public priors (`WarpedGenerator`). Release 4 asks the records which source to take, and how far to move its
images. Everything but the releases is post-processing.

Privacy. For one replaced record, its label included, the sensitivities are:

- in 1, and in each round in which clusters are found, 2 times the length that images are shortened to;
- in 2, and in the release by which directions are found, sqrt(2) times the square of such a length;
- in 3, 2 times the length of one record's features;
- in 4, 2 sqrt(K) for K classifiers.

For one record that is added or removed (`adjacency`), the factors 2, sqrt(2), 2 and 2 sqrt(K) become sqrt(1 + c^2), 1,
sqrt(1 + c^2) and sqrt(K), where numbers of records have the weight c. The docstring of each mechanism has the argument.

The releases compose adaptively to one Gaussian release, exactly: with noise multipliers z_i, mu^2 = sum 1 / z_i^2. A
release with noise multiplier z / sqrt(n) is charged as n releases with z, which is the same mu^2, in one line of the
ledger. The number of charges of each release is a setting, so it depends on nothing that was released.
`training.releases` says what happens to z when charges are lost. Clips, bandwidths and the spread of warps were chosen
on MNIST. Numbers of records per class are released with the sums, not read.
"""

from __future__ import annotations

import functools

from etils import epy

from datalens_tf import _files, _validate, rng
from datalens_tf.methods import moments, prototypes, sum_questions
from datalens_tf.methods.datalens_plus_config import DataLensPlusConfig
from datalens_tf.methods.embedding import ReleasingSynthesizer
from datalens_tf.training.callbacks import Stage
from datalens_tf.training.questions import Elsewhere, asked

with epy.lazy_imports():
    import numpy as np
    import tensorflow as tf

    from datalens_tf.accounting import statement as statements
    from datalens_tf.data import datasets
    from datalens_tf.mechanisms import correct_counts, mean_embedding
    from datalens_tf.methods import datalens_plus_guarantee
    from datalens_tf.models import factor_generator
    from datalens_tf.models import warp as warps
    from datalens_tf.training import classifier, feature_network, posing
    from datalens_tf.training import releases as paid_releases

CHOOSE_WHEN = "you want the most useful pictures for your budget, and have 1,000 records or more"


class DataLensPlus(ReleasingSynthesizer[DataLensPlusConfig]):
    """A `RunSynthesizer` for DataLens+; its settings are a `DataLensPlusConfig`."""

    config_class = DataLensPlusConfig

    def _made(self, records: datasets.Dataset | Elsewhere, releases: paid_releases.Releases
              ) -> tuple[Fitted, statements.Guarantee]:
        config = self.config
        sources: dict[str, tf.Module] = {}
        if config.mean_charges:
            fit = moments.class_gaussians if config.num_clusters == 1 else moments.cluster_gaussians
            sources["moments"], class_means = fit(config, records, releases)
        if config.prototype_charges:
            made = self._prototypes(sources["moments"], class_means, records, releases)
        if config.embedding_charges:
            _, student = self._fitted(records, releases, self._features(sources.get("moments")))
            sources["embedding"] = student.released()
        if config.prototype_charges:  # They are fitted last, so that nothing is released after the fits but the choice.
            self._fit(made, releases, config.prototype_steps, "fit prototypes", "prototypes")
            sources["prototypes"] = made.released()
        fitted = Fitted(config, sources, made.to_look_at(sources["prototypes"]) if config.prototype_charges else None)
        chosen = self._chosen(records, fitted, releases)
        fitted.choose(0 if chosen is None else chosen)
        return fitted, datalens_plus_guarantee.guarantee(config, list(sources), chosen is not None, releases)

    def _prototypes(self, gaussians: factor_generator.FactorGenerator, class_means: np.ndarray,
                    records: datasets.Dataset | Elsewhere, releases: paid_releases.Releases
                    ) -> prototypes.PrototypeStudent:
        """Prototypes that are yet to be fitted to what untrained networks see of the records, which is released."""
        with self._ending_at_once("before prototypes were fitted", self.folder.path):
            plan = prototypes.plan(self.config, gaussians, self.folder.private / "prototypes.npz")
        mechanism, noisy = releases.get(
            self.config.prototype_mechanism(), asked(plan.question(self.config), records))
        return prototypes.PrototypeStudent(
            self.config, plan, self.config.moved_prototypes, mechanism.means(noisy), mechanism.counts(noisy),
            class_means)

    def _features(self, source: tf.Module | None) -> sum_questions.FeatureMap:
        """The released features: random ones of pixels, and those learned from images of the moments."""
        config = self.config
        frequencies = mean_embedding.RandomFourierFeatures(
            num_features=config.num_features, seed=config.seed, dimension=config.features_dimension,
            bandwidths=tuple(moments.scale(config) * bandwidth for bandwidth in config.kernel_bandwidths)).frequencies()
        square = config.features_square
        if config.learned_share == 0:
            return sum_questions.FeatureMap(frequencies=frequencies, square=square)
        return sum_questions.FeatureMap(
            frequencies=frequencies, square=square, network=self._network(source).arrays(),
            learned_share=config.learned_share, data=config.features_data)

    def _network(self, gaussians: tf.Module) -> feature_network.FeatureNetwork:
        """The network of learned features, kept in a file: a resumed run must use the features that were released."""
        config, kept = self.config, self.folder.private / "feature_network.npz"
        network = feature_network.FeatureNetwork(*config.features_data, config.seed)
        if kept.exists():
            network.restore(_files.read_npz(kept, _files.exactly(network.arrays())))
        else:
            source = warps.WarpedGenerator(config.data.image_shape, [gaussians], config.learned_warp)
            with self._ending_at_once("while features were learned", self.folder.path):
                stream = rng.stream(config.seed, "features")
                images, labels = posing.draw(source, config.data, stream, config.selection_images)
                network.fit(sum_questions.smaller(images, config.features_square), labels, config.selection_epochs)
            _files.atomic_write(kept, _files.npz_bytes(network.arrays()))
        return network

    def _stages(self, num_records: int) -> list[Stage]:
        config, (release, fit) = self.config, super()._stages(num_records)
        prototypes_fit = Stage("fit prototypes", 3 * config.prototype_steps * config.data.num_classes
                               * config.num_prototypes * config.network_work)
        stages = [release] + [fit] * bool(config.embedding_charges) + [prototypes_fit] * bool(config.prototype_charges)
        if config.selection_charges:
            trained, image = self._classifier_work()
            stages.append(Stage("choose", len(config.choices) * (trained + num_records * image), charged=True))
        return stages

    def _release_work(self, num_records: int) -> list[float]:
        config, work = self.config, []
        if config.mean_charges:  # Nearly all is the last release's: sums of products, their noise, eigenvectors.
            size = config.moments_dimension
            sums = 1 if config.share_covariance or config.num_clusters > 1 else config.data.num_classes
            before = len(config.release_charges) - sum(map(bool, (
                config.prototype_charges, config.embedding_charges, config.selection_charges)))
            work = [0.0] * (before - 1) + [1e-9 * size**2 * (2 * num_records + sums * (5e4 + 8 * size))]
        if config.prototype_charges:
            work.append(num_records * config.num_networks * config.network_work)
        if config.embedding_charges:
            network = 2 * self._classifier_work()[0] if config.learned_share else 0.0
            work += [network + features for features in super()._release_work(num_records)]
        return work

    def _classifier_work(self) -> tuple[float, float]:
        """Billions of operations to train a small classifier, and to see an image; learning takes thrice as many."""
        config, image = self.config, 6e-6 * self.config.features_dimension
        return 3 * config.selection_images * config.selection_epochs * image, image

    def _chosen(self, records: datasets.Dataset | Elsewhere, fitted: Fitted, releases: paid_releases.Releases
                ) -> int | None:
        """The candidate whose images make the best classifier of the records, as far as can be seen through the noise.

        None where interruptions burnt the charges for the choice: a run must be able to end.
        """
        config, count = self.config, len(self.config.choices)
        if count == 1:
            return 0
        self._tell("on_stage", "choose")
        if not releases.can_get():
            return None

        def counted(mechanism):
            trained, judge = [], classifier.QuickClassifier(*config.features_data, config.seed)
            for candidate in range(count):
                self._tell("on_progress", f"candidate {candidate + 1} of {count}", candidate / count)
                with self._ending_at_once("before a candidate was chosen", self.folder.path):
                    fitted.choose(candidate)
                    images, labels = fitted.draw(config.selection_images, "selection")
                    judge.fit(sum_questions.smaller(images, config.features_square), labels, config.selection_epochs)
                    trained.append(judge.weights())
            return asked(sum_questions.Votes(classifiers=trained, data=config.features_data,
                                             square=config.features_square), records)(mechanism)

        steps = 1 if config.unit is None else correct_counts.CorrectCounts.STEPS_OF_UNITS
        _, noisy = releases.get(functools.partial(config.release_mechanisms()[-1], steps=steps), counted)
        return int(np.argmax(noisy))


class Fitted:
    """Fitted releases, and the generator chosen among their variants.

    Args:
      config: resolved settings.
      sources: generators by their names in the settings' choices.
      prototypes_to_look_at: what people see of a candidate that has prototypes; None where none has.
    """

    def __init__(self, config: DataLensPlusConfig, sources: dict[str, tf.Module],
                 prototypes_to_look_at: tf.Module | None = None):
        self._config, self._sources, self._to_look_at = config, sources, prototypes_to_look_at
        self._generator: warps.WarpedGenerator | None = None

    def choose(self, candidate: int) -> None:
        """Sets the candidate that images are drawn from, by its place among the settings' choices."""
        names, warp, grain, erased = self._config.choices[candidate]
        self._generator = warps.WarpedGenerator(
            self._config.data.image_shape, [self._sources[name] for name in names], warp, grain, erased,
            looking=[self._to_look_at] if "prototypes" in names else None)

    def released(self) -> warps.WarpedGenerator:
        """The generator to hand out."""
        return _validate.known("candidate", self._generator, "to be chosen first")

    def draw(self, count: int, purpose: str) -> tuple[np.ndarray, np.ndarray]:
        """Images uint8 [count, H, W, C], and labels [count] in turn, from the public stream named `purpose`."""
        return posing.draw(self.released(), self._config.data, rng.stream(self._config.seed, purpose), count)

    def sample_grid(self, per_class: int = 10) -> np.ndarray:
        """Images to look at: uint8 [Y, per_class, H, W, C], one row per class."""
        return posing.grid(self.released(), self._config, per_class)
