"""Four accountants, which turn privacy events into epsilon, and epsilon into noise or steps.

| accountant    | holds for                   | how                                                        |
|---------------|-----------------------------|------------------------------------------------------------|
| `classic_rdp` | Gaussian releases           | the paper's Theorems 1 and 3, orders {1.1, 2, 3, ..., 199} |
| `rdp`         | what dp_accounting supports | dp_accounting's RDP with its tighter conversion            |
| `pld`         | what dp_accounting supports | dp_accounting's privacy loss distributions; an upper bound |
|               | and samples of fixed size   | the same, of a curve in `accounting.fixed_size_sampling`   |
| `gdp`         | Gaussian releases           | exact: Balle and Wang 2018; Dong, Roth and Su 2019         |

Neighbouring data sets differ in one replaced record, or, where `adjacency` says so, in one that is added or removed.
With `-user` at its end, what is replaced, added or removed is all that one user has. Events know sensitivities, not
what caused them, so users are priced as records are: whoever makes the event has bounded what a whole user can do.
For a Gaussian release the noise multiplier is the standard deviation divided by the l2 sensitivity *to that change*, so
the factor 2 of a replacement is inside the event. Events that only the other relation covers, such as Poisson sampling
under replacement, are refused. Samples of fixed size (`SampledWithoutReplacementDpEvent`) are for replacement.

Every function raises InvalidArgumentError for events it cannot price and for noise multipliers that are not finite
numbers > 0; a release without noise costs infinity.
"""

import bisect
import functools
import math
from collections.abc import Callable, Sequence

import attr
import dp_accounting
import numpy as np
from scipy import optimize, special

from datalens_tf import _validate
from datalens_tf.accounting import fixed_size_sampling
from datalens_tf.config import ACCOUNTANTS
from datalens_tf.errors import InvalidArgumentError
from datalens_tf.settings import check_magnitudes

RELATIONS = {"replace-one": dp_accounting.NeighboringRelation.REPLACE_ONE,
             "add-or-remove-one": dp_accounting.NeighboringRelation.ADD_OR_REMOVE_ONE,
             "replace-one-user": dp_accounting.NeighboringRelation.REPLACE_ONE,
             "add-or-remove-one-user": dp_accounting.NeighboringRelation.ADD_OR_REMOVE_ONE}
CLASSIC_ORDERS = np.array([1.1, *range(2, 200)])

# Above this mu^2 (epsilon about 500,000) `pld` overflows and `gdp` loses digits, and there is no privacy to measure.
_HOPELESS = 1e6

_Tally = tuple[tuple[dp_accounting.DpEvent, int], ...]


def epsilon(event: dp_accounting.DpEvent, num_steps: int, delta: float, accountant: str,
            adjacency: str = "replace-one") -> float:
    """Epsilon, at this delta, of `num_steps` releases that each are `event`; 0 for no release."""
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
      make_event: noise multiplier -> what a release costs, the less the larger it is.
      num_steps, epsilon, delta, accountant, adjacency: as for `epsilon`.
      precision: > 0.

    Raises:
      InvalidArgumentError: also where no noise reaches so small an epsilon.
    """
    _validate.integer("num_steps", num_steps, at_least=1)
    _validate.positive("epsilon", epsilon)

    def affordable(multiplier: float) -> bool:
        event = dp_accounting.SelfComposedDpEvent(make_event(multiplier), num_steps)
        return epsilon_of([event], delta, accountant, adjacency) <= epsilon

    low = high = math.sqrt(num_steps)
    while not affordable(high):
        high *= 2
        _validate.require(high < 1e30, "epsilon", epsilon, f"to be reachable at delta={delta} with {accountant}")
    while affordable(low):
        low /= 2
    while high > low * (1 + precision):
        middle = math.sqrt(low * high)
        low, high = (low, middle) if affordable(middle) else (middle, high)
    return high


def applicable(event: dp_accounting.DpEvent) -> tuple[str, ...]:
    """The accountants that can price it."""
    gaussian = isinstance(event, (dp_accounting.GaussianDpEvent, dp_accounting.NonPrivateDpEvent))
    return ACCOUNTANTS if gaussian else ("rdp", "pld")


def noise_multiplier(event: dp_accounting.DpEvent | None) -> float:
    """Noise multiplier of a release, sampled or not, or of each of many equal ones; 0 without noise."""
    while isinstance(event, (dp_accounting.PoissonSampledDpEvent, dp_accounting.SampledWithoutReplacementDpEvent,
                             dp_accounting.SelfComposedDpEvent)):
        event = event.event
    return getattr(event, "noise_multiplier", 0.0)


def _tally(events: Sequence[dp_accounting.DpEvent]) -> _Tally:
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
    """Refuses what is no event, cannot be compared, or has a noise multiplier that means no finite noise."""
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
def _epsilon(tally: _Tally, delta: float, accountant: str, adjacency: str) -> float:
    """Epsilon of a checked tally. Cached: a PLD takes tens of milliseconds and training asks before every step."""
    if not tally:
        return 0.0
    if any(isinstance(event, dp_accounting.NonPrivateDpEvent) for event, _ in tally):
        return math.inf
    if accountant in ("rdp", "pld"):
        value = float({"rdp": _rdp, "pld": _pld}[accountant](tally, delta, RELATIONS[adjacency]))
    else:  # Of Gaussian releases, whose noise multiplier is for the relation that counts.
        value = float({"classic_rdp": _classic_rdp, "gdp": _gdp}[accountant](tally, delta))
    # A NaN compares false with every budget; it must stop here.
    _validate.require(value >= 0, "epsilon", value, f">= 0 from accountant {accountant}")
    return value


def _squared_mu(tally: Sequence[tuple[dp_accounting.DpEvent, int]], accountant: str) -> float:
    """mu^2 = sum of 1/z^2: Gaussian releases compose to one Gaussian release with noise multiplier 1/mu."""
    for event, _ in tally:
        _validate.require(isinstance(event, dp_accounting.GaussianDpEvent), "event", event,
                          f"to be Gaussian, the only kind that accountant {accountant} covers; use rdp or pld")
    return math.fsum(count / event.noise_multiplier / event.noise_multiplier for event, count in tally)


def _classic_rdp(tally: _Tally, delta: float) -> float:
    """Smallest order * mu^2 / 2 + ln(1/delta) / (order - 1) over all orders (the paper's Theorems 1 and 3)."""
    rdp = CLASSIC_ORDERS * _squared_mu(tally, "classic_rdp") / 2
    return float(np.min(rdp + math.log(1 / delta) / (CLASSIC_ORDERS - 1)))


def _gdp(tally: _Tally, delta: float) -> float:
    """Solves delta(epsilon) = delta for the composed Gaussian mechanism."""
    squared = _squared_mu(tally, "gdp")
    mu = math.sqrt(squared)
    if squared > _HOPELESS:
        return math.inf
    if mu == 0 or gaussian_log_delta(0.0, mu) <= math.log(delta):
        return 0.0
    # The zCDP conversion bounds epsilon from above.
    upper = squared / 2 + mu * math.sqrt(2 * math.log(1 / delta))
    return float(optimize.brentq(
        lambda value: gaussian_log_delta(value, mu) - math.log(delta), 0.0, upper, xtol=1e-13, rtol=1e-13))


def gaussian_log_delta(epsilon: float, mu: float) -> float:
    """Logarithm of the smallest delta of a Gaussian release, for this epsilon and mu = sensitivity/stddev > 0.

    delta = Phi(mu/2 - epsilon/mu) - e^epsilon Phi(-mu/2 - epsilon/mu)  (Balle and Wang 2018, Theorem 8), in logarithms
    so that neither term over- or underflows.
    """
    first = special.log_ndtr(mu / 2 - epsilon / mu)
    second = epsilon + special.log_ndtr(-mu / 2 - epsilon / mu)
    return first + math.log(-math.expm1(second - first)) if second < first else -math.inf


def _rdp(tally: _Tally, delta: float, relation: dp_accounting.NeighboringRelation) -> float:
    """dp_accounting's RDP accountant."""
    return _dp_accounting(dp_accounting.rdp.RdpAccountant(neighboring_relation=relation), tally, delta, relation)


def _pld(tally: _Tally, delta: float, relation: dp_accounting.NeighboringRelation) -> float:
    """dp_accounting's PLD accountant, which rounds pessimistically; or ours, for samples of fixed size alone."""
    if relation == RELATIONS["replace-one"] and all(_is_sample_of_gaussian(event) for event, _ in tally):
        weakest = min(event.event.noise_multiplier for event, _ in tally)
        return math.inf if weakest < _HOPELESS**-0.5 else fixed_size_sampling.epsilon(tally, delta)
    squared = _squared_mu([pair for pair in tally if isinstance(pair[0], dp_accounting.GaussianDpEvent)], "pld")
    if squared > _HOPELESS:
        return math.inf
    # Its grid has (loss range)/(interval) points: a large loss on the standard grid would exhaust the memory.
    accountant = dp_accounting.pld.PLDAccountant(
        neighboring_relation=relation, value_discretization_interval=1e-4 * max(1.0, squared))
    return _dp_accounting(accountant, tally, delta, relation)


def _is_sample_of_gaussian(event: dp_accounting.DpEvent) -> bool:
    """Whether it is one Gaussian release from a sample of fixed size."""
    return (isinstance(event, dp_accounting.SampledWithoutReplacementDpEvent)
            and isinstance(event.event, dp_accounting.GaussianDpEvent))


def _dp_accounting(accountant: dp_accounting.PrivacyAccountant, tally: _Tally, delta: float,
                   relation: dp_accounting.NeighboringRelation) -> float:
    """Epsilon by one of dp_accounting's accountants."""
    try:
        for event, count in tally:
            accountant.compose(event, count)
    except dp_accounting.UnsupportedEventError as error:
        raise InvalidArgumentError(f"Expected events that can be priced for {relation.name}: {error}") from error
    return float(accountant.get_epsilon(delta))
