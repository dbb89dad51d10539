"""The script that leaves out parts of DataLens+: variants have the same budget, and the table says what runs say."""

import importlib
import json
import pathlib
import sys

import pytest

from datalens_tf.methods import DataLensPlusConfig

FOLDER = pathlib.Path(__file__).parents[1] / "run_scripts" / "reproduce"


@pytest.fixture(name="script", scope="module")
def fixture_script():
    sys.path.insert(0, str(FOLDER))
    yield importlib.import_module("plus_ablation")
    sys.path.remove(str(FOLDER))
    for name in ("cells", "plus_ablation"):
        del sys.modules[name]


def test_all_variants_spend_the_same_on_the_parts_that_they_have(script, tmp_path, monkeypatch):
    """The flags are accepted, a charge has the same noise in all rows, and what is left out costs nothing."""
    calls = []
    monkeypatch.setattr(script, "fill", lambda folder, train, evaluate: calls.append((folder.name, train)))
    monkeypatch.setattr(sys, "argv", ["plus_ablation.py", "--runs_dir", str(tmp_path), "--epsilon", "0.2",
                                      "--", "--fit_steps=7"])
    script.main()
    default, configs = DataLensPlusConfig(), {}
    for name, train in calls:
        given = dict(word.removeprefix("--").split("=") for word in train)
        configs[name.removesuffix("_mnist_eps0.2_seed0")] = default.replace(**{
            name: value if name in ("method", "dataset", "candidates") else float(value) if "." in value else int(value)
            for name, value in given.items()})
    assert configs.keys() == script.PARTS.keys()
    assert {(config.num_charges, config.epsilon, config.fit_steps) for config in configs.values()} == {(100, 0.2, 7)}
    assert configs["whole"] == default.replace(epsilon=0.2, fit_steps=7, dataset="mnist")
    assert configs["no_embedding"].embedding_charges == 0 and configs["no_choice"].selection_charges == 0
    assert all(warp == 0 for _, warp in configs["no_warp"].choices)
    assert {sources for sources, _ in configs["no_moments"].choices} == {("embedding",)}


def test_a_budget_whose_defaults_are_others_is_refused(script, tmp_path, monkeypatch, capsys):
    monkeypatch.setattr(sys, "argv", ["plus_ablation.py", "--runs_dir", str(tmp_path), "--epsilon", "10"])
    with pytest.raises(SystemExit):
        script.main()
    assert "--epsilon of a small budget, got 10" in capsys.readouterr().err


def test_the_table_has_the_epsilon_of_each_runs_own_statement(script, tmp_path):
    for part, seed, accuracy in (("whole", 0, 0.5), ("whole", 1, 0.7), ("no_warp", 0, 0.25)):
        folder = tmp_path / f"{part}_digits_eps1_seed{seed}"
        folder.mkdir()
        charges = {f"{name}_charges": 7 for name in ("embedding", "mean", "covariance", "selection")}
        (folder / "config.json").write_text(json.dumps({"candidates": "moments:0"} | charges))
        (folder / "privacy.json").write_text(json.dumps({"epsilon": 0.98765, "accountant": "gdp"}))
        (folder / "metrics.json").write_text(json.dumps({"utility": {"accuracy_mean": accuracy}}))
    lines = script.write_table(tmp_path, "digits", 1.0).splitlines()
    assert lines[2:] == ["| whole | 7, 7, 7, 7 | moments:0 | 0.9877 | gdp | 0.6000 | 0.1414 | 2 |",
                         "| no_warp | 7, 7, 7, 7 | moments:0 | 0.9877 | gdp | 0.2500 | - | 1 |"]
    assert (tmp_path / "plus_ablation.md").read_text().splitlines() == lines
