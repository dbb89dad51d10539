"""The thirteen classifiers of GS-WGAN's evaluation (Chen et al., NeurIPS 2020, appendix C.3), trained and tested.

Eleven come from scikit-learn and XGBoost; the MLP has one hidden layer of 100 ReLU; the CNN is that of the frozen
protocol (`utility`). Pixels are in [0, 1], flattened but for the CNN.

Settings are the libraries' defaults, as the paper says, but for four ensembles whose numbers in the paper's tables come
from other settings: those of its published evaluation code, with XGBoost's defaults of that time (before 1.0).
Bernoulli naive Bayes cuts pixels at 0.5, which is what its default does to the pixels in [-1, 1] of that code.
Defaults would give gradient boosting 0.946 and XGBoost 0.98 on real MNIST, where the table has 0.91, and take an hour.
AdaBoost used SAMME.R then, which scikit-learn no longer has; see `run_scripts/benchmarks/adaboost_samme_r.py`.
"""

import dataclasses
import os
import time
import warnings
from collections.abc import Callable, Mapping
from typing import Any

import numpy as np

from datalens_tf import _validate, rng
from datalens_tf.data.datasets import Dataset, to_unit
from datalens_tf.evaluation import utility
from datalens_tf.evaluation.cache import Cache

CNN = "cnn"


@dataclasses.dataclass(frozen=True, kw_only=True)
class ClassifierResult:
    """One classifier.

    Attributes:
      accuracy: share of test records classified right.
      num_train: records that it was trained on.
      seconds: of training and testing, wall time.
    """

    accuracy: float
    num_train: int
    seconds: float


def _make_mlp(seed: int, jobs: int):
    from sklearn.neural_network import MLPClassifier

    return MLPClassifier((100,), random_state=seed)


def _make_adaboost(seed: int, jobs: int):
    from sklearn.ensemble import AdaBoostClassifier

    return AdaBoostClassifier(n_estimators=100, random_state=seed)


def _make_bagging(seed: int, jobs: int):
    from sklearn.ensemble import BaggingClassifier

    return BaggingClassifier(n_estimators=20, max_samples=0.1, random_state=seed, n_jobs=jobs)


def _make_bernoulli_nb(seed: int, jobs: int):
    from sklearn.naive_bayes import BernoulliNB

    # Its default of 0 is mid-grey for the paper's code, whose pixels are in [-1, 1].
    return BernoulliNB(binarize=0.5)


def _make_decision_tree(seed: int, jobs: int):
    from sklearn.tree import DecisionTreeClassifier

    return DecisionTreeClassifier(random_state=seed)


def _make_gaussian_nb(seed: int, jobs: int):
    from sklearn.naive_bayes import GaussianNB

    return GaussianNB()


def _make_gbm(seed: int, jobs: int):
    from sklearn.ensemble import GradientBoostingClassifier

    return GradientBoostingClassifier(n_estimators=50, subsample=0.1, random_state=seed)


def _make_lda(seed: int, jobs: int):
    from sklearn.discriminant_analysis import LinearDiscriminantAnalysis

    return LinearDiscriminantAnalysis()


def _make_linear_svc(seed: int, jobs: int):
    from sklearn.svm import LinearSVC

    return LinearSVC(random_state=seed)


def _make_logistic_reg(seed: int, jobs: int):
    from sklearn.linear_model import LogisticRegression

    return LogisticRegression(random_state=seed)


def _make_random_forest(seed: int, jobs: int):
    from sklearn.ensemble import RandomForestClassifier

    return RandomForestClassifier(random_state=seed, n_jobs=jobs)


def _make_xgboost(seed: int, jobs: int):
    from xgboost import XGBClassifier

    return XGBClassifier(n_estimators=50, colsample_bytree=0.1, max_depth=3, learning_rate=0.1, random_state=seed,
                         n_jobs=jobs)


_LIBRARY: Mapping[str, Callable[[int, int], Any]] = {
    "mlp": _make_mlp,
    "adaboost": _make_adaboost,
    "bagging": _make_bagging,
    "bernoulli_nb": _make_bernoulli_nb,
    "decision_tree": _make_decision_tree,
    "gaussian_nb": _make_gaussian_nb,
    "gbm": _make_gbm,
    "lda": _make_lda,
    "linear_svc": _make_linear_svc,
    "logistic_reg": _make_logistic_reg,
    "random_forest": _make_random_forest,
    "xgboost": _make_xgboost,
}

# In the order of GS-WGAN's tables.
CLASSIFIERS = ("mlp", CNN, *(name for name in _LIBRARY if name != "mlp"))
# Raise a classifier's with every change of a setting: what was computed with others is not taken for it.
SETTINGS_VERSIONS = dict.fromkeys(CLASSIFIERS, 2) | {"bernoulli_nb": 3}


def train_classifier(name: str, train: Dataset, test: Dataset, *, max_train: int | None = None, seed: int = 0,
                     cache: Cache | None = None) -> ClassifierResult:
    """Trains one classifier on `train` and tests it on `test`.

    Args:
      name: of `CLASSIFIERS`.
      train, test: records with the same image shape and classes, each class present in both.
      max_train: trains on a random subset of this size if there are more; the same subset for all classifiers.
      seed: of the subset and the classifier.
      cache: the CNN is that of `utility`, and taken from there if it was trained before.

    Raises:
      InvalidArgumentError: an unknown name or a bad size.
    """
    _validate.one_of("classifier", name, CLASSIFIERS)
    train = subset(train, max_train, seed)
    start = time.monotonic()
    if name == CNN:
        accuracy = utility.train_or_recall(train.images, train.labels, test, cache, seed=seed).accuracy
    else:
        model = _LIBRARY[name](seed, os.cpu_count())
        with warnings.catch_warnings():
            # That defaults stop before convergence, or pixels are collinear, is part of the protocol.
            warnings.simplefilter("ignore")
            model.fit(flat(train.images), train.labels)
        accuracy = float(np.mean(model.predict(flat(test.images)) == test.labels))
    return ClassifierResult(accuracy=accuracy, num_train=len(train), seconds=time.monotonic() - start)


def subset(dataset: Dataset, size: int | None, seed: int) -> Dataset:
    """At most `size` records, drawn at random by the seed with as equal a number of each class as there are."""
    if size is None or len(dataset) <= size:
        return dataset
    _validate.integer("size", size, at_least=dataset.num_classes)
    order = rng.stream(seed, "subset").permutation(len(dataset))
    # The k-th record of its class comes before every (k + 1)-th: cutting anywhere leaves classes balanced.
    rank = np.empty(len(dataset), np.int64)
    for label in range(dataset.num_classes):
        of_class = order[dataset.labels[order] == label]
        rank[of_class] = np.arange(len(of_class))
    chosen = np.sort(order[np.argsort(rank[order], kind="stable")][:size])
    return dataclasses.replace(dataset, images=dataset.images[chosen], labels=dataset.labels[chosen])


def flat(images: np.ndarray) -> np.ndarray:
    """float32 [n, H * W * C] in [0, 1]."""
    return to_unit(images).reshape(len(images), -1)
