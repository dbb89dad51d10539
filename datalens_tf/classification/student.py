"""The student of a PATE classifier: a network that learns from released labels of public images alone."""

import pathlib

import numpy as np
import tensorflow as tf

from datalens_tf import _files
from datalens_tf.classification.pate_config import PateClassifierConfig
from datalens_tf.data.datasets import as_dataset
from datalens_tf.errors import InvalidArgumentError
from datalens_tf.training import classifier
from datalens_tf.training.batches import ShuffledBatches


def train_student(images: np.ndarray, labels: np.ndarray, config: PateClassifierConfig) -> tf.keras.Model:
    """The network of the evaluations (`training.classifier`), trained on those queries that have a label.

    Args:
      images: public, [Q, H, W, C].
      labels: [Q], -1 for none.
      config: num_classes and the student's settings.

    Returns:
      A model from images [B, H, W, C] in [0, 1] to logits [B, Y].

    Raises:
      InvalidArgumentError: no query has a label.
    """
    labelled = labels >= 0
    if not np.any(labelled):
        raise InvalidArgumentError(f"Expected vote_threshold={config.vote_threshold} to let some answers pass: no "
                                   "query has a label.")
    data = as_dataset(images[labelled], labels[labelled], config.num_classes, name="labelled queries")
    model = classifier.paper_classifier(data.image_shape, data.num_classes, config.seed)
    model.compile(tf.keras.optimizers.Adam(config.student_learning_rate),
                  tf.keras.losses.SparseCategoricalCrossentropy(from_logits=True))
    batches = ShuffledBatches(data, min(config.student_batch_size, len(data)), config.seed)
    model.fit(batches.stream(), epochs=-(-config.student_steps // len(batches)), verbose=0)
    return model


def save_student(model: tf.keras.Model, path: pathlib.Path) -> None:
    """Writes the weights, as float32 arrays in the order of `model.get_weights()`."""
    _files.atomic_write(path, _files.npz_bytes({f"{n:03d}": w for n, w in enumerate(model.get_weights())}))
