"""What DataLens+ releases: a function of public numbers."""

import pytest

from datalens_tf.methods.datalens_plus_config import DataLensPlusConfig
from datalens_tf.methods.registry import preset


@pytest.mark.parametrize("epsilon, num_records, num_classes, is_small", [
    (1.0, 3000, 10, True), (3.0, 3000, 10, True), (1.0, 60_000, 10, False), (10.0, 60_000, 10, False),
    (1.0, 1000, 4, True), (1.0, 48_851, 2, False), (10.0, 1000, 10, True)])
def test_few_records_for_the_budget_get_another_plan(epsilon, num_records, num_classes, is_small):
    """A function of public numbers: of records, of classes, and epsilon. What it gives is a fixed point."""
    config = DataLensPlusConfig(epsilon=epsilon, image_shape=(28, 28, 1), num_classes=num_classes)
    resolved = config.resolved(num_records)
    assert resolved.share_covariance == is_small and (resolved.centre_charges > 0) == is_small
    assert resolved.num_charges == 100 and resolved.resolved(num_records) == resolved
    assert DataLensPlusConfig.from_json(resolved.to_json()) == resolved
    assert resolved.noise_multiplier == pytest.approx(config.resolved(10**6).noise_multiplier)


def test_an_embedding_is_for_pictures_that_are_too_small_for_networks_unless_they_are_fewest():
    config = DataLensPlusConfig(image_shape=(6, 6, 3), num_classes=10)
    embedded = [config.resolved(count).embedding_charges > 0 for count in (1000, 3000, 10_000, 60_000)]
    assert embedded == [False, False, True, True]


@pytest.mark.parametrize("num_classes", [2, 10, 30])
def test_all_grey_pictures_but_the_fewest_get_prototypes(num_classes):
    config = DataLensPlusConfig(image_shape=(28, 28, 1), num_classes=num_classes)
    tens = max(num_classes, 10) / 10
    fewest, next_to = round(1640 * tens), round(1690 * tens)  # Signals of 44 and 46.
    fewer, more, many = (config.resolved(count) for count in (fewest, next_to, 7 * fewest))
    assert [found.prototype_charges > 0 for found in (fewer, more, many)] == [False, True, True]
    assert {choice.sources for choice in more.choices} == {("prototypes",)} and more.moved_prototypes == 0.75
    assert more.share_covariance and more.centre_charges and more.num_charges == 100 and not many.share_covariance
    assert more.num_prototypes == many.num_prototypes and more.resolved(next_to) == more


def test_covariances_of_larger_images_need_more_records_and_prototypes_do_not():
    """Colour has three times as many numbers as grey at one size, and images of any size at most 16 x 16 pixels."""
    def plan(shape, count):
        config = DataLensPlusConfig(image_shape=shape, num_classes=10).resolved(count)
        return config.prototype_charges > 0, config.moments_side == 16, config.share_covariance

    for shape in ((32, 32, 3), (64, 64, 3), (128, 100, 3)):
        assert plan(shape, 5000) == (False, True, True) and plan(shape, 10_000) == (True, True, True)
        assert plan(shape, 25_000) == (True, False, True)
    assert plan((32, 32, 3), 20_000) == plan((64, 64, 3), 20_000) == (True, True, True)
    assert plan((28, 28, 1), 10_000) == (True, True, True) and plan((28, 28, 1), 15_000) == (True, False, False)
    assert DataLensPlusConfig(image_shape=(128, 100, 3), num_classes=10).resolved(3000).moments_dimension <= 3 * 16**2


@pytest.mark.parametrize("num_classes", [2, 10, 100])
def test_with_fewest_records_nothing_is_chosen_since_noise_would(num_classes):
    config = DataLensPlusConfig(image_shape=(28, 28, 1), num_classes=num_classes)
    alone, chosen = config.resolved(1600), config.resolved(1620)
    assert (alone.selection_charges, len(alone.choices)) == (0, 1) and alone.num_charges == 100
    noise = 3**0.5 * chosen.noise_multiplier / chosen.selection_charges**0.5  # Of three counts that a record changes.
    assert len(chosen.choices) == 3 and noise / 1620 == pytest.approx(0.02, rel=0.02)


@pytest.mark.parametrize("num_classes, charges", [(1, (0, 50, 50)), (3, (0, 50, 50)), (4, (5, 57, 38))])
def test_few_classes_of_fewest_records_do_without_a_mean_of_all(num_classes, charges):
    resolved = DataLensPlusConfig(image_shape=(32, 32, 3), num_classes=num_classes).resolved(500)
    assert (resolved.centre_charges, resolved.mean_charges, resolved.covariance_charges) == charges
    assert resolved.share_covariance and resolved.resolved(500) == resolved


@pytest.mark.parametrize("num_classes, limit, charges", [
    (2, 1617, (0, 8, 15, 75, 2)), (4, 2240, (3, 8, 12, 75, 2)), (10, 5600, (3, 8, 12, 75, 2))])
def test_few_colour_pictures_get_prototypes_from_a_signal_of_150_if_records_can_choose(num_classes, limit, charges):
    config = DataLensPlusConfig(image_shape=(32, 32, 3), num_classes=num_classes)
    fewest, next_to = config.resolved(round(0.99 * limit)), config.resolved(round(1.01 * limit))
    assert fewest.prototype_charges == 0
    assert charges == (next_to.centre_charges, next_to.mean_charges, next_to.covariance_charges,
                       next_to.prototype_charges, next_to.selection_charges)
    assert next_to.num_charges == 100 and next_to.share_covariance and next_to.moved_prototypes == 0.75
    assert next_to.choices == tuple((("prototypes",), warp, 0.1, 1) for warp in (0, 0.75, 1.5))
    assert next_to.resolved(round(1.01 * limit)) == next_to


def test_few_classes_count_as_ten_where_pictures_are_many():
    def is_of_many(num_classes, count):
        config = DataLensPlusConfig(image_shape=(32, 32, 3), num_classes=num_classes).resolved(count)
        return config.prototype_charges == 83

    for count, expected in ((20_000, False), (25_000, True)):
        assert is_of_many(2, count) == is_of_many(9, count) == is_of_many(10, count) == expected
    assert not is_of_many(20, 40_000)


@pytest.mark.parametrize("epsilon, num_records, num_classes, cells, count", [
    (1.0, 50_000, 10, 1, 100), (10.0, 50_000, 10, 7, 112), (10.0, 22_000, 2, 15, 500), (1.0, 48_851, 2, 4, 500),
    (10.0, 50_000, 100, 1, 16)])
def test_many_colour_pictures_get_prototypes_in_as_many_cells_as_noise_leaves(epsilon, num_records, num_classes, cells,
                                                                              count):
    config = DataLensPlusConfig(epsilon=epsilon, image_shape=(32, 32, 3), num_classes=num_classes)
    resolved = config.resolved(num_records)
    assert (resolved.prototype_cells, resolved.num_prototypes) == (cells, count) and resolved.num_charges == 100
    assert resolved.resolved(num_records) == resolved
    assert resolved.choices == tuple((("prototypes",), warp, 0.1, 1) for warp in (0.75, 1.5))
    assert resolved.moved_prototypes == 1.125
    assert resolved.noise_multiplier == pytest.approx(config.replace(fixed_plan=True).resolved(50_000).noise_multiplier)
    private = config.replace(adjacency="add-or-remove-one", records_at_most=num_records).resolved(num_records)
    assert private.prototype_cells >= cells


@pytest.mark.parametrize("num_records, num_classes", [(24_000, 2), (120_000, 10), (10**6, 10)])
def test_colour_pictures_get_clusters_as_well_where_more_cells_would_be_too_many(num_records, num_classes):
    config = DataLensPlusConfig(epsilon=10.0, image_shape=(32, 32, 3), num_classes=num_classes)
    resolved, less = config.resolved(num_records), config.resolved(num_records // 2)
    assert (resolved.num_clusters, resolved.prototype_cells, resolved.num_charges) == (16, 16, 100)
    assert (less.num_clusters == 1) == (num_records < 10**6) and resolved.resolved(num_records) == resolved
    assert resolved.choices[0] == (("moments", "prototypes"), 0.75, 0.1, 0)
    assert resolved.choices[1:] == tuple((("prototypes",), warp, 0.1, 1) for warp in (0.75, 1.5))


@pytest.mark.parametrize("shape", [(6, 6, 3), (6, 6, 1), (8, 12, 1), (28, 15, 1)])
def test_pictures_that_are_too_small_for_networks_have_no_prototypes(shape):
    config = DataLensPlusConfig(image_shape=shape, num_classes=2)
    some, many = config.resolved(40_000), config.resolved(10**6)
    assert some == config.replace(noise_multiplier=some.noise_multiplier)
    assert (many.prototype_charges, many.num_clusters) == (0, 16)


def test_many_grey_pictures_get_one_or_two_sources_and_prototypes_that_suit_any_warp_that_may_be_chosen():
    config = DataLensPlusConfig(image_shape=(28, 28, 1), num_classes=10).resolved(60_000)
    assert [choice.sources for choice in config.choices] == [("moments", "prototypes")] * 3 + [("prototypes",)] * 3
    assert [choice.warp for choice in config.choices] == [0, 0.75, 1.5] * 2 and config.moved_prototypes == 0.75
    assert config.replace(prototype_warp=0.0).moved_prototypes == 0 and config.resolved(60_000) == config
    assert config.num_prototypes == 100 and config.replace(num_classes=2).resolved(60_000) == config.replace(
        num_classes=2)


@pytest.mark.parametrize("changes", [
    {"fixed_plan": True}, {"noise_multiplier": 50.0}, {"mean_charges": 7}, {"candidates": "both:0,both:1"}])
def test_who_gives_a_part_of_the_plan_gets_it_whatever_the_number_of_records(changes):
    config = DataLensPlusConfig(image_shape=(28, 28, 1), num_classes=10).replace(**changes)
    assert config.resolved(1000) == config.replace(noise_multiplier=config.resolved(1000).noise_multiplier)


@pytest.mark.parametrize("count", [1000, 10_000, 60_000, 10**6])
def test_how_long_a_fit_takes_can_be_given_without_another_plan(count):
    config = DataLensPlusConfig(image_shape=(28, 28, 1), num_classes=10)
    given = {"fit_steps": 7, "prototype_steps": 9, "num_networks": 5, "selection_images": 50, "moments_side": 12}
    assert config.replace(**given).resolved(count) == config.resolved(count).replace(**given)


@pytest.mark.parametrize("epsilon, num_records, clusters", [
    (1.0, 60_000, 1), (10.0, 60_000, 16), (1.0, 600_000, 16), (10.0, 10_000, 1)])
def test_where_noise_hides_little_grey_pictures_get_clusters(epsilon, num_records, clusters):
    """That depends on the budget and on the number of records: many records make up for a small budget."""
    config = preset("fashion_mnist", epsilon, "datalens_plus").replace(image_shape=(28, 28, 1), num_classes=10)
    resolved = config.resolved(num_records)
    assert resolved.num_clusters == clusters
    cells = (resolved.prototype_charges, resolved.prototype_cells, resolved.num_prototypes, resolved.moved_prototypes)
    if clusters > 1:
        assert cells == (28, 8, 160, 0.75) and config.replace(num_classes=2).resolved(10**6).num_prototypes == 500
        assert {choice.sources for choice in resolved.choices} == {("moments", "prototypes"), ("prototypes",)}
    assert resolved.num_charges == 100 and resolved.resolved(num_records) == resolved
    assert (resolved.epsilon, resolved.dataset) == (epsilon, "fashion_mnist")
