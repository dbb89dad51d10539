"""Networks for classifiers, and the gradient of each record's own loss."""

import hashlib
import json
import pathlib

import numpy as np
import tensorflow as tf

from datalens_tf import _validate, rng
from datalens_tf.errors import InvalidArgumentError
from datalens_tf.evaluation.utility import paper_classifier

layers = tf.keras.layers


def small_classifier(input_shape: tuple[int, ...], num_classes: int, seed: int) -> tf.keras.Model:
    """The network of the paper's DP-SGD experiments on MNIST (appendix A.2.1: that of Opacus' example).

    (x - 0.1) / 0.3 - conv 16 8x8/2 - ReLU - max-pool 2x2/1 - conv 32 4x4/2 - ReLU - max-pool 2x2/1 - dense 32 - ReLU -
    dense. The example standardises pixels by MNIST's own moments, 0.1307 and 0.3081; the round constants here are no
    one's data, and without any clipped steps are too short (docs/classify.md).
    Input shape: images [B, H, W, C] in [0, 1]. Output shape: logits [B, num_classes].
    """
    seeds = iter(rng.stream(seed, "classifier").integers(0, 2**31, size=4).tolist())

    def weights():
        return tf.keras.initializers.GlorotUniform(seed=next(seeds))

    return tf.keras.Sequential([
        layers.Input(input_shape),
        layers.Rescaling(1 / 0.3, offset=-0.1 / 0.3),
        layers.Conv2D(16, 8, 2, "same", activation="relu", kernel_initializer=weights()),
        layers.MaxPooling2D(2, 1),
        layers.Conv2D(32, 4, 2, activation="relu", kernel_initializer=weights()),
        layers.MaxPooling2D(2, 1),
        layers.Flatten(),
        layers.Dense(32, activation="relu", kernel_initializer=weights()),
        layers.Dense(num_classes, kernel_initializer=weights()),
    ])


def linear_classifier(input_shape: tuple[int, ...], num_classes: int, seed: int) -> tf.keras.Model:
    """One linear layer. Input shape: [B, *input_shape]. Output shape: logits [B, num_classes]."""
    first = int(rng.stream(seed, "classifier").integers(0, 2**31))
    return tf.keras.Sequential([
        layers.Input(input_shape), layers.Flatten(),
        layers.Dense(num_classes, kernel_initializer=tf.keras.initializers.GlorotUniform(seed=first))])


def new_network(name: str, input_shape: tuple[int, ...], num_classes: int, seed: int) -> tf.keras.Model:
    """One of `settings.NETWORKS`, or `linear`.

    Raises:
      InvalidArgumentError: images are too small for it.
    """
    make = {"small": small_classifier, "linear": linear_classifier, "large": paper_classifier}[name]
    try:
        return make(input_shape, num_classes, seed)
    except ValueError as error:
        raise InvalidArgumentError(f"Expected larger images than {list(input_shape)} for network={name!r}; choose "
                                   "another network, or give a --model.") from error


def load_keras(path: str, flag: str) -> tf.keras.Model:
    """A Keras model from a file, compiled or not; raises InvalidArgumentError where it is none."""
    _validate.require(pathlib.Path(path).exists(), flag, path, "to be a file with a Keras model; there is none")
    try:
        return tf.keras.models.load_model(path, compile=False)
    except Exception as error:  # pylint: disable=broad-exception-caught
        # Parsers of damaged archives raise nearly anything.
        reason = (str(error).strip().splitlines() or [type(error).__name__])[0]
        raise InvalidArgumentError(f"Expected {flag}={path!r} to be a Keras model: {reason:.200}") from error


def digest(model: tf.keras.Model) -> str:
    """A checksum of a model's layers and weights; of no names, which depend on what else a process made."""
    found = hashlib.sha256()
    for layer in _all_layers(model):
        settings = {name: value for name, value in layer.get_config().items() if name != "name"}
        found.update(json.dumps([type(layer).__name__, settings], default=str).encode())
        for weight in layer.get_weights():
            found.update(np.ascontiguousarray(weight))
    return found.hexdigest()


def check_classifier(model: tf.keras.Model, input_shape: tuple[int, ...], num_classes: int, name: str = "model"
                     ) -> None:
    """Raises InvalidArgumentError where a model cannot be trained record by record on such inputs."""
    _validate.require(_fits(model, input_shape), f"{name}.input_shape", _shape(model, "input_shape"),
                      f"to be (None, {', '.join(map(str, input_shape))})")
    _validate.require(model.output_shape == (None, num_classes), f"{name}.output_shape", model.output_shape,
                      f"to be (None, {num_classes}), a number for each class")
    _validate.require(bool(model.trainable_weights), f"{name}.trainable_weights", [], "to hold weights to train")
    for layer in _all_layers(model):
        # Its statistics are those of other records, and no gradient.
        if isinstance(layer, layers.BatchNormalization) and layer.trainable:
            raise InvalidArgumentError(
                f"Expected no batch normalisation to train, got layer {layer.name!r}: it mixes records. Use group or "
                "layer normalisation, or freeze it (trainable=False).")
        if _is_random(layer) and not (type(layer) is layers.Dropout and isinstance(model, tf.keras.Sequential)):
            raise InvalidArgumentError(
                f"Expected no random layer but Dropout in a Sequential model, got {type(layer).__name__} "
                f"{layer.name!r}: its randomness would have to be secret.")


def check_features(features: tf.keras.Model, input_shape: tuple[int, ...]) -> None:
    """Raises InvalidArgumentError where a feature extractor does not take such images."""
    _validate.require(_fits(features, input_shape), "features.input_shape", _shape(features, "input_shape"),
                      f"to be (None, {', '.join(map(str, input_shape))})")
    shape = features.output_shape
    _validate.require(isinstance(shape, tuple) and len(shape) > 1 and None not in shape[1:], "features.output_shape",
                      shape, "to be of one array of known shape")


class PerExampleGradients:
    """Each record's gradient of its own cross-entropy, with respect to all trainable weights.

    Of a `Sequential` model whose weights are in `Dense` and `Conv2D` layers, from what these layers see and from the
    gradients of what they put out, for a batch at once. Of others by `tf.vectorized_map`, several times slower.
    Dropout is drawn for each record and step from seeds of its own, never from a layer's generator: which mask a record
    gets must not depend on which other records there are.

    Args:
      model: see `check_classifier`.

    Attributes:
      num_parameters: numbers in all trainable weights together [d].
    """

    def __init__(self, model: tf.keras.Model):
        self._model, self._weights = model, model.trainable_weights
        self.num_parameters = sum(weight.shape.num_elements() for weight in self._weights)
        self._from_logits = not puts_out_probabilities(model)
        self._layers = _flat_layers(model)
        by_hand = self._layers is not None and all(
            _is_linear(layer) or not layer.trainable_weights for layer in self._layers)
        self._compute = tf.function(self._by_hand if by_hand else self._one_by_one, autograph=False)

    def __call__(self, inputs: np.ndarray, labels: np.ndarray, seed: np.ndarray) -> np.ndarray:
        """Gradients float32 [n, d] of inputs float32 [n, ...] with labels int [n]; the dropout's seed, int32 [2]."""
        return self._compute(tf.constant(inputs), tf.constant(labels), tf.constant(seed)).numpy()

    def unflatten(self, vector: tf.Tensor) -> list[tf.Tensor]:
        """A vector [d] as tensors like the trainable weights."""
        sizes = [weight.shape.num_elements() for weight in self._weights]
        return [tf.reshape(part, weight.shape) for part, weight in zip(tf.split(vector, sizes), self._weights)]

    def _loss(self, outputs, labels):
        """Of each record."""
        if self._from_logits:
            return tf.nn.sparse_softmax_cross_entropy_with_logits(labels, outputs)
        return -tf.math.log(tf.maximum(tf.gather(outputs, labels, axis=1, batch_dims=1), 1e-7))

    def _by_hand(self, inputs, labels, seed):
        seen, put_out, x = [], [], inputs
        with tf.GradientTape() as tape:
            for index, layer in enumerate(self._layers):
                if _is_linear(layer) and layer.trainable_weights:
                    seen.append(x)
                    x = _without_activation(layer, x)
                    put_out.append(x)
                    x = layer.activation(x)
                elif type(layer) is layers.Dropout:
                    x = _dropout(x, layer.rate, seed + [0, index])
                else:
                    x = layer(x, training=False)
            total = tf.reduce_sum(self._loss(x, labels))
        # Of the sum; but record i alone decides row i of what the layers put out.
        deltas = tape.gradient(total, put_out)
        parts = {}
        for layer, x, delta in zip((layer for layer in self._layers if _is_linear(layer) and layer.trainable_weights),
                                   seen, deltas):
            positions = tf.reshape(delta, [tf.shape(delta)[0], -1, delta.shape[-1]])
            parts[layer.kernel.ref()] = tf.matmul(_patches(layer, x), positions, transpose_a=True)
            if layer.use_bias:
                parts[layer.bias.ref()] = tf.reduce_sum(positions, 1)
        return tf.concat([tf.reshape(parts[weight.ref()], [tf.shape(inputs)[0], -1]) for weight in self._weights], 1)

    def _one_by_one(self, inputs, labels, seed):
        del seed  # No random layers, see `check_classifier`.

        def gradient(record):
            with tf.GradientTape() as tape:
                outputs = self._model(record[0][tf.newaxis], training=True)
                loss = tf.reduce_sum(self._loss(outputs, record[1][tf.newaxis]))
            found = tape.gradient(loss, self._weights, unconnected_gradients=tf.UnconnectedGradients.ZERO)
            return tf.concat([tf.reshape(tf.convert_to_tensor(part), [-1]) for part in found], 0)

        return tf.vectorized_map(gradient, (inputs, labels))


def puts_out_probabilities(model: tf.keras.Model) -> bool:
    """Whether a classifier ends with a softmax; else it puts out logits."""
    last = _all_layers(model)[-1]
    return isinstance(last, layers.Softmax) or getattr(last, "activation", None) is tf.keras.activations.softmax


def _shape(model, name):
    """One of a model's shapes, or None where it has none yet."""
    try:
        return getattr(model, name)
    except AttributeError:
        return None


def _fits(model, input_shape):
    """Whether a model takes one array of this shape per record."""
    shape = _shape(model, "input_shape")
    return (isinstance(shape, tuple) and len(shape) == len(input_shape) + 1
            and all(mine in (None, size) for mine, size in zip(shape[1:], input_shape)))


def _all_layers(model):
    """Those of models inside it included."""
    # pylint: disable-next=protected-access
    return [layer for layer in model._flatten_layers(include_self=False) if not isinstance(layer, tf.keras.Model)]


def _flat_layers(model):
    """The layers of a chain, or None where a model is none."""
    if not isinstance(model, tf.keras.Sequential):
        return None
    found = []
    for layer in model.layers:
        inner = _flat_layers(layer) if isinstance(layer, tf.keras.Model) else [layer]
        if inner is None:
            return None
        found += inner
    return found


def _is_random(layer):
    """Whether it draws random numbers in training."""
    return hasattr(layer, "_random_generator")


def _is_linear(layer):
    """Whether a layer's gradients are computed by hand."""
    if type(layer) is layers.Dense:
        return True
    return (type(layer) is layers.Conv2D and layer.groups == 1 and layer.dilation_rate == (1, 1)
            and layer.data_format == "channels_last" and layer.padding in ("same", "valid"))


def _without_activation(layer, x):
    """What a linear layer puts out before its activation."""
    if isinstance(layer, layers.Dense):
        x = tf.tensordot(x, layer.kernel, 1) if len(x.shape) > 2 else x @ layer.kernel
    else:
        x = tf.nn.conv2d(x, layer.kernel, layer.strides, layer.padding.upper())
    return x + layer.bias if layer.use_bias else x


def _patches(layer, x):
    """What a linear layer multiplies with its kernel: [n, positions, rows]."""
    if isinstance(layer, layers.Dense):
        return tf.reshape(x, [tf.shape(x)[0], -1, x.shape[-1]])
    height, width = layer.kernel_size
    found = tf.image.extract_patches(x, [1, height, width, 1], [1, *layer.strides, 1], [1, 1, 1, 1],
                                     layer.padding.upper())
    return tf.reshape(found, [tf.shape(x)[0], -1, height * width * x.shape[-1]])


def _dropout(x, rate, seed):
    """Inverted dropout."""
    kept = tf.random.stateless_uniform(tf.shape(x), seed) >= rate
    return tf.where(kept, x / (1 - rate), 0.0)
