"""Changes to how DataLens votes that its settings do not have; votes.py measures them.

None changes what a release costs: a mechanism's sensitivity is that of the coordinates that it votes on, whatever the
gradients are, and a teacher who abstains casts fewer votes, not larger ones.
"""

import contextlib
import dataclasses
from collections.abc import Iterator
from unittest import mock

import numpy as np
import tensorflow as tf

from datalens_tf.mechanisms.topagg import TopAgg
from datalens_tf.methods.datalens import DataLensConfig
from datalens_tf.training import trainer
from datalens_tf.training.teachers import TeacherBank


@contextlib.contextmanager
def changing(name: str) -> Iterator[None]:
    """Makes DataLens train with this change inside the context, and as always with any other name."""
    with contextlib.ExitStack() as stack:
        if name == "pooled_votes":
            stack.enter_context(mock.patch.object(DataLensConfig, "mechanism", _pooled(DataLensConfig.mechanism)))
        if name == "abstention":
            stack.enter_context(mock.patch.object(trainer, "TeacherBank", AbstainingTeachers))
        yield


@dataclasses.dataclass(frozen=True, kw_only=True)
class PooledTopAgg(TopAgg):
    """Votes on gradients that are averaged over squares of 2 x 2 pixels; the four pixels of a square move alike.

    An image of d numbers has d/4 squares. With k/4 votes the sensitivity is half of that of k votes.
    """

    image_shape: tuple[int, int, int]

    def compress(self, gradients: tf.Tensor, seeds: tf.Tensor) -> tf.Tensor:
        teachers, images = tf.shape(gradients)[0], tf.shape(gradients)[1]
        pooled = tf.nn.avg_pool2d(tf.reshape(gradients, [-1, *self.image_shape]), 2, 2, "VALID")
        return super().compress(tf.reshape(pooled, [teachers, images, self._num_squares]), seeds)

    def postprocess(self, noisy: np.ndarray) -> np.ndarray:
        height, width, channels = self.image_shape
        squares = super().postprocess(noisy).reshape(-1, height // 2, width // 2, channels)
        if self.vote_threshold is None:
            squares /= 4  # As much in all as k votes for pixels, which are divided by k.
        return squares.repeat(2, axis=1).repeat(2, axis=2).reshape(len(noisy), -1)

    @property
    def _num_squares(self) -> int:
        height, width, channels = self.image_shape
        return height // 2 * (width // 2) * channels


def _pooled(mechanism):
    """A configuration's mechanism with the pooled votes in place of `mechanism`'s."""
    def made(config: DataLensConfig) -> PooledTopAgg:
        usual = mechanism(config)
        fields = {field.name: getattr(usual, field.name) for field in dataclasses.fields(TopAgg)}
        return PooledTopAgg(**fields, image_shape=config.image_shape or (28, 28, 1))
    return made


class AbstainingTeachers(TeacherBank):
    """Teachers who vote on images of the classes that they have records of, and on no others. One thread only."""

    def __init__(self, config, images, labels, partitions, mechanism, *others, **named):
        super().__init__(config, images, labels, partitions, _Abstaining(mechanism, config.num_classes), *others,
                         **named)
        self._present = np.array([np.isin(np.arange(config.num_classes), labels[own]) for own in partitions])

    def _visit(self, number, *inputs):
        self._mechanism.present.assign(self._present[self._spans[number]].astype(np.float32))
        return super()._visit(number, *inputs)


class _Abstaining:
    """A mechanism whose votes on images of absent classes are zeros.

    Attributes:
      present: [T, Y], 1 where the teacher whose turn it is has records of the class, else 0.
    """

    def __init__(self, mechanism: TopAgg, num_classes: int):
        self._mechanism = mechanism
        self.present = tf.Variable(tf.zeros([1, num_classes]), shape=[None, num_classes], trainable=False)

    def votes(self, teachers, images, labels, seeds, step):
        votes = self._mechanism.votes(teachers, images, labels, seeds, step)
        return votes * tf.matmul(self.present, labels, transpose_b=True)[:, :, tf.newaxis]
