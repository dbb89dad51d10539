"""The thirteen classifiers of GS-WGAN's evaluation (Chen et al., NeurIPS 2020, appendix C.3), trained and tested.

Eleven come from scikit-learn and XGBoost. The MLP has one hidden layer of 100 ReLU. The CNN is that of the frozen
protocol (`utility`). Pixels are in [0, 1], and flattened except for the CNN.

Settings are the libraries' defaults, as the paper says, except for four ensembles. Their numbers in the paper's tables
come from other settings: those of its published evaluation code, with XGBoost's defaults of that time (before 1.0).
Bernoulli naive Bayes cuts pixels at 0.5, which is what its default does to the pixels in [-1, 1] of that code. With the
defaults, gradient boosting would have 0.946 and XGBoost 0.98 on real MNIST, where the table has 0.91, and would take an
hour. AdaBoost used SAMME.R then, which scikit-learn no longer has; see `docs/research/evaluation.md`.
"""

import concurrent.futures
import dataclasses
import math
import os
import time
import warnings
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np

from datalens_tf import _validate
from datalens_tf.data.datasets import Dataset
from datalens_tf.evaluation import charts
from datalens_tf.evaluation.cache import Cache, data_key
from datalens_tf.evaluation.context import Context, Effort, Section, environment
from datalens_tf.evaluation.metrics import utility
from datalens_tf.evaluation.records import flat, subset

SUMMARY = "the same with thirteen other classifiers, and beside training on real data"
POSITION = 2
NEEDS_TRAIN = True

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
# Of one that learns from 60,000 images of 784 values, on one core of an AMD EPYC. The CNN is known from `utility`.
_SECONDS = {"mlp": 40.0, CNN: 0.1, "adaboost": 105.0, "bagging": 22.0, "bernoulli_nb": 6.0, "decision_tree": 16.0,
            "gaussian_nb": 0.6, "gbm": 125.0, "lda": 5.0, "linear_svc": 50.0, "logistic_reg": 11.0,
            "random_forest": 32.0, "xgboost": 87.0}
# Raise a classifier's version with every change of a setting, so that older results are not taken for new ones.
SETTINGS_VERSIONS = dict.fromkeys(CLASSIFIERS, 2) | {"bernoulli_nb": 3}


def costs(context: Context) -> list[float]:
    """Seconds of each part; see `registry.Metric`."""
    shape, real = context.test.image_shape, context.real
    records = {name: min(len(real), largest_train(context.effort, name, shape) or len(real)) for name in CLASSIFIERS}
    return [2 * _SECONDS[name] * records[name] / 60_000 * math.prod(shape) / 784 for name in CLASSIFIERS]


def compute(context: Context) -> Section:
    """The thirteen of GS-WGAN, on synthetic and on real data.

    Each result is stored, so that an interrupted evaluation goes on.
    """
    import threadpoolctl

    synthetic, train, test, cache = context.synthetic, context.real, context.test, context.cache
    seed = int(context.seeds[0])
    results: dict[str, dict[str, Any]] = {}
    for name in CLASSIFIERS:
        size = largest_train(context.effort, name, test.image_shape)

        def trained(on, name=name, size=size):
            key = {"what": "classifier", "name": name, "settings": SETTINGS_VERSIONS[name],
                   "data": data_key(on, test), "max_train": min(size or len(on), len(on)), "seed": seed,
                   "versions": environment()["packages"]}
            return cache.json(key, lambda: dataclasses.asdict(
                train_classifier(name, on, test, max_train=size, seed=seed, cache=cache)))

        # Both run side by side, since most classifiers use one core. Libraries that would use more would get in each
        # other's way. If both data sets are the same, the result is computed once.
        together = name != CNN and data_key(train) != data_key(synthetic)
        with (warnings.catch_warnings(), threadpoolctl.threadpool_limits(1 if together else None),
              concurrent.futures.ThreadPoolExecutor(1 + together) as executor):
            warnings.simplefilter("ignore")  # See `train_classifier`; all threads share the filters.
            real, fake = context.stages.run(name, lambda: list(executor.map(trained, (train, synthetic))))
        result = {"real": real, "synthetic": fake}
        results[name] = result | {"calibrated": result["synthetic"]["accuracy"] / result["real"]["accuracy"]}
    kinds = ("synthetic", "real")
    means = {kind: float(np.mean([result[kind]["accuracy"] for result in results.values()]))
             for kind in kinds}
    return Section(
        values={"per_classifier": results, "average": means | {"calibrated": means["synthetic"] / means["real"]},
                "seed": seed},
        charts={"classifiers": charts.classifier_chart(
            *({name: result[kind]["accuracy"] for name, result in results.items()} for kind in kinds))})


def headline(values: dict[str, Any]) -> str:
    """Line for the terminal; see `registry.Metric`."""
    average = values["average"]
    return (f"thirteen classifiers {average['synthetic']:.4f} on average, {100 * average['calibrated']:.0f} % of what "
            "real data gives")


def largest_train(effort: Effort, name: str, image_shape: Sequence[int]) -> int | None:
    """Largest number of records to train a classifier on; the CNN is trained on as many as in the protocol."""
    return effort.max_train if name == CNN else effort.scaled(effort.max_train, math.prod(image_shape))


def train_classifier(name: str, train: Dataset, test: Dataset, *, max_train: int | None = None, seed: int = 0,
                     cache: Cache | None = None) -> ClassifierResult:
    """Trains one classifier on `train` and tests it on `test`.

    Args:
      name: of `CLASSIFIERS`.
      train, test: records with the same image shape and classes, each class present in both.
      max_train: trains on a random subset of this size if there are more; the same subset for all classifiers.
      seed: of the subset and the classifier.
      cache: where the CNN, which is that of `utility`, is taken from if it was trained before.

    Raises:
      InvalidArgumentError: an unknown name or a bad size.
    """
    _validate.one_of("classifier", name, CLASSIFIERS)
    train = subset(train, max_train, seed)
    start = time.monotonic()
    if name == CNN:
        accuracy = utility.train_or_recall(train.images, train.labels, test, cache, seed=seed).accuracy
    else:
        model = _LIBRARY[name](seed, os.cpu_count() or 1)
        with warnings.catch_warnings():
            # It is part of the protocol that defaults stop before convergence, or that pixels are collinear.
            warnings.simplefilter("ignore")
            model.fit(flat(train.images), train.labels)
        accuracy = float(np.mean(model.predict(flat(test.images)) == test.labels))
    return ClassifierResult(accuracy=accuracy, num_train=len(train), seconds=time.monotonic() - start)
