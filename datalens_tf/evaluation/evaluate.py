"""One evaluation of synthetic data: the sections of `metrics.json`, and the charts that go with them.

The numbers need real data and are not covered by any epsilon; `PRIVACY_NOTE` travels with them.
"""

import concurrent.futures
import dataclasses
import importlib.metadata
import math
import os
import pathlib
import platform
import resource
import sys
import time
import warnings
from collections.abc import Callable, Sequence
from typing import Any, TextIO

import numpy as np

from datalens_tf import _validate
from datalens_tf.data.datasets import Dataset, as_dataset, usable_only
from datalens_tf.errors import InvalidArgumentError
from datalens_tf.evaluation import charts, classifiers, image_quality, membership, utility
from datalens_tf.evaluation.cache import Cache, data_key
from datalens_tf.evaluation.domain_classifier import domain_classifier
from datalens_tf.training import classifier

SCHEMA_VERSION = 1  # of metrics.json; docs/reference/metrics.schema.json describes it
METRICS = ("utility", "classifiers", "quality", "membership")

PRIVACY_NOTE = (
    "Measured with real records, so epsilon does not cover these numbers and pictures. Utility and precision look at "
    "real test records; classifiers of real data, distances to the nearest real record, and membership inference look "
    "at the records that the generator was trained on. Where those records are sensitive, this evaluation is too: "
    "share it only where they may be shared, and do not choose settings by it. Each choice made on it reveals a "
    "little about them.")


@dataclasses.dataclass(frozen=True, kw_only=True)
class Effort:
    """How much is computed.

    Attributes:
      name: of the effort.
      num_synthetic, epochs, seeds: of the utility protocol; None for the protocol's own.
      max_train: records that each of the thirteen classifiers is trained on at most, for images of 784 values, and
        fewer of larger ones; None for all.
      domain_epochs, domain_train: of the classifier whose features and logits measure quality; records as above.
      quality_images: synthetic and real images for distances between distributions.
      neighbour_images: of them, for precision, recall, density, coverage and nearest records; and records of each kind
        for membership inference.
      embedded_images: synthetic and real ones each, for t-SNE and PCA.
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

    def records(self, classifier: str, image_shape: Sequence[int]) -> int | None:
        """Records that one of the thirteen classifiers is trained on at most; the CNN on as many as the protocol."""
        return self.max_train if classifier == classifiers.CNN else _for_size(self.max_train, math.prod(image_shape))


def _for_size(records: int | None, values: int) -> int | None:
    """Fewer records where an image has more than 784 values, so that the cost stays."""
    return None if records is None else min(records, max(200, records * 784 // values))


EFFORTS = {effort.name: effort for effort in (
    Effort(name="quick", num_synthetic=5_000, seeds=1, max_train=1_000, domain_epochs=10,
           domain_train=2_000, quality_images=2_000, neighbour_images=1_000, embedded_images=300),
    Effort(name="default"),
    Effort(name="full", max_train=None, domain_train=None),
)}


@dataclasses.dataclass(frozen=True, kw_only=True)
class Evaluation:
    """What came out.

    Attributes:
      metrics: the content of `metrics.json`.
      charts: name -> matplotlib Figure.
    """

    metrics: dict[str, Any]
    charts: dict[str, Any]


class Stages:
    """Tells which part of an evaluation is running: a bar on a terminal, plain lines otherwise."""

    def __init__(self, names: Sequence[str], stream: TextIO):
        self._names, self._stream, self._bar, self._done = names, stream, None, 0
        self.seconds: dict[str, float] = {}

    def run(self, name: str, compute: Callable[[], Any]) -> Any:
        """Calls `compute` under the name."""
        if self._stream.isatty():
            import tqdm

            self._bar = self._bar or tqdm.tqdm(total=len(self._names), file=self._stream, unit="part", leave=False)
            self._bar.set_description_str(name)
        else:
            print(f"[{self._done + 1}/{len(self._names)}] {name}", file=self._stream, flush=True)
        start = time.monotonic()
        result = compute()
        self.seconds[name] = round(time.monotonic() - start, 2)
        self._done += 1
        if self._bar:
            self._bar.update()
        return result

    def keras_callbacks(self) -> list[Any]:
        """A bar of its own for a training."""
        if not self._stream.isatty():
            return []
        from tqdm.keras import TqdmCallback

        return [TqdmCallback(verbose=0, leave=False)]

    def close(self) -> None:
        """Ends the bar."""
        if self._bar:
            self._bar.close()


def evaluate(draw: Callable[[int], tuple[np.ndarray, np.ndarray]], train: Dataset | None, test: Dataset, *,
             source: str, varied: str, effort: Effort = EFFORTS["default"], metrics: Sequence[str] = METRICS,
             seeds: Sequence[int] | None = None, epochs: int | None = None,
             protocol: classifier.Protocol = classifier.FROZEN, state_dir: pathlib.Path | None = None,
             inception_weights: str | None = None, cache: Cache | None = None,
             stream: TextIO | None = None) -> Evaluation:
    """Evaluates synthetic records.

    Args:
      draw: seed -> synthetic images and labels. Only the protocol draws with several seeds.
      train: the real records that the generator was trained on; may be None for `utility` alone.
      test: other real records.
      source: what the synthetic records are, in words.
      varied: what differs between the seeds, in words.
      effort: of `EFFORTS`.
      metrics: of `METRICS`.
      seeds, epochs: of the utility protocol; by default the effort's.
      protocol, state_dir: of the utility protocol, see `classifier.train_on_synthetic`.
      inception_weights: also measures with InceptionV3, see `image_quality.InceptionFeatures`.
      cache: of what is computed from real data.
      stream: where progress is told; by default stderr.

    Raises:
      DataError: records that are not what they must be, or do not fit each other.
      InvalidArgumentError: an unknown metric, or no training records where they are needed.
    """
    for name in metrics:
        _validate.one_of("metric", name, METRICS)
    if train is None and set(metrics) != {"utility"}:
        raise InvalidArgumentError("Expected training records: only the metric utility does without.")
    require_extra()
    start = time.monotonic()
    seeds = range(effort.seeds) if seeds is None else seeds
    epochs = effort.epochs if epochs is None else epochs
    test = usable_only(test)
    train = None if train is None else usable_only(train)
    synthetic = as_dataset(*draw(seeds[0]), test.num_classes, name="synthetic data", class_names=test.class_names)
    classifier.check_fit(synthetic, test)
    cache = cache or Cache()
    # What can be refused is refused before hours of computing.
    inception = None if inception_weights is None else image_quality.InceptionFeatures(inception_weights)
    stages = Stages(_stage_names(metrics, train is not None, inception is not None), stream or sys.stderr)
    found = Evaluation(metrics={
        "schema_version": SCHEMA_VERSION, "dataset": test.name, "source": source, "mode": effort.name,
        "num_synthetic": len(synthetic), "privacy_note": PRIVACY_NOTE}, charts={})
    try:
        if "utility" in metrics:
            _utility(found, draw, train, test, effort, seeds, epochs, protocol, state_dir, cache, stages)
            found.metrics["utility"]["varied"] = varied
        if "classifiers" in metrics:
            _classifiers(found, synthetic, train, test, effort, int(seeds[0]), cache, stages)
        if "quality" in metrics:
            _quality(found, synthetic, train, test, effort, inception, cache, stages)
        if "membership" in metrics:
            _membership(found, synthetic, train, test, effort, stages)
    finally:
        stages.close()
    found.metrics["cost"] = {
        "seconds": round(time.monotonic() - start, 1), "seconds_by_part": stages.seconds,
        "peak_memory_gib": round(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 2 ** 20, 2),
        **environment()}
    return found


def require_extra() -> None:
    """Raises InvalidArgumentError unless the extra `eval` is installed."""
    for package in ("matplotlib", "xgboost", "jinja2"):
        try:
            __import__(package)
        except ImportError as error:
            raise InvalidArgumentError(f"Evaluation needs {package}: install datalens_tf with its extra eval, "
                                       "pip install 'datalens_tf[eval]'.") from error


def environment() -> dict[str, Any]:
    """Hardware and versions that the numbers were made with."""
    packages = ("tensorflow", "scikit-learn", "xgboost-cpu", "numpy", "scipy")
    return {"processor": _processor(), "cores": os.cpu_count(), "python": platform.python_version(),
            "packages": {name: importlib.metadata.version(name) for name in packages if _installed(name)}}


def _utility(found, draw, train, test, effort, seeds, epochs, protocol, state_dir, cache, stages) -> None:
    """The headline, beside the same training on real data."""
    def cut(records):
        images, labels = records
        dataset = as_dataset(images, labels, test.num_classes, name="synthetic data")
        dataset = classifiers.subset(dataset, effort.num_synthetic, 0)
        return dataset.images, dataset.labels

    section = stages.run("utility, synthetic data", lambda: utility.evaluate_draws(
        lambda seed: cut(draw(seed)), test, seeds=seeds, epochs=epochs, protocol=protocol, state_dir=state_dir,
        cache=cache, callbacks=stages.keras_callbacks()))
    if train is not None and protocol.name == classifier.FROZEN.name:
        real = stages.run("utility, real data", lambda: utility.train_or_recall(
            *cut((train.images, train.labels)), test, cache, epochs=section["epochs"],
            callbacks=stages.keras_callbacks()))
        section["real"] = {"accuracy": real.accuracy, "num_train": real.num_synthetic, "seed": real.seed,
                           "calibrated": section["accuracy_mean"] / real.accuracy}
    found.metrics["utility"] = section
    found.charts["confusion"] = charts.confusion_chart(section["confusion_matrix"], test.class_names)
    found.charts["roc"] = charts.roc_chart(section["roc_curves"], section["auroc_per_class"], test.class_names)


def _classifiers(found, synthetic, train, test, effort, seed, cache, stages) -> None:
    """The thirteen of GS-WGAN, on synthetic and on real data. Each is stored: an interrupted evaluation goes on."""
    import threadpoolctl

    results: dict[str, dict[str, Any]] = {}
    for name in classifiers.CLASSIFIERS:
        size = effort.records(name, test.image_shape)

        def trained(on, name=name, size=size):
            key = {"what": "classifier", "name": name, "settings": classifiers.SETTINGS_VERSIONS[name],
                   "data": data_key(on, test), "max_train": min(size or len(on), len(on)), "seed": seed,
                   "versions": environment()["packages"]}
            return cache.json(key, lambda: dataclasses.asdict(
                classifiers.train_classifier(name, on, test, max_train=size, seed=seed, cache=cache)))

        # Side by side, for most of them use one core: libraries that would use more get in each other's way. What is
        # the same is computed once.
        together = name != classifiers.CNN and data_key(train) != data_key(synthetic)
        with (warnings.catch_warnings(), threadpoolctl.threadpool_limits(1 if together else None),
              concurrent.futures.ThreadPoolExecutor(1 + together) as executor):
            real, fake = stages.run(name, lambda: list(executor.map(trained, (train, synthetic))))
        result = {"real": real, "synthetic": fake}
        results[name] = result | {"calibrated": result["synthetic"]["accuracy"] / result["real"]["accuracy"]}
    kinds = ("synthetic", "real")
    means = {kind: float(np.mean([result[kind]["accuracy"] for result in results.values()]))
             for kind in kinds}
    found.metrics["classifiers"] = {
        "per_classifier": results, "average": means | {"calibrated": means["synthetic"] / means["real"]}, "seed": seed}
    found.charts["classifiers"] = charts.classifier_chart(
        *({name: result[kind]["accuracy"] for name, result in results.items()} for kind in kinds))


def _quality(found, synthetic, train, test, effort, inception, cache, stages) -> None:
    """Inception Score, Frechet distances, precision and its kin, distances to real records, and where records lie."""
    some = classifiers.subset(train, _for_size(effort.domain_train, math.prod(test.image_shape[:2])), 0)
    network = stages.run("domain classifier", lambda: domain_classifier(
        some, test, epochs=effort.domain_epochs, cache=cache, callbacks=stages.keras_callbacks()))
    logits, features = stages.run("features, synthetic data", lambda: network(synthetic.images))
    test_logits, test_features = stages.run("features, real data", lambda: network(test.images))
    few, real_few = _first(effort.quality_images, features), _first(effort.quality_images, test_features)
    score = image_quality.inception_score(logits)
    real_score = image_quality.inception_score(test_logits)
    section: dict[str, Any] = {
        "domain_classifier": {"test_accuracy": network.test_accuracy, "epochs": network.epochs,
                              "features": few.shape[1]},
        "inception_score": {"mean": score[0], "std": score[1], "real_test": real_score[0], "num_images": len(logits)},
        "frechet_domain_classifier": {
            "value": image_quality.frechet_distance(few, real_few), "num_synthetic": len(few),
            "num_real": len(real_few), "note": "Features of the domain classifier: not FID, and no number to compare "
                                               "with FID."},
        "label_agreement": {"value": float(np.mean(np.argmax(logits, axis=1) == synthetic.labels)),
                            "note": "Share of synthetic images that the domain classifier takes for their label."},
    }
    if inception is not None:
        pictures = [_first(effort.quality_images, images) for images in (synthetic.images, test.images)]
        both = [stages.run(f"InceptionV3, {name} data", lambda images=images: inception(images))
                for name, images in zip(("synthetic", "real"), pictures)]
        section["fid_inception_v3_keras"] = {
            "value": image_quality.frechet_distance(*both), "num_synthetic": len(both[0]), "num_real": len(both[1]),
            "note": "InceptionV3 with Keras' ImageNet weights; differs from FID with the weights of 2015."}
    fewer, real_fewer = _first(effort.neighbour_images, features), _first(effort.neighbour_images, test_features)
    section["manifold"] = stages.run("precision, recall, density, coverage",
                                     lambda: image_quality.manifold_metrics(real_fewer, fewer)) | {
        "num_images": len(fewer), "neighbours": image_quality.NEIGHBOURS}
    near = [_first(effort.neighbour_images, images) for images in (synthetic.images, test.images)]
    distances = stages.run("nearest real records", lambda: [
        image_quality.nearest_distances(images, train.images) for images in near])
    section["nearest_real"] = image_quality.memorisation(*distances) | {"num_images": len(near[0])}
    found.metrics["quality"] = section
    found.charts["distances"] = charts.distance_chart(*distances)
    _embeddings(found, synthetic, test, effort, stages)


def _membership(found, synthetic, train, test, effort, stages) -> None:
    """Attacks that try to tell training records from test records by the synthetic images."""
    members, others = (classifiers.subset(dataset, effort.neighbour_images, 0) for dataset in (train, test))
    found.metrics["membership"] = stages.run("membership inference", lambda: membership.membership_attacks(
        synthetic.images, synthetic.labels, members.images, members.labels, others.images, others.labels))


def _embeddings(found, synthetic, test, effort, stages) -> None:
    """Synthetic and real test records in one plane, by PCA and t-SNE of pixels."""
    import threadpoolctl
    from sklearn.decomposition import PCA
    from sklearn.manifold import TSNE

    both = [classifiers.subset(dataset, effort.embedded_images, 0) for dataset in (test, synthetic)]
    pixels = np.concatenate([classifiers.flat(dataset.images) for dataset in both])
    labels = np.concatenate([dataset.labels for dataset in both])
    is_real = np.arange(len(pixels)) < len(both[0])

    def tsne():
        components = PCA(min(50, *pixels.shape), random_state=0).fit_transform(pixels)
        # It synchronises threads so often that with another process on the machine one thread is many times faster.
        with threadpoolctl.threadpool_limits(1, "openmp"):
            return TSNE(perplexity=min(30, (len(pixels) - 1) / 3), random_state=0).fit_transform(components)

    for name, title, compute in (("pca", "principal component", lambda: PCA(2, random_state=0).fit_transform(pixels)),
                                 ("tsne", "t-SNE", tsne)):
        points = stages.run(f"{name} picture", compute)
        found.charts[name] = charts.embedding_chart(points, is_real, labels, test.class_names, title)


def _stage_names(metrics: Sequence[str], with_train: bool, with_inception: bool) -> list[str]:
    """One per part, for their number."""
    names = ["synthetic", "real"][:1 + with_train] if "utility" in metrics else []
    if "classifiers" in metrics:
        names += classifiers.CLASSIFIERS
    if "membership" in metrics:
        names.append("membership")
    if "quality" in metrics:
        names += ["domain classifier", "features", "features", "manifold", "nearest", "pca", "tsne"]
        names += ["inception", "inception"] if with_inception else []
    return names


def _first(count: int, rows: np.ndarray) -> np.ndarray:
    """A spread of at most `count` rows over all of them: stored sets may be sorted by class."""
    return rows if len(rows) <= count else rows[np.linspace(0, len(rows) - 1, count).astype(np.int64)]


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
