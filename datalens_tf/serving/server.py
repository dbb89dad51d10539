"""A server of generators that strangers may ask, with TensorFlow Serving's interfaces: REST and gRPC."""

import asyncio
import signal
import socket
from collections.abc import Collection

import uvicorn
from starlette.types import ASGIApp

from datalens_tf.errors import InvalidArgumentError
from datalens_tf.serving import guard, rest, rpc
from datalens_tf.serving.servables import Limits, Models

__all__ = ["Limits", "Models", "Server"]

_LARGEST_HEAD = 2**14  # bytes of a request's first line and headers


class Server(uvicorn.Server):
    """Both interfaces, on one machine's addresses.

    Args:
      models: to serve.
      host: address to listen at.
      port, grpc_port: of REST and gRPC; 0 for free ones. The attributes of these names have the ports that were taken.
      names: names that the server may be called by, in addition to those that this machine has for itself.
      token: the token that every request needs; None for none.
      app: what answers HTTP, by default the REST interface.

    Raises:
      InvalidArgumentError: the ports are taken, or the address is not one of this machine's.
    """

    def __init__(self, models: Models, *, host: str = "127.0.0.1", port: int = 8501, grpc_port: int = 8500,
                 names: Collection[str] = (), token: str | None = None, app: ASGIApp | None = None):
        self._models, self._grpc = models, rpc.server(models, token=token)
        shown = f"[{host}]" if ":" in host else host
        try:
            self._socket = socket.create_server((host, port), backlog=1024,
                                                family=socket.AF_INET6 if ":" in host else socket.AF_INET)
        except (OSError, OverflowError) as error:
            raise InvalidArgumentError(f"Cannot listen at {host} on --port={port}: {error}. Choose another "
                                       "port.") from error
        try:
            self.grpc_port = self._grpc.add_insecure_port(f"{shown}:{grpc_port}")
        except (RuntimeError, OverflowError) as error:
            self._socket.close()
            raise InvalidArgumentError(f"Cannot listen at {host} on --grpc_port={grpc_port}: another program does. "
                                       "Choose another port.") from error
        self.port = self._socket.getsockname()[1]
        app = app or rest.application(models, names={*guard.LOOPBACK, host, *names}, token=token)
        super().__init__(uvicorn.Config(
            app, http=guard.connections(models.limits), ws="none", loop="asyncio", lifespan="off", interface="asgi3",
            log_config=None, log_level="error", access_log=False, server_header=False, proxy_headers=False,
            h11_max_incomplete_event_size=_LARGEST_HEAD, timeout_graceful_shutdown=int(models.limits.seconds)))

    def serve_until_asked(self) -> None:
        """Answers until SIGINT or SIGTERM; ends when the requests that were being answered then are answered."""
        for number in (signal.SIGINT, signal.SIGTERM):
            # uvicorn's own handlers do the same, and call these when they are done.
            signal.signal(number, lambda *_: setattr(self, "should_exit", True))
        self.run()

    def run(self, sockets: list[socket.socket] | None = None) -> None:
        """Answers until `should_exit` is set."""
        super().run([self._socket] if sockets is None else sockets)

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        """Begins to answer, and to look for new versions."""
        self._grpc.start()
        self._models.watch()
        await super().startup(sockets)

    async def shutdown(self, sockets: list[socket.socket] | None = None) -> None:
        """Takes no new requests; ends when those that are being answered are finished, or their time is over."""
        self._models.ready = False
        stopped = self._grpc.stop(self._models.limits.seconds)
        await super().shutdown(sockets)
        await asyncio.to_thread(stopped.wait)
