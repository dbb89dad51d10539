"""Evaluation of the student of a PATE classifier on labelled records."""

from typing import Any

import numpy as np
import tensorflow as tf

from datalens_tf.data.datasets import Dataset
from datalens_tf.evaluation.metrics import utility
from datalens_tf.training import classifier


def evaluate_student(model: tf.keras.Model, test: Dataset) -> dict[str, Any]:
    """Accuracy, areas under the one-vs-rest ROC curves, and the curves, on labelled records; a JSON-able dictionary."""
    probabilities = classifier.predict_probabilities(model, test.images)
    return {"dataset": test.name, "num_test": len(test), "class_names": list(test.class_names),
            "accuracy": float(np.mean(np.argmax(probabilities, 1) == test.labels)),
            **utility.roc_curves(test, [probabilities]), "privacy_note": utility.PRIVACY_NOTE}


def roc_picture(result: dict[str, Any]) -> bytes:
    """The curves of `evaluate_student` as PNG; needs the extra `eval`."""
    from datalens_tf.evaluation import charts

    return charts.png_bytes(charts.roc_chart(result["roc_curves"], result["auroc_per_class"], result["class_names"]))
