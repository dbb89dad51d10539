"""Settings of a run: what decides privacy and quality, what cannot, and the papers' presets."""

import abc
import collections
import dataclasses
import hashlib
import json
import math
import numbers
import typing
from collections.abc import Mapping
from typing import Any

from datalens_tf import _files, _text, _validate
from datalens_tf.errors import InvalidArgumentError

ACCOUNTANTS = ("classic_rdp", "rdp", "pld", "gdp")
PRECISIONS = ("float32", "mixed_bfloat16")
LATENT_DISTRIBUTIONS = ("uniform", "normal")
QUANTIZATIONS = ("stochastic", "sign")
NOISES = ("rounded_gaussian", "gaussian")
# No setting of anything that this package can train is beyond these; it would end in a lack of memory, or in overflow.
LARGEST_IMAGE = 2**22  # numbers of an image: 1024 x 1024 of four channels
LARGEST_NUM_CLASSES = 10_000
LARGEST_WIDTH = 2**16  # of layers and latents
_LARGEST_LAYER = 2**28  # weights of the generator's largest layer: a GiB, and four times that with its optimizer
_LARGEST = {  # of settings and flags by their names; of others, 10^9 of integers and 10^15 of other numbers
    "num_classes": LARGEST_NUM_CLASSES, "epsilon": 1e9, "batch_size": 2**20, "num_teachers": 2**24,
    "num_discriminators": 2**24, "num_users": 2**24, "num_queries": 2**24, "selection_images": 2**24,
    "num_canaries": 2**24, "trials": 10**7, "num_samples": 2**27, "dimension": LARGEST_IMAGE, "tail_shape": 1e3,
    "seeds": 10**4, "epochs": 10**5, "num_threads": 2**10, "num_actors": 2**10, "actor_timeout_minutes": 1e6,
    "timeout": 1e6, "seed": 2**63 - 1, "partition_seed": 2**63 - 1, "insecure_noise_seed": 2**63 - 1,
    **dict.fromkeys((
        "latent_dim", "generator_filters", "generator_units", "discriminator_filters", "discriminator_units",
        "critic_filters", "num_features", "autoencoder_dim", "num_factors", "num_directions", "num_clusters",
        "projection_dim", "num_bins", "num_levels", "sketch_rows", "sketch_columns", "teacher_batch_size",
        "critic_batch_size", "generator_batch_size", "student_batch_size", "replay_releases"), LARGEST_WIDTH),
}
# Of others that are not 0, 10^-30. Accountants overflow at a delta that is smaller.
_SMALLEST = {"delta": 1e-100, "consensus": 1e-6, "tail_shape": 1e-2, "sampling_probability": 1e-15, "vote_threshold": 0}


@dataclasses.dataclass(frozen=True, kw_only=True)
class RunConfig:
    """What the settings of every run have in common: data, budget, seeds.

    Validated at construction; `InvalidArgumentError` names the field. `to_json` and `from_json` are inverse.

    Attributes:
      method: what the settings are for.
      dataset: name of the data (`mnist`, `npz:FILE`, ...; `arrays` when images were passed to `fit`).
      image_shape: (H, W, C) with H and W divisible by 4; None until the data is known.
      num_classes: number of classes Y, public; None until the data is known.
      classes: names of the classes, which declares them public: records of other classes keep their place and
        contribute nothing. On the command line a number, names separated by commas, or a file with one name a line.
        None: the classes are those of the data set's public description, or read from the records, private as these
        are, and then taken to be public.
      epsilon, delta: the privacy budget. Training stops before it would be exceeded. An epsilon of None: there is
        none, because the method is not private.
      allow_large_delta: whether delta may be 10/n or more, for n records (or users, where they are protected).
      accountant: which accountant the budget is measured with.
      noise: `rounded_gaussian`, exact and integer like what it hides; or `gaussian`, in floating point.
      seed: seed of weights, latents, labels, batches and stochastic quantisation. Never of the privacy noise.
      insecure_noise_seed: tests only: makes the privacy noise predictable and the run NOT PRIVATE.
    """

    method: str
    dataset: str = "arrays"
    image_shape: tuple[int, int, int] | None = None
    num_classes: int | None = None
    classes: tuple[str, ...] | None = None
    epsilon: float | None = 1.0
    delta: float = 1e-5
    allow_large_delta: bool = False
    accountant: str = "gdp"
    noise: str = "rounded_gaussian"
    seed: int = 0
    insecure_noise_seed: int | None = None

    # On which data constants were chosen, for the statement, in sentences; and these data sets by name.
    CHOSEN: typing.ClassVar[str]
    CHOSEN_ON: typing.ClassVar[tuple[str, ...]]
    ADJACENCY: typing.ClassVar[str] = "replace-one"

    def __post_init__(self):
        v = _validate
        check_magnitudes(vars(self))
        v.one_of("method", self.method, [type(self).method])
        if self.image_shape is not None:
            object.__setattr__(self, "image_shape", tuple(self.image_shape))
            v.require(
                len(self.image_shape) == 3
                and all(isinstance(n, int) and n > 0 for n in self.image_shape)
                and self.image_shape[0] % 4 == self.image_shape[1] % 4 == 0,
                "image_shape", self.image_shape, "to be (H, W, C) with H and W divisible by 4")
        if self.num_classes is not None:
            v.integer("num_classes", self.num_classes, at_least=2)
        if self.classes is not None:
            object.__setattr__(self, "classes", check_classes(self.classes))
        self._check_epsilon()
        v.between("delta", self.delta, 0, 1, open_low=True, open_high=True)
        v.boolean("allow_large_delta", self.allow_large_delta)
        v.one_of("accountant", self.accountant, ACCOUNTANTS)
        v.one_of("noise", self.noise, NOISES)
        v.integer("seed", self.seed, at_least=0)
        if self.insecure_noise_seed is not None:
            v.integer("insecure_noise_seed", self.insecure_noise_seed, at_least=0)

    def _check_epsilon(self):
        """Whether there is a budget is decided by the method."""
        if self.ADJACENCY == "none":
            _validate.require(self.epsilon is None, "epsilon", self.epsilon,
                              f"to be none: {self.method} is not private")
        else:
            _validate.positive("epsilon", self.epsilon)

    def replace(self, **changes: Any) -> "typing.Self":
        """A copy with some fields changed, validated again."""
        unknown = set(changes) - {field.name for field in dataclasses.fields(self)}
        if unknown:
            raise InvalidArgumentError(f"Expected settings of {self.method}, got {', '.join(sorted(unknown))}.")
        return dataclasses.replace(self, **changes)

    def public(self) -> "typing.Self":
        """The same without places on this machine: what `config.json` and the statement are made of."""
        return dataclasses.replace(self, dataset=_text.without_folders(self.dataset))

    def to_json(self) -> str:
        """JSON text with one key per field."""
        return json.dumps(dataclasses.asdict(self), indent=2) + "\n"

    @classmethod
    def from_json(cls, text: str) -> "typing.Self":
        """Inverse of `to_json`; raises InvalidArgumentError on malformed text or unknown fields."""
        try:
            fields = _files.parse_json(text)
        except ValueError as error:
            raise InvalidArgumentError(f"Expected a JSON configuration: {error}.") from error
        if not isinstance(fields, Mapping):
            raise InvalidArgumentError("Expected a JSON configuration to be an object of settings.")
        fields = {"noise": "gaussian"} | dict(fields)  # All there was before it became a setting.
        try:
            return cls().replace(**fields)
        except TypeError as error:
            raise InvalidArgumentError(f"Expected every setting to have its own type: {error}.") from error


@dataclasses.dataclass(frozen=True, kw_only=True)
class MethodConfig(RunConfig):
    """What the settings of every synthesizer have in common, beside `RunConfig`: the generator.

    Validated at construction; `InvalidArgumentError` names the field. `to_json` and `config_from_json` are inverse.

    Attributes:
      method: the synthesizer that the settings are for.
      latent_dim: dimension of the latents.
      latent_distribution: `uniform` (U(-1, 1), the authors' code) or `normal` (N(0, 1), the paper).
      generator_filters, generator_units: widths of the student's feature maps and of its first dense layer.
      output_contrast: factor >= 1 by which the generator's sigmoid is stretched about 1/2 before it is cut off at 0
        and 1. Above 1, images can be truly black and white; at 1, backgrounds keep faint traces of the label.
      student_learning_rate, student_beta_1, student_beta_2: the student's Adam.
      ema_decay: decay of the exponential moving average of the student's weights that is released; 0 releases the
        last weights. Post-processing, free in privacy.
    """

    latent_dim: int = 50
    latent_distribution: str = "uniform"
    generator_filters: int = 128
    generator_units: int = 1024
    output_contrast: float = 1.0
    student_learning_rate: float = 1e-3
    student_beta_1: float = 0.5
    student_beta_2: float = 0.999
    ema_decay: float = 0.0

    # Of discriminators, where the method has any: `convolutional` or `dense`.
    NETWORK: typing.ClassVar[str] = "convolutional"

    def __post_init__(self):
        super().__post_init__()
        v = _validate
        for name in ("latent_dim", "generator_filters", "generator_units"):
            v.integer(name, getattr(self, name), at_least=1)
        if self.image_shape is not None:
            height, width, _ = self.image_shape
            weights = self.generator_units * self.generator_filters * height * width // 16
            v.require(weights <= _LARGEST_LAYER, "generator_units", self.generator_units,
                      f"to give the generator a layer of at most {_LARGEST_LAYER:,} weights; with generator_filters="
                      f"{self.generator_filters} and image_shape={self.image_shape} it has {weights:,}")
        v.positive("student_learning_rate", self.student_learning_rate)
        v.real("output_contrast", self.output_contrast)
        v.require(self.output_contrast >= 1, "output_contrast", self.output_contrast, ">= 1")
        for name in ("student_beta_1", "student_beta_2", "ema_decay"):
            v.between(name, getattr(self, name), 0, 1, open_high=True)
        v.one_of("latent_distribution", self.latent_distribution, LATENT_DISTRIBUTIONS)

    @classmethod
    def for_budget(cls, epsilon: float | None) -> "typing.Self":
        """The settings for this budget, whatever the data: the defaults, where a method says nothing else."""
        return cls(epsilon=epsilon)

    @classmethod
    def preset(cls, dataset: str, epsilon: float | None) -> "typing.Self":
        """The settings for a data set and this budget: those for the budget, where a method says nothing else."""
        return cls.for_budget(epsilon).replace(dataset=dataset)


@dataclasses.dataclass(frozen=True, kw_only=True)
class VotingConfig(MethodConfig):
    """What the settings of every method with teachers share (see `training.teachers` and `models.ensemble`).

    Attributes:
      num_teachers: teacher discriminators [N], one per disjoint partition.
      batch_size: synthetic images that the teachers vote on per step [m].
      num_steps: steps, each with one release; fewer where the budget does not pay for them. None: as many as it pays
        for.
      noise_stddev: standard deviation of the noise on the sum of votes [sigma], in votes; None calibrates it to the
        budget and num_steps.
      teacher_batch_size: records in a teacher's batch; smaller partitions are used whole.
      warmup_teacher_steps: optimizer steps of every teacher before the first generator step. Free in privacy.
      teacher_steps: optimizer steps of every teacher per generator step.
      instance_noise: standard deviation of the noise added to real and fake images when teachers train, in pixel
        units; 0 for none. It keeps teachers from memorising their few records. Public randomness, shared by all
        teachers; no part of the privacy noise.
      discriminator_filters, discriminator_units: widths of a teacher's convolutions and of its dense layer.
      precision: of the teachers' matrix products, `float32` or `mixed_bfloat16`.
      learning_rate, beta_1, beta_2: the teachers' Adam. beta_2 <= 0.99, so that bfloat16 second moments still decay.
      partition_seed: public seed of the assignment of records to partitions.
    """

    num_teachers: int = 1000
    batch_size: int = 32
    num_steps: int | None = 500
    noise_stddev: float | None = None
    teacher_batch_size: int = 32
    warmup_teacher_steps: int = 30
    teacher_steps: int = 1
    instance_noise: float = 0.3
    discriminator_filters: int = 8
    discriminator_units: int = 32
    precision: str = "float32"
    learning_rate: float = 1e-3
    beta_1: float = 0.5
    beta_2: float = 0.99
    partition_seed: int = 0

    # Only some methods let owners keep their records.
    num_owners: typing.ClassVar[int | None] = None

    def __post_init__(self):
        super().__post_init__()
        v = _validate
        for name in ("num_teachers", "batch_size", "teacher_batch_size", "teacher_steps", "discriminator_filters",
                     "discriminator_units"):
            v.integer(name, getattr(self, name), at_least=1)
        if self.num_steps is not None:
            v.integer("num_steps", self.num_steps, at_least=1)
        for name in ("warmup_teacher_steps", "partition_seed"):
            v.integer(name, getattr(self, name), at_least=0)
        if self.noise_stddev is not None:
            v.positive("noise_stddev", self.noise_stddev)
        v.real("instance_noise", self.instance_noise)
        v.require(self.instance_noise >= 0, "instance_noise", self.instance_noise, ">= 0")
        v.positive("learning_rate", self.learning_rate)
        v.between("beta_1", self.beta_1, 0, 1, open_high=True)
        v.between("beta_2", self.beta_2, 0, 0.99)
        v.one_of("precision", self.precision, PRECISIONS)

    @abc.abstractmethod
    def mechanism(self) -> Any:
        """What releases the votes: a `mechanisms.base.Mechanism`.

        Its noise multiplier is `noise_stddev` divided by its sensitivity. The settings must be resolved: noise_stddev
        and image_shape known.
        """


def check_magnitudes(numbers_by_name: Mapping[str, Any]) -> None:
    """Refuses numbers of no possible size before anything is computed with them; what is no number is passed over.

    Args:
      numbers_by_name: settings or flags; of lists, every entry is looked at.

    Raises:
      InvalidArgumentError: one is too large, or too small and not 0.
    """
    for name, value in numbers_by_name.items():
        if name == "image_shape" and value is not None:
            _validate.require(math.prod(size for size in value if isinstance(size, int)) <= LARGEST_IMAGE, name, value,
                              f"to have at most {LARGEST_IMAGE:,} numbers")
        for number in value if isinstance(value, (list, tuple)) else [value]:
            if (isinstance(number, bool) or not isinstance(number, numbers.Real) or number != number
                    or abs(number) == math.inf):
                continue  # Other checks say what is wrong with these.
            largest = _LARGEST.get(name, 10**9 if isinstance(number, int) else 1e15)
            _validate.require(abs(number) <= largest, name, number, f"to be at most {largest:,}")
            smallest = _SMALLEST.get(name, 1e-30)
            _validate.require(number == 0 or abs(number) >= smallest, name, number, f"to be at least {smallest:g}")


def check_classes(names: typing.Iterable[str]) -> tuple[str, ...]:
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
    """Names of so many classes that have only numbers; None for None. Raises InvalidArgumentError for other numbers."""
    if num_classes is None:
        return None
    _validate.integer("num_classes", num_classes, at_least=2)
    _validate.require(num_classes <= LARGEST_NUM_CLASSES, "num_classes", num_classes,
                      f"to be at most {LARGEST_NUM_CLASSES:,}")
    return tuple(map(str, range(num_classes)))


def config_digest(text: str) -> str:
    """A fingerprint of a `config.json`, as its ledger has it. Of the text: settings added later must not change it."""
    return hashlib.sha256(text.encode()).hexdigest()


@dataclasses.dataclass(frozen=True, kw_only=True)
class PerformanceOptions:
    """What changes speed and memory only, never the guarantee.

    Attributes:
      chunk_size: teachers computed at once; None chooses by the size of a teacher.
      num_threads: chunks of teachers computed side by side, each in a thread; None for one in Python and in
        every actor, and for one per CPU core on the command line.
      checkpoint_minutes: minutes between teacher checkpoints; later steps are re-computed on resume.
      bank_memory_gb: GiB that the teachers' state may take in memory; a larger one lives in a file of the run folder
        and is read as needed. Results are the same. None for 80 % of the machine's memory.
      distribute: `ray` for teachers in several processes of this machine, or of the cluster that RAY_ADDRESS names;
        `ray://HOST:PORT` for those of another cluster. Results are the same. None for this process alone.
      num_actors: processes that share the teachers; None for one per machine, at least 2.
      actor_gpus: GPUs that each of them takes, a fraction where they share one.
      actor_timeout_minutes: minutes that one may take for a round before it is replaced.
    """

    chunk_size: int | None = None
    num_threads: int | None = None
    checkpoint_minutes: float = 15.0
    bank_memory_gb: float | None = None
    distribute: str | None = None
    num_actors: int | None = None
    actor_gpus: float = 0.0
    actor_timeout_minutes: float = 60.0

    def __post_init__(self):
        check_magnitudes(vars(self))
        _validate.require(self.distribute is None or self.distribute == "ray" or self.distribute.startswith("ray://"),
                          "distribute", self.distribute, "to be ray or ray://HOST:PORT")
        _validate.real("actor_gpus", self.actor_gpus)
        _validate.require(self.actor_gpus >= 0, "actor_gpus", self.actor_gpus, ">= 0")
        _validate.positive("actor_timeout_minutes", self.actor_timeout_minutes)
        for name in ("chunk_size", "num_threads", "num_actors"):
            if getattr(self, name) is not None:
                _validate.integer(name, getattr(self, name), at_least=1)
        _validate.real("checkpoint_minutes", self.checkpoint_minutes)
        _validate.require(self.checkpoint_minutes >= 0, "checkpoint_minutes", self.checkpoint_minutes, ">= 0")
        if self.bank_memory_gb is not None:
            _validate.real("bank_memory_gb", self.bank_memory_gb)
            _validate.require(self.bank_memory_gb >= 0, "bank_memory_gb", self.bank_memory_gb, ">= 0")
