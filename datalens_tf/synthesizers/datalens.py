"""DataLens: a generator from noisy votes of teacher discriminators (Wang et al., CCS 2021)."""

import json
import os
import pathlib
import tempfile
from typing import Any, Sequence

import numpy as np

from datalens_tf import _files, _validate, rng
from datalens_tf.config import DataLensConfig, PerformanceOptions, preset
from datalens_tf.data.datasets import Dataset, as_dataset
from datalens_tf.errors import CheckpointError, InvalidArgumentError
from datalens_tf.evaluation.plots import image_grid, png_bytes
from datalens_tf.mechanisms.noise import noise_source
from datalens_tf.mechanisms.topagg import TopAgg
from datalens_tf.privacy.ledger import PrivacyLedger
from datalens_tf.privacy.statement import privacy_statement, render_text
from datalens_tf.serving.export import LoadedGenerator, export_generator, load_generator
from datalens_tf.synthesizers.base import Synthesizer
from datalens_tf.training.callbacks import Callback
from datalens_tf.training.checkpoint import ReleaseStore
from datalens_tf.training.student import Student
from datalens_tf.training.trainer import RunFolder, Trainer, replay

NUM_SHIPPED_SAMPLES = 10_000


class DataLens(Synthesizer):
    """Trains, samples and exports a DataLens generator; everything lives in a run folder.

    Args:
      config: settings; image_shape and num_classes are filled in by `fit`.
      run_dir: the run folder; a temporary one, kept until the process ends, if None.
      options: what changes speed only.
      callbacks: told about training steps.

    Raises:
      InvalidArgumentError: from `DataLensConfig`.
    """

    def __init__(self, config: DataLensConfig = DataLensConfig(), *, run_dir: str | os.PathLike | None = None,
                 options: PerformanceOptions = PerformanceOptions(), callbacks: Sequence[Callback] = ()):
        self._temporary = tempfile.TemporaryDirectory(prefix="datalens-") if run_dir is None else None
        self.folder = RunFolder(run_dir or self._temporary.name)
        self.config, self._options, self._callbacks = config, options, callbacks
        self.trainer: Trainer | None = None
        self._generator = None

    @classmethod
    def from_preset(cls, name: str, *, epsilon: float = 1.0, run_dir: str | os.PathLike | None = None,
                    options: PerformanceOptions = PerformanceOptions(), callbacks: Sequence[Callback] = (),
                    **changes: Any) -> "DataLens":
        """With the papers' settings for a data set (SPEC section 7) at the nearest published epsilon, and changes."""
        return cls(preset(name, epsilon).replace(**changes), run_dir=run_dir, options=options, callbacks=callbacks)

    @classmethod
    def load(cls, run_dir: str | os.PathLike) -> "DataLens":
        """A finished run. Raises CheckpointError if the folder holds none."""
        folder = RunFolder(run_dir)
        if not folder.statement_json.exists():
            raise CheckpointError(f"{folder.path} holds no finished run: train in it first, with --resume to continue.")
        return cls(DataLensConfig.from_json(folder.config.read_text()), run_dir=run_dir)

    def fit(self, images: np.ndarray, labels: np.ndarray, *, num_classes: int | None = None) -> "DataLens":
        return self.fit_dataset(as_dataset(images, labels, num_classes))

    def fit_dataset(self, dataset: Dataset) -> "DataLens":
        """`fit` for a checked data set; continues an interrupted run of the same settings and records."""
        self.config = self.config.replace(
            dataset=dataset.name, image_shape=dataset.image_shape, num_classes=dataset.num_classes)
        self.trainer = Trainer(
            self.config, dataset, self.folder.path, options=self._options, callbacks=self._callbacks)
        student = self.trainer.run()
        statement = privacy_statement(
            config=self.config, mechanism=self.trainer.mechanism, charges=self.trainer.ledger.charges,
            num_burnt=self.trainer.num_burnt, noise=self.trainer.noise, num_records=len(dataset))
        self._write_generator(student, self.folder.generator, statement, overwrite=True)
        self._generator = None
        _files.atomic_write(self.folder.samples_png, png_bytes(image_grid(student.sample_grid()), scale=2))
        x, y = self.sample(NUM_SHIPPED_SAMPLES, seed=0)
        _files.atomic_write(self.folder.samples, _files.npz_bytes({"x": x, "y": y}))
        _files.atomic_write(self.folder.statement_text, render_text(statement))
        _files.atomic_write(self.folder.statement_json, json.dumps(statement, indent=2) + "\n")
        return self

    def sample(self, num_images: int, *, labels: np.ndarray | None = None, seed: int | None = None
               ) -> tuple[np.ndarray, np.ndarray]:
        self._generator = self._generator or load_generator(self.folder.generator)
        return sample_from(self._generator, num_images, labels=labels, seed=seed)

    def privacy_statement(self) -> dict[str, Any]:
        try:
            return _files.parse_json(self.folder.statement_json.read_text())
        except (OSError, ValueError) as error:
            raise CheckpointError(f"{self.folder.path} holds no privacy statement: train to the end first.") from error

    def export(self, directory: str | os.PathLike, *, version: int = 1, step: int | None = None) -> pathlib.Path:
        _validate.integer("version", version, at_least=1)
        statement = self.privacy_statement()
        target = pathlib.Path(directory) / str(version)
        if step is not None:
            return self._export_step(directory, version, step, statement["num_records"])
        if target.exists():
            raise InvalidArgumentError(f"Expected version={version} not to exist yet, found {target}. "
                                       "Take another version or folder.")
        if not (self.folder.generator / "1").is_dir():
            raise CheckpointError(f"{self.folder.path} holds no generator: train to the end first.")
        _files.copy_folder(self.folder.generator / "1", target)
        return target

    def _export_step(self, directory, version: int, step: int, num_records: int) -> pathlib.Path:
        """Exports an earlier state of the student."""
        _validate.integer("step", step, at_least=1)
        mechanism, releases = TopAgg.from_config(self.config), ReleaseStore(self.folder.releases)
        student = replay(self.config, mechanism, releases, step)
        paid = [releases.charge(number) for number in range(1, step + 1)]
        charges = PrivacyLedger.open(self.folder.ledger).charges[:paid[-1] + 1]
        statement = privacy_statement(
            config=self.config, mechanism=mechanism, charges=charges, num_burnt=len(charges) - len(paid),
            noise=noise_source(self.config), num_records=num_records)
        return self._write_generator(student, directory, statement, version=version)

    def _write_generator(self, student: Student, directory, statement: dict[str, Any], **kwargs) -> pathlib.Path:
        """Writes a student's released generator with its statement."""
        return export_generator(
            student.released(), directory, latent_dim=self.config.latent_dim, num_classes=self.config.num_classes,
            latent_distribution=self.config.latent_distribution, **kwargs,
            assets={"privacy.json": json.dumps(statement, indent=2) + "\n", "privacy.txt": render_text(statement)})


def sample_from(generator: LoadedGenerator, num_images: int, *, labels: np.ndarray | None = None,
                seed: int | None = None) -> tuple[np.ndarray, np.ndarray]:
    """`Synthesizer.sample` for a loaded SavedModel.

    Raises:
      InvalidArgumentError: labels of another length or range.
    """
    _validate.integer("num_images", num_images, at_least=1)
    if labels is None:
        stream = np.random.default_rng() if seed is None else rng.stream(seed, "labels")
        labels = stream.permutation(np.arange(num_images) % generator.num_classes)
    labels = np.asarray(labels)
    _validate.require(len(labels) == num_images, "len(labels)", len(labels), f"== num_images={num_images}")
    return generator.sample(labels, seed), labels.astype(np.int64)
