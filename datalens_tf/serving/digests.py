"""Digests that a converted generator carries, so that anybody can see whether a byte of it was changed."""

import hashlib
from typing import Any


def converted_checksums(texts: dict[str, str], weights: str) -> str:
    """Checksums in a converted file: a line for each text, and one for what the model computes with.

    Args:
      texts: by file name.
      weights: SHA-256, as hexadecimal digits.
    """
    lines = {name: hashlib.sha256(text.encode()).hexdigest() for name, text in texts.items()} | {"model": weights}
    return "".join(f"{digest}  {name}\n" for name, digest in sorted(lines.items()))


def onnx_digest(model: Any) -> str:
    """SHA-256 of the nodes and the weights of an ONNX model, whatever its metadata."""
    return hashlib.sha256(model.graph.SerializeToString(deterministic=True)).hexdigest()


def tflite_digest(data: bytes) -> str:
    """SHA-256 of a TensorFlow Lite model, before any files were appended to it."""
    return hashlib.sha256(data).hexdigest()
