"""Mechanisms: everything between raw teacher gradients and a released array, with its sensitivity and its cost.

The Keras layer and the TensorFlow-Privacy adapter have modules of their own, `mechanisms.topagg_layer` and
`mechanisms.dp_query`, because their libraries load slowly.
"""

from datalens_tf.mechanisms.base import Mechanism
from datalens_tf.mechanisms.d2pfed import D2PFed
from datalens_tf.mechanisms.fetchsgd import FetchSgd
from datalens_tf.mechanisms.noise import InsecureSeededNoise, NoiseSource, RoundedGaussianNoise, SecureGaussianNoise
from datalens_tf.mechanisms.topagg import TopAgg, topk_sign, topk_stochastic_sign

__all__ = ["D2PFed", "FetchSgd", "InsecureSeededNoise", "Mechanism", "NoiseSource", "RoundedGaussianNoise",
           "SecureGaussianNoise", "TopAgg", "topk_sign", "topk_stochastic_sign"]
