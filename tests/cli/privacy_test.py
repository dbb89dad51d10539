"""`datalens privacy`: what a user types and what comes back."""

import json
import re

import pytest

from tests.cli.commands import refused


def test_privacy_shows_the_papers_steps(datalens):
    status, out, err = datalens("privacy", "--preset=mnist", "--epsilon=1", "--json")
    report = json.loads(out)
    assert (status, err) == (0, "")
    assert report["steps"] == {"classic_rdp": 86, "rdp": 127, "pld": 149, "gdp": 149}
    assert report["epsilon_of_steps"]["classic_rdp"]["classic_rdp"] == pytest.approx(0.99571, abs=5e-6)
    assert report["epsilon_of_steps"]["gdp"]["gdp"] == pytest.approx(0.99747, abs=1e-5)
    assert report["l2_sensitivity"] == pytest.approx(2 * (200 * 15) ** 0.5)
    assert "epsilon" not in report and "calibrated_noise_stddev" not in report


def test_privacy_of_given_steps(datalens):
    words = "privacy", "--top_k=200", "--noise_stddev=5000", "--batch_size=15", "--num_steps=100"
    report = json.loads(datalens(*words, "--json")[1])
    expected = {"classic_rdp": 1.07532, "rdp": 0.87698, "pld": 0.80161, "gdp": 0.80161}
    assert report["epsilon"] == pytest.approx(expected, abs=1e-5) and "steps" not in report
    assert json.loads(datalens(*words, "--json", "--accountant=rdp")[1])["epsilon"].keys() == {"rdp"}


def test_privacy_calibrates_the_noise(datalens):
    report = json.loads(datalens("privacy", "--preset=mnist", "--epsilon=1", "--num_steps=100", "--json")[1])
    for name, sigma in report["calibrated_noise_stddev"].items():
        words = "privacy", "--preset=mnist", "--num_steps=100", f"--noise_stddev={sigma}", "--json"
        assert 0.9999 < json.loads(datalens(*words)[1])["epsilon"][name] <= 1.0


def test_privacy_prints_tables(datalens):
    status, out, _ = datalens("privacy", "--preset=mnist", "--epsilon=0.05", "--num_steps=100")
    assert status == 0 and "noise multiplier 45.6435" in out
    assert re.search(r"^classic_rdp +1\.0754$", out, re.MULTILINE)
    assert re.search(r"^classic_rdp +unreachable$", out, re.MULTILINE)


@pytest.mark.parametrize("adjacency, other, price", [
    ("replace-one", "add-or-remove-one", r"0\.55\d+ \(rdp\), 0\.49\d+ \(pld\); a comparison figure.*"),
    ("add-or-remove-one", "replace-one", r"1\.9\d+ \(rdp\), 1\.8\d+ \(pld\); a guarantee")])
def test_privacy_of_sampled_records_has_a_line_for_each_kind_of_neighbours(datalens, adjacency, other, price):
    status, out, _ = datalens("privacy", "--method=dp_gan", "--epsilon=1", f"--adjacency={adjacency}")
    lines = out.splitlines()
    assert status == 0 and lines[1].startswith(f"{adjacency}: ") and re.fullmatch(f"{other}: epsilon {price}", lines[2])


@pytest.mark.parametrize("adjacency, other", [("add-or-remove-one", 1.9211), ("replace-one", 0.6805)])
def test_privacy_of_sums_has_a_line_for_each_kind_of_neighbours(datalens, adjacency, other):
    words = "privacy", "--method=datalens_plus", "--epsilon=1", f"--adjacency={adjacency}"
    status, out, _ = datalens(*words)
    head, own, price = out.splitlines()
    assert status == 0 and f"its noise made for {adjacency}, epsilon 1" in head and "n = 60,000" in head
    assert own.startswith(f"{adjacency}: ") and "1.0000 (gdp); a guarantee" in own
    assert f"{other:.4f} (gdp)" in price and ("comparison figure" in price) == (adjacency == "replace-one")
    report = json.loads(datalens(*words, "--json", "--num_records=1000")[1])
    assert report["num_records"] == 1000 and report["prices"][0]["epsilon"]["gdp"] <= 1


def test_privacy_of_other_methods_names_the_relation_that_they_have(datalens):
    out = datalens("privacy", "--method=gs_wgan", "--accountant=rdp")[1]
    assert out.splitlines()[1].startswith("replace-one: epsilon ") and len(out.splitlines()) == 2
    assert "replace-one" in datalens("privacy", "--preset=mnist", "--epsilon=1")[1]
    refused(datalens("privacy", "--method=gs_wgan", "--adjacency=add-or-remove-one"), "to be replace-one for gs_wgan")
    refused(datalens("privacy", "--method=dcgan"), "a method that is private")
    refused(datalens("privacy", "--method=dp_merf", "--top_k=5"), "without --top_k")


@pytest.mark.parametrize("words,text", [
    (["--preset=mnist", "--epsilon=0"], "epsilon=0.0 > 0"),
    (["--preset=mnist", "--noise_stddev=0"], "noise_stddev=0.0 > 0"),
    (["--preset=mnist", "--top_k=0"], "top_k=0 >= 1"),
    (["--num_steps=0"], "num_steps=0 >= 1"),
    (["--num_steps=5", "--delta=0"], "delta=0.0 in (0, 1)"),
    (["--preset=nope"], "preset='nope'"),
    (["--num_steps=5", "--accountant=hope"], "'hope'"),
])
def test_privacy_of_nonsense(words, text, datalens):
    refused(datalens("privacy", *words), text)


def test_privacy_shows_what_tensorflow_privacy_states_of_a_released_generator(datalens):
    pytest.importorskip("tensorflow_privacy")
    ledger = "--ledger=checkpoints/mnist_eps1"
    status, out, err = datalens("privacy", ledger, "--tensorflow_privacy")
    assert (status, err) == (0, "") and re.search(r"computed\s+with\s+RDP\s+accounting", out)
    assert out.splitlines()[-1] == ("TensorFlow Privacy: epsilon 1.090. rdp here: 1.0898, replace-one, for the 149 "
                                    "charges of checkpoints/mnist_eps1/ledger.jsonl.")
    refused(datalens("privacy", "--preset=mnist", "--epsilon=1", "--tensorflow_privacy"), "with --ledger")
    refused(datalens("privacy", ledger, "--ledger=checkpoints/fashion_mnist_eps1", "--tensorflow_privacy"),
            "one --ledger")


def test_a_number_that_the_price_does_not_depend_on_is_refused(datalens):
    refused(datalens("privacy", "--epsilon=1", "--num_records=5000"), "--num_records", "--method datalens_plus")
