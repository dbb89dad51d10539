"""Private image generators for use in Python: `fit`, `sample`, `evaluate`, `save`, `load`, for all methods alike.

Training goes through `methods.plans`, as on the command line.
"""

from __future__ import annotations

import base64
import contextlib
import functools
import html
import os
import pathlib
import shutil
import sys
import tempfile
import warnings
from collections.abc import Mapping, Sequence
from typing import Any, Self

from etils import epy

from datalens_tf import _checksums, _files, _validate
from datalens_tf.errors import DataWarning, InvalidArgumentError
from datalens_tf.methods import plans, registry, runs
from datalens_tf.options import PerformanceOptions
from datalens_tf.samples import COLUMNS, ROWS, Samples
from datalens_tf.settings import declared

with epy.lazy_imports():
    import numpy as np

    from datalens_tf.accounting import accountants, verification, wording
    from datalens_tf.data import arrays, datasets
    from datalens_tf.data import registry as data_registry
    from datalens_tf.evaluation import context as evaluations
    from datalens_tf.evaluation import evaluate as evaluating
    from datalens_tf.evaluation import registry as metric_registry
    from datalens_tf.serving import export, sampling
    from datalens_tf.training import classifier, run_folder
    from datalens_tf.training import progress as progresses

_READING = ("skip_unreadable", "picture_bits")  # settings by which a run's pictures are read
_PARAMETERS = ("method", "epsilon", "delta", "classes", "preset", "image_size", "color", "unlabelled", "data_dir")


class Readable(dict[str, Any]):
    """A dictionary that prints as a text for people."""

    def __init__(self, values: Mapping[str, Any], text: str):
        super().__init__(values)
        self._text = text

    def __str__(self) -> str:
        return self._text

    def _repr_html_(self) -> str:
        """The text, for notebooks."""
        return f"<pre>{html.escape(self._text)}</pre>"


class ImageGenerator:
    """A private generator of images, by any method; scikit-learn's `clone` accepts it.

    Args:
      method: a name that `datalens_tf.methods()` lists; None takes what suits the data best.
      epsilon: privacy budget. None takes the smallest that the data set has settings for, else 1. For a method that is
        not private, None means no budget.
      delta: the budget's other half. With None, it is at most 1e-5, and at most a tenth of 1/n.
      classes: names of the classes that are declared to be public, or how many there are; None takes those of the data.
      preset: data set whose settings are taken.
      image_size: H, or (H, W), that pictures of files are brought to.
      color: `rgb` or `grey`, of pictures of files.
      unlabelled: whether there is one class, of all records.
      data_dir: folder of TensorFlow Datasets; None takes `TFDS_DATA_DIR`.
      settings: any settings of the method, and options of speed, as `datalens train --method NAME --help` lists them.

    Raises:
      InvalidArgumentError: there is no such setting.

    Example:
      >>> import sklearn.base
      >>> from datalens_tf import ImageGenerator
      >>> generator = ImageGenerator(epsilon=1.0, num_teachers=100)
      >>> sklearn.base.clone(generator).set_params(epsilon=3.0)
      ImageGenerator(epsilon=3.0, num_teachers=100)
    """

    def __init__(self, method: str | None = None, epsilon: float | None = None, delta: float | str | None = None,
                 classes: Sequence[str] | int | None = None, *, preset: str | None = None,
                 image_size: int | tuple[int, int] | None = None, color: str | None = None, unlabelled: bool = False,
                 data_dir: _files.PathLike | None = None, **settings: Any):
        self.method, self.epsilon, self.delta, self.classes, self.preset = method, epsilon, delta, classes, preset
        self.image_size, self.color, self.unlabelled, self.data_dir = image_size, color, unlabelled, data_dir
        _check_names(settings)
        self.settings = settings
        self._folder: pathlib.Path | None = None
        self._temporary: tempfile.TemporaryDirectory[str] | None = None

    def get_params(self, deep: bool = True) -> dict[str, Any]:
        """Everything that the generator was made with, by name; `deep` changes nothing."""
        del deep
        return {name: getattr(self, name) for name in _PARAMETERS} | self.settings

    def set_params(self, **params: Any) -> Self:
        """Changes what the generator was made with; returns itself. Raises InvalidArgumentError for unknown names."""
        settings = {name: value for name, value in params.items() if name not in _PARAMETERS}
        _check_names(settings)
        for name in set(params) - set(settings):
            setattr(self, name, params[name])
        self.settings = self.settings | settings
        return self

    def __repr__(self) -> str:
        given = [f"{name}={value!r}" for name, value in self.get_params().items() if value not in (None, False)]
        text = f"ImageGenerator({', '.join(given)})"
        return text if self._folder is None else f"{text}, fitted: {self._summary()}"

    def fit(self, images: Any, labels: Any = None, *, users: Any = None, units: Any = None,
            run_dir: _files.PathLike | None = None, resume: bool = False, progress: bool = True) -> Self:
        """Trains; returns itself.

        Args:
          images: the sensitive records, in an order that does not depend on their content (see `arrays.of_python`); the
            path of a folder of pictures, or of an `npz` or Parquet file; or the name of a data set.
          labels: integers or names, [n]; None where a path or a `tf.data.Dataset` has them, or where there are none.
          users: the user of each record, [n], for methods that protect users.
          units: the unit of each record, [n], a patient for example; all records of one unit are protected together.
          run_dir: the run folder, by default a temporary one. Its part `private` must never leave it.
          resume: continues the run in `run_dir`, which was interrupted.
          progress: whether stderr says what is done, and how long it may take.

        Raises:
          DataError: records that cannot be used; the line says how to convert them.
          InvalidArgumentError: from the settings.
          BudgetExhaustedError: the budget does not pay for a step.
        """
        if resume and run_dir is None:
            raise InvalidArgumentError("Missing run_dir: say which folder holds the run to resume.")
        temporary = tempfile.TemporaryDirectory(prefix="datalens-")
        folder = pathlib.Path(temporary.name if run_dir is None else run_dir)
        runs.check_folder(folder, resume=resume)
        request = self._request(images, labels, users, units)
        options = PerformanceOptions(**{name: value for name, value in self.settings.items()
                                        if name in declared(PerformanceOptions)})
        with progresses.Progress(detail="normal" if progress else "quiet") as shown:
            shown.on_stage("load")
            plan = plans.resumed(request, folder) if resume else plans.planned(request)
            plans.check_options(plan.config, options)
            if plan.chosen is not None and progress:
                print(plan.chosen, file=sys.stderr)
            for warning in plan.warnings:
                warnings.warn(warning, DataWarning, stacklevel=2)
            plans.create(plan, folder)
            shown.epsilon = plan.config.epsilon
            plans.train(plan, folder, options=options, callbacks=[shown])
        self._folder, self._temporary = folder, temporary  # An earlier fit's folder lasts until it is replaced here.
        self.__dict__.pop("_drawers", None)
        return self

    def _request(self, images: Any, labels: Any, users: Any, units: Any) -> plans.Request:
        """The request for a run with these parameters."""
        classes = self._declared()
        given = {name: value for name, value in self.settings.items() if name not in declared(PerformanceOptions)}
        given |= {name: value for name, value in (("epsilon", self.epsilon), ("delta", self.delta),
                                                  ("classes", classes)) if value is not None}
        records = None
        if not arrays.is_place(images):
            records = arrays.of_python(images, labels, classes=classes, users=users, units=units,
                                       unit=self.settings.get("unit"))
            if self.unlabelled:
                records = datasets.one_class(records)
            records = datasets.shaped(records, self._pictures())
            given["dataset"] = arrays.NAME
        elif labels is not None or users is not None or units is not None:
            raise InvalidArgumentError(f"Expected no labels beside the path {os.fspath(images)!r}, whose data have "
                                       "their own: leave them out.")
        else:
            given["dataset"] = os.fspath(images)
        return plans.Request(method=self.method, preset=self.preset, given=given, records=records,
                            data_dir=None if self.data_dir is None else os.fspath(self.data_dir),
                            pictures=self._pictures())

    def _declared(self) -> tuple[str, ...] | None:
        """The classes that are declared."""
        from datalens_tf.config import check_classes, numbered

        if self.classes is None or isinstance(self.classes, int):
            return numbered(self.classes)
        return check_classes(tuple(self.classes))

    def _pictures(self) -> datasets.Pictures:
        size = (self.image_size, self.image_size) if isinstance(self.image_size, int) else self.image_size
        return datasets.Pictures(image_size=size, color=self.color, unlabelled=self.unlabelled,
                                 skip_unreadable=self.settings.get("skip_unreadable", False),
                                 bits=self.settings.get("picture_bits"))

    def sample(self, n: int, label: Any = None, *, seed: int | None = None, looking: bool = False) -> Samples:
        """Draws synthetic images.

        Args:
          n: how many.
          label: a class, by name or number, or several classes, which are taken in turn; None for all classes, as
            equally often as possible, in random order.
          seed: makes the draw reproducible.
          looking: whether images are for people, without the moves, grain and rectangles that some generators
            add for classifiers to learn from.

        Raises:
          InvalidArgumentError: there is no such class, or nothing was fitted.
        """
        names = self._drawers.class_names
        _validate.integer("n", n, at_least=1, at_most=sampling.MOST_IMAGES)
        if seed is not None:
            _validate.integer("seed", seed)
        if label is not None and np.size(label) == 0:
            raise InvalidArgumentError(f"Expected label={label!r} to name a class, or several, of "
                                       f"{datasets.listed(names)}; None is all.")
        labels = None if label is None else np.resize(arrays.places_of(label, names), n)
        draw = self._drawers.looking if looking else self._drawers.training
        drawn, drawn_labels = draw(n, labels=labels, seed=seed)
        return Samples(drawn, drawn_labels, names)

    @functools.cached_property
    def _drawers(self) -> Any:
        return runs.drawers(self._fitted)

    @property
    def _fitted(self) -> pathlib.Path:
        """The folder of the run, or of an exported generator."""
        return _validate.known("run_dir", self._folder, "to hold a trained generator: call fit first")

    @property
    def _is_run(self) -> bool:
        return (self._fitted / "config.json").is_file()

    @property
    def class_names(self) -> tuple[str, ...]:
        """Names of the classes, in the order of their labels."""
        return tuple(self._drawers.class_names)

    @property
    def config(self) -> Any:
        """All settings of the run, a `MethodConfig`.

        Raises:
          InvalidArgumentError: it is an exported generator, which does not contain its settings.
        """
        if not self._is_run:
            raise InvalidArgumentError(f"Expected a run, got the exported generator {self._fitted}: its settings are "
                                       "in its run folder.")
        return runs.stored_config(self._fitted)

    @property
    def privacy(self) -> Readable:
        """The privacy statement: a dictionary that has `epsilon` and `delta` among its keys, and that prints as text.

        Raises:
          LedgerError: the statement does not follow from the ledger.
        """
        statement = verification.run_statement(self._fitted) if self._is_run else _validate.known(
            "privacy", verification.export_statement(self._fitted), "to be beside the generator: load its run folder")
        return Readable(statement, wording.render_text(statement))

    def _summary(self) -> str:
        """The method and the guarantee, in a line."""
        said = self.privacy
        guarantee = said["title"] if not said["private"] else (
            f"epsilon {accountants.round_up(said['epsilon'])} ({said['accountant']}), delta {said['delta']:g}, "
            f"{said['adjacency']}")
        return f"{said['method']}, {guarantee}"

    def _repr_html_(self) -> str:
        """The guarantee and a picture, for notebooks."""
        if self._folder is None:
            return f"<p>{html.escape(repr(self))}</p>"
        picture = self.sample(ROWS * COLUMNS, range(len(self.class_names[:ROWS])), seed=0, looking=True)._repr_png_()
        return (f"<p>{html.escape(self._summary())}</p>"
                f'<img alt="synthetic images" src="data:image/png;base64,{base64.b64encode(picture).decode()}">')

    def evaluate(self, images: Any, labels: Any = None, *, train: Any = None,
                 metrics: str | Sequence[str] | None = None, effort: str = "quick", seeds: int | None = None,
                 epochs: int | None = None, progress: bool = True) -> Readable:
        """Measures how useful the images are, on real records that no generator has seen.

        Epsilon does not cover what is measured.

        Args:
          images, labels: the real records, as for `fit`; where a path or a name is given, its test split.
          train: images and labels that the generator was trained on, or a path or name, whose training split is taken.
            Some metrics ask for them.
          metrics: one or more names, as `datalens evaluate --help` lists them; None for all that these records are
            enough for.
          effort: `quick`, `default` or `full`.
          seeds: number of classifiers; None takes the effort's.
          epochs: number of epochs of a classifier; None takes the effort's.
          progress: whether stderr says what is done.

        Returns:
          The content of `metrics.json`, which prints as one line for each metric.

        Raises:
          DataError: records of other classes or sizes than the generator's.
          InvalidArgumentError: an unknown metric, the records that the generator was trained on, or the extra `eval` is
            not installed.
        """
        evaluating.require_extra()
        _validate.one_of("effort", effort, evaluations.EFFORTS)
        declared_metrics = metric_registry.declared()
        pair: tuple[Any, Any] = (train, None) if train is None or arrays.is_place(train) else train
        metrics = [metrics] if isinstance(metrics, str) else metrics
        chosen = [name for name, metric in declared_metrics.items() if train is not None or not metric.needs_train]
        test = self._records(images, labels, "test")
        evaluating.check_alike(test, self._image_shape, self.class_names)
        if run_folder.RunFolder(self._fitted).trained_on(test):
            raise InvalidArgumentError("Expected other records than those that the generator was trained on, got the "
                                       "same: keep some out of `fit`, and give them.")
        count = evaluations.EFFORTS[effort].num_synthetic or classifier.FROZEN.num_synthetic

        draw, show = self._drawers.for_evaluation(count)
        with progresses.Progress(detail="normal" if progress else "quiet") as shown:
            result = evaluating.evaluate(
                draw, None if train is None else self._records(*pair, "train"), test,
                show=show, source="Samples of a generator",
                varied="Between seeds the classifier and the synthetic images differ. The generator was trained once.",
                effort=evaluations.EFFORTS[effort], metrics=chosen if metrics is None else metrics,
                seeds=None if seeds is None else range(seeds), epochs=epochs, progress=shown)
        lines = [metric_registry.metric(name).headline(result.metrics[name]) for name in declared_metrics
                 if name in result.metrics]
        return Readable(result.metrics, "\n".join(filter(None, lines)))

    def _records(self, images: Any, labels: Any, split: str) -> datasets.Dataset:
        """Real records of the generator's classes."""
        names, shape = self.class_names, self._image_shape
        if labels is None and len(names) > 1 and not arrays.is_place(images) and not hasattr(images, "element_spec"):
            raise InvalidArgumentError("Missing labels: give the class of each image, one of "
                                       f"{datasets.listed(names)}.")
        if arrays.is_place(images):
            place = data_registry.located(os.fspath(images))
            return data_registry.load_dataset(
                place, split=split, data_dir=None if self.data_dir is None else os.fspath(self.data_dir),
                classes=None if data_registry.has_public_classes(place) else names,
                pictures=self._pictures().fitting(shape, len(names)))
        return arrays.of_python(images, labels, class_names=names)

    @property
    def _image_shape(self) -> tuple[int, int, int]:
        folder = self._fitted / "generator" if self._is_run else self._fitted
        shape: tuple[int, int, int] = export.read_metadata(export.version_folder(folder))["image_shape"]
        return shape

    def save(self, path: _files.PathLike) -> pathlib.Path:
        """Writes what may be shared into a new folder, for `load` and every `datalens` command; returns the folder.

        It gets the generator, its settings, samples, ledger and statement, and nothing from the run's `private`, nor
        files that the run did not write.

        Raises:
          InvalidArgumentError: the folder exists.
          DataLensError: the operating system refuses.
        """
        target = pathlib.Path(path)
        _validate.require(not target.exists(), "path", os.fspath(path), "to be a new folder")
        files = run_folder.RunFolder(self._fitted)
        sources = list(files.sealed) if self._is_run else list(self._fitted.iterdir())
        aside = _files.temporary_sibling(target)
        with _files.clear_os_errors(target), contextlib.ExitStack() as stack:
            stack.callback(shutil.rmtree, aside, ignore_errors=True)
            aside.mkdir(parents=True)
            for source in filter(pathlib.Path.exists, sources):
                (shutil.copytree if source.is_dir() else shutil.copy2)(source, aside / source.name)
            if (sums := files.path / _checksums.NAME).exists():
                known, copied = _checksums.problems(files.path, sums)[1], set()
                for copy in filter(pathlib.Path.is_file, list(aside.rglob("*"))):
                    name = copy.relative_to(aside).as_posix()
                    if name in known:
                        copied.add(name)
                    else:
                        copy.unlink()  # Somebody put it there.
                _checksums.copy(sums, aside, copied)
            os.rename(aside, target)
        return target


def fit(images: Any, labels: Any = None, method: str | None = None, epsilon: float | None = None, *,
        users: Any = None, units: Any = None, run_dir: _files.PathLike | None = None, resume: bool = False,
        progress: bool = True, **params: Any) -> ImageGenerator:
    """Trains a private generator of images: `ImageGenerator(method, epsilon, **params).fit(images, labels)`.

    Example:
      A real run has more teachers and steps; without any settings, those that suit the data are taken.

      >>> import datalens_tf as dl
      >>> generator = dl.fit("digits", method="datalens", epsilon=10.0, num_teachers=8, top_k=8, num_steps=1,
      ...                    noise_stddev=100.0, generator_filters=2, generator_units=8, progress=False)
      >>> images, labels = generator.sample(10, label=3, seed=0)
      >>> images.shape, labels.max(), generator.privacy["epsilon"] <= 10
      ((10, 8, 8, 1), 3, True)
    """
    return ImageGenerator(method, epsilon, **params).fit(
        images, labels, users=users, units=units, run_dir=run_dir, resume=resume, progress=progress)


def load(path: _files.PathLike) -> ImageGenerator:
    """A trained generator from a run folder, from a folder of `ImageGenerator.save`, or from an export.

    Raises:
      CheckpointError: there is no generator.
      LedgerError: its statement does not follow from its ledger.

    Example:
      >>> import datalens_tf as dl
      >>> images, labels = dl.load("checkpoints/mnist_eps1").sample(5, seed=0)
      >>> images.shape
      (5, 28, 28, 1)
    """
    folder = pathlib.Path(path)
    if not (folder / "config.json").is_file():
        folder = export.version_folder(folder)
    generator = ImageGenerator()
    generator._folder = folder
    if generator._is_run:
        config = generator.config
        generator.set_params(method=config.method, epsilon=config.epsilon, delta=config.delta, classes=config.classes,
                             **{name: getattr(config, name) for name in _READING if getattr(config, name)})
    generator._drawers  # noqa: B018 (it is loaded here, so that damage is reported here)
    return generator


def _check_names(settings: Mapping[str, Any]) -> None:
    """Refuses settings that no method has."""
    known = {name for kind in (*registry.config_classes().values(), PerformanceOptions) for name in declared(kind)}
    known -= {*_PARAMETERS, "dataset", "image_shape", "num_classes"}
    for name in set(settings) - known:
        raise InvalidArgumentError(f"Unknown setting {name!r}.{_validate.did_you_mean(name, [*known, *_PARAMETERS])}")
