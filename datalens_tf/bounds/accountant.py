"""Interface of every accountant: a bound on epsilon for the releases that it supports."""

import abc
import math
from collections.abc import Iterable
from typing import ClassVar

import dp_accounting

from datalens_tf import _validate
from datalens_tf.errors import InvalidArgumentError

RELATIONS = {"replace-one": dp_accounting.NeighboringRelation.REPLACE_ONE,
             "add-or-remove-one": dp_accounting.NeighboringRelation.ADD_OR_REMOVE_ONE,
             "replace-one-user": dp_accounting.NeighboringRelation.REPLACE_ONE,
             "add-or-remove-one-user": dp_accounting.NeighboringRelation.ADD_OR_REMOVE_ONE}

# Above this mu^2 (epsilon about 500,000) privacy loss distributions overflow, the closed form loses digits, and there
# is no privacy to measure.
HOPELESS = 1e6

Tally = tuple[tuple[dp_accounting.DpEvent, int], ...]


class Accountant(abc.ABC):
    """A way to bound the epsilon of releases that are composed adaptively. Its name is that of its file.

    Attributes:
      note: how the bound is found and how tight it is, for the privacy statement.
      note_on_samples: the same for a replaced record in Poisson samples, where that is priced.
    """

    note: ClassVar[str]
    note_on_samples: ClassVar[str] = ""

    @property
    def name(self) -> str:
        """Name that `--accountant` takes."""
        return type(self).__module__.rpartition(".")[2]

    def supports(self, event: dp_accounting.DpEvent) -> bool:
        """Whether it prices this event, for some neighbouring relation; by default it prices every event."""
        return True

    @abc.abstractmethod
    def epsilon(self, tally: Tally, delta: float, adjacency: str) -> float:
        """The smallest epsilon that it can prove.

        Args:
          tally: events, and how often each happened: at least one event, each with noise multipliers that are > 0.
          delta: in (0, 1).
          adjacency: one of `RELATIONS`. The noise multiplier of a Gaussian release is for this relation.

        Raises:
          InvalidArgumentError: it cannot price an event for this relation.
        """


class GaussianAccountant(Accountant):
    """An accountant of Gaussian releases, which compose to one Gaussian release under every neighbouring relation."""

    def supports(self, event: dp_accounting.DpEvent) -> bool:
        return isinstance(event, (dp_accounting.GaussianDpEvent, dp_accounting.NonPrivateDpEvent))

    def epsilon(self, tally: Tally, delta: float, adjacency: str) -> float:
        for event, _ in tally:
            _validate.require(self.supports(event), "event", event,
                              f"to be Gaussian, the only kind that accountant {self.name} covers; use rdp or pld")
        return self.of_gaussian(squared_mu(tally), delta)

    @abc.abstractmethod
    def of_gaussian(self, squared: float, delta: float) -> float:
        """Epsilon of one Gaussian release whose sensitivity, divided by the noise's standard deviation, is mu.

        Args:
          squared: mu^2.
          delta: in (0, 1).
        """


def squared_mu(tally: Iterable[tuple[dp_accounting.GaussianDpEvent, int]]) -> float:
    """mu^2 = sum of 1/z^2: Gaussian releases compose to one Gaussian release with noise multiplier 1/mu."""
    return math.fsum(count / event.noise_multiplier / event.noise_multiplier for event, count in tally)


def by_dp_accounting(accountant: dp_accounting.PrivacyAccountant, tally: Tally, delta: float, adjacency: str) -> float:
    """Epsilon by one of dp_accounting's accountants; raises InvalidArgumentError for events that it does not know."""
    try:
        for event, count in tally:
            accountant.compose(event, count)
    except dp_accounting.UnsupportedEventError as error:
        raise InvalidArgumentError(
            f"Expected events that can be priced for {RELATIONS[adjacency].name}: {error}") from error
    return float(accountant.get_epsilon(delta))
