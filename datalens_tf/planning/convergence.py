"""Theorem 6 of the DataLens paper: how fast descent along compressed, noisy gradients converges; and what enters it.

The theorem is about x <- x - gamma (mean over teachers of Q(clip(top_k(g_n), c)) + noise), for f with gradient nabla f:

    min{c, 1} / (d + 2) * mean over steps of min{E |nabla f|^2, E |nabla f|_1}
      <= min{tau_k M^2, c (d - k) M} + L gamma A k + (f(x_0) - f*) / (T gamma)
         + max{|s|^2 + |s| M, 2 |s|_1} + 2 L gamma (q^2 + min{c^2, M^2})

Units: as printed, squares of gradients stand beside gradients, so numbers mean something only where gradients are
measured in a fixed unit. Ours is the clip: c = 1, and a vote of +1 or -1 is a gradient of one unit. Then all terms are
squared units, L gamma has none, and f is in units times pixels.

The theorem does not cover two steps, which no term has: votes are scaled by their own largest coordinate, and they are
thresholded. Its left side is divided by d + 2. It says how settings trade off, and promises no accuracy.
"""

import dataclasses
import math

import numpy as np
from scipy import optimize

from datalens_tf import _validate


@dataclasses.dataclass(frozen=True, kw_only=True)
class Bound:
    """The terms on the right of Theorem 6, in squared gradient units.

    Attributes:
      top_k: what is lost by leaving coordinates out, min{tau_k M^2, c (d - k) M}.
      noise: of privacy, L gamma A k.
      start: (f(x_0) - f*) / (T gamma).
      deviation: of the teachers' gradients from each other, max{|s|^2 + |s| M, 2 |s|_1}.
      quantization: 2 L gamma (q^2 + min{c^2, M^2}); without it, L gamma min{c^2, M^2}.
    """

    top_k: float
    noise: float
    start: float
    deviation: float
    quantization: float

    @property
    def total(self) -> float:
        """The bound on `progress_factor` times the mean over the steps of min{E |nabla f|^2, E |nabla f|_1}."""
        return math.fsum(dataclasses.astuple(self))


def theorem_6(*, top_k: int, dimension: int, tau: float, gradient_norm: float, deviation_l2: float, deviation_l1: float,
              smoothness: float, step_size: float, num_steps: int, gap: float, noise_constant: float, clip: float = 1.0,
              quantization_stddev: float | None = None) -> Bound:
    """The right side of Theorem 6, equation (3).

    Args:
      top_k, dimension: k and d, 1 <= k <= d.
      tau: tau_k in [0, 1], with |g - top_k(g)| <= tau_k |g| for all teachers' gradients g.
      gradient_norm: M > 0, with mean over teachers of |g|^2 <= M^2, in gradient units.
      deviation_l2, deviation_l1: norms of the vector s of standard deviations between teachers, per coordinate.
      smoothness: Lipschitz constant L of nabla f, in gradient units per pixel unit.
      step_size: gamma > 0, in pixel units per gradient unit.
      num_steps: T.
      gap: f(x_0) - f*, in gradient units times pixel units, >= 0.
      noise_constant: A, from `noise_constant`.
      clip: c > 0, in gradient units.
      quantization_stddev: q, with E |Q(x) - x|^2 <= q^2; None without quantization.

    Raises:
      InvalidArgumentError: a value outside its domain.
    """
    _validate.integer("top_k", top_k, at_least=1)
    _validate.require(top_k <= dimension, "top_k", top_k, f"<= {dimension}, the dimension")
    _validate.between("tau", tau, 0, 1)
    _validate.integer("num_steps", num_steps, at_least=1)
    for name, value in (("gradient_norm", gradient_norm), ("smoothness", smoothness), ("step_size", step_size),
                        ("clip", clip)):
        _validate.positive(name, value)
    for name, value in (("deviation_l2", deviation_l2), ("deviation_l1", deviation_l1), ("gap", gap),
                        ("noise_constant", noise_constant), ("quantization_stddev", quantization_stddev or 0.0)):
        _validate.real(name, value)
        _validate.require(value >= 0, name, value, ">= 0")
    rate, size = smoothness * step_size, min(clip**2, gradient_norm**2)
    return Bound(
        top_k=min(tau * gradient_norm**2, clip * (dimension - top_k) * gradient_norm),
        noise=rate * noise_constant * top_k,
        start=gap / (num_steps * step_size),
        deviation=max(deviation_l2**2 + deviation_l2 * gradient_norm, 2 * deviation_l1),
        quantization=rate * size if quantization_stddev is None else 2 * rate * (quantization_stddev**2 + size))


def progress_factor(dimension: int, clip: float = 1.0) -> float:
    """Factor of the mean of the gradients' sizes on the left of Theorem 6: min{c, 1} / (d + 2)."""
    return min(clip, 1.0) / (dimension + 2)


def noise_constant(noise_stddev: float, num_teachers: int, top_k: int, coordinates: int = 1, vote: float = 1.0
                   ) -> float:
    """A, so that A k is the expected squared length of the noise after averaging over teachers, in squared units.

    The theorem writes noise N(0, A k) and its proof takes E |noise|^2 = A k, which holds for noise in one coordinate.
    The noise is in all d coordinates: `coordinates=d` is what the proof needs, and d times what is printed.

    Args:
      noise_stddev: sigma on the vote sum, in votes.
      num_teachers: N.
      top_k: k.
      coordinates: how many have noise: 1 as printed, d as the mechanism has.
      vote: gradient units that a vote stands for; 1 in units of the clip.
    """
    return coordinates * (vote * noise_stddev / num_teachers)**2 / top_k


def tau(gradients: np.ndarray) -> np.ndarray:
    """Measured |g - top_k(g)| / |g| for every k, float64 [..., d] of gradients [..., d]; entry k - 1 is for k.

    Theorem 6 wants the largest over all gradients. Rows without a finite, non-zero gradient give NaN. PRIVATE where the
    gradients are.
    """
    with np.errstate(invalid="ignore", divide="ignore", over="ignore"):
        magnitudes = np.abs(np.asarray(gradients, np.float64))
        squares = np.square(magnitudes / magnitudes.max(-1, keepdims=True))
        # From the smallest: no cancellation, and exactly 0 for k = d.
        tails = np.cumsum(np.sort(squares, -1), -1)
        left = np.concatenate([tails[..., -2::-1], np.zeros_like(tails[..., :1])], -1)
        return np.sqrt(left / tails[..., -1:])


def weibull_shape(values: np.ndarray) -> float:
    """Maximum-likelihood shape of a Weibull distribution of the magnitudes: 1 is exponential, less is heavy-tailed.

    The paper's discussion of Theorem 6 assumes such gradients. Zeros have no likelihood and are left out. PRIVATE where
    the values are.
    """
    magnitudes = np.abs(np.asarray(values, np.float64).ravel())
    magnitudes = magnitudes[(magnitudes > 0) & np.isfinite(magnitudes)]
    _validate.require(np.unique(magnitudes).size > 1, "values", "...", "to have two different magnitudes at least")
    scaled = magnitudes / magnitudes.max()  # So that no power overflows.
    logs = np.log(scaled)

    def score(shape):
        powers = scaled**shape
        return powers @ logs / powers.sum() - 1 / shape - logs.mean()

    return float(optimize.brentq(score, 1e-6, 1e18))


def weibull_magnitudes(dimension: int, shape: float) -> np.ndarray:
    """Magnitudes [d] of a Weibull-distributed gradient of length 1, the largest first: quantiles (j - 1/2) / d."""
    _validate.integer("dimension", dimension, at_least=1)
    _validate.positive("shape", shape)
    # In logarithms: small shapes have huge quantiles.
    logs = np.log(-np.log((np.arange(dimension) + 0.5) / dimension)) / shape
    magnitudes = np.exp(logs - logs.max())
    return magnitudes / np.linalg.norm(magnitudes)
