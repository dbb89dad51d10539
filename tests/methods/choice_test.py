"""The method that is taken where none is named, and defaults that follow from public facts of the data."""

import itertools
import math

import pytest

from datalens_tf.accounting import accountants
from datalens_tf.accounting.delta import automatic
from datalens_tf.config import VotingConfig
from datalens_tf.errors import InvalidArgumentError
from datalens_tf.facts import DataFacts
from datalens_tf.methods import registry

SIZES = (1, 2, 10, 100, 300, 1000, 3000)
KINDS = registry.config_classes()


def facts(num_records, num_classes=10, image_shape=(28, 28, 1), num_slots=None):
    return DataFacts(num_records=num_records, image_shape=image_shape, num_classes=num_classes, num_slots=num_slots)


@pytest.mark.parametrize("method", KINDS)
def test_defaults_are_affordable_and_serve_few_records(method):
    for num_records in (1, 300):
        check_defaults(KINDS[method], facts(num_records, 10, (8, 8, 1)), 1.0)


@pytest.mark.slow
@pytest.mark.parametrize("image_shape", [(8, 8, 1), (28, 28, 1), (64, 64, 3)], ids=str)
@pytest.mark.parametrize("method", KINDS)
def test_defaults_are_affordable_and_serve_any_number_of_records(method, image_shape):
    for epsilon, num_records, num_classes in itertools.product((1.0, 10.0), SIZES, (2, 10)):
        check_defaults(KINDS[method], facts(num_records, num_classes, image_shape), epsilon)


def check_defaults(kind, about, epsilon):
    """That settings without any given one pay for a step, and want no more parts of data than there are records."""
    config = kind.for_data(about, None if kind.adjacency == "none" else epsilon, {}).replace(
        image_shape=about.image_shape, num_classes=about.num_classes).resolved(about.num_records)
    parts = [getattr(config, name, None) or 1 for name in ("num_teachers", "num_discriminators", "num_users")]
    assert 1 <= max(parts) <= about.num_records
    event = config.step_event()
    if event is not None:
        adjacency = config.adjacency.removesuffix("-user")
        assert accountants.epsilon(event, 1, config.delta, config.accountant, adjacency) <= epsilon


def test_teachers_have_as_many_records_as_the_authors_and_as_much_noise_each():
    large, small = (KINDS["datalens"].for_data(facts(n), 1.0, {}) for n in (60_000, 3_000))
    assert (large.num_teachers, large.noise_stddev, large.top_k) == (4000, 5000.0, 200)
    assert (small.num_teachers, small.top_k) == (200, 200)
    # The same noise for each of fewer teachers would pay for no step, so that it is calibrated to some.
    assert small.noise_stddev > 1.25 * 200
    steps = accountants.max_steps(small.replace(image_shape=(28, 28, 1)).step_event(), 1.0, 1e-5, "gdp")
    assert 50 <= steps < 60


def test_given_settings_are_kept():
    given = {"num_teachers": 30, "noise_stddev": 7.0, "top_k": 3}
    config = KINDS["datalens"].for_data(facts(3000), 1.0, given)
    assert all(getattr(config, name) == value for name, value in given.items())
    alone = KINDS["datalens"].for_data(facts(3000), 1.0, {"num_teachers": 30})
    assert alone.num_teachers == 30 and alone.noise_stddev != 5000


def test_records_that_share_a_slot_share_a_teacher():
    assert facts(3000, num_slots=300).num_teachers == 20
    for kind in KINDS.values():
        if issubclass(kind, VotingConfig):
            assert kind.for_data(facts(3000, num_slots=30), 1.0, {}).num_teachers <= 2


def test_the_choice_is_the_most_useful_private_method():
    for num_records in SIZES:
        choice = registry.best(facts(num_records), 1.0)
        told = {name: kind.suits(facts(num_records), 1.0) for name, kind in KINDS.items()}
        assert told[choice.method].usefulness == max(answer.usefulness for answer in told.values() if answer)
        assert KINDS[choice.method].adjacency == "replace-one" and choice.why


def test_large_pictures_take_a_method_whose_memory_they_fit():
    usual, large = registry.best(facts(3000), 1.0), registry.best(facts(3000, image_shape=(256, 256, 3)), 1.0)
    assert usual.method != large.method


def test_settings_ask_for_the_methods_that_have_them():
    assert registry.best(facts(3000), 1.0, ["num_teachers", "top_k"]).method == registry.DEFAULT
    with pytest.raises(InvalidArgumentError, match="--fit_steps .*--num_teachers"):
        registry.best(facts(3000), 1.0, ["num_teachers", "fit_steps"])
    with pytest.raises(InvalidArgumentError, match="Missing --method: no method with --num_bins .* g_pate"):
        registry.best(facts(3000), 1.0, ["num_bins", "epsilon"])


def test_a_delta_for_so_many_records_is_a_tenth_of_one_of_them_at_most():
    assert [automatic(n) for n in (1, 3_000, 9_999, 10_000, 60_000, 1_000_000)] == [1e-5, 1e-5, 1e-5, 1e-6, 1e-6, 1e-8]
    for n in range(1, 20_000, 7):
        assert automatic(n) <= 0.1 / n * (1 + 1e-9) and not math.isnan(automatic(n))
