"""TensorFlow Serving's gRPC interface: Predict and GetModelMetadata, and GetModelStatus."""

import concurrent.futures
import os

import grpc
import tensorflow as tf
from tensorflow_serving.apis import (
    get_model_metadata_pb2,
    get_model_status_pb2,
    model_service_pb2_grpc,
    predict_pb2,
    prediction_service_pb2_grpc,
)

from datalens_tf.serving import tensors
from datalens_tf.serving.guard import is_token
from datalens_tf.serving.servables import Models, Refused, invalid

_AVAILABLE = get_model_status_pb2.ModelVersionStatus.AVAILABLE


class PredictionService(prediction_service_pb2_grpc.PredictionServiceServicer):
    """Predict and GetModelMetadata; the stubs refuse the rest."""

    def __init__(self, models: Models):
        self._models = models

    def Predict(self, request, context):
        """Answers with the outputs of a signature."""
        try:
            with self._models.place():
                servable, outputs = self._models.predict(
                    *_spec(request), request.model_spec.signature_name,
                    lambda definition: tensors.from_proto(request.inputs, definition, self._models.limits))
            wanted = set(request.output_filter) or set(outputs)
            if not wanted <= set(outputs):
                raise invalid(f"expected an output_filter among {sorted(outputs)}, got "
                              f"{min(wanted - set(outputs))!r:.60}")
        except Refused as error:
            context.abort(error.code, str(error))
        response = predict_pb2.PredictResponse()
        response.model_spec.CopyFrom(request.model_spec)
        response.model_spec.version.value = servable.version
        for key in sorted(wanted):
            response.outputs[key].CopyFrom(tf.make_tensor_proto(outputs[key]))
        return response

    def GetModelMetadata(self, request, context):
        """Answers with every signature's inputs and outputs."""
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
        """Answers with the versions that are served."""
        try:
            found = self._models.versions(*_spec(request))
        except Refused as error:
            context.abort(error.code, str(error))
        response = get_model_status_pb2.GetModelStatusResponse()
        for servable in found:
            entry = response.model_version_status.add(version=servable.version, state=_AVAILABLE)
            entry.status.error_code, entry.status.error_message = 0, ""
        return response


class _Token(grpc.ServerInterceptor):
    """Refuses requests without the token."""

    def __init__(self, token: str):
        self._token = token

    def intercept_service(self, continuation, handler_call_details):
        given = dict(handler_call_details.invocation_metadata).get("authorization", "")
        return continuation(handler_call_details) if is_token(given, self._token) else _REFUSAL


_REFUSAL = grpc.unary_unary_rpc_method_handler(lambda request, context: context.abort(
    grpc.StatusCode.UNAUTHENTICATED, "expected the metadata `authorization: Bearer TOKEN`"))


def server(models: Models, *, token: str | None = None) -> grpc.Server:
    """The gRPC interface of these models, as a server that listens nowhere yet.

    Args:
      models: to serve.
      token: what the metadata `authorization: Bearer` must say; None if nothing is asked for.
    """
    limits = models.limits
    milliseconds = int(1000 * limits.seconds)
    made = grpc.server(
        # A message is read by the thread that answers it: few threads keep few messages in memory.
        concurrent.futures.ThreadPoolExecutor(2 + (os.cpu_count() or 1), "grpc"),
        interceptors=[] if token is None else [_Token(token)], maximum_concurrent_rpcs=limits.waiting,
        options=[
            ("grpc.max_receive_message_length", limits.message), ("grpc.max_send_message_length", -1),
            ("grpc.so_reuseport", 0), ("grpc.max_connection_idle_ms", milliseconds),
            ("grpc.server_handshake_timeout_ms", milliseconds), ("grpc.keepalive_time_ms", milliseconds),
            ("grpc.keepalive_timeout_ms", milliseconds), ("grpc.max_concurrent_streams", limits.waiting),
            ("grpc.max_allowed_incoming_connections", limits.connections)])
    prediction_service_pb2_grpc.add_PredictionServiceServicer_to_server(PredictionService(models), made)
    model_service_pb2_grpc.add_ModelServiceServicer_to_server(ModelService(models), made)
    return made


def _spec(request) -> tuple[str, int | None]:
    """Name and version that a gRPC request is for. Raises Refused for a label, which no version has here."""
    spec = request.model_spec
    if spec.HasField("version_label"):
        raise invalid(f"expected a version's number, got the label {spec.version_label!r:.60}: this server has none")
    return spec.name, spec.version.value if spec.HasField("version") else None
