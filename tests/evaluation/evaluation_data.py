"""Small evaluations that several tests look at."""

import functools
import tempfile

from datalens_tf.data.registry import load_dataset
from datalens_tf.evaluation.cache import Cache
from datalens_tf.evaluation.context import Effort
from datalens_tf.evaluation.evaluate import evaluate

TINY = Effort(name="quick", num_synthetic=300, epochs=2, seeds=2, max_train=200, domain_epochs=2,
              domain_train=500, quality_images=300, neighbour_images=150, embedded_images=60)


@functools.cache
def real(split):
    return load_dataset("digits", split=split)


def tiny_evaluation(images=None, labels=None, *, cache=None, **options):
    """Evaluates images, by default real digits, on the digits."""
    train = real("train")
    images, labels = (train.images, train.labels) if images is None else (images, labels)
    return evaluate(lambda seed: (images, labels), train, real("test"), effort=TINY, source="Digits from a test",
                    varied="Nothing.",
                    cache=cache or Cache(tempfile.mkdtemp()), **options)


@functools.cache
def all_metrics():
    """The evaluation of real digits as if they were synthetic."""
    return tiny_evaluation()
