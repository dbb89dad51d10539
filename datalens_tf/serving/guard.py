"""The guard between strangers and the REST application: who may ask, how much, and for how long."""

import asyncio
import contextlib
import hmac
import socket
from collections.abc import Collection
from typing import Any
from urllib.parse import urlsplit

import grpc
from starlette.datastructures import Headers
from starlette.responses import JSONResponse
from starlette.types import ASGIApp, Message, Receive, Scope, Send
from uvicorn.protocols.http.h11_impl import H11Protocol

from datalens_tf.serving.servables import Limits, Models, Refused

LOOPBACK = ("localhost", "127.0.0.1", "::1")
# Anybody may ask whether the server lives; neither answer says what is served.
HEALTH, READINESS = "/healthz", "/readyz"
_DRAINED = 16  # times the largest body: how much of a larger body is read, so that its sender sees the answer
STATUS = {grpc.StatusCode.INVALID_ARGUMENT: 400, grpc.StatusCode.UNAUTHENTICATED: 401,
          grpc.StatusCode.PERMISSION_DENIED: 403, grpc.StatusCode.NOT_FOUND: 404,
          grpc.StatusCode.UNIMPLEMENTED: 405, grpc.StatusCode.DEADLINE_EXCEEDED: 408,
          grpc.StatusCode.OUT_OF_RANGE: 413, grpc.StatusCode.INTERNAL: 500, grpc.StatusCode.UNAVAILABLE: 503}


def error(refused: Refused, **headers: str) -> JSONResponse:
    """The answer to a request that is refused."""
    if refused.code == grpc.StatusCode.UNAVAILABLE:
        headers["Retry-After"] = "1"
    if refused.code == grpc.StatusCode.UNAUTHENTICATED:
        headers["WWW-Authenticate"] = "Bearer"
    return JSONResponse({"error": str(refused)}, STATUS[refused.code], headers)


def is_token(given: str, token: str | None) -> bool:
    """Whether a header or metadata `authorization` has the token, compared in constant time; None asks for none."""
    return token is None or hmac.compare_digest(given.encode("latin-1", "replace"), f"Bearer {token}".encode())


class Guard:
    """Calls the application with requests that are whole and allowed.

    Args:
      app: gets requests whose bodies are read already; `scope["held"]` is an ExitStack that closes after the answer.
      models: know the limits, and how many requests wait.
      names: the names that the server is called by. Others in the header `Host` are refused, so that no stranger's page
        can let its own name point here.
      token: what `Authorization: Bearer` must say; None if nothing is asked for.
    """

    def __init__(self, app: ASGIApp, models: Models, *, names: Collection[str] = LOOPBACK, token: str | None = None):
        self._app, self._models, self._limits = app, models, models.limits
        self._names, self._token = {name.lower() for name in names}, token

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            return
        with contextlib.ExitStack() as held:
            try:
                headers = Headers(scope=scope)
                if scope["path"] not in (HEALTH, READINESS):
                    self._check(headers)
                if scope["method"] == "POST":
                    held.enter_context(self._models.place())
                    body = await self._body(headers, receive, held)
                    receive = _replayed(body, receive)
            except Refused as refused:
                # The rest of a request that was not read must not be taken for the next one.
                await error(refused, **({"Connection": "close"} if scope["method"] == "POST" else {}))(
                    scope, receive, send)
                return
            await self._app({**scope, "held": held}, receive, send)

    def _check(self, headers: Headers) -> None:
        """Raises Refused."""
        host = headers.get("host", "")
        try:
            name = urlsplit(f"//{host}").hostname
        except ValueError:
            name = None
        if name not in self._names:
            raise Refused(grpc.StatusCode.PERMISSION_DENIED,
                          f"this server is not called {host!r:.100}: see --server_names")
        origin = headers.get("origin")  # Browsers name the page that asks.
        if origin is not None and origin.lower() not in (f"http://{host}".lower(), f"https://{host}".lower()):
            raise Refused(grpc.StatusCode.PERMISSION_DENIED, "pages of other servers may not ask this one")
        if not is_token(headers.get("authorization", ""), self._token):
            raise Refused(grpc.StatusCode.UNAUTHENTICATED, "expected the header `Authorization: Bearer TOKEN`")

    async def _body(self, headers: Headers, receive: Receive, held: contextlib.ExitStack) -> bytes:
        """The request's body. Raises Refused."""
        length, limit = headers.get("content-length"), self._limits.body
        too_large = Refused(grpc.StatusCode.OUT_OF_RANGE, f"expected a body of at most {limit} bytes")
        declared = int(length) if length is not None and length.isdecimal() and len(length) <= 18 else None
        if declared is not None and declared > limit and "expect" in headers:
            raise too_large  # The sender waits for this before it sends anything.
        if declared is not None and declared <= limit:
            held.enter_context(self._models.held(declared))
        parts: list[bytes] = []
        size = 0
        try:
            async with asyncio.timeout(self._limits.seconds):
                while True:
                    message = await receive()
                    if message["type"] == "http.disconnect":
                        raise Refused(grpc.StatusCode.INVALID_ARGUMENT, "the request ended early")
                    part = message.get("body", b"")
                    size += len(part)
                    if size <= limit:
                        if declared is None:
                            held.enter_context(self._models.held(len(part)))
                        parts.append(part)
                    else:  # Senders look for an answer when they have sent all.
                        parts.clear()
                        if size > _DRAINED * limit:
                            raise too_large
                    if not message.get("more_body", False):
                        break
        except TimeoutError:
            raise Refused(grpc.StatusCode.DEADLINE_EXCEEDED,
                          f"the request did not arrive within {self._limits.seconds:g} s") from None
        if size > limit:
            raise too_large
        return b"".join(parts)


def _replayed(body: bytes, receive: Receive) -> Receive:
    """Gives the body once, then what comes after it."""
    messages: list[Message] = [{"type": "http.request", "body": body, "more_body": False}]

    async def again() -> Message:
        return messages.pop() if messages else await receive()

    return again


def connections(limits: Limits) -> type[H11Protocol]:
    """Connections of uvicorn that end if they do nothing, and whose number is limited."""

    class Connection(H11Protocol):
        idle_since: float | None = None
        _idle: asyncio.TimerHandle | None = None
        _stalled: asyncio.TimerHandle | None = None

        def connection_made(self, transport: Any) -> None:
            super().connection_made(transport)
            # An answer is two writes. Without this, the second waits 40 ms for the client's delayed acknowledgement.
            transport.get_extra_info("socket").setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            self._watch()
            if len(self.connections) > limits.connections:
                # Connections that never asked for anything end first.
                idle = [(other.cycle is not None, other.idle_since, other) for other in self.connections
                        if isinstance(other, Connection) and other.idle_since is not None]
                *_, oldest = min(idle, key=lambda found: found[:2])
                self.connections.discard(oldest)  # It ends only after others that wait to be accepted.
                oldest.transport.abort()

        def data_received(self, data: bytes) -> None:
            super().data_received(data)
            self._watch()

        def on_response_complete(self) -> None:
            super().on_response_complete()
            self._unset_keepalive_if_required()  # `_watch` counts the time until the next request is here.
            self._watch()

        def pause_writing(self) -> None:
            super().pause_writing()
            self._stalled = self.loop.call_later(limits.seconds, self.transport.abort)

        def resume_writing(self) -> None:
            super().resume_writing()
            if self._stalled is not None:
                self._stalled.cancel()

        def connection_lost(self, exc: Exception | None) -> None:
            super().connection_lost(exc)
            for timer in (self._idle, self._stalled):
                if timer is not None:
                    timer.cancel()

        def _watch(self) -> None:
            """Limits the time until the head of the next request arrives, while no request is being answered."""
            answering = self.cycle is not None and not self.cycle.response_complete
            if answering and self._idle is not None:
                self._idle.cancel()
                self._idle = self.idle_since = None
            elif not answering and self._idle is None:
                self.idle_since = self.loop.time()
                self._idle = self.loop.call_later(limits.seconds, self.transport.abort)

    return Connection
