"""A run knows its records by a hash that nobody can imitate, and runs of earlier versions by what they stored."""

import dataclasses
import json
import zlib

import numpy as np
import pytest

from datalens_tf.data.identity import Fingerprint, encode, matches, num_shared
from datalens_tf.errors import CheckpointError
from datalens_tf.training.trainer import Trainer
from tests.training import tiny


def crc(images, labels):
    """As versions before stored it."""
    return zlib.crc32(np.ascontiguousarray(images), zlib.crc32(np.ascontiguousarray(labels)))


def with_the_same_checksum(data):
    """Other records of the same CRC-32: 32 bits of one image are changed, and as many of another solve for it."""
    images, want = data.images.copy().reshape(-1), crc(data.images, data.labels)
    images[:4] ^= 0xFF
    labels = zlib.crc32(np.ascontiguousarray(data.labels))

    def value(bits):
        changed = images.copy()
        changed[100:104] ^= np.frombuffer(int(bits).to_bytes(4, "big"), np.uint8)
        return zlib.crc32(changed, labels)

    # The checksum is affine in the bits: elimination over the integers modulo 2.
    base, rows = value(0), {}
    for bit in range(32):
        column, combination = value(1 << bit) ^ base, 1 << bit
        while column:
            top = column.bit_length()
            if top not in rows:
                rows[top] = column, combination
                break
            column, combination = column ^ rows[top][0], combination ^ rows[top][1]
    rest, bits = base ^ want, 0
    while rest:
        column, combination = rows[rest.bit_length()]
        rest, bits = rest ^ column, bits ^ combination
    images[100:104] ^= np.frombuffer(bits.to_bytes(4, "big"), np.uint8)
    return images.reshape(data.images.shape)


def test_shared_images_are_counted_in_any_order():
    data, tested = tiny.dataset(8), tiny.dataset(8)
    tested.images[:5] = data.images[[7, 1, 1, 0, 2]]
    tested.images[5:] = 255 - data.images[5:]
    assert num_shared(data, tested) == 5 and num_shared(data, data) == 8
    usable = np.arange(8) != 1
    assert num_shared(dataclasses.replace(data, usable=usable), tested) == 3
    assert num_shared(data, dataclasses.replace(tested, usable=usable)) == 4


def test_a_run_is_not_continued_with_records_made_to_have_the_same_checksum(tmp_path):
    data, other = tiny.dataset(), tiny.dataset()
    other.images[:] = with_the_same_checksum(data)
    assert crc(data.images, data.labels) == crc(other.images, other.labels) and np.any(data.images != other.images)
    Trainer(tiny.CONFIG, data, tmp_path)
    with pytest.raises(CheckpointError, match="other records"):
        Trainer(tiny.CONFIG, other, tmp_path)
    Trainer(tiny.CONFIG, data, tmp_path)


def test_a_run_of_an_earlier_version_is_continued_with_its_records_only(tmp_path):
    data = tiny.dataset()
    trainer = Trainer(tiny.CONFIG, data, tmp_path)
    trainer.folder.identity.write_text(json.dumps({"num_records": 20, "checksum": crc(data.images, data.labels)}))
    with pytest.raises(CheckpointError, match="other records"):
        Trainer(tiny.CONFIG, tiny.dataset(seed=1), tmp_path)
    Trainer(tiny.CONFIG, data, tmp_path)


@pytest.mark.parametrize("change", [
    lambda images, labels, usable: (images[::-1].copy(), labels, usable),
    lambda images, labels, usable: (images, labels[::-1].copy(), usable),
    lambda images, labels, usable: (images, labels, ~usable), lambda images, labels, usable: (images, labels, None),
    lambda images, labels, usable: (images.reshape(20, 4, 16, 1), labels, usable),
    lambda images, labels, usable: (images.view(np.int8), labels, usable)])
def test_everything_about_the_records_is_in_it(change):
    data, usable = tiny.dataset(), np.arange(20) % 2 == 0
    before = Fingerprint(data.labels, data.images, usable).digest()
    images, labels, changed = change(data.images, data.labels, usable)
    assert len(before) == 64 and Fingerprint(labels, images, changed).digest() != before
    assert Fingerprint(data.labels.copy(), data.images.copy(), usable.copy()).digest() == before


def test_an_identity_is_text_with_hashes_in_it():
    users = np.array(["ann", "bob"])
    identity = {"num_records": 2, "users": Fingerprint(users), "budgets": [(1, 2.0)]}
    assert json.loads(encode(identity)) == {
        "num_records": 2, "users": Fingerprint(users).digest(), "budgets": [[1, 2.0]]}
    assert matches(identity, encode(identity)) and not matches(identity, encode(identity | {"num_records": 3}))


def test_nothing_that_is_shared_holds_the_hash_of_the_records(tmp_path):
    data = tiny.dataset()
    trainer = Trainer(tiny.CONFIG.replace(num_steps=2), data, tmp_path)
    trainer.run()
    digest = Fingerprint.of(data).digest().encode()
    holders = [path for path in tmp_path.rglob("*") if path.is_file() and digest in path.read_bytes()]
    assert holders == [trainer.folder.identity] and trainer.folder.private in trainer.folder.identity.parents
