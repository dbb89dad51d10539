"""Planner of top_k, vote_threshold and noise_stddev: the clearest direction for a budget, by a model of votes."""

import dataclasses

import numpy as np
from scipy import optimize, special

from datalens_tf import _validate
from datalens_tf.accounting import accountants
from datalens_tf.config import ACCOUNTANTS
from datalens_tf.mechanisms.topagg import TopAgg
from datalens_tf.planning.convergence import weibull_magnitudes

_THRESHOLDS = np.linspace(0, 1, 51)
_MAX_COUNTS = 80  # values of top_k that are tried
_MAX_MAGNITUDES = 512  # For larger images, so many quantiles stand for all coordinates.


@dataclasses.dataclass(frozen=True, kw_only=True)
class Plan:
    """Recommended settings, and what the model expects of them.

    Attributes:
      top_k, vote_threshold, noise_stddev: k, beta and sigma, as in `DataLensConfig`.
      epsilon: of all steps, by the accountant that was asked for; not above the budget.
      noise_multiplier: sigma divided by the sensitivity of a step.
      signal_to_noise: root mean square of the expected vote sums over all coordinates, divided by sigma.
      cosine: expected, between the released direction and the teachers' common gradient.
      cosine_without_threshold: the same of the noisy votes themselves, at the same k.
    """

    top_k: int
    vote_threshold: float
    noise_stddev: float
    epsilon: float
    noise_multiplier: float
    signal_to_noise: float
    cosine: float
    cosine_without_threshold: float


def plan(*, num_teachers: int, dimension: int, epsilon: float, batch_size: int = 15, num_steps: int = 150,
         delta: float = 1e-5, accountant: str = "gdp", consensus: float = 0.3, tail_shape: float = 1.0) -> Plan:
    """The k and beta that maximise the expected cosine, with the noise that brings num_steps to epsilon.

    The noise follows from the budget by arithmetic, and holds. The recommendation rests on a model of votes:

    - Teachers' gradients are one common gradient and an independent Gaussian deviation, equally large on all
      coordinates. Magnitudes of the common one are Weibull-distributed with shape `tail_shape` (1: exponential;
      smaller: fewer coordinates matter).
    - `consensus` says how large the deviation is: if all coordinates voted by their signs, the vote sums divided by N
      would have this root mean square over coordinates. 1 is unanimity.
    - A teacher votes by sign on its k largest coordinates, as it does where the clip is smaller than these; elsewhere
      stochastic quantization weakens votes. Teachers differ in which coordinates they vote on: the smaller k is, the
      fewer votes each coordinate gets.
    - What counts is the angle between the released direction and the common gradient: Adam does not see lengths. The
      cosine is a ratio of expectations, accurate for hundreds of coordinates and more.
    - The number of steps is given. More steps make each noisier: sigma grows with sqrt(T).

    `consensus` and `tail_shape` are properties of private gradients. Take them from public data, where
    `run_scripts/studies/convergence.py` measures them, or guess them. Epsilon does not cover a choice of them by the
    records.

    Args:
      num_teachers, dimension, batch_size, num_steps: N, d, m and T.
      epsilon, delta, accountant: the budget.
      consensus: in (0, 1).
      tail_shape: > 0.

    Raises:
      InvalidArgumentError: a value outside its domain, or an epsilon that no noise reaches.
    """
    for name, value in (("num_teachers", num_teachers), ("dimension", dimension), ("batch_size", batch_size)):
        _validate.integer(name, value, at_least=1)
    _validate.one_of("accountant", accountant, ACCOUNTANTS)
    multiplier = accountants.calibrate_noise_multiplier(num_steps, epsilon, delta, accountant)

    def mechanism(top_k, noise_stddev=0.0):
        return TopAgg(num_teachers=num_teachers, top_k=top_k, clip=None, noise_stddev=noise_stddev, vote_threshold=0.0)

    signal = common_gradient(min(dimension, _MAX_MAGNITUDES), consensus, tail_shape)
    counts = np.unique(np.rint(np.geomspace(1, dimension, _MAX_COUNTS)).astype(int))
    stddevs = np.array([multiplier * mechanism(int(count)).l2_sensitivity(batch_size) for count in counts])
    mean, variance = votes(signal, counts / dimension)
    cosines = np.array([expected_cosine(signal, num_teachers, mean, variance, stddevs, beta) for beta in _THRESHOLDS])
    threshold, best = np.unravel_index(np.argmax(cosines), cosines.shape)
    top_k, stddev = int(counts[best]), float(stddevs[best])
    event = mechanism(top_k, stddev).dp_event(batch_size)
    plain = expected_cosine(signal, num_teachers, mean, variance, stddevs, None)
    return Plan(
        top_k=top_k, vote_threshold=float(_THRESHOLDS[threshold]), noise_stddev=stddev,
        epsilon=accountants.epsilon(event, num_steps, delta, accountant), noise_multiplier=event.noise_multiplier,
        signal_to_noise=float(num_teachers * np.sqrt(np.mean(mean[best]**2)) / stddev),
        cosine=float(cosines[threshold, best]), cosine_without_threshold=float(plain[best]))


def common_gradient(dimension: int, consensus: float, tail_shape: float) -> np.ndarray:
    """Magnitudes [d] of the common gradient, in standard deviations of a teacher's own; see `plan`."""
    _validate.between("consensus", consensus, 0, 1, open_low=True, open_high=True)
    magnitudes = weibull_magnitudes(dimension, tail_shape)

    def excess(log_scale):
        return np.sqrt(np.mean(special.erf(np.exp(log_scale) * magnitudes / np.sqrt(2))**2)) - consensus

    return np.exp(optimize.brentq(excess, -50, 200)) * magnitudes


def votes(signal: np.ndarray, shares: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Mean and variance of one teacher's votes, [K, d] each, if its largest coordinates, a share of all, vote by sign.

    Args:
      signal: [d], from `common_gradient`.
      shares: k / d, [K], in (0, 1].
    """
    low, high = np.zeros((len(shares), 1)), np.full((len(shares), 1), signal.max() + 40.0)
    for _ in range(80):  # Bisection for the magnitude above which that share of the coordinates lies.
        middle = (low + high) / 2
        voting = special.ndtr(signal - middle) + special.ndtr(-signal - middle)
        many = np.mean(voting, 1, keepdims=True) > shares[:, None]
        low, high = np.where(many, middle, low), np.where(many, high, middle)
    up, down = special.ndtr(signal - low), special.ndtr(-signal - low)
    return up - down, up + down - (up - down)**2


def expected_cosine(signal: np.ndarray, num_teachers: int, mean: np.ndarray, variance: np.ndarray,
                    stddevs: np.ndarray, vote_threshold: float | None) -> np.ndarray:
    """Cosine [K] of TopAgg's direction to the common gradient.

    A vote sum f + n with n ~ N(0, s^2) becomes +1 with probability Phi((f - beta N) / s) and -1 with
    Phi((-f - beta N) / s), the paper's Theorem 5.

    Args:
      signal: [d], of one sign: gradients are turned so that all is positive.
      num_teachers: N.
      mean, variance: of one teacher's votes, [K, d].
      stddevs: sigma, [K].
      vote_threshold: beta; None for the noisy votes themselves.
    """
    total, spread = num_teachers * mean, np.sqrt(num_teachers * variance + stddevs[:, None]**2)
    if vote_threshold is None:
        direction, squares = total, total**2 + spread**2
    else:
        bar = vote_threshold * num_teachers
        right, wrong = special.ndtr((total - bar) / spread), special.ndtr((-total - bar) / spread)
        direction, squares = right - wrong, right + wrong
    with np.errstate(invalid="ignore", divide="ignore"):
        cosine = np.mean(signal * direction, 1) / np.sqrt(np.mean(signal**2) * np.mean(squares, 1))
    return np.where(np.mean(squares, 1) > 1e-300, cosine, 0.0)
