"""Privacy loss distributions, by dp_accounting; for replaced records, samples by curves of our own."""

import functools
import math

import dp_accounting
from dp_accounting.pld import privacy_loss_distribution

from datalens_tf import _validate, events
from datalens_tf.bounds import curves, fixed_size_sampling, poisson_sampling
from datalens_tf.bounds.accountant import HOPELESS, RELATIONS, Accountant, Tally, by_dp_accounting, squared_mu

PLACE = 3

_UNSAMPLED = (dp_accounting.GaussianDpEvent, dp_accounting.LaplaceDpEvent)
_INTERVAL = 1e-4


class Pld(Accountant):
    """dp_accounting's PLD accountant, which rounds pessimistically; or ours, for replaced records in samples."""

    note = "dp_accounting's privacy loss distributions; a near-exact upper bound"
    note_on_samples = "losses of a replaced record in a sample, which dp_accounting lacks; a near-exact upper bound"

    def supports(self, event: dp_accounting.DpEvent) -> bool:
        return not isinstance(event, events.DiscreteGaussianDpEvent)

    def epsilon(self, tally: Tally, delta: float, adjacency: str) -> float:
        replaced = RELATIONS[adjacency] is RELATIONS["replace-one"]
        if replaced and any(_is_sampled_gaussian(event) for event, _ in tally):
            found = [(_curve(event), count) for event, count in tally]
            return math.inf if max(curve.largest for curve, _ in found) > HOPELESS else curves.epsilon(found, delta)
        for event, _ in tally:
            _validate.require(
                not replaced or isinstance(event, _UNSAMPLED), "event", event,
                f"to be one that can be priced for {RELATIONS[adjacency].name} by pld")
        squared = squared_mu(pair for pair in tally if isinstance(pair[0], dp_accounting.GaussianDpEvent))
        if squared > HOPELESS:
            return math.inf
        if len(tally) == 1 and _is_poisson_sampled_gaussian(tally[0][0]):
            (event, count), = tally
            return float(_of_steps(event, count).get_epsilon_for_delta(delta))
        # Under replacement, only noise without sampling is left, and its multiplier is for the replacement itself. Its
        # loss is exactly that of N(0, z^2) against N(1, z^2), whatever moved the mean by 1; likewise for Laplace noise.
        # Every version of dp_accounting computes this for ADD_OR_REMOVE_ONE; for REPLACE_ONE, 0.6 moves the mean by 2.
        accountant = dp_accounting.pld.PLDAccountant(
            neighboring_relation=RELATIONS["add-or-remove-one"],
            # Its grid has (loss range)/(interval) points: a large loss on the standard grid would exhaust the memory.
            value_discretization_interval=_INTERVAL * max(1.0, squared))
        return by_dp_accounting(accountant, tally, delta, adjacency)


def _is_sampled_gaussian(event: dp_accounting.DpEvent) -> bool:
    """Whether it is one Gaussian release from a sample, of fixed size or not."""
    return _is_poisson_sampled_gaussian(event) or (
        isinstance(event, dp_accounting.SampledWithoutReplacementDpEvent)
        and isinstance(event.event, dp_accounting.GaussianDpEvent))


def _curve(event: dp_accounting.DpEvent) -> curves.Curve:
    """The curve of one Gaussian release, from a sample or not, for a replaced record."""
    if isinstance(event, dp_accounting.GaussianDpEvent):
        return fixed_size_sampling.curve(dp_accounting.SampledWithoutReplacementDpEvent(1, 1, event))
    if _is_poisson_sampled_gaussian(event):
        return poisson_sampling.curve(event)
    _validate.require(_is_sampled_gaussian(event), "event", event,
                      "to be a Gaussian release, which can be priced for REPLACE_ONE beside samples by pld")
    return fixed_size_sampling.curve(event)


def _is_poisson_sampled_gaussian(event: dp_accounting.DpEvent) -> bool:
    """Whether it is one Gaussian release from a Poisson sample with a sampling probability > 0."""
    return (isinstance(event, dp_accounting.PoissonSampledDpEvent) and event.sampling_probability > 0
            and isinstance(event.event, dp_accounting.GaussianDpEvent))


@functools.lru_cache(maxsize=4)
def _of_steps(event: dp_accounting.PoissonSampledDpEvent, count: int
              ) -> privacy_loss_distribution.PrivacyLossDistribution:
    """Loss of all steps, cached: a statement asks for its epsilon at several deltas."""
    none = privacy_loss_distribution.identity(value_discretization_interval=_INTERVAL)
    return none.compose(_of_one_step(event).self_compose(count))


@functools.lru_cache(maxsize=16)
def _of_one_step(event: dp_accounting.PoissonSampledDpEvent) -> privacy_loss_distribution.PrivacyLossDistribution:
    """Loss of one step, cached: the accountant would compute it anew, in seconds, for each number of steps."""
    return privacy_loss_distribution.from_gaussian_mechanism(
        event.event.noise_multiplier, value_discretization_interval=_INTERVAL, sampling_prob=event.sampling_probability)
