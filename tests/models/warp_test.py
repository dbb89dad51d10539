"""Warped images of a few sources: moved as named, within bounds, as likely from each, partly erased, with grain."""

import numpy as np
import pytest
import scipy.stats
import tensorflow as tf

from datalens_tf.models.warp import NUM_MOVES, OfNormal, WarpedGenerator, affine_warp, matrices, warp_places
from tests.models.factor_generators import SHAPE, generator, latents


def test_no_warp_is_no_warp():
    images = tf.constant(np.random.default_rng(0).random((3, 12, 8, 2)), tf.float32)
    np.testing.assert_allclose(affine_warp(images, matrices(tf.zeros([3, 6]), (12, 8, 2))), images, atol=1e-6)


@pytest.mark.parametrize("moves, expected", [
    ([0, 0, 0, 0, 28 / 0.8 / 8, 0], lambda image: np.concatenate([image[:, 1:], image[:, -1:]], 1)),
    ([0, 0, 0, 0, 0, 28 / 0.8 / 8], lambda image: np.concatenate([image[1:], image[-1:]], 0)),
    ([np.pi / 2 / 0.1, 0, 0, 0, 0, 0], np.rot90)])
def test_shifts_and_turns_are_what_they_are_called(moves, expected):
    image = np.random.default_rng(1).random((8, 8, 1)).astype(np.float32)
    warped = affine_warp(tf.constant(image[None]), matrices(tf.constant([moves], tf.float32), SHAPE))[0]
    np.testing.assert_allclose(warped, expected(image), atol=1e-4)


def test_places_of_batches_are_warped_as_one_by_one():
    rng = np.random.default_rng(2)
    images = rng.random((5, 3, 8, 6, 2)).astype(np.float32)
    maps = matrices(tf.constant(rng.standard_normal((3, 6)), tf.float32), (8, 6, 2))
    found = warp_places(tf.constant(images), maps)
    for batch, wanted in zip(images, found):
        np.testing.assert_allclose(wanted, affine_warp(tf.constant(batch), maps), atol=1e-6)


@pytest.mark.parametrize("grain, erased", [(0.0, 0.0), (5.0, 0.0), (5.0, 0.5)])
def test_warped_images_stay_within_bounds(grain, erased):
    made = WarpedGenerator(SHAPE, [generator()], 20.0, grain, erased)
    images = made([latents(made, 200), tf.zeros([200], tf.int32)]).numpy()
    assert np.all(np.isfinite(images)) and images.min() >= 0 and images.max() <= 1


def test_normal_latents_become_uniform_ones():
    class Echo(tf.Module):
        latent_dim = 3

        def __call__(self, inputs, training=False):
            return inputs[0]

    drawn = np.random.default_rng(0).standard_normal((20_000, 3)).astype(np.float32)
    found = OfNormal(Echo())([tf.constant(drawn), tf.zeros([20_000], tf.int32)]).numpy()
    np.testing.assert_allclose(found, 2 * scipy.stats.norm.cdf(drawn) - 1, atol=1e-3)


def test_without_a_warp_images_are_those_of_the_source():
    source = generator()
    made = WarpedGenerator(SHAPE, [source], 0.0)
    drawn, labels = latents(made, 9), tf.constant([0, 1, 1] * 3)
    assert made.latent_dim == source.latent_dim + 1 + NUM_MOVES
    np.testing.assert_array_equal(made([drawn, labels]), source([drawn[:, :source.latent_dim], labels]))


@pytest.mark.parametrize("count, looking", [(2, None), (3, None), (3, 2), (3, 1)])
def test_sources_give_as_many_images_each(count, looking):
    """All of them of those to learn from, the first ones of those to look at."""
    sources = [generator(num_factors=3 + source) for source in range(count)]
    made = WarpedGenerator(SHAPE, sources, 0.0, looking=sources[:looking])
    drawn, labels = latents(made, 4000), tf.zeros([4000], tf.int32)
    for images, expected in ((made([drawn, labels]), count), (made.to_look_at([drawn, labels]), looking or count)):
        found = np.array([np.all(images == source([drawn[:, :source.latent_dim], labels]), axis=(1, 2, 3))
                          for source in sources])
        np.testing.assert_array_equal(found.sum(0), 1)
        np.testing.assert_allclose(found.sum(1)[:expected], 4000 / expected, atol=6 * np.sqrt(1000))
        assert found[expected:].sum() == 0


def test_each_image_is_its_own_latents_and_label():
    made = WarpedGenerator(SHAPE, [generator(3), generator(5)], 1.0, 0.2, 0.7)
    drawn, labels = latents(made, 6), tf.constant([0, 1, 0, 1, 1, 0])
    alone = [made([drawn[i:i + 1], labels[i:i + 1]])[0] for i in range(6)]
    np.testing.assert_allclose(made([drawn, labels]), alone, atol=1e-5)


class Grey(tf.Module):
    """Left half black, right half grey."""

    latent_dim = 2

    def __call__(self, inputs, training=False):
        halves = np.repeat(np.float32([[0.0], [0.5]]), SHAPE[1] // 2, 0).reshape(1, 1, -1, 1)
        return tf.broadcast_to(halves, [len(inputs[1]), *SHAPE])


class Grey32(tf.Module):
    """Grey all over, larger."""

    latent_dim = 2

    def __call__(self, inputs, training=False):
        return tf.fill([len(inputs[1]), 32, 16, 3], 0.5)


def test_grain_is_noise_of_each_images_own_level_where_there_is_something():
    made = WarpedGenerator(SHAPE, [Grey()], 0.0, 0.04)
    drawn = latents(made, 4000)
    black, grey = np.split(made([drawn, tf.zeros([4000], tf.int32)]).numpy(), 2, axis=2)
    np.testing.assert_array_equal(black, 0)
    levels = grey.std((1, 2, 3))
    noise = drawn.numpy()[:, -np.prod(SHAPE):].reshape(grey.shape[0], *SHAPE)[:, :, SHAPE[1] // 2:]
    assert abs(grey.mean() - 0.5) < 1e-3
    assert abs(levels.mean() / noise.std((1, 2, 3)).mean() - 0.04) < 6 * 0.04 / 3000**0.5
    assert levels.max() < 0.08 * 2 and np.quantile(levels, 0.1) < 0.02 < 0.06 < np.quantile(levels, 0.9)


def test_grain_is_on_black_as_well_where_asked_for():
    black = WarpedGenerator(SHAPE, [Grey()], 0.0, 0.04, on_black=True)
    drawn, labels = latents(black, 4000), tf.zeros([4000], tf.int32)
    left, right = np.split(black([drawn, labels]).numpy(), 2, axis=2)
    usual = WarpedGenerator(SHAPE, [Grey()], 0.0, 0.04)([drawn, labels])
    np.testing.assert_array_equal(right, np.split(usual, 2, axis=2)[1])
    noise = drawn.numpy()[:, -np.prod(SHAPE):].reshape(len(left), *SHAPE)[:, :, :SHAPE[1] // 2]
    assert np.all((left > 0) == (noise > 0))  # what is below 0 is cut off


def test_grain_leaves_the_images_what_they_are():
    source = generator()
    without, made = WarpedGenerator(SHAPE, [source], 1.0), WarpedGenerator(SHAPE, [source], 1.0, 1e-4)
    drawn, labels = latents(made, 9), tf.constant([0, 1, 1] * 3)
    np.testing.assert_allclose(made([drawn, labels]), without([drawn[:, :without.latent_dim], labels]), atol=2e-3)


@pytest.mark.parametrize("share", [0.3, 1.0])
def test_rectangles_of_one_colour_are_erased_from_a_share_of_the_images(share):
    """Each is a rectangle with sides and places as named, of any colour, and all else is as it was."""
    shape, source = (32, 16, 3), Grey32()
    without, made = WarpedGenerator(shape, [source], 1.0), WarpedGenerator(shape, [source], 1.0, erased=share)
    drawn, labels = latents(made, 2000), tf.zeros([2000], tf.int32)
    before = without([drawn[:, :without.latent_dim], labels]).numpy()
    images = made([drawn, labels]).numpy()
    changed = np.any(images != before, 3)
    rows, columns = changed.any(2), changed.any(1)
    some = changed.any((1, 2))
    assert abs(some.mean() - share) <= 6 * (share * (1 - share) / 2000)**0.5
    np.testing.assert_array_equal(changed, rows[:, :, None] & columns[:, None, :])
    assert np.all(np.abs(np.diff(rows[some].astype(int), axis=1, prepend=0, append=0)).sum(1) == 2)
    assert {*rows[some].sum(1)} == {*range(6, 17)} and {*columns[some].sum(1)} <= {*range(3, 9)}
    assert rows.any(0).all() and columns.any(0).all()
    colours = np.array([image[where][[0, -1]] for image, where in zip(images[some], changed[some])])
    np.testing.assert_array_equal(colours[:, 0], colours[:, 1])
    np.testing.assert_allclose(colours[:, 0].mean(0), 0.5, atol=6 * (1 / 12 / some.sum())**0.5)


@pytest.mark.parametrize("less", [0.0, 0.7])
def test_images_to_look_at_are_the_same_without_moves_grain_or_rectangle_or_those_of_others(less):
    plain = WarpedGenerator(SHAPE, [generator()], less)
    made = WarpedGenerator(SHAPE, [generator()], 1.0, 0.5, 1.0, looking=[plain] if less else None)
    numbers, labels = latents(made, 20), tf.constant(np.arange(20) % 2)
    looked_at = made.to_look_at([numbers, labels])
    np.testing.assert_array_equal(looked_at, plain([numbers[:, :plain.latent_dim], labels]))
    assert np.abs(made([numbers, labels]) - looked_at).max() > 0.1
