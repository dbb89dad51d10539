"""Per-record privacy budgets for PATE, by upsampling records or weighting teachers (PrivacyVerse, Algorithms 1 and 2).

A record with a larger budget has more votes: it is given to several teachers (upsampling), or to a teacher whose vote
counts more (weighting). Its epsilon follows from its number of votes r, by which every sensitivity in
`mechanisms.gnmax` is multiplied (`record_votes`). Nowhere else may two teachers have the same record.

Budgets are public, belong to a record's index, and stay when the record is replaced: a budget that was chosen by the
content of its record would reveal something about it. Deviations from the report's pseudo-code:

- Algorithm 1 divides the scaled budgets by G. Elsewhere in it, G is the number of groups, which would leave fractions
  of copies. The greatest common divisor gives the fewest whole copies in the right proportion.
- Algorithm 2 makes a group's weight proportional to its budget and to its size, so that the weights do not add up to
  the number of teachers, as its comment says, and a record's votes depend on how many others share its budget. Here
  the weights are proportional to the budget. They are integers, as exact noise is; only their proportion to the noise
  matters.
- Copies are dealt to different teachers; the report does not say how. Two copies in one teacher would be one vote.
"""

import dataclasses
from collections.abc import Mapping, Sequence

import numpy as np

from datalens_tf import _validate
from datalens_tf.data.partition import partition_indices
from datalens_tf.errors import DataError, InvalidArgumentError


@dataclasses.dataclass(frozen=True, kw_only=True)
class BudgetGroup:
    """The records with one budget.

    Attributes:
      epsilon: the budget.
      record_votes: r, votes that depend on one of these records.
      num_records: how many there are.
    """

    epsilon: float
    record_votes: int
    num_records: int


def deal_budgets(shares: Mapping[float, float], num_records: int, seed: int) -> np.ndarray:
    """Gives every record a budget, by its index and a public seed: a stand-in for people who choose their own.

    Args:
      shares: budget -> fraction of the records, adding up to 1.
      num_records: n.
      seed: public.

    Returns:
      float64 [n].
    """
    for budget, share in shares.items():
        _validate.positive("budget", budget)
        _validate.between("share", share, 0, 1)
    total = sum(shares.values())
    _validate.require(abs(total - 1) < 1e-9, "shares", dict(shares), f"to add up to 1, not to {total:g}")
    ends = np.rint(np.cumsum(list(shares.values())) * num_records).astype(int)
    budgets = np.repeat(list(shares), np.diff(ends, prepend=0)).astype(np.float64)
    return budgets[_permutation(num_records, seed, "budgets")]


def votes_per_record(budgets: np.ndarray, precision: int = 1) -> np.ndarray:
    """Whole numbers of votes in the proportion of the budgets (Algorithm 1, corrected).

    Args:
      budgets: [n], > 0.
      precision: decimal places of the budgets that count. More places make larger numbers, and so more work.

    Returns:
      int64 [n], >= 1, without a common divisor.

    Raises:
      InvalidArgumentError: a budget is not a number > 0, or is rounded to 0 at this precision.
    """
    _validate.integer("precision", precision, at_least=0)
    budgets = np.asarray(budgets, np.float64)
    scaled = np.rint(budgets * 10.0**precision)
    usable = budgets.ndim == 1 and len(budgets) and np.all(np.isfinite(budgets)) and np.all(scaled >= 1)
    _validate.require(bool(usable), "budgets", budgets.min(initial=np.inf),
                      f"to be numbers of at least {0.5 * 10.0**-precision:g}, one per record; raise precision")
    whole = scaled.astype(np.int64)
    return whole // np.gcd.reduce(np.unique(whole))


def upsampled_partitions(votes: np.ndarray, num_teachers: int, seed: int) -> list[np.ndarray]:
    """Deals every record to as many different teachers as it has votes, publicly.

    Records are taken in the order of a public random permutation; the copies of a record go to consecutive teachers. So
    a record's teachers depend on indices, budgets and the seed only.

    Args:
      votes: copies of each record, int [n], at most one for each teacher.
      num_teachers: N.
      seed: public.

    Returns:
      N arrays of record indices, whose lengths differ by 1 at most.

    Raises:
      InvalidArgumentError: more copies than teachers.
      DataError: fewer copies in all than teachers.
    """
    _validate.integer("num_teachers", num_teachers, at_least=int(np.max(votes)))
    _enough(int(np.sum(votes)), num_teachers)
    order = _permutation(len(votes), seed, "upsampling")
    sequence = np.repeat(order, votes[order])
    return [sequence[teacher::num_teachers] for teacher in range(num_teachers)]


def weighted_partitions(votes: np.ndarray, num_teachers: int, seed: int) -> tuple[list[np.ndarray], np.ndarray]:
    """Disjoint partitions of records with equal budgets, and the votes of their teachers (Algorithm 2, corrected).

    Every group of records has teachers in proportion to its size, at least one.

    Args:
      votes: votes of each record's teacher, int [n].
      num_teachers: N.
      seed: public.

    Returns:
      N arrays of record indices; int64 [N], each teacher's votes.

    Raises:
      InvalidArgumentError: fewer teachers than groups.
      DataError: fewer records than teachers.
    """
    weights, sizes = np.unique(votes, return_counts=True)
    _validate.integer("num_teachers", num_teachers, at_least=len(weights))
    _enough(len(votes), num_teachers)
    shards, of_teacher = [], []
    for weight, count in zip(weights, _teachers_of_groups(sizes, num_teachers)):
        members = np.flatnonzero(votes == weight)
        shards += list(members[partition_indices(len(members), int(count), seed)])
        of_teacher += [weight] * int(count)
    return shards, np.array(of_teacher, np.int64)


def budget_groups(budgets: np.ndarray, votes: np.ndarray) -> Sequence[BudgetGroup]:
    """The records by budget, the smallest first; budgets that the precision cannot tell apart have the same votes."""
    return [BudgetGroup(epsilon=float(budget), record_votes=int(votes[members][0]), num_records=int(members.sum()))
            for budget in np.unique(budgets) for members in [budgets == budget]]


def read_shares(text: str) -> dict[float, float]:
    """`1:0.5,3:0.5`: budgets and the fractions of records that have them."""
    try:
        return {float(budget): float(share) for budget, share in (part.split(":") for part in text.split(","))}
    except ValueError as error:
        raise InvalidArgumentError(f"Expected budgets={text!r} to be BUDGET:SHARE,BUDGET:SHARE,...") from error


def _teachers_of_groups(sizes: np.ndarray, num_teachers: int) -> np.ndarray:
    """Whole numbers in the proportion of the sizes, at least 1 and at most the size each, that add up."""
    counts = np.ones(len(sizes), np.int64)
    for _ in range(num_teachers - len(sizes)):
        # Each further teacher goes to the group whose teachers have the most records.
        counts[np.argmax(sizes / counts)] += 1
    return counts


def _enough(num_records: int, num_teachers: int) -> None:
    if num_records < num_teachers:
        raise DataError(f"Expected at least one record per teacher, got {num_records} for num_teachers={num_teachers}. "
                        "Use fewer teachers or more data.")


def _permutation(count: int, seed: int, purpose: str) -> np.ndarray:
    """A public permutation, the same everywhere: see `partition_indices`."""
    _validate.integer("seed", seed, at_least=0)
    words = np.frombuffer(purpose.encode(), np.uint8).tolist()
    return np.random.RandomState(np.random.MT19937(np.random.SeedSequence([int(seed), *words]))).permutation(count)
