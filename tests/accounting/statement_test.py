import json
import math
import pathlib
import re

import dp_accounting
import pytest

from datalens_tf.accounting import accountants
from datalens_tf.accounting import statement as statements
from datalens_tf.accounting.ledger import Charge
from datalens_tf.accounting.wording import render_text
from datalens_tf.config import ACCOUNTANTS
from datalens_tf.errors import InvalidArgumentError, LedgerError
from datalens_tf.mechanisms import InsecureSeededNoise
from tests.accounting.made_statements import CONFIG, EVENT, make


def test_epsilon_covers_every_charge_also_the_burnt_ones():
    statement = make(num_charges=149, num_burnt=2)
    assert statement["private"] is True
    for name in ACCOUNTANTS:
        assert statement["epsilon_by_accountant"][name] == accountants.epsilon(EVENT, 149, 1e-5, name)
    assert statement["epsilon"] == statement["epsilon_by_accountant"]["gdp"]
    assert (statement["num_charges"], statement["num_burnt_charges"], statement["num_steps"]) == (149, 2, 147)


def test_groups_are_priced_as_the_page_on_epsilon_says():
    """Its rows for epsilon 1 and 10, by one Gaussian release with the noise of each."""
    page = " ".join((pathlib.Path(__file__).parents[2] / "docs/explanation/epsilon.md").read_text().split())
    for budget, row in ((1.0, ("2.16", "6.17", "14.43")), (10.0, ("24.39", "91.85", "284.50"))):
        multiplier = accountants.calibrate_noise_multiplier(1, budget, 1e-5, "gdp")
        event = dp_accounting.GaussianDpEvent(multiplier)
        found = statements._of_groups([Charge(index=0, step=1, event=event, count=1)], 1e-5, "replace-one")
        told = [float(word) for word in re.findall(r"([\d.]+) for \d+ \(", found)]
        assert told == pytest.approx(list(map(float, row)), abs=0.0101)
        assert f"| {budget:g} | {' | '.join(row)} |" in page
    sampled = dp_accounting.PoissonSampledDpEvent(0.1, dp_accounting.GaussianDpEvent(2.0))
    assert statements._of_groups([Charge(index=0, step=1, event=sampled, count=1)], 1e-5, "replace-one") == ""


def test_groups_stand_in_the_statement_and_one_alone_is_right_as_often_as_the_page_says():
    text = " ".join(render_text(make()).split())
    assert "weaker guarantee: epsilon is 2.1" in text and "for one, 55.4 %" in text and "which of two values" in text
    charge = Charge(index=0, step=1, event=EVENT, count=1)
    assert "whether it is in the data or not" in statements._of_groups([charge], 1e-5, "add-or-remove-one")


def test_it_is_json_and_comes_back_the_same():
    assert json.loads(json.dumps(make(), allow_nan=False)) == make()


@pytest.mark.parametrize("changes", [
    {"noise": InsecureSeededNoise(3)},
    {"config": CONFIG.replace(insecure_noise_seed=3)},
])
def test_predictable_noise_is_not_private_and_has_no_epsilon(changes):
    statement = make(**changes)
    text = render_text(statement)
    assert text.startswith("NOT PRIVATE") and statement["private"] is False
    assert statement["epsilon"] is None and set(statement["epsilon_by_accountant"].values()) == {None}
    assert "epsilon =" not in text and "0.9975" not in text + json.dumps(statement)
    assert "datalens verify" not in text


@pytest.mark.parametrize("dataset, among", [
    ("mnist", True), ("tfds:fashion_mnist", True), ("tfds:mnist/3.0.1", True), ("tfds:mnist_corrupted", True),
    ("tfds:/data/mnist/3.0.1", True),
    ("celeba_gender", True), ("npz:mnist.npz", False), ("folder:pictures", False), ("digits", False)])
def test_the_statement_says_on_which_data_constants_were_chosen(dataset, among):
    statement = make(config=CONFIG.replace(dataset=dataset))
    text = " ".join(render_text(statement).split())
    assert CONFIG.CHOSEN in statement["settings_chosen"] and statement["settings_chosen"] in text
    assert "Settings chosen by looking at data" in text
    assert (f"This run's data, {dataset}, are among these: epsilon does not cover" in text) == among


@pytest.mark.parametrize("changes, said", [
    ({"dataset": "npz:data.npz"}, "The number of the 10 classes was read from the private labels"),
    ({"dataset": "arrays"}, "Names and number of the 10 classes were read from the private labels"),
    ({"dataset": "folder:pictures"}, "are those of the sub-folders, or of the labels where a table has them, and are "
                                     "taken to be public"),
    ({"dataset": "parquet:pictures"}, "are those of the files' description or, without one, of the labels, and are"),
    ({"dataset": "folder:pictures", "num_classes": 1}, "There is one class, of all records."),
    ({"dataset": "mnist"}, "the data set's public description"),
    ({"dataset": "tfds:anything"}, "the data set's public description"),
    ({"dataset": "npz:data.npz", "classes": tuple("abcdefghij")}, "of the 10 classes were declared to be public")])
def test_the_statement_says_where_the_classes_are_from(changes, said):
    statement = make(config=CONFIG.replace(**{"num_classes": 10, **changes}))
    assert said in statement["assumptions"][-1] and said in " ".join(render_text(statement).split())
    assert ("private labels" in render_text(statement)) == ("read from" in said)


def test_epsilon_follows_the_accountant_of_the_budget():
    assert make(config=CONFIG.replace(accountant="rdp"))["epsilon"] == accountants.epsilon(EVENT, 149, 1e-5, "rdp")


@pytest.mark.parametrize("tolerance", [0, 2, 3])
def test_owners_are_told_what_the_driver_sees_of_them(tolerance):
    config = CONFIG.replace(noise="gaussian", num_owners=4, owner_tolerance=tolerance)
    statement = make(config=config)
    share = CONFIG.noise_stddev / math.sqrt(4 - tolerance)
    alone = CONFIG.replace(noise_stddev=share).mechanism().dp_event(CONFIG.batch_size)
    seen = accountants.epsilon(alone, 149, CONFIG.delta, CONFIG.accountant)
    assert statement["owner_noise_stddev"] == pytest.approx(share, rel=1e-12)
    assert statement["epsilon_towards_driver"] == pytest.approx(seen, rel=1e-9)
    assert statement["epsilon"] == make()["epsilon"] <= statement["epsilon_towards_driver"]
    text = " ".join(render_text(statement).split())
    assert "4 data owners keep their records. Each record, and all that is of one patient or other unit, is" in text
    assert "Towards the driver the guarantee is weaker: epsilon = " in text
    assert "data owners" not in render_text(make()) and "epsilon_towards_driver" not in make()


def test_without_charges_nothing_was_spent():
    assert make(num_charges=0, num_burnt=0)["epsilon"] == 0.0


def test_charges_of_another_configuration_are_refused():
    with pytest.raises(LedgerError, match="Charge 0 .* another configuration"):
        make(event=dp_accounting.GaussianDpEvent(EVENT.noise_multiplier * 2))


def test_fewer_charges_than_were_used_are_refused():
    with pytest.raises(LedgerError, match="has 149 charges, 1 fewer than were used"):
        make(num_burnt=-1)


@pytest.mark.parametrize("num_burnt", [150, math.nan])
def test_more_burnt_charges_than_charges_are_refused(num_burnt):
    with pytest.raises(InvalidArgumentError, match="num_burnt"):
        make(num_burnt=num_burnt)
