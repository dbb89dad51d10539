"""Names of data that is in several parts: `npz:/data/{0..7}.npz` stands for eight files."""

import re

from datalens_tf import _validate

_RANGE = re.compile(r"\{(\d{1,9})\.\.(\d{1,9})\}")
_LARGEST_NUMBER = 100_000


def has_shards(name: str) -> bool:
    """Whether a name of data stands for several."""
    return _RANGE.search(name) is not None


def shard_names(name: str) -> tuple[str, ...]:
    """Names of all parts, in order; a number has as many digits as the first one, zeros in front.

    Raises:
      InvalidArgumentError: the range is empty or huge, or there are two.
    """
    found = _RANGE.findall(name)
    _validate.require(len(found) == 1, "dataset", name, "to have one range of numbers, such as {0..7}")
    first, last = (int(number) for number in found[0])
    _validate.require(first <= last < first + _LARGEST_NUMBER, "dataset", name,
                      f"to name 1 to {_LARGEST_NUMBER:,} parts by a range such as {{0..7}}")
    width = len(found[0][0])
    return tuple(_RANGE.sub(f"{number:0{width}d}", name) for number in range(first, last + 1))
