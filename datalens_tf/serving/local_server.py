"""A small server with TensorFlow Serving's interfaces, for trying things out where that is not installed.

    python -m datalens_tf.serving.local_server --model_name mnist --model_base_path serving/mnist
        [--port 8500] [--rest_api_port 8501] [--model_config_file models.config]

gRPC (`PredictionService`: Predict and GetModelMetadata; `ModelService`: GetModelStatus) and REST (predict, metadata and
status of https://www.tensorflow.org/tfx/serving/api_rest, and Prometheus' metrics), for SavedModels of
`export_generator` or any others. The flags have the names they have there. It answers one request per core at a time
and does not batch them; nor does it encrypt or ask who is there: keep it on this machine.
"""

import argparse
import base64
import collections
import concurrent.futures
import dataclasses
import http.server
import json
import os
import pathlib
import re
import signal
import sys
import threading
import time
from collections.abc import Mapping
from typing import Any

import grpc
import numpy as np
import tensorflow as tf
from google.protobuf import json_format, text_format
from tensorflow.core.protobuf import saved_model_pb2
from tensorflow_serving.apis import (
    get_model_metadata_pb2,
    get_model_status_pb2,
    model_service_pb2_grpc,
    predict_pb2,
    prediction_service_pb2_grpc,
)
from tensorflow_serving.config import model_server_config_pb2

from datalens_tf import _files
from datalens_tf.errors import CheckpointError, DataLensError, InvalidArgumentError

MAX_BODY = 64 * 2**20  # bytes of a REST request
_IDLE_SECONDS = 60  # after which a silent connection is closed
_PATH = re.compile(r"/v1/models/(?P<name>[^/:]+)(?:/versions/(?P<version>\d+))?(?P<what>/metadata|:predict)?")
_STATUS = {grpc.StatusCode.INVALID_ARGUMENT: 400, grpc.StatusCode.NOT_FOUND: 404, grpc.StatusCode.INTERNAL: 500}
_AVAILABLE = get_model_status_pb2.ModelVersionStatus.AVAILABLE


class Refused(Exception):
    """A request that gets an error for an answer."""

    def __init__(self, code: grpc.StatusCode, message: str):
        super().__init__(message)
        self.code = code


@dataclasses.dataclass(frozen=True, eq=False)
class Servable:
    """One version of a model: what its signatures take and give, and their functions."""

    name: str
    version: int
    definitions: Mapping[str, Any]  # SignatureDef
    functions: Mapping[str, Any]

    @classmethod
    def load(cls, name: str, folder: pathlib.Path) -> "Servable":
        """Raises CheckpointError where the folder holds no SavedModel."""
        try:
            proto = saved_model_pb2.SavedModel.FromString((folder / "saved_model.pb").read_bytes())
            functions = dict(tf.saved_model.load(os.fspath(folder)).signatures)
        except Exception as error:  # A damaged SavedModel fails in protocol buffers, checkpoints or graph import.
            raise CheckpointError(f"Cannot load {folder}: {str(error).strip().partition(chr(10))[0]}.") from error
        definitions = {key: proto.meta_graphs[0].signature_def[key] for key in functions}
        return cls(name=name, version=int(folder.name), definitions=definitions, functions=functions)

    def predict(self, signature: str, inputs: Mapping[str, tf.Tensor]) -> dict[str, np.ndarray]:
        """Runs a signature. Raises Refused."""
        definition = self.definition(signature)
        tensors = {key: tf.constant(tf.make_ndarray(value)) for key, value in definition.defaults.items()}
        tensors |= inputs
        if set(tensors) != set(definition.inputs):
            raise Refused(grpc.StatusCode.INVALID_ARGUMENT, f"expected inputs {sorted(definition.inputs)} for the "
                                                            f"signature {signature}, got {sorted(inputs)}")
        for key, tensor in tensors.items():
            info = definition.inputs[key]
            if tensor.dtype != info.dtype or not tf.TensorShape(info.tensor_shape).is_compatible_with(tensor.shape):
                raise Refused(grpc.StatusCode.INVALID_ARGUMENT,
                              f"expected {key} of type {tf.as_dtype(info.dtype).name} and shape "
                              f"{tf.TensorShape(info.tensor_shape)}, got {tensor.dtype.name} and {tensor.shape}")
        try:
            return {key: value.numpy() for key, value in self.functions[signature](**tensors).items()}
        except tf.errors.InvalidArgumentError as error:
            failed = re.search(r"assertion failed: \[(.*?)\] ", error.message)  # The rest is about the graph.
            raise Refused(grpc.StatusCode.INVALID_ARGUMENT,
                          failed[1].strip() if failed else error.message.partition("\n")[0]) from error
        except tf.errors.OpError as error:
            raise Refused(grpc.StatusCode.INTERNAL, error.message.partition("\n")[0]) from error

    def definition(self, signature: str) -> Any:
        """SignatureDef. Raises Refused."""
        if signature not in self.definitions:
            raise Refused(grpc.StatusCode.NOT_FOUND, f"model {self.name} has no signature {signature!r}, only "
                                                     f"{', '.join(sorted(self.definitions))}")
        return self.definitions[signature]

    def metadata(self) -> get_model_metadata_pb2.SignatureDefMap:
        """Every signature's inputs and outputs."""
        return get_model_metadata_pb2.SignatureDefMap(signature_def=self.definitions)


class Models:
    """Models by name and version, and counts of how requests ended.

    Args:
      folders: name -> base path with a sub-folder per version; all of them are served.

    Raises:
      CheckpointError: there is no version, or one cannot be loaded.
    """

    def __init__(self, folders: Mapping[str, str | os.PathLike]):
        self._models: dict[str, dict[int, Servable]] = {}
        for name, folder in folders.items():
            folder = pathlib.Path(folder)
            versions = [path for path in folder.iterdir() if path.name.isdecimal()] if folder.is_dir() else []
            if not versions:
                raise CheckpointError(f"Found no version of the model {name} in {folder}: expected {folder}/1 or so.")
            self._models[name] = {int(path.name): Servable.load(name, path) for path in versions}
        self._cores = threading.Semaphore(os.cpu_count() or 1)
        self._lock = threading.Lock()
        self._ended: collections.Counter[tuple[str, str]] = collections.Counter()
        self._seconds: collections.defaultdict[str, float] = collections.defaultdict(float)

    def versions(self, name: str, version: int | None = None) -> list[Servable]:
        """One version, or all, the latest first. Raises Refused."""
        known = self._models.get(name, {})
        if not known or (version is not None and version not in known):
            wanted = f"Latest({name})" if version is None else f"Specific({name}, {version})"
            raise Refused(grpc.StatusCode.NOT_FOUND, f"Servable not found for request: {wanted}")
        return [known[version]] if version is not None else [known[number] for number in sorted(known, reverse=True)]

    def predict(self, name: str, version: int | None, signature: str, inputs_of
                ) -> tuple[Servable, dict[str, np.ndarray]]:
        """Answers a request; `inputs_of` makes tensors of it, given the SignatureDef. Raises Refused."""
        start, status = time.monotonic(), "OK"
        try:
            servable = self.versions(name, version)[0]
            signature = signature or "serving_default"
            with self._cores:
                return servable, servable.predict(signature, inputs_of(servable.definition(signature)))
        except Refused as error:
            status = error.code.name
            raise
        finally:
            with self._lock:
                self._ended[name if name in self._models else "", status] += 1
                self._seconds[name if name in self._models else ""] += time.monotonic() - start

    def prometheus(self) -> str:
        """Counts, under TensorFlow Serving's names."""
        with self._lock:
            lines = ["# TYPE :tensorflow:serving:request_count counter"]
            lines += [f':tensorflow:serving:request_count{{model_name="{name}",status="{status}"}} {count}'
                      for (name, status), count in sorted(self._ended.items())]
            lines += ["# TYPE :tensorflow:serving:request_latency_sum counter"]
            lines += [f':tensorflow:serving:request_latency_sum{{model_name="{name}"}} {seconds * 1e6:.0f}'
                      for name, seconds in sorted(self._seconds.items())]
        return "\n".join(lines) + "\n"


# gRPC.


class PredictionService(prediction_service_pb2_grpc.PredictionServiceServicer):
    """Predict and GetModelMetadata; the stubs refuse the rest."""

    def __init__(self, models: Models):
        self._models = models

    def Predict(self, request, context):
        def inputs_of(definition):
            del definition
            try:
                return {key: tf.constant(tf.make_ndarray(value)) for key, value in request.inputs.items()}
            except Exception as error:  # Of a malformed TensorProto: TypeError, ValueError, KeyError and others.
                raise Refused(grpc.StatusCode.INVALID_ARGUMENT, f"malformed tensor: {error}") from error

        try:
            servable, outputs = self._models.predict(*_spec(request), request.model_spec.signature_name, inputs_of)
        except Refused as error:
            context.abort(error.code, str(error))
        response = predict_pb2.PredictResponse()
        response.model_spec.CopyFrom(request.model_spec)
        response.model_spec.version.value = servable.version
        for key, value in outputs.items():
            if not request.output_filter or key in request.output_filter:
                response.outputs[key].CopyFrom(tf.make_tensor_proto(value))
        return response

    def GetModelMetadata(self, request, context):
        try:
            servable = self._models.versions(*_spec(request))[0]
        except Refused as error:
            context.abort(error.code, str(error))
        response = get_model_metadata_pb2.GetModelMetadataResponse()
        response.model_spec.name, response.model_spec.version.value = servable.name, servable.version
        response.metadata["signature_def"].Pack(servable.metadata())
        return response


class ModelService(model_service_pb2_grpc.ModelServiceServicer):
    """GetModelStatus."""

    def __init__(self, models: Models):
        self._models = models

    def GetModelStatus(self, request, context):
        try:
            found = self._models.versions(*_spec(request))
        except Refused as error:
            context.abort(error.code, str(error))
        return _status_of(found)


def _spec(request) -> tuple[str, int | None]:
    """Name and version that a gRPC request is for."""
    spec = request.model_spec
    return spec.name, spec.version.value if spec.HasField("version") else None


def _status_of(found) -> get_model_status_pb2.GetModelStatusResponse:
    response = get_model_status_pb2.GetModelStatusResponse()
    for servable in found:
        entry = response.model_version_status.add(version=servable.version, state=_AVAILABLE)
        entry.status.error_code, entry.status.error_message = 0, ""
    return response


# REST.


class RestHandler(http.server.BaseHTTPRequestHandler):
    """Answers in JSON; errors are `{"error": "..."}`. A sub-class has the models."""

    models: Models
    protocol_version = "HTTP/1.1"
    timeout = _IDLE_SECONDS
    # An answer is one write, sent at once: else the client's delayed acknowledgement costs 40 ms.
    wbufsize, disable_nagle_algorithm = -1, True

    def do_GET(self):
        """Answers for metrics, for the state of a model, and for its metadata."""
        if self.path == "/monitoring/prometheus/metrics":
            return self._answer(200, self.models.prometheus().encode(), "text/plain")
        return self._serve({None: self._model_status, "/metadata": self._metadata})

    def do_POST(self):
        """Answers predictions."""
        return self._serve({":predict": self._predict})

    def _serve(self, actions) -> None:
        """Calls what the path asks for."""
        try:
            body = self._body()
            match = _PATH.fullmatch(self.path)
            if not match or match["what"] not in actions:
                raise Refused(grpc.StatusCode.NOT_FOUND, f"Malformed request: {self.command} {self.path[:200]}")
            version = None if match["version"] is None else int(match["version"])
            status, answer = 200, actions[match["what"]](match["name"], version, body)
        except Refused as error:
            status, answer = _STATUS[error.code], {"error": str(error)}
        self._answer(status, json.dumps(answer).encode(), "application/json")

    def _body(self) -> bytes:
        """Body of the request. A connection whose request cannot be read to its end is closed after the answer."""
        length = self.headers.get("Content-Length", "0")
        if not re.fullmatch(r"\d{1,12}", length) or int(length) > MAX_BODY or "Transfer-Encoding" in self.headers:
            self.close_connection = True
            raise Refused(grpc.StatusCode.INVALID_ARGUMENT, f"expected a Content-Length of at most {MAX_BODY} bytes")
        return self.rfile.read(int(length))

    def _model_status(self, name, version, body):
        del body
        found = self.models.versions(name, version)
        return {"model_version_status": [
            {"version": str(servable.version), "state": "AVAILABLE",
             "status": {"error_code": "OK", "error_message": ""}}
            for servable in found]}

    def _metadata(self, name, version, body):
        del body
        servable = self.models.versions(name, version)[0]
        signatures = json_format.MessageToDict(servable.metadata(), preserving_proto_field_name=True,
                                               including_default_value_fields=True)
        return {"model_spec": {"name": name, "signature_name": "", "version": str(servable.version)},
                "metadata": {"signature_def": signatures}}

    def _predict(self, name, version, body):
        request = self._parsed(body)
        by_row = "instances" in request
        _, outputs = self.models.predict(
            name, version, request.get("signature_name", ""),
            lambda definition: (_from_rows if by_row else _from_columns)(request, definition))
        values = {key: _to_json(key, value) for key, value in outputs.items()}
        (only, *more) = values.values()
        if not by_row:
            return {"outputs": values if more else only}
        if any(np.ndim(output) == 0 for output in outputs.values()):
            raise Refused(grpc.StatusCode.INVALID_ARGUMENT, "the outputs have no rows: send `inputs`, not `instances`")
        return {"predictions": [dict(zip(values, row)) for row in zip(*values.values())] if more else only}

    def _parsed(self, body: bytes) -> dict[str, Any]:
        try:
            request = _files.parse_json(body)
        except ValueError as error:
            raise Refused(grpc.StatusCode.INVALID_ARGUMENT, f"JSON Parse error: {error}") from error
        if not isinstance(request, dict) or ("instances" in request) == ("inputs" in request):
            raise Refused(grpc.StatusCode.INVALID_ARGUMENT,
                          "expected a JSON object with either `instances` or `inputs`")
        if not isinstance(request.get("signature_name", ""), str):
            raise Refused(grpc.StatusCode.INVALID_ARGUMENT, "expected `signature_name` to be text")
        return request

    def _answer(self, status: int, body: bytes, kind: str) -> None:
        self.send_response(status)
        self.send_header("Content-Type", kind)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, format, *args):
        """Says nothing: requests are counted."""


def _from_columns(request, definition) -> dict[str, tf.Tensor]:
    """Tensors of `inputs`: name -> value, or the value of the only input."""
    given = request["inputs"]
    if not isinstance(given, dict) or set(given) == {"b64"}:
        given = {_only(definition): given}
    return {key: _tensor(key, value, definition) for key, value in given.items()}


def _from_rows(request, definition) -> dict[str, tf.Tensor]:
    """Tensors of `instances`: a list of name -> value, or of values of the only input."""
    rows = request["instances"]
    if not isinstance(rows, list) or not rows:
        raise Refused(grpc.StatusCode.INVALID_ARGUMENT, "expected `instances` to be a list of at least one instance")
    if not all(isinstance(row, dict) and set(row) != {"b64"} for row in rows):
        name = _only(definition)
        rows = [{name: row} for row in rows]
    if any(set(row) != set(rows[0]) for row in rows):
        raise Refused(grpc.StatusCode.INVALID_ARGUMENT, "expected all `instances` to have the same names")
    return {key: _tensor(key, [row[key] for row in rows], definition) for key in rows[0]}


def _only(definition) -> str:
    if len(definition.inputs) != 1:
        raise Refused(grpc.StatusCode.INVALID_ARGUMENT, f"expected values for {sorted(definition.inputs)} by name")
    return next(iter(definition.inputs))


def _tensor(key: str, value: Any, definition) -> tf.Tensor:
    """A tensor of the input's type, to which JSON must fit: no fractions for integers, no booleans."""
    if key not in definition.inputs:
        raise Refused(grpc.StatusCode.INVALID_ARGUMENT, f"expected inputs {sorted(definition.inputs)}, got {key!r}")
    dtype = tf.as_dtype(definition.inputs[key].dtype)
    kinds = {"i": int, "u": int, "f": (int, float), "O": str}[np.dtype(dtype.as_numpy_dtype).kind]

    def checked(item):
        if isinstance(item, list):
            return [checked(part) for part in item]
        if isinstance(item, dict) and set(item) == {"b64"} and kinds is str:
            return base64.b64decode(item["b64"], validate=True)
        if isinstance(item, bool) or not isinstance(item, kinds):
            raise ValueError(f"{item!r:.40} is no {dtype.name}")
        return item

    try:
        return tf.constant(np.array(checked(value), object if kinds is str else dtype.as_numpy_dtype), dtype)
    except (ValueError, TypeError, OverflowError, RecursionError) as error:
        raise Refused(grpc.StatusCode.INVALID_ARGUMENT, f"{key}: {str(error).partition(chr(10))[0]}") from error


def _to_json(key: str, value: np.ndarray) -> Any:
    """Numbers and text; base64 where the output's name ends in `_bytes`."""
    if value.dtype != object:
        return value.tolist()
    as_text = ((lambda item: {"b64": base64.b64encode(item).decode()}) if key.endswith("_bytes")
               else lambda item: item.decode(errors="replace"))
    return np.vectorize(as_text, otypes=[object])(value).tolist() if value.size else []


# The process.


class _HttpServer(http.server.ThreadingHTTPServer):
    daemon_threads = True
    request_queue_size = 1024

    def handle_error(self, request, client_address):
        """A client that went away is no news; anything else is."""
        error = sys.exc_info()[1]
        if not isinstance(error, (ConnectionError, TimeoutError)):
            super().handle_error(request, client_address)


class LocalServer:
    """Both interfaces, on this machine only.

    Args:
      models: to serve.
      port, rest_api_port: 0 for free ones; the attributes have those that were taken.
    """

    def __init__(self, models: Models, *, port: int = 8500, rest_api_port: int = 8501):
        self._grpc = grpc.server(concurrent.futures.ThreadPoolExecutor(16), options=[
            ("grpc.max_receive_message_length", MAX_BODY), ("grpc.max_send_message_length", -1),
            ("grpc.so_reuseport", 0)])
        prediction_service_pb2_grpc.add_PredictionServiceServicer_to_server(PredictionService(models), self._grpc)
        model_service_pb2_grpc.add_ModelServiceServicer_to_server(ModelService(models), self._grpc)
        try:
            self.port = self._grpc.add_insecure_port(f"localhost:{port}")
            self._rest = _HttpServer(("localhost", rest_api_port), type("Handler", (RestHandler,), {"models": models}))
        except (OSError, RuntimeError) as error:
            raise InvalidArgumentError(f"Cannot listen on --port={port} and --rest_api_port={rest_api_port}: {error}. "
                                       "Choose other ports.") from error
        self.rest_api_port = self._rest.server_address[1]

    def start(self) -> "LocalServer":
        """Begins to answer, in threads of its own."""
        self._grpc.start()
        threading.Thread(target=self._rest.serve_forever, daemon=True).start()
        return self

    def stop(self) -> None:
        """Ends what is being answered, and closes the ports."""
        self._grpc.stop(None).wait()
        self._rest.shutdown()
        self._rest.server_close()


def folders_of(args: argparse.Namespace) -> dict[str, str]:
    """Model -> base path, from the flags."""
    if (args.model_config_file is None) == (args.model_base_path is None):
        raise InvalidArgumentError("Expected either --model_base_path or --model_config_file: what to serve.")
    if args.model_base_path is not None:
        return {args.model_name: args.model_base_path}
    try:
        config = text_format.Parse(pathlib.Path(args.model_config_file).read_text(encoding="utf-8"),
                                   model_server_config_pb2.ModelServerConfig())
    except (OSError, UnicodeDecodeError, text_format.ParseError) as error:
        raise InvalidArgumentError(f"Cannot read --model_config_file={args.model_config_file}: {error}.") from error
    return {model.name: model.base_path for model in config.model_config_list.config}


def main() -> None:
    """Serves what the flags name until SIGINT or SIGTERM; mistakes end it with one line."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--model_base_path", help="folder with a sub-folder per version")
    parser.add_argument("--model_name", default="default")
    parser.add_argument("--model_config_file", help="several models: a ModelServerConfig as text")
    parser.add_argument("--port", type=int, default=8500, help="of gRPC")
    parser.add_argument("--rest_api_port", type=int, default=8501)
    args = parser.parse_args()
    try:
        models = folders_of(args)
        server = LocalServer(Models(models), port=args.port, rest_api_port=args.rest_api_port).start()
    except DataLensError as error:
        sys.exit(f"local_server: {error}")
    print(f"serving {', '.join(models)}: REST http://localhost:{server.rest_api_port}, gRPC localhost:{server.port}",
          flush=True)
    asked = threading.Event()
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, lambda *_: asked.set())
    asked.wait()
    server.stop()


if __name__ == "__main__":
    main()
