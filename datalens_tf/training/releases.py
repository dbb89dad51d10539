"""Releases that a run makes once, in a known order; and what burnt charges leave of the budget for them.

A release that n charges pay for is one line of the ledger, written at once: a kill burns that line, or nothing. At
every start, before anything is spent, all that is still to be released must be affordable on top of all charges,
including burnt ones. Where it is not, because charges were burnt, the remaining releases share what is left of the
budget in proportion to their charges: these charges get a larger noise multiplier, the same for all of them. The
multiplier is a function of the settings and the ledger, so nothing about the records decides it, and every resumed run
finds the same one. A stored release keeps the noise multiplier of the line that paid for it.
"""

import bisect
import contextlib
import warnings
from collections.abc import Callable
from typing import Any, Protocol

import dp_accounting
import numpy as np

from datalens_tf.accounting import accountants
from datalens_tf.accounting.ledger import Charge, PrivacyLedger
from datalens_tf.errors import BudgetExhaustedError, InterruptionWarning, LedgerError
from datalens_tf.mechanisms.discrete_gaussian import DiscreteGaussianNoise
from datalens_tf.mechanisms.noise import NoiseSource, noise_source
from datalens_tf.training.checkpoint import ReleaseStore
from datalens_tf.training.run_folder import RunFolder

# Ten times the planned noise is a hundredth of the planned budget in mu^2, about epsilon 0.1 where 1 was asked for.
# Beyond it, a generator would be made of noise. Any one burnt release but the last leaves the presets within it.
LARGEST_FACTOR = 10
_PARTS = 10**6  # of the planned noise multiplier; larger multipliers are counted in these parts


class _Mechanism(Protocol):
    """A mechanism that adds the noise."""

    def privatize(self, sums: np.ndarray, noise: NoiseSource, index: int) -> np.ndarray:
        """The sums with noise."""


class _Owners(Protocol):
    """Owners who add the noise; `sum_owners.SumOwners`."""

    def total(self, mechanism: Any, ask: Any, charge: Charge) -> np.ndarray:
        """The sum of their shares."""


class ReleasesConfig(Protocol):
    """Settings of a run that releases sums: a `MethodConfig` with a noise multiplier and a plan."""

    @property
    def noise_multiplier(self) -> float | None:
        """Standard deviation of one charge's noise divided by the sensitivity; None before calibration."""
        ...

    @property
    def insecure_noise_seed(self) -> int | None:
        """Seed of predictable noise, in tests; else None."""
        ...

    @property
    def noise(self) -> str:
        """Distribution of the noise."""
        ...

    @property
    def release_charges(self) -> tuple[int, ...]:
        """Number of charges that pay for each release, in order."""
        ...

    @property
    def num_charges(self) -> int:
        """Number of charges of the whole run."""
        ...

    def mechanism(self) -> Any:
        """Mechanism of a release that one charge pays for; its `dp_event()` is a Gaussian event."""


class Releases:
    """Charges, draws and stores each release; a resumed run that asks in the same order finds the stored ones.

    Warns (InterruptionWarning) where burnt charges made the noise larger, or leave too little for optional releases.

    Args:
      config: resolved settings: `noise_multiplier` is that of one charge, and `release_charges` is the plan.
      folder: the run folder, of which this process holds the lock.
      ledger: the run's ledger; its `largest_event` is that of `largest_release`.
      num_optional: how many of the last releases the run can do without.
      around: the number of a release -> context within which its exact sums are computed, before anything is charged.
      spent: called after each release with what the run has spent so far.
      owners: the owners who keep the records and add the noise; None where the records are here.

    Attributes:
      ledger: the run's ledger.
      noise: source of the noise.
      event: planned cost of a charge.

    Raises:
      BudgetExhaustedError: the budget does not pay for what remains; nothing was charged.
      CheckpointError, LedgerError: stored releases are damaged, or the ledger lacks the charges that paid for them.
    """

    def __init__(self, config: ReleasesConfig, folder: RunFolder, ledger: PrivacyLedger, num_optional: int = 0,
                 around: Callable[[int], contextlib.AbstractContextManager] = contextlib.nullcontext,
                 spent: Callable[[float], None] = lambda epsilon: None, owners: _Owners | None = None):
        self._around, self._spent, self._owners = around, spent, owners
        self.noise = noise_source(config) if owners is None else DiscreteGaussianNoise()
        self.event, self.ledger = config.mechanism().dp_event(), ledger
        self._plan, self._next = config.release_charges, 1
        self._num_needed = len(self._plan) - num_optional
        self._store = ReleaseStore(folder.releases)
        self._store.check(self.ledger)
        for release in range(1, len(self._store) + 1):
            self._check_paid(release)
        if self.num_burnt < 0:
            raise LedgerError(f"{self.ledger.path} has {self.ledger.num_charges} charges, {-self.num_burnt} fewer than "
                              "were used: put the run's newest ledger back.")
        if len(self._store) < len(self._plan):
            self._look_ahead()

    @property
    def num_burnt(self) -> int:
        """Charges that paid for releases that were never stored."""
        # Ledgers of version 1 have a line for each charge of a release; the store knows only the last of these lines.
        return self.ledger.num_charges - sum(self._plan[:len(self._store)])

    @property
    def recalibrated(self) -> tuple[dp_accounting.DpEvent, ...]:
        """Costs of charges whose noise had to be made larger than planned, in order, each once."""
        units = dict.fromkeys(charge.unit for charge in self.ledger.charges)
        return tuple(unit for unit in units if type(unit) is type(self.event)
                     and unit.noise_multiplier > self.event.noise_multiplier)

    def can_get(self) -> bool:
        """Whether the next release is stored, or affordable together with all that remain."""
        return self._next <= len(self._store) or self._unit() is not None

    def get(self, mechanism: Callable[..., _Mechanism], sums: Callable[[Any], np.ndarray]) -> tuple[Any, np.ndarray]:
        """The next release: the stored one, or a new one.

        Args:
          mechanism: makes the mechanism of the release from a `noise_multiplier`.
          sums: a mechanism -> its exact sums; private. Not called for a stored release.

        Returns:
          The mechanism, with the noise multiplier of this release, and the noisy sums.

        Raises:
          BudgetExhaustedError: the budget does not pay for it; nothing was charged.
        """
        release, num_charges, self._next = self._next, self._plan[self._next - 1], self._next + 1
        noisy = self._store.load(release)
        if noisy is not None:
            unit = self.ledger.charges[self._store.charge(release)].unit
            self._spent(self.ledger.spent())
            return mechanism(noise_multiplier=_multiplier(unit, num_charges)), noisy
        unit = self._unit()
        if unit is None:
            raise self._exhausted()
        made = mechanism(noise_multiplier=_multiplier(unit, num_charges))
        with self._around(release):
            exact = sums(made)
        charge = self.ledger.spend(_composed(unit, num_charges), step=release)
        noisy = (made.privatize(exact, self.noise, charge) if self._owners is None else
                 self._owners.total(made, exact, self.ledger.charges[charge]))
        self._store.store(release, charge, noisy, self.ledger)
        self._spent(self.ledger.spent())
        return made, noisy

    def _unit(self) -> Any:
        """Cost of a charge at which all that remains is affordable; None where no noise worth adding is enough."""
        num_charges = sum(self._plan[len(self._store):])

        def affordable(parts):
            return self.ledger.can_spend(_composed(self._noisier(parts), num_charges))

        latest = self.ledger.charges[-1].unit if self.ledger.charges else self.event
        if self.ledger.can_spend(_composed(latest, num_charges)):
            return latest
        if not self.num_burnt:  # The settings ask for too little noise: no interruption is to blame.
            return None
        possible = range(_PARTS, LARGEST_FACTOR * _PARTS + 1)
        smallest = bisect.bisect_left(possible, True, key=affordable)
        return self._noisier(possible[smallest]) if smallest < len(possible) else None

    def _noisier(self, parts: int) -> Any:
        """A charge with `parts` / `_PARTS` times the planned noise."""
        return type(self.event)(self.event.noise_multiplier * parts / _PARTS)

    def _look_ahead(self) -> None:
        """Refuses a run that cannot release what remains, or warns of what burnt charges mean for the rest."""
        unit = self._unit()
        if unit is None and len(self._store) < self._num_needed:
            raise self._exhausted()
        lost = _lost(self.ledger, self.num_burnt)
        if unit is None:
            warnings.warn(f"{lost} What is left does not pay for the last of {len(self._plan)} releases, and the run "
                          "goes on without it.", InterruptionWarning, stacklevel=3)
        elif unit != self.event:
            factor = unit.noise_multiplier / self.event.noise_multiplier
            warnings.warn(f"{lost} What is still to be released has {factor:.4g} times the noise that was planned, so "
                          f"that epsilon stays within {self.ledger.epsilon_budget:g}.", InterruptionWarning,
                          stacklevel=3)

    def _exhausted(self) -> BudgetExhaustedError:
        """Error that says why the budget does not pay for what remains."""
        ledger, rest = self.ledger, sum(self._plan[len(self._store):])
        if not self.num_burnt:
            return BudgetExhaustedError(
                f"The privacy budget epsilon={ledger.epsilon_budget:g} does not pay for {rest} charges with "
                f"noise_multiplier={self.event.noise_multiplier:g}; {accountants.round_up(ledger.spent())} is spent. "
                "Leave out --noise_multiplier, which is then computed from the budget, or give a larger one, in "
                "another folder.")
        return BudgetExhaustedError(
            f"The privacy budget epsilon={ledger.epsilon_budget:g} does not pay for what remains to be released, not "
            f"even with {LARGEST_FACTOR} times the noise: {accountants.round_up(ledger.spent())} is spent after "
            f"{ledger.num_charges} charges, {self.num_burnt} of them lost when training was interrupted. Nothing more "
            "was charged. Train in another folder; what is spent there comes on top of this.")

    def _check_paid(self, release: int) -> None:
        """Checks that a stored release is one of the plan, and that its line is of as many charges as planned."""
        charge = self.ledger.charges[self._store.charge(release)]
        planned = self._plan[release - 1] if release <= len(self._plan) else 0
        if charge.count != planned and not (self.ledger.version == 1 and charge.count == 1 <= planned):
            raise LedgerError(f"Release {release} in {self.ledger.path.parent} was paid for by charge {charge.index}, "
                              f"{charge.count}-fold, and takes {planned}: the ledger belongs to another configuration.")


def warn_of_lost_steps(ledger: PrivacyLedger, event: dp_accounting.DpEvent, num_burnt: int, done: int, num_steps: int
                       ) -> None:
    """Warns (InterruptionWarning) where burnt charges end a run of equal steps before the last planned step.

    Args:
      ledger: the run's ledger.
      event: what each step costs.
      num_burnt: charges of steps that were lost.
      done: steps that are done.
      num_steps: steps that were planned.
    """
    rest = num_steps - done
    if num_burnt and rest and not ledger.can_spend(_composed(event, rest)):
        left = bisect.bisect_left(range(1, rest), True, key=lambda count: not ledger.can_spend(_composed(event, count)))
        warnings.warn(f"{_lost(ledger, num_burnt)} The run ends after {done + left} of {num_steps} steps, so that "
                      f"epsilon stays within {ledger.epsilon_budget:g}.", InterruptionWarning, stacklevel=3)


def largest_release(config: ReleasesConfig) -> dp_accounting.DpEvent:
    """Cost of the costliest release of a plan, if no charge is burnt."""
    return _composed(config.mechanism().dp_event(), max(config.release_charges))


def _lost(ledger: PrivacyLedger, num_burnt: int) -> str:
    """Sentence on the charges that were lost."""
    return (f"{num_burnt} of {ledger.num_charges} charges to the privacy budget were lost when training was "
            "interrupted.")


def _composed(unit: dp_accounting.DpEvent, num_charges: int) -> dp_accounting.DpEvent:
    """One event of so many charges."""
    return unit if num_charges == 1 else dp_accounting.SelfComposedDpEvent(unit, num_charges)


def _multiplier(unit: dp_accounting.DpEvent, num_charges: int) -> float:
    """Noise multiplier of a release that so many charges pay for: n charges of z cost as much as one of z / sqrt(n)."""
    return accountants.noise_multiplier(unit) / num_charges**0.5
