"""Identity of the records that a run was begun with, so that it is not continued with others.

A cryptographic hash is stored: no other records have it, even if somebody looks for some. The hash is a function of the
records without a key, so anyone who has it and all records but one can test guesses of that one. It belongs in
`private/` folders and private caches, and in nothing that is shared. If a hash is ever published, use a secret key.
"""

import hashlib
import json
import zlib
from collections.abc import Iterator, Mapping
from typing import Any

import numpy as np

from datalens_tf.data.datasets import Dataset, usable_only


class Fingerprint:
    """A hash of arrays: of their contents, shapes, types and order. Private.

    Args:
      arrays: any arrays; None stands for an array that is missing.
    """

    def __init__(self, *arrays: np.ndarray | None):
        self._arrays = arrays

    @classmethod
    def of(cls, dataset: Dataset) -> "Fingerprint":
        """Fingerprint of images, labels, and which records are usable."""
        return cls(dataset.labels, dataset.images, dataset.usable)

    def digest(self) -> str:
        """SHA-256, in hexadecimal digits."""
        found = hashlib.sha256()
        for array in self._arrays:
            header = b"none" if array is None else f"{np.asarray(array).dtype.str} {np.shape(array)}".encode()
            found.update(len(header).to_bytes(8, "big") + header)
            if array is not None:
                found.update(np.ascontiguousarray(array).data)
        return found.hexdigest()

    def checksum(self) -> int:
        """CRC-32, by which earlier versions identified data; other records with the same checksum are easy to find."""
        found = 0
        for array in self._arrays:
            if array is not None:
                found = zlib.crc32(np.ascontiguousarray(array).data, found)
        return found


Identity = Mapping[str, Any]  # name of a fact -> JSON value or fingerprint


def identity_of(dataset: Dataset, **more: Any) -> dict[str, Any]:
    """Identity of a data set: the public n, a fingerprint of the records, and what the caller adds."""
    slots = {} if dataset.slots is None else {"slots": Fingerprint(dataset.slots)}
    units = {} if dataset.units is None else {"units": Fingerprint(dataset.units.of)}
    return {"num_records": dataset.num_units, "checksum": Fingerprint.of(dataset), **slots, **units, **more}


def encode(identity: Identity) -> str:
    """An identity as JSON text, with digests for fingerprints."""
    return json.dumps(identity, default=Fingerprint.digest)


def matches(identity: Identity, text: str) -> bool:
    """Whether a text is this identity, as `encode` or as earlier versions wrote it."""
    return text == encode(identity) or text == json.dumps(identity, default=Fingerprint.checksum)


def num_shared(known: Dataset, asked: Dataset) -> int:
    """Number of the second data set's usable images that are among those of the first, to the bit."""
    def digests(dataset: Dataset) -> Iterator[bytes]:
        return (hashlib.sha256(np.ascontiguousarray(image).data).digest() for image in usable_only(dataset).images)

    seen = set(digests(known))
    return sum(digest in seen for digest in digests(asked))


def same_records(dataset: Dataset, text: str) -> bool | None:
    """Whether a text, as `encode` or earlier versions wrote it, is of these records; None where it does not say."""
    try:
        stored = json.loads(text)["checksum"]
    except (ValueError, KeyError, TypeError):
        return None
    found = Fingerprint.of(dataset)
    return stored in (found.digest(), found.checksum())
