"""The thirteen classifiers: libraries' defaults, learning what there is, and nothing where there is nothing."""

import dataclasses

import numpy as np
import pytest

from datalens_tf.data.registry import load_dataset
from datalens_tf.errors import InvalidArgumentError
from datalens_tf.evaluation import references
from datalens_tf.evaluation.metrics import classifiers
from datalens_tf.evaluation.metrics.classifiers import CLASSIFIERS, train_classifier
from datalens_tf.evaluation.records import subset


@pytest.fixture(scope="module", name="digits")
def fixture_digits():
    return load_dataset("digits"), load_dataset("digits", split="test")


def test_names_are_those_of_the_paper():
    assert len(CLASSIFIERS) == 13
    for dataset in ("mnist", "fashion_mnist"):
        assert tuple(references.CLASSIFIERS[dataset]) == CLASSIFIERS


@pytest.mark.parametrize("name", CLASSIFIERS)
def test_real_digits_are_learned_and_labels_without_meaning_are_not(digits, name):
    train, test = digits
    result = train_classifier(name, train, test, max_train=700)
    assert result.num_train == 700 and result.seconds > 0
    # Boosting sees a tenth of the records or columns at a time.
    assert result.accuracy > {"cnn": 0.6, "adaboost": 0.6, "gbm": 0.35}.get(name, 0.75)
    shuffled = dataclasses.replace(train, labels=np.random.default_rng(0).permutation(train.labels))
    # 359 test records: 0.1 plus five standard deviations.
    assert train_classifier(name, shuffled, test, max_train=700).accuracy < 0.1 + 5 * np.sqrt(0.09 / 359)


@pytest.mark.parametrize("name", [name for name in CLASSIFIERS if name not in (classifiers.CNN, "mlp")])
def test_settings_are_the_libraries_defaults_but_for_the_published_ones(name):
    published = {"adaboost": {"n_estimators": 100}, "bagging": {"n_estimators": 20, "max_samples": 0.1},
                 "bernoulli_nb": {"binarize": 0.5},
                 "gbm": {"n_estimators": 50, "subsample": 0.1},
                 "xgboost": {"n_estimators": 50, "colsample_bytree": 0.1, "max_depth": 3, "learning_rate": 0.1}}
    made = classifiers._LIBRARY[name](0, 2)
    expected = type(made)().get_params() | published.get(name, {})
    different = {key for key, value in made.get_params().items() if value != expected[key] and value == value}
    assert different <= {"random_state", "n_jobs"}


def test_the_same_seed_gives_the_same_accuracy(digits):
    train, test = digits
    accuracies = [[train_classifier(name, train, test, max_train=200, seed=seed).accuracy
                   for name in ("decision_tree", "random_forest", "mlp")] for seed in (0, 0, 1)]
    assert accuracies[0] == accuracies[1] != accuracies[2]


def test_a_subset_is_balanced_and_keeps_images_with_their_labels(digits):
    train, _ = digits
    chosen = subset(train, 205, 3)
    counts = np.bincount(chosen.labels)
    assert len(chosen) == 205 and counts.max() - counts.min() <= 1
    pairs = {(image.tobytes(), label) for image, label in zip(train.images, train.labels)}
    assert all((image.tobytes(), label) in pairs for image, label in zip(chosen.images, chosen.labels))
    np.testing.assert_array_equal(subset(train, 205, 3).images, chosen.images)
    assert not np.array_equal(subset(train, 205, 4).images, chosen.images)
    assert subset(train, None, 0) is train and subset(train, len(train), 0) is train
    with pytest.raises(InvalidArgumentError, match="size=9 >= 10"):
        subset(train, 9, 0)


def test_a_rare_class_is_in_the_subset_too(digits):
    train, _ = digits
    rare = np.flatnonzero((train.labels != 3) | (np.cumsum(train.labels == 3) <= 2))
    train = dataclasses.replace(train, images=train.images[rare], labels=train.labels[rare])
    assert np.bincount(subset(train, 100, 0).labels)[3] == 2


def test_unknown_names_are_refused(digits):
    with pytest.raises(InvalidArgumentError, match="classifier='svm' to be one of mlp, cnn"):
        train_classifier("svm", *digits)
