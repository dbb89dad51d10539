"""One evaluation of synthetic data: the sections of `metrics.json`, and the charts that go with them.

The numbers need real data and are not covered by any epsilon; `PRIVACY_NOTE` travels with them.
"""

import dataclasses
import pathlib
import resource
import time
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from datalens_tf import _validate
from datalens_tf.data.datasets import Dataset, as_dataset, listed, usable_only
from datalens_tf.errors import DataError, InvalidArgumentError
from datalens_tf.evaluation import image_quality, registry
from datalens_tf.evaluation.cache import Cache
from datalens_tf.evaluation.context import EFFORTS, Context, Effort, Stages, environment
from datalens_tf.training import classifier
from datalens_tf.training.progress import Progress

SCHEMA_VERSION = 1  # of metrics.json; docs/reference/metrics.schema.json describes it

PRIVACY_NOTE = (
    "Measured with real records, so epsilon does not cover these numbers and pictures. Utility and precision look at "
    "real test records; classifiers of real data, distances to the nearest real record, and membership inference look "
    "at the records that the generator was trained on. Where those records are sensitive, this evaluation is too: "
    "share it only where they may be shared, and do not choose settings by it. Each choice made on it reveals a "
    "little about them.")


@dataclasses.dataclass(frozen=True, kw_only=True)
class Evaluation:
    """Findings of all metrics.

    Attributes:
      metrics: the content of `metrics.json`.
      charts: name -> matplotlib Figure.
    """

    metrics: dict[str, Any]
    charts: dict[str, Any]


def evaluate(draw: Callable[[int], tuple[np.ndarray, np.ndarray]], train: Dataset | None, test: Dataset, *,
             source: str, varied: str, show: Callable[[int], tuple[np.ndarray, np.ndarray]] | None = None,
             effort: Effort = EFFORTS["default"], metrics: Sequence[str] | None = None,
             seeds: Sequence[int] | None = None, epochs: int | None = None,
             protocol: classifier.Protocol = classifier.FROZEN, state_dir: pathlib.Path | None = None,
             inception_weights: str | None = None, cache: Cache | None = None,
             progress: Progress | None = None) -> Evaluation:
    """Evaluates synthetic records.

    Args:
      draw: seed -> synthetic images and labels. Only the protocol draws with several seeds.
      train: the real records that the generator was trained on; may be None for `utility` alone.
      test: other real records.
      source: what the synthetic records are, in words.
      varied: what differs between the seeds, in words.
      show: as `draw`, but images for people, where these are not the images for classifiers to learn from.
      effort: of `EFFORTS`.
      metrics: names, of `registry.declared()`; None for all.
      seeds, epochs: of the utility protocol; by default the effort's.
      protocol, state_dir: of the utility protocol, see `classifier.train_on_synthetic`.
      inception_weights: also measures with InceptionV3, see `image_quality.InceptionFeatures`.
      cache: of what is computed from real data.
      progress: told which part is running; by default nobody is.

    Raises:
      DataError: records that are not what they must be, or do not fit each other.
      InvalidArgumentError: an unknown metric, or no training records where they are needed.
    """
    known = registry.declared()
    metrics = tuple(known) if metrics is None else tuple(metrics)
    for name in metrics:
        _validate.one_of("metric", name, known)
    needy = [name for name in metrics if known[name].needs_train]
    if train is None and needy:
        raise InvalidArgumentError(f"Expected training records, which the metric {needy[0]} asks for.")
    require_extra()
    start = time.monotonic()
    seeds = range(effort.seeds) if seeds is None else seeds
    test = usable_only(test)
    synthetic = as_dataset(*draw(seeds[0]), test.num_classes, name="synthetic data", class_names=test.class_names)
    classifier.check_fit(synthetic, test)
    stages = Stages(progress)
    context = Context(
        draw=draw, show=show, synthetic=synthetic, train=None if train is None else usable_only(train), test=test,
        effort=effort, seeds=seeds, epochs=effort.epochs if epochs is None else epochs, varied=varied,
        protocol=protocol, state_dir=state_dir, cache=cache or Cache(), stages=stages,
        # The weights are loaded now, so that bad ones are refused before hours of computing.
        inception=None if inception_weights is None else image_quality.InceptionFeatures(inception_weights))
    modules = {name: registry.metric(name) for name in known if name in metrics}
    stages.costs = [cost for module in modules.values() for cost in module.costs(context)]
    found = Evaluation(metrics={
        "schema_version": SCHEMA_VERSION, "dataset": test.name, "source": source, "mode": effort.name,
        "num_synthetic": len(synthetic), "privacy_note": PRIVACY_NOTE}, charts={})
    for name, module in modules.items():
        section = module.compute(context)
        found.metrics[name] = section.values
        found.charts.update(section.charts)
    found.metrics["cost"] = {
        "seconds": round(time.monotonic() - start, 1), "seconds_by_part": stages.seconds,
        "peak_memory_gib": round(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 2 ** 20, 2),
        **environment()}
    return found


def check_alike(test: Dataset, image_shape: Sequence[int], class_names: Sequence[str]) -> None:
    """Refuses real records that are not of the synthetic images' size and classes.

    Classes that have only numbers for names, 0 to Y - 1, fit any Y classes.

    Args:
      test: the real records.
      image_shape: (H, W, C) of the synthetic images.
      class_names: of the synthetic images, in the order of their labels.

    Raises:
      DataError: the records are of another size or of other classes.
    """
    shape, names = tuple(image_shape), tuple(class_names)
    if test.image_shape != shape:
        height, width, channels = shape
        color = {1: " --color grey", 3: " --color rgb"}.get(channels, "")
        raise DataError(f"Expected real and synthetic images of one shape, got {list(test.image_shape)} of {test.name} "
                        f"and {list(shape)}. Choose other data; --image_size {height}x{width}{color} brings these to "
                        "that size.")
    numbers = tuple(map(str, range(len(names))))
    same = len(test.class_names) == len(names) and (numbers in (names, test.class_names) or names == test.class_names)
    if not same:
        raise DataError(f"Expected real records of the {len(names)} classes of the synthetic images, {listed(names)}, "
                        f"got {len(test.class_names)} of {test.name}: {listed(test.class_names)}. Choose data of the "
                        "same classes, or name these with --classes.")


def require_extra() -> None:
    """Raises InvalidArgumentError unless the extra `eval` is installed."""
    _validate.installed("Evaluation needs", "eval", ("matplotlib", "xgboost", "jinja2"))
