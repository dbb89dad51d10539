"""What untrained networks see of images: how long it is, that it is public, and the same for records and prototypes."""

import dataclasses

import numpy as np
import pytest
import tensorflow as tf

from datalens_tf.training.untrained_networks import UntrainedNetworks, num_features

SHAPE = (16, 9, 3)
LABELS = np.arange(200) % 3


def images(count, seed=0, shape=SHAPE):
    return np.random.default_rng(seed).random((count, *shape)).astype(np.float32)


@pytest.fixture(name="networks", scope="module")
def fixture_networks():
    return UntrainedNetworks.for_images(images(200), LABELS, seed=3, num_networks=4, filters=5, clip=0.9)


def test_no_image_is_seen_as_longer_than_one(networks):
    odd = np.stack([np.zeros(SHAPE), np.ones(SHAPE), np.indices(SHAPE).sum(0) % 2, np.full(SHAPE, 1e30)])
    seen = networks.made()(tf.constant(np.concatenate([odd, images(100, seed=1)]), tf.float32)).numpy()
    lengths = np.linalg.norm(seen.astype(np.float64)[np.isfinite(seen).all(1)], axis=1)
    assert len(lengths) >= 103 and lengths.max() <= 1 and lengths.max() > 0.99
    one = networks.of_one()(tf.constant(images(100, seed=1)), 2).numpy().astype(np.float64)
    assert np.linalg.norm(one, axis=1).max() <= 1


def test_all_networks_are_each_one_of_them(networks):
    seen, drawn = networks.of_one(), tf.constant(images(6, seed=2))
    each = np.concatenate([seen(drawn, tf.constant(number)).numpy() for number in range(4)], 1)
    np.testing.assert_allclose(networks.made()(drawn), each / 2, atol=1e-6)
    assert each.shape == (6, 4 * 5 * 2 * 1) and networks.num_features == num_features(SHAPE, 4, 5) == each.shape[1]


def test_networks_are_a_function_of_the_seed_and_differ(networks):
    again = UntrainedNetworks.for_images(images(200), LABELS, seed=3, num_networks=4, filters=5, clip=0.9)
    other = UntrainedNetworks.for_images(images(200), LABELS, seed=4, num_networks=4, filters=5, clip=0.9)
    np.testing.assert_array_equal(again.centres, networks.centres)
    assert np.abs(other.centres - networks.centres).max() > 0.1 < np.abs(np.diff(networks.centres, axis=0)).max()


def test_what_is_seen_is_centred(networks):
    wide = dataclasses.replace(networks, scales=networks.scales / 1e3)
    assert np.abs(wide.made()(tf.constant(images(200))).numpy().mean(0)).max() < 1e-6


@pytest.mark.parametrize("labels", [None, LABELS])
@pytest.mark.parametrize("clip, share", [(1.0, 0.5), (2.0, 0.0)])
def test_the_clip_shortens_as_many_as_it_says(labels, clip, share):
    made = UntrainedNetworks.for_images(images(200), labels, seed=3, num_networks=1, filters=5, clip=clip)
    lengths = np.linalg.norm(made.made()(tf.constant(images(200))).numpy(), axis=1)
    assert np.mean(lengths > 0.9999) == pytest.approx(share, abs=0.02)


def varying():
    """Two classes of images, which differ by a faint pattern, and all in light."""
    random = np.random.default_rng(5)
    light = random.normal(0, 0.1, (400, 1, 1, 1)) * np.linspace(-1, 1, 9)[:, None]
    labels = np.arange(400) % 2
    faint = 0.01 * (2 * labels - 1)[:, None, None, None] * random.choice([-1, 1], SHAPE)
    return (0.5 + light + faint + random.normal(0, 0.02, (400, *SHAPE))).astype(np.float32), labels


def test_whitened_features_vary_as_much_in_all_directions_and_tell_classes_apart():
    """Images that share what varies most get apart: nearest means are right more often."""
    drawn, labels = varying()
    apart, spreads = [], []
    for given in (None, labels[:200]):
        networks = UntrainedNetworks.for_images(drawn[:200], given, seed=0, num_networks=1, filters=3, clip=10.0)
        seen = networks.made()(tf.constant(drawn)).numpy()
        means = np.stack([seen[:200][labels[:200] == label].mean(0) for label in range(2)])
        found = ((seen[200:, None] - means)**2).sum(2).argmin(1)
        apart.append(np.mean(found == labels[200:]))
        variances = np.linalg.eigvalsh(np.cov((seen[:200] - means[labels[:200]]).T))
        spreads.append(variances[-1] / variances.mean())
    assert apart[1] > apart[0] + 0.05 and spreads[1] < 0.5 * spreads[0]


def test_images_are_seen_together_with_their_mirror_images():
    made = UntrainedNetworks.for_images(
        images(200), LABELS, seed=3, num_networks=2, filters=5, clip=0.9, mirrored=True)
    plain = dataclasses.replace(made, mirrored=False, scales=made.scales / 1e3)  # without clipping
    drawn = images(7, seed=6)
    seen = dataclasses.replace(plain, mirrored=True).made()(tf.constant(drawn)).numpy()
    straight, turned = (plain.made()(tf.constant(view)).numpy() for view in (drawn, drawn[:, :, ::-1]))
    np.testing.assert_allclose(seen, (straight + turned) / 2, atol=1e-6)
    assert np.abs(straight - turned).max() > 1e-4
    assert np.linalg.norm(made.made()(tf.constant(1e3 * drawn)).numpy().astype(np.float64), axis=1).max() <= 1


def test_images_of_one_colour_are_seen_without_a_division_by_zero():
    same = np.full((20, *SHAPE), 0.5, np.float32)
    networks = UntrainedNetworks.for_images(same, LABELS[:20], seed=0, num_networks=2, filters=4, clip=1.0)
    assert np.all(np.isfinite(networks.made()(tf.constant(np.concatenate([same, images(3)]))).numpy()))


def test_an_images_features_are_its_own(networks):
    drawn = tf.constant(images(5, seed=4))
    alone = np.concatenate([networks.made()(drawn[i:i + 1]) for i in range(5)])
    np.testing.assert_allclose(networks.made()(drawn), alone, atol=1e-5)
