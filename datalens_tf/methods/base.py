"""Interface of every synthesizer, and the base of those whose training leaves a run folder."""

from __future__ import annotations

import abc
import json
import pathlib
import tempfile
import typing
from collections.abc import Callable, Mapping, Sequence
from typing import Any, ClassVar, Generic, Protocol, TypeVar

from etils import epy

from datalens_tf import _files, _text, _validate
from datalens_tf.config import MethodConfig, numbered
from datalens_tf.errors import CheckpointError, InvalidArgumentError
from datalens_tf.options import PerformanceOptions
from datalens_tf.training.callbacks import Stage
from datalens_tf.training.progress import described
from datalens_tf.training.results import result_file
from datalens_tf.training.student import AveragedGenerator

with epy.lazy_imports():
    import numpy as np
    import tensorflow as tf

    from datalens_tf.accounting import ledger as ledgers
    from datalens_tf.accounting import statement as statements
    from datalens_tf.accounting import verification, wording
    from datalens_tf.data import datasets, image_grid
    from datalens_tf.data import identity as identities
    from datalens_tf.mechanisms import noise as noises
    from datalens_tf.serving import export as exports
    from datalens_tf.serving import model_card, sampling, signatures
    from datalens_tf.training import callbacks as training_callbacks
    from datalens_tf.training import loop as loops
    from datalens_tf.training import posing
    from datalens_tf.training import run_folder as run_folders

if typing.TYPE_CHECKING:  # Help must not wait for numpy.
    from numpy.typing import NDArray

NUM_SHIPPED_SAMPLES = 10_000
_EXPORT = 150.0  # billions of operations that take as long as writing a generator


class Synthesizer(abc.ABC):
    """Learns from sensitive images and hands out synthetic ones. The command line knows only this interface.

    Example:
      >>> from datalens_tf import DataLens, Synthesizer
      >>> issubclass(DataLens, Synthesizer)
      True
    """

    @abc.abstractmethod
    def fit(self, images: NDArray[Any], labels: NDArray[Any], *, num_classes: int | None = None,
            units: NDArray[Any] | None = None) -> Synthesizer:
        """Trains on images uint8 or float in [0, 1], [n, H, W, C], with integer labels [n]; returns itself.

        Args:
          images, labels: the sensitive records, in an order that does not depend on their content.
          num_classes: number of classes Y, declared to be public. Records with other labels keep their place and
            contribute nothing. By default the number is that of the settings, else the largest label plus one, which is
            read from private labels and then taken to be public.
          units: integers or text [n] that say, for example, which patient each record belongs to. All records of one
            unit are protected together. By default each record is a unit of its own.
        """

    @abc.abstractmethod
    def sample(self, num_images: int, *, labels: NDArray[Any] | None = None, seed: int | None = None
               ) -> tuple[NDArray[Any], NDArray[Any]]:
        """Draws synthetic images uint8 [num_images, H, W, C] and their labels int64 [num_images].

        Args:
          num_images: number of images.
          labels: the labels to draw for; by default as even a mix of classes as possible, in random order.
          seed: makes the draw reproducible.
        """

    @abc.abstractmethod
    def privacy_statement(self) -> dict[str, Any]:
        """Privacy statement of the run, a JSON-able dictionary (`privacy.json` of the run folder)."""

    @abc.abstractmethod
    def export(self, directory: str, *, version: int = 1, step: int | None = None, license_text: str | None = None,
               with_metrics: bool = False, output_warp: float | None = None, output_grain: float | None = None,
               output_choices: int | None = None) -> pathlib.Path:
        """Writes the generator as a SavedModel `<directory>/<version>/` with its statement and card; returns the path.

        Args:
          directory: parent of the versions.
          version: integer >= 1 that does not exist yet.
          step: exports the generator as it was after this step, with the statement of the charges until then. By
            default the final generator is exported, with the statement of the whole run. Not every method keeps earlier
            generators.
          license_text: the terms under which the generator is handed out.
          with_metrics: the card says how useful the data is, according to an evaluation on real records. Epsilon does
            not cover the metrics: set this only where those records may be shared.
          output_warp, output_grain, output_choices: like the settings of these names, for a run that was trained
            without them. By default the images are those of the run.
        """


Config = TypeVar("Config", bound=MethodConfig)


class Trained(Protocol):
    """Result of training: a generator that can be handed out, such as an `AveragedGenerator`."""

    def released(self) -> Any:
        """The generator to hand out, with its `latent_dim`."""

    def sample_grid(self) -> NDArray[np.uint8]:
        """Images of the generator, uint8 [Y, n, H, W, C], one row per class."""


class RunSynthesizer(loops.Interruptible, Synthesizer, Generic[Config]):
    """Trains, samples and exports a generator; everything lives in a run folder. A method says how it trains.

    Args:
      config: settings; image_shape and num_classes are filled in by `fit`.
      run_dir: the run folder; a temporary one, kept until the process ends, if None.
      options: options that change speed only.
      callbacks: told about training.

    Raises:
      InvalidArgumentError: from the settings.
    """

    config_class: type[Config]

    def __init__(self, config: Config | None = None, *, run_dir: _files.PathLike | None = None,
                 options: PerformanceOptions = PerformanceOptions(),
                 callbacks: Sequence[training_callbacks.Callback] = ()):
        if run_dir is None:
            self._temporary = tempfile.TemporaryDirectory(prefix="datalens-")
            run_dir = self._temporary.name
        self.folder = run_folders.RunFolder(run_dir)
        self.config: Config = self.config_class() if config is None else config
        self._options, self._callbacks = options, callbacks
        self._generator: exports.LoadedGenerator | None = None

    @classmethod
    def from_preset(cls, name: str, *, epsilon: float | None = 1.0, run_dir: _files.PathLike | None = None,
                    options: PerformanceOptions = PerformanceOptions(),
                    callbacks: Sequence[training_callbacks.Callback] = (),
                    **changes: Any) -> typing.Self:
        """Makes a synthesizer with the preset for a data set at this epsilon, and with `changes` to its settings."""
        config = cls.config_class.preset(name, epsilon).replace(**changes)
        return cls(config, run_dir=run_dir, options=options, callbacks=callbacks)

    @classmethod
    def load(cls, run_dir: _files.PathLike) -> typing.Self:
        """Loads a finished run.

        Raises:
          CheckpointError: the folder holds no finished run.
          LedgerError: its statement does not follow from its ledger.
        """
        folder = run_folders.RunFolder(run_dir)
        if not folder.statement_json.exists():
            raise CheckpointError(f"{folder.path} holds no finished run: train in it first, with --resume to continue.")
        run = cls(cls.config_class.from_json(folder.config.read_text()), run_dir=run_dir)
        run.privacy_statement()
        return run

    def fit(self, images: NDArray[Any], labels: NDArray[Any], *, num_classes: int | None = None,
            units: NDArray[Any] | None = None) -> typing.Self:
        classes = numbered(num_classes) or self.config.classes
        return self.fit_dataset(datasets.as_dataset(
            images, labels, classes=classes, units=units, unit=self.config.unit or datasets.UNIT))

    def fit_dataset(self, dataset: datasets.Dataset) -> typing.Self:
        """`fit` for a data set; continues an interrupted run of the same settings and records."""
        if isinstance(dataset, datasets.Dataset):  # Owners check their own records.
            dataset, _ = datasets.hold_out(datasets.sound(dataset), self.config.holdout)
        num_users = None if dataset.owners is None else len(np.unique(dataset.owners))
        num_records = self.config.known_records(dataset.num_units)
        self.config = datasets.with_data(self.config, dataset).resolved(num_records, num_users)
        self._tell("on_plan", described(dataset, self.config.adjacency, num_records), [
            Stage("load"), *self._stages(num_records),
            Stage("samples", _EXPORT + NUM_SHIPPED_SAMPLES * self._image_work()), Stage("report", 1.0)])
        student, statement = self._train(dataset)
        with self._ending_at_once("after the training", self.folder.path):
            self._tell("on_stage", "samples")
            self._write_generator(student, self.folder.generator, statement, self._ledger(),
                                  class_names=dataset.class_names, overwrite=True)
            self._generator = None
            self._tell("on_progress", "generator saved", 0.5)
            grid = image_grid.image_grid(student.sample_grid())
            _files.atomic_write(self.folder.samples_png, image_grid.png_bytes(grid, scale=2))
            x, y = self.sample(NUM_SHIPPED_SAMPLES, seed=0)
            _files.atomic_write(self.folder.samples, _files.npz_bytes({"x": x, "y": y}))
            self._tell("on_stage", "report")
            _files.atomic_write(self.folder.statement_text, wording.render_text(statement))
            _files.atomic_write(self.folder.statement_json, json.dumps(statement, indent=2) + "\n")
            self.folder.seal()
        return self

    def _tell(self, event: str, *args: Any) -> None:
        """Calls the method `event` of every callback."""
        for callback in self._callbacks:
            getattr(callback, event)(*args)

    def _stages(self, num_records: int) -> list[Stage]:
        """Stages between loading and samples, with work estimated from public facts alone."""
        del num_records
        return [Stage("train", charged=self.config.adjacency != "none")]

    def _image_work(self) -> float:
        """Billions of operations for an image of the generator: the convolutions and the large dense layer."""
        config = self.config
        height, width, channels = config.data.image_shape
        filters = config.generator_filters
        return 2e-9 * height * width * filters * (25 / 16 * filters + 25 / 4 * channels + config.generator_units / 16)

    @abc.abstractmethod
    def _train(self, dataset: datasets.Dataset) -> tuple[Trained, dict[str, Any]]:
        """Trains with `self.config` in `self.folder`, or continues there; returns the generator and its statement.

        Raises:
          TrainingInterrupted: after `request_stop`.
        """

    def sample(self, num_images: int, *, labels: NDArray[Any] | None = None, seed: int | None = None
               ) -> tuple[NDArray[Any], NDArray[Any]]:
        self._generator = self._generator or exports.load_generator(self.folder.generator)
        return sampling.sample_from(self._generator.sample, self._generator.num_classes, num_images, labels=labels,
                                    seed=seed)

    def privacy_statement(self) -> dict[str, Any]:
        """Privacy statement of the run; raises LedgerError where it does not follow from the run's ledger."""
        if not self.folder.statement_json.exists():
            raise CheckpointError(f"{self.folder.path} holds no privacy statement: train to the end first.")
        return verification.run_statement(self.folder.path)

    def export(self, directory: _files.PathLike, *, version: int = 1, step: int | None = None,
               license_text: str | None = None, with_metrics: bool = False, output_warp: float | None = None,
               output_grain: float | None = None, output_choices: int | None = None) -> pathlib.Path:
        statement = self.privacy_statement()
        if not (self.folder.generator / "1").is_dir():
            raise CheckpointError(f"{self.folder.path} holds no generator: train to the end first.")
        terms = {} if license_text is None else {"LICENSE": license_text}
        poses = {name: value for name, value in (("output_warp", output_warp), ("output_grain", output_grain),
                                                 ("output_choices", output_choices)) if value is not None}
        if poses:
            if step is not None or with_metrics:
                raise InvalidArgumentError(f"Expected --{next(iter(poses))} without --step and --with_metrics: it is "
                                           "for the run's last generator, and what was evaluated is that without.")
            return self._export_posed(poses, directory, version, statement, terms)
        if step is not None:
            if with_metrics:
                raise InvalidArgumentError(f"Expected step={step} without metrics: what was evaluated is the generator "
                                           "after the last step. Leave out one of them.")
            return self._export_step(directory, version, step, statement["num_records"], terms)
        model = exports.read_metadata(self.folder.generator / "1")
        if verification.export_statement(self.folder.generator / "1") not in (None, statement):
            raise CheckpointError(f"The generator in {self.folder.generator} has the privacy statement of another run: "
                                  "put back the run's own.")
        return exports.copy_export(self.folder.generator / "1", directory, version=version, assets={
            **_statement_files(statement, model, self._ledger(), posing.described(self.config),
                               self._metrics() if with_metrics else None), **terms})

    def _export_posed(self, poses: Mapping[str, Any], directory: _files.PathLike, version: int,
                      statement: dict[str, Any], terms: Mapping[str, str]) -> pathlib.Path:
        """Exports the generator wrapped in these output settings: post-processing, under the same statement."""
        loaded = exports.load_generator(self.folder.generator)
        if loaded.has_looking:
            given = " and ".join(f"--{name}={value:g}" for name, value in poses.items())
            raise InvalidArgumentError(f"Expected no {given}: the images of {self.folder.path} have a warp, grain or a "
                                       "choice already. Leave out what is given.")
        config = self.config.replace(**poses)
        generator, distribution = posing.posed(signatures.Released(loaded.model, loaded.latent_dim), config)
        return self._write(generator, distribution, directory, statement, self._ledger(), terms=terms, version=version,
                           class_names=loaded.class_names, images=posing.described(config))

    def _ledger(self) -> bytes | None:
        """The ledger, which goes with the statement so that others can compute the price again."""
        return ledgers.PrivacyLedger.read(self.folder.ledger).content if self.folder.ledger.exists() else None

    def _metrics(self) -> dict[str, Any]:
        """Results of an evaluation of the generator."""
        path = result_file(self.folder.path)
        try:
            metrics: dict[str, Any] = _files.parse_json(path.read_text())
            return metrics
        except (OSError, ValueError) as error:
            raise CheckpointError(f"Cannot read {path}: {error}. Evaluate the run first, or export without "
                                  "metrics.") from error

    def _export_step(self, directory: _files.PathLike, version: int, step: int, num_records: int,
                     terms: Mapping[str, str]) -> pathlib.Path:
        """Exports an earlier state, where the method keeps them."""
        raise InvalidArgumentError(f"--step {step} is not available: {self.config.method} keeps only the final "
                                   "generator. Leave out --step.")

    def _write_generator(self, student: Trained, directory: _files.PathLike, statement: dict[str, Any],
                         ledger: bytes | None, **options: Any) -> pathlib.Path:
        """Writes a generator to hand out, with its statement."""
        generator, distribution = posing.posed(student.released(), self.config)
        return self._write(generator, distribution, directory, statement, ledger,
                           images=posing.described(self.config), **options)

    def _write(self, generator: Any, distribution: str, directory: _files.PathLike, statement: dict[str, Any],
               ledger: bytes | None, *, class_names: Sequence[str], images: str,
               terms: Mapping[str, str] | None = None, **options: Any) -> pathlib.Path:
        """Writes a generator, whose latents have this distribution, as a SavedModel."""
        model = {**self.config.data._asdict(), "class_names": class_names}
        return exports.export_generator(
            generator, directory, latent_dim=generator.latent_dim, num_classes=self.config.data.num_classes,
            latent_distribution=distribution, class_names=class_names, **options, assets={
                **_statement_files(statement, model, ledger, images), "LICENSE": model_card.LICENSE, **(terms or {})})


class Learner(abc.ABC):
    """A generator and what it learns from, in steps that a `Loop` takes.

    Attributes:
      student: the generator.
      REPORT_EVERY: after how many steps, at most 100, callbacks are told.
    """

    student: AveragedGenerator
    REPORT_EVERY: ClassVar[int] = 100

    @abc.abstractmethod
    def variables(self) -> list[tf.Variable]:
        """All there is to save."""

    @abc.abstractmethod
    def train(self, step: int, charge: int) -> float:
        """Takes one step, paid for by the charge of this index; a method that is not private is given no charge.

        Returns:
          The generator's loss, a function of what was released.
        """

    @abc.abstractmethod
    def guarantee(self, num_steps: int, ledger: ledgers.PrivacyLedger | None) -> statements.Guarantee:
        """Account of the method's privacy after `num_steps` steps, which this ledger was charged for."""

    def warm_up(self, stopped: Callable[[], bool]) -> None:  # noqa: B027 (most have none)
        """Works before the first charge; raises KeyboardInterrupt once `stopped()` is true. By default does nothing."""

    def finish(self, private: pathlib.Path) -> None:  # noqa: B027 (most have nothing)
        """Writes files that only the records' owner may see into the private folder. By default does nothing."""


class LoopSynthesizer(RunSynthesizer[Config]):
    """Trains a `Learner` by a `Loop`: each step is charged, unless the method is not private."""

    @abc.abstractmethod
    def _learner(self, dataset: datasets.Dataset, noise: noises.NoiseSource) -> Learner:
        """The learner to train, with the resolved settings `self.config`.

        Raises:
          DataError: the records are too few, or otherwise unfit for the method.
        """

    def _identity(self, dataset: datasets.Dataset) -> identities.Identity:
        """Identity of the data, which a resumed run must find again."""
        return identities.identity_of(dataset)

    def _train(self, dataset: datasets.Dataset) -> tuple[AveragedGenerator, dict[str, Any]]:
        config, event, noise = self.config, self.config.step_event(), noises.noise_source(self.config)
        learner = self._learner(dataset, noise)
        with run_folders.opened_any(self.folder, config, self._identity(dataset), event) as ledger:
            self._stop_requested = False
            loop = loops.Loop(self.folder, learner.student, learner.variables(),
                              num_steps=_validate.known("num_steps", config.num_steps),
                        checkpoint_minutes=self._options.checkpoint_minutes, callbacks=self._callbacks, ledger=ledger,
                        event=event, report_every=learner.REPORT_EVERY, stopped=self._stopped)
            self._tell("on_stage", "train")
            if not loop.has_snapshot:
                learner.warm_up(self._stopped)
            loop.run(learner.train)
            learner.finish(self.folder.private)
        statement = statements.make_statement(
            config, learner.guarantee(loop.done, ledger), ledger, loop.num_burnt, noise, dataset.num_units)
        return learner.student, statement | {"num_steps": loop.done}


def _statement_files(statement: dict[str, Any], model: Mapping[str, Any], ledger: bytes | None, images: str,
                     metrics: dict[str, Any] | None = None) -> dict[str, str | bytes]:
    """Files of an export: its guarantee for programs, in full and in short, and the ledger."""
    statement = statement | {"dataset": _text.without_folders(statement["dataset"])}  # Older runs have a path there.
    return {**({} if ledger is None else {verification.LEDGER: ledger}),
            "privacy.json": json.dumps(statement, indent=2) + "\n", "privacy.txt": wording.render_text(statement),
            "MODEL_CARD.md": model_card.render_card(statement, model, metrics, images)}
