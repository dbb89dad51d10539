"""SavedModels that say nothing about the process that wrote them.

TensorFlow numbers functions with a counter that every tensor of the process has advanced, including tensors with real
records in them. The file would therefore tell how many chunks of records there were, or how large DP-SGD's secret
samples were.
"""

import pathlib
import re
from collections.abc import Callable, Iterator, Mapping

import tensorflow as tf
from google.protobuf.message import DecodeError, Message
from tensorflow.core.framework import function_pb2, types_pb2
from tensorflow.core.protobuf import saved_model_pb2

from datalens_tf import _text
from datalens_tf._files import PathLike
from datalens_tf.errors import CheckpointError

_NUMBER = re.compile(r"\d+$")
_GIVEN_NAME = "_user_specified_name"


def save(module: tf.Module, folder: PathLike, signatures: Callable | Mapping[str, Callable]) -> None:
    """Calls `tf.saved_model.save`, then `clean`."""
    tf.saved_model.save(module, str(folder), signatures=signatures)
    clean(folder)


def clean(folder: PathLike) -> None:
    """Numbers a SavedModel's functions from 0, in the order in which they were traced.

    `fingerprint.pb` is deleted: it is a hash of what the file was before. Loaders do without it.

    Raises:
      CheckpointError: the file is damaged.
    """
    path = pathlib.Path(folder) / "saved_model.pb"
    try:
        path.write_bytes(renumbered(path.read_bytes()))
    except DecodeError as error:
        raise CheckpointError(f"{path} is damaged: {_text.first_line(error)}") from error
    (path.parent / "fingerprint.pb").unlink(missing_ok=True)


def renumbered(content: bytes) -> bytes:
    """A serialized SavedModel whose functions have consecutive numbers, in a canonical order."""
    saved = saved_model_pb2.SavedModel.FromString(content)
    names = {function.signature.name for graph in saved.meta_graphs for function in graph.graph_def.library.function}
    numbered = sorted((int(match.group()), name) for name in names if (match := _NUMBER.search(name)))
    new = {name: _NUMBER.sub(str(rank), name) for rank, (_, name) in enumerate(numbered)}
    # Names of arguments contain names of functions. The longest come first, because some names end as others do.
    old = re.compile(rf"({'|'.join(map(re.escape, sorted(new, key=len, reverse=True)))})(?!\d)")
    for message in _messages(saved) if new else ():
        _rename(message, lambda text: old.sub(lambda match: new[match.group()], text))
    for graph in saved.meta_graphs:
        functions = graph.graph_def.library.function
        functions.sort(key=lambda function: function.signature.name)
        for function in functions:
            _rename_captures(function)
    return saved.SerializeToString(deterministic=True)


def _rename_captures(function: function_pb2.FunctionDef) -> None:
    """Names captured variables and tensors of a function by their place; TensorFlow names these by the counter, too."""
    for attributes in (argument.attr for argument in function.arg_attr.values()):
        if _GIVEN_NAME in attributes and attributes[_GIVEN_NAME].s.isdigit():
            del attributes[_GIVEN_NAME]
    new = {argument.name: f"resource_{place}" for place, argument in enumerate(function.signature.input_arg)
           if argument.type == types_pb2.DT_RESOURCE}

    def renamed(text: str) -> str:
        name, colon, output = text.partition(":")
        return new.get(name, name) + colon + output

    for argument in function.signature.input_arg:
        argument.name = renamed(argument.name)
    for node in function.node_def:
        node.input[:] = map(renamed, node.input)
    for name, text in function.ret.items():
        function.ret[name] = renamed(text)


def _messages(message: Message) -> Iterator[Message]:
    """This message and all within it."""
    yield message
    for field, value in message.ListFields():
        if field.message_type is None:
            continue
        if field.message_type.GetOptions().map_entry:
            if field.message_type.fields_by_name["value"].message_type is not None:
                for entry in value.values():
                    yield from _messages(entry)
        else:
            for entry in [value] if isinstance(value, Message) else value:
                yield from _messages(entry)


def _rename(message: Message, renamed: Callable[[str], str]) -> None:
    """Renames what a message's own texts name, and the keys of its maps."""
    for field, value in message.ListFields():
        if field.message_type is not None and field.message_type.GetOptions().map_entry:
            for old in [key for key in value if isinstance(key, str) and renamed(key) != key]:
                if field.message_type.fields_by_name["value"].message_type is None:
                    value[renamed(old)] = value[old]
                else:
                    value[renamed(old)].CopyFrom(value[old])
                del value[old]
        elif field.type == field.TYPE_STRING:
            if isinstance(value, str):
                setattr(message, field.name, renamed(value))
            else:
                value[:] = map(renamed, value)
