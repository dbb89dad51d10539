"""Membership inference: can somebody who has the synthetic images tell which real records the generator learned from?

Attacks score records. Members are the records that the generator was trained on, and should get larger scores than
others. The attacks are what an attacker with no other knowledge would try, so they prove no guarantee. Epsilon says
what they may achieve at most.
"""

import math
from typing import Any

import numpy as np

from datalens_tf import _validate, rng
from datalens_tf.data.datasets import Dataset
from datalens_tf.evaluation.context import Context, Section
from datalens_tf.evaluation.records import at, flat, places, subset

SUMMARY = "attacks that guess who the generator was trained on"
POSITION = 4
NEEDS_TRAIN = True

_COMPONENTS = 50
_FEWEST, _LARGEST = 10, 10_000
_FALSE_POSITIVE_RATE = 0.01


def costs(context: Context) -> list[float]:
    """Seconds of each part; see `registry.Metric`."""
    return [12.0 * context.effort.neighbour_images / 5_000]


def compute(context: Context) -> Section:
    """Attacks that try to tell training records from test records by the synthetic images, and their controls."""
    synthetic, size = context.synthetic, context.effort.neighbour_images
    members, others = (subset(dataset, size, 0) for dataset in (context.real, context.test))

    def attacks() -> dict[str, object]:
        found = membership_attacks(synthetic.images, synthetic.labels, members.images, members.labels, others.images,
                                   others.labels)
        return found | {"control": control(context.real, others, size)}

    return Section(values=context.stages.run("membership inference", attacks))


def headline(values: dict[str, Any]) -> None:
    """Line for the terminal; see `registry.Metric`."""


def control(training: Dataset, others: Dataset, size: int) -> dict[str, object] | None:
    """Both attacks with real training records in place of the synthetic images, none of which the attacks score.

    No generator has leaked anything there. What the attacks find nonetheless is how training records differ from the
    others in general: other people wrote MNIST's test digits, for example.

    Args:
      training: records of which at most `size` are scored; half of them where no more are left than that.
      others: records that are scored as well, and half of which teach the classifier what outsiders are.

    Returns:
      What `membership_attacks` does; None for fewer than 20 training records.
    """
    stream = rng.stream(0, "membership control")
    members = places(training, size, 0)
    rest = np.setdiff1d(np.arange(len(training)), members)
    if len(rest) < len(members):
        members, rest = np.array_split(stream.permutation(members), 2)
    if len(rest) < _FEWEST:
        return None
    scored, seen = at(training, members), at(training, stream.permutation(rest)[:_LARGEST])
    return membership_attacks(seen.images, seen.labels, scored.images, scored.labels, others.images, others.labels)


def strength(members: np.ndarray, others: np.ndarray) -> dict[str, float]:
    """Strength of an attack: how well its scores tell members from others.

    Args:
      members, others: scores [n] and [m], at least ten each; larger ones should speak for members.

    Returns:
      `auc`: area under the ROC curve, 0.5 for a blind attack. `auc_low`, `auc_high`: its 95 % interval (Hanley and
      McNeil 1982). `true_positive_rate`: share of members that are found where 1 % of the others
      (`false_positive_rate`) are taken for members.
    """
    from scipy import stats

    for name, scores in (("members", members), ("others", others)):
        _validate.require(len(scores) >= _FEWEST, f"len({name})", len(scores), f">= {_FEWEST}")
    n, m = len(members), len(others)
    ranks = stats.rankdata(np.concatenate([members, others]))
    auc = (ranks[:n].sum() - n * (n + 1) / 2) / (n * m)
    q_1, q_2 = auc / (2 - auc), 2 * auc**2 / (1 + auc)
    error = math.sqrt((auc * (1 - auc) + (n - 1) * (q_1 - auc**2) + (m - 1) * (q_2 - auc**2)) / (n * m))
    bar = np.quantile(others, 1 - _FALSE_POSITIVE_RATE, method="higher")
    return {"auc": float(auc), "auc_low": float(max(0.0, auc - 1.96 * error)),
            "auc_high": float(min(1.0, auc + 1.96 * error)),
            "true_positive_rate": float(np.mean(members > bar)), "false_positive_rate": float(np.mean(others > bar))}


def nearest_neighbour_scores(records: np.ndarray, labels: np.ndarray, synthetic: np.ndarray,
                             synthetic_labels: np.ndarray) -> np.ndarray:
    """Minus the distance in pixels to the nearest synthetic image with the same label, [n]; without one, -infinity.

    Args:
      records, synthetic: images [n, H, W, C] and [m, H, W, C], uint8 or in [0, 1].
      labels, synthetic_labels: [n] and [m].
    """
    from sklearn.metrics import pairwise_distances_argmin_min

    scores = np.full(len(records), -np.inf)
    for label in np.unique(labels):
        mine, theirs = labels == label, synthetic_labels == label
        if theirs.any():
            scores[mine] = -pairwise_distances_argmin_min(flat(records[mine]), flat(synthetic[theirs]))[1]
    return scores


def classifier_scores(records: np.ndarray, synthetic: np.ndarray, reference: np.ndarray, seed: int = 0) -> np.ndarray:
    """Log-odds of being synthetic, [n], by a classifier that learned to tell synthetic images from known outsiders.

    Records that a generator memorised look synthetic to it (Hayes et al. 2019, with a classifier of our own).

    Args:
      records: images to score.
      synthetic: images of the generator, of which at most 10,000 are used.
      reference: real records that the attacker knows not to be members.
      seed: of the classifier and of the choice of synthetic images.
    """
    import warnings

    from sklearn.decomposition import PCA
    from sklearn.neural_network import MLPClassifier
    from sklearn.pipeline import make_pipeline
    from sklearn.preprocessing import StandardScaler

    chosen = synthetic[rng.stream(seed, "membership").permutation(len(synthetic))[:_LARGEST]]
    # Outsiders are repeated until they are as many as the synthetic images, so that the classifier is not the prior.
    x = flat(np.concatenate([chosen, reference[np.arange(len(chosen)) % len(reference)]]))
    model = make_pipeline(PCA(min(_COMPONENTS, *x.shape), random_state=seed), StandardScaler(),
                          MLPClassifier((100,), max_iter=60, random_state=seed))
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # A warning says that 60 passes may not be enough to converge.
        model.fit(x, np.arange(len(x)) < len(chosen))
    with np.errstate(divide="ignore"):  # A classifier that is certain takes the logarithm of 0.
        odds = model.predict_log_proba(flat(records))
    return odds[:, 1] - odds[:, 0]


def membership_attacks(synthetic: np.ndarray, synthetic_labels: np.ndarray, members: np.ndarray,
                       member_labels: np.ndarray, others: np.ndarray, other_labels: np.ndarray) -> dict[str, object]:
    """Both attacks on as many members as others; half of the others teach the classifier what outsiders are.

    Args:
      synthetic, members, others: images; the other arguments are their labels.
    """
    half = len(others) // 2
    by_classifier = classifier_scores(np.concatenate([members, others[half:]]), synthetic, others[:half])
    return {
        "nearest_neighbour": strength(
            nearest_neighbour_scores(members, member_labels, synthetic, synthetic_labels),
            nearest_neighbour_scores(others, other_labels, synthetic, synthetic_labels)),
        "classifier": strength(by_classifier[:len(members)], by_classifier[len(members):]),
        "num_members": len(members), "num_others": len(others)}
