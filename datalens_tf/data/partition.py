"""Disjoint assignment of records to teachers, and to users."""

from collections.abc import Sequence

import numpy as np

from datalens_tf import _validate
from datalens_tf.data.datasets import Dataset, Units
from datalens_tf.errors import DataError

UNIT_PLACES = 16  # of every unit in its teacher's batches


def partition_indices(num_records: int, num_teachers: int, seed: int) -> np.ndarray:
    """Deals record indices into N disjoint shards of equal size by a public random permutation.

    A record's shard depends on its index, the public seed, N and the number of records (which neighbouring data sets
    share under replace-one adjacency), never on labels, pixels or other records. So replacing one record changes one
    shard; the sensitivity of DataLens' aggregation (Lemma 1) rests on this.

    Args:
      num_records: number n of records.
      num_teachers: number N of shards.
      seed: public seed >= 0. Shards are the same in every process and on every platform.

    Returns:
      int64 [N, n // N]. The n % N records that the permutation puts last belong to no shard and are never read.

    Raises:
      DataError: fewer records than teachers.
      InvalidArgumentError: an argument that is not an integer or is too small.
    """
    _validate.integer("num_records", num_records, at_least=0)
    _validate.integer("num_teachers", num_teachers, at_least=1)
    _validate.integer("seed", seed, at_least=0)
    if num_records < num_teachers:
        raise DataError(f"Expected at least one record per teacher, got num_records={num_records} < "
                        f"num_teachers={num_teachers}. Use fewer teachers or more data.")
    # RandomState rather than Generator: NumPy promises that its stream never changes, and a resumed or audited run
    # must find the same shards.
    stream = np.random.RandomState(np.random.MT19937(np.random.SeedSequence(int(seed))))
    shard_size = num_records // num_teachers
    order = stream.permutation(num_records)[:num_teachers * shard_size]
    return order.astype(np.int64).reshape(num_teachers, shard_size)


def teacher_indices(dataset: Dataset, num_teachers: int, seed: int) -> np.ndarray:
    """Records that each teacher trains on: slots are dealt, each with all its records.

    Where every record has a slot of its own, this is `usable_indices` of `partition_indices`. Otherwise each teacher's
    records are repeated until it has as many as the teacher with the most. A record that changes its class, or can no
    longer be read, stays with its teacher.

    Where units are protected, units are dealt. Each has `UNIT_PLACES` places in its teacher's batches, however many
    records it has: of more, the first are taken; fewer are repeated. The places of a unit without usable records go to
    its teacher's other units. So the number of records of a unit changes nothing but its own teacher.

    Args:
      dataset: the records.
      num_teachers: N.
      seed: public seed of the dealing.

    Returns:
      int64 [N, records per teacher].

    Raises:
      DataError: fewer records, slots or units than teachers.
      InvalidArgumentError: a unit without a record.
    """
    if dataset.units is not None:
        return _unit_places(dataset.units, dataset.usable, num_teachers, seed)
    if dataset.slots is None:
        return usable_indices(partition_indices(len(dataset), num_teachers, seed), dataset.usable)
    shards = slot_shards(dataset.slots, num_teachers, seed)
    size = max(map(len, shards))
    return np.stack([np.resize(usable_indices(shard[None], dataset.usable)[0], size) for shard in shards])


def _unit_places(units: Units, usable: np.ndarray | None, num_teachers: int, seed: int) -> np.ndarray:
    """The records of each teacher where units are dealt, int64 [N, places]; see `teacher_indices`."""
    sizes = np.bincount(units.of, minlength=units.count)
    # For a unit without records, numpy would fill the places with record 0, and so show it to a second teacher.
    _validate.require(bool(sizes.all()), "units", "...", "to have a record each, usable or not")
    shards = partition_indices(units.count, num_teachers, seed)
    ends = np.cumsum(sizes)
    members = np.split(np.argsort(units.of, kind="stable"), ends[:-1])

    def places(shard):
        of_all = [members[unit] for unit in shard]
        kept = [mine if usable is None else mine[usable[mine]] for mine in of_all]
        kept = [mine for mine in kept if len(mine)] or of_all
        return np.resize(np.concatenate([np.resize(mine, UNIT_PLACES) for mine in kept]), len(shard) * UNIT_PLACES)

    return np.stack([places(shard) for shard in shards])


def slot_shards(slots: np.ndarray, num_teachers: int, seed: int) -> list[np.ndarray]:
    """The records of each teacher, N arrays of indices, none empty; see `teacher_indices`."""
    num_slots = int(slots.max()) + 1
    if num_slots < num_teachers:
        raise DataError(f"Expected at most {num_slots} teachers, got {num_teachers}: there are no more file names, and "
                        "files of one name in several classes share a teacher. Use fewer teachers, or give every file "
                        "a name of its own.")
    order = np.argsort(slots, kind="stable")
    members = np.split(order, np.cumsum(np.bincount(slots))[:-1])
    return [np.concatenate([members[slot] for slot in shard])
            for shard in partition_indices(num_slots, num_teachers, seed)]


def user_indices(dataset: Dataset, num_users: int, seed: int) -> Sequence[np.ndarray]:
    """The records of each user, disjoint.

    Where the data name owners, units or users, these are the users, in the order of their names. Otherwise records are
    dealt to `num_users` pretended users, publicly, as they are to teachers (`partition_indices`).

    Args:
      dataset: the records.
      num_users: N.
      seed: public seed of the dealing.

    Returns:
      N arrays of indices, none empty.

    Raises:
      DataError: the data name another number of users, or there are fewer records than users.
    """
    if dataset.owners is None:
        if len(dataset) < num_users:
            raise DataError(f"Expected a record for each user, got {len(dataset)} for num_users={num_users}. Use fewer "
                            "users or more data.")
        return list(teacher_indices(dataset, num_users, seed))
    users, owners = np.unique(dataset.owners, return_inverse=True)
    if len(users) != num_users:
        raise DataError(f"Expected num_users={num_users} to be {len(users)}, the number of users whom the data name: "
                        "leave it out.")
    shards = np.split(np.argsort(owners, kind="stable"), np.cumsum(np.bincount(owners))[:-1])
    return [usable_indices(shard[None], dataset.usable)[0] for shard in shards]


def usable_indices(partitions: np.ndarray, usable: np.ndarray | None) -> np.ndarray:
    """Records that each teacher trains on: the usable ones of its own shard, repeated until the shard is full.

    So a filter acts inside a shard after the dealing: a record that becomes usable, or ceases to be, changes its own
    teacher only (docs/explanation/privacy.md, rule 1). A shard without any usable record is kept as it is: its teacher
    learns nothing useful, and no other one is affected.

    Args:
      partitions: int64 [N, records per teacher], from `partition_indices`.
      usable: bool [n], or None where all records are.

    Returns:
      int64 [N, records per teacher].
    """
    if usable is None:
        return partitions
    return np.stack([np.resize(kept, len(shard)) if len(kept := shard[usable[shard]]) else shard
                     for shard in partitions])
