"""Renyi bounds of PATE's aggregators that look at the votes, and their smooth sensitivity: a study tool, PRIVATE.

What a run claims is a function of its settings alone (`mechanisms.gnmax`, the `_data_independent` functions here).
Where teachers agree, the bounds of Papernot et al. (2017: LNMax; 2018: GNMax, the threshold test) are smaller. But they
are functions of the votes, and so of the records: they must not leave the data owner's machine, must not stop or steer
anything, and are no guarantee. The one way to publish such a number is with noise that is scaled to its smooth
sensitivity (`sanitized_rdp`). Nothing in the package imports this module.

All bounds are for noise of infinite precision; they do not include ties, which rounded noise can leave. Arrays of votes
have the queries first; Renyi orders come last. Logarithms are natural, epsilons are of Renyi differential privacy
(RDP).
"""

import dataclasses
import math

import numpy as np
from scipy import special

from datalens_tf import _validate
from datalens_tf.mechanisms.noise import NoiseSource

_LEAST_LOG_Q = -1e5  # Where no data-dependent bound helps down to this ln q, none ever does.


def gnmax_rdp_data_independent(noise_stddev: float, orders: np.ndarray) -> np.ndarray:
    """order / sigma^2: the votes move by sqrt(2) in l2 norm (Papernot et al. 2018, Proposition 8)."""
    return _orders(orders) / _variance(noise_stddev)


def lnmax_rdp_data_independent(noise_scale: float, orders: np.ndarray) -> np.ndarray:
    """min(epsilon, order epsilon^2 / 2) with epsilon = 2 / b, which LNMax has with noise of scale b (pure DP)."""
    _validate.positive("noise_scale", noise_scale)
    return np.minimum(2 / noise_scale, 2 * _orders(orders) / noise_scale**2)


def gnmax_log_q(counts: np.ndarray, noise_stddev: float) -> np.ndarray:
    """ln of a bound on GNMax' probability of an answer other than the majority's (Proposition 7). PRIVATE.

    A class with g fewer votes wins with probability P[N(0, 2 sigma^2) > g]; the classes' probabilities are added. The
    majority's answer has at least probability 1 / Y, for Y classes.

    Args:
      counts: votes [..., Y], Y >= 2.
      noise_stddev: sigma > 0.

    Returns:
      float64 [...], < 0.
    """
    _variance(noise_stddev)
    return _log_q(counts, lambda gap: special.log_ndtr(-gap / (math.sqrt(2) * noise_stddev)))


def lnmax_log_q(counts: np.ndarray, noise_scale: float) -> np.ndarray:
    """The same with Laplace noise of scale b (Papernot et al. 2017, Lemma 4): (2 + g / b) / (4 exp(g / b)). PRIVATE."""
    _validate.positive("noise_scale", noise_scale)
    return _log_q(counts, lambda gap: np.log(2 + gap / noise_scale) - math.log(4) - gap / noise_scale)


def threshold_log_q(largest: np.ndarray, threshold: float, noise_stddev: float) -> np.ndarray:
    """ln of the probability of the less likely result of the threshold test. PRIVATE.

    Args:
      largest: largest numbers of votes, or of votes less the student's, [...].
      threshold: in votes.
      noise_stddev: sigma_1 > 0.
    """
    _variance(noise_stddev)
    return special.log_ndtr(-np.abs(threshold - np.asarray(largest, np.float64)) / noise_stddev)


def gnmax_rdp(log_q: np.ndarray, noise_stddev: float, orders: np.ndarray) -> np.ndarray:
    """RDP of one GNMax answer (Papernot et al. 2018, Theorem 6 with the orders of Proposition 10). PRIVATE.

    The smaller of Proposition 8 and, where its conditions hold,

        ln((1 - q) A^(order - 1) + q B^(order - 1)) / (order - 1),
        A = (1 - q) / (1 - (q e^eps_2)^((mu_2 - 1) / mu_2)),    B = e^eps_1 / q^(1 / (mu_1 - 1)),
        mu_2 = sigma sqrt(ln(1 / q)),    mu_1 = mu_2 + 1,    eps_i = mu_i / sigma^2.

    Args:
      log_q: ln of a bound q on the probability of another answer, from `gnmax_log_q`; [...], <= 0.
      noise_stddev: sigma > 0.
      orders: [O], > 1.

    Returns:
      float64 [..., O].
    """
    variance, orders = _variance(noise_stddev), _orders(orders)
    log_q = np.asarray(log_q, np.float64)[..., None]
    _validate.require(bool(np.all(log_q <= 0)), "log_q", "of a probability", "<= 0")
    independent = np.broadcast_to(orders / variance, np.broadcast_shapes(log_q.shape, orders.shape))
    with np.errstate(all="ignore"):
        mu_2 = noise_stddev * np.sqrt(-log_q)
        mu_1, eps_2 = mu_2 + 1, mu_2 / variance
        holds = ((mu_1 > orders) & (mu_2 > 1) & (-log_q > eps_2)
                 & (log_q <= (mu_2 - 1) * eps_2 - mu_2 * (np.log1p(1 / mu_2) + np.log1p(1 / (mu_2 - 1)))))
        log_a = _log1mexp(log_q) - _log1mexp((log_q + eps_2) * (1 - 1 / mu_2))
        log_b = mu_1 / variance - log_q / mu_2
        bound = np.logaddexp(_log1mexp(log_q) + (orders - 1) * log_a, log_q + (orders - 1) * log_b) / (orders - 1)
    return np.where(np.isneginf(log_q), 0.0, np.where(holds, np.clip(bound, 0, independent), independent))


def threshold_rdp(log_q: np.ndarray, noise_stddev: float, orders: np.ndarray) -> np.ndarray:
    """RDP of one threshold test: GNMax' with sqrt(2) sigma_1, as the number moves by 1, not by sqrt(2). PRIVATE."""
    return gnmax_rdp(log_q, math.sqrt(2) * noise_stddev, orders)


def lnmax_rdp(log_q: np.ndarray, noise_scale: float, orders: np.ndarray) -> np.ndarray:
    """RDP of one LNMax answer from its moments (Papernot et al. 2017, Theorem 3, of order - 1). PRIVATE.

    Args:
      log_q: from `lnmax_log_q`, [...].
      noise_scale: b > 0.
      orders: [O], > 1.

    Returns:
      float64 [..., O].
    """
    independent, orders = lnmax_rdp_data_independent(noise_scale, orders), _orders(orders)
    epsilon, log_q = 2 / noise_scale, np.asarray(log_q, np.float64)[..., None]
    with np.errstate(all="ignore"):
        likely = orders * _log1mexp(log_q) - (orders - 1) * _log1mexp(log_q + epsilon)
        moment = np.logaddexp(likely, log_q + epsilon * (orders - 1))
    return np.where(log_q <= -np.logaddexp(0, epsilon), np.minimum(moment / (orders - 1), independent), independent)


def confident_gnmax_rdp(counts: np.ndarray, answered: np.ndarray, threshold: float, threshold_noise_stddev: float,
                        noise_stddev: float, orders: np.ndarray, baseline: np.ndarray | None = None) -> np.ndarray:
    """RDP of queries that were first tested (Papernot et al. 2018, Algorithms 1 and 2). PRIVATE.

    Args:
      counts: votes [..., Y].
      answered: whether the arg max was then released, [...], public; or the test's probability of it, for an
        expectation as in the paper's figures.
      threshold, threshold_noise_stddev, noise_stddev: T, sigma_1 and sigma_2, in votes.
      orders: [O], > 1.
      baseline: the student's share of the votes [..., Y] for Interactive-GNMax; None for Confident-GNMax.

    Returns:
      float64 [..., O].
    """
    tested = np.asarray(counts, np.float64) if baseline is None else np.asarray(counts, np.float64) - baseline
    test = threshold_rdp(threshold_log_q(tested.max(-1), threshold, threshold_noise_stddev), threshold_noise_stddev,
                         orders)
    return test + np.asarray(answered)[..., None] * gnmax_rdp(gnmax_log_q(counts, noise_stddev), noise_stddev, orders)


# Smooth sensitivity: how much one teacher can change the bounds, near these votes (Appendix B of the 2018 paper).


def gnmax_local_sensitivity(counts: np.ndarray, noise_stddev: float, order: float) -> np.ndarray:
    """Bounds on the local sensitivity of `gnmax_rdp` where d teachers have changed votes (Algorithms 3 to 5). PRIVATE.

    Args:
      counts: integer votes [Q, Y]; each row has the N votes of N teachers.
      noise_stddev, order: sigma and one Renyi order.

    Returns:
      float64 [Q, N]: d = 0, ..., N - 1.

    Raises:
      InvalidArgumentError: the conditions on which the algorithms rest (`gnmax_conditions`) do not hold.
    """
    holds = gnmax_conditions(noise_stddev, np.shape(counts)[-1], order)
    _validate.require(all(holds), "order", order, f"to satisfy conditions C5 and C6 with noise_stddev={noise_stddev}, "
                      f"which hold: {holds}; try a smaller order")
    counts = np.sort(np.atleast_2d(np.asarray(counts, np.float64)), axis=-1)[:, ::-1].copy()
    num_teachers, num_classes = round(counts.sum(1).max()), counts.shape[1]
    log_q0 = _largest_useful_log_q(noise_stddev, order)
    if log_q0 is None:
        return np.zeros((len(counts), num_teachers))
    log_q1 = _neighbours_log_q(log_q0, noise_stddev, num_classes)[0]
    plateau = _sensitivity_at(log_q1, noise_stddev, order, num_classes, log_q0)
    result = np.full((len(counts), num_teachers), plateau)
    log_q = gnmax_log_q(counts, noise_stddev)
    clearer = log_q > log_q0  # Whether more agreement, or less, leads to where the bound is steep.
    active = clearer | (log_q < log_q1)
    for distance in range(num_teachers):
        result[active, distance] = _sensitivity_at(log_q[active], noise_stddev, order, num_classes, log_q0)
        active &= np.where(clearer, (log_q > log_q0) & (counts[:, 1] > 0), log_q < log_q1)
        step = active * np.where(clearer, 1, -1)
        counts[:, 0] += step
        counts[:, 1] -= step
        counts = np.sort(counts, axis=-1)[:, ::-1].copy()
        log_q = gnmax_log_q(counts, noise_stddev)
    return result


def threshold_local_sensitivity(largest: np.ndarray, num_teachers: int, threshold: float, noise_stddev: float,
                                order: float) -> np.ndarray:
    """The same for the threshold test, exactly, by looking at all numbers of votes. PRIVATE.

    Args:
      largest: integers in [0, N], [Q].
      num_teachers: N.
      threshold, noise_stddev, order: T, sigma_1 and one Renyi order.

    Returns:
      float64 [Q, N].
    """
    votes = np.arange(num_teachers + 1)
    rdp = threshold_rdp(threshold_log_q(votes, threshold, noise_stddev), noise_stddev, [order])[:, 0]
    change = np.abs(np.diff(rdp))
    local = np.maximum(np.append(change, 0), np.append(0, change))
    distance, largest = np.arange(num_teachers), np.asarray(largest).astype(int)[:, None]

    def at(number):
        return np.where((0 <= number) & (number <= num_teachers), local[np.clip(number, 0, num_teachers)], 0)

    return np.maximum(at(largest + distance), at(largest - distance))


def smooth_sensitivity(local_sensitivities: np.ndarray, beta: float) -> float:
    """max over d of exp(-beta d) times the local sensitivity at distance d, [N]. PRIVATE.

    Queries are answered by the same teachers: add up their local sensitivities first.
    """
    _validate.positive("beta", beta)
    return float(np.max(np.exp(-beta * np.arange(len(local_sensitivities))) * local_sensitivities))


def gnmax_conditions(noise_stddev: float, num_classes: int, order: float) -> tuple[bool, bool]:
    """Whether conditions C5 and C6, on which `gnmax_local_sensitivity` rests, hold: public, not a function of votes.

    C5: the bound does not decrease with q. C6: its change to the largest q of a neighbour does not decrease either, up
    to the smallest q that neighbours of the largest useful q have. Both are checked on a grid of 20,000 values of ln q.
    """
    log_q0 = _largest_useful_log_q(noise_stddev, order)
    if log_q0 is None:
        return True, True

    def bound(log_q):
        return gnmax_rdp(log_q, noise_stddev, [order])[..., 0]

    def never_decreases(values):
        return bool(np.all(np.diff(values) >= -1e-12 * np.max(np.abs(values))))

    depths = np.geomspace(1e-9, 50, 20_000)[::-1]
    below = log_q0 * (1 + depths)
    lower = _neighbours_log_q(log_q0, noise_stddev, num_classes)[0] * (1 + depths)
    upper = _neighbours_log_q(lower, noise_stddev, num_classes)[1]
    return never_decreases(bound(below)), never_decreases(bound(np.minimum(upper, log_q0)) - bound(lower))


def gnss_rdp(beta: float, relative_stddev: float, order: float) -> float:
    """Price of a number that is published with Gaussian noise of `relative_stddev` times its smooth sensitivity.

    Neighbours' smooth sensitivities differ by factors within e^(+-beta), and the numbers by no more than the smaller of
    the two. The Renyi divergence of two such Gaussian distributions is known in closed form; this is its largest value.
    (For 2 order beta close to 1 the formula of the 2018 paper's published research code is smaller than the divergence
    of a possible pair, so it is not used.)

    Args:
      beta: > 0 with order (1 - e^(-2 beta)) < 1; beyond that the divergence is infinite.
      relative_stddev: > 0.
      order: Renyi order > 1.
    """
    _validate.positive("beta", beta)
    variance = _variance(relative_stddev)
    _validate.require(order > 1, "order", order, "> 1")
    _validate.require(order * -math.expm1(-2 * beta) < 1, "beta", beta, f"to be small enough for order={order}")

    def scale(log_ratio):
        """Divergence of equal means, by ln of the second standard deviation over the first."""
        spread = 1 + order * math.expm1(2 * log_ratio)
        return log_ratio + (2 * log_ratio - math.log(spread)) / (2 * (order - 1))

    narrower = scale(-beta) + order * math.exp(-2 * beta) / (2 * variance * (1 + order * math.expm1(-2 * beta)))
    return max(narrower, scale(beta) + order / (2 * variance))


@dataclasses.dataclass(frozen=True, kw_only=True)
class SanitizedRdp:
    """A data-dependent RDP that may be published: an estimate, not a guarantee, as its noise may have made it smaller.

    Attributes:
      order: Renyi order.
      rdp: the noisy number.
      stddev: of its noise; PRIVATE.
      cost: RDP at this order that publishing it costs in addition.
    """

    order: float
    rdp: float
    stddev: float
    cost: float

    def epsilon(self, delta: float) -> float:
        """Estimate of epsilon at delta, the cost of the estimate included (Mironov 2017, Proposition 3)."""
        return max(0.0, self.rdp) + self.cost + math.log(1 / delta) / (self.order - 1)


def sanitized_rdp(rdp: float, local_sensitivities: np.ndarray, *, order: float, beta: float, relative_stddev: float,
                  noise: NoiseSource, index: int = 0) -> SanitizedRdp:
    """Adds noise that is scaled to the smooth sensitivity (GNSS; Papernot et al. 2018, Appendix B).

    Args:
      rdp: data-dependent RDP of all queries at one order.
      local_sensitivities: of this RDP, [N]: sums over queries of the functions above, whose conditions hold.
      order, beta, relative_stddev: as for `gnss_rdp`; public, chosen without looking at the votes.
      noise, index: where the noise comes from; charge the cost first.
    """
    cost = gnss_rdp(beta, relative_stddev, order)
    stddev = relative_stddev * smooth_sensitivity(local_sensitivities, beta)
    return SanitizedRdp(order=order, rdp=float(rdp + noise.draw((1,), stddev, index)[0]), stddev=stddev, cost=cost)


def _log_q(counts: np.ndarray, log_wins) -> np.ndarray:
    """ln of the summed probabilities that classes win, without one most-voted class; the sum is at most 1 - 1 / Y."""
    ordered = np.sort(np.asarray(counts, np.float64), axis=-1)
    _validate.require(ordered.ndim >= 1 and ordered.shape[-1] >= 2, "counts.shape", ordered.shape, "to end in >= 2")
    total = special.logsumexp(log_wins(ordered[..., -1:] - ordered[..., :-1]), axis=-1)
    return np.minimum(total, math.log1p(-1 / ordered.shape[-1]))


def _largest_useful_log_q(noise_stddev: float, order: float) -> float | None:
    """ln of q_0, below which the data-dependent bound is the smaller one; None if it never is.

    The published research code takes a smaller q_0 where the noise is tiny, and so gets larger sensitivities there.
    """
    independent = float(gnmax_rdp_data_independent(noise_stddev, order))

    def helps(log_q):
        return gnmax_rdp(log_q, noise_stddev, [order])[0] < independent

    low = -1e-3
    while not helps(low):
        low *= 2
        if low < _LEAST_LOG_Q:
            return None
    high = low / 2
    for _ in range(100):
        middle = (low + high) / 2
        low, high = (middle, high) if helps(middle) else (low, middle)
    return high


def _neighbours_log_q(log_q, noise_stddev: float, num_classes: int) -> tuple[np.ndarray, np.ndarray]:
    """ln of the smallest and the largest q of votes in which one teacher changed its own vote (B_L and B_U)."""
    others = math.log(num_classes - 1)
    gap = -special.ndtri_exp(np.minimum(log_q - others, -1e-300))
    shift = math.sqrt(2) / noise_stddev
    return others + special.log_ndtr(-gap - shift), np.minimum(others + special.log_ndtr(shift - gap), 0.0)


def _sensitivity_at(log_q, noise_stddev: float, order: float, num_classes: int, log_q0: float) -> np.ndarray:
    """Algorithm 3: how much a neighbour's bound can differ."""
    log_q1 = _neighbours_log_q(log_q0, noise_stddev, num_classes)[0]
    log_q = np.where((log_q1 <= log_q) & (log_q <= log_q0), log_q1, log_q)

    def bound(value):
        # From q_0 on the bound is the data-independent one, to which it may jump; rounding must not hide that.
        return gnmax_rdp(np.where(value > log_q0 * (1 + 1e-9), 0.0, value), noise_stddev, [order])[..., 0]

    lower, upper = _neighbours_log_q(log_q, noise_stddev, num_classes)
    return np.maximum(bound(upper) - bound(log_q), bound(log_q) - bound(lower))


def _log1mexp(x: np.ndarray) -> np.ndarray:
    """ln(1 - e^x) for x < 0."""
    return np.where(x > -math.log(2), np.log(-np.expm1(x)), np.log1p(-np.exp(x)))


def _variance(stddev: float) -> float:
    _validate.positive("noise_stddev", stddev)
    return stddev**2


def _orders(orders: np.ndarray) -> np.ndarray:
    orders = np.asarray(orders, np.float64)
    _validate.require(bool(np.all(orders > 1)), "orders", orders.tolist(), "> 1")
    return orders
