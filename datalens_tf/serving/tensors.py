"""Inputs of requests as arrays, and arrays as answers. Nothing is made before its size is known to be allowed."""

import base64
import json
import math
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import numpy as np
import tensorflow as tf

from datalens_tf.serving.servables import Limits, invalid

_MAX_RANK = 8
_CHUNK = 2**16  # values that are written as text at once
# Where a TensorProto has its values, if not in `tensor_content`.
_FIELDS = {
    tf.float32: "float_val", tf.float64: "double_val", tf.float16: "half_val", tf.int8: "int_val",
    tf.int16: "int_val", tf.int32: "int_val", tf.int64: "int64_val", tf.uint8: "int_val", tf.uint16: "int_val",
    tf.uint32: "uint32_val", tf.uint64: "uint64_val", tf.bool: "bool_val", tf.string: "string_val"}
# JSON types that fit, by the kind of a numpy type: no fractions for integers, no truth values for numbers.
_KINDS: dict[str, tuple[type, ...]] = {"i": (int,), "u": (int,), "f": (int, float), "O": (str,), "b": (bool,)}


def _checked(key: str, definition: Any, limits: Limits, shape: Sequence[int]) -> tf.DType:
    """Type of an input that may have this shape. Raises Refused."""
    if not _is_text(key) or key not in definition.inputs:
        raise invalid(f"expected inputs {sorted(definition.inputs)}, got {key!r:.60}")
    dtype, expected = (tf.as_dtype(definition.inputs[key].dtype),
                       tf.TensorShape(definition.inputs[key].tensor_shape))
    if len(shape) > _MAX_RANK or min(shape, default=0) < 0 or not expected.is_compatible_with(shape):
        raise invalid(f"expected {key} of type {dtype.name} and shape {expected}, got {tuple(shape)!s:.100}")
    most = limits.texts if dtype == tf.string else limits.rows
    if shape and shape[0] > most:
        raise invalid(f"expected at most {most} {'texts' if dtype == tf.string else 'images'} per request: "
                      f"{key} has {shape[0]} rows")
    if math.prod(shape) > limits.values:
        raise invalid(f"expected {key} to have at most {limits.values} values, got {math.prod(shape)}")
    if dtype not in _FIELDS:
        raise invalid(f"{key} is {dtype.name}, which this server does not read")
    return dtype


def from_proto(inputs: Mapping[str, Any], definition: Any, limits: Limits) -> dict[str, np.ndarray]:
    """Arrays of a PredictRequest's inputs. Raises Refused."""
    return {key: _of_proto(key, inputs[key], definition, limits) for key in inputs}


def _of_proto(key: str, proto: Any, definition: Any, limits: Limits) -> np.ndarray:
    shape = [dimension.size for dimension in proto.tensor_shape.dim[:_MAX_RANK + 1]]
    if proto.tensor_shape.unknown_rank:
        raise invalid(f"expected {key} to have a shape")
    dtype = _checked(key, definition, limits, shape)
    if proto.dtype != dtype.as_datatype_enum:
        raise invalid(f"expected {key} of type {dtype.name}, got type number {proto.dtype}")
    count, values = math.prod(shape), len(getattr(proto, _FIELDS[dtype]))
    if proto.tensor_content:
        fits = dtype != tf.string and len(proto.tensor_content) == count * dtype.size and not values
    else:  # A number may stand for all after it, as in TensorFlow; a text would be copied.
        fits = values == count or (dtype != tf.string and 0 < values <= count)
    if not fits:
        raise invalid(f"malformed tensor: {key} has another number of values than its shape {shape} says")
    try:
        return tf.make_ndarray(proto)
    except (TypeError, ValueError, KeyError, OverflowError) as error:
        raise invalid(f"malformed tensor: {key}: {error}") from error


def from_json(request: Mapping[str, Any], definition: Any, limits: Limits) -> dict[str, np.ndarray]:
    """Arrays of a request's `inputs` or `instances`.

    `inputs` is name -> value, or the value of the only input; `instances` has rows of these.

    Raises:
      Refused: it is neither, or does not fit.
    """
    if "inputs" in request:
        given = request["inputs"]
        if not isinstance(given, dict) or set(given) == {"b64"}:
            given = {_only(definition): given}
        return {key: _of_json(key, value, definition, limits) for key, value in given.items()}
    rows = request["instances"]
    if not isinstance(rows, list) or not 1 <= len(rows) <= limits.rows:
        raise invalid("expected `instances` to be a list of at least one instance, and of at most "
                      f"{limits.rows} images per request")
    if not all(isinstance(row, dict) and set(row) != {"b64"} for row in rows):
        name = _only(definition)
        rows = [{name: row} for row in rows]
    if any(set(row) != set(rows[0]) for row in rows):
        raise invalid("expected all `instances` to have the same names")
    return {key: _of_json(key, [row[key] for row in rows], definition, limits) for key in rows[0]}


def _only(definition: Any) -> str:
    if len(definition.inputs) != 1:
        raise invalid(f"expected values for {sorted(definition.inputs)} by name")
    return next(iter(definition.inputs))


def _is_text(value: str) -> bool:
    """Whether it can be written as UTF-8; JSON's escapes can say what cannot."""
    try:
        value.encode()
    except UnicodeEncodeError:
        return False
    return True


def _of_json(key: str, value: Any, definition: Any, limits: Limits) -> np.ndarray:
    shape: list[int] = []
    inner = value
    while isinstance(inner, list) and len(shape) <= _MAX_RANK:
        shape.append(len(inner))
        inner = inner[0] if inner else None
    dtype = _checked(key, definition, limits, shape)
    kind = np.dtype(dtype.as_numpy_dtype).kind

    def flat(item, dims):
        """The values of lists that have these lengths."""
        if dims:
            if not isinstance(item, list) or len(item) != dims[0]:
                raise ValueError("its lists differ in length")
            for part in item:
                yield from flat(part, dims[1:])
        elif kind == "O" and isinstance(item, dict) and set(item) == {"b64"}:
            yield base64.b64decode(item["b64"], validate=True)
        elif type(item) in _KINDS[kind] and (kind != "O" or _is_text(item)):
            yield item
        else:
            raise ValueError(f"{item!r:.40} is no {dtype.name}")

    try:
        values = list(flat(value, shape))
        # These are Python's integers, for which the type may be too narrow.
        if kind in "iu" and values and not (dtype.min <= min(values) and max(values) <= dtype.max):
            raise ValueError(f"there are numbers beyond {dtype.name}")
        with np.errstate(over="raise"):
            return np.array(values, object if kind == "O" else dtype.as_numpy_dtype).reshape(shape)
    except (ValueError, TypeError, ArithmeticError) as error:
        raise invalid(f"{key}: {str(error).partition(chr(10))[0]}") from error


def to_json(outputs: Mapping[str, np.ndarray], by_row: bool) -> Iterator[bytes]:
    """The JSON of an answer, in pieces: rows of `predictions`, or columns of `outputs`.

    Raises:
      Refused: rows are asked for and there are none; raised before the first piece.
    """
    if not by_row:
        return _object("outputs", outputs)
    if len({np.shape(value)[:1] for value in outputs.values()}) != 1 or any(np.ndim(value) == 0
                                                                            for value in outputs.values()):
        raise invalid("the outputs have no rows: send `inputs`, not `instances`")
    return _rows(outputs)


def _object(name: str, outputs: Mapping[str, np.ndarray]) -> Iterator[bytes]:
    yield b'{"%s": ' % name.encode()
    if len(outputs) == 1:
        (item,) = outputs.items()
        yield from _list(*item)
    else:
        for number, (key, value) in enumerate(outputs.items()):
            yield (", " if number else "{").encode() + json.dumps(key).encode() + b": "
            yield from _list(key, value)
        yield b"}"
    yield b"}"


def _list(key: str, value: np.ndarray) -> Iterator[bytes]:
    """An array, some rows at a time."""
    if value.ndim == 0:
        yield json.dumps(_plain(key, value)).encode()
        return
    yield b"["
    for part in _parts([value]):
        text = json.dumps(_plain(key, value[part]))[1:-1]
        yield (", " if part.start else "").encode() + text.encode()
    yield b"]"


def _rows(outputs: Mapping[str, np.ndarray]) -> Iterator[bytes]:
    yield b'{"predictions": ['
    for part in _parts(list(outputs.values())):
        columns = [_plain(key, value[part]) for key, value in outputs.items()]
        rows = columns[0] if len(columns) == 1 else [dict(zip(outputs, row)) for row in zip(*columns)]
        yield (", " if part.start else "").encode() + json.dumps(rows)[1:-1].encode()
    yield b"]}"


def _parts(values: Sequence[np.ndarray]) -> Iterator[slice]:
    """Slices of rows that are written at once."""
    count = len(values[0])
    step = max(1, _CHUNK * count // max(1, sum(value.size for value in values)))
    return (slice(start, start + step) for start in range(0, count, step))


def _plain(key: str, value: np.ndarray) -> Any:
    """Numbers and text; base64 where the output's name ends in `_bytes`."""
    if value.dtype != object:
        return value.tolist()
    as_text = ((lambda item: {"b64": base64.b64encode(item).decode()}) if key.endswith("_bytes")
               else lambda item: item.decode(errors="replace"))
    return np.vectorize(as_text, otypes=[object])(value).tolist() if value.size else []


def size_of(outputs: Mapping[str, np.ndarray]) -> int:
    """Bytes that an answer takes in memory."""
    return sum(sum(map(len, value.flat)) if value.dtype == object else value.nbytes for value in outputs.values())
