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

import dataclasses
import functools
import statistics
import types
import typing
from collections.abc import Mapping

from etils import epy

from datalens_tf import _files, _validate, rng
from datalens_tf.facts import DataFacts, Suitability
from datalens_tf.methods import moments, prototypes, signal_plans, sum_questions, sums
from datalens_tf.methods.embedding import ReleasingSynthesizer
from datalens_tf.methods.embedding import numbers as numbers_of
from datalens_tf.settings import at_least, between, one_of, setting
from datalens_tf.training.callbacks import Stage
from datalens_tf.training.questions import Elsewhere, asked

with epy.lazy_imports():
    import numpy as np
    import tensorflow as tf

    from datalens_tf import rng
    from datalens_tf.accounting import statement as statements
    from datalens_tf.data import datasets
    from datalens_tf.mechanisms import correct_counts, mean_embedding
    from datalens_tf.models import factor_generator
    from datalens_tf.models import warp as warps
    from datalens_tf.training import classifier, feature_network, posing
    from datalens_tf.training import releases as paid_releases

CHOOSE_WHEN = "you want the most useful pictures for your budget, and have 1,000 records or more"
_LARGEST = 2 * 2**30  # bytes that all classes' covariances may take, and as many for a candidate's images


class Candidate(typing.NamedTuple):
    """Sources with equally many images each; how far images are moved, their grain, and the share with a rectangle."""

    sources: tuple[str, ...]
    warp: float
    grain: float = 0.0
    erased: float = 0.0


@dataclasses.dataclass(frozen=True, kw_only=True)
class DataLensPlusConfig(prototypes.PrototypesConfig):
    """Settings of DataLens+: generators from private sums, warps, and a private choice among their combinations.

    The settings of `EmbeddingConfig` are for the source `embedding`. Bandwidths and clips are for 28x28 grey images, in
    pixel units; other sizes scale them by the square root of the numbers in an image. Every charge costs the same. A
    release that more charges pay for has less noise: n charges of noise multiplier z are one of z / sqrt(n). So the
    numbers of charges are shares of mu^2, and public constants.
    """

    method: str = "datalens_plus"
    candidates: str = setting(
        "moments:0:0.15,moments:1.5:0.15,embedding:0:0.15,embedding:1.5:0.15,both:0:0.15,both:1.5:0.15",
        "Candidates to choose from: SOURCE:WARP, SOURCE:WARP:GRAIN or SOURCE:WARP:GRAIN:ERASED, comma-separated. "
        "Sources are moments, Gaussians of each class's mean and covariance; embedding, a generator fitted to mean "
        "embeddings as in DP-MERF; and prototypes, a few images of each class that look to untrained networks as its "
        "records do; or several of them with plus signs, each for as many of the images; both stands for "
        "moments+embedding. Warps say how far images are moved, in units of a handwritten digit's usual variation; "
        "grain is the mean standard deviation of noise on pixels in [0, 1]; erased is the share of images that have a "
        "rectangle of one colour on them: public priors. The candidate whose images make the best classifier of the "
        "records is taken; or the first, where interruptions left too little of the budget for choosing.")
    embedding_charges: int = setting(
        58, "Charges for the classes' mean embeddings; 0 where no candidate has them.", at_least(0))
    learned_share: float = setting(
        0.75, "Share of the features' squared length that a network's features have, which learned from images of the "
        "moments; the rest is random features'. With 0 there are random features alone, and the moments are needed for "
        "candidates only.", between(0, 1))
    learned_warp: float = setting(1.5, "How far the images are moved that this network learns from.", at_least(0))
    batch_size: int = 300
    fit_steps: int = 2000
    selection_charges: int = setting(
        2, "Charges for choosing a candidate; 0 where there is nothing to choose.", at_least(0))
    fixed_plan: bool = setting(
        False, "Keeps the defaults of charges, candidates and clusters whatever the data. Otherwise, unless one of "
        "them is given, they depend on epsilon, on the public numbers of records and classes, and on the shape of the "
        "images.")
    selection_images: int = setting(
        20_000, "Images on which each of the classifiers that choose is trained, and the network of learned features.",
        at_least(1))
    selection_epochs: int = setting(4, "Epochs of the same training.", at_least(1))
    noise_multiplier: float | None = setting(
        None, "Standard deviation of the noise of one charge divided by the sensitivity. With none, it is "
        "calibrated to the budget.")
    latent_distribution: str = setting("normal", "Distribution of the latents: normal.", one_of("normal"))
    output_warp: float = setting(0.0, "It is 0: candidates have warps of their own.")
    output_grain: float = setting(0.0, "It is 0: candidates have grain of their own.")
    output_choices: int = setting(1, "It is 1: the records choose among candidates.")

    GROUP: typing.ClassVar[str] = "mechanism"
    CHOSEN: typing.ClassVar[str] = (
        "Clips, bandwidths, learned_share, the spread of warps, the candidates' warps and grain, the numbers of "
        "clusters and of charges were chosen on MNIST, whose real test split was looked at. That clusters and grain "
        "pay was first seen on Fashion-MNIST's training records, and its real test split was looked at as well. A few "
        "kinds of grain were tried on CIFAR-10's training records. Plans for few records were chosen on training "
        "records of MNIST and Fashion-MNIST; those for few classes on theirs and CIFAR-10's, in two classes, after a "
        "look at the real test split of CelebA's genders, and so was the choice among warps of few colour pictures. "
        "That many colour pictures have one, and clusters where noise hides little, was decided after a look at "
        "CelebA's training records. That images above 32 pixels are fitted and compared at 32 was decided after a "
        "look at its real test split, too. How they are "
        "enlarged, and that choosing classifiers are averaged, was chosen on CIFAR-10's training records, and so were "
        "prototypes and all their settings; that they are mixed with other sources of grey pictures, on MNIST's and "
        "Fashion-MNIST's.")
    CHOSEN_ON: typing.ClassVar[tuple[str, ...]] = ("mnist", "fashion_mnist", "cifar10", "celeba", "celeb_a")
    BEFORE: typing.ClassVar[Mapping[str, typing.Any]] = types.MappingProxyType(
        {**prototypes.PrototypesConfig.BEFORE, "fixed_plan": True})
    SOURCES: typing.ClassVar[tuple[str, ...]] = ("moments", "embedding", "prototypes")

    def _check(self) -> None:
        super()._check()
        for name in ("output_warp", "output_grain"):
            _validate.require(getattr(self, name) == 0, name, getattr(self, name),
                              f"to be 0 for {self.method}, whose candidates have warps and grain of their own")
        _validate.require(self.output_choices == 1, "output_choices", self.output_choices,
                          f"to be 1 for {self.method}, whose images are of the candidate that records chose")
        v = _validate
        v.require(self.autoencoder_dim == 0, "autoencoder_dim", self.autoencoder_dim, "to be 0 for datalens_plus")
        used = {source for choice in self.choices for source in choice.sources}
        if "prototypes" in used or ("embedding" in used and self.learned_share > 0):
            used.add("moments")
        for name, source in (("embedding_charges", "embedding"), ("prototype_charges", "prototypes"),
                             ("mean_charges", "moments"), ("covariance_charges", "moments")):
            v.require((getattr(self, name) > 0) == (source in used), name, getattr(self, name),
                      f"> 0 for candidates={self.candidates}" if source in used else
                      f"to be 0: no candidate of {self.candidates} has {source}")
        clusters = self.num_clusters > 1 and "moments" in used
        for name in ("direction_charges", "cluster_charges"):
            v.require((getattr(self, name) > 0) == clusters, name, getattr(self, name),
                      f"> 0 for num_clusters={self.num_clusters}" if clusters else
                      "to be 0: there are no clusters to find")
        alone = "moments" in used and self.num_clusters == 1
        v.require(alone or self.centre_charges == 0, "centre_charges", self.centre_charges,
                  "to be 0: there is no Gaussian of a whole class")
        v.require(alone or not self.share_covariance, "share_covariance", self.share_covariance,
                  "to be false: there is no Gaussian of a whole class")
        one = len(self.choices) == 1
        v.require((self.selection_charges == 0) == one, "selection_charges", self.selection_charges,
                  "to be 0: there is one candidate" if one else f"> 0, to choose among {self.candidates}")

    @classmethod
    def suits(cls, facts: DataFacts, epsilon: float) -> Suitability | None:
        usual = cls(epsilon=epsilon, image_shape=facts.image_shape, num_classes=facts.num_classes)
        covariances = facts.num_classes * 8 * usual.moments_dimension**2
        if max(covariances, usual.selection_images * facts.dimension) > _LARGEST:
            return None
        return Suitability(0.9, "the most accurate where it was measured, with 1,000 records or more")

    def resolved(self, num_records: int, num_users: int | None = None) -> typing.Self:
        known = super().resolved(num_records, num_users)
        given = {field.name for field in dataclasses.fields(self) if getattr(self, field.name) != field.default}
        if (self.fixed_plan or None in (self.num_classes, self.image_shape) or self.noise_multiplier is not None
                or given & signal_plans.DECIDED):
            return known
        # All releases together are one Gaussian release of this mu.
        mu = self.num_charges**0.5 / _validate.known("noise_multiplier", known.noise_multiplier)
        # For an added or removed record, the noise is smaller by at least this factor.
        mu *= 2**0.5 if self.adjacency == "add-or-remove-one" else 1.0
        plan = signal_plans.of(self, mu * num_records)
        if plan is None:
            return known
        changed = self.replace(**{name: value for name, value in plan.items() if name not in given})
        return super(DataLensPlusConfig, changed).resolved(num_records)

    @property
    def release_charges(self) -> tuple[int, ...]:
        """Charges of each release, in order."""
        charges = (self.centre_charges, self.mean_charges, self.direction_charges,
                   *(self.cluster_charges,) * self.cluster_rounds, self.covariance_charges, self.prototype_charges,
                   self.embedding_charges, self.selection_charges)
        return tuple(filter(None, charges))

    def release_mechanisms(self) -> tuple[sums.Maker, ...]:
        of_moments = self.moment_mechanisms()
        made = ((self.centre_charges, of_moments["centre"]), (self.mean_charges, of_moments["means"]),
                (self.direction_charges, of_moments["directions"]),
                *((self.cluster_charges, of_moments["clusters"]),) * self.cluster_rounds,
                (self.covariance_charges, of_moments["covariances"]),
                (self.prototype_charges, self.prototype_mechanism()),
                (self.embedding_charges, sums.means(self, self.data.num_classes, self.num_features,
                                                    max(1, self.embedding_charges))),
                (self.selection_charges, sums.votes(self, len(self.choices))))
        return tuple(make for num_charges, make in made if num_charges)

    @property
    def moved_prototypes(self) -> float:
        """Warp of prototypes while they are fitted: `prototype_warp`, or the mean of their candidates' warps."""
        if self.prototype_warp is not None:
            return self.prototype_warp
        return statistics.fmean(choice.warp for choice in self.choices if "prototypes" in choice.sources)

    @property
    def num_optional(self) -> int:
        return int(self.selection_charges > 0)

    @property
    def choices(self) -> tuple[Candidate, ...]:
        """`candidates`, each with its sources in the order of `SOURCES`."""
        found = []
        for text in str(self.candidates).split(","):
            source, _, rest = text.strip().partition(":")
            parts = source.replace("both", "moments+embedding").split("+")
            _validate.require(set(parts) <= set(self.SOURCES) and len(set(parts)) == len(parts), "candidates",
                              self.candidates, "to be of SOURCE:WARP with commas, with a SOURCE of "
                              f"{', '.join(self.SOURCES)}, both, or several with plus signs")
            numbers = numbers_of("candidates", rest.replace(":", ","))
            for number in numbers:
                _validate.real("candidates", number)
            candidate = Candidate(tuple(sorted(parts, key=self.SOURCES.index)), *numbers[:3])
            _validate.require(len(numbers) < 4 and min(numbers) >= 0 and candidate.erased <= 1, "candidates", text,
                              "to be SOURCE:WARP, SOURCE:WARP:GRAIN or SOURCE:WARP:GRAIN:ERASED with numbers >= 0, "
                              "ERASED <= 1")
            found.append(candidate)
        return tuple(found)


_ASSUMPTIONS = (
    "Sensitivity: {changing} one record, label included, changes the sums of features and numbers by at most "
    "{features:g} in l2 norm, in units of one record's features, those of images by at most {images:g} * {mean_clip:g},"
    "{centre}{clusters} and those of products by at most {squares}{covariance_clip:g}^2, whatever the record is: what "
    "is longer was shortened.{weights} It changes by at most {votes:g} how many more records a classifier got right "
    "than wrong.",
    "Releases are composed adaptively: later ones depend on earlier ones. One with n charges has the noise of one "
    "charge divided by sqrt(n), which costs as much as n charges, exactly.",
    "Public: the settings, {number_of_records}, the list of classes, the image shape, the random features, and that "
    "pixels are scaled by a fixed rule. Labels of synthetic images are drawn uniformly, not from the data.",
    "Noise: {noise_source}. {noise_caveat}",
)
_RELEASED = {
    "embedding": "per class, the sum of {num_features} random features of its images{learned} and their number "
                 "({embedding_charges} charges)",
    "prototypes": "per class,{cells} the sum of what {num_networks} untrained networks see of its images, "
                  "{num_network_features} numbers, and their number ({prototype_charges} charges)",
    "moments": "{centre_released}per class, the sum of its images{resolution}{differences} and their number "
               "({mean_charges} charges), and {covariances} ({covariance_charges} charges)",
    "clusters": "per class, the sum of its images{resolution} and their number ({mean_charges} charges), and of all "
                "classes together that of the products of all pairs of pixels of their images' differences from their "
                "means ({direction_charges} charges); {cluster_rounds} times, the sums and numbers of the images in "
                "{num_clusters} clusters of each class, in the directions that those say ({cluster_charges} charges "
                "each); and of each cluster the sum of products of pairs of such coordinates ({covariance_charges} "
                "charges)",
    "choice": "how many more records some classifiers of synthetic images got right than wrong ({selection_charges} "
              "charges)",
    "no choice": "nothing by which to choose among candidates, as interruptions left too little of the budget: the "
                 "first one was taken"}
_OWN_COVARIANCES = "that of the products of all pairs of their pixels"
_SHARED_COVARIANCE = ("of all classes together that of the products of all pairs of pixels of their images' "
                      "differences from their means")
_CENTRE_RELEASED = "the sum of all images{resolution} and their number ({centre_charges} charges); "
_CENTRE = " those of images' differences from the mean of all by at most {images:g} * {of_class_clip:g},"
_CELLS = (" for each of {prototype_cells} cells, by which of so many images of the moments is nearest to an image at "
          "lower resolution,")
_LEARNED = (" and of those of a network that learned from synthetic images alone (which have {learned_share:g} of the "
            "squared length),")
_CLUSTERS = (" those of clusters, whichever of them had and has the record, by at most {clusters:g} * "
             "{covariance_clip:g}, those of products in these by at most {squares}{cluster_clip:g}^2,")


class DataLensPlus(ReleasingSynthesizer[DataLensPlusConfig]):
    """A `RunSynthesizer` for DataLens+; its settings are a `DataLensPlusConfig`."""

    config_class = DataLensPlusConfig

    def _made(self, records: datasets.Dataset | Elsewhere, releases: paid_releases.Releases
              ) -> tuple[Fitted, statements.Guarantee]:
        config = self.config
        sources: dict[str, tf.Module] = {}
        if config.mean_charges:
            fit = moments.class_gaussians if config.num_clusters == 1 else moments.cluster_gaussians
            sources["moments"] = fit(config, records, releases)
        if config.prototype_charges:
            made = self._prototypes(sources["moments"], records, releases)
        if config.embedding_charges:
            _, student = self._fitted(records, releases, self._features(sources.get("moments")))
            sources["embedding"] = student.released()
        if config.prototype_charges:  # They are fitted last, so that nothing is released after the fits but the choice.
            self._fit(made, releases, config.prototype_steps, "fit prototypes", "prototypes")
            sources["prototypes"] = made.released()
        fitted = Fitted(config, sources, made.to_look_at(sources["prototypes"]) if config.prototype_charges else None)
        chosen = self._chosen(records, fitted, releases)
        fitted.choose(0 if chosen is None else chosen)
        clips = {f"{name}_clip": value for name, value in moments.clips(config)._asdict().items()}
        bounds, square = _bounds(config), config.moments_square
        resolution = {1: "", 2: " at half the resolution"}.get(square, f" at 1/{square} of the resolution")
        parts = ["clusters" if name == "moments" and config.num_clusters > 1 else name for name in sources]
        if config.selection_charges:
            parts.append("no choice" if chosen is None else "choice")
        return fitted, statements.Guarantee(
            event=releases.event, recalibrated=releases.recalibrated, assumptions=_ASSUMPTIONS,
            facts={name: getattr(config, name) for name in (
                "num_features", "learned_share", "embedding_charges", "prototype_charges", "num_networks",
                "num_network_features", "centre_charges", "mean_charges",
                "covariance_charges", "share_covariance", "num_clusters", "direction_charges", "cluster_charges",
                "cluster_rounds", "selection_charges")}
            | {"cells": _CELLS.format(prototype_cells=config.prototype_cells) if config.prototype_cells > 1 else ""}
            | {"learned": _LEARNED.format(learned_share=config.learned_share) if config.learned_share else ""}
            | {"clusters": _CLUSTERS.format(**clips, **bounds) if config.num_clusters > 1 else "",
               "centre": _CENTRE.format(**clips, **bounds) if config.centre_charges else "",
               "resolution": resolution,
               "centre_released": _CENTRE_RELEASED.format(centre_charges=config.centre_charges, resolution=resolution)
               if config.centre_charges else "",
               "differences": ", less that mean," if config.centre_charges else "",
               "covariances": _SHARED_COVARIANCE if config.share_covariance else _OWN_COVARIANCES} | clips
            | {name: bounds[name] for name in ("features", "images", "squares", "votes")}
            | {"weights": sums.WEIGHTS[config.adjacency]},
            released="Once each: " + "; ".join(_RELEASED[part] for part in parts) + ". A charge has Gaussian noise of "
                     "{noise_multiplier_per_step:.6g} times the sensitivity. The generator was computed from these "
                     "numbers alone. {num_charges} charges were made; {num_burnt_charges} of them paid for nothing "
                     "that reached the generator because the run was interrupted.",
            seeds=f"seed {config.seed} for random features, weights, latents, labels and classifiers of synthetic "
                  "images")

    def _prototypes(self, gaussians: factor_generator.FactorGenerator, records: datasets.Dataset | Elsewhere,
                    releases: paid_releases.Releases) -> prototypes.PrototypeStudent:
        """Prototypes that are yet to be fitted to what untrained networks see of the records, which is released."""
        with self._ending_at_once("before prototypes were fitted", self.folder.path):
            plan = prototypes.plan(self.config, gaussians, self.folder.private / "prototypes.npz")
        mechanism, noisy = releases.get(
            self.config.prototype_mechanism(), asked(plan.question(self.config), records))
        return prototypes.PrototypeStudent(
            self.config, plan, self.config.moved_prototypes, mechanism.means(noisy), mechanism.counts(noisy),
            np.clip(gaussians.class_means, 0.0, 1.0))

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


def _bounds(config: DataLensPlusConfig) -> dict[str, typing.Any]:
    """Sensitivities that the statement names, each that of the least favourable release of its kind."""
    def largest(*makers):
        return max(make(noise_multiplier=1.0).l2_sensitivity for make in makers)

    of_moments = config.moment_mechanisms()
    of_features = [config.prototype_mechanism()] if config.prototype_charges else []
    if config.embedding_charges or not of_features:
        of_features.append(sums.means(
            config, config.data.num_classes, config.num_features, max(1, config.embedding_charges)))
    return {"features": largest(*of_features),
            "images": largest(of_moments["centre"], of_moments["means"]), "clusters": largest(of_moments["clusters"]),
            "squares": sums.SQUARES[config.adjacency],
            "votes": 2 if config.adjacency == "replace-one" else 1}


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
