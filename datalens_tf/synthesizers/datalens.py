"""DataLens: a generator from noisy votes of teacher discriminators (Wang et al., CCS 2021)."""

import pathlib
from typing import Any

from datalens_tf import _validate
from datalens_tf.config import DataLensConfig
from datalens_tf.data.datasets import Dataset
from datalens_tf.mechanisms.noise import noise_source
from datalens_tf.mechanisms.topagg import TopAgg
from datalens_tf.privacy.ledger import PrivacyLedger
from datalens_tf.privacy.statement import privacy_statement
from datalens_tf.synthesizers.base import RunSynthesizer
from datalens_tf.training.checkpoint import ReleaseStore
from datalens_tf.training.student import Student
from datalens_tf.training.trainer import Trainer, replay


class DataLens(RunSynthesizer):
    """See `RunSynthesizer`; the settings are a `DataLensConfig`."""

    config_class = DataLensConfig
    trainer: Trainer | None = None

    def _train(self, dataset: Dataset) -> tuple[Student, dict[str, Any]]:
        self.trainer = Trainer(
            self.config, dataset, self.folder.path, options=self._options, callbacks=self._callbacks)
        student = self.trainer.run()
        return student, privacy_statement(
            config=self.config, mechanism=self.trainer.mechanism, charges=self.trainer.ledger.charges,
            num_burnt=self.trainer.num_burnt, noise=self.trainer.noise, num_records=len(dataset))

    def request_stop(self) -> None:
        if self.trainer is None:  # Nothing has begun.
            raise KeyboardInterrupt
        self.trainer.request_stop()

    def _export_step(self, directory, version: int, step: int, num_records: int) -> pathlib.Path:
        _validate.integer("step", step, at_least=1)
        mechanism, releases = TopAgg.from_config(self.config), ReleaseStore(self.folder.releases)
        student = replay(self.config, mechanism, releases, step)
        paid = [releases.charge(number) for number in range(1, step + 1)]
        charges = PrivacyLedger.open(self.folder.ledger).charges[:paid[-1] + 1]
        statement = privacy_statement(
            config=self.config, mechanism=mechanism, charges=charges, num_burnt=len(charges) - len(paid),
            noise=noise_source(self.config), num_records=num_records)
        return self._write_generator(student, directory, statement, version=version)
