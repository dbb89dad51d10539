"""Mechanisms: all that lies between raw teacher gradients and a released array, with its sensitivity and its cost.

The TensorFlow-Privacy adapter is in `datalens_tf.mechanisms.dp_query`, apart because TensorFlow-Privacy loads slowly.
"""

from datalens_tf.mechanisms.base import Mechanism
from datalens_tf.mechanisms.noise import InsecureSeededNoise, NoiseSource, SecureGaussianNoise
from datalens_tf.mechanisms.topagg import TopAgg, topk_stochastic_sign
from datalens_tf.mechanisms.topagg_layer import TopAggLayer
