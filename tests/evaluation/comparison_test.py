"""Comparison: what belongs together is one row, what cannot be compared is refused."""

import csv
import io
import json
import statistics

import pytest

from datalens_tf.accounting import accountants
from datalens_tf.errors import DataError
from datalens_tf.evaluation import charts
from datalens_tf.evaluation.comparison import accuracy_charts, csv_text, markdown, read_result, table
from datalens_tf.methods.datalens import DataLensConfig
from tests.evaluation.evaluation_data import all_metrics

STATEMENT = {"method": "datalens", "epsilon": 0.99741, "delta": 1e-5, "accountant": "gdp", "adjacency": "replace-one"}


def folder(root, name, *, accuracy=0.5, statement=(), metrics=(), utility=(), config=None):
    """A run folder, as far as comparison looks at it."""
    place = root / name
    place.mkdir()
    found = json.loads(json.dumps(all_metrics().metrics))
    found["utility"] |= {"accuracy_mean": accuracy, "follows_protocol": True} | dict(utility)
    (place / "privacy.json").write_text(json.dumps(STATEMENT | dict(statement)))
    (place / "metrics.json").write_text(json.dumps(found | dict(metrics)))
    if config is not None:
        (place / "config.json").write_text(config.to_json())
    return place


@pytest.mark.slow
def test_runs_that_differ_in_seeds_are_one_row(tmp_path):
    config = DataLensConfig(dataset="digits")
    accuracies = (0.5, 0.6, 0.8)
    runs = [folder(tmp_path, f"seed{seed}", accuracy=accuracy, config=config.replace(seed=seed))
            for seed, accuracy in enumerate(accuracies)]
    other = folder(tmp_path, "other", accuracy=0.1, config=config.replace(top_k=7))
    rows = table([read_result(run) for run in (other, *runs)])
    assert [row["accuracy"] for row in rows] == ["0.1000", "0.6333"]
    assert rows[1]["std"] == f"{statistics.stdev(accuracies):.4f}" and rows[1]["spread over"] == "3 runs"
    assert rows[0]["spread over"] == "2 classifiers of 1 run"
    assert rows[0]["epsilon"] == "0.9975"  # Never rounded down.
    assert rows[1]["runs"].split() == [str(run) for run in runs]


def test_what_makes_numbers_comparable_separates_rows(tmp_path):
    config = DataLensConfig(dataset="digits")
    changes = [{}, {"statement": {"epsilon": 2.0}}, {"statement": {"delta": 1e-6}},
               {"statement": {"accountant": "pld"}}, {"statement": {"adjacency": "add-or-remove-one"}},
               {"statement": {"adjacency": "replace-one-user"}}, {"statement": {"adjacency": "add-or-remove-one-user"}},
               {"statement": {"method": "other"}},
               {"metrics": {"dataset": "mnist"}}, {"utility": {"protocol_name": "paper"}},
               {"utility": {"follows_protocol": False}}]
    runs = [folder(tmp_path, str(number), config=config, **change) for number, change in enumerate(changes)]
    rows = table([read_result(run) for run in runs])
    assert len(rows) == len(changes)
    assert {row["adjacency"] for row in rows} == set(accountants.RELATIONS)
    assert sum("but 300 images and 2 epochs" in row["protocol"] for row in rows) == 1
    for column in ("data", "method", "epsilon", "delta", "accountant", "adjacency", "protocol", "accuracy", "std"):
        assert all(column in row for row in rows)


def test_tables_say_the_same(tmp_path):
    odd = folder(tmp_path, "a|b", statement={"method": "x|y"})
    rows = table([read_result(odd), read_result(folder(tmp_path, "c"))])
    assert list(csv.DictReader(io.StringIO(csv_text(rows)))) == rows
    lines = markdown(rows).splitlines()
    assert len(lines) == 4 and len({line.replace("\\|", "").count("|") for line in lines}) == 1


def test_names_of_others_are_text(tmp_path):
    """Neither HTML, nor a formula of a spreadsheet, nor text that is read in another order than it is written."""
    names = ["<script>alert(1)</script>", "=HYPERLINK(1)", " =1", "+1+1", "@SUM(1)", "-1-1", "abc\u202edef", "\t=1"]
    rows = table([read_result(folder(tmp_path, f"run{number}", statement={"method": name}, metrics={"dataset": name},
                                     utility={"protocol_name": name})) for number, name in enumerate(names)])
    shown = {"&lt;script&gt;alert(1)&lt;/script&gt;", "'=HYPERLINK(1)", "' =1", "'+1+1", "'@SUM(1)", "'-1-1",
             "abc\ufffddef", "\ufffd=1"}
    for name in ("data", "method", "protocol"):
        assert {row[name] for row in csv.DictReader(io.StringIO(csv_text(rows)))} == shown
        lines = [dict(zip(rows[0], line[2:-2].split(" | "))) for line in markdown(rows).splitlines()[2:]]
        assert {line[name] for line in lines} == shown


def test_numbers_stay_numbers():
    row = {"a": "-0.5", "b": "+1e-5", "c": "inf", "d": ".5", "e": "3 %"}
    assert csv_text([row]).splitlines()[1] == "-0.5,+1e-5,inf,.5,3 %"


def test_folders_of_others_need_no_config_and_stay_apart(tmp_path):
    rows = table([read_result(folder(tmp_path, name)) for name in "ab"])
    assert len(rows) == 2


def test_the_plot_has_every_data_set(tmp_path):
    rows = table([read_result(folder(tmp_path, name, metrics={"dataset": name})) for name in ("mnist", "digits")])
    found = accuracy_charts(rows)
    assert set(found) == {"mnist", "digits"}
    text = charts.svg_bytes(found["mnist"])
    assert text.startswith(b"<?xml") and text == charts.svg_bytes(accuracy_charts(rows)["mnist"])


def test_the_plot_names_the_neighbours_of_every_curve(tmp_path, monkeypatch):
    monkeypatch.setattr(charts, "accuracy_chart",
                        lambda ours, published: [*(point["label"] for point in ours), *published])
    found, = accuracy_charts(table([read_result(folder(tmp_path, "a", metrics={"dataset": "mnist"}))])).values()
    assert len(found) == 4 and all("replace-one" in name or "add-or-remove-one" in name for name in found)
    assert "DP-FETA (add-or-remove-one)" in found


@pytest.mark.parametrize("missing", ["method", "epsilon", "delta", "accountant", "adjacency"])
@pytest.mark.parametrize("value", [None, [1], True])
def test_rows_without_their_guarantee_are_refused(tmp_path, missing, value):
    with pytest.raises(DataError, match=f"states no {missing}"):
        read_result(folder(tmp_path, "run", statement={missing: value}))


def test_all_that_a_statement_lacks_is_named_at_once(tmp_path):
    place = folder(tmp_path, "run", utility={"follows_protocol": False, "uniform_labels": False})
    assert " images of unequal classes and " in table([read_result(place)])[0]["protocol"]
    (place / "privacy.json").write_text('{"method": "mine", "delta": 1e-5}')
    with pytest.raises(DataError, match="states no accountant, adjacency, epsilon, so it cannot be compared"):
        read_result(place)


@pytest.mark.parametrize("statement", [
    {"epsilon": -1.0}, {"epsilon": float("nan")}, {"epsilon": float("inf")}, {"epsilon": 10**400}, {"delta": 2}])
def test_guarantees_that_nothing_can_have_are_refused(tmp_path, statement):
    with pytest.raises(DataError, match="cannot be compared"):
        read_result(folder(tmp_path, "run", statement=statement))


@pytest.mark.parametrize("change, message", [
    ({"utility": {"accuracy_mean": 1.5}}, r"accuracy_mean=1.5 in \[0, 1\]"),
    ({"utility": {"accuracy_mean": float("nan")}}, "accuracy_mean=nan"),
    ({"utility": {"accuracy_std": -1}}, "accuracy_std=-1"),
    ({"metrics": {"quality": {"inception_score": {"mean": float("inf")},
                              "frechet_domain_classifier": {"value": 1.0}}}}, "inception score=inf"),
    ({"metrics": {"schema_version": 2}}, "schema_version 1, got 2"),
    ({"metrics": {"utility": None}}, "no accuracy with its protocol"),
    ({"utility": {"protocol_name": None, "accuracy_mean": "high"}}, "no accuracy with its protocol"),
])
def test_rows_without_their_protocol_are_refused(tmp_path, change, message):
    with pytest.raises(DataError, match=message) as caught:
        read_result(folder(tmp_path, "run", **change))
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize("name", ["privacy.json", "metrics.json"])
@pytest.mark.parametrize("content", [None, "{", "[]", "\x00"])
def test_missing_and_damaged_files_are_refused(tmp_path, name, content):
    run = folder(tmp_path, "run")
    (run / name).unlink()
    if content is not None:
        (run / name).write_text(content)
    with pytest.raises(DataError, match=name):
        read_result(run)
