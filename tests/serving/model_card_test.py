"""The model card says what holds, and no more."""

import json
import re

import pytest

from datalens_tf.serving.model_card import render_card
from tests.serving.released import ENTRY, STATEMENT

METRICS = json.loads((ENTRY / "metrics.json").read_text())
MODEL = {"image_shape": (28, 28, 1), "num_classes": 10, "class_names": tuple("0123456789")}


def test_it_has_the_guarantee_the_data_and_the_limits():
    card = render_card(STATEMENT, MODEL)
    assert f"epsilon = {STATEMENT['epsilon']:.4f}"[:-1] in card and "delta = 1e-05" in card
    assert "neighbours: replace-one" in card and "1.3191 (classic_rdp)" in card
    assert "`mnist`, 60000 records, images of 28x28x1, 10 classes: 0, 1, 2" in card
    assert all(text in card for text in STATEMENT["not_covered"])
    assert "Not measured" in card and "right on" not in card


def test_utility_per_class_is_that_of_the_evaluation():
    card = render_card(STATEMENT, MODEL, METRICS)
    matrix, classifiers = METRICS["utility"]["confusion_matrix"], len(METRICS["utility"]["per_seed"])
    assert f"right on {METRICS['utility']['accuracy_mean']:.4f} of 10000 real test records of mnist" in card
    shares = [float(line.split("|")[2]) for line in card.splitlines() if line.startswith("| ") and "class" not in line]
    counts = [int(line.split("|")[3]) for line in card.splitlines() if line.startswith("| ") and "class" not in line]
    assert shares == [round(row[label] / sum(row), 4) for label, row in enumerate(matrix)]
    assert counts == [sum(row) // classifiers for row in matrix] and sum(counts) == 10_000


@pytest.mark.parametrize("change", [{"private": False, "epsilon": None, "not_covered": ["Everything."]}])
def test_without_a_guarantee_it_names_no_epsilon(change):
    card = render_card(STATEMENT | change, MODEL)
    assert "**None.** Everything." in card and "epsilon =" not in card


def test_names_from_data_are_text():
    names = ["<script>alert(1)</script>", "abc\u202edef", "=HYPERLINK(1)", "a|b", "![x](http://y)", "two\nlines",
             *MODEL["class_names"][6:]]
    metrics = json.loads(json.dumps(METRICS))
    metrics["utility"]["dataset"] = "=1+1"
    statement = STATEMENT | {"dataset": "<b>", "method": "`x`<i>", "not_covered": ["<u>"], "accountant": "gdp\u2066"}
    card = render_card(statement, MODEL | {"class_names": names}, metrics)
    assert not re.search("<[a-z/]|[\u202a-\u202e\u2066-\u2069]|(?<![\\\\])\\[|[|,:] *=", card), card
    for shown in ("&lt;script&gt;alert(1)&lt;/script&gt;", "abc\ufffddef", "'=HYPERLINK(1)", "a\\|b", "two\ufffdlines"):
        assert shown in card and f"| {shown} |" in card
    assert card.encode().count(b"\n") == render_card(STATEMENT, MODEL, METRICS).count("\n") - (
        len(STATEMENT["not_covered"]) - 1)


def test_a_folder_name_that_is_no_text_can_be_shown():
    card = render_card(STATEMENT, MODEL | {"class_names": ["caf\udce9", *MODEL["class_names"][1:]]})
    assert "caf\ufffd" in card.encode().decode()
