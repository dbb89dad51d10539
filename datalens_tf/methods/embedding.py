"""Generators fitted to released mean embeddings: the settings and the training that several methods share."""

from __future__ import annotations

import abc
import contextlib
import dataclasses
import functools
import math
import types
import typing
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, TypeVar

from etils import epy

from datalens_tf import _validate, rng
from datalens_tf.config import BoundedConfig, MethodConfig
from datalens_tf.errors import InvalidArgumentError
from datalens_tf.facts import DataSpec
from datalens_tf.methods import sum_questions, sums
from datalens_tf.methods.base import RunSynthesizer, Trained
from datalens_tf.settings import LARGEST_WIDTH, at_least, positive, setting
from datalens_tf.training.callbacks import Pictured, Stage
from datalens_tf.training.questions import Elsewhere, asked
from datalens_tf.training.student import AveragedGenerator, draw_latents

with epy.lazy_imports():
    import numpy as np
    import tensorflow as tf

    from datalens_tf.accounting import accountants
    from datalens_tf.accounting import statement as statements
    from datalens_tf.data import datasets
    from datalens_tf.data import identity as identities
    from datalens_tf.mechanisms import mean_embedding
    from datalens_tf.training import loop as loops
    from datalens_tf.training import releases as paid_releases
    from datalens_tf.training import run_folder as run_folders
    from datalens_tf.training import sum_owners


_THINNEST = 8  # pixels of an image's shorter side: networks take no smaller images
_RENYI = ("rdp", "classic_rdp")  # Accountants that price discrete Gaussian noise.


def _check_bandwidths(name: str, value: Any) -> None:
    for number in numbers(name, value):
        _validate.positive(name, number)


@dataclasses.dataclass(frozen=True, kw_only=True)
class EmbeddingConfig(BoundedConfig, MethodConfig):
    """Settings of methods that release mean embeddings."""

    num_features: int = setting(4000, "Random Fourier features per image [D], an even number.", at_least(2))
    bandwidths: str = setting(
        "5,10", "Bandwidths of the kernels, comma-separated standard deviations in pixel units: distances "
        "between images that they tell apart. They are fixed numbers: a median over the records would be private.",
        _check_bandwidths)
    features_side: int = setting(
        32, "Longest side, in pixels, of the images that features are of, and that the generator makes. Larger ones "
        "are averaged over squares of pixels first, and the generator's are enlarged.", at_least(8))
    autoencoder_dim: int = setting(
        0, "Numbers in the code of a private linear autoencoder, by which images are then compared; it costs one more "
        "release. 0 compares pixels.", at_least(0))
    autoencoder_clip_norm: float = setting(
        10.0, "l2 norm that images are shortened to for the autoencoder, in pixel units.", positive)
    noise_multiplier: float | None = setting(
        None, "Standard deviation of the noise divided by the sensitivity. With none, it is calibrated to the budget.",
        positive)
    batch_size: int = setting(
        500, "Synthetic images per step of the generator, the same number for each class.", at_least(1),
        group="generator")
    fit_steps: int = setting(
        3000, "Steps of the generator; post-processing, free in privacy.", at_least(1), group="generator")
    latent_dim: int = 10
    latent_distribution: str = "normal"
    generator_filters: int = 32
    generator_units: int = 256
    student_learning_rate: float = 1e-3
    student_beta_1: float = 0.9
    ema_decay: float = 0.99

    num_owners: int | None = setting(
        None, "Number of data owners who keep their records, each of whom adds a share of the noise to its sums. With "
        "none, one party holds all records.", at_least(1))
    owner_tolerance: int = setting(
        0, "How many owners may be silent, add no noise, or tell others theirs. The rest still reach the noise that is "
        "charged for: a share has 1 / (num_owners - owner_tolerance) of its variance.", at_least(0))

    GROUP: typing.ClassVar[str] = "mechanism"
    BEFORE: typing.ClassVar[Mapping[str, Any]] = types.MappingProxyType(
        {**MethodConfig.BEFORE, "features_side": LARGEST_WIDTH})
    ADJACENCIES: typing.ClassVar[tuple[str, ...]] = ("replace-one", "add-or-remove-one")
    NO_OTHER: typing.ClassVar[str] = "sums have a sensitivity for these"
    OF_SUMS: typing.ClassVar[bool] = True
    OF_UNITS: typing.ClassVar[str] = "In every sum, the images of one count as their average."

    def _check(self) -> None:
        super()._check()
        _validate.require(self.num_features % 2 == 0, "num_features", self.num_features, "to be even")
        if self.adjacency == "add-or-remove-one" and self.publishes_num_records:
            raise InvalidArgumentError("Missing --records_at_most: name a public bound on the number of records, which "
                                       "is private under add-or-remove-one.")
        if self.num_owners is not None:
            _validate.require(self.accountant in _RENYI, "accountant", self.accountant,
                              f"to be {' or '.join(_RENYI)} where owners add discrete Gaussian noise: others do not "
                              "know its price")
        _validate.require(self.owner_tolerance < (self.num_owners or 1), "owner_tolerance", self.owner_tolerance,
                          f"< num_owners={self.num_owners}, the number of those who add noise")

    @property
    def noise_share(self) -> float:
        """The part of the noise's variance that one owner adds."""
        return 1.0 / ((self.num_owners or 1) - self.owner_tolerance)

    @property
    def kernel_bandwidths(self) -> tuple[float, ...]:
        """`bandwidths` as numbers."""
        return numbers("bandwidths", self.bandwidths)

    @property
    def features_square(self) -> int:
        """Side of the squares of pixels that images are averaged over; 1 for images as they are, or thin ones."""
        sides = self.data.image_shape[:2]
        return max(1, min(-(-max(sides) // self.features_side), min(sides) // _THINNEST))

    @property
    def features_data(self) -> DataSpec:
        """Shape of the averaged images, and the number of classes."""
        height, width, channels = self.data.image_shape
        square = self.features_square
        return DataSpec((-(-height // square), -(-width // square), channels), self.data.num_classes)

    @property
    def features_dimension(self) -> int:
        """Numbers in an averaged image."""
        return math.prod(self.features_data.image_shape)

    @property
    def release_charges(self) -> tuple[int, ...]:
        """Number of charges that pay for each release, in order: the autoencoder, the embeddings."""
        return (1, 1) if self.autoencoder_dim else (1,)

    @property
    def num_charges(self) -> int:
        """Number of charges of the whole run."""
        return sum(self.release_charges)

    @property
    def num_optional(self) -> int:
        """Number of releases, at the end of the run, that the run can do without."""
        return 0

    def mechanism(self) -> mean_embedding.MeanEmbedding:
        """Mechanism of embeddings that one charge pays for; every charge costs as much as this one."""
        return mean_embedding.MeanEmbedding(
            noise_multiplier=_validate.known("noise_multiplier", self.noise_multiplier), adjacency=self.adjacency,
            discrete=bool(self.num_owners))

    def release_mechanisms(self) -> tuple[sums.Maker, ...]:
        """Makers of the releases' mechanisms, in order; each takes a noise multiplier. Settings must be resolved."""
        features = sums.means(self, self.data.num_classes, self.num_features, 1)
        return (sums.squares(self, self.autoencoder_clip_norm), features) if self.autoencoder_dim else (features,)

    def resolved(self, num_records: int, num_users: int | None = None) -> typing.Self:
        return accountants.calibrated(self, self.num_charges, precision=1e-9)


def numbers(name: str, text: str) -> tuple[float, ...]:
    """Numbers that a setting lists; raises InvalidArgumentError."""
    try:
        return tuple(float(word) for word in text.split(","))
    except (AttributeError, ValueError) as error:
        raise InvalidArgumentError(f"Expected {name}={text!r} to be numbers, separated by commas.") from error


class EmbeddingStudent(AveragedGenerator):
    """A generator whose images' mean features per class approach the given ones.

    Args:
      config: resolved settings.
      means: released mean features per class, float32 [Y, D].
      features: maps images [n, H, W, C] in [0, 1] to features float32 [n, D]; differentiable.
    """

    def __init__(self, config: EmbeddingConfig, means: np.ndarray, features: sum_questions.Features):
        super().__init__(config, config.features_square)
        self._means, self._features = tf.constant(means), features
        self._per_class = -(-config.batch_size // config.data.num_classes)
        self._step = tf.function(self._train_step, autograph=False)

    def train(self, step: int) -> float:
        """One step on public randomness of its own; returns the loss."""
        classes = self._config.data.num_classes
        stream = rng.stream(self._config.seed, "fit", step)
        latents = draw_latents(self._config, stream, classes * self._per_class)
        return float(self._step(latents, np.repeat(np.arange(classes), self._per_class)))

    def _train_step(self, latents, labels):
        with tf.GradientTape() as tape:
            images = self.generator([latents, labels], training=True)
            features = tf.reshape(self._features(images), [len(self._means), self._per_class, -1])
            loss = embedding_distance(features, self._means)
        self.minimize(loss, tape)
        return loss


class Fittable(Pictured, typing.Protocol):
    """A generator that is fitted in steps."""

    def train(self, step: int) -> float:
        """One step; returns the loss."""
        ...

    def variables(self) -> list[tf.Variable]:
        """All there is to save."""
        ...


_Config = TypeVar("_Config", bound=EmbeddingConfig)


class ReleasingSynthesizer(RunSynthesizer[_Config]):
    """Releases a few sums over all records, each once, and makes a generator from them."""

    @abc.abstractmethod
    def _made(self, records: datasets.Dataset | Elsewhere, releases: paid_releases.Releases
              ) -> tuple[Trained, statements.Guarantee]:
        """The generator, and what the method says about its privacy.

        Args:
          records: the records of declared classes.
          releases: the releases through which alone the generator learns about the records.
        """

    def _train(self, dataset: datasets.Dataset | Elsewhere) -> tuple[Trained, dict[str, Any]]:
        config, largest = self.config, paid_releases.largest_release(self.config)
        owners = dataset if isinstance(dataset, sum_owners.SumOwners) else None
        _validate.require((owners is None) == (config.num_owners is None), "num_owners", config.num_owners,
                          "to be the number of owners who keep the data, and none where the records are here")
        identity = dataset.identity if isinstance(dataset, Elsewhere) else identities.identity_of(dataset)
        with (run_folders.opened(self.folder, config, identity, config.step_event(), largest) as ledger,
              contextlib.ExitStack() as after):
            self._stop_requested = False
            self._tell("on_stage", "release")
            if isinstance(dataset, Elsewhere):
                after.callback(dataset.close)
            if owners is not None:
                owners.open(config, self.folder.private / "owners", largest)
            work = self._release_work(config.known_records(dataset.num_units))
            releases = paid_releases.Releases(config, self.folder, ledger, config.num_optional,
                                              functools.partial(self._computing, work),
                                              lambda epsilon: self._tell("on_spent", epsilon), owners)
            generator, guarantee = self._made(
                dataset if isinstance(dataset, Elsewhere) else datasets.usable_only(dataset), releases)
            guarantee = dataclasses.replace(guarantee, adjacency=config.adjacency, facts={
                **guarantee.facts, "other_adjacency": sums.price_for_others(config, ledger)})
            if owners is not None:
                guarantee = sums.with_owners(guarantee, config, ledger)
        return generator, statements.make_statement(
            config, guarantee, ledger, releases.num_burnt, releases.noise, dataset.num_units)

    @contextlib.contextmanager
    def _computing(self, work: Sequence[float], release: int) -> Iterator[None]:
        """Context in which the exact sums of a release are computed, given the work of all releases."""
        plan = self.config.release_charges
        if release <= len(work):
            self._tell("on_progress", f"{release} of {len(plan)}", sum(work[:release - 1]) / sum(work))
        with self._ending_at_once(f"before release {release} of {len(plan)} was paid", self.folder.path):
            yield

    def _features_work(self) -> float:
        """Billions of operations for the random features of an image."""
        return 2e-9 * self.config.features_dimension * self.config.num_features

    def _release_work(self, num_records: int) -> list[float]:
        """Billions of operations for each release of the stage `release`, in order."""
        return [num_records * self._features_work()]

    def _stages(self, num_records: int) -> list[Stage]:
        config = self.config
        return [Stage("release", sum(self._release_work(num_records)), charged=True),
                Stage("fit", 3 * config.fit_steps * config.batch_size * (
                    self._features_work() + self._image_work() / config.features_square**2))]

    def _fitted(self, records: datasets.Dataset | Elsewhere, releases: paid_releases.Releases,
                features: sum_questions.FeatureMap) -> tuple[mean_embedding.MeanEmbedding, EmbeddingStudent]:
        """Releases the mean embeddings and fits a generator to them; returns the mechanism and the generator."""
        optional = self.config.num_optional
        question = sum_questions.Embeddings(features=features, num_rows=self.config.data.num_classes)
        mechanism, noisy = releases.get(
            self.config.release_mechanisms()[-1 - optional], asked(question, records))
        student = EmbeddingStudent(self.config, mechanism.means(noisy), features.made())
        self._fit(student, releases, self.config.fit_steps)
        return mechanism, student

    def _fit(self, student: Fittable, releases: paid_releases.Releases, num_steps: int, stage: str = "fit",
             snapshot: str = "loop") -> None:
        """Takes all steps of a student, which cost nothing, from the snapshot of this name if there is one."""
        loops.Loop(self.folder, student, student.variables(), num_steps=num_steps,
                   checkpoint_minutes=self._options.checkpoint_minutes, callbacks=self._callbacks,
                   ledger=releases.ledger, stopped=self._stopped, stage=stage, name=snapshot).run(student.train)


def embedding_distance(features: tf.Tensor, means: tf.Tensor) -> tf.Tensor:
    """Sum over classes of |means - E phi|^2 - |means|^2, estimated without bias (for more than one image per class).

    Args:
      features: of n images of each class, float32 [Y, n, D].
      means: float32 [Y, D].
    """
    count = features.shape[1]
    mean = tf.reduce_mean(features, 1)
    square = tf.reduce_sum(tf.square(mean), 1)
    if count > 1:  # Each image's own square, 1 of count^2 terms, does not estimate anything.
        own = tf.reduce_mean(tf.reduce_sum(tf.square(features), 2), 1)
        square = (count * square - own) / (count - 1.0)
    return tf.reduce_sum(square - 2.0 * tf.reduce_sum(mean * means, 1))
