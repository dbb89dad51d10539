"""Images of prototypes: which ones are drawn and how often, mirrored or not, in what light."""

import numpy as np
import pytest
import tensorflow as tf

from datalens_tf.models.prototypes import TO_LEARN_FROM, TO_LOOK_AT, Light, PrototypeGenerator

SHAPE = (8, 6, 3)


def table(classes=2, count=3, size=(8, 6)):
    """Each has a left half of a level of its own, and a black right one."""
    found = np.zeros((classes, count, *size, 3), np.uint8)
    found[..., :size[1] // 2, :] = 40 * (1 + np.arange(classes * count)).reshape(classes, count, 1, 1, 1)
    return found


def latents(which=0.0, mirror=1.0, contrast=0.0, brightness=0.0, count=1):
    return tf.constant([[which, mirror, contrast, brightness]] * count, tf.float32)


def test_each_prototype_is_drawn_as_often_as_its_weight_says():
    made, count = PrototypeGenerator(SHAPE, table(), np.array([[1, 2, 1], [3, 0, 1.0]]), True), 20_000
    drawn = np.random.default_rng(0).standard_normal((count, 4)).astype(np.float32)
    drawn[:, 1:] = [1, 0, 0]
    for label, shares in enumerate([(0.25, 0.5, 0.25), (0.75, 0, 0.25)]):
        images = made([tf.constant(drawn), tf.fill([count], label)]).numpy()
        levels = np.rint(255 * images[:, 0, 0, 0] / 40).astype(int) - 1 - 3 * label
        found = np.bincount(levels, minlength=3) / count
        np.testing.assert_allclose(found, shares, atol=6 * 0.5 / np.sqrt(count))
        assert (found == 0).tolist() == [share == 0 for share in shares]


@pytest.mark.parametrize("which", [-1e9, 1e9])
@pytest.mark.parametrize("weights", [[1, 1, 1], [1, 1, 0], [0, 1, 1]])
def test_no_latent_draws_what_has_no_weight(which, weights):
    made = PrototypeGenerator(SHAPE, table(1), np.array([weights]), False)
    level = round(255 * float(made([latents(which), tf.constant([0])])[0, 0, 0, 0]) / 40) - 1
    assert weights[level] > 0


def test_half_of_the_images_are_mirrored_where_that_is_asked_for():
    for mirrored in (True, False):
        made = PrototypeGenerator(SHAPE, table(), np.ones((2, 3)), mirrored)
        straight, turned = (made([latents(mirror=coin), tf.constant([1])]).numpy() for coin in (1.0, -1.0))
        np.testing.assert_array_equal(turned, straight[:, :, ::-1] if mirrored else straight)


def test_light_changes_and_images_stay_within_bounds():
    made = PrototypeGenerator(SHAPE, table(), np.ones((2, 3)), False)
    plain, brighter, flatter, extreme = (made([latents(**light), tf.constant([0])]).numpy() for light in (
        {}, {"brightness": 1.0}, {"contrast": -1.0}, {"contrast": 50.0, "brightness": 9.0}))
    np.testing.assert_allclose(255 * plain[0, 0, :, 0], [80, 80, 80, 0, 0, 0], atol=1e-4)
    np.testing.assert_allclose(brighter - plain, 0.08, atol=1e-6)
    assert np.ptp(flatter) < np.ptp(plain) and extreme.min() >= 0 and extreme.max() <= 1


def test_people_see_black_and_white_as_they_are_in_any_light():
    levels = np.zeros((1, 1, 8, 6, 1), np.uint8)
    levels[..., 0] = [0, 10, 60, 128, 250, 255]
    drawn = np.random.default_rng(2).standard_normal((500, 4)).astype(np.float32)
    looking, learning = (PrototypeGenerator((8, 6, 1), levels, np.ones((1, 1)), False, light=light)(
        [tf.constant(drawn), tf.zeros(500, tf.int32)]).numpy()[:, 0, :, 0] for light in (TO_LOOK_AT, TO_LEARN_FROM))
    assert looking.min() == 0 and looking.max() == 1
    np.testing.assert_array_equal(looking[:, [0, 5]], np.tile([0.0, 1.0], (500, 1)))
    assert (np.diff(looking) >= 0).all()  # What is lighter stays lighter.
    assert min(looking.std(0)[2:4]) > 0.05 > looking.std(0)[1] > 0 and (learning.std(0) > 0.03).all()


def test_light_far_from_black_and_white_changes_as_it_would_anywhere():
    images = tf.fill([2, 8, 6, 1], 0.4)
    numbers = [tf.reshape(tf.constant(pair), [2, 1, 1, 1]) for pair in ([0.3, -1.0], [1.0, -0.4])]
    np.testing.assert_allclose(Light(0.2, 0.08, edge=0.25).falling(images, *numbers),
                               Light(0.2, 0.08).falling(images, *numbers), atol=1e-6)


def test_small_prototypes_make_larger_images():
    made = PrototypeGenerator((15, 12, 3), table(), np.ones((2, 3)), False, enlarge=2)
    image = made([latents(), tf.constant([0])]).numpy()
    assert image.shape == (1, 15, 12, 3)
    np.testing.assert_allclose(255 * image[0, :, [0, 11], 0], [[80] * 15, [0] * 15], atol=8)


def test_each_image_is_its_own_latents_and_label():
    made = PrototypeGenerator(SHAPE, table(), np.ones((2, 3)), True)
    drawn, labels = tf.constant(np.random.default_rng(1).standard_normal((6, 4)), tf.float32), [0, 1, 0, 1, 1, 0]
    alone = [made([drawn[i:i + 1], tf.constant(labels[i:i + 1])])[0] for i in range(6)]
    np.testing.assert_allclose(made([drawn, tf.constant(labels)]), alone, atol=1e-6)
