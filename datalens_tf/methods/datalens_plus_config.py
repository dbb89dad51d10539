"""Settings of DataLens+: what is released at what cost, and the candidates among which the records choose."""

from __future__ import annotations

import dataclasses
import statistics
import types
import typing
from collections.abc import Mapping

from datalens_tf import _validate
from datalens_tf.facts import DataFacts, Suitability
from datalens_tf.methods import prototypes, signal_plans, sums
from datalens_tf.methods.embedding import numbers as numbers_of
from datalens_tf.settings import at_least, between, one_of, setting

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
