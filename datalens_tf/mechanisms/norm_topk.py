"""TopAgg for DP-SGD (algorithm 4 of the DataLens paper): a record's clipped gradient keeps its largest coordinates.

`NormTopK(g, k)` selects coordinates in the order of their magnitude while the sum of their squares is at most k |g|^2.
(The paper's pseudo-code compares with k |g|; its text, and its sensitivity of sqrt(k) C, need the squares.)

The paper's second variant (table 9) keeps a fixed share of the coordinates. It saves no noise: a gradient whose
non-zero coordinates are few enough is kept whole, with norm C, so this variant's sensitivity is C, whatever the share.
"""

import dataclasses
import math

import numpy as np
from numpy.typing import NDArray

from datalens_tf import _validate
from datalens_tf.mechanisms.gaussian_sum import GaussianSum

_LEADING_BITS = 13  # of a float32's magnitude: the exponent and the first bits of the mantissa


def norm_topk(vector: NDArray[np.float32], k: float, *, norm_bound: float = math.inf) -> NDArray[np.float32]:
    """The vector's largest coordinates, whose squares add up to at most k |vector|^2; all others become 0.

    Among equal magnitudes, the first are kept. The order is found without sorting: coordinates are counted by the
    leading bits of their magnitudes. Only those that share the leading bits of the last one that fits are sorted.

    Formal guarantee: the result's l2 norm is at most sqrt(k) min(|vector|, norm_bound), where squares are added up in
    float64: exact for integers below 2^20 whose norm is at most 2^26. A vector that is not finite becomes 0.

    Args:
      vector: float32 [d].
      k: in (0, 1]; 1 keeps all coordinates.
      norm_bound: replaces |vector| if that is larger, as rounding may leave it after clipping. No effect at k = 1.
    """
    _validate.between("k", k, 0, 1, open_low=True)
    _validate.require(vector.dtype == np.float32, "vector.dtype", vector.dtype, "to be float32")
    if not np.isfinite(vector).all():
        return np.zeros_like(vector)
    if k == 1:
        return vector
    squares = np.square(vector, dtype=np.float64)
    target = k * min(squares.sum(), norm_bound**2)
    # The bits of floats >= 0 are ordered as the floats are.
    leading = (np.abs(vector).view(np.int32) >> (31 - _LEADING_BITS)).astype(np.intp)
    by_leading = np.bincount(leading, weights=squares, minlength=1)
    from_above = np.cumsum(by_leading[::-1])[::-1]  # of all magnitudes with these leading bits or larger ones
    too_much = np.flatnonzero(from_above > target)
    if not too_much.size:  # Rounding at its worst: k is nearly 1.
        return vector
    last = too_much[-1]
    candidates = np.flatnonzero(leading == last)
    candidates = candidates[np.argsort(-np.abs(vector[candidates]), kind="stable")]
    above = from_above[last + 1] if last + 1 < len(from_above) else 0.0
    chosen = candidates[above + np.cumsum(squares[candidates]) <= target]
    result = np.where(leading > last, vector, np.float32(0))
    result[chosen] = vector[chosen]
    return result


def dimension_topk(vector: NDArray[np.float32], count: int) -> NDArray[np.float32]:
    """The vector's `count` coordinates of largest magnitude; all others become 0.

    Among equal magnitudes, the first are kept. A vector that is not finite becomes 0.

    Args:
      vector: float32 [d].
      count: how many coordinates to keep, >= 0; a vector that has fewer is kept whole.
    """
    if not np.isfinite(vector).all():
        return np.zeros_like(vector)
    if count >= len(vector):
        return vector
    magnitudes = np.abs(vector)
    # The smallest magnitude that may be kept; fewer than `count` are larger.
    least = np.partition(magnitudes, len(vector) - count)[len(vector) - count] if count else np.inf
    keep = magnitudes > least
    keep[np.flatnonzero(magnitudes == least)[:count - np.count_nonzero(keep)]] = True
    return np.where(keep, vector, np.float32(0))


@dataclasses.dataclass(frozen=True, kw_only=True)
class NormTopKSum(GaussianSum):
    """`GaussianSum` of vectors that are clipped, and then keep their largest coordinates only (algorithm 4).

    Formal guarantee: coordinates are selected from integers, in units of the grid of `GaussianSum`, so that squares are
    added up exactly. The selected vector is at most sqrt(top_k_norm) clip_norm long: this is `record_norm`. With
    top_k_norm = 1 and top_k_dimensions = 1 this is `GaussianSum`: plain DP-SGD.

    Attributes:
      top_k_norm: k in (0, 1], the largest part of the squared norm that is kept.
      top_k_dimensions: the share of the coordinates that is kept, in (0, 1]. It has no effect on the sensitivity.
    """

    top_k_norm: float = 1.0
    top_k_dimensions: float = 1.0

    def __post_init__(self) -> None:
        super().__post_init__()
        for name in ("top_k_norm", "top_k_dimensions"):
            _validate.between(name, getattr(self, name), 0, 1, open_low=True)

    @property
    def record_norm(self) -> float:
        """Largest l2 norm of what one record adds to the sum."""
        return math.sqrt(self.top_k_norm) * self.clip_norm

    def compress(self, vector: NDArray[np.float32]) -> tuple[NDArray[np.int64], NDArray[np.float32]]:
        """One record's vector float32 [d], clipped and selected: positions [m] and integers at them, float32 [m]."""
        positions, units = self.clip_sparse(vector)
        if self.top_k_dimensions < 1:
            units = dimension_topk(units, math.floor(self.top_k_dimensions * len(vector)))
        return positions, norm_topk(units, self.top_k_norm)
