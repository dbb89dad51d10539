"""Settings, declared once: type, default, check and help of a field stand in one place.

    @dataclasses.dataclass(frozen=True, kw_only=True)
    class VotingConfig(Settings):
        num_teachers: int = setting(1000, "Teacher discriminators [N], one per disjoint partition.", at_least(1))

A value is checked against the type that annotates the field, then by the field's own check. None is accepted where the
annotation allows it. A subclass that only changes a default writes `num_teachers: int = 4000` and inherits the rest.
"""

import dataclasses
import functools
import json
import math
import numbers
import types
import typing
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from datalens_tf import _files, _validate
from datalens_tf.errors import InvalidArgumentError

Check = Callable[[str, Any], object]  # Takes a name and a value, raises InvalidArgumentError.

# No setting of what this package can train goes beyond these bounds. Beyond them, memory would run out, or numbers
# would overflow.
LARGEST_IMAGE = 2**22  # numbers of an image: 1024 x 1024 of four channels
SMALLEST_SIDE = 4  # pixels of an image
# What picture files become. It is the same for all of them, whatever they show.
COLORS = {"grey": 1, "rgb": 3}  # and their channels
DEFAULT_COLOR, DEFAULT_IMAGE_SIZE = "rgb", (32, 32)
LARGEST_NUM_CLASSES = 10_000
LARGEST_WIDTH = 2**16  # of layers and latents
_LARGEST = {  # by the names of settings and flags; others may be up to 10^9 (integers) or 10^15 (other numbers)
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
# The smallest magnitudes of numbers that are not 0; for other names it is 10^-30. At a smaller delta, accountants
# would overflow.
_SMALLEST = {"delta": 1e-100, "consensus": 1e-6, "tail_shape": 1e-2, "sampling_probability": 1e-15, "vote_threshold": 0}


def setting(default: Any, help: str | None = None, check: Check | None = None, *, group: str | None = None) -> Any:
    """Declares a field of a `Settings` class.

    Args:
      default: the value where none is given.
      help: what the setting means, in sentences; the parent's where None.
      check: raises InvalidArgumentError for values of the right type that are out of bounds; the parent's where None.
      group: heading that the setting stands under in `--help`; the parent's, or the class's `GROUP`, where None.
    """
    return dataclasses.field(default=default, metadata={"help": help, "check": check, "group": group})


def at_least(low: float) -> Check:
    """A check that a number is not below `low`."""
    return lambda name, value: _validate.require(value >= low, name, value, f">= {low}")


def positive(name: str, value: Any) -> None:
    """A check that a number is above 0."""
    _validate.positive(name, value)


def between(low: float, high: float, *, open_low: bool = False, open_high: bool = False) -> Check:
    """A check that a number lies in the interval, either end included unless open."""
    return lambda name, value: _validate.between(name, value, low, high, open_low=open_low, open_high=open_high)


def one_of(*choices: str) -> Check:
    """A check that a value is one of the choices."""
    return lambda name, value: _validate.one_of(name, value, choices)


class Setting(typing.NamedTuple):
    """Declaration of one field.

    Attributes:
      default: the value where none is given; MISSING if one must be given.
      hint: type annotation.
      help: sentences.
      check: for values of the right type; None where every one is fine.
      group: heading in `--help`.
    """

    default: Any
    hint: Any
    help: str
    check: Check | None
    group: str

    @property
    def kinds(self) -> tuple[Any, ...]:
        """The annotated type, or several of a union, without None."""
        if not isinstance(self.hint, types.UnionType):
            return (self.hint,)
        return tuple(kind for kind in typing.get_args(self.hint) if kind is not types.NoneType)

    @property
    def is_optional(self) -> bool:
        """Whether None is a value."""
        return isinstance(self.hint, types.UnionType) and types.NoneType in typing.get_args(self.hint)


def declared(kind: "type[Settings]") -> Mapping[str, Setting]:
    """The settings of a class by name, in the order of its JSON; parents declare what a subclass leaves out."""
    return _declared(typing.cast(Any, kind))  # mypy does not know that a class has a hash.


@functools.cache
def _declared(kind: Any) -> Mapping[str, Setting]:
    hints, found = typing.get_type_hints(kind), {}
    for field in dataclasses.fields(kind):
        owners = [owner for owner in kind.__mro__ if field.name in getattr(owner, "__dataclass_fields__", {})]
        said = [owner.__dataclass_fields__[field.name].metadata for owner in owners]
        found[field.name] = Setting(field.default, hints[field.name], _first(said, "help") or "", _first(said, "check"),
                                    _first(said, "group") or owners[-1].GROUP)
    return types.MappingProxyType(found)


def _first(said: Sequence[Mapping[str, Any]], key: str) -> Any:
    """The value of the first entry that has one; None where none has."""
    return next((entry[key] for entry in said if entry.get(key) is not None), None)


@dataclasses.dataclass(frozen=True, kw_only=True)
class Settings:
    """Base of all settings: frozen, checked when made, and written to JSON and read back.

    Raises:
      InvalidArgumentError: a value is out of its domain; the message names the field.
    """

    GROUP: typing.ClassVar[str] = "settings"  # heading in `--help` of what a class declares
    # Values of fields that are missing in JSON from before there were such fields, where they are not the defaults.
    BEFORE: typing.ClassVar[Mapping[str, Any]] = types.MappingProxyType({})

    def __post_init__(self) -> None:
        check_magnitudes(vars(self))
        for name, setting in declared(type(self)).items():
            value = getattr(self, name)
            if isinstance(value, list) and typing.get_origin(setting.kinds[0]) is tuple:  # JSON knows no tuples.
                value = tuple(value)
                object.__setattr__(self, name, value)
            _check_value(name, value, setting)
        self._check()

    def _check(self) -> None:
        """Checks what must hold between fields; subclasses call their parent's first."""

    def replace(self, **changes: Any) -> "typing.Self":
        """A copy with some fields changed, checked again."""
        self._refuse_unknown(changes)
        return dataclasses.replace(self, **changes)

    def public(self) -> "typing.Self":
        """Settings without places on this machine, from which `config.json` and the statement are made."""
        return self

    def to_json(self) -> str:
        """JSON text with one key per field."""
        return json.dumps(dataclasses.asdict(self), indent=2) + "\n"

    @classmethod
    def from_json(cls, text: str) -> "typing.Self":
        """Inverse of `to_json`; raises InvalidArgumentError on malformed text or unknown fields."""
        fields = {**cls.BEFORE, **json_fields(text)}
        cls._refuse_unknown(fields)
        return cls(**fields)

    @classmethod
    def _refuse_unknown(cls, fields: Mapping[str, Any]) -> None:
        unknown = sorted(set(fields) - set(declared(cls)))
        if unknown:
            name = getattr(cls, "method", cls.__name__)
            raise InvalidArgumentError(f"Expected settings of {name}, got {', '.join(unknown)}.")


def _check_value(name: str, value: Any, setting: Setting) -> None:
    """Checks the type, then what the setting declares."""
    if value is None and setting.is_optional:
        return
    kind = setting.kinds[0]
    if kind is int:
        _validate.integer(name, value)
    elif kind is float:
        _validate.real(name, value)
    elif kind is bool:
        _validate.boolean(name, value)
    elif kind is str and setting.check is None:  # A check of choices says more than that the value is no text.
        _validate.require(isinstance(value, str), name, value, "to be text")
    if setting.check is not None:
        setting.check(name, value)


def json_fields(text: str) -> dict[str, Any]:
    """The object that a `config.json` holds; raises InvalidArgumentError on anything else."""
    try:
        fields = _files.parse_json(text)
    except ValueError as error:
        raise InvalidArgumentError(f"Expected a JSON configuration: {error}.") from error
    if not isinstance(fields, Mapping):
        raise InvalidArgumentError("Expected a JSON configuration to be an object of settings.")
    return dict(fields)


def check_magnitudes(numbers_by_name: Mapping[str, Any]) -> None:
    """Refuses numbers of impossible size before anything is computed with them; ignores values that are no numbers.

    Args:
      numbers_by_name: settings or flags; every entry of a list is checked.

    Raises:
      InvalidArgumentError: one is too large, or too small and not 0.
    """
    for name, value in numbers_by_name.items():
        if name == "image_shape" and isinstance(value, (list, tuple)):
            _validate.require(math.prod(size for size in value if isinstance(size, int)) <= LARGEST_IMAGE, name, value,
                              f"to have at most {LARGEST_IMAGE:,} numbers")
        for number in value if isinstance(value, (list, tuple)) else [value]:
            is_number = isinstance(number, numbers.Real) and not isinstance(number, bool)
            if not is_number or number != number or abs(number) == math.inf:
                continue  # Other checks say what is wrong with these.
            largest = _LARGEST.get(name, 10**9 if isinstance(number, int) else 1e15)
            _validate.require(abs(number) <= largest, name, number, f"to be at most {largest:,}")
            smallest = _SMALLEST.get(name, 1e-30)
            _validate.require(number == 0 or abs(number) >= smallest, name, number, f"to be at least {smallest:g}")
