"""TensorFlow Serving's REST interface: https://www.tensorflow.org/tfx/serving/api_rest."""

import asyncio
import concurrent.futures
import inspect
import itertools
import os
from collections.abc import Collection, Iterator
from typing import Any

import grpc
import prometheus_client
from google.protobuf import json_format
from starlette.applications import Starlette
from starlette.convertors import Convertor, register_url_convertor
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import JSONResponse, PlainTextResponse, Response, StreamingResponse
from starlette.routing import Route
from starlette.types import ASGIApp

from datalens_tf import _files
from datalens_tf.serving import guard, openapi, tensors
from datalens_tf.serving.servables import Models, Refused, invalid, read_version

METRICS = "/monitoring/prometheus/metrics"
_MODEL = "/v1/models/{model:model}"
_VERSION = _MODEL + "/versions/{version:model}"
_AT_ONCE = 2**20  # bytes: an answer whose arrays take more is sent in pieces.
# The option that makes protobuf 5 and later, or protobuf 4, also write fields that have their default, as TensorFlow
# Serving does.
_ALL_FIELDS = {name: True for name in ("always_print_fields_with_no_presence", "including_default_value_fields")
               if name in inspect.signature(json_format.MessageToDict).parameters}
_ERRORS = {404: grpc.StatusCode.NOT_FOUND, 405: grpc.StatusCode.UNIMPLEMENTED}


class _Name(Convertor[str]):
    """A name in an address: a colon ends it."""

    regex = "[^/:]+"

    def convert(self, value: str) -> str:
        return value

    def to_string(self, value: str) -> str:
        return value


register_url_convertor("model", _Name())


def application(models: Models, *, names: Collection[str] = guard.LOOPBACK, token: str | None = None) -> ASGIApp:
    """The REST interface of these models, as an ASGI application.

    Args:
      models: to serve.
      names, token: as for `guard.Guard`.
    """
    endpoints = _Endpoints(models)
    routes = [
        Route(guard.HEALTH, endpoints.healthy), Route(guard.READINESS, endpoints.ready),
        Route("/openapi.json", endpoints.description), Route(METRICS, endpoints.counts)]
    for place in (_MODEL, _VERSION):
        routes += [Route(place, endpoints.status), Route(f"{place}/metadata", endpoints.metadata),
                   Route(f"{place}:predict", endpoints.predict, methods=["POST"])]
    handlers: Any = {Refused: _refused, HTTPException: _no_route, Exception: _broken}
    app = Starlette(routes=routes, exception_handlers=handlers)
    app.router.redirect_slashes = False
    return guard.Guard(app, models, names=names, token=token)


async def _refused(request: Request, refused: Refused) -> Response:
    del request
    return guard.error(refused)


async def _no_route(request: Request, error: HTTPException) -> Response:
    refused = Refused(_ERRORS.get(error.status_code, grpc.StatusCode.INVALID_ARGUMENT),
                      f"Malformed request: {request.method} {request.url.path:.200}")
    return guard.error(refused, **(error.headers or {}))


async def _broken(request: Request, error: Exception) -> Response:
    """Starlette raises the error after this answer, so that it is logged."""
    del request, error
    return guard.error(Refused(grpc.StatusCode.INTERNAL, "internal error"))


class _Endpoints:
    """The answers of each address."""

    def __init__(self, models: Models):
        self._models = models
        # More workers would wait for a core, and meanwhile hold their requests in memory.
        self._workers = concurrent.futures.ThreadPoolExecutor(os.cpu_count() or 1, "predict")

    async def healthy(self, request: Request) -> Response:
        del request
        return JSONResponse({"status": "alive"})

    async def ready(self, request: Request) -> Response:
        del request
        if not self._models.ready:
            return guard.error(Refused(grpc.StatusCode.UNAVAILABLE, "the server is about to end"))
        return JSONResponse({"status": "ready"})

    async def description(self, request: Request) -> Response:
        del request
        return JSONResponse(openapi.description(self._models))

    async def counts(self, request: Request) -> Response:
        del request
        return PlainTextResponse(prometheus_client.generate_latest(self._models.metrics),
                                 media_type=prometheus_client.CONTENT_TYPE_LATEST)

    async def status(self, request: Request) -> Response:
        return JSONResponse({"model_version_status": [
            {"version": str(servable.version), "state": "AVAILABLE",
             "status": {"error_code": "OK", "error_message": ""}}
            for servable in self._models.versions(*_spec(request))]})

    async def metadata(self, request: Request) -> Response:
        servable = self._models.versions(*_spec(request))[0]
        signatures = json_format.MessageToDict(servable.metadata(), preserving_proto_field_name=True,
                                               **_ALL_FIELDS)
        return JSONResponse({"model_spec": {"name": servable.name, "signature_name": "",
                                            "version": str(servable.version)},
                             "metadata": {"signature_def": signatures}})

    async def predict(self, request: Request) -> Response:
        body, spec = await request.body(), _spec(request)
        first, rest, size = await asyncio.get_running_loop().run_in_executor(self._workers, self._answer, *spec, body)
        if rest is None:
            return Response(first, media_type="application/json")
        request.scope["held"].enter_context(self._models.held(size))
        return StreamingResponse(itertools.chain([first], rest), media_type="application/json")

    def _answer(self, name: str, version: int | None, body: bytes) -> tuple[bytes, Iterator[bytes] | None, int]:
        """The answer, or its beginning and the rest; and the size of its arrays."""
        parsed = _parsed(body)
        _, outputs = self._models.predict(
            name, version, parsed.get("signature_name", ""),
            lambda definition: tensors.from_json(parsed, definition, self._models.limits))
        pieces, size = tensors.to_json(outputs, "instances" in parsed), tensors.size_of(outputs)
        return (b"".join(pieces), None, size) if size <= _AT_ONCE else (next(pieces), pieces, size)


def _spec(request: Request) -> tuple[str, int | None]:
    """Name and version that a request is for."""
    version = request.path_params.get("version")
    return request.path_params["model"], None if version is None else read_version(version)


def _parsed(body: bytes) -> dict[str, Any]:
    try:
        request = _files.parse_json(body)
    except ValueError as error:
        raise invalid(f"JSON Parse error: {error!s:.200}") from error
    if not isinstance(request, dict) or ("instances" in request) == ("inputs" in request):
        raise invalid("expected a JSON object with either `instances` or `inputs`")
    if not isinstance(request.get("signature_name", ""), str):
        raise invalid("expected `signature_name` to be text")
    return request
