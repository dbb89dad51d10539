"""Repeated releases: sums that a run releases once are released many times, on two neighbouring data sets.

The run is made once, like any other, and watched: what its code sums, by which mechanisms, and what was released. The
same code then runs on neighbouring data, where it is given what the first run released, and is asked for its own sums.
So there are two worlds with the same history. Each release is a Gaussian mechanism about the sums of the one world or
the other, as composition has it. In each world, every release is made many times by its mechanism's own `privatize`.
The attacker knows the sums of both worlds, and guesses by the likelihood ratio, along the difference of the sums. How
often the guess is wrong, in either world, bounds mu from below, and with mu also epsilon.
"""

import dataclasses
import os
from collections.abc import Callable, Iterable, Sequence
from typing import Any

import numpy as np
from scipy import stats

from datalens_tf import _validate
from datalens_tf.accounting import accountants
from datalens_tf.accounting.ledger import PrivacyLedger
from datalens_tf.auditing.findings import Finding
from datalens_tf.auditing.neighbours import Pair
from datalens_tf.auditing.releases import many_runs_bound
from datalens_tf.config import MethodConfig
from datalens_tf.data.datasets import Dataset, to_unit, usable_only, with_data
from datalens_tf.mechanisms.noise import NoiseSource, noise_source
from datalens_tf.methods.embedding import ReleasingSynthesizer
from datalens_tf.settings import declared

AUDIT = "repeated releases"
# Settings that only decide how well a generator is fitted to what was released, and how little is enough here.
_ENOUGH = {"fit_steps": 2, "prototype_steps": 2, "selection_images": 200, "selection_epochs": 1}


@dataclasses.dataclass(frozen=True)
class Watched:
    """The releases of a run, each on the run's own data and on neighbouring data.

    Attributes:
      pairs: for each neighbour, its releases in order.
      claimed_mu: the mu that all charges of the run together allow.
      epsilon: what the run claims.
      noise: its source.
    """

    pairs: list[list[Pair]]
    claimed_mu: float
    epsilon: float
    noise: NoiseSource

    def worst(self) -> list[Pair]:
        """The releases on the neighbour that can be told apart best."""
        return max(self.pairs, key=total_mu)


class _Watching:
    """A run's `Releases`, with the mechanism, the exact sums and the released numbers of each release."""

    def __init__(self, releases: Any):
        self._releases = releases
        self.made: list[tuple[Any, np.ndarray, np.ndarray]] = []

    def __getattr__(self, name: str) -> Any:
        return getattr(self._releases, name)

    def get(self, mechanism: Callable[..., Any], sums: Callable[[Any], np.ndarray]) -> tuple[Any, np.ndarray]:
        exact: list[np.ndarray] = []

        def kept(asking: Any) -> np.ndarray:
            exact.append(sums(asking))
            return exact[0]

        made, noisy = self._releases.get(mechanism, kept)
        self.made.append((made, exact[0], noisy))
        return made, noisy


class _Again:
    """Releases of a watched run, in place of `Releases`, for a run on neighbouring data; nothing is charged."""

    def __init__(self, watched: _Watching):
        self._watched = watched
        self.pairs: list[Pair] = []

    def __getattr__(self, name: str) -> Any:
        return getattr(self._watched, name)

    def can_get(self) -> bool:
        return len(self.pairs) < len(self._watched.made)

    def get(self, mechanism: Callable[..., Any], sums: Callable[[Any], np.ndarray]) -> tuple[Any, np.ndarray]:
        del mechanism  # The first run's mechanism is taken.
        made, exact, noisy = self._watched.made[len(self.pairs)]
        self.pairs.append(Pair(made, made.dp_event(), exact, sums(made)))
        return made, noisy


def watch(kind: type[ReleasingSynthesizer], config: MethodConfig, dataset: Dataset, neighbours: Iterable[Dataset],
          run_dir: str | os.PathLike) -> Watched:
    """Makes a run, and computes the sums that it would release on neighbouring data.

    Args:
      kind: of the run.
      config: its settings. The fit of the generator to what was released is cut short.
      dataset: the run's records.
      neighbours: neighbouring data sets.
      run_dir: a new folder.
    """
    watched: list[list[Pair]] = []
    base: Any = kind

    class Audited(base):
        def _made(self, dataset, releases):
            watching = _Watching(releases)
            made = super()._made(dataset, watching)
            for neighbour in neighbours:
                again = _Again(watching)
                super()._made(usable_only(neighbour), again)
                watched.append(again.pairs)
            return made

    run = Audited(config, run_dir=run_dir)
    plan = with_data(run.config, dataset).resolved(run.config.known_records(len(dataset)))
    run.config = plan.replace(**{name: min(getattr(plan, name), enough) for name, enough in _ENOUGH.items()
                                 if name in declared(type(plan))})
    run._train(dataset)
    ledger = PrivacyLedger.read(run.folder.ledger)
    return Watched(watched, mu_of(ledger), ledger.spent(), noise_source(run.config))


def mu_of(ledger: PrivacyLedger) -> float:
    """The mu of all charges of a ledger together, which are of Gaussian releases: sqrt(sum of n / z^2)."""
    return sum(charge.count / accountants.noise_multiplier(charge.unit)**2 for charge in ledger.charges)**0.5


def total_mu(pairs: Sequence[Pair]) -> float:
    """The mu of all releases of a pair of data sets together."""
    return float(np.linalg.norm([pair.mu for pair in pairs]))


def worst_neighbours(dataset: Dataset, adjacency: str) -> tuple[Dataset, list[Dataset]]:
    """A data set with a hostile first record, and neighbours in which it is replaced; or one in which it is missing.

    The first record becomes white where the brightest of the first records is brighter than its mean, and black
    elsewhere. So it is like a record of its class, and as long as clips allow. In the neighbours, it is replaced by its
    opposite in another class, by the same image in another class, by its opposite in its class, and by black.
    """
    first = to_unit(dataset.images[:1000])
    place = int(first.reshape(len(first), -1).sum(1).argmax())
    bold = first[place] > first[place].mean()
    label = int(dataset.labels[place])
    other = (label + 1) % dataset.num_classes

    def with_first(image, label):
        images, labels = np.array(dataset.images), np.array(dataset.labels)
        images[0] = image * (255 if images.dtype == np.uint8 else 1.0)
        labels[0] = label
        return dataclasses.replace(dataset, images=images, labels=labels)

    if adjacency == "add-or-remove-one":
        return with_first(bold, label), [dataclasses.replace(
            dataset, images=dataset.images[1:], labels=dataset.labels[1:],
            usable=None if dataset.usable is None else dataset.usable[1:])]
    return with_first(bold, label), [with_first(~bold, other), with_first(bold, other), with_first(~bold, label),
                                     with_first(np.zeros_like(bold), label)]


def scores(pairs: Sequence[Pair], noise: NoiseSource, trials: int, progress: Callable[[Sequence], Any] = iter
           ) -> tuple[np.ndarray, np.ndarray]:
    """Log-likelihood ratios of many releases in each of two worlds; above 0 they speak for the first.

    Args:
      pairs: the releases.
      noise: as in training.
      trials: in each world.
      progress: wraps the trials.

    Returns:
      float64 [trials] each. With the noise that is charged for, they have means +-mu^2 / 2 and variances mu^2.
    """
    tests = []
    for pair in pairs:
        (mean, other), stddevs = pair.means, pair.stddevs
        tests.append(((mean + other) / 2, (mean - other) / stddevs**2))
    found: tuple[list[float], list[float]] = ([], [])
    for trial in progress(range(trials)):
        for world, name in zip(found, ("first", "second")):
            world.append(sum(
                float(np.vdot(pair.mechanism.privatize(getattr(pair, name), noise, trial) - middle, along))
                for pair, (middle, along) in zip(pairs, tests)))
    return np.array(found[0]), np.array(found[1])


def mu_bound(first: np.ndarray, second: np.ndarray, confidence: float) -> float:
    """Lower bound on mu from the errors of guessing by the sign of scores (Dong, Roth and Su 2019, definition 4).

    A mu-GDP algorithm has ndtri(1 - a) - ndtri(b) <= mu for every test with error probabilities a and b. Both are
    bounded from above (Clopper and Pearson 1934), each with half of the risk.

    Args:
      first, second: scores of independent releases in each of two worlds.
      confidence: of the bound.
    """
    _validate.between("confidence", confidence, 0, 1, open_low=True, open_high=True)
    highs = []
    for wrong in (np.asarray(first) <= 0, np.asarray(second) > 0):
        count, errors = len(wrong), int(wrong.sum())
        highs.append(1.0 if errors == count else float(stats.beta.ppf(
            1 - (1 - confidence) / 2, errors + 1, count - errors)))
    return max(0.0, float(-stats.norm.ppf(highs[0]) - stats.norm.ppf(highs[1])))


def audit_repeated(watched: Watched, delta: float, *, trials: int, confidence: float, private: bool = False,
                   progress: Callable[[Sequence], Any] = iter) -> list[Finding]:
    """Bounds on mu and on epsilon from many releases on the worst pair.

    Args:
      watched: the run.
      delta: of the claim.
      trials: in each world, at least 8.
      confidence: of both bounds together.
      private: whether the run's records are real ones.
      progress: wraps the trials.
    """
    _validate.integer("trials", trials, at_least=8)
    pairs, each = watched.worst(), 1 - (1 - confidence) / 2
    first, second = scores(pairs, watched.noise, trials, progress)
    details = {"trials": 2 * trials, "num_releases": len(pairs), "mu_of_the_pair": total_mu(pairs),
               "errors": [int((first <= 0).sum()), int((second > 0).sum())]}
    measured = (f"{len(pairs)} releases, {trials} times in each of two worlds that differ in one record, whose sums "
                f"are apart by a mu of {total_mu(pairs):.4f}; ")
    return [
        Finding(audit=AUDIT, measured=measured + "errors of guessing by the sign of the likelihood ratio",
                quantity="mu", lower_bound=mu_bound(first, second, each), claimed=watched.claimed_mu, confidence=each,
                details=details, private=private),
        Finding(audit=AUDIT, measured=measured + "a threshold chosen on half of them", quantity="epsilon",
                lower_bound=many_runs_bound(first, second, delta, each), claimed=watched.epsilon, confidence=each,
                details=details, private=private)]
