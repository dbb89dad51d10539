"""Draws synthetic images from a generator that TensorFlow Serving serves, by REST or gRPC.

    client = Client("http://localhost:8501", model="mnist")
    images, labels = client.sample(60_000, seed=7)
    client.describe("privacy.json")

The same seed gives the images that `datalens sample --seed` draws from the same generator. REST needs no TensorFlow.
"""

import base64
import concurrent.futures
import io
import random
import time
from collections.abc import Callable, Sequence
from typing import Any
from urllib.parse import quote, urlsplit

import numpy as np
from PIL import Image

from datalens_tf import _files, _validate
from datalens_tf.errors import DataLensError, InvalidArgumentError
from datalens_tf.serving.sampling import checked_labels, checked_metadata, empty_images, image_seeds, sample_from

_FIRST_WAIT, _LONGEST_WAIT = 0.25, 8.0  # seconds between tries, doubled each time
_RETRIED_STATUS = (408, 429, 500, 502, 503, 504)
_RETRIED_CODES = ("UNAVAILABLE", "DEADLINE_EXCEEDED", "RESOURCE_EXHAUSTED", "INTERNAL", "ABORTED")


class ServerError(DataLensError):
    """A server that cannot be reached, or that keeps failing."""

    exit_code = 1


class _TryAgain(Exception):
    """A failure that another try may mend."""


class Client:
    """A served generator.

    Args:
      url: `http://HOST:PORT`, `https://...` (REST), or `grpc://HOST:PORT` (not encrypted) or `grpcs://...`.
      model: its name on the server.
      version: of the model; by default the latest.
      timeout: seconds that one request may take.
      retries: further tries where a request fails for a reason that may pass; waits in between double, from a quarter
        of a second to eight.
      chunk: images per request.
      parallel: requests that are under way at once.
      progress: called with the number of images of each request that was answered.
      token: text that the server asks for, if it does.

    Raises:
      InvalidArgumentError: an argument outside its domain, or no generator of this package by that name.
      ServerError: the server cannot be reached.
    """

    def __init__(self, url: str, *, model: str, version: int | None = None, timeout: float = 60.0, retries: int = 10,
                 chunk: int = 500, parallel: int = 2, progress: Callable[[int], Any] | None = None,
                 token: str | None = None):
        _validate.positive("timeout", timeout)
        for name, value, least in (("retries", retries, 0), ("chunk", chunk, 1), ("parallel", parallel, 1)):
            _validate.integer(name, value, at_least=least)
        if version is not None:
            _validate.integer("version", version, at_least=0)
        scheme, address = urlsplit(url).scheme, url.rstrip("/")
        _validate.one_of("scheme of the server's URL", scheme, ("http", "https", "grpc", "grpcs"))
        transport = _Rest if scheme.startswith("http") else _Grpc
        self._url, self._model, self._retries, self._progress = address, model, retries, progress
        self._chunk, self._parallel = chunk, parallel
        self._transport = transport(address, model, version, timeout, token)
        described = self._retried(lambda: self._transport.describe("model.json"))
        try:
            info = checked_metadata(_files.parse_json(described))
        except ValueError as error:  # No JSON, or not of a generator.
            raise InvalidArgumentError(
                f"The model {model} at {address} is no generator of this package: {error}") from error
        self.num_classes: int = info["num_classes"]
        self.class_names: tuple[str, ...] = info["class_names"]
        self.image_shape: tuple[int, int, int] = info["image_shape"]

    def describe(self, name: str = "privacy.json") -> Any:
        """Description of the server's generator: `privacy.json`, the privacy statement, or `model.json`."""
        return _files.parse_json(self._retried(lambda: self._transport.describe(name)))

    def sample(self, num_images: int, *, labels: Sequence[int] | None = None, seed: int | None = None
               ) -> tuple[np.ndarray, np.ndarray]:
        """Draws images uint8 [num_images, H, W, C] and their labels int64 [num_images], in requests of `chunk` images.

        Args:
          num_images: how many.
          labels: the labels to draw for; by default as equally many of each class as possible, in random order.
          seed: makes the draw reproducible.

        Raises:
          InvalidArgumentError: the server refuses what was asked for.
          ServerError: the server kept failing.
        """
        return sample_from(self._draw, self.num_classes, num_images,
                           labels=None if labels is None else np.asarray(labels), seed=seed)

    def _draw(self, labels: np.ndarray, seed: int | None) -> np.ndarray:
        """An image per label."""
        labels = checked_labels(labels, self.num_classes)
        # Seeds are drawn here if none was given, so that a request can be sent again.
        seeds = image_seeds(random.SystemRandom().getrandbits(63) if seed is None else seed, len(labels))
        images = empty_images(len(labels), self.image_shape)

        def fill(start: int) -> int:
            part = slice(start, min(start + self._chunk, len(labels)))
            found = self._retried(lambda: self._transport.images(labels[part], seeds[part]))
            if found.dtype != np.uint8 or found.shape != images[part].shape:
                raise ServerError(f"{self._url} answered {found.dtype} {list(found.shape)} where uint8 "
                                  f"{list(images[part].shape)} was asked for: is it another model?")
            images[part] = found
            return part.stop - part.start

        with concurrent.futures.ThreadPoolExecutor(self._parallel) as pool:
            requests = [pool.submit(fill, start) for start in range(0, len(labels), self._chunk)]
            try:
                for request in concurrent.futures.as_completed(requests):
                    count = request.result()
                    if self._progress:
                        self._progress(count)
            finally:
                for request in requests:  # After a failure the rest is not worth asking for.
                    request.cancel()
        return images

    def _retried(self, call: Callable[[], Any]) -> Any:
        """Result of the call, which is tried again up to `retries` times."""
        for tries in range(self._retries + 1):
            try:
                return call()
            except _TryAgain as error:
                if tries == self._retries:
                    raise ServerError(f"The model {self._model} at {self._url} did not answer in {tries + 1} tries: "
                                      f"{error}. Check that the server runs, or try again later.") from error
                # Clients that failed together should not come back together.
                time.sleep(min(_FIRST_WAIT * 2**tries, _LONGEST_WAIT) * random.uniform(0.5, 1.0))
        raise AssertionError("unreachable")


class _Rest:
    """Requests to the REST API: https://www.tensorflow.org/tfx/serving/api_rest ."""

    def __init__(self, url: str, model: str, version: int | None, timeout: float, token: str | None):
        import requests

        self._requests, self._timeout = requests, timeout
        self._session = requests.Session()
        self._session.headers.update({} if token is None else {"Authorization": f"Bearer {token}"})
        where = "" if version is None else f"/versions/{version}"
        self._url = f"{url}/v1/models/{quote(model, safe='')}{where}:predict"

    def describe(self, name: str) -> str:
        found = self._outputs("describe", {"name": [name]})
        if not (isinstance(found, list) and len(found) == 1 and isinstance(found[0], str)):
            raise ServerError(f"{self._url} answered no description: is it a generator of this package?")
        return found[0]

    def images(self, labels: np.ndarray, seeds: np.ndarray) -> np.ndarray:
        """Asks for PNG files, which are a fifth of the size of the numbers in JSON, and much faster to read."""
        files = self._outputs("png", {"labels": labels.tolist(), "seed": seeds.tolist()})
        try:
            found = np.stack([np.asarray(Image.open(io.BytesIO(base64.b64decode(file["b64"])))) for file in files])
        except (TypeError, KeyError, ValueError, OSError) as error:
            raise ServerError(f"{self._url} answered no PNG files: {error}.") from error
        return found if found.ndim == 4 else found[..., None]

    def _outputs(self, signature: str, inputs: dict[str, Any]) -> Any:
        try:
            answer = self._session.post(self._url, json={"signature_name": signature, "inputs": inputs},
                                        timeout=self._timeout)
            if answer.status_code == 200 or answer.headers.get("Content-Type", "").startswith("application/json"):
                content = answer.json()
            else:
                content = answer.text
        except (self._requests.ConnectionError, self._requests.Timeout) as error:
            raise _TryAgain(f"{type(error).__name__}") from error
        except self._requests.RequestException as error:
            if isinstance(error, ValueError) and not isinstance(error, self._requests.JSONDecodeError):
                raise InvalidArgumentError(f"Cannot ask {self._url}: {error}.") from error
            raise _TryAgain(f"the answer is damaged or no JSON ({type(error).__name__})") from error
        if answer.status_code in _RETRIED_STATUS:
            raise _TryAgain(f"status {answer.status_code}: {content}")
        if answer.status_code != 200:
            reason = content.get("error", content) if isinstance(content, dict) else content
            token = " Give the token that the server asks for." if answer.status_code == 401 else ""
            raise InvalidArgumentError(f"{self._url} refuses: {' '.join(str(reason).split())[:500]}.{token}")
        if not isinstance(content, dict) or "outputs" not in content:
            raise ServerError(f"{self._url} answered no outputs: is it TensorFlow Serving's address?")
        return content["outputs"]


class _Grpc:
    """tensorflow_serving.apis, PredictionService."""

    def __init__(self, url: str, model: str, version: int | None, timeout: float, token: str | None):
        import grpc
        import tensorflow as tf
        from tensorflow_serving.apis import predict_pb2, prediction_service_pb2_grpc

        self._grpc, self._tf, self._predict_pb2, self._url = grpc, tf, predict_pb2, url
        self._model, self._version, self._timeout = model, version, timeout
        self._metadata = [] if token is None else [("authorization", f"Bearer {token}")]
        parts = urlsplit(url)
        options = [("grpc.max_receive_message_length", -1), ("grpc.max_send_message_length", -1)]
        channel = (grpc.insecure_channel(parts.netloc, options) if parts.scheme == "grpc"
                   else grpc.secure_channel(parts.netloc, grpc.ssl_channel_credentials(), options))
        self._stub = prediction_service_pb2_grpc.PredictionServiceStub(channel)

    def describe(self, name: str) -> str:
        return self._output("describe", "text", name=np.array([name], object))[0].decode()

    def images(self, labels: np.ndarray, seeds: np.ndarray) -> np.ndarray:
        return self._output("sample", "images", labels=labels, seed=seeds)

    def _output(self, signature: str, output: str, **inputs: np.ndarray) -> np.ndarray:
        request = self._predict_pb2.PredictRequest()
        request.model_spec.name, request.model_spec.signature_name = self._model, signature
        if self._version is not None:
            request.model_spec.version.value = self._version
        for name, value in inputs.items():
            request.inputs[name].CopyFrom(self._tf.make_tensor_proto(value))
        try:
            return self._tf.make_ndarray(self._stub.Predict(
                request, timeout=self._timeout, metadata=self._metadata).outputs[output])
        except self._grpc.RpcError as error:
            if error.code().name in _RETRIED_CODES:
                raise _TryAgain(f"{error.code().name}: {error.details()}") from error
            raise InvalidArgumentError(
                f"{self._url} refuses: {' '.join(str(error.details()).split())[:500]}.") from error
