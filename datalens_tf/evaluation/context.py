"""Arguments of every metric: the records, how much to compute, and where to report progress."""

import dataclasses
import importlib.metadata
import os
import pathlib
import platform
import time
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import tensorflow as tf

from datalens_tf import _validate
from datalens_tf.data.datasets import Dataset
from datalens_tf.evaluation.cache import Cache
from datalens_tf.evaluation.image_quality import InceptionFeatures
from datalens_tf.training.classifier import Protocol
from datalens_tf.training.progress import Progress


@dataclasses.dataclass(frozen=True, kw_only=True)
class Effort:
    """Amount of computing of an evaluation.

    Attributes:
      name: of the effort.
      num_synthetic, epochs, seeds: of the utility protocol; None for the protocol's own.
      max_train: largest number of records that each of the thirteen classifiers is trained on, for images of 784
        values; fewer for larger images; None for all.
      domain_epochs, domain_train: epochs and records of the classifier whose features and logits measure quality; the
        records are limited as above.
      quality_images: synthetic and real images for distances between distributions.
      neighbour_images: how many of these images are used for precision, recall, density, coverage and nearest records;
        also the records of each kind for membership inference.
      embedded_images: synthetic images, and as many real ones, for t-SNE and PCA.
    """

    name: str
    num_synthetic: int | None = None
    epochs: int | None = None
    seeds: int = 3
    max_train: int | None = 60_000
    domain_epochs: int = 18
    domain_train: int | None = 60_000
    quality_images: int = 10_000
    neighbour_images: int = 5_000
    embedded_images: int = 1_000

    @staticmethod
    def scaled(records: int | None, values: int) -> int | None:
        """Fewer records if an image has more than 784 values, so that the cost stays the same."""
        return None if records is None else min(records, max(200, records * 784 // values))


EFFORTS = {effort.name: effort for effort in (
    Effort(name="short", num_synthetic=10_000, epochs=4, seeds=1, max_train=1_000, domain_epochs=10,
           domain_train=2_000, quality_images=2_000, neighbour_images=1_000, embedded_images=300),
    Effort(name="quick", num_synthetic=5_000, seeds=1, max_train=1_000, domain_epochs=10,
           domain_train=2_000, quality_images=2_000, neighbour_images=1_000, embedded_images=300),
    Effort(name="default"),
    Effort(name="full", max_train=None, domain_train=None),
)}


class Stages:
    """Tells which part of an evaluation is running.

    Args:
      progress: is told which part it is; None where nobody is.

    Attributes:
      costs: how long each part takes, in relation to the others; to be set before the first one.
      seconds: name of a part -> how long it took.
    """

    def __init__(self, progress: Progress | None = None):
        self.costs: list[float] = []
        self._progress, self._done, self._name = progress, 0, ""
        self.seconds: dict[str, float] = {}

    def run(self, name: str, compute: Callable[[], Any]) -> Any:
        """Calls `compute` under the name."""
        self._name = name
        if self._progress is not None and not self._done:
            self._progress.on_stage("measure")
        self.tell(name, 0.0)
        start = time.monotonic()
        result = compute()
        self.seconds[name] = round(time.monotonic() - start, 2)
        self._done += 1
        return result

    def tell(self, what: str, fraction: float) -> None:
        """Tells how much of the present part is done."""
        if self._progress is not None:
            done = sum(self.costs[:self._done]) + fraction * self.costs[self._done]
            self._progress.on_progress(what, done / sum(self.costs))

    def keras_callbacks(self, trainings: int = 1) -> list[Any]:
        """Callbacks that report the epochs of a part that trains so many classifiers, one after another."""
        return [] if self._progress is None else [_Epochs(self, self._name, trainings)]


class _Epochs(tf.keras.callbacks.Callback):
    """Tells how far the trainings of a part are: a share of all their epochs."""

    def __init__(self, stages: Stages, name: str, trainings: int):
        super().__init__()
        self._stages, self._name, self._trainings, self._begun = stages, name, trainings, 0

    def on_train_begin(self, logs=None):
        self._begun += 1

    def on_epoch_end(self, epoch, logs=None):
        epochs = self.params["epochs"]
        which = f", classifier {self._begun} of {self._trainings}" if self._trainings > 1 else ""
        self._stages.tell(f"{self._name}{which}, epoch {epoch + 1} of {epochs}",
                          (self._begun - 1 + (epoch + 1) / epochs) / self._trainings)


@dataclasses.dataclass(frozen=True, kw_only=True, eq=False)
class Context:
    """One evaluation.

    Attributes:
      draw: seed -> synthetic images and labels, for classifiers to learn from.
      show: seed -> images and labels for people; None where these are the same.
      synthetic: the records that `draw` gives for the first seed.
      train: the real records that the generator was trained on, all usable; None where all metrics that are asked for
        do without them.
      test: other real records, all usable.
      effort: how much is computed.
      seeds: of draws and classifiers, at least one.
      epochs: of classifiers for utility; None takes the protocol's.
      varied: what differs between the seeds, in words.
      protocol, state_dir: of utility, see `training.classifier.train_on_synthetic`.
      inception: InceptionV3; None where its weights were not given.
      cache: of what is computed from real data.
      stages: reports every part of the work.
    """

    draw: Callable[[int], tuple[np.ndarray, np.ndarray]]
    show: Callable[[int], tuple[np.ndarray, np.ndarray]] | None
    synthetic: Dataset
    train: Dataset | None
    test: Dataset
    effort: Effort
    seeds: Sequence[int]
    epochs: int | None
    varied: str
    protocol: Protocol
    state_dir: pathlib.Path | None
    inception: InceptionFeatures | None
    cache: Cache
    stages: Stages

    def shown(self) -> Dataset:
        """Synthetic records with images for people; they are drawn when this is called."""
        if self.show is None:
            return self.synthetic
        images, labels = self.show(self.seeds[0])
        return dataclasses.replace(self.synthetic, images=images, labels=labels)

    @property
    def real(self) -> Dataset:
        """`train`, for metrics that ask for it; raises InvalidArgumentError where it was not given."""
        return _validate.known("train", self.train, "to be the records that the generator was trained on")


@dataclasses.dataclass(frozen=True, kw_only=True)
class Section:
    """Findings of a metric.

    Attributes:
      values: its section of `metrics.json`; JSON-able.
      charts: name -> matplotlib Figure.
    """

    values: dict[str, Any]
    charts: dict[str, Any] = dataclasses.field(default_factory=dict)


def environment() -> dict[str, Any]:
    """Hardware and versions that the numbers were made with."""
    packages = ("tensorflow", "scikit-learn", "xgboost-cpu", "numpy", "scipy")
    return {"processor": _processor(), "cores": os.cpu_count(), "python": platform.python_version(),
            "packages": {name: importlib.metadata.version(name) for name in packages if _installed(name)}}


def _processor() -> str:
    try:
        lines = pathlib.Path("/proc/cpuinfo").read_text(encoding="utf-8").splitlines()
        return next(line.split(":", 1)[1].strip() for line in lines if line.startswith("model name"))
    except (OSError, StopIteration):
        return platform.processor() or platform.machine()


def _installed(name: str) -> bool:
    try:
        importlib.metadata.version(name)
    except importlib.metadata.PackageNotFoundError:
        return False
    return True
