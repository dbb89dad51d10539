"""Batches in which what is computed of a record is the same, to the bit, wherever in the batch the record is.

Products of matrices and convolutions of some shapes round a batch's rows differently by their place. Where a record is
added or removed, or sampled, the places of all others change. A sum over records would then change by more than its
sensitivity.
"""

from collections.abc import Callable
from typing import Any

import numpy as np
import tensorflow as tf
from numpy.typing import NDArray

from datalens_tf import rng
from datalens_tf.errors import InvalidArgumentError

ANYWHERE = ("compute the same of a record wherever it is among others. It does not on this device: set "
            "TF_DETERMINISTIC_OPS=1, or CUDA_VISIBLE_DEVICES= for the processor.")


def same_anywhere(compute: Callable[..., NDArray[Any]], records: NDArray[Any], *more: NDArray[Any], name: str) -> bool:
    """Whether a record's row of a result is the same, to the bit, wherever in the batch the record is.

    Args:
      compute: function from arrays whose first axis counts records to a float array [n, ...].
      records, more: its arguments, invented; one record at a time is altered in `records`.
      name: of the function, for errors.

    Raises:
      InvalidArgumentError: another record's row changes.
    """
    before = _bits(compute(records, *more))
    if not np.array_equal(before, _bits(compute(records, *more))):
        raise InvalidArgumentError(f"Expected {name} to {ANYWHERE}")
    for place, value in ((0, 0.0), (len(records) // 2, -1e30), (-1, np.nan)):
        altered = records.copy()
        altered[place] = value
        after = _bits(compute(altered, *more))
        if not np.array_equal(np.delete(before, place, 0), np.delete(after, place, 0)):
            raise InvalidArgumentError(f"Expected {name} to keep records apart, but altering one record changed what "
                                       "it computes of others. docs/how-to/classify.md lists the layers to use.")
    turned = _bits(compute(*(np.roll(part, 1, 0) for part in (records, *more))))
    return np.array_equal(turned, np.roll(before, 1, 0))


def anywhere(compute: Callable[..., tf.Tensor], shape: tuple[int, ...], *more: NDArray[Any], name: str
          ) -> Callable[..., tf.Tensor]:
    """`compute` as a graph for batches of one shape, whose rows do not depend on their place in the batch.

    A whole batch is computed at once if an invented one shows that this is so, else one record at a time.

    Args:
      compute: function from float32 images [n, ...] and `more` to a tensor [n, ...].
      shape: of the images in every call.
      more: examples of the function's other arguments, their first axis n; nobody's.
      name: of the function, for errors.

    Raises:
      InvalidArgumentError: rows depend on each other, or on their place even so.
    """
    invented = rng.stream(0, "probe").random(shape, np.float32)
    for way in (compute, _one_by_one(compute)):
        graph = tf.function(way, autograph=False)
        if same_anywhere(lambda *parts, graph=graph: graph(*map(tf.constant, parts)).numpy(), invented, *more,
                         name=name):
            return graph
    raise InvalidArgumentError(f"Expected {name} to {ANYWHERE}")


def _one_by_one(compute: Callable[..., tf.Tensor]) -> Callable[..., tf.Tensor]:
    def of_each(*parts: tf.Tensor) -> tf.Tensor:
        one = compute(*(tf.zeros([1, *part.shape[1:]], part.dtype) for part in parts))
        return tf.map_fn(lambda record: compute(*(part[tf.newaxis] for part in record))[0], parts,
                         fn_output_signature=one.dtype)
    return of_each


def _bits(values: NDArray[Any]) -> NDArray[np.uint8]:
    """Rows as bytes, so that NaNs are compared, too."""
    return np.ascontiguousarray(values).view(np.uint8).reshape(len(values), -1)
