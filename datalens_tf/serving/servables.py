"""Models that a server answers from: their versions on disk, what a request may cost, and how requests ended."""

import contextlib
import dataclasses
import os
import pathlib
import re
import sys
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from typing import Any

import grpc
import numpy as np
import prometheus_client
import tensorflow as tf
from tensorflow.core.protobuf import saved_model_pb2
from tensorflow_serving.apis import get_model_metadata_pb2

from datalens_tf.accounting import verification
from datalens_tf.errors import CheckpointError, DataLensError
from datalens_tf.serving import export as exports
from datalens_tf.serving.signatures import MAX_IMAGES, MAX_TEXTS

# Versions are int64, which numbers of so many digits fit. Python refuses to read numbers of thousands of digits.
_VERSION = re.compile(r"[0-9]{1,18}", re.ASCII)
# In microseconds, from 1 ms to a minute, as in TensorFlow Serving.
_LATENCIES = [1e3, 3e3, 1e4, 3e4, 1e5, 3e5, 1e6, 3e6, 1e7, 3e7, 6e7]


@dataclasses.dataclass(frozen=True, kw_only=True)
class Limits:
    """Limits on what strangers may take.

    Attributes:
      body: bytes of a REST request.
      message: bytes of a gRPC request.
      held: bytes of REST requests and answers that are held at once.
      rows: length of an input's first dimension, and therefore images of an answer.
      texts: the same for an input of texts, each of which may be answered by a text as long as a privacy statement.
      values: numbers in one input.
      waiting: requests that wait or are being answered at the same time.
      connections: of REST, and as many of gRPC.
      seconds: how long a connection may be idle, a request may take to arrive, and a reader may read nothing; also how
        long requests that are being answered have when the server is asked to stop.
      poll_seconds: between two looks for new versions.
    """

    body: int = 8 * 2**20
    message: int = 4 * 2**20
    held: int = 192 * 2**20
    rows: int = MAX_IMAGES
    texts: int = MAX_TEXTS
    values: int = 2**20
    waiting: int = 256
    connections: int = 384
    seconds: float = 25.0
    poll_seconds: float = 1.0


class Refused(Exception):
    """A request that is answered with an error."""

    def __init__(self, code: grpc.StatusCode, message: str):
        super().__init__(message)
        self.code = code


def invalid(message: str) -> Refused:
    """An error that tells what is wrong with a request."""
    return Refused(grpc.StatusCode.INVALID_ARGUMENT, message)


@dataclasses.dataclass(frozen=True, eq=False)
class Servable:
    """One version of a model: what its signatures take and give, and their functions."""

    name: str
    version: int
    definitions: Mapping[str, Any]  # SignatureDef
    functions: Mapping[str, Any]

    @classmethod
    def load(cls, name: str, folder: pathlib.Path) -> "Servable":
        """Loads a version; raises CheckpointError or LedgerError if it is damaged, or its statement is not true."""
        exports.check_files(folder)
        verification.export_statement(folder)
        try:
            proto = saved_model_pb2.SavedModel.FromString((folder / "saved_model.pb").read_bytes())
            functions = dict(tf.saved_model.load(os.fspath(folder)).signatures)
        except Exception as error:  # A damaged SavedModel fails in protocol buffers, checkpoints or graph import.
            raise CheckpointError(f"Cannot load {folder}: {str(error).strip().partition(chr(10))[0]}.") from error
        definitions = {key: proto.meta_graphs[0].signature_def[key] for key in functions}
        return cls(name=name, version=int(folder.name), definitions=definitions, functions=functions)

    def predict(self, signature: str, inputs: Mapping[str, np.ndarray]) -> dict[str, np.ndarray]:
        """Runs a signature on arrays of the types and shapes that it takes. Raises Refused."""
        definition = self.definition(signature)
        arrays = {key: tf.make_ndarray(value) for key, value in definition.defaults.items()} | dict(inputs)
        if set(arrays) != set(definition.inputs):
            usual = f", and maybe {sorted(definition.defaults)}," if definition.defaults else ""
            raise invalid(f"expected inputs {sorted(set(definition.inputs) - set(definition.defaults))}{usual} for the "
                          f"signature {signature}, got {sorted(inputs)}")
        tensors = {key: tf.constant(value, tf.as_dtype(definition.inputs[key].dtype)) for key, value in arrays.items()}
        try:
            return {key: value.numpy() for key, value in self.functions[signature](**tensors).items()}
        except tf.errors.InvalidArgumentError as error:
            failed = re.search(r"assertion failed: \[(.*?)\] ", error.message)  # The rest is about the graph.
            raise invalid(failed[1].strip() if failed else error.message.partition("\n")[0]) from error
        except tf.errors.OpError as error:
            raise Refused(grpc.StatusCode.INTERNAL, error.message.partition("\n")[0]) from error

    def definition(self, signature: str) -> Any:
        """SignatureDef. Raises Refused."""
        if signature not in self.definitions:
            raise Refused(grpc.StatusCode.NOT_FOUND, f"model {self.name} has no signature {signature!r:.100}, only "
                                                     f"{', '.join(sorted(self.definitions))}")
        return self.definitions[signature]

    def metadata(self) -> get_model_metadata_pb2.SignatureDefMap:
        """Every signature's inputs and outputs."""
        return get_model_metadata_pb2.SignatureDefMap(signature_def=self.definitions)


class Models:
    """Models by name and version, limits on requests for them, and counts of how requests ended.

    Args:
      folders: name -> folder with a sub-folder per version; all of them are served.
      limits: on requests.

    Attributes:
      limits: as given.
      ready: whether new requests should come here; they should not while the server stops.
      metrics: registry of Prometheus' metrics.

    Raises:
      CheckpointError: there is no version, or one cannot be loaded, or was changed since it was written.
      LedgerError: a statement promises more than its ledger.
    """

    def __init__(self, folders: Mapping[str, str | os.PathLike], limits: Limits | None = None):
        self.limits = limits or Limits()
        self._folders = {name: pathlib.Path(folder) for name, folder in folders.items()}
        self._models: dict[str, dict[int, Servable]] = {}
        for name, folder in self._folders.items():
            found = _versions(folder)
            if (folder / "saved_model.pb").is_file():
                raise CheckpointError(f"{folder} is one version of a model: give the folder of all its versions, "
                                      f"{folder.parent}.")
            if not found:
                raise CheckpointError(f"Found no version of the model {name} in {folder}: expected {folder}/1 or so.")
            self._models[name] = {version: Servable.load(name, path) for version, path in found.items()}
        self.ready = True
        self._failed: dict[pathlib.Path, tuple[tuple[str, int, int], ...]] = {}  # versions that cannot be loaded
        self._cores = threading.Semaphore(os.cpu_count() or 1)
        self._lock = threading.Lock()
        self._waiting = self._held = 0
        self.metrics = prometheus_client.CollectorRegistry()
        # A counter's name would get an end that TensorFlow Serving's does not have.
        self._ended = prometheus_client.Gauge(
            ":tensorflow:serving:request_count", "Requests for predictions, by how they ended",
            ["model_name", "status"], registry=self.metrics)
        self._latency = prometheus_client.Histogram(
            ":tensorflow:serving:request_latency", "Microseconds until a prediction was there, waiting included",
            ["model_name"], buckets=_LATENCIES, registry=self.metrics)
        for name, text, value in (("waiting", "Requests that wait or are answered", lambda: self._waiting),
                                  ("held_bytes", "Bytes of requests and answers held", lambda: self._held)):
            prometheus_client.Gauge(f"datalens_serving_{name}", text, registry=self.metrics).set_function(value)
        # Memory, processor time and open files of the process.
        prometheus_client.ProcessCollector(registry=self.metrics)

    @property
    def names(self) -> list[str]:
        """Names of the models."""
        return sorted(self._models)

    def versions(self, name: str, version: int | None = None) -> list[Servable]:
        """One version, or all, the latest first. Raises Refused."""
        known = self._models.get(name, {})
        if not known or (version is not None and version not in known):
            wanted = f"Latest({name:.100})" if version is None else f"Specific({name:.100}, {version})"
            raise Refused(grpc.StatusCode.NOT_FOUND, f"Servable not found for request: {wanted}")
        return [known[version]] if version is not None else [known[number] for number in sorted(known, reverse=True)]

    def predict(self, name: str, version: int | None, signature: str,
                inputs_of: Callable[[Any], Mapping[str, np.ndarray]]) -> tuple[Servable, dict[str, np.ndarray]]:
        """Answers a request, from which `inputs_of` makes arrays, given the SignatureDef. Raises Refused."""
        start, status = time.monotonic(), "OK"
        known = name if name in self._models else ""  # Strangers do not choose names of metrics.
        try:
            servable = self.versions(name, version)[0]
            signature = signature or "serving_default"
            with self._cores:
                return servable, servable.predict(signature, inputs_of(servable.definition(signature)))
        except Refused as error:
            status = error.code.name
            raise
        except Exception:
            status = "INTERNAL"
            raise
        finally:
            self._ended.labels(known, status).inc()
            self._latency.labels(known).observe((time.monotonic() - start) * 1e6)

    @contextlib.contextmanager
    def place(self) -> Iterator[None]:
        """Takes a place among the waiting requests. Raises Refused if all places are taken."""
        with self._lock:
            if self._waiting >= self.limits.waiting:
                raise Refused(grpc.StatusCode.UNAVAILABLE,
                              f"{self.limits.waiting} requests are waiting already: try again later")
            self._waiting += 1
        try:
            yield
        finally:
            with self._lock:
                self._waiting -= 1

    @contextlib.contextmanager
    def held(self, num_bytes: int) -> Iterator[None]:
        """Reserves memory for a request or an answer. Raises Refused if too much is held already."""
        with self._lock:
            # An answer that is larger than all that may be held goes out alone.
            if self._held and self._held + num_bytes > self.limits.held:
                raise Refused(grpc.StatusCode.UNAVAILABLE, "too many large requests at once: try again later")
            self._held += num_bytes
        try:
            yield
        finally:
            with self._lock:
                self._held -= num_bytes

    def refresh(self) -> None:
        """Loads versions that are new on disk, and forgets those that are gone; a model keeps at least one.

        A version that cannot be loaded is named on stderr, and tried again when its files are others.
        """
        for name, folder in self._folders.items():
            found, known = _versions(folder), dict(self._models[name])
            for version in sorted(set(found) - set(known)):
                state = _state(found[version])
                if self._failed.get(found[version]) == state:
                    continue
                try:
                    known[version] = Servable.load(name, found[version])
                    print(f"datalens: {name} has a new version {version}", file=sys.stderr)
                except DataLensError as error:
                    self._failed[found[version]] = state
                    print(f"datalens: warning: {error}", file=sys.stderr)
            kept = {version: servable for version, servable in known.items() if version in found}
            self._models[name] = kept or self._models[name]

    def watch(self) -> None:
        """Calls `refresh` again and again, in a thread of its own."""
        def look():
            while True:
                time.sleep(self.limits.poll_seconds)
                with contextlib.suppress(OSError):  # The folder is away for the moment.
                    self.refresh()

        threading.Thread(target=look, daemon=True, name="versions").start()


def read_version(text: str) -> int:
    """The number of a version in an address. Raises Refused."""
    if not _VERSION.fullmatch(text):
        raise invalid(f"expected a version of 1 to 18 digits, got {text!r:.60}")
    return int(text)


def _state(folder: pathlib.Path) -> tuple[tuple[str, int, int], ...]:
    """The files below a folder: names, sizes and times, which differ where a file was written."""
    found = ((path, path.stat()) for path in sorted(folder.rglob("*")) if path.is_file())
    return tuple((os.fspath(path), about.st_size, about.st_mtime_ns) for path, about in found)


def _versions(folder: pathlib.Path) -> dict[int, pathlib.Path]:
    """Version -> folder."""
    return {int(path.name): path for path in (folder.iterdir() if folder.is_dir() else ())
            if _VERSION.fullmatch(path.name) and path.name == str(int(path.name))}
