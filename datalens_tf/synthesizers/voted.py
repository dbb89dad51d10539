"""What the synthesizers whose teachers vote share: a `Trainer`, and the statement of what it guarantees."""

import abc
import pathlib
from typing import Any, ClassVar

import dp_accounting

from datalens_tf import _validate
from datalens_tf.config import MethodConfig
from datalens_tf.data.datasets import Dataset
from datalens_tf.mechanisms.base import Mechanism
from datalens_tf.mechanisms.noise import noise_source
from datalens_tf.privacy import accounting
from datalens_tf.privacy.ledger import PrivacyLedger
from datalens_tf.privacy.statement import Guarantee, make_statement
from datalens_tf.serving.export import read_metadata
from datalens_tf.synthesizers.base import RunSynthesizer
from datalens_tf.training.checkpoint import ReleaseStore
from datalens_tf.training.student import Student
from datalens_tf.training.trainer import Trainer, replay

_ASSUMPTIONS = (
    "Every record is in at most one partition. The partition depends only on the record's index and a public seed, "
    "never on labels, pixels or other records. Each teacher sees one partition and shares no state with another.",
    "Sensitivity: replacing one record changes the votes of one teacher only. {votes} The {batch_size} images of a "
    "step are accounted as one joint release, at the same price whatever the votes are.",
    "Steps are composed adaptively: later steps may depend on everything released before.",
    "Public: the settings, the number of records, the list of classes, the image shape, the order of the records, and "
    "that pixels are scaled by a fixed rule. Labels of synthetic images are drawn uniformly, not from the data.",
    "Noise: {noise_source}. {noise_caveat}",
)


class VotedSynthesizer(RunSynthesizer):
    """Trains by a `Trainer`. A method says which mechanism releases the votes, and which student learns from them."""

    student_class: ClassVar[type[Student]] = Student
    trainer: Trainer | None = None

    def _train(self, dataset: Dataset) -> tuple[Student, dict[str, Any]]:
        self.trainer = Trainer(self.config, dataset, self.folder.path, options=self._options,
                               callbacks=self._callbacks, mechanism=self._mechanism(), student=self.student_class)
        student = self.trainer.run()
        return student, self._statement(self.trainer.ledger, self.trainer.num_burnt, len(dataset))

    def request_stop(self) -> None:
        if self.trainer is None:  # Nothing has begun.
            raise KeyboardInterrupt
        self.trainer.request_stop()

    def _export_step(self, directory, version, step, num_records, terms) -> pathlib.Path:
        _validate.integer("step", step, at_least=1)
        releases = ReleaseStore(self.folder.releases)
        student = replay(self.config, self._mechanism(), releases, step, self.student_class)
        paid = [releases.charge(number) for number in range(1, step + 1)]
        ledger = PrivacyLedger.read(self.folder.ledger).until(paid[-1] + 1)
        statement = self._statement(ledger, ledger.num_charges - len(paid), num_records)
        names = read_metadata(self.folder.generator / "1")["class_names"]
        return self._write_generator(student, directory, statement, ledger.content, class_names=names, terms=terms,
                                     version=version)

    def step_event(self) -> dp_accounting.DpEvent:
        return self._mechanism().dp_event(self.config.batch_size)

    @abc.abstractmethod
    def _mechanism(self) -> Mechanism:
        """What releases the votes under the resolved settings."""

    @abc.abstractmethod
    def _statement(self, ledger: PrivacyLedger, num_burnt: int, num_records: int) -> dict[str, Any]:
        """What the ledger's charges guarantee; see `make_statement`."""


class PateSynthesizer(VotedSynthesizer):
    """`VotedSynthesizer` for the settings of a `PateConfig`."""

    def _train(self, dataset: Dataset) -> tuple[Student, dict[str, Any]]:
        self.config = self._calibrated(self.config)
        return super()._train(dataset)

    @classmethod
    def _calibrated(cls, config: MethodConfig) -> MethodConfig:
        """With the noise that the budget asks for, where none is given: the price of a step falls with its square."""
        if config.noise_stddev is not None:
            return config
        multiplier = accounting.calibrate_noise_multiplier(
            config.num_steps, config.epsilon, config.delta, config.accountant)
        unit = cls._mechanism_of(config.replace(noise_stddev=1.0)).l2_sensitivity(config.batch_size)
        return config.replace(noise_stddev=multiplier * unit)

    def _mechanism(self) -> Mechanism:
        return self._mechanism_of(self.config)

    @staticmethod
    @abc.abstractmethod
    def _mechanism_of(config: MethodConfig) -> Mechanism:
        """What releases the votes. Its noise multiplier is `noise_stddev` divided by its sensitivity."""

    @abc.abstractmethod
    def _described(self) -> tuple[str, str, dict[str, Any]]:
        """What one teacher's votes are and by how much they move the sum; what was released; facts for both."""

    def _statement(self, ledger: PrivacyLedger, num_burnt: int, num_records: int) -> dict[str, Any]:
        config, mechanism, (votes, released, facts) = self.config, self._mechanism(), self._described()
        facts = {"num_teachers": config.num_teachers, "batch_size": config.batch_size,
                 "noise_stddev": config.noise_stddev,
                 "l2_sensitivity": mechanism.l2_sensitivity(config.batch_size), **facts}
        guarantee = Guarantee(
            event=mechanism.dp_event(config.batch_size), facts=facts,
            assumptions=[text.replace("{votes}", votes) for text in _ASSUMPTIONS],
            released="{num_teachers} teacher networks were trained on disjoint parts of the data. " + released
                     + " {num_charges} steps were charged to the privacy budget; {num_burnt_charges} of them never "
                       "reached the generator because the run was interrupted.",
            seeds=f"seed {config.seed} for weights, latents, labels, batches and other public randomness, and seed "
                  f"{config.partition_seed} for the partitions")
        return make_statement(config, guarantee, ledger, num_burnt, noise_source(config), num_records)
