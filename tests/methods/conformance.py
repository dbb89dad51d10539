"""What every synthesizer must do, inherited by each one's tests."""

import dataclasses
import json
import pathlib
import re
import shutil

import numpy as np
import pytest

import datalens_tf
from datalens_tf.accounting import accountants
from datalens_tf.accounting.accountants import round_up
from datalens_tf.accounting.ledger import PrivacyLedger
from datalens_tf.accounting.statement import parse_statement
from datalens_tf.accounting.wording import render_text
from datalens_tf.auditing.verification import verify
from datalens_tf.config import MethodConfig, VotingConfig
from datalens_tf.errors import CheckpointError, DataError, InvalidArgumentError, LedgerError, TrainingInterrupted
from datalens_tf.evaluation import charts, report
from datalens_tf.methods.embedding import EmbeddingConfig
from datalens_tf.methods.registry import config_from_json, synthesizer
from datalens_tf.training import loop
from datalens_tf.training.callbacks import Callback
from tests import ledgers
from tests.training import tiny

PUBLIC_FILES = {"SHA256SUMS", "config.json", "ledger.jsonl", "privacy.json", "privacy.txt", "samples.npz",
                "samples.png", "generator", "private"}


class SynthesizerConformance:
    """Subclasses set `CONFIG`: settings that train in seconds on 8x8 images of 3 classes, with a real budget."""

    CONFIG: MethodConfig
    NUM_RECORDS: int | None = 20  # that the statement has
    # What takes long is asked of one method of each family by default, of the others in the slow tests; what the base
    # class does for all of them, of the first of each family and of the method that most runs are of.
    FIRST_OF_ITS_FAMILY: bool = True
    MOST_RUNS: bool = False

    @property
    def private(self):
        return self.CONFIG.adjacency != "none"

    @classmethod
    def make(cls, run_dir, callbacks=(), **changes):
        return synthesizer(cls.CONFIG.method)(cls.CONFIG.replace(**changes), run_dir=run_dir, callbacks=callbacks)

    @pytest.fixture(name="run", scope="class")
    @classmethod
    def fixture_run(cls, tmp_path_factory):
        data = tiny.dataset()
        return cls.make(tmp_path_factory.mktemp("run")).fit(data.images, data.labels)

    def test_run_folder_has_the_documented_files_and_no_others(self, run):
        expected = PUBLIC_FILES if self.private else PUBLIC_FILES - {"ledger.jsonl"}
        assert {path.name for path in run.folder.path.iterdir()} == expected
        assert run.folder.private.stat().st_mode & 0o777 == 0o700
        with np.load(run.folder.samples) as samples:
            assert samples["x"].dtype == np.uint8 and samples["x"].shape == (100, 8, 8, 1)
            assert set(samples["y"]) == {0, 1, 2}

    def test_settings_are_resolved_and_re_runnable(self, run):
        config = config_from_json(run.folder.config.read_text())
        assert config == run.config and config.image_shape == (8, 8, 1) and config.num_classes == 3
        assert type(config).from_json(config.to_json()) == config

    def test_statement_is_what_the_ledger_says_and_within_the_budget(self, run):
        statement = parse_statement(run.folder.statement_json.read_bytes())
        assert statement == run.privacy_statement() and statement["method"] == self.CONFIG.method
        text = run.folder.statement_text.read_text()
        assert text == render_text(statement)
        if not self.private:
            assert text.startswith("NOT PRIVATE") and statement["epsilon"] is None
            return
        ledger = PrivacyLedger.read(run.folder.ledger)
        assert statement["epsilon"] == ledger.spent() <= self.CONFIG.epsilon
        assert statement["adjacency"] == ledger.adjacency == self.CONFIG.adjacency
        for name, value in statement["epsilon_by_accountant"].items():
            assert value == accountants.epsilon_of([charge.event for charge in ledger.charges], self.CONFIG.delta, name,
                                                  ledger.adjacency)
        assert statement["num_charges"] == ledger.num_charges > 0
        assert (statement["run_id"], statement["ledger_head"]) == (ledger.run_id, ledger.head)
        assert self.CONFIG.CHOSEN in statement["settings_chosen"] and self.CONFIG.CHOSEN in " ".join(text.split())

    def test_statement_and_report_speak_of_this_method_alone(self, run):
        config, facts = run.config, report.RunFacts.read(run.folder.path)
        figures = {name: charts.training_chart([1, 2], [2.0, 1.0]) for name in ("budget", "training")}
        page = report.render_report(None, figures, facts, run.folder.samples_png.read_bytes())
        votes, of_sums = isinstance(config, VotingConfig), isinstance(config, EmbeddingConfig)
        foreign = {"teacher": votes, r"vot(e|ing)": votes or hasattr(config, "selection_charges"),
                   r"gradients?\b|discriminator|critic": not of_sums, "generator step": not of_sums,
                   r"\busers?\b": config.adjacency.endswith("-user"), "None records": False,
                   # A server that users trust sees what single ones send.
                   "without noise": not self.private or "TRUSTED" in facts.statement_text,
                   r"with noise|guarantees": self.private}
        page = re.sub(r"data:[^\"]*|<style>.*?</style>", "", page, flags=re.DOTALL)
        for name, text in (("statement", facts.statement_text), ("page", page)):
            for word, fits in foreign.items():
                found = re.search(f".*{word}.*", text, re.IGNORECASE)
                assert fits or found is None, (name, word, found)

    @pytest.mark.once_per_family
    def test_what_it_leaves_can_be_verified(self, run, tmp_path):
        for path in (run.folder.path, run.export(tmp_path).parent):
            checks = verify(path)
            assert all(check.passed for check in checks), checks

    @pytest.mark.of_the_base_class
    def test_samples_are_balanced_reproducible_and_as_labelled(self, run):
        x, y = run.sample(30, seed=4)
        np.testing.assert_array_equal(x, run.sample(30, seed=4)[0])
        assert np.all(np.bincount(y) == 10) and not np.array_equal(x, run.sample(30, seed=5)[0])
        np.testing.assert_array_equal(run.sample(2, labels=[2, 0])[1], [2, 0])
        with pytest.raises(InvalidArgumentError, match="labels"):
            run.sample(2, labels=[0, 3])

    @pytest.mark.of_the_base_class
    def test_export_carries_the_statement(self, run, tmp_path):
        path = run.export(tmp_path, version=3)
        assert json.loads((path / "assets.extra" / "privacy.json").read_text()) == run.privacy_statement()
        card = (path / "assets.extra" / "MODEL_CARD.md").read_text()
        assert ("epsilon = " in card) == self.private
        if self.private:
            assert f"epsilon = {round_up(run.privacy_statement()['epsilon'])}" in card
        assert "datalens_tf" in (path / "assets.extra" / "LICENSE").read_text()
        labels = np.array([0, 1, 2])
        np.testing.assert_array_equal(datalens_tf.load_generator(path).sample(labels, seed=1),
                                      run.sample(3, labels=labels, seed=1)[0])
        with pytest.raises(InvalidArgumentError, match="version=3"):
            run.export(tmp_path, version=3)

    @pytest.mark.of_the_base_class
    def test_a_finished_run_can_be_loaded_and_fitting_again_charges_nothing(self, run):
        loaded = type(run).load(run.folder.path)
        np.testing.assert_array_equal(loaded.sample(3, seed=1)[0], run.sample(3, seed=1)[0])
        before = run.folder.ledger.read_bytes() if self.private else b""
        data = tiny.dataset()
        self.make(run.folder.path).fit(data.images, data.labels)
        assert before == (run.folder.ledger.read_bytes() if self.private else b"")

    @pytest.mark.of_the_base_class
    def test_other_records_and_other_settings_are_refused(self, run):
        other = tiny.dataset(seed=1)
        with pytest.raises(CheckpointError, match="other records"):
            self.make(run.folder.path).fit(other.images, other.labels)
        data = tiny.dataset()
        with pytest.raises(CheckpointError, match="another configuration"):
            self.make(run.folder.path, seed=7).fit(data.images, data.labels)

    @pytest.mark.once_per_family
    @pytest.mark.usefixtures("unexported")
    def test_interrupted_and_resumed_equals_uninterrupted(self, tmp_path, monkeypatch):
        monkeypatch.setattr(loop, "_REPORT_EVERY", 1)
        data, changes = tiny.dataset(), {"insecure_noise_seed": 3} if self.private else {}
        whole = self.make(tmp_path / "whole", **changes).fit(data.images, data.labels)

        class Stop(Callback):
            def on_step(self, report):
                if report.step == 2:
                    stopped.request_stop()

        stopped = self.make(tmp_path / "parts", callbacks=[Stop()], **changes)
        with pytest.raises(TrainingInterrupted, match="after step 2 .* --resume"):
            stopped.fit(data.images, data.labels)
        assert not stopped.folder.statement_json.exists()
        resumed = self.make(tmp_path / "parts", **changes).fit(data.images, data.labels)
        np.testing.assert_array_equal(resumed.sample(9, seed=0)[0], whole.sample(9, seed=0)[0])
        if self.private:
            assert resumed.privacy_statement()["private"] is False  # Predictable noise.
            assert ledgers.charges(resumed.folder) == ledgers.charges(whole.folder)

    @pytest.mark.once_per_family
    @pytest.mark.usefixtures("unexported")
    def test_a_record_of_an_undeclared_class_keeps_its_place_and_contributes_nothing(self, run, tmp_path):
        """Nothing that leaves knows that there is such a record.

        What its label and its picture are, training does not see (`as_dataset` is tested for that). That a record
        without a label contributes nothing is tested below, or of the teachers' partitions.
        """
        data = tiny.dataset()
        images, labels = data.images.copy(), data.labels.copy()
        images[4], labels[4] = 255, 7
        world = self.make(tmp_path).fit(images, labels, num_classes=3)
        assert world.config.classes == ("0", "1", "2") and world.config.replace(classes=None) == run.config
        expected, found = run.privacy_statement(), world.privacy_statement()
        assert found["num_records"] == self.NUM_RECORDS
        for name in ("epsilon", "epsilon_by_accountant", "num_charges"):
            assert found[name] == expected[name], name

    def test_a_stop_before_anything_began_is_an_interrupt(self, tmp_path):
        with pytest.raises(KeyboardInterrupt):
            self.make(tmp_path).request_stop()

    @pytest.mark.of_the_base_class
    def test_damaged_checkpoints_are_one_clear_line(self, run, tmp_path):
        shutil.copytree(run.folder.path, tmp_path / "run")
        damaged, data = self.make(tmp_path / "run"), tiny.dataset()
        path = next(path for path in sorted((tmp_path / "run/private/checkpoints").rglob("*")) if path.is_file())
        path.write_bytes(path.read_bytes()[:-30])
        (tmp_path / "run/privacy.json").unlink()
        with pytest.raises(CheckpointError, match="Damaged checkpoint"):
            damaged.fit(data.images, data.labels)

    def test_bad_arrays_are_refused_before_a_folder_is_made(self, tmp_path):
        data = tiny.dataset()
        with pytest.raises(DataError):
            self.make(tmp_path / "run").fit(data.images, data.labels[:-1])
        assert not (tmp_path / "run").exists()


class PrivateSynthesizerConformance(SynthesizerConformance):
    """With what only holds where there is noise."""

    @pytest.mark.once_per_family
    def test_seeds_decide_everything_but_the_noise(self, run, tmp_path):
        data = tiny.dataset()
        other = self.make(tmp_path).fit(data.images, data.labels)
        assert ledgers.charges(run.folder) == ledgers.charges(other.folder)
        # Few steps move few pixels by a whole level, so that it takes many images to see it.
        assert not np.array_equal(run.sample(999, seed=0)[0], other.sample(999, seed=0)[0])

    @pytest.mark.of_the_base_class
    @pytest.mark.parametrize("loss", ledgers.LOSSES)
    def test_a_ledger_that_lost_charges_is_refused(self, run, tmp_path, loss):
        """Whatever else was lost with it: what rests on charges knows which ones."""
        folder, data = pathlib.Path(shutil.copytree(run.folder.path, tmp_path / "run")), tiny.dataset()
        ledgers.lose(folder / "ledger.jsonl", loss)
        (folder / "privacy.json").unlink()
        shutil.rmtree(folder / "generator")
        before = (folder / "ledger.jsonl").read_bytes() if (folder / "ledger.jsonl").exists() else None
        with pytest.raises(LedgerError, match=r"ledger\.jsonl .*put the run's newest ledger back") as error:
            self.make(folder).fit(data.images, data.labels)
        assert "\n" not in str(error.value) and not (folder / "privacy.json").exists()
        assert before == ((folder / "ledger.jsonl").read_bytes() if (folder / "ledger.jsonl").exists() else None)

    @pytest.mark.of_the_base_class
    def test_a_statement_of_more_charges_than_the_ledger_has_is_refused(self, run, tmp_path):
        """Also where nothing but the statement is left of the run."""
        folder, data = pathlib.Path(shutil.copytree(run.folder.path, tmp_path / "run")), tiny.dataset()
        for private in ("checkpoints", "releases"):
            shutil.rmtree(folder / "private" / private, ignore_errors=True)
        ledgers.lose(folder / "ledger.jsonl", "the last charges")
        with pytest.raises(LedgerError, match=r"ledger\.jsonl lacks charges that .*privacy\.json rests on"):
            self.make(folder).fit(data.images, data.labels)

    @pytest.mark.once_per_family
    @pytest.mark.usefixtures("unexported")
    def test_that_no_record_is_of_a_declared_class_does_not_show(self, run, tmp_path):
        """Even then a run ends as any other does: all records but one may be the attacker's."""
        data = tiny.dataset()
        empty = self.make(tmp_path).fit(data.images, np.full(20, 9), num_classes=3).privacy_statement()
        for key in ("num_records", "epsilon", "epsilon_by_accountant", "num_charges", "num_steps"):
            assert empty[key] == run.privacy_statement()[key], key


    @pytest.mark.once_per_family
    def test_units_are_protected_and_the_number_of_their_records_is_told_nobody(self, tmp_path):
        data, count = tiny.dataset(613), getattr(self.CONFIG, "num_users", None) or 20
        run = self.make(tmp_path, unit="patient").fit(data.images, data.labels, units=np.arange(613) % count)
        statement, text = run.privacy_statement(), " ".join(run.folder.statement_text.read_text().split())
        told = run.config.publishes_num_records
        assert statement["num_records"] == (count if told else None)
        assert run.config.unit == statement["unit_setting"] == "patient"
        assert statement["unit"] == "one patient (all the images that the patient has, with their labels)"
        assert (f"({count} units)" in text) is told and "Had one patient (all the images that the patient has" in text
        assert "People who are several patients" in text
        exported = run.export(tmp_path / "export")
        assert (f"{count} units" in (exported / "assets.extra" / "MODEL_CARD.md").read_text()) is told
        for path in tmp_path.rglob("*"):
            if path.is_file() and "private" not in path.relative_to(tmp_path).parts:
                assert not any(re.search(rb"(?<![\w.])613(?![\w.])", text) for text in texts(path)), path
        with pytest.raises(CheckpointError, match="other records|another configuration"):
            self.make(tmp_path, unit="patient").fit(data.images, data.labels, units=(np.arange(613) + 1) // 2 % count)


def texts(path: pathlib.Path) -> list[bytes]:
    """What a file says in words: all of a text file; in others, whose bytes may spell anything, 20 letters or more."""
    content = path.read_bytes()
    try:
        content.decode("utf-8")
    except UnicodeDecodeError:
        return re.findall(rb"[\x20-\x7e\s]{20,}", content)
    return [content]


class UnlabelledRecordsConformance:
    """Of methods that draw from all records at once; `usable_indices` is for those that deal them out."""

    @pytest.mark.once_per_family
    @pytest.mark.usefixtures("unexported")
    def test_records_without_a_label_count_nowhere(self, tmp_path):
        """What stands in for the missing label must not matter; the number of records is public, and of all."""
        usable, drawn = np.arange(20) != 4, []
        for label in (0, 2):
            data = tiny.dataset()
            data = dataclasses.replace(data, labels=np.where(usable, data.labels, label), usable=usable)
            run = self.make(tmp_path / str(label), **({"insecure_noise_seed": 1} if self.private else {}))
            drawn.append(run.fit_dataset(data).sample(9, seed=0)[0])
            assert run.privacy_statement()["num_records"] == self.NUM_RECORDS
        np.testing.assert_array_equal(*drawn)
