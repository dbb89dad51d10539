"""Records in several files, over which workers compute sums: for data that one machine cannot hold.

A worker loads its files one after the other and answers with the sum of their answers. The answers are sums of
integers, and a record adds the same to them whatever other records are in its file. So the total is that of one process
with all records, to the bit, on machines that multiply alike. The total is known before anything is charged: a worker
that is lost is started and asked again, and nothing is charged for it.

Plain Ray actors do this. Ray Data would read the files too, but with other code than a run in one process does. What a
record's pixels are, which label it has and whether it is usable must not depend on where the record is.
"""

from __future__ import annotations

import contextlib
from collections.abc import Sequence
from typing import Any

import numpy as np
import tensorflow as tf

from datalens_tf import _validate
from datalens_tf.config import MethodConfig, numbered
from datalens_tf.data.datasets import Dataset, Pictures, sound, usable_only
from datalens_tf.data.identity import Fingerprint
from datalens_tf.data.registry import load_dataset
from datalens_tf.data.shards import shard_names
from datalens_tf.errors import DataError, InvalidArgumentError
from datalens_tf.options import PerformanceOptions
from datalens_tf.training.actors import Actors
from datalens_tf.training.questions import Elsewhere, Question

_EXACT = 2**53  # float64 holds all integers up to this one.


class ShardWorker:
    """A worker that reads some of the files. An ordinary class; `ray.remote` makes an actor of it.

    Args:
      number: number of the worker.
      threads: number of the worker's threads, for which Ray keeps as many CPUs.
    """

    def __init__(self, number: int, threads: int = 1):
        del number
        with contextlib.suppress(RuntimeError):  # TensorFlow has started already, in a process that used it before.
            tf.config.threading.set_intra_op_parallelism_threads(threads)
            tf.config.threading.set_inter_op_parallelism_threads(threads)
        self._kept: Dataset | None = None  # where there is one file

    def load(self, names: Sequence[str], data_dir: str | None, classes: Sequence[str] | None, pictures: Pictures | None
             ) -> list[dict[str, Any]]:
        """Reads its files once; returns, for each, what is public and its fingerprint."""
        self._names, self._data_dir, self._classes, self._pictures = names, data_dir, classes, pictures
        return [self._facts(name) for name in names]

    def answer(self, mechanism: Any, question: Question) -> np.ndarray | None:
        """Sum of its files' answers; None for a worker that has no file."""
        total = None
        for name in self._names:
            found = question.answer(mechanism, usable_only(self._records(name)))
            total = found if total is None else total + found
        return total

    def _records(self, name: str) -> Dataset:
        if self._kept is not None:
            return self._kept
        records = sound(load_dataset(
            name, data_dir=self._data_dir, classes=self._classes, pictures=self._pictures))
        if len(self._names) == 1:
            self._kept = records
        return records

    def _facts(self, name: str) -> dict[str, Any]:
        records = self._records(name)
        return {"name": name, "num_records": len(records), "image_shape": records.image_shape,
                "num_classes": records.num_classes, "class_names": records.class_names,
                "digest": Fingerprint.of(records).digest()}


class Shards(Elsewhere):
    """Records in several files: what is public about them, and the workers that read them.

    Args:
      config: settings with the name of the data, which has a range of numbers (`shard_names`).
      options: see `Actors`; by default there are as many workers as there are machines, and 2 at least.
      data_dir: folder of TensorFlow Datasets.
      pictures: what becomes of pictures.

    Raises:
      DataError: files do not fit together, or one cannot be loaded.
      ActorError: see `Actors`.
      InvalidArgumentError: the settings name a unit, whose records might be in several files.
    """

    def __init__(self, config: MethodConfig, options: PerformanceOptions, data_dir: str | None = None,
                 pictures: Pictures | None = None):
        _validate.require(config.unit is None, "unit", config.unit,
                          "to be none where records are in several files: one unit's might be in two of them")
        names = shard_names(config.dataset)
        self._actors = Actors(options.num_actors and min(options.num_actors, len(names)), options, kind=ShardWorker)
        with contextlib.ExitStack() as undo:
            undo.callback(self._actors.close)
            count = len(self._actors)
            self._facts: list[list[dict[str, Any]]] = self._actors.start(lambda number: [
                ("load", (names[number::count], data_dir, config.classes, pictures))])
            facts = sorted((own for of_worker in self._facts for own in of_worker),
                           key=lambda own: names.index(own["name"]))
            for own in facts:
                for key in ("image_shape", "num_classes", "class_names"):
                    if own[key] != facts[0][key]:
                        raise DataError(f"{own['name']} has {key} {own[key]}, {names[0]} has {facts[0][key]}: declare "
                                        "the classes with --classes, and sizes with --image_size.")
            undo.pop_all()
        self.name, self.usable, self.owners, self.unit = config.dataset, None, None, None
        self.image_shape, self.num_classes = tuple(facts[0]["image_shape"]), facts[0]["num_classes"]
        self.declared = config.classes is not None
        self.class_names = config.classes or facts[0]["class_names"] or numbered(self.num_classes)
        self.num_records = sum(own["num_records"] for own in facts)
        self._digests = [own["digest"] for own in facts]

    def __len__(self) -> int:
        """Records of all files."""
        return self.num_records

    @property
    def num_units(self) -> int:
        """The public n."""
        return len(self)

    @property
    def identity(self) -> dict[str, Any]:
        return {"num_records": self.num_records, "shards": self._digests}

    def answer(self, mechanism: Any, question: Question) -> np.ndarray:
        """The exact, private sums over all files: float64 of integers."""
        if self.num_records * mechanism.largest > _EXACT:
            raise InvalidArgumentError(f"Expected num_records={self.num_records} <= {_EXACT // mechanism.largest}, up "
                                       f"to which sums of {type(mechanism).__name__} are exact.")
        shared = self._actors.put(question)
        answers = self._actors.ask(lambda number: ("answer", (mechanism, shared)), self._check)
        found: np.ndarray = sum(answer for answer in answers if answer is not None)
        return found

    def close(self) -> None:
        """Ends the workers."""
        self._actors.close()

    def _check(self, facts: list[dict[str, Any]] | None) -> None:
        """Checks that a restarted worker has read what was there before; None stands for one that died again."""
        if facts is not None and facts not in self._facts:
            raise DataError(f"{self.name}: files changed while they were used.")
