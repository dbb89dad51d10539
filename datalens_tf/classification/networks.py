"""Networks for classifiers, and the gradient of each record's own loss."""

import hashlib
import json
import pathlib
from collections.abc import Callable

import numpy as np
import tensorflow as tf

from datalens_tf import _validate, rng
from datalens_tf.classification import allowed_layers
from datalens_tf.data.datasets import padded, to_unit
from datalens_tf.errors import InvalidArgumentError
from datalens_tf.mechanisms.noise import SecretStream
from datalens_tf.models.per_example import flattened, linear_gradients, unflattened
from datalens_tf.models.places import ANYWHERE, same_anywhere
from datalens_tf.training.classifier import paper_classifier

layers = tf.keras.layers
_EXTRACTED = 16  # images that features are computed of in one call


def small_classifier(input_shape: tuple[int, ...], num_classes: int, seed: int) -> tf.keras.Model:
    """The network of the paper's DP-SGD experiments on MNIST (appendix A.2.1: that of Opacus' example).

    (x - 0.1) / 0.3 - conv 16 8x8/2 - ReLU - max-pool 2x2/1 - conv 32 4x4/2 - ReLU - max-pool 2x2/1 - dense 32 - ReLU -
    dense. The example standardises pixels by MNIST's own moments, 0.1307 and 0.3081. The round constants here come from
    nobody's data; without any such constants, clipped steps are too short (docs/how-to/classify.md).
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
    """A network by its name: of `classifier_config.NETWORKS`, or `linear`.

    Raises:
      InvalidArgumentError: images are too small for it.
    """
    makers: dict[str, Callable[..., tf.keras.Model]] = {
        "small": small_classifier, "linear": linear_classifier, "large": paper_classifier}
    try:
        return makers[name](input_shape, num_classes, seed)
    except ValueError as error:
        raise InvalidArgumentError(f"Expected larger images than {list(input_shape)} for network={name!r}; choose "
                                   "another network, or give a --model.") from error


def load_keras(path: str, flag: str) -> tf.keras.Model:
    """A Keras model from a file, compiled or not; raises InvalidArgumentError if it is not one that is allowed."""
    _validate.require(pathlib.Path(path).exists(), flag, path, "to be a file with a Keras model; there is none")
    allowed_layers.check_file(path, flag)
    try:
        return tf.keras.models.load_model(path, compile=False)
    except Exception as error:
        # Parsers raise nearly anything for damaged archives.
        reason = (str(error).strip().splitlines() or [type(error).__name__])[0]
        raise InvalidArgumentError(f"Expected {flag}={path!r} to be a Keras model: {reason:.200}") from error


def digest(model: tf.keras.Model) -> str:
    """A checksum of a model's layers and weights, without names, which depend on what else a process made."""
    found = hashlib.sha256()
    for layer in _all_layers(model):
        settings = {name: value for name, value in layer.get_config().items() if name != "name"}
        found.update(json.dumps([type(layer).__name__, settings], default=str).encode())
        for weight in layer.get_weights():
            found.update(np.ascontiguousarray(weight).data)
    return found.hexdigest()


def check_classifier(model: tf.keras.Model, input_shape: tuple[int, ...], num_classes: int, name: str = "model"
                     ) -> None:
    """Raises InvalidArgumentError where a model cannot be trained record by record on such inputs."""
    _validate.require(_fits(model, input_shape), f"{name}.input_shape", _shape(model, "input_shape"),
                      f"to be (None, {', '.join(map(str, input_shape))})")
    allowed_layers.check(model, allowed_layers.TRAINED, name)
    _validate.require(model.output_shape == (None, num_classes), f"{name}.output_shape", model.output_shape,
                      f"to be (None, {num_classes}), a number for each class")
    _validate.require(bool(model.trainable_weights), f"{name}.trainable_weights", [], "to hold weights to train")
    _validate.require(not any(type(layer) is layers.Dropout for layer in _all_layers(model))
                      or _flat_layers(model) is not None, name, "a graph", "to be Sequential, since it has Dropout")


def check_features(features: tf.keras.Model, input_shape: tuple[int, ...]) -> None:
    """Raises InvalidArgumentError where a feature extractor does not take such images, or may mix records."""
    _validate.require(_fits(features, input_shape), "features.input_shape", _shape(features, "input_shape"),
                      f"to be (None, {', '.join(map(str, input_shape))})")
    shape = features.output_shape
    _validate.require(isinstance(shape, tuple) and len(shape) > 1 and None not in shape[1:], "features.output_shape",
                      shape, "to be of one array of known shape")
    allowed_layers.check(features, allowed_layers.EXTRACTORS, "features")


class PerExampleGradients:
    """Each record's gradient of its own cross-entropy, with respect to all trainable weights; training behaviour off.

    Records are computed one at a time, unless two conditions hold: the model is a `Sequential` one whose weights are in
    `Dense` and `Conv2D` layers, and a record's result is the same, to the bit, at every place in a batch. Then a batch
    is computed at once. Places matter because matrix products of some shapes round a batch's last rows differently, and
    a record's place depends on the other records.

    The caller draws what Dropout keeps, for each record and step; a layer or TensorFlow never does. Nobody may know a
    record's mask, and the mask must not depend on which other records there are.

    Args:
      model: see `check_classifier`.
      shape: of the inputs in every call, [n, ...].

    Attributes:
      num_parameters: d, the number of numbers in all trainable weights together.

    Raises:
      InvalidArgumentError: a record changes another's gradient.
    """

    def __init__(self, model: tf.keras.Model, shape: tuple[int, ...]):
        self._model, self._weights = model, model.trainable_weights
        self.num_parameters = count_parameters(model)
        self._from_logits = not puts_out_probabilities(model)
        self._layers = _flat_layers(model)
        ways = [self._one_by_one]
        chained = [weight for layer in self._layers or () if _is_linear(layer) for weight in layer.trainable_weights]
        if sorted(map(id, chained)) == sorted(map(id, self._weights)):  # Not so if a layer is used twice.
            ways.insert(0, self._by_hand)
        for way in ways:
            self._compute = tf.function(way, autograph=False)
            if same_anywhere(self, *self._invented(shape), name="model"):
                break
        else:
            raise InvalidArgumentError("Expected model to " + ANYWHERE)

    def masks(self, stream: np.random.Generator | SecretStream, count: int) -> list[np.ndarray]:
        """Masks of each Dropout layer for `count` records: bool [count, ...]."""
        return [stream.random((count, *layer.output_shape[1:]), np.float32) >= layer.rate
                for layer in self._layers or () if type(layer) is layers.Dropout]

    def __call__(self, inputs: np.ndarray, labels: np.ndarray, *masks: np.ndarray) -> np.ndarray:
        """Gradients float32 [n, d] of inputs float32 [n, ...] with labels int [n]; masks as `masks` draws them."""
        return self._compute(tf.constant(inputs), tf.constant(labels), [tf.constant(kept) for kept in masks]).numpy()

    def unflatten(self, vector: tf.Tensor) -> list[tf.Tensor]:
        """A vector [d] as tensors like the trainable weights."""
        return unflattened(vector, self._weights)

    def _invented(self, shape):
        """Invented records, which are nobody's."""
        stream = rng.stream(0, "probe")
        return (stream.random(shape, np.float32), stream.integers(0, self._model.output_shape[-1], shape[0]),
                *self.masks(stream, shape[0]))

    def _loss(self, outputs, labels):
        """Loss of each record."""
        outputs = tf.cast(outputs, tf.float32)
        if self._from_logits:
            return tf.nn.sparse_softmax_cross_entropy_with_logits(labels, outputs)
        return -tf.math.log(tf.maximum(tf.gather(outputs, labels, axis=1, batch_dims=1), 1e-7))

    def _by_hand(self, inputs, labels, masks):
        """Computes gradients from what layers see, and from the gradients of what they put out."""
        seen, put_out, x, masks = [], [], inputs, iter(masks)
        with tf.GradientTape() as tape:
            for layer in self._layers:
                if _is_linear(layer) and layer.trainable_weights:
                    seen.append(x)
                    x = _without_activation(layer, x)
                    put_out.append(x)
                    x = layer.activation(x)
                else:
                    x = _at_prediction(layer, x, masks)
            total = tf.reduce_sum(self._loss(x, labels))
        # These are gradients of the sum; but record i alone decides row i of what the layers put out.
        deltas = tape.gradient(total, put_out)
        parts = {}
        for layer, x, delta in zip((layer for layer in self._layers if _is_linear(layer) and layer.trainable_weights),
                                   seen, deltas):
            positions = tf.reshape(delta, [tf.shape(delta)[0], -1, delta.shape[-1]])
            kernel, bias = linear_gradients(_patches(layer, x), positions)
            parts[layer.kernel.ref()] = kernel
            if layer.use_bias:
                parts[layer.bias.ref()] = bias
        return flattened([parts[weight.ref()] for weight in self._weights])

    def _one_by_one(self, inputs, labels, masks):
        def gradient(record):
            image, label, *kept = (part[tf.newaxis] for part in record)
            with tf.GradientTape() as tape:
                loss = tf.reduce_sum(self._loss(self._outputs(image, iter(kept)), label))
            found = tape.gradient(loss, self._weights, unconnected_gradients=tf.UnconnectedGradients.ZERO)
            return tf.concat([tf.reshape(tf.cast(part, tf.float32), [-1]) for part in found], 0)

        return tf.map_fn(gradient, (inputs, labels, *masks), fn_output_signature=tf.float32)

    def _outputs(self, x, masks):
        if self._layers is None:  # Without Dropout, see `check_classifier`.
            return self._model(x, training=False)
        for layer in self._layers:
            x = _at_prediction(layer, x, masks)
        return x


def count_parameters(model: tf.keras.Model) -> int:
    """Numbers in all trainable weights together."""
    return sum(weight.shape.num_elements() for weight in model.trainable_weights)


def extract(features: tf.keras.Model, images: np.ndarray) -> np.ndarray:
    """Features at prediction, float32 [n, ...]; those of an image depend on that image alone.

    Args:
      features: see `check_features`.
      images: [n, H, W, C], as `to_unit` takes them.

    Raises:
      InvalidArgumentError: an image changes another's features.
    """
    # One at a time: convolutions of a batch round its last images differently.
    graph = tf.function(lambda batch: tf.map_fn(
        lambda image: tf.cast(features(image[tf.newaxis], training=False)[0], tf.float32), batch), autograph=False)

    def of(batch):
        return graph(tf.constant(batch)).numpy()

    invented = rng.stream(0, "probe").random((_EXTRACTED, *images.shape[1:]), np.float32)
    if not same_anywhere(of, invented, name="features"):
        raise InvalidArgumentError("Expected features to " + ANYWHERE)
    # Where no record is of a declared class, which must not show, there is one empty part.
    parts = (to_unit(images[start:start + _EXTRACTED]) for start in range(0, max(1, len(images)), _EXTRACTED))
    return np.concatenate([of(padded(part, _EXTRACTED))[:len(part)] for part in parts])


class Unchanged:
    """Remembers the weights that are not trained, and says whether they are still the same, to the bit.

    Args:
      model: whose trained weights may change.
      features: whose weights may not; None for none.
    """

    def __init__(self, model: tf.keras.Model, features: tf.keras.Model | None):
        self._weights = model.non_trainable_weights + ([] if features is None else features.weights)
        self._before = [weight.numpy().tobytes() for weight in self._weights]

    def check(self) -> None:
        """Raises InvalidArgumentError if one of them changed."""
        for weight, before in zip(self._weights, self._before):
            if weight.numpy().tobytes() != before:
                raise InvalidArgumentError(
                    f"Expected weights that are not trained to stay as they are, but {weight.name!r} changed: records "
                    "reached it without noise. Nothing was written; use another layer.")


def puts_out_probabilities(model: tf.keras.Model) -> bool:
    """Whether a classifier ends with a softmax; else it puts out logits."""
    last = _all_layers(model)[-1]
    return isinstance(last, layers.Softmax) or getattr(last, "activation", None) is tf.keras.activations.softmax


def _shape(model, name):
    """A shape of a model; None where it has none yet."""
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
    """All layers of a model, and of models inside it."""
    return [layer for layer in model._flatten_layers(include_self=False) if not isinstance(layer, tf.keras.Model)]


def _flat_layers(model):
    """The layers of a chain, or None where the model is not a chain."""
    if type(model) is not tf.keras.Sequential:
        return None
    found = []
    for layer in model.layers:
        inner = _flat_layers(layer) if isinstance(layer, tf.keras.Model) else [layer]
        if inner is None:
            return None
        found += inner
    return found


def _is_linear(layer):
    """Whether a layer's gradients are computed by hand."""
    if layer.compute_dtype != "float32":
        return False
    if type(layer) is layers.Dense:
        return True
    return (type(layer) is layers.Conv2D and layer.groups == 1 and layer.dilation_rate == (1, 1)
            and layer.data_format == "channels_last" and layer.padding in ("same", "valid"))


def _without_activation(layer, x):
    """Output of a linear layer before its activation."""
    if isinstance(layer, layers.Dense):
        x = tf.tensordot(x, layer.kernel, 1) if len(x.shape) > 2 else x @ layer.kernel
    else:
        x = tf.nn.conv2d(x, layer.kernel, layer.strides, layer.padding.upper())
    return x + layer.bias if layer.use_bias else x


def _patches(layer, x):
    """Inputs that a linear layer multiplies with its kernel: [n, positions, rows]."""
    if isinstance(layer, layers.Dense):
        return tf.reshape(x, [tf.shape(x)[0], -1, x.shape[-1]])
    height, width = layer.kernel_size
    found = tf.image.extract_patches(x, [1, height, width, 1], [1, *layer.strides, 1], [1, 1, 1, 1],
                                     layer.padding.upper())
    return tf.reshape(found, [tf.shape(x)[0], -1, height * width * x.shape[-1]])


def _at_prediction(layer, x, masks):
    """Output of a layer with training behaviour off, except for Dropout, which takes the next mask."""
    if type(layer) is not layers.Dropout:
        return layer(x, training=False)
    return tf.where(next(masks), x / (1 - layer.rate), 0.0)
