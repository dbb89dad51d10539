"""The OpenAPI description of what a server answers, made from the models that it serves."""

from typing import Any

import numpy as np
import tensorflow as tf

from datalens_tf import __version__
from datalens_tf.serving.servables import Limits, Models, Servable

_ERRORS = {400: "the request is malformed, or the model refuses it", 401: "the token is missing",
           403: "another name or page than the server's own", 404: "no such model, version or signature",
           405: "another method is needed", 408: "the request took too long to arrive", 413: "the body is too large",
           503: "too much is asked for at once: try again later"}
_ERROR = {"application/json": {"schema": {"$ref": "#/components/schemas/Error"}}}
_TYPES = {"i": "integer", "u": "integer", "f": "number", "b": "boolean", "O": "string"}


def description(models: Models) -> dict[str, Any]:
    """The description, OpenAPI 3.1, ready for JSON."""
    paths: dict[str, Any] = {
        "/healthz": {"get": _operation("Whether the server lives", _object("status"))},
        "/readyz": {"get": _operation("Whether new requests should come here", _object("status"), 503)},
        "/openapi.json": {"get": _operation("This description", _object("openapi", "paths"))},
        "/monitoring/prometheus/metrics": {"get": _operation("Metrics for Prometheus", None)},
    }
    for name in models.names:
        latest = models.versions(name)[0]
        for path, parameters in ((f"/v1/models/{name}", []), (f"/v1/models/{name}/versions/{{version}}", [{
                "name": "version", "in": "path", "required": True, "description": "number of a version",
                "schema": {"type": "string", "pattern": "^[0-9]{1,18}$"}}])):
            errors = (400, 404) if parameters else ()
            paths[path] = {"parameters": parameters, "get": _operation(
                "Versions that are served", _object("model_version_status"), *errors)}
            paths[f"{path}/metadata"] = {"parameters": parameters, "get": _operation(
                "Inputs and outputs of the signatures", _object("model_spec", "metadata"), *errors)}
            paths[f"{path}:predict"] = {"parameters": parameters, "post": {
                **_operation("Outputs of a signature", {"type": "object", "oneOf": [
                    {"required": ["predictions"]}, {"required": ["outputs"]}]}, 400, 404, 408, 413, 503),
                "requestBody": {"required": True, "content": {"application/json": {
                    "schema": {"anyOf": _requests(latest, models.limits)}}}}}}
    return {
        "openapi": "3.1.0",
        "info": {"title": "datalens_tf: private image generators", "version": __version__,
                 "description": "TensorFlow Serving's REST interface."},
        "paths": paths,
        "components": {"schemas": {"Error": _object("error", error={"type": "string"})}},
    }


def _object(*required: str, **properties: Any) -> dict[str, Any]:
    return {"type": "object", "required": list(required), "properties": properties}


def _operation(summary: str, schema: dict[str, Any] | None, *errors: int) -> dict[str, Any]:
    """Answers of a method: JSON of this schema, or text, or one of the errors."""
    content = {"text/plain": {"schema": {"type": "string"}}} if schema is None else {
        "application/json": {"schema": schema}}
    return {"summary": summary, "responses": {
        "200": {"description": summary, "content": content},
        **{str(code): {"description": _ERRORS[code], "content": _ERROR} for code in sorted({401, 403, 405, *errors})}}}


def _requests(servable: Servable, limits: Limits) -> list[dict[str, Any]]:
    """Bodies that each signature takes, by columns and, where all inputs have rows, by rows."""
    found = []
    for name, definition in servable.definitions.items():
        inputs = definition.inputs
        needed = sorted(set(inputs) - set(definition.defaults))
        head = {"signature_name": {"const": name}}
        required = [] if name == "serving_default" else ["signature_name"]
        columns = {key: _input(info, limits) for key, info in inputs.items()}
        found.append(_object("inputs", *required, **head, inputs=_by_name(columns, needed)))
        if all(info.tensor_shape.dim for info in inputs.values()):
            rows = _by_name({key: column["items"] for key, column in columns.items()}, needed)
            found.append(_object("instances", *required, **head, instances={
                "type": "array", "items": rows, "minItems": 1,
                "maxItems": min(column["maxItems"] for column in columns.values())}))
    return found


def _by_name(values: dict[str, Any], needed: list[str]) -> dict[str, Any]:
    """Values by the inputs' names; the value of an only input may stand alone."""
    named = {**_object(*needed, **values), "additionalProperties": False}
    return {"anyOf": [named, *values.values()]} if len(values) == 1 else named


def _input(info: Any, limits: Limits) -> dict[str, Any]:
    """The schema of a tensor."""
    dtype = tf.as_dtype(info.dtype)
    schema: dict[str, Any] = {"type": _TYPES[np.dtype(dtype.as_numpy_dtype).kind]}
    if dtype == tf.string:
        encoded = {"type": "string", "contentEncoding": "base64"}
        schema = {"anyOf": [schema, {**_object("b64", b64=encoded), "additionalProperties": False}]}
    elif dtype.is_integer:
        schema |= {"minimum": int(dtype.min), "maximum": int(dtype.max)}
    for position, dimension in reversed(list(enumerate(info.tensor_shape.dim))):
        most = (limits.texts if dtype == tf.string else limits.rows) if position == 0 else limits.values
        schema = {"type": "array", "items": schema, "maxItems": most if dimension.size < 0 else dimension.size}
        if dimension.size >= 0:
            schema["minItems"] = dimension.size
    return schema
