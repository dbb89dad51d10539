"""Measures of image quality against their definitions, and on sets whose quality is known."""

import numpy as np
import pytest
import scipy.linalg
import tensorflow as tf

from datalens_tf.errors import DataError, InvalidArgumentError
from datalens_tf.evaluation import image_quality
from datalens_tf.evaluation.image_quality import (
    InceptionFeatures,
    frechet_distance,
    inception_score,
    manifold_metrics,
    memorisation,
    nearest_distances,
)


@pytest.fixture(name="rng")
def fixture_rng():
    return np.random.default_rng(0)


def test_inception_score_of_sure_and_balanced_answers_is_the_number_of_classes():
    assert inception_score(50 * np.eye(10)[np.arange(1000) % 10]) == pytest.approx((10, 0), abs=1e-9)


def test_inception_score_of_constant_images_is_one():
    assert inception_score(np.tile([3.0, -1, 0.5], (100, 1))) == pytest.approx((1, 0))


def test_inception_score_is_its_formula(rng):
    logits = rng.normal(size=(60, 4))
    scores = []
    for part in logits.reshape(3, 20, 4):
        p = np.exp(part) / np.exp(part).sum(axis=1, keepdims=True)
        scores.append(np.exp(np.mean([sum(row * np.log(row / p.mean(axis=0))) for row in p])))
    assert inception_score(logits, 3) == pytest.approx((np.mean(scores), np.std(scores)))


def test_inception_score_of_fewer_images_than_parts_is_refused():
    with pytest.raises(InvalidArgumentError, match="num_splits=10 <= 4"):
        inception_score(np.zeros((4, 2)))


def test_frechet_distance_is_the_textbook_formula(rng):
    a, b = rng.normal(size=(300, 6)), rng.normal(1, 2, size=(200, 6)) @ rng.normal(size=(6, 6))
    covariances = np.cov(a.T), np.cov(b.T)
    expected = (np.sum((a.mean(0) - b.mean(0)) ** 2) + np.trace(covariances[0]) + np.trace(covariances[1])
                - 2 * np.trace(scipy.linalg.sqrtm(covariances[0] @ covariances[1])).real)
    assert frechet_distance(a, b) == pytest.approx(expected, rel=1e-9)
    assert frechet_distance(b, a) == pytest.approx(expected, rel=1e-9)


def test_frechet_distance_of_shifted_features_is_the_shift(rng):
    features = rng.normal(size=(50, 200))  # Fewer rows than columns: the covariance is singular.
    assert frechet_distance(features, features) == pytest.approx(0, abs=1e-8)
    assert frechet_distance(features, features + 0.5) == pytest.approx(200 * 0.25)


def test_frechet_distance_grows_with_noise(rng):
    features = rng.normal(size=(500, 20))
    distances = [frechet_distance(features, features + scale * rng.normal(size=features.shape))
                 for scale in (0, 0.3, 1, 3)]
    assert distances == sorted(distances) and distances[0] < 1e-8 < distances[1]


def test_frechet_distance_needs_two_rows():
    with pytest.raises(InvalidArgumentError, match=r"len\(features_b\)=1 >= 2"):
        frechet_distance(np.zeros((5, 2)), np.zeros((1, 2)))


def test_manifold_metrics_are_their_definitions(rng):
    real, synthetic, k = rng.normal(size=(40, 3)), rng.normal(0.7, 1.3, size=(30, 3)), 4

    def radius(point, own):
        return sorted(np.linalg.norm(own - point, axis=1))[k]

    def inside(point, centres):
        return [np.linalg.norm(point - centre) < radius(centre, centres) for centre in centres]

    found = manifold_metrics(real, synthetic, k)
    assert found["precision"] == pytest.approx(np.mean([any(inside(point, real)) for point in synthetic]))
    assert found["recall"] == pytest.approx(np.mean([any(inside(point, synthetic)) for point in real]))
    assert found["density"] == pytest.approx(np.mean([sum(inside(point, real)) for point in synthetic]) / k)
    assert found["coverage"] == pytest.approx(np.mean(
        [min(np.linalg.norm(synthetic - centre, axis=1)) < radius(centre, real) for centre in real]))


def test_manifold_metrics_of_one_and_of_two_worlds(rng):
    features = rng.normal(size=(200, 5))
    same = manifold_metrics(features, rng.normal(size=(200, 5)))
    assert min(same.values()) > 0.8 and same["density"] < 1.3
    assert manifold_metrics(features, features + 100) == dict.fromkeys(same, 0)
    # Copies of one real record are precise and cover nothing.
    copies = manifold_metrics(features, np.repeat(features[:1], 50, axis=0))
    assert copies["precision"] == 1 and copies["recall"] < 0.05 and copies["coverage"] < 0.05
    with pytest.raises(InvalidArgumentError, match=r"len\(synthetic\)=5 > neighbours=5"):
        manifold_metrics(features, features[:5])


def test_distances_do_not_depend_on_chunks(rng, monkeypatch):
    images, real = rng.random((20, 4, 4, 1), np.float32), rng.random((50, 4, 4, 1), np.float32)
    whole = nearest_distances(images, real)
    monkeypatch.setattr(image_quality, "_CHUNK_VALUES", 7 * 16)
    np.testing.assert_allclose(nearest_distances(images, real), whole, rtol=1e-5)


def test_copied_records_are_noticed(rng):
    train, test = (rng.integers(0, 256, size=(200, 4, 4, 1)).astype(np.uint8) for _ in range(2))
    of_test = nearest_distances(test, train)
    assert of_test[7] == pytest.approx(min(np.linalg.norm(test[7] / 255 - other / 255) for other in train), rel=1e-5)
    copies, others = nearest_distances(train[:100], train), nearest_distances(
        rng.integers(0, 256, size=(200, 4, 4, 1)).astype(np.uint8), train)
    assert memorisation(copies, of_test)["closer_than_test_1_percent"] == 1
    assert memorisation(others, of_test)["closer_than_test_1_percent"] < 0.1
    assert memorisation(copies, of_test)["synthetic_median"] == pytest.approx(0, abs=1e-3)


@pytest.mark.slow
def test_inception_features_from_a_file(tmp_path, rng):
    path = tmp_path / "inception.h5"
    tf.keras.utils.set_random_seed(0)
    tf.keras.applications.InceptionV3(include_top=False, weights=None).save_weights(path)
    features = InceptionFeatures(str(path))
    images = rng.integers(0, 256, size=(3, 8, 8, 1)).astype(np.uint8)
    found = features(images, batch_size=2)
    assert found.shape == (3, 2048) and np.ptp(found, axis=0).max() > 0
    np.testing.assert_allclose(features(np.repeat(images, 3, -1) / 255), found, rtol=1e-3, atol=1e-5)
    assert frechet_distance(found, found) == pytest.approx(0, abs=1e-6)


@pytest.mark.parametrize("content", [None, b"no weights"])
def test_weights_that_cannot_be_had_are_refused_in_one_line(tmp_path, content):
    if content is not None:
        (tmp_path / "weights.h5").write_bytes(content)
    with pytest.raises(DataError, match="inception_weights=.*weights.h5: cannot be had") as caught:
        InceptionFeatures(str(tmp_path / "weights.h5"))
    assert "\n" not in str(caught.value)
