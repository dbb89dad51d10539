"""Verdicts: what accuracy alone hides is said."""

import numpy as np
import pytest

from datalens_tf.evaluation.verdict import balanced, verdict


def utility(confusion, auroc, real=None, names=("healthy", "pneumonia")):
    confusion = np.asarray(confusion)
    found = {"accuracy_mean": np.trace(confusion) / confusion.sum(), "auroc_macro": auroc,
             "auroc_per_class": [auroc] * len(confusion), "num_test": int(confusion.sum()),
             "confusion_matrix": confusion.tolist(), **balanced(confusion, names)}
    return found | ({} if real is None else {"real": {"balanced_accuracy": real}})


def test_unequal_classes_do_not_make_an_accuracy():
    found = balanced(np.array([[2, 232, 0], [0, 390, 0], [0, 0, 0]]), ["a", "b", "empty"])
    assert found == {"balanced_accuracy": pytest.approx((2 / 234 + 1) / 2), "worst_class": {
        "name": "a", "accuracy": pytest.approx(2 / 234)}, "largest_class": {
        "name": "b", "share": pytest.approx(390 / 624)}}


def test_an_accuracy_that_hides_failure_and_signal():
    """As measured on chest X-rays: 0.627 where always saying pneumonia has 0.625, and the ranking was good."""
    told = verdict(utility([[2, 232], [1, 389]], 0.867))
    assert told.startswith("Accuracy says little here: it is 0.627, and always saying 'pneumonia' is right on "
                           "0.625.") and "0.867" in told and "The weakest class is 'healthy': 0.009" in told
    assert "uncertain by 0.04" in told


def test_nothing_learned_is_called_so():
    told = verdict(utility([[20, 214], [30, 360]], 0.51))
    assert told.startswith("Of no use for learning") and "weakest" not in told


@pytest.mark.parametrize("real, opening", [
    (0.86, "Nearly as useful as the records: "), (0.96, "Useful: "), (None, "A classifier that learned from these"),
    (0.9, "Useful: ")])
def test_worth_is_measured_against_the_records(real, opening):
    told = verdict(utility([[850, 150], [150, 850]], 0.9, real))
    assert told.startswith(opening) and "0.850" in told and "0.500" in told and "uncertain" not in told


def test_half_of_what_records_teach_is_of_some_use():
    assert verdict(utility([[650, 350], [350, 650]], 0.7, 0.85)).startswith("Of some use: ")
    assert verdict(utility([[560, 440], [440, 560]], 0.6, 0.95)).startswith("Of little use: ")


@pytest.mark.parametrize("size, area, ranks", [
    (20, 0.58, False), (20, 0.8, True), (72, 0.6, False), (2000, 0.56, True)])
def test_luck_is_not_taken_for_telling_classes_apart(size, area, ranks):
    """Of classifiers that guess among two times 20 records, 30 % have an area above 0.55."""
    told = verdict(utility([[0, size], [0, size]], area))
    assert told.startswith("Accuracy says little here" if ranks else "Of no use for learning")
    assert ("Choose its threshold" in told) == ranks


def test_many_classes_have_no_threshold_to_choose():
    confusion = np.zeros((10, 10), int)
    confusion[:, 0] = 1000
    told = verdict(utility(confusion, 0.6, names="0123456789"))
    assert told.startswith("Accuracy says little here") and "threshold" not in told
