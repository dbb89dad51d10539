"""PATE classification: who may learn from whom, what each record pays, and what a run folder holds."""

import dataclasses
import json
import pathlib
import shutil

import numpy as np
import pytest

from datalens_tf.accounting import accountants
from datalens_tf.accounting.ledger import PrivacyLedger
from datalens_tf.classification import pate, student
from datalens_tf.classification.pate_config import PateClassifierConfig
from datalens_tf.data.datasets import as_dataset
from datalens_tf.data.registry import load_dataset
from datalens_tf.errors import (
    BudgetExhaustedError,
    CheckpointError,
    DataError,
    InterruptionWarning,
    InvalidArgumentError,
    LedgerError,
)
from datalens_tf.evaluation.student import evaluate_student
from datalens_tf.training import classifier
from datalens_tf.training.checkpoint import ReleaseStore
from tests import ledgers

TINY = dict(num_teachers=12, num_queries=40, student_steps=30, epsilon=50.0)
BUDGETS = np.resize([10.0, 20.0, 30.0], 1438)


@pytest.fixture(name="digits", scope="module")
def make_digits():
    return load_dataset("digits")


@pytest.fixture(name="public", scope="module")
def make_public():
    return load_dataset("digits", split="test")


def config(**changes):
    return PateClassifierConfig(**TINY | {"num_classes": 10} | changes)


@pytest.fixture(name="quick")
def make_quick(monkeypatch):
    """Students that learn nothing, where they are not the subject."""
    def untrained(images, labels, settings):
        return classifier.paper_classifier(settings.image_shape, settings.num_classes, settings.seed)

    monkeypatch.setattr(student, "train_student", untrained)


def run(folder, digits, public, settings, **options):
    queries, _ = pate.split_queries(public, settings)
    return pate.train_pate(settings, digits, queries, folder, **options)


@pytest.fixture(name="finished", scope="module")
def make_finished(digits, public, tmp_path_factory):
    return run(tmp_path_factory.mktemp("pate") / "run", digits, public, config(student_steps=60))


def test_records_of_undeclared_classes_keep_their_place_and_contribute_nothing(digits, public, quick, tmp_path):
    counts, found = [], []
    for label, pixels in ((10, 255), (-1, 0)):
        images, labels = digits.images.copy(), digits.labels.copy()
        images[::3], labels[::3] = pixels, label
        declared = as_dataset(images, labels, name="digits", classes=digits.class_names)
        settings = config(insecure_noise_seed=1)
        queries, _ = pate.split_queries(public, settings)
        counts.append(pate.teacher_votes(declared, pate.make_plan(settings, len(declared)), queries))
        found.append(run(tmp_path / str(label), declared, public, settings))
    np.testing.assert_array_equal(*counts)
    np.testing.assert_array_equal(*(one.labels for one in found))
    assert all(one.statement["num_records"] == 1438 for one in found)
    none = as_dataset(digits.images, np.full(1438, 99), name="digits", classes=digits.class_names)
    assert run(tmp_path / "none", none, public, config()).statement["epsilon"] <= 50  # It ends as any other does.


@pytest.mark.parametrize("loss", ledgers.LOSSES)
def test_a_ledger_that_lost_charges_is_refused(finished, digits, public, tmp_path, loss):
    folder = pathlib.Path(shutil.copytree(finished.folder, tmp_path / "run"))
    (folder / "privacy.json").unlink()
    ledgers.lose(folder / "ledger.jsonl", loss)
    with pytest.raises(LedgerError, match=r"ledger\.jsonl .*put the run's newest ledger back"):
        run(folder, digits, public, config(student_steps=60))
    assert not (folder / "privacy.json").exists()


def test_a_run_folder_has_the_documented_files_and_no_others(finished):
    assert {path.name for path in finished.folder.iterdir()} == {
        "SHA256SUMS", "config.json", "ledger.jsonl", "labels.npz", "student.npz", "privacy.json", "privacy.txt",
        "private"}
    assert (finished.folder / "private").stat().st_mode & 0o077 == 0
    assert {path.name for path in (finished.folder / "private").rglob("*")} == {
        "data.json", "lock", "releases", "000001.npz"}  # No votes without noise.
    settings = PateClassifierConfig.from_json((finished.folder / "config.json").read_text())
    assert settings.noise_stddev and settings.dataset == "digits" and settings.image_shape == (8, 8, 1)


def test_the_student_learned_and_can_be_loaded(finished, public):
    settings = PateClassifierConfig.from_json((finished.folder / "config.json").read_text())
    _, test = pate.split_queries(public, settings)
    found = evaluate_student(finished.student, test)
    assert found["accuracy"] > 0.3 and found["auroc_macro"] > 0.7 and found["num_test"] == len(public) - 40
    again = classifier.paper_classifier(settings.image_shape, settings.num_classes, settings.seed)
    with np.load(finished.folder / "student.npz") as weights:
        again.set_weights([weights[name] for name in sorted(weights)])
    assert evaluate_student(again, test) == found
    np.testing.assert_array_equal(classifier.predict_probabilities(again, test.images),
                                  classifier.predict_probabilities(finished.student, test.images))


def test_what_is_spent_is_what_was_planned(finished):
    ledger = PrivacyLedger.read(finished.folder / "ledger.jsonl")
    statement = json.loads((finished.folder / "privacy.json").read_text())
    assert len(ledger.charges) == 1 and ledger.spent() == statement["epsilon"] <= 50 < 1.001 * statement["epsilon"]
    text = (finished.folder / "privacy.txt").read_text()
    assert "The released student" in text and "generator" not in text and "{" not in text
    assert statement["private"] and statement["epsilon_by_budget"][0]["epsilon"] == statement["epsilon"]


def test_a_finished_run_is_not_charged_again_and_its_answers_stay(finished, digits, public, tmp_path, quick):
    folder = shutil.copytree(finished.folder, tmp_path / "copy")
    again = run(folder, digits, public, config(student_steps=60))
    assert (folder / "ledger.jsonl").read_bytes() == (finished.folder / "ledger.jsonl").read_bytes()
    np.testing.assert_array_equal(again.labels, finished.labels)
    assert again.statement == finished.statement


def test_a_run_of_other_records_or_settings_is_refused(finished, digits, public):
    swapped = dataclasses.replace(digits, labels=digits.labels[::-1])
    with pytest.raises(CheckpointError, match="other records"):
        run(finished.folder, swapped, public, config(student_steps=60))
    with pytest.raises(CheckpointError, match="another configuration"):
        run(finished.folder, digits, public, config(student_steps=61))


def test_a_lost_answer_is_burnt_and_never_drawn_for_free(tmp_path, digits, public, monkeypatch, quick):
    settings = config(aggregator="interactive_gnmax", num_rounds=2, vote_threshold=0.0)
    with monkeypatch.context() as patch, pytest.raises(KeyboardInterrupt):
        patch.setattr(ReleaseStore, "store", lambda *args: (_ for _ in ()).throw(KeyboardInterrupt))
        run(tmp_path / "run", digits, public, settings)
    with pytest.warns(InterruptionWarning, match="^1 of 1 charges .* lost .* ends after 1 of 2 steps"):
        result = run(tmp_path / "run", digits, public, settings)
    assert result.statement["num_charges"] == 2 and result.statement["num_burnt_charges"] == 1
    assert result.statement["epsilon"] <= 50 and not np.any(result.labels[20:] >= 0)


def test_what_a_lost_answer_leaves_too_little_for_is_refused_before_teachers_are_trained(
        tmp_path, digits, public, monkeypatch, quick):
    with monkeypatch.context() as patch, pytest.raises(KeyboardInterrupt):
        patch.setattr(ReleaseStore, "store", lambda *args: (_ for _ in ()).throw(KeyboardInterrupt))
        run(tmp_path / "run", digits, public, config())
    before = (tmp_path / "run" / "ledger.jsonl").read_bytes()
    monkeypatch.setattr(pate, "teacher_votes", None)
    with pytest.raises(BudgetExhaustedError, match="pays for no answer: .* after 1 charges, all of them lost"):
        run(tmp_path / "run", digits, public, config())
    assert (tmp_path / "run" / "ledger.jsonl").read_bytes() == before


def test_the_charge_is_on_disk_before_the_noise_is_drawn(tmp_path, digits, public, monkeypatch, quick):
    seen, original = [], pate.GNMax.privatize

    def privatize(self, *args):
        seen.append(len(PrivacyLedger.read(tmp_path / "run" / "ledger.jsonl").charges))
        return original(self, *args)

    monkeypatch.setattr(pate.GNMax, "privatize", privatize)
    run(tmp_path / "run", digits, public, config(aggregator="gnmax", num_rounds=2))
    assert seen == [1, 2]


@pytest.mark.parametrize("aggregator", ["gnmax", "lnmax", "confident_gnmax", "interactive_gnmax"])
def test_epsilon_is_a_function_of_the_settings_only(aggregator, digits):
    plan = pate.make_plan(config(aggregator=aggregator), 1438)
    assert plan.epsilon(plan.groups[0]) <= 50 < plan.epsilon(plan.groups[0]) * 1.0001
    # Swapping data does not change a price that never sees it.
    assert plan.event() == pate.make_plan(config(aggregator=aggregator), 1438).event()
    fewer = dataclasses.replace(plan, config=plan.config.replace(noise_stddev=0.99 * plan.config.noise_stddev))
    assert fewer.epsilon(plan.groups[0]) > 50


@pytest.mark.parametrize("method", ["upsampling", "weighting"])
@pytest.mark.parametrize("aggregator", ["gnmax", "lnmax", "confident_gnmax"])
def test_every_record_pays_for_its_own_votes(method, aggregator):
    settings = config(individualization=method, aggregator=aggregator, epsilon=None)
    plan = pate.make_plan(settings, 1438, BUDGETS)
    assert plan.config.epsilon == 30 and [group.record_votes for group in plan.groups] == [1, 2, 3]
    spent = [plan.epsilon(group) for group in plan.groups]
    assert all(cost <= group.epsilon for cost, group in zip(spent, plan.groups)) and spent[0] < spent[1] < spent[2]
    assert max(cost / group.epsilon for cost, group in zip(spent, plan.groups)) > 0.999
    # The votes that hang on a record, counted: of the teachers that it trains, by their weights.
    held = np.zeros(1438, int)
    for shard, weight in zip(plan.partitions, plan.weights):
        held[shard] += weight
    for group in plan.groups:
        assert held[BUDGETS == group.epsilon].max() == group.record_votes
    # A wrong sensitivity would be noticed: as if no record had more than one vote.
    assert plan.event(1) != plan.event() and plan.epsilon(plan.groups[2]) > 2 * accountants.epsilon(
        plan.event(1), 1, 1e-5, plan.config.accountant)


@pytest.mark.parametrize("method", ["none", "upsampling", "weighting"])
def test_replacing_a_record_changes_no_more_votes_than_are_priced(method, digits, public):
    settings = config(individualization=method, epsilon=None if method != "none" else 50.0)
    budgets = None if method == "none" else BUDGETS
    plan = pate.make_plan(settings, 1438, budgets)
    record = next(index for index in plan.partitions[-1] if budgets is None or budgets[index] == 30)
    queries, _ = pate.split_queries(public, settings)
    queries = np.concatenate([digits.images[record:record + 1], queries])  # Where its label matters.
    images, labels = digits.images.copy(), digits.labels.copy()
    labels[record] = (labels[record] + 1) % 10
    swapped = dataclasses.replace(digits, images=images, labels=labels)
    pixels = pate.to_unit(queries).reshape(len(queries), -1)
    here, there = ([pate._answers(data, shard, pixels) for shard in plan.partitions] for data in (digits, swapped))
    moved = 0
    for shard, weight, before, after in zip(plan.partitions, plan.weights, here, there):
        assert record in shard or np.array_equal(before, after)
        moved += weight * (record in shard)
    assert moved == plan.mechanism().record_votes
    change = pate.teacher_votes(digits, plan, queries) - pate.teacher_votes(swapped, plan, queries)
    assert 0 < np.abs(change).max() <= plan.mechanism().record_votes
    assert np.abs(change).sum(1).max() <= 2 * plan.mechanism().record_votes


def test_a_teacher_of_one_class_and_unusable_records_disturb_nobody(digits):
    of_one = np.flatnonzero(digits.labels == 3)[:5]
    np.testing.assert_array_equal(pate._answers(digits, of_one, np.zeros((4, 64))), [3] * 4)
    usable = np.ones(1438, bool)
    usable[7] = False
    filtered = dataclasses.replace(digits, usable=usable)
    queries = np.random.default_rng(0).random((9, 64))
    np.testing.assert_array_equal(pate._answers(filtered, np.arange(40), queries),
                                  pate._answers(digits, np.delete(np.arange(40), 7), queries))


def test_predictable_noise_makes_no_promise(tmp_path, digits, public, quick):
    results = [run(tmp_path / name, digits, public, config(insecure_noise_seed=1, aggregator="lnmax"))
               for name in "ab"]
    assert not results[0].statement["private"] and results[0].statement["epsilon"] is None
    assert results[0].statement["epsilon_by_budget"][0]["epsilon"] is None
    assert "NOT PRIVATE" in (results[0].folder / "privacy.txt").read_text()
    np.testing.assert_array_equal(results[0].labels, results[1].labels)


def test_queries_are_public_records_that_are_not_tested_on(public):
    queries, test = pate.split_queries(public, config())
    together = {image.tobytes() for image in queries} | {image.tobytes() for image in test.images}
    assert len(queries) == 40 and len(queries) + len(test) == len(public)
    assert together == {image.tobytes() for image in public.images}
    with pytest.raises(DataError, match="num_queries=5000"):
        pate.split_queries(public, config(num_queries=5000))


def test_a_crash_overspends_no_record_s_own_budget(tmp_path, digits, public, monkeypatch, quick):
    """The ledger's is the largest; the smallest is what the noise was made for."""
    budgets = np.resize([0.6, 1.4], 1438)
    settings = config(individualization="weighting", budget_precision=0, epsilon=None)
    assert pate.make_plan(settings, 1438, budgets).pays_for(1)
    with monkeypatch.context() as patch, pytest.raises(KeyboardInterrupt):
        patch.setattr(ReleaseStore, "store", lambda *args: (_ for _ in ()).throw(KeyboardInterrupt))
        run(tmp_path / "run", digits, public, settings, budgets=budgets)
    before = (tmp_path / "run/ledger.jsonl").read_bytes()
    with pytest.raises(BudgetExhaustedError, match="pays for no answer"):
        run(tmp_path / "run", digits, public, settings, budgets=budgets)
    assert (tmp_path / "run/ledger.jsonl").read_bytes() == before


@pytest.mark.parametrize("changes,budgets,error,message", [
    ({"noise_stddev": 0.5}, None, BudgetExhaustedError, "does not pay for num_queries=40"),
    ({"individualization": "upsampling"}, None, InvalidArgumentError, "individualization='upsampling'"),
    ({}, BUDGETS, InvalidArgumentError, "individualization='none'"),
    ({"individualization": "weighting"}, BUDGETS, InvalidArgumentError, "epsilon=50.0 to be none, or 30"),
    ({"individualization": "weighting"}, BUDGETS[:5], InvalidArgumentError, "to be 1438 numbers"),
    ({"individualization": "weighting"}, -BUDGETS, InvalidArgumentError, "to be 1438 numbers"),
    ({"num_teachers": 2000}, None, DataError, "num_teachers=2000")])
def test_plans_that_cannot_be_are_refused(changes, budgets, error, message):
    with pytest.raises(error, match=message):
        pate.make_plan(config(**changes), 1438, budgets)


@pytest.mark.parametrize("changes,message", [
    ({"aggregator": "max"}, "aggregator='max'"), ({"num_rounds": 3}, "num_queries=40 to be a multiple of num_rounds=3"),
    ({"max_answers": 5, "num_rounds": 2}, "max_answers=5"), ({"max_answers": 5, "aggregator": "gnmax"}, "to be none"),
    ({"aggregator": "lnmax", "accountant": "gdp"}, "accountant='gdp'"), ({"noise_stddev": -1.0}, "noise_stddev=-1.0"),
    ({"vote_threshold": 2}, "vote_threshold=2"), ({"delta": 0}, "delta=0"), ({"method": "pate"}, "method='pate'")])
def test_bad_settings_are_named(changes, message):
    with pytest.raises(InvalidArgumentError, match=message):
        config(**changes)


def test_settings_survive_json():
    settings = config(image_shape=(8, 8, 1), aggregator="interactive_gnmax")
    assert PateClassifierConfig.from_json(settings.to_json()) == settings
    for text in ("[]", "{", '{"colour": 1}', '{"num_teachers": "many"}'):
        with pytest.raises(InvalidArgumentError):
            PateClassifierConfig.from_json(text)


def test_no_answer_at_all_is_one_clear_line(public):
    with pytest.raises(InvalidArgumentError, match="vote_threshold=0.6 to let some answers pass"):
        student.train_student(public.images[:4], np.full(4, -1), config())
