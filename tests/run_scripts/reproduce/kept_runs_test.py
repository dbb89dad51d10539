"""Every row of results/ is what its kept runs say, and every table in the documents is what the rows say."""

import csv
import json
import math
import pathlib
import re
import shutil
import statistics

import pytest

from datalens_tf.accounting.accountants import epsilons_for_others
from datalens_tf.accounting.statement import parse_statement, price
from datalens_tf.accounting.verification import charges_of
from datalens_tf.accounting.wording import how_many
from datalens_tf.errors import LedgerError
from datalens_tf.evaluation import references

ROOT = pathlib.Path(__file__).parents[3]
RESULTS = ROOT / "results"
ROWS = list(csv.DictReader((RESULTS / "results.csv").read_text().splitlines()))
ADJACENCIES = {"epsilon_replace_one": "replace-one", "epsilon_add_or_remove": "add-or-remove-one"}


@pytest.fixture(name="kept_runs", scope="module")
def fixture_kept_runs(script):
    return script("kept_runs")


def runs_of(row):
    """Statement and measures of each run of a row."""
    folders = [RESULTS / "runs" / name for name in row["runs"].split()]
    return [(parse_statement((folder / "privacy.json").read_bytes()),
             json.loads((folder / "measured.json").read_text())) for folder in folders]


def test_there_are_rows_and_every_kept_run_is_in_one():
    assert len(ROWS) >= 12
    named = {name for row in ROWS for name in row["runs"].split()}
    assert named == {path.name for path in (RESULTS / "runs").iterdir()}


def test_nothing_else_is_kept():
    """No weights, no pictures, no losses on real data."""
    found = {str(path.relative_to(RESULTS)) for path in RESULTS.rglob("*") if path.is_file()}
    names = {path.name for path in (RESULTS / "runs").iterdir()}
    assert found == {"README.md", "results.csv"} | {
        f"runs/{name}/{file}" for name in names for file in ("privacy.json", "measured.json")}


@pytest.mark.parametrize("row", ROWS, ids=lambda row: f"{row['runs'].split()[0]}-{row['measure']}")
def test_a_row_is_what_its_runs_say(row):
    runs = runs_of(row)
    assert row["seeds"].split() == [str(measured["seed"]) for _, measured in runs]
    assert len(set(row["seeds"].split())) == len(runs)
    spent = {column: [] for column in ADJACENCIES}
    for statement, measured in runs:
        assert (statement["method"], how_many(statement)) == (row["method"], row["n"])
        assert statement["dataset"] == measured["dataset"] == row["data"] and measured["commit"] in row["commit"]
        if not statement["private"]:
            assert row["budget"] == row["epsilon_replace_one"] == row["epsilon_add_or_remove"] == "inf"
            continue
        assert (f"{statement['delta']:g}", statement["accountant"]) == (row["delta"], row["accountant"])
        computed = price(charges_of(statement), statement["delta"], statement["adjacency"])[statement["accountant"]]
        assert math.isclose(computed, statement["epsilon"], rel_tol=1e-6)
        assert computed <= float(row["budget"]) * (1 + 1e-6)
        spent[next(column for column, name in ADJACENCIES.items() if name == statement["adjacency"])].append(computed)
        other = statement.get("other_adjacency") or {"is_guarantee": False}
        if other["is_guarantee"]:
            spent[next(column for column, name in ADJACENCIES.items() if name == other["adjacency"])].append(
                other["epsilon_by_accountant"][statement["accountant"]])
        elif statement.get("other_adjacency") is None and statement["adjacency"] == "add-or-remove-one":
            prices = epsilons_for_others([charge.event for charge in charges_of(statement)], statement["delta"],
                                           statement["adjacency"])
            if statement["accountant"] in prices:
                spent["epsilon_replace_one"].append(prices[statement["accountant"]])
    for column, epsilons in spent.items():
        if epsilons:
            assert 0 <= float(row[column]) - max(epsilons) < 1.0001e-4  # Rounded up.
        elif row["budget"] != "inf":
            assert row[column] == ""
    values = [measured["measures"][row["measure"]] for _, measured in runs]
    assert row["values"].split() == [f"{value:.4f}" for value in values]
    assert row["mean"] == f"{statistics.fmean(values):.4f}"
    if row["measure"] == "accuracy":
        for value, (_, measured) in zip(values, runs):
            assert math.isclose(value, statistics.fmean(measured["accuracy_by_classifier"]), abs_tol=1e-6)
            assert 0 <= value <= 1 and measured["follows_protocol"] == (" but " not in row["protocol"])
    spread = values if len(values) > 1 or row["measure"] != "accuracy" else runs[0][1]["accuracy_by_classifier"]
    assert row["sd"] == (f"{statistics.stdev(spread):.4f}" if len(spread) > 1 else "")


@pytest.mark.parametrize("name", sorted(path.name for path in ROOT.glob("checkpoints/*/")))
def test_statements_of_released_generators_are_those_in_checkpoints(name):
    """A run may stand there as released, exported anew, or by its place in the queue."""
    released = ROOT / "checkpoints" / name
    kept = [path.parent for path in RESULTS.glob("runs/*/privacy.json")
            if path.read_bytes() == (released / "privacy.json").read_bytes()]
    accuracy = json.loads((released / "metrics.json").read_text())["utility"]["accuracy_mean"]
    assert accuracy in [json.loads((run / "measured.json").read_text())["measures"]["accuracy"] for run in kept]


def test_rows_and_documents_are_written_from_the_kept_runs(kept_runs):
    found = kept_runs.rows(RESULTS)
    assert kept_runs.csv_text(found) == (RESULTS / "results.csv").read_text()
    for path, text in kept_runs.documents(found).items():
        assert path.read_text() == text


def test_numbers_of_documents_are_in_rows():
    """Independent of the script: each mean in a table that claims to be generated is that of a row."""
    means = {row["mean"] for row in ROWS}
    for name in ("README.md", "docs/research/tables.md"):
        table = (ROOT / name).read_text().partition("<!-- results:")[2].partition("<!-- end of results")[0]
        shown = re.findall(r"\| (\d+\.\d{4})(?: ± [\d.]+)? (?=\|)", table)
        accuracies = [number for number in shown if number in means]
        assert accuracies and set(shown) <= means | {
            row[column] for row in ROWS for column in (*ADJACENCIES, "sd", "paper")}


def copied(tmp_path, name, seed=0, **changes):
    """Another kept run in a folder of results, made from one that there is."""
    folder = tmp_path / "runs" / f"{name}_{seed}"
    shutil.copytree(RESULTS / "runs" / name, folder)
    measured = json.loads((folder / "measured.json").read_text()) | {"seed": seed, **changes}
    (folder / "measured.json").write_text(json.dumps(measured))
    return folder


def test_runs_that_differ_in_their_seed_share_a_row(kept_runs, tmp_path):
    for seed, value in enumerate((0.5, 0.6, 0.8)):
        copied(tmp_path, "released_mnist_eps1", seed, variant="", measures={"accuracy": value})
    copied(tmp_path, "released_mnist_eps1", 3, variant="other", measures={"accuracy": 0.9})
    one, other = kept_runs.rows(tmp_path)
    assert (one["seeds"], one["mean"], one["sd"], one["sd_over"]) == ("0 1 2", "0.6333", "0.1528", "3 runs")
    assert (one["paper"], other["paper"], other["mean"]) == ("0.7123", "", "0.9000")
    assert (one["epsilon_replace_one"], one["epsilon_add_or_remove"]) == ("0.9975", "")


def test_scores_of_images_to_look_at_have_a_row_of_their_own(kept_runs, tmp_path):
    """Accuracies are of images to learn from in every run, and share a row."""
    for seed, (images, score) in enumerate((("training", 5.0), ("looking", 8.0), ("looking", 8.2))):
        copied(tmp_path, "released_mnist_eps1", seed, variant="", quality_of=images,
               measures={"accuracy": 0.6, "inception_score": score})
    accuracy, *scores = kept_runs.rows(tmp_path)
    assert accuracy["seeds"] == "0 1 2"
    assert [(row["seeds"], row["mean"], row["protocol"]) for row in scores] == [
        ("0", "5.0000", "domain classifier"), ("1 2", "8.1000", "domain classifier, images to look at")]
    assert "| inception score, images to look at | 8.1000" in kept_runs.all_tables([*scores, accuracy])


def test_a_best_epoch_stands_beside_a_last_one_and_the_paper_s_number_beside_the_best(kept_runs, tmp_path):
    metrics = json.loads((ROOT / "checkpoints/mnist_eps1/metrics.json").read_text())
    utility = metrics["utility"] | {"protocol_name": "paper-short", "per_seed": [
        metrics["utility"]["per_seed"][0] | {"accuracy": 0.5, "best_epoch_accuracy": 0.75}]}
    cells = {cell.name: cell for cell in kept_runs.paper_tables.cells()}
    proof = (ROOT / "checkpoints/mnist_eps1/privacy.json").read_bytes()
    for name in ("paper_short_released_mnist_eps1", "paper_short_posed_mnist_eps1"):
        kept_runs.write_run(cells[name], proof, {"utility": utility}, tmp_path,
                            {"classes": [], "minutes": {}, "commit": "", "command": ""})
    rows = kept_runs.rows(tmp_path)
    assert [(row["measure"], row["mean"], row["paper"]) for row in rows] == 2 * [
        ("accuracy", "0.5000", ""), ("best_epoch_accuracy", "0.7500", "0.7123")]
    assert "| best epoch accuracy | 0.7500 |" in kept_runs.all_tables(rows)
    copied(tmp_path, "posed_mnist_eps1")
    assert "| DataLens, posed, by the paper's protocol |" in (text := kept_runs.headline(kept_runs.rows(tmp_path)))
    assert "| 0.5000 (0.7500) |" in text and text.count("0.5000") == 1


def test_a_statement_that_its_charges_do_not_bear_out_is_not_kept(kept_runs, script, tmp_path):
    cell = script("cells").Cell(name="x", tables=("1",), method="datalens", dataset="mnist", epsilon=1.0, seed=0)
    folder = ROOT / "checkpoints" / "mnist_eps1"
    metrics = json.loads((folder / "metrics.json").read_text())
    statement = json.loads((folder / "privacy.json").read_text())
    kept_runs.write_run(cell, json.dumps(statement).encode(), metrics, tmp_path, {"minutes": {}})
    statement["num_charges"] += 50
    with pytest.raises(LedgerError):
        kept_runs.write_run(cell, json.dumps(statement).encode(), metrics, tmp_path, {"minutes": {}})


def test_collecting_copies_finished_runs_and_writes_the_rows(kept_runs, tmp_path, monkeypatch, capsys):
    queue, mine = tmp_path / "queue", tmp_path / "mine"
    folder = copied(queue / "results", "released_mnist_eps1", 1, variant="")
    (folder / "picture.png").touch()
    monkeypatch.setattr("sys.argv", ["kept_runs.py", "--collect", str(queue), "--results_dir", str(mine)])
    assert kept_runs.main() == 0 and "results.csv" in capsys.readouterr().out
    assert [path.name for path in (mine / "runs").iterdir()] == [folder.name]
    assert sorted(path.name for path in (mine / "runs" / folder.name).iterdir()) == ["measured.json", "privacy.json"]
    monkeypatch.setattr("sys.argv", ["kept_runs.py", "--check", "--results_dir", str(mine)])
    assert kept_runs.main() == 0
    (mine / "results.csv").write_text("")
    assert kept_runs.main() == 1 and (mine / "results.csv").read_text() == ""


def test_published_numbers_are_those_of_the_paper():
    """A few of each table, as the paper prints them."""
    assert references.ACCURACY["mnist"]["G-PATE"][0.6] == 0.4184
    assert references.ACCURACY["fashion_mnist"]["PATE-GAN"][0.8] == 0.3659
    assert references.INCEPTION_SCORE["mnist"]["GS-WGAN"][10.0] == 8.59
    assert references.INCEPTION_SCORE["fashion_mnist"]["G-PATE"][1.0] == 3.41


def test_a_run_with_a_private_number_of_records_has_both_guarantees_and_others_one(kept_runs, tmp_path):
    """The other relation's price stands in a row only where the statement calls it a guarantee."""
    name = "without_grain_mnist_eps1"
    for number, is_guarantee in enumerate((True, False)):
        folder = copied(tmp_path, name, number, variant=f"variant {number}", tables=["adjacency"])
        statement = json.loads((folder / "privacy.json").read_text())
        statement |= {"adjacency": "add-or-remove-one", "num_records": None, "records_at_most": 60_000,
                      "other_adjacency": {"adjacency": "replace-one", "is_guarantee": is_guarantee,
                                          "epsilon_by_accountant": {"gdp": 1.92455}}}
        (folder / "privacy.json").write_text(json.dumps(statement))
    both, one = [row for row in kept_runs.rows(tmp_path) if row["measure"] == "accuracy"]
    assert (both["epsilon_add_or_remove"], both["epsilon_replace_one"]) == ("1.0000", "1.9246")
    assert (one["epsilon_add_or_remove"], one["epsilon_replace_one"]) == ("1.0000", "")
    text = kept_runs.all_tables([both, one])
    assert "## Replaced, or added and removed" in text and "| at most 60,000 |" in text
