"""Prototypes: cells that are public, a fit that comes closer, and what it is told of the records."""

import json

import numpy as np
import pytest
import tensorflow as tf

from datalens_tf.data.datasets import as_dataset
from datalens_tf.errors import InvalidArgumentError
from datalens_tf.mechanisms.mean_embedding import MeanEmbedding
from datalens_tf.methods import prototypes, sum_questions
from datalens_tf.methods.datalens_plus_config import DataLensPlusConfig
from datalens_tf.models.factor_generator import FactorGenerator
from datalens_tf.training import untrained_networks

SHAPE, CLASSES, CELLS = (16, 16, 3), 3, 2
CONFIG = DataLensPlusConfig(
    candidates="prototypes:1:0.1", embedding_charges=0, prototype_charges=4, selection_charges=0, num_prototypes=6,
    prototype_cells=CELLS, num_networks=3, network_filters=6, image_shape=SHAPE, num_classes=CLASSES,
    noise_multiplier=1.0, prototype_warp=0.5)


def gaussians():
    """One for each class, whose images are of two kinds: bright above, or bright below."""
    random, size = np.random.default_rng(0), int(np.prod(SHAPE))
    direction = np.repeat([0.3, -0.3], size // 2)[None]
    return FactorGenerator(SHAPE, 0.5 + random.normal(0, 0.05, (CLASSES, 1, size)), np.ones((CLASSES, 1, 1, 1)),
                           direction, np.ones((CLASSES, 1)))


def records(count=60, seed=1):
    random = np.random.default_rng(seed)
    images = random.integers(0, 256, (count, 4, 4, 3)).repeat(4, 1).repeat(4, 2).astype(np.uint8)
    return as_dataset(images, np.arange(count) % CLASSES, CLASSES)


@pytest.fixture(name="plan")
def fixture_plan(tmp_path):
    return prototypes.plan(CONFIG, gaussians(), tmp_path / "prototypes.npz")


def test_a_plan_is_kept_and_is_read_again(plan, tmp_path):
    before = (tmp_path / "prototypes.npz").read_bytes()
    again = prototypes.plan(CONFIG, None, tmp_path / "prototypes.npz")  # Nothing is drawn.
    np.testing.assert_array_equal(again.start, plan.start)
    np.testing.assert_array_equal(again.networks.scales, plan.networks.scales)
    assert again.networks.mirrored and plan.networks.mirrored
    assert (tmp_path / "prototypes.npz").read_bytes() == before
    assert plan.start.shape == (CLASSES, CELLS, 3, *SHAPE) and plan.centres.shape == (CLASSES, CELLS, 8 * 8 * 3)


def test_plans_of_runs_from_before_features_were_whitened_are_read_again(tmp_path):
    """An unfinished run goes on with what its records were asked."""
    old = CONFIG.replace(network_whitening=False)
    made, again = (prototypes.plan(old, given, tmp_path / "prototypes.npz") for given in (gaussians(), None))
    assert made.networks.scales.shape == (3,) and not made.networks.mirrored
    assert "lengths" in np.load(tmp_path / "prototypes.npz")
    np.testing.assert_array_equal(again.networks.scales, made.networks.scales)
    fields = json.loads(CONFIG.to_json())
    del fields["network_whitening"]
    assert DataLensPlusConfig.from_json(json.dumps(fields)) == old


def test_first_prototypes_are_of_their_own_cell(plan):
    for label in range(CLASSES):
        points = sum_questions.averaged(plan.start[label].reshape(-1, *SHAPE), 2) / 255
        distances = np.linalg.norm(points[:, None] - plan.centres[label], axis=2)
        assert distances.argmin(1).tolist() == [0, 0, 0, 1, 1, 1]


def test_a_record_counts_in_the_cell_of_its_class_that_is_nearest(plan):
    data, question = records(), plan.question(CONFIG)
    sums = question.answer(MeanEmbedding(noise_multiplier=1.0), data)
    points = sum_questions.averaged(data.images / 255, 2)
    rows = [CELLS * label + np.linalg.norm(plan.centres[label] - point, axis=1).argmin()
            for point, label in zip(points, data.labels)]
    np.testing.assert_array_equal(sums[:, -1] / 2**24, np.bincount(rows, minlength=CLASSES * CELLS))
    seen = plan.networks.made()(tf.constant(data.images / 255, tf.float32)).numpy()
    for row in range(CLASSES * CELLS):
        np.testing.assert_allclose(sums[row, :-1] / 2**24, seen[np.equal(rows, row)].sum(0), atol=1e-4)


def fitted(plan, steps, means=None, counts=None):
    data = records()
    sums = plan.question(CONFIG).answer(MeanEmbedding(noise_multiplier=1.0), data)
    means = MeanEmbedding.means(sums) if means is None else means
    student = prototypes.PrototypeStudent(
        CONFIG, plan, CONFIG.prototype_warp, means, MeanEmbedding.counts(sums) if counts is None else counts,
        np.full((CLASSES, 8, 8, SHAPE[2]), 0.5))
    return student, [student.train(step) for step in range(1, steps + 1)]


def test_the_fit_comes_closer_to_the_records_means(plan):
    _, losses = fitted(plan, 60)
    assert np.mean(losses[-9:]) < 0.6 * np.mean(losses[:9])


def test_prototypes_are_a_function_of_the_public_seed_and_the_release(plan):
    first, second = (fitted(plan, 3)[0].released() for _ in range(2))
    np.testing.assert_array_equal(first.prototypes, second.prototypes)
    assert np.any(first.prototypes != plan.start.reshape(first.prototypes.shape))


def test_cells_that_noise_alone_could_have_filled_are_never_drawn(plan):
    student, _ = fitted(plan, 0, counts=np.array([30.0, 2, 10, 10, 1, 20]))
    made = student.released()
    latents = np.random.default_rng(2).standard_normal((300, 4)).astype(np.float32)
    latents[:, 1:] = [1, 0, 0]  # As they are.
    for label, cells in enumerate(([0], [0, 1], [1])):
        images = np.rint(255 * made([tf.constant(latents), tf.fill([300], label)]).numpy()).astype(np.uint8)
        expected = plan.start[label, cells].reshape(-1, *SHAPE)
        np.testing.assert_array_equal(np.unique(images, axis=0), np.unique(expected, axis=0))


def test_the_mechanism_has_as_many_rows_as_there_are_cells():
    seen, charges = CONFIG.release_mechanisms()[-1], CONFIG.release_charges
    assert charges == (6, 34, 4) and seen(noise_multiplier=1.0) == MeanEmbedding(noise_multiplier=1.0)
    private = CONFIG.replace(adjacency="add-or-remove-one", records_at_most=60)
    weight = private.release_mechanisms()[-1](noise_multiplier=1.0).count_weight
    assert weight == 1.0  # Sixty records are few.
    many = CONFIG.replace(adjacency="add-or-remove-one", records_at_most=10**6)
    assert many.release_mechanisms()[-1](noise_multiplier=1.0).count_weight == pytest.approx(
        CONFIG.num_network_features**-0.25)


@pytest.mark.parametrize("changes, message", [
    ({"num_prototypes": 1}, "num_prototypes=1 >= prototype_cells=2"),
    ({"prototype_charges": 0}, "prototype_charges=0 > 0 for candidates=prototypes:1:0.1"),
    ({"candidates": "prototypes+prototypes:1"}, "or several with plus signs"),
    ({"candidates": "prototypes+both:1"}, r"embedding_charges=0 > 0 for candidates=prototypes\+both:1"),
    ({"image_shape": (7, 16, 3)}, r"image_shape=\[7, 16, 3\] to be of 8 x 8 pixels at least"),
    ({"candidates": "moments:1"}, "prototype_charges=4 to be 0: no candidate")])
def test_settings_that_do_not_go_together_are_refused(changes, message):
    with pytest.raises(InvalidArgumentError, match=message):
        CONFIG.replace(**changes)


def test_steps_see_all_networks_at_random(plan):
    student, seen = fitted(plan, 0)[0], []
    student._step = lambda network, *_: seen.append(int(network)) or 0.0
    for step in range(1, 40):
        student.train(step)
    assert set(seen) == {0, 1, 2} and seen != sorted(seen)


def of_start(start, brightness):
    """A student that begins with these prototypes, and is not fitted; class means have this brightness."""
    channels = start.shape[-1]
    config = CONFIG.replace(image_shape=(16, 16, channels))
    networks = untrained_networks.UntrainedNetworks.for_images(
        np.random.default_rng(0).random((9, 16, 16, channels)).astype(np.float32), np.arange(9) % 3, seed=0,
        num_networks=3, filters=6, clip=0.8)
    made = prototypes.Plan(networks=networks, centres=np.zeros((CLASSES, CELLS, 64 * channels)), start=start)
    return prototypes.PrototypeStudent(
        config, made, 0.5, np.zeros((CLASSES * CELLS, config.num_network_features), np.float32),
        np.ones(CLASSES * CELLS), np.broadcast_to(brightness, (CLASSES, 8, 8, channels)))


@pytest.mark.parametrize("channels", [1, 3])
def test_only_images_in_colour_are_mirrored(channels):
    student = of_start(np.zeros((CLASSES, CELLS, 3, 16, 16, channels), np.uint8), 0.0)
    assert student.released()._mirrored == (channels == 3)


def test_brightness_and_contrast_are_those_of_the_released_means():
    """Networks do not see them, so that nothing else keeps them."""
    images = np.random.default_rng(3).uniform(0, 1, (CLASSES, 5, *SHAPE)) ** 3
    weights = np.random.default_rng(4).uniform(0, 1, (CLASSES, 5))
    means = np.stack([np.average(own, axis=0, weights=weight) for own, weight in zip(images, weights)])
    for square in (1, 2):  # Means are released at the resolution of the moments.
        expected = sum_questions.smaller(means, square)
        for faded in (0.3 + 0.4 * images, 0.9 * images, images):
            np.testing.assert_allclose(prototypes.levelled(faded, weights, expected), images, atol=1e-3)


@pytest.mark.parametrize("channels", [1, 3])
def test_grey_prototypes_get_the_brightness_of_the_released_means_and_photographs_keep_theirs(channels):
    student = of_start(np.full((CLASSES, CELLS, 3, 16, 16, channels), 200, np.uint8), 0.25)
    assert student.released().prototypes.numpy().mean() / 255 == pytest.approx(
        0.25 if channels == 1 else 200 / 255, abs=0.002)


def test_people_see_smooth_grey_prototypes_and_moved_photographs():
    random = np.random.default_rng(5)
    starts = [random.integers(0, 256, (CLASSES, CELLS, 3, 16, 16, channels)).astype(np.uint8) for channels in (1, 3)]
    grey, colour = (of_start(start, sum_questions.smaller(start.mean((1, 2)) / 255, 2)) for start in starts)

    def roughness(generator):
        return np.abs(np.diff(generator.prototypes.numpy().astype(float), axis=1)).mean()

    shown = grey.to_look_at(grey.released())
    assert roughness(shown) < 0.7 * roughness(grey.released())
    shown.prototypes.assign(tf.zeros_like(shown.prototypes))
    drawn = [tf.constant(random.standard_normal((50, 4)), tf.float32), tf.zeros(50, tf.int32)]
    assert not shown(drawn).numpy().any()  # Backgrounds stay black in any light.
    released = colour.released()
    seen = colour.to_look_at(released)
    assert (seen.warp, seen.grain, seen.erased) == (0.5, 0, 0)
    assert seen.sources == [released]  # The same variables, so that they are exported once.


def test_levels_of_images_of_one_colour_are_found():
    for grey in (0.0, 0.5, 1.0):
        found = prototypes.levelled(np.full((1, 1, 8, 8, 1), grey), np.ones((1, 1)), np.full((1, 8, 8, 1), 0.25))
        assert found.min() >= 0 and found.max() <= 1
