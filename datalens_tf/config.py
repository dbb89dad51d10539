"""Settings of a run: those that decide privacy and quality, those that cannot, and those that all methods share."""

import abc
import collections
import dataclasses
import hashlib
import math
import types
import typing
from collections.abc import Collection, Mapping
from typing import Any, Protocol

from datalens_tf import _folders, _text, _validate, bounds
from datalens_tf.errors import InvalidArgumentError
from datalens_tf.facts import DataFacts, DataSpec, Suitability, check_image_shape
from datalens_tf.settings import (
    LARGEST_NUM_CLASSES,
    Settings,
    at_least,
    between,
    one_of,
    positive,
    setting,
)

if typing.TYPE_CHECKING:  # The command line reads settings, and must not wait for the library that prices them.
    import dp_accounting

# In the order of their places in tables, the loosest bound first. An accountant is a file of the folder `bounds`.
_PLACES = {name: module.constants["PLACE"]
           for name, module in _folders.declarations(tuple(bounds.__path__), "PLACE").items()}
ACCOUNTANTS = tuple(sorted(_PLACES, key=lambda name: _PLACES[name]))
PRECISIONS = ("float32", "mixed_bfloat16")
LATENT_DISTRIBUTIONS = ("uniform", "normal")
NOISES = ("rounded_gaussian", "gaussian")
_LARGEST_LAYER = 2**28  # weights of the generator's largest layer: a GiB, and four times that with its optimizer


def _check_declared(name: str, value: Any) -> None:
    check_classes(value)


def _check_unit(name: str, value: Any) -> None:
    sound = isinstance(value, str) and 0 < len(value) <= 200 and value.isprintable() and value == value.strip()
    _validate.require(sound, name, value, "to be 1 to 200 printable characters")


@dataclasses.dataclass(frozen=True, kw_only=True)
class DataConfig(Settings):
    """Settings of a run that say which data it is about.

    `CHOSEN` and `CHOSEN_ON` are for the privacy statement. `CHOSEN` says in sentences on which data the constants of a
    method were chosen, and `CHOSEN_ON` has the names of these data sets.
    """

    method: str = setting(dataclasses.MISSING, "Method that the settings are for.")
    dataset: str = setting(
        "arrays", "Sensitive data by its name; `datalens train --help` lists the kinds. The default stands for images "
        "that were passed to `fit`.")
    image_shape: tuple[int, int, int] | None = setting(
        None, "Shape (H, W, C) of an image; none until the data is known.", check_image_shape)
    num_classes: int | None = setting(
        None, "Number of classes Y, which is public; none until the data is known.", at_least(1))
    classes: tuple[str, ...] | None = setting(
        None, "Public classes: a number, names with commas, or a file of names. They are declared to be public, so "
        "records of other classes keep their place and contribute nothing. With none, the classes are those of the "
        "data set's public description, or read from the records, private as these are, and then taken to be public.",

        _check_declared)

    adjacency: str = setting(
        "replace-one", "Neighbours: replace-one or add-or-remove-one. Most methods are for one of these.",
        group="budget")
    unit: str | None = setting(
        None, "Whose pictures are protected together, patients for example. It is a column of labels.csv or of a "
        "Parquet file, an array of an npz file, a feature of a TensorFlow data set (identity of celeba_gender), or a "
        "pattern on names of files with one group, such as '(P[0-9]+)_'. With none, every picture is protected for "
        "itself.", _check_unit)
    skip_unreadable: bool = setting(
        False, "Unreadable files keep their place, and contribute nothing. They count as records. How many they are is "
        "private: private/unreadable.txt lists them. Otherwise they are an error.")
    picture_bits: int | None = setting(
        None, "Bits that pictures of 16 or 32 bits really have, 12 for example. Numbers from 2^12 - 1 on are white "
        "then. With none, the whole range of their type counts, or that from 0 to 1 of floating-point numbers.",
        between(1, 32))

    GROUP: typing.ClassVar[str] = "data"
    CHOSEN: typing.ClassVar[str]
    CHOSEN_ON: typing.ClassVar[tuple[str, ...]]
    # The values that `adjacency` may have, and the reason that there are no others.
    ADJACENCIES: typing.ClassVar[tuple[str, ...]] = ("replace-one",)
    NO_OTHER: typing.ClassVar[str] = (
        "where records are dealt to teachers, their number decides who learns from which, so that one more could "
        "change all of them")
    # A sentence for the statement, on what becomes of a unit's images.
    OF_UNITS: typing.ClassVar[str] = (
        "All images of one are in one partition, which the order of the units' names decides: these are public.")

    def _check(self) -> None:
        super()._check()
        _validate.one_of("method", self.method, [type(self).method])
        _validate.require(self.adjacency in self.ADJACENCIES, "adjacency", self.adjacency,
                          f"to be {' or '.join(self.ADJACENCIES)} for {self.method}: {self.NO_OTHER}")

    @property
    def publishes_num_records(self) -> bool:
        """Whether the number of records is public in such a run, and follows from what it publishes."""
        return True

    def known_records(self, num_records: int) -> int:
        """The number of records that settings may depend on: a public bound where the number itself is private."""
        return num_records

    @property
    def data(self) -> DataSpec:
        """Shape and classes of the data; raises InvalidArgumentError where the settings do not know them yet."""
        where = "to be known: take them from a data set with `with_data`, or give both"
        return DataSpec(_validate.known("image_shape", self.image_shape, where),
                        _validate.known("num_classes", self.num_classes, where))

    @property
    def dimension(self) -> int:
        """Numbers in an image, H * W * C; raises InvalidArgumentError where the settings do not know its shape yet."""
        return math.prod(_validate.known("image_shape", self.image_shape, "to be known: take it from a data set with "
                                         "`with_data`"))

    def public(self) -> "typing.Self":
        return self.replace(dataset=_text.without_folders(self.dataset))


class RunSettings(Protocol):
    """Settings as ledgers, statements and run folders use them: a `RunConfig`, or the settings of a PATE classifier."""

    CHOSEN: typing.ClassVar[str]
    CHOSEN_ON: typing.ClassVar[tuple[str, ...]]
    OF_UNITS: typing.ClassVar[str]

    @property
    def adjacency(self) -> str:
        """Neighbouring relation of the guarantee."""
        ...

    @property
    def publishes_num_records(self) -> bool:
        """Whether the number of records is public."""
        ...

    def known_records(self, num_records: int) -> int:
        """Number of records, or the public bound that stands for it."""
        ...

    @property
    def method(self) -> str:
        """Name of the method."""
        ...

    @property
    def dataset(self) -> str:
        """Name of the data in public files."""
        ...

    @property
    def num_classes(self) -> int | None:
        """Number of classes Y; None before data is known."""
        ...

    @property
    def classes(self) -> tuple[str, ...] | None:
        """Names of the classes that were declared to be public; None for none."""
        ...

    @property
    def unit(self) -> str | None:
        """Whose images are protected together; None where every record is protected for itself."""
        ...

    @property
    def epsilon(self) -> float | None:
        """Privacy budget; None for a run that is not private."""
        ...

    @property
    def delta(self) -> float:
        """Chance that the guarantee leaves open."""
        ...

    @property
    def allow_large_delta(self) -> bool:
        """Whether a delta that is large for the number of records is allowed."""
        ...

    @property
    def accountant(self) -> str | None:
        """Name of the accountant that measures the budget."""
        ...

    @property
    def insecure_noise_seed(self) -> int | None:
        """Seed of predictable noise, for tests; None for secret noise."""
        ...

    def replace(self, **changes: Any) -> "typing.Self":
        """Settings with changes."""
        ...

    def public(self) -> "typing.Self":
        """Settings without places on this machine."""
        ...

    def to_json(self) -> str:
        """The settings as JSON."""
        ...

    @classmethod
    def from_json(cls, text: str) -> "typing.Self":
        """Inverse of `to_json`; raises InvalidArgumentError on anything else."""
        ...


@dataclasses.dataclass(frozen=True, kw_only=True)
class RunConfig(DataConfig):
    """Settings that every run with one budget has: data, budget, noise, seeds."""

    epsilon: float | None = setting(
        1.0, "Privacy budget epsilon. Training stops before it would be exceeded. It is none for methods that are not "
        "private.", group="budget")
    delta: float = setting(1e-5, "Privacy budget delta.", between(0, 1, open_low=True, open_high=True), group="budget")
    allow_large_delta: bool = setting(
        False, "Permits a delta of 10/n or more, for n records, units or users.", group="budget")
    accountant: str = setting(
        "gdp", f"Accountant that measures the budget: {', '.join(ACCOUNTANTS)}.", one_of(*ACCOUNTANTS), group="budget")
    noise: str = setting(
        "rounded_gaussian", "Noise: rounded_gaussian (exact) or gaussian (floats). The first is integer, like what it "
        "hides.", one_of(*NOISES), group="budget")
    seed: int = setting(
        0, "Public seed, on which the privacy noise does not depend. It decides weights, latents, labels, batches and "
        "stochastic quantisation.",
        at_least(0), group="data")
    insecure_noise_seed: int | None = setting(
        None, "Makes the privacy noise predictable and the run NOT PRIVATE; for tests only.", at_least(0),
        group="budget")

    BEFORE: typing.ClassVar[Mapping[str, Any]] = types.MappingProxyType({"noise": "gaussian"})

    def _check(self) -> None:
        super()._check()
        self._check_epsilon()

    @property
    def budget(self) -> float:
        """The epsilon that a run keeps to; raises InvalidArgumentError where there is none."""
        return _validate.known("epsilon", self.epsilon, "to be a number where something is priced")

    def _check_epsilon(self) -> None:
        """Checks epsilon. The method decides whether there is a budget."""
        if self.adjacency == "none":
            _validate.require(self.epsilon is None, "epsilon", self.epsilon,
                              f"to be none: {self.method} is not private")
        else:
            _validate.positive("epsilon", self.epsilon)

    @property
    def num_steps(self) -> int | None:
        """Number of steps, for methods that train in steps."""
        return None

    def mechanism(self) -> Any:
        """Mechanism that releases a step, with its sensitivity, noise and price.

        The settings must be resolved. A method that is not private has none.
        """
        raise NotImplementedError(f"{self.method} releases nothing under differential privacy.")

    def step_event(self) -> "dp_accounting.DpEvent | None":
        """Cost of the mechanism's release in one step; None without a budget. The settings must be resolved."""
        return None if self.epsilon is None else self.mechanism().dp_event()

    def resolved(self, num_records: int, num_users: int | None = None) -> "typing.Self":
        """The settings, with values that budget and data decide, such as the noise, filled in where they are not given.

        Args:
          num_records: number of records, or of units, public.
          num_users: number of users whom the data name, public; None where they name none.

        Raises:
          InvalidArgumentError: no noise reaches so small an epsilon.
        """
        return self


@dataclasses.dataclass(frozen=True, kw_only=True)
class BoundedConfig(RunConfig):
    """Settings of runs that need not publish how many records there are."""

    records_at_most: int | None = setting(
        None, "Public bound on the number of records. Under add-or-remove-one the number is private: what would follow "
        "from it (delta, plans, sampling) follows from the bound, and nothing published has it. Choose it without "
        "looking at the records.", at_least(1), group="budget")

    def _check(self) -> None:
        super()._check()
        _validate.require(self.records_at_most is None or self.adjacency == "add-or-remove-one", "records_at_most",
                          self.records_at_most, f"to be none: under {self.adjacency} the number of records is public. "
                          "A private number of records needs --adjacency=add-or-remove-one")

    @property
    def publishes_num_records(self) -> bool:
        return self.records_at_most is None

    def known_records(self, num_records: int) -> int:
        return num_records if self.records_at_most is None else self.records_at_most


@dataclasses.dataclass(frozen=True, kw_only=True)
class MethodConfig(RunConfig):
    """Settings that every method has in addition to `RunConfig`: the generator, and how presets are found."""

    latent_dim: int = setting(50, "Dimension of the latents.", at_least(1))
    latent_distribution: str = setting(
        "uniform", "Distribution of the latents: uniform, U(-1, 1), or normal, N(0, 1).", one_of(*LATENT_DISTRIBUTIONS))
    generator_filters: int = setting(128, "Width of the generator's feature maps.", at_least(1))
    generator_units: int = setting(1024, "Width of the generator's first dense layer.", at_least(1))
    output_contrast: float = setting(
        1.0, "Factor by which the generator's sigmoid is stretched about 1/2 before it is cut off at 0 and 1. Above 1, "
        "images can be truly black and white; at 1, backgrounds keep faint traces of the label.", at_least(1))
    output_warp: float = setting(
        0.0, "How far exported images are turned, sheared, scaled and shifted at random, in units of a handwritten "
        "digit's usual variation. It is a public prior: training does not see it, and it costs no privacy.",
        at_least(0))
    output_grain: float = setting(
        0.0, "Mean standard deviation of the noise on exported images, in [0, 1]. Classifiers then learn less of what "
        "only synthetic images have. `--for looking` leaves out grain and warp.", between(0, 1))
    output_choices: int = setting(
        1, "Images drawn for each exported one, which is the one in which a classifier is surest to see its label. "
        "It learned from the generator's images alone, so that it costs no privacy.", between(1, 16))
    student_learning_rate: float = setting(1e-3, "Learning rate of the generator's Adam.", positive)
    student_beta_1: float = setting(0.5, "Beta 1 of the generator's Adam.", between(0, 1, open_high=True))
    student_beta_2: float = setting(0.999, "Beta 2 of the generator's Adam.", between(0, 1, open_high=True))
    ema_decay: float = setting(
        0.0, "Decay of the moving average of the generator's weights that is released; 0 releases the last weights. "
        "The average is free in privacy.", between(0, 1, open_high=True))

    holdout: float = setting(
        0.0, "Share of the records, or of the units, that takes no part in training and is for testing: every tenth "
        "one for 0.1, by places alone. It is not available under add-or-remove adjacency.", between(0, 0.5),
        group="data")

    GROUP: typing.ClassVar[str] = "generator"
    # Kind of discriminators, where the method has any: `convolutional` or `dense`.
    NETWORK: typing.ClassVar[str] = "convolutional"
    # Whether training can be spread over processes (`PerformanceOptions.distribute`).
    CAN_DISTRIBUTE: typing.ClassVar[bool] = False
    # Whether records are only ever added up, so that they can be in several files (`data.shards`).
    OF_SUMS: typing.ClassVar[bool] = False

    def _check(self) -> None:
        super()._check()
        # With one more record, or one less, all that come after it would change their place, and so their part.
        _validate.require(
            self.holdout == 0 or not self.adjacency.startswith("add-or-remove"), "holdout", self.holdout,
            f"to be 0 under {self.adjacency}, where a place is no public fact: put records to test on elsewhere, and "
            "name them by --test_dataset")
        _validate.require(self.holdout == 0 or self.num_owners is None, "holdout", self.holdout,
                          "to be 0 where owners keep their records: none of them has a place here")
        if self.image_shape is not None:
            height, width, _ = self.image_shape
            weights = self.generator_units * self.generator_filters * (-(-height // 4)) * (-(-width // 4))
            _validate.require(
                weights <= _LARGEST_LAYER, "generator_units", self.generator_units,
                f"to give the generator a layer of at most {_LARGEST_LAYER:,} weights; with generator_filters="
                f"{self.generator_filters} and image_shape={self.image_shape} it has {weights:,}")

    @property
    def num_owners(self) -> int | None:
        """Number of owners who keep their records, which only some methods allow; None where there are no owners."""
        return None

    @property
    def noise_share(self) -> float:
        """The part of the noise's variance that one owner adds."""
        return 1.0

    @classmethod
    def for_budget(cls, epsilon: float | None) -> "typing.Self":
        """The settings for this budget, whatever the data are: the defaults, unless a method overrides this."""
        return cls(epsilon=epsilon)

    @classmethod
    def for_data(cls, facts: DataFacts, epsilon: float | None, given: Mapping[str, Any]) -> "typing.Self":
        """The given settings, completed by settings that work for such data and this budget.

        Args:
          facts: what is public about the data.
          epsilon: the budget.
          given: settings that are not to be changed.

        Raises:
          InvalidArgumentError: from the given settings.
        """
        return cls.for_budget(epsilon).replace(**given)

    @classmethod
    def suits(cls, facts: DataFacts, epsilon: float) -> Suitability | None:
        """Says how well the method suits such data at this budget; None for a method that runs only if it is named."""
        return None

    @classmethod
    def presets(cls) -> tuple[tuple[str, float], ...]:
        """Data sets and budgets for which the method has settings of their own."""
        return ()

    @classmethod
    def preset(cls, dataset: str, epsilon: float | None) -> "typing.Self":
        """The settings for a data set and this budget: those of `for_budget`, unless a method overrides this."""
        return cls.for_budget(epsilon).replace(dataset=dataset)


@dataclasses.dataclass(frozen=True, kw_only=True)
class VotingConfig(MethodConfig):
    """Settings that every method with teachers has (see `training.teachers` and `models.ensemble`)."""

    num_teachers: int = setting(1000, "Teacher discriminators [N], one per disjoint partition.", at_least(1))
    batch_size: int = setting(
        32, "Synthetic images that the teachers vote on per step [m].", at_least(1), group="mechanism")
    num_steps: int | None = setting(
        500, "Steps, each with one release; fewer where the budget does not pay for them. With none, there are as many "
        "as it pays for.", at_least(1), group="mechanism")
    noise_stddev: float | None = setting(
        None, "Standard deviation of the noise on the sum of votes [sigma], in votes. With none, it is calibrated to "
        "the budget and num_steps.", positive, group="mechanism")
    teacher_batch_size: int = setting(
        32, "Records in a teacher's batch; smaller partitions are used whole.", at_least(1))
    warmup_teacher_steps: int = setting(
        30, "Optimizer steps of every teacher before the first generator step; free in privacy.", at_least(0))
    teacher_steps: int = setting(1, "Optimizer steps of every teacher per generator step.", at_least(1))
    instance_noise: float = setting(
        0.3, "Standard deviation of the noise on real and fake images when teachers train, in pixel units; 0 for none. "
        "It keeps teachers from memorising their few records. It is public randomness, shared by all teachers, and no "
        "part of the privacy noise.", at_least(0))
    teacher_warp: float = setting(
        0.0, "How far real and fake images are moved when teachers train, in the units of output_warp; 0 for not at "
        "all. It makes more of a teacher's few records. It is public randomness, shared by all teachers.", at_least(0))
    shared_latents: bool = setting(
        False, "Teachers learn from images of the latents that they vote on next, as in DataLens' published code, and "
        "not from latents of their own, as in the paper.")
    discriminator_filters: int = setting(8, "Width of a teacher's convolutions.", at_least(1))
    discriminator_units: int = setting(32, "Width of a teacher's dense layer.", at_least(1))
    precision: str = setting(
        "float32", "Precision of the teachers' matrix products: float32 or mixed_bfloat16.", one_of(*PRECISIONS))
    learning_rate: float = setting(1e-3, "Learning rate of the teachers' Adam.", positive)
    beta_1: float = setting(0.5, "Beta 1 of the teachers' Adam.", between(0, 1, open_high=True))
    beta_2: float = setting(
        0.99, "Beta 2 of the teachers' Adam; at most 0.99, so that bfloat16 second moments still decay.",
        between(0, 0.99))
    partition_seed: int = setting(0, "Public seed of the assignment of records to partitions.", at_least(0))

    GROUP: typing.ClassVar[str] = "teachers"

    @classmethod
    def for_data(cls, facts: DataFacts, epsilon: float | None, given: Mapping[str, Any]) -> "typing.Self":
        """Extends `MethodConfig.for_data`: limits the number of teachers, so that each has enough records."""
        default = cls.for_budget(epsilon)
        return default.replace(**{"num_teachers": min(default.num_teachers, facts.num_teachers), **given})

    @property
    def step_size(self) -> float:
        """Distance that an image is moved along a released direction, in pixel units, where a method moves images."""
        raise InvalidArgumentError(f"Expected the method {self.method} to move images, which it does not.")

    @property
    def noise_scale(self) -> float:
        """`noise_stddev` of resolved settings; raises InvalidArgumentError if they are not resolved."""
        return _validate.known("noise_stddev", self.noise_stddev)

    @abc.abstractmethod
    def mechanism(self) -> Any:
        """The `mechanisms.base.Mechanism` that releases the votes.

        Its noise multiplier is `noise_stddev` divided by its sensitivity. The settings must be resolved: noise_stddev
        and image_shape known.
        """

    def step_event(self) -> "dp_accounting.DpEvent":
        return self.mechanism().dp_event(self.batch_size)


def check_classes(names: Collection[str]) -> tuple[str, ...]:
    """Names of classes that are declared public: at least two, each a printable text, none twice.

    Raises:
      InvalidArgumentError: they are something else.
    """
    _validate.require(isinstance(names, (tuple, list)), "classes", names, "to be names")
    _validate.require(2 <= len(names) <= LARGEST_NUM_CLASSES, "classes", len(names),
                      f"names to be 2 to {LARGEST_NUM_CLASSES:,}")
    for name in names:
        sound = isinstance(name, str) and 0 < len(name) <= 200 and name.isprintable() and name == name.strip()
        _validate.require(sound, "classes", name, "to be names of 1 to 200 printable characters")
    for name, count in collections.Counter(names).items():
        _validate.require(count == 1, "classes", name, "to be named once")
    return tuple(names)


def numbered(num_classes: int | None) -> tuple[str, ...] | None:
    """Names of classes that have only numbers, 0 to Y - 1; None for None.

    Args:
      num_classes: Y.

    Raises:
      InvalidArgumentError: Y is not an integer from 2 to `LARGEST_NUM_CLASSES`.
    """
    if num_classes is None:
        return None
    _validate.integer("num_classes", num_classes, at_least=2)
    _validate.require(num_classes <= LARGEST_NUM_CLASSES, "num_classes", num_classes,
                      f"to be at most {LARGEST_NUM_CLASSES:,}")
    return tuple(map(str, range(num_classes)))


def config_digest(text: str) -> str:
    """A fingerprint of a `config.json`, as its ledger has it.

    It is computed from the text, because settings that are added later must not change it.
    """
    return hashlib.sha256(text.encode()).hexdigest()
