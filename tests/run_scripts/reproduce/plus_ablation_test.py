"""The script that leaves out parts of DataLens+: variants have the same budget, and the table says what runs say."""

import importlib
import json
import pathlib
import sys

import pytest

from datalens_tf.methods.datalens_plus_config import DataLensPlusConfig

FOLDER = pathlib.Path(__file__).parents[3] / "run_scripts" / "reproduce"


@pytest.fixture(name="script", scope="module")
def fixture_script():
    sys.path.insert(0, str(FOLDER))
    yield importlib.import_module("plus_ablation")
    sys.path.remove(str(FOLDER))
    for name in ("cells", "plus_ablation", "table1"):
        del sys.modules[name]


@pytest.mark.parametrize("epsilon", [0.2, 10.0])
def test_all_variants_spend_the_same_on_the_parts_that_they_have(script, tmp_path, monkeypatch, epsilon):
    """The flags are accepted, a charge has the same noise in all rows, and what is left out costs nothing."""
    calls = []
    monkeypatch.setattr(script, "fill", lambda folder, train, evaluate: calls.append((folder.name, train)))
    monkeypatch.setattr(sys, "argv", ["plus_ablation.py", "--runs_dir", str(tmp_path), f"--epsilon={epsilon}",
                                      "--", "--num_factors=7"])
    script.main()
    default, configs = DataLensPlusConfig(epsilon=epsilon), {}
    for name, train in calls:
        switched = {word.removeprefix("--no_"): "0" for word in train if "=" not in word}
        given = switched | dict(word.removeprefix("--").split("=") for word in train if "=" in word)
        configs[name.removesuffix(f"_mnist_eps{epsilon:g}_seed0")] = default.replace(**{
            name: value if name in ("method", "dataset", "candidates") else float(value) if "." in value
            else bool(int(value)) if name in switched else int(value)
            for name, value in given.items()}, image_shape=(28, 28, 1), num_classes=10).resolved(60_000)
    assert configs.keys() == script.parts_of(epsilon).keys()
    assert {(config.num_charges, config.epsilon, config.num_factors) for config in configs.values()} == {
        (100, epsilon, 7)}
    assert len({config.noise_multiplier for config in configs.values()}) == 1
    assert configs["whole"].replace(num_factors=default.num_factors, dataset=default.dataset) == script.whole(epsilon)
    assert all(choice.warp == 0 for choice in configs["no_warp"].choices)
    assert all(choice.grain == 0 for choice in configs["no_grain"].choices)
    assert configs["means_alone"].num_clusters == 1 and configs["means_alone"].mean_charges == 97
    if epsilon < 5:
        assert configs["an_embedding_instead"].prototype_charges == configs["no_choice"].selection_charges == 0
        assert configs["moments_alone"].covariance_charges == 83 and configs["whole"].embedding_charges == 0
        assert {choice.sources for choice in configs["no_moments"].choices} == {("prototypes",)}
    else:
        assert configs["no_clusters"].num_clusters == 1 and configs["no_clusters"].prototype_charges == 28
        assert configs["no_prototypes"].num_clusters == 16 and configs["no_prototypes"].prototype_charges == 0


def test_a_part_that_this_budget_does_not_have_is_refused(script, tmp_path, monkeypatch, capsys):
    monkeypatch.setattr(sys, "argv", ["plus_ablation.py", "--runs_dir", str(tmp_path), "--epsilon", "10",
                                      "--parts", "no_choice"])
    with pytest.raises(SystemExit):
        script.main()
    assert "at epsilon 10, got no_choice" in capsys.readouterr().err


def test_the_table_has_the_epsilon_of_each_runs_own_statement(script, tmp_path):
    for part, seed, accuracy in (("whole", 0, 0.5), ("whole", 1, 0.7), ("no_warp", 0, 0.25)):
        folder = tmp_path / f"{part}_digits_eps1_seed{seed}"
        folder.mkdir()
        charges = {f"{name}_charges": 7 for name in ("embedding", "prototype", "mean", "covariance", "selection")}
        (folder / "config.json").write_text(json.dumps({"candidates": "moments:0"} | charges))
        (folder / "privacy.json").write_text(json.dumps({"epsilon": 0.98765, "accountant": "gdp"}))
        (folder / "metrics.json").write_text(json.dumps({"utility": {"accuracy_mean": accuracy}}))
    lines = script.write_table(tmp_path, "digits", 1.0).splitlines()
    assert lines[2:] == ["| whole | 7, 7, 7, 7, 7 | moments:0 | 0.9877 | gdp | 0.6000 | 0.1414 | 2 |",
                         "| no_warp | 7, 7, 7, 7, 7 | moments:0 | 0.9877 | gdp | 0.2500 | - | 1 |"]
    assert (tmp_path / "plus_ablation.md").read_text().splitlines() == lines
