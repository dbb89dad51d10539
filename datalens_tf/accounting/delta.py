"""delta compared with n, the number of protected units: delta = 1/n permits publishing one of n records outright.

A mechanism that hands out each record as it is with probability delta, and otherwise nothing, is (0, delta)-private. So
delta has to be well below 1/n. A run whose delta is beyond an upper limit is refused unless its settings allow it.
"""

import warnings

from datalens_tf import _validate
from datalens_tf.config import RunSettings
from datalens_tf.errors import InvalidArgumentError, PrivacyWarning

WARNED, REFUSED = 1, 10  # delta, in units of 1/n


def check_delta(config: RunSettings, num_records: int) -> None:
    """Warns of a delta of 1/n or more, before anything is charged; refuses one of 10/n or more.

    Args:
      config: settings; those of a method that protects users have `num_users`.
      num_records: number of records in the data set, public.

    Raises:
      InvalidArgumentError: delta is at least 10/n and the settings do not allow it. The message names a delta to take.
    """
    count, unit = num_protected(config, num_records)
    if config.delta >= REFUSED / count and not config.allow_large_delta:
        raise InvalidArgumentError(
            f"Expected delta={config.delta:g} to be below {REFUSED}/n = {REFUSED / count:.2g} for n={count} {unit}: "
            f"{_meaning(config.delta, count, unit)} Take --delta {below(count):g}, or ask for this one with "
            "--allow_large_delta.")
    if config.delta >= WARNED / count:
        warnings.warn(f"{_ratio(config.delta, count, unit)} {_meaning(config.delta, count, unit)} "
                      f"Better: --delta {below(count):g}.", PrivacyWarning, stacklevel=2)


def describe_delta(config: RunSettings, num_records: int) -> str:
    """The statement's sentence about delta; from 1/n on, also what such a delta means."""
    count, unit = num_protected(config, num_records)
    text = _ratio(config.delta, count, unit)
    if not config.publishes_num_records:
        text = f"{text} That n is a public bound; how many records there are is private."
    return f"{text} {_meaning(config.delta, count, unit)}" if config.delta >= WARNED / count else text


def num_protected(config: RunSettings, num_records: int) -> tuple[int, str]:
    """n, and what it counts: users if neighbours differ in one user, else records or units, or their public bound."""
    if config.adjacency.endswith("-user"):
        users: int | None = getattr(config, "num_users", None)
        return _validate.known("num_users", users, "to be the number of users, whom neighbours differ in"), "users"
    return config.known_records(num_records), "records" if config.unit is None else "units"


def below(count: int) -> float:
    """The largest power of ten below 1/n."""
    return float(f"1e-{len(str(count))}")


def automatic(num_records: int) -> float:
    """A delta for `num_records` records: 1e-5, or the largest power of ten below a tenth of 1/n, if that is smaller.

    It is a function of n alone, which is public where neighbours differ in a replaced record. There are no more users
    than records, so the delta is small enough for users, too.
    """
    return min(1e-5, below(10 * num_records))


def _ratio(delta: float, count: int, unit: str) -> str:
    return f"delta = {delta:g} is {delta * count:.2g}/n, for n = {count} {unit}."


def _meaning(delta: float, count: int, unit: str) -> str:
    return (f"Publishing each of the {unit} outright with probability delta, {delta * count:.2g} of them on average, "
            "would keep to such a delta whatever epsilon is.")
