"""Four accountants, which turn privacy events into epsilon, and epsilon into noise or steps.

| accountant    | holds for                   | how                                                        |
|---------------|-----------------------------|------------------------------------------------------------|
| `classic_rdp` | Gaussian releases           | the paper's Theorems 1 and 3, orders {1.1, 2, 3, ..., 199} |
| `rdp`         | what dp_accounting supports | dp_accounting's RDP with its tighter conversion            |
| `pld`         | what dp_accounting supports | dp_accounting's privacy loss distributions; an upper bound |
|               | and a replaced record in    | the same, of curves in `bounds.fixed_size_sampling` and    |
|               | a sample                    | `bounds.poisson_sampling`                                  |
| `gdp`         | Gaussian releases           | exact: Balle and Wang 2018; Dong, Roth and Su 2019         |

Neighbouring data sets differ in one replaced record, or, where `adjacency` says so, in one that is added or removed.
In a relation that ends in `-user`, everything that one user has is replaced, added or removed. Events hold
sensitivities, not their causes, so users are priced as records are: the code that makes an event has bounded what a
whole user can do.
For a Gaussian release the noise multiplier is the standard deviation divided by the l2 sensitivity *to that change*, so
the factor 2 of a replacement is inside the event. In a Poisson sample, a record is either absent or present, and the
noise multiplier is the standard deviation divided by what its presence changes, under both relations. Samples of fixed
size (`SampledWithoutReplacementDpEvent`) are for replacement, and refused for the other relation.

Every function raises InvalidArgumentError for events it cannot price and for noise multipliers that are not finite
numbers > 0; a release without noise costs infinity.
"""

import bisect
import dataclasses
import functools
import importlib
import math
import typing
from collections.abc import Callable, Sequence
from typing import Any, Protocol, TypeVar

import attr
import dp_accounting
from scipy import optimize

from datalens_tf import _validate
from datalens_tf.bounds.accountant import RELATIONS, Accountant, Tally
from datalens_tf.config import ACCOUNTANTS
from datalens_tf.errors import InvalidArgumentError
from datalens_tf.settings import check_magnitudes


@functools.cache
def registered(name: str) -> Accountant:
    """The accountant of this name; raises InvalidArgumentError for an unknown one."""
    _validate.one_of("accountant", name, ACCOUNTANTS)
    module = importlib.import_module(f"datalens_tf.bounds.{name}")
    kind = next(kind for kind in vars(module).values()
                if isinstance(kind, type) and issubclass(kind, Accountant) and kind.__module__ == module.__name__)
    return kind()


def epsilon(event: dp_accounting.DpEvent, num_steps: int, delta: float, accountant: str,
            adjacency: str = "replace-one") -> float:
    """Epsilon, at this delta, of `num_steps` releases of `event`; 0 for no release."""
    _validate.integer("num_steps", num_steps, at_least=0)
    return epsilon_of([dp_accounting.SelfComposedDpEvent(event, num_steps)], delta, accountant, adjacency)


def epsilon_of(events: Sequence[dp_accounting.DpEvent], delta: float, accountant: str,
               adjacency: str = "replace-one") -> float:
    """Epsilon, at this delta, of the adaptive composition of the events; 0 for none, infinity for a noiseless one.

    Args:
      events: dp_accounting events, in any order.
      delta: in (0, 1).
      accountant: one of `config.ACCOUNTANTS`.
      adjacency: one of `RELATIONS`.
    """
    _validate.between("delta", delta, 0, 1, open_low=True, open_high=True)
    check_magnitudes({"delta": delta})
    _validate.one_of("accountant", accountant, ACCOUNTANTS)
    _validate.one_of("adjacency", adjacency, RELATIONS)
    return _epsilon(_tally(events), float(delta), accountant, adjacency)


def epsilons_of(events: Sequence[dp_accounting.DpEvent], delta: float, adjacency: str) -> dict[str, float]:
    """`epsilon_of` by each accountant that knows all the events."""
    return {name: epsilon_of(events, delta, name, adjacency) for name in ACCOUNTANTS
            if all(name in applicable(event) for event, _ in _tally(events))}


def epsilons_for_others(events: Sequence[dp_accounting.DpEvent], delta: float, adjacency: str) -> dict[str, float]:
    """`epsilons_of` under the other relation; empty where nothing is known for it.

    A replaced record moves a sum by what its absence changes and by what another's presence does: by two sensitivities
    at most. In a Poisson sample, events have one noise multiplier for both relations.

    Args:
      events: of releases, priced under `adjacency`.
      delta: in (0, 1).
      adjacency: the relation that they are priced under; one of `RELATIONS`.
    """
    kind, _, unit = adjacency.partition("-one")
    found: list[dp_accounting.DpEvent] = []
    for event, count in _tally(events):
        if isinstance(event, dp_accounting.GaussianDpEvent) and kind == "add-or-remove":
            event = dp_accounting.GaussianDpEvent(event.noise_multiplier / 2)
        elif not isinstance(event, dp_accounting.PoissonSampledDpEvent):
            return {}
        found.append(dp_accounting.SelfComposedDpEvent(event, count))
    return epsilons_of(found, delta, ("replace" if kind == "add-or-remove" else "add-or-remove") + "-one" + unit)


def round_up(value: float) -> str:
    """Four decimals, never below the value: a printed epsilon must not promise more than was proven."""
    return f"{math.ceil(value * 1e4) / 1e4:.4f}" if value < 1e300 else "inf"


def max_steps(event: dp_accounting.DpEvent, epsilon: float, delta: float, accountant: str,
              adjacency: str = "replace-one") -> int:
    """Largest number of releases of `event` that costs at most epsilon; one more would cost more."""
    _validate.positive("epsilon", epsilon)

    def cost(num_steps: int) -> float:
        return epsilon_of([dp_accounting.SelfComposedDpEvent(event, num_steps)], delta, accountant, adjacency)

    high = 1
    while cost(high) <= epsilon:
        high *= 2
        _validate.require(high < 2**50, "event", event, f"to cost enough for epsilon={epsilon} to limit the steps")
    return bisect.bisect_right(range(1, high), epsilon, key=cost)


def calibrate_noise_multiplier(num_steps: int, epsilon: float, delta: float, accountant: str) -> float:
    """Smallest noise multiplier z (to 1e-9 relative, from above) with which `num_steps` Gaussian releases cost epsilon.

    The mechanism's noise standard deviation is then z times its `l2_sensitivity`.

    Raises:
      InvalidArgumentError: also where no noise reaches so small an epsilon: the RDP accountants have a floor.
    """
    return calibrate(dp_accounting.GaussianDpEvent, num_steps, epsilon, delta, accountant, precision=1e-9)


def calibrate(make_event: Callable[[float], dp_accounting.DpEvent], num_steps: int, epsilon: float, delta: float,
              accountant: str, adjacency: str = "replace-one", precision: float = 1e-4) -> float:
    """Smallest noise multiplier (to a relative precision, from above) with which `num_steps` releases cost epsilon.

    Args:
      make_event: noise multiplier -> event of a release; a larger multiplier makes it cheaper.
      num_steps, epsilon, delta, accountant, adjacency: as for `epsilon`.
      precision: > 0.

    Raises:
      InvalidArgumentError: also where no noise reaches so small an epsilon.
    """
    _validate.integer("num_steps", num_steps, at_least=1)
    _validate.positive("epsilon", epsilon)

    affordable: list[float] = []

    def excess(log_multiplier: float) -> float:
        """Logarithm of the cost divided by the budget; notes the multipliers that the budget pays for."""
        event = dp_accounting.SelfComposedDpEvent(make_event(math.exp(log_multiplier)), num_steps)
        ratio = epsilon_of([event], delta, accountant, adjacency) / epsilon
        if ratio <= 1:
            affordable.append(math.exp(log_multiplier))
        return math.log(min(max(ratio, 1e-9), 1e9))  # 0 and infinity have no logarithm to interpolate.

    low = high = math.log(num_steps) / 2
    while excess(high) > 0:
        low, high = high, high + math.log(2)
        _validate.require(high < math.log(1e30), "epsilon", epsilon,
                          f"to be reachable at delta={delta} with {accountant}")
    while low == high or excess(low) <= 0:
        low, high = low - math.log(2), low
    # The search ends with an interval narrower than half the precision. Other processors, and sums in another order,
    # round differently: a quarter of the precision keeps the result affordable there.
    optimize.toms748(excess, low, high, xtol=math.log1p(precision) / 2, rtol=1e-15)
    excess(math.log(min(affordable)) + math.log1p(precision) / 4)
    return affordable[-1]


class Budgeted(Protocol):
    """Settings with a budget and a noise multiplier; a `RunConfig`."""

    @property
    def adjacency(self) -> str:
        """Neighbouring relation that noise multipliers are for."""
        ...

    @property
    def budget(self) -> float:
        """Largest epsilon."""
        ...

    @property
    def delta(self) -> float:
        """The budget's delta."""
        ...

    @property
    def accountant(self) -> str:
        """Accountant that the budget is measured with."""
        ...

    @property
    def noise_multiplier(self) -> float | None:
        """Standard deviation of the noise divided by the sensitivity; None: not known yet."""
        ...

    def replace(self, **changes: Any) -> "typing.Self":
        """A copy with some fields changed."""
        ...

    def mechanism(self) -> Any:
        """Mechanism that releases a step: a frozen dataclass with a `noise_multiplier` and a `dp_event()`."""
        ...


_Settings = TypeVar("_Settings", bound=Budgeted)


def calibrated(config: _Settings, num_steps: int, *, precision: float = 1e-4, decimals: int | None = None) -> _Settings:
    """Settings with the smallest noise multiplier at which the budget pays for the steps; unchanged if they name one.

    Args:
      config: settings that decide everything that a step's cost depends on, except the noise.
      num_steps: steps, or other charges, that the budget must pay for; at least 1.
      precision: as for `calibrate`.
      decimals: places that the noise multiplier is rounded up to; None leaves it as it is.

    Raises:
      InvalidArgumentError: no noise reaches so small an epsilon.
    """
    if config.noise_multiplier is not None:
        return config
    mechanism = config.replace(noise_multiplier=1.0).mechanism()
    multiplier = calibrate(lambda z: dataclasses.replace(mechanism, noise_multiplier=z).dp_event(), num_steps,
                           config.budget, config.delta, config.accountant, config.adjacency, precision)
    if decimals is not None:
        multiplier = math.ceil(multiplier * 10**decimals) / 10**decimals
    return config.replace(noise_multiplier=multiplier)


def applicable(event: dp_accounting.DpEvent) -> tuple[str, ...]:
    """Names of the accountants that can price the event."""
    return tuple(name for name in ACCOUNTANTS if registered(name).supports(event))


def noise_multiplier(event: dp_accounting.DpEvent | None) -> float:
    """Noise multiplier of a release, sampled or not, or of each of many equal ones; 0 without noise."""
    while isinstance(event, (dp_accounting.PoissonSampledDpEvent, dp_accounting.SampledWithoutReplacementDpEvent,
                             dp_accounting.SelfComposedDpEvent)):
        event = event.event
    return getattr(event, "noise_multiplier", 0.0)


def _tally(events: Sequence[dp_accounting.DpEvent]) -> Tally:
    """Flattens compositions to (event, count) pairs, so that equal histories have equal epsilon, and checks them."""
    counts: dict[dp_accounting.DpEvent, int] = {}

    def add(event: dp_accounting.DpEvent, count: int) -> None:
        if isinstance(event, dp_accounting.SelfComposedDpEvent):
            _validate.integer("count", event.count, at_least=0)
            add(event.event, count * event.count)
        elif isinstance(event, dp_accounting.ComposedDpEvent):
            for part in event.events:
                add(part, count)
        elif not isinstance(event, dp_accounting.NoOpDpEvent):
            _check(event)
            counts[event] = counts.get(event, 0) + count

    for event in events:
        add(event, 1)
    return tuple((event, count) for event, count in counts.items() if count)


def _check(event: dp_accounting.DpEvent) -> None:
    """Refuses a value that is not an event, cannot be hashed, or has a multiplier that is not a finite number > 0."""
    _validate.require(isinstance(event, dp_accounting.DpEvent), "event", event, "to be a dp_accounting.DpEvent")
    try:
        hash(event)
    except TypeError as error:
        raise InvalidArgumentError(f"Expected event={event!r} to hold no list: compose it outermost.") from error
    if isinstance(event, dp_accounting.SampledWithoutReplacementDpEvent):
        _validate.integer("sample_size", event.sample_size, at_least=1)
        _validate.integer("source_dataset_size", event.source_dataset_size, at_least=event.sample_size)
    for name, value in attr.asdict(event, recurse=False).items():
        if name == "noise_multiplier":
            _validate.positive(name, value)
        elif isinstance(value, dp_accounting.DpEvent):
            _check(value)


@functools.lru_cache(maxsize=4096)
def _epsilon(tally: Tally, delta: float, accountant: str, adjacency: str) -> float:
    """Epsilon of a checked tally. Cached: a PLD takes tens of milliseconds and training asks before every step."""
    if not tally:
        return 0.0
    if any(isinstance(event, dp_accounting.NonPrivateDpEvent) for event, _ in tally):
        return math.inf
    value = float(registered(accountant).epsilon(tally, delta, adjacency))
    # A NaN compares false with every budget; it must stop here.
    _validate.require(value >= 0, "epsilon", value, f">= 0 from accountant {accountant}")
    return value
