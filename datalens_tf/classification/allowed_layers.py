"""Layers that users' models may have: those of Keras that compute every record's outputs from that record alone.

A table lists exact types, each with the arguments under which it is allowed. A subclass may override anything, so it
counts as a custom layer. Custom layers are refused, like everything that the table does not name: looking at a function
of a batch does not show whether it keeps the rows apart. The table is checked twice: on a file before Keras builds
anything from it, since building a layer can run code; and on the built model, with the ranks of the tensors that layers
see.
"""

import functools
import io
import zipfile
from collections.abc import Callable, Iterator, Mapping
from typing import Any, NamedTuple, TypeAlias

import h5py
import numpy as np
import tensorflow as tf

from datalens_tf import _files
from datalens_tf.errors import InvalidArgumentError

layers = tf.keras.layers
Layer: TypeAlias = tf.keras.layers.Layer
_CONTAINERS = (tf.keras.Sequential, tf.keras.Sequential.__base__)  # The latter is what tf.keras.Model(x, y) makes.
# Functions of Keras, compared by identity: one of another origin may look at the whole batch.
ACTIVATIONS = ("elu", "exponential", "gelu", "hard_sigmoid", "linear", "mish", "relu", "selu", "sigmoid", "softmax",
               "softplus", "softsign", "swish", "tanh")
# Modules that classes in a file may come from, in addition to layers.
_NAMESPACES = ("keras.initializers", "keras.regularizers", "keras.constraints", "keras.optimizers",
               "keras.optimizers.schedules", "keras.losses", "keras.metrics", "keras.mixed_precision")
_PARTS = ["config.json", "metadata.json", "model.weights.h5"]
_ADVICE = "docs/how-to/classify.md lists the layers to use instead."


class Rule(NamedTuple):
    """The condition under which a layer is allowed.

    Attributes:
      needs: the condition in words; empty where there is none.
      holds: says whether it is met, given the layer and the rank of its inputs, batch axis included.
    """

    needs: str
    holds: Callable[[Layer, int], bool]


def _axes_apart(layer: Layer, rank: int) -> bool:
    axes = layer.get_config()["axis"]
    # Axis -rank is the batch axis, too.
    return all(-rank < axis < rank and axis != 0 for axis in ([] if axes is None else np.ravel(axes)))


def _scalars(layer: Layer, rank: int) -> bool:
    del rank
    return np.ndim(layer.scale) <= 1 and np.ndim(layer.offset) <= 1


def _of_rank(expected: int) -> Rule:
    return Rule(f"inputs of {expected} axes, the batch included", lambda layer, rank: rank == expected)


_ALWAYS = Rule("", lambda layer, rank: True)
_AXES = Rule("`axis` without the batch axis, 0", _axes_apart)
_FROZEN = Rule("frozen (`trainable=False`), `axis` without the batch axis, 0",
               lambda layer, rank: not layer.trainable and _axes_apart(layer, rank))
_OFF = Rule("off, as at prediction", _ALWAYS.holds)
_CHAIN = Rule("in a `Sequential` model", _ALWAYS.holds)
_MERGING = (layers.Add, layers.Subtract, layers.Multiply, layers.Average, layers.Maximum, layers.Minimum,
            layers.Concatenate)

_EITHER: dict[type[Layer], Rule] = {
    layers.InputLayer: _ALWAYS, layers.Dense: _ALWAYS, layers.Activation: _ALWAYS,
    layers.ReLU: _ALWAYS, layers.LeakyReLU: _ALWAYS, layers.PReLU: _ALWAYS, layers.ELU: _ALWAYS,
    layers.ThresholdedReLU: _ALWAYS, layers.Softmax: _AXES,
    layers.Conv1D: _of_rank(3), layers.Conv2D: _of_rank(4), layers.Conv3D: _of_rank(5),
    layers.Conv2DTranspose: _of_rank(4), layers.DepthwiseConv2D: _of_rank(4), layers.SeparableConv2D: _of_rank(4),
    layers.MaxPooling1D: _of_rank(3), layers.MaxPooling2D: _of_rank(4), layers.MaxPooling3D: _of_rank(5),
    layers.AveragePooling1D: _of_rank(3), layers.AveragePooling2D: _of_rank(4), layers.AveragePooling3D: _of_rank(5),
    layers.GlobalMaxPooling1D: _of_rank(3), layers.GlobalMaxPooling2D: _of_rank(4),
    layers.GlobalMaxPooling3D: _of_rank(5), layers.GlobalAveragePooling1D: _of_rank(3),
    layers.GlobalAveragePooling2D: _of_rank(4), layers.GlobalAveragePooling3D: _of_rank(5),
    layers.Flatten: _ALWAYS, layers.Reshape: _ALWAYS, layers.Permute: _ALWAYS, layers.RepeatVector: _of_rank(2),
    layers.ZeroPadding2D: _of_rank(4), layers.Cropping2D: _of_rank(4), layers.UpSampling2D: _of_rank(4),
    # Given three axes, these layers take the first one for the height of a single image.
    layers.Resizing: _of_rank(4), layers.CenterCrop: _of_rank(4),
    layers.Rescaling: Rule("`scale` and `offset` numbers, or one for each channel", _scalars),
    layers.Normalization: _AXES, layers.LayerNormalization: _AXES, layers.GroupNormalization: _AXES,
    layers.UnitNormalization: _AXES,
    **{kind: Rule("inputs of the same number of axes", _ALWAYS.holds) for kind in _MERGING},
    layers.Concatenate: Rule("inputs of the same number of axes, `axis` without the batch axis, 0", _axes_apart),
}
TRAINED = _EITHER | {layers.BatchNormalization: _FROZEN, layers.Dropout: _CHAIN}
EXTRACTORS = _EITHER | {layers.BatchNormalization: _AXES} | dict.fromkeys((
    layers.Dropout, layers.SpatialDropout1D, layers.SpatialDropout2D, layers.SpatialDropout3D, layers.AlphaDropout,
    layers.GaussianDropout, layers.GaussianNoise), _OFF)


def check(model: tf.keras.Model, table: Mapping[type[Layer], Rule], name: str) -> None:
    """Refuses a model with anything that a table does not allow.

    Args:
      model: the built model.
      table: `TRAINED` or `EXTRACTORS`.
      name: of the model, for errors.

    Raises:
      InvalidArgumentError: a layer, activation, connection or argument may mix records, or its effect is not known.
    """
    for layer in _containers(model):
        if type(layer) not in _CONTAINERS:
            raise _refusal(name, layer, "is a custom model. Build it with tf.keras.Sequential or "
                                        "tf.keras.Model(inputs, outputs)")
    for layer in [*model._flatten_layers(), *(node.layer for node in _nodes(model))]:
        if type(layer) not in (*table, *_CONTAINERS):
            raise _refusal(name, layer, "may mix records. " + _instead(type(layer)))
        if {"call", "__call__"} & vars(layer).keys():
            raise _refusal(name, layer, "has a call of its own. Use Keras' layers as they are")
        if getattr(layer, "activity_regularizer", None) is not None:
            raise _refusal(name, layer, "has an activity_regularizer, which has no part in training here. Leave it out")
        activation = getattr(layer, "activation", tf.keras.activations.linear)
        if not any(activation is getattr(tf.keras.activations, known) for known in ACTIVATIONS):
            raise _refusal(name, layer, f"has the custom activation {activation!r:.60}. Name one of Keras' own by a "
                                        f"text: {', '.join(ACTIVATIONS)}")
    for node in _nodes(model):
        _check_node(node, table, name)


def check_file(path: str, flag: str) -> None:
    """Refuses a file whose model would be refused, before Keras runs anything that is in it.

    Raises:
      InvalidArgumentError: it is not an archive in Keras' own format, or names something that no table allows.
    """
    try:
        if not path.endswith(".keras"):  # Keras would read it as another format.
            raise ValueError("its name does not end in .keras")
        with zipfile.ZipFile(path) as archive:
            # Keras also unpickles weights of a .npz file, and unpacks all the rest.
            if sorted(archive.namelist()) != _PARTS:
                raise ValueError(f"it does not hold {', '.join(_PARTS)} alone")
            if any(part.compress_type != zipfile.ZIP_STORED for part in archive.infolist()):
                raise ValueError("its parts are compressed, which Keras does not do, and may be of any size")
            config = _files.parse_json(archive.read("config.json"))
            with h5py.File(io.BytesIO(archive.read("model.weights.h5")), "r") as weights:
                _check_weights(weights)
    except Exception as error:
        # Parsers raise nearly anything for damaged archives.
        reason = (str(error).strip().splitlines() or [type(error).__name__])[0]
        raise InvalidArgumentError(f"Expected {flag}={path!r} to be a Keras model in Keras' own format: {reason:.200}. "
                                   "Write it with model.save('FILE.keras').") from error
    if isinstance(config, dict):
        config = config | {"compile_config": None}  # The compile settings are not read.
    for item in _objects(config):
        if not _known(item):
            raise InvalidArgumentError(
                f"Expected {flag}={path!r} to have layers and functions of Keras that keep records apart, got "
                f"{item['class_name']!s:.60} {_title(item)!r:.60} of {item.get('module')!s:.60}. {_ADVICE}")


def as_markdown() -> str:
    """The tables of docs/how-to/classify.md."""
    rows: dict[tuple[str, str], list[str]] = {}
    for kind in TRAINED | EXTRACTORS:
        if kind is not layers.InputLayer:
            needs = _in_words(TRAINED.get(kind)), _in_words(EXTRACTORS.get(kind))
            rows.setdefault(needs, []).append(f"`{kind.__name__}`")
    return "\n".join(["| layers of `tf.keras.layers` | `--model` | `--features` |", "|---|---|---|", *(
        f"| {', '.join(kinds)} | {trained} | {extractor} |" for (trained, extractor), kinds in rows.items())])


def _in_words(rule: Rule | None) -> str:
    return "refused" if rule is None else rule.needs or "allowed"


def _containers(model: tf.keras.Model) -> list[tf.keras.Model]:
    """The model, and those inside it."""
    return [layer for layer in model._flatten_layers() if isinstance(layer, tf.keras.Model)]


def _nodes(model: tf.keras.Model) -> Iterator[Any]:
    """All calls of layers in a model's graph, and in those of the models inside it."""
    for container in _containers(model):
        depths = container._nodes_by_depth
        for depth in sorted(depths, reverse=True):  # From the inputs on, so that the first wrong call is named.
            yield from depths[depth]


def _check_node(node: Any, table: Mapping[type[Layer], Rule], name: str) -> None:
    """Checks one call: what a layer is given, what it puts out, and its rule."""
    layer, options = node.layer, dict(node.call_kwargs or {})
    # A call's own flag wins over the prediction mode of the model.
    if options.pop("training", None):
        raise _refusal(name, layer, "is called with training=True. Leave the argument out")
    inputs = [tensor for tensor in tf.nest.flatten((node.call_args, options)) if tensor is not None]
    if not all(tf.keras.backend.is_keras_tensor(tensor) for tensor in inputs):
        raise _refusal(name, layer, "is called with a constant. Use Rescaling for arithmetic with constants")
    ranks = {len(tensor.shape) for tensor in inputs}
    if (len(inputs) > 1 and type(layer) not in _MERGING) or len(ranks) > 1:
        raise _refusal(name, layer, "joins tensors. Use a merging layer, on tensors of the same number of axes")
    if type(layer) in _CONTAINERS and ranks != {len(layer.input_shape)}:
        # A model without a shape of its own is built anew at each call: what it did in this call was not checked.
        raise _refusal(name, layer, "is called with inputs of other shapes elsewhere. Use one model for each")
    rule = _ALWAYS if type(layer) in _CONTAINERS else table[type(layer)]
    if ranks and not rule.holds(layer, *ranks):
        raise _refusal(name, layer, f"mixes records, as it is used. {_instead(type(layer))} Here it needs: "
                                    f"{rule.needs}")
    if not all(_of_records(tensor) for tensor in tf.nest.flatten(node.outputs)):
        raise _refusal(name, layer, "puts out a tensor whose first axis is not the batch, of any size")


def _of_records(tensor: Any) -> bool:
    """Whether the tensor is an ordinary one whose first axis counts records, in any number."""
    spec = tensor.type_spec
    return type(spec) is tf.TensorSpec and bool(spec.shape.rank) and spec.shape[0] is None


def _instead(kind: type[Layer]) -> str:
    """Advice on a layer that is refused."""
    if "BatchNorm" in kind.__name__:
        return ("Batch normalisation is that of other records: use group or layer normalisation, or "
                "tf.keras.layers.BatchNormalization, frozen (trainable=False).")
    return _ADVICE


def _refusal(name: str, layer: Layer, reason: str) -> InvalidArgumentError:
    kind = type(layer)
    return InvalidArgumentError(f"Expected {name} to keep records apart, but its layer {layer.name!r} "
                                f"({kind.__module__}.{kind.__name__}) {reason.rstrip('.')}.")


def _objects(config: Any) -> Iterator[dict[str, Any]]:
    """All that a file asks Keras to look up by name."""
    if isinstance(config, dict):
        if "class_name" in config:
            yield config
        config = list(config.values())
    if isinstance(config, list):
        for value in config:
            yield from _objects(value)


def _known(item: dict[str, Any]) -> bool:
    """Whether a name in a file is one of Keras' own: of an allowed layer, or of something that layers are made of."""
    name, module = item["class_name"], item.get("module")
    if not isinstance(name, str) or not isinstance(module, str):
        return False
    if module == "keras.layers":
        return name in {kind.__name__ for kind in TRAINED | EXTRACTORS}
    if name in ("Functional", "Sequential"):
        return module in ("keras", "keras.models", "keras.src.engine.functional", "keras.engine.functional",
                          "tf_keras.src.engine.functional")
    if module not in _NAMESPACES:
        return False
    namespace = functools.reduce(getattr, module.split(".")[1:], tf.keras)
    return isinstance(getattr(namespace, name, None), type)


def _title(item: dict[str, Any]) -> Any:
    """Name of a thing in a file."""
    config = item.get("config")
    return config.get("name") if isinstance(config, dict) else config


def _check_weights(group: h5py.Group) -> None:
    """Refuses arrays stored elsewhere, which would bring other files into the result, or larger than they seem."""
    for name in group:
        if not isinstance(group.get(name, getlink=True), h5py.HardLink):
            raise ValueError(f"its weights {name!r} are a link")
        if isinstance(group[name], h5py.Group):
            _check_weights(group[name])
        elif group[name].external or group[name].is_virtual:
            raise ValueError(f"its weights {name!r} are in another file")
        elif group[name].id.get_storage_size() != group[name].nbytes:
            raise ValueError(f"its weights {name!r} would unfold to {group[name].nbytes} bytes")
