"""What every method whose teachers vote must do, inherited by each one's tests."""

import shutil

import numpy as np
import pytest
import tensorflow as tf

from datalens_tf.accounting import accountants
from datalens_tf.accounting.ledger import PrivacyLedger
from datalens_tf.data.partition import partition_indices
from datalens_tf.errors import BudgetExhaustedError, CheckpointError, TrainingInterrupted
from datalens_tf.methods.registry import synthesizer
from datalens_tf.training.teachers import TeacherBank
from datalens_tf.training.trainer import Trainer, replay, teacher_rounds
from tests import ledgers
from tests.methods.conformance import PrivateSynthesizerConformance
from tests.training import tiny

# For 20 records of 8x8 images.
TEACHERS = dict(num_teachers=4, batch_size=3, num_steps=4, teacher_batch_size=3, warmup_teacher_steps=2,
                discriminator_filters=4, discriminator_units=8, latent_dim=4, generator_filters=4, generator_units=8,
                epsilon=2.0, noise="rounded_gaussian")


def swapped(victim):
    """The tiny data, and the same with one record replaced."""
    data, other = tiny.dataset(), tiny.dataset()
    other.images[victim] = 255 - other.images[victim]
    other.labels[victim] = (other.labels[victim] + 1) % 3
    return data, other


def state(bank):
    """Weights and optimizer state [N, ...] each."""
    return [np.concatenate(list(bank.blocks(index))) for index in range(bank.num_arrays)]


class VotesOfEach:
    """A mechanism whose votes are kept apart: the sum over teachers is [T, m, ...], each teacher's own."""

    def __init__(self, mechanism):
        self._mechanism = mechanism

    def votes(self, teachers, *args):
        return tf.einsum("tu,tmk->tumk", tf.eye(teachers.num_teachers), self._mechanism.votes(teachers, *args))


class VotedConformance(PrivateSynthesizerConformance):
    """Subclasses set `CONFIG`, made from `TEACHERS`."""

    @property
    def resolved(self):
        """Settings as `fit` makes them, and the mechanism that they mean."""
        config = self.CONFIG.replace(image_shape=(8, 8, 1), num_classes=3).resolved(20)
        return config, config.mechanism(), synthesizer(config.method).student_class

    def trainer(self, run_dir, data=None, **changes):
        """What `fit` trains by."""
        config, mechanism, student = self.resolved
        return Trainer(config.replace(**changes), data or tiny.dataset(), run_dir, mechanism=mechanism, student=student)

    def test_the_noise_is_what_the_budget_asks_for(self, run):
        config, statement = run.config, run.privacy_statement()
        assert statement["epsilon"] == pytest.approx(config.epsilon, rel=1e-6) and statement["num_charges"] == 4
        assert statement["noise_multiplier_per_step"] == pytest.approx(
            accountants.calibrate_noise_multiplier(4, 2.0, 1e-5, "gdp"), rel=1e-8)
        assert statement["noise_stddev"] / statement["l2_sensitivity"] == pytest.approx(
            statement["noise_multiplier_per_step"], rel=1e-12)

    @pytest.mark.once_per_family
    def test_replacing_one_record_disturbs_no_other_teacher(self):
        """Bit by bit: weights, optimizer state, and votes, over several steps."""
        victim, partitions = 7, partition_indices(20, 4, 0)
        owner = int(np.argwhere(partitions == victim)[0, 0])
        rest = [t for t in range(4) if t != owner]
        config, mechanism, new_student = self.resolved
        student = new_student(config)
        banks = [TeacherBank(config, data.images, data.labels, partitions, VotesOfEach(mechanism))
                 for data in swapped(victim)]
        for step in range(1, 4):
            latents, labels = student.inputs(step)
            rounds = teacher_rounds(config.replace(shared_latents=step > 1), banks[0], student, 2, latents)
            votes = [bank.advance(rounds, student.images(latents, labels), labels, step)[0] for bank in banks]
            np.testing.assert_array_equal(votes[0][rest], votes[1][rest])
            change = np.linalg.norm(votes[0].sum(0) - votes[1].sum(0))
            assert np.any(votes[0]) and change <= mechanism.l2_sensitivity(config.batch_size)
        for mine, theirs in zip(*map(state, banks)):
            assert mine[rest].tobytes() == theirs[rest].tobytes()
        assert any(not np.array_equal(a[owner], b[owner]) for a, b in zip(*map(state, banks)))

    @pytest.mark.once_per_family
    def test_generator_and_epsilon_are_functions_of_settings_and_releases(self, run, tmp_path, monkeypatch):
        """Other records with the same releases give the same generator and ledger: nothing else was looked at."""
        trainer, stored = self.trainer(tmp_path, tiny.dataset(seed=5)), run.trainer.releases
        monkeypatch.setattr(type(trainer.mechanism), "privatize", lambda _, votes, noise, index: stored.load(index + 1))
        student = trainer.run()
        expected = replay(trainer.config, trainer.mechanism, stored, 4, run.student_class)
        np.testing.assert_array_equal(student.sample_grid(), expected.sample_grid())
        assert trainer.config == run.config
        assert ledgers.charges(trainer.folder) == ledgers.charges(run.folder)

    @pytest.mark.once_per_family
    def test_the_charge_is_on_disk_before_the_noise_is_drawn(self, tmp_path, monkeypatch):
        seen, trainer = [], self.trainer(tmp_path)

        def watching(mechanism, votes, noise, index):
            charges = PrivacyLedger.read(tmp_path / "ledger.jsonl").charges
            seen.append((index, len(charges), charges[-1].event == mechanism.dp_event(3)))
            return original(mechanism, votes, noise, index)

        original = type(trainer.mechanism).privatize
        monkeypatch.setattr(type(trainer.mechanism), "privatize", watching)
        trainer.run()
        assert seen == [(i, i + 1, True) for i in range(4)]

    def test_teachers_see_disjoint_records(self, tmp_path, monkeypatch):
        read = []

        class Watching(TeacherBank):
            def __init__(self, config, images, labels, partitions, *args):
                read.extend(partitions)
                super().__init__(config, images, labels, partitions, *args)

        monkeypatch.setattr("datalens_tf.training.trainer.TeacherBank", Watching)
        self.trainer(tmp_path)._bank()
        assert len(read) == 4 and sorted(np.concatenate(read)) == list(range(20))

    def test_private_state_is_in_the_private_folder_only(self, tmp_path):
        trainer = self.trainer(tmp_path)
        trainer.request_stop()
        with pytest.raises(TrainingInterrupted):
            trainer.run()
        assert {path.name for path in tmp_path.iterdir()} == {"config.json", "ledger.jsonl", "private"}
        assert list(trainer.folder.checkpoints.rglob("teachers-*.bin"))

    def test_a_budget_for_fewer_steps_ends_training_early(self, tmp_path):
        # Of calibrated noise; its rounding may cost a step.
        assert 3 <= self.trainer(tmp_path / "more", num_steps=100).planned_steps <= 4
        with pytest.raises(BudgetExhaustedError, match="does not pay for a single step"):
            self.trainer(tmp_path / "none", epsilon=0.01)

    @pytest.mark.once_per_family
    def test_an_earlier_step_can_be_exported_with_its_smaller_epsilon(self, run, tmp_path):
        run.export(tmp_path, version=1, step=2)
        text = " ".join((tmp_path / "1" / "assets.extra" / "privacy.txt").read_text().split())
        assert "2 steps were charged" in text and "NOT PRIVATE" not in text

    @pytest.mark.once_per_family
    def test_damaged_checkpoints_are_one_clear_line(self, run, tmp_path):
        """Of a finished run, what is read again are its releases."""
        shutil.copytree(run.folder.path, tmp_path / "run")
        path = tmp_path / "run" / "private" / "releases" / "000002.npz"
        path.write_bytes(path.read_bytes()[:-30])
        data = tiny.dataset()
        with pytest.raises(CheckpointError, match="Damaged file"):
            self.make(tmp_path / "run").fit(data.images, data.labels)
