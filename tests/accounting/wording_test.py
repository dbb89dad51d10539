import json
import pathlib

import pytest

from datalens_tf import __version__
from datalens_tf.accounting.wording import audience, caveat, guaranteed, render_text
from tests.accounting.made_statements import make


@pytest.mark.parametrize("epsilon, delta, whom", [
    (1.0, 1e-5, "with anybody"), (1.01, 1e-5, "with partners"), (10.0, 1e-5, "with few people"),
    (10.1, 1e-5, "with nobody"), (0.5, 0.01, "with nobody who may not see the records: delta is no smaller than 1/n")])
def test_advice_on_whom_to_share_with(epsilon, delta, whom):
    assert audience({"epsilon": epsilon, "delta": delta, "num_records": None, "records_at_most": 100,
                     "adjacency": "add-or-remove-one"}).startswith(whom)


def test_advice_follows_from_what_is_guaranteed_and_older_statements_do_not_say_it():
    path = pathlib.Path(__file__).parents[2] / "results/runs/dp_gan_mnist_eps1_seed0/privacy.json"
    old = json.loads(path.read_text()) | {"adjacency": "add-or-remove-one"}
    del old["other_adjacency"]
    assert old["epsilon"] < 1 and "with nobody" in audience(old) and guaranteed(old) is None
    assert "comparison figure" in caveat(old) and caveat(make()) == ""
    assert guaranteed(make()) == ("replace-one", make()["epsilon"])
    other = {"adjacency": "replace-one", "is_guarantee": True, "epsilon_by_accountant": {"pld": 2.1, "rdp": 2.4}}
    assert audience(old | {"other_adjacency": other}).startswith("with partners")
    assert guaranteed(old | {"other_adjacency": other}) == ("replace-one", 2.1)
    assert "guarantees epsilon = 2.1000 (pld)" in caveat(old | {"other_adjacency": other})
    del other["epsilon_by_accountant"]["pld"]
    assert audience(old | {"other_adjacency": other}).startswith("with partners")


def test_the_text_tells_an_outsider_what_is_and_is_not_promised():
    text = " ".join(render_text(make()).split())
    for fact in ("epsilon = 0.9975", "delta = 1e-05", "- classic_rdp: epsilon = 1.3191", "- rdp: epsilon = 1.0898",
                 "replace-one", "one record (an image with its label)", "4000 teacher", "147 steps",
                 "149 steps were charged", "60000 records", "noise multiplier 45.6435", "seed 0",
                 "operating system's entropy", "`private/`", "Evaluation on real data", "floating-point"):
        assert fact in text, fact
    assert "NOT PRIVATE" not in text


def test_printed_epsilons_are_never_below_the_proven_ones():
    statement = make()
    for name, value in statement["epsilon_by_accountant"].items():
        printed = float(render_text(statement).split(f"- {name}: epsilon = ")[1].split()[0])
        assert value <= printed <= value + 1e-4


def test_the_statement_says_what_made_it_and_what_checks_it():
    statement = make()
    text = " ".join(render_text(statement).split())
    assert statement["software"] == f"datalens_tf {__version__}"
    assert f"datalens_tf {__version__}. `datalens verify` checks this statement" in text
    assert "Software" not in render_text({name: value for name, value in statement.items() if name != "software"})
