"""The scripts of Tables 4, 5 and 7: what is compared is equal where it should be, and tables say what runs say."""

import json
import math
import sys
from types import SimpleNamespace

import pytest

from datalens_tf.accounting import accountants
from datalens_tf.methods.registry import config_class, preset

BASE = preset("mnist", 1.0).replace(num_steps=150)
SHAPE = (28, 28, 1)


@pytest.fixture(name="scripts", scope="module")
def fixture_scripts(script):
    return {name: script(name) for name in ("cells", "variants", "table4", "table5", "table7")}


def rows_of(scripts):
    return [*scripts["table4"].sweeps(BASE), *scripts["table5"].compressors(BASE), *scripts["table7"].ablations(BASE)]


def resolved(scripts, variant):
    """The settings that the flags of a variant mean, as training resolves them."""
    settings = scripts["variants"].settings_of(BASE, variant, SHAPE) | {"image_shape": SHAPE, "method": variant.method}
    config = config_class(variant.method)().replace(**settings)
    return config if variant.method == "datalens" else config.resolved(60_000)


def test_all_variants_have_the_same_epsilon_steps_and_images(scripts):
    for variant in rows_of(scripts):
        config = resolved(scripts, variant)
        spent = accountants.epsilon(config.mechanism().dp_event(config.batch_size), config.num_steps, 1e-5, "gdp")
        assert spent == pytest.approx(1.0, rel=1e-6) and spent <= 1, variant.name
        assert (config.num_steps, config.batch_size, config.teacher_steps) == (150, 15, BASE.teacher_steps)
        assert config.num_teachers == variant.changes.get("num_teachers", 4000)


def test_without_top_k_the_noise_is_larger_and_fewer_teachers_have_as_much(scripts):
    found = {variant.name: resolved(scripts, variant) for variant in rows_of(scripts)}
    assert found["no_top_k"].noise_stddev == pytest.approx(found["full"].noise_stddev * math.sqrt(784 / 200), rel=1e-9)
    assert found["N2000"].noise_stddev == found["preset"].noise_stddev == found["full"].noise_stddev
    assert found["no_threshold"].vote_threshold is None and found["cnone"].clip is None
    assert found["FetchSGD"].top_k == 200 and found["D2P-Fed"].vote_threshold == BASE.vote_threshold
    names = [variant.name for variant in rows_of(scripts)]
    assert len(set(names)) == len(names) == 13 + 3 + 5


def test_the_table_has_the_epsilon_of_each_runs_own_statement(scripts, tmp_path):
    variants = scripts["variants"]
    full, other = scripts["table7"].ablations(BASE)[:2]
    for variant, epsilon, accuracies in ((full, 0.98765, (0.5, 0.7)), (other, 0.5, (0.25,))):
        for seed, accuracy in enumerate(accuracies):
            folder = tmp_path / variants.folder_name(BASE, variant, seed)
            folder.mkdir()
            (folder / "config.json").write_text(json.dumps({"num_teachers": 7, "vote_threshold": None, "clip": 1e-5}))
            (folder / "privacy.json").write_text(json.dumps({
                "num_steps": 149, "top_k": 200, "noise_stddev": 5000.0, "l2_sensitivity": 109.5, "epsilon": epsilon,
                "delta": 1e-5, "accountant": "gdp"}))
            (folder / "metrics.json").write_text(json.dumps({"utility": {"accuracy_mean": accuracy}}))
    markdown = variants.write_table(tmp_path, "table7", BASE, [full, other])
    lines = markdown.splitlines()
    assert lines[2].startswith("| full | 7 | 149 | 200 | none | 1e-05 | stochastic | 5000.0 | 109.5 | 0.9877 | 1e-05 ")
    assert lines[2].endswith("| gdp | 0.6000 | 0.1414 | 2 | 0.7123 |")
    assert "| 0.5000 | 1e-05 | gdp | 0.2500 | - | 1 | 0.517 |" in lines[3] and len(lines) == 4
    assert (tmp_path / "table7.csv").read_text().count("\n") == 3 and (tmp_path / "table7.png").stat().st_size > 1000


def test_rows_and_the_papers_settings_can_be_chosen(scripts, tmp_path, monkeypatch, capsys):
    variants, filled = scripts["variants"], []
    monkeypatch.setattr(variants, "fill", lambda folder, train, evaluate: filled.append((folder.name, train)))
    monkeypatch.setattr(variants, "load_dataset", lambda name: SimpleNamespace(image_shape=SHAPE))

    def main(*flags):
        monkeypatch.setattr(sys, "argv", ["table7.py", "--runs_dir", str(tmp_path), "--epsilon", "80", *flags])
        variants.main("", "table7", scripts["table7"].ablations)

    main("--seeds", "1")
    main("--seeds", "2", "--variants", "full", "no_top_k", "--settings_of", "1")
    assert [name.split("_mnist")[0] for name, _ in filled[5:]] == ["full", "no_top_k"] * 2 and len(filled) == 9
    assert "--top_k=300" in filled[0][1] and "--top_k=200" in filled[5][1] and "--top_k=none" in filled[-1][1]
    assert all("--epsilon=80.0" in train for _, train in filled)
    with pytest.raises(SystemExit):
        main("--variants", "half")
    assert "Expected --variants of full, no_top_k" in capsys.readouterr().err


def test_top_k_of_smaller_images_is_swept_around_their_own(scripts):
    """100 to 300 of 784 on MNIST, as in the paper; digits of 64 pixels have 32."""
    swept = {row.changes["top_k"] for row in scripts["table4"].sweeps(BASE) if "top_k" in row.changes}
    assert swept | {BASE.top_k} == {100, 200, 300}
    digits = scripts["table4"].sweeps(preset("digits", 10.0))
    assert {row.changes["top_k"] for row in digits if "top_k" in row.changes} == {16, 48}
