"""Verdict on synthetic data, in words: what a classifier that saw nothing else is worth, and what accuracy alone hides.

Accuracy misleads where classes are of unequal size: always naming the largest class may be as accurate. So a verdict
looks at the balanced accuracy (the mean over classes of the share that is recognised) and at the area under the ROC
curve, which does not depend on where the classifier draws the line between classes.
"""

import math
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

_RANKS = 0.55  # area under the ROC curve from which on classes count as told apart; 0.5 is guessing
_SURE = 3.0  # standard errors by which an accuracy has to be larger
_WEAK = 0.5  # of the balanced accuracy: a class that is recognised less often is named
_FEW = 1000  # test records, below which the uncertainty is stated
# Share of what real records teach, above guessing, from which on an adjective holds.
_WORDS = ((0.9, "Nearly as useful as the records"), (0.7, "Useful"), (0.4, "Of some use"), (0.0, "Of little use"))


def balanced(confusion: NDArray[np.int64], names: Sequence[str]) -> dict[str, Any]:
    """Numbers that do not reward naming the largest class, and the largest class itself.

    Args:
      confusion: records of each class (rows) taken for each class (columns), [Y, Y], with at least one record.
      names: of the classes.
    """
    sizes = confusion.sum(1)
    shares = np.diag(confusion)[sizes > 0] / sizes[sizes > 0]
    present = np.flatnonzero(sizes)
    worst, largest = present[shares.argmin()], sizes.argmax()
    return {"balanced_accuracy": float(shares.mean()),
            "worst_class": {"name": names[worst], "accuracy": float(shares.min())},
            "largest_class": {"name": names[largest], "share": float(sizes[largest] / sizes.sum())}}


def verdict(utility: Mapping[str, Any]) -> str:
    """The verdict, in two to four sentences.

    Args:
      utility: the section `utility` of `metrics.json`, with the entries of `balanced`.
    """
    accuracy, found, largest = utility["accuracy_mean"], utility["balanced_accuracy"], utility["largest_class"]
    error = math.sqrt(max(accuracy * (1 - accuracy), 1e-12) / utility["num_test"])
    luck = _luck(np.asarray(utility["confusion_matrix"]), utility["num_test"])
    ranks = utility["auroc_macro"] > max(_RANKS, 0.5 + _SURE * luck)
    always = f"always saying {largest['name']!r} is right on {largest['share']:.3f}"
    if accuracy > largest["share"] + _SURE * error:
        told = _worth(found, 1 / sum(area is not None for area in utility["auroc_per_class"]), utility.get("real"))
    elif ranks:
        told = (f"Accuracy says little here: it is {accuracy:.3f}, and {always}. The classifier still tells "
                f"classes apart: the area under its ROC curve is {utility['auroc_macro']:.3f}, where 0.5 is guessing"
                f"{'. Choose its threshold on records of your own' if len(utility['auroc_per_class']) == 2 else ''}")
    else:
        told = (f"Of no use for learning: a classifier that learned from these images is right on {accuracy:.3f}, and "
                f"{always}. It does not tell classes apart: the area under its ROC curve is "
                f"{utility['auroc_macro']:.3f}, where 0.5 is guessing")
    sentences = [told + "."]
    worst = utility["worst_class"]
    if worst["accuracy"] < _WEAK * found and (ranks or accuracy > largest["share"]):
        sentences.append(f"The weakest class is {worst['name']!r}: {worst['accuracy']:.3f} of it is recognised.")
    if utility["num_test"] < _FEW:
        sentences.append(f"With {utility['num_test']} test records, the accuracy is uncertain by {2 * error:.2f}.")
    return " ".join(sentences)


def _luck(confusion: NDArray[np.int64], num_test: int) -> float:
    """Standard error of the area under the ROC curve of a classifier that guesses, the mean over the classes.

    That of Mann and Whitney's U, 1947. Areas of different classes may go up and down together.
    """
    own = confusion.sum(1) * num_test / confusion.sum()
    own = own[(own > 0) & (own < num_test)]
    return float(np.sqrt((num_test + 1) / (12 * own * (num_test - own))).mean()) if len(own) else math.inf


def _worth(found: float, guessing: float, real: Mapping[str, Any] | None) -> str:
    """Compares a balanced accuracy with that of real records, where that is known."""
    if real is None or "balanced_accuracy" not in real:
        return (f"A classifier that learned from these images has a balanced accuracy of {found:.3f}, where guessing "
                f"has {guessing:.3f}. What the real records would teach was not measured")
    share = (found - guessing) / max(real["balanced_accuracy"] - guessing, 1e-9)
    word = next((word for least, word in _WORDS if share >= least), _WORDS[-1][1])
    return (f"{word}: a classifier that learned from these images has a balanced accuracy of {found:.3f}, one that "
            f"learned from the real records has {real['balanced_accuracy']:.3f}, and guessing has {guessing:.3f}")
