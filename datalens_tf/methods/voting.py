"""Base of the synthesizers whose teachers vote: a `Trainer`, and the statement of what it guarantees."""

from __future__ import annotations

import abc
import dataclasses
import pathlib
import typing
from typing import Any, ClassVar, TypeVar

from etils import epy

from datalens_tf import _validate
from datalens_tf.config import VotingConfig
from datalens_tf.errors import InvalidArgumentError
from datalens_tf.methods.base import RunSynthesizer
from datalens_tf.settings import positive, setting
from datalens_tf.training.callbacks import Stage
from datalens_tf.training.student import Student

with epy.lazy_imports():
    from datalens_tf.accounting import accountants
    from datalens_tf.accounting import ledger as ledgers
    from datalens_tf.accounting import statement as statements
    from datalens_tf.data import datasets
    from datalens_tf.mechanisms import noise as noises
    from datalens_tf.serving import export as exports
    from datalens_tf.training import checkpoint as checkpoints
    from datalens_tf.training import trainer as trainers

@dataclasses.dataclass(frozen=True, kw_only=True)
class PateConfig(VotingConfig):
    """Settings of the methods whose teachers vote, except DataLens (private aggregation of teacher ensembles)."""

    num_steps: int = 500
    noise_stddev: float | None = setting(
        None, "Standard deviation of the noise on the number of votes for an answer. With none, it is "
        "calibrated to the budget and num_steps.")
    generator_filters: int = 32
    generator_units: int = 256
    ema_decay: float = 0.99

    def resolved(self, num_records: int, num_users: int | None = None) -> typing.Self:
        """Fills in the noise that the budget requires: a step's price falls with the square of the noise."""
        if self.noise_stddev is not None:
            return self
        multiplier = accountants.calibrate_noise_multiplier(self.num_steps, self.budget, self.delta, self.accountant)
        unit = self.replace(noise_stddev=1.0).mechanism().l2_sensitivity(self.batch_size)
        return self.replace(noise_stddev=multiplier * unit)


@dataclasses.dataclass(frozen=True, kw_only=True)
class CompressedConfig(PateConfig):
    """Settings of DataLens with a compressor other than TopAgg."""

    num_teachers: int = 4000
    batch_size: int = 15
    num_steps: int = 100
    teacher_batch_size: int = 15
    clip: float | None = setting(
        1e-5, "Gradient clip per coordinate [c], for gradients divided by m. None leaves gradients "
        "unclipped.", positive)
    step_size: float = setting(
        1e-3, "How far an image is moved along the released direction [gamma], in pixel units.", positive)
    instance_noise: float = 1.0
    ema_decay: float = 0.9

    GROUP: typing.ClassVar[str] = "mechanism"


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


_Voting = TypeVar("_Voting", bound=VotingConfig)
_Pate = TypeVar("_Pate", bound=PateConfig)


class VotedSynthesizer(RunSynthesizer[_Voting]):
    """Trains with a `Trainer`. A method says which mechanism releases the votes, and which student learns from them."""

    student_class: ClassVar[type[Student]] = Student
    trainer: trainers.Trainer | None = None

    def _train(self, dataset: datasets.Dataset) -> tuple[Student, dict[str, Any]]:
        self.trainer = trainers.Trainer(self.config, dataset, self.folder.path, options=self._options,
                               callbacks=self._callbacks, student=self.student_class)
        student = self.trainer.run()
        return student, self._statement(self.trainer.ledger, self.trainer.num_burnt, dataset.num_units)

    def request_stop(self) -> None:
        if self.trainer is None:  # Nothing has begun.
            raise KeyboardInterrupt
        if self._ends_at_once:
            raise KeyboardInterrupt
        self.trainer.request_stop()

    def _stopped(self) -> bool:
        return self.trainer is not None and self.trainer._stopped()

    def _stages(self, num_records: int) -> list[Stage]:
        return [Stage("warm-up")] * bool(self.config.warmup_teacher_steps) + super()._stages(num_records)

    def _export_step(self, directory, version, step, num_records, terms) -> pathlib.Path:
        _validate.integer("step", step, at_least=1)
        if not self.folder.releases.is_dir():
            raise InvalidArgumentError(f"Expected no step={step}: {self.folder.path} has no stored sums, which are in "
                                       "the folder private of the machine that trained.")
        releases = checkpoints.ReleaseStore(self.folder.releases)
        student = trainers.replay(self.config, self.config.mechanism(), releases, step, self.student_class)
        paid = [releases.charge(number) for number in range(1, step + 1)]
        ledger = ledgers.PrivacyLedger.read(self.folder.ledger).until(paid[-1] + 1)
        statement = self._statement(ledger, ledger.num_charges - len(paid), num_records)
        names = exports.read_metadata(self.folder.generator / "1")["class_names"]
        return self._write_generator(student, directory, statement, ledger.content, class_names=names, terms=terms,
                                     version=version)

    @abc.abstractmethod
    def _statement(self, ledger: ledgers.PrivacyLedger, num_burnt: int, num_records: int) -> dict[str, Any]:
        """Statement of what the ledger's charges guarantee; see `make_statement`."""


class PateSynthesizer(VotedSynthesizer[_Pate]):
    """`VotedSynthesizer` for the settings of a `PateConfig`."""

    @abc.abstractmethod
    def _described(self) -> tuple[str, str, dict[str, Any]]:
        """Texts about one teacher's votes and their effect on the sum, and about the release; and facts for both."""

    def _statement(self, ledger: ledgers.PrivacyLedger, num_burnt: int, num_records: int) -> dict[str, Any]:
        config, mechanism, (votes, released, facts) = self.config, self.config.mechanism(), self._described()
        facts = {"num_teachers": config.num_teachers, "batch_size": config.batch_size,
                 "noise_stddev": config.noise_stddev,
                 "l2_sensitivity": mechanism.l2_sensitivity(config.batch_size), **facts}
        guarantee = statements.Guarantee(
            event=config.step_event(), facts=facts,
            assumptions=[text.replace("{votes}", votes) for text in _ASSUMPTIONS],
            released="{num_teachers} teacher networks were trained on disjoint parts of the data. " + released
                     + " {num_charges} steps were charged to the privacy budget; {num_burnt_charges} of them never "
                       "reached the generator because the run was interrupted.",
            seeds=f"seed {config.seed} for weights, latents, labels, batches and other public randomness, and seed "
                  f"{config.partition_seed} for the partitions")
        return statements.make_statement(config, guarantee, ledger, num_burnt, noises.noise_source(config), num_records)
