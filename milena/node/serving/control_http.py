"""A small HTTP server for ``/metrics`` and ``/health`` (``--control PORT``).

HTTP/1.1 over the network port, without a framework: GET only, no bodies, keep-alive. A request line and its headers may
take 8 KiB; longer or invalid requests close the connection.

Rendering a page may take long. So one page is rendered per iteration of the loop, for the connections in turn, and none
for a connection with more than HIGH_WATER unread bytes. Beyond ``MAX_CONNECTIONS`` the connection with the oldest
request is closed.
"""

from __future__ import annotations

import json
from collections import deque
from collections.abc import Callable, Iterator, Mapping
from typing import Final, TypeAlias

from milena.node.serving.turns import UNITS_PER_POLL, Turns
from milena.runtime.context import Runtime
from milena.runtime.network import HIGH_WATER, Connection, ConnectionHandler, FrameError, Framer, Listener

MAX_REQUEST: Final = 8192
MAX_CONNECTIONS: Final = 100
METRICS_TYPE: Final = "text/plain; version=0.0.4; charset=utf-8"
JSON_TYPE: Final = "application/json"

Page: TypeAlias = Callable[[], tuple[int, str, str]]
"""Returns (status, content type, body)."""

_REASONS: Final = {200: "OK", 404: "Not Found", 405: "Method Not Allowed", 503: "Service Unavailable"}


def metrics_page(render: Callable[[], str]) -> Page:
    return lambda: (200, METRICS_TYPE, render())


def health_page(health: Callable[[], Mapping[str, object]]) -> Page:
    """Return a page with ``health()`` as JSON; its status is 200 if ``health()["ready"]`` is true, else 503."""

    def page() -> tuple[int, str, str]:
        state = health()
        return (200 if state.get("ready") else 503), JSON_TYPE, json.dumps(state) + "\n"

    return page


class ControlServer:
    """Serves ``pages`` by path."""

    def __init__(self, runtime: Runtime, pages: Mapping[str, Page]) -> None:
        self._runtime = runtime
        self._pages = pages
        self._listener: Listener | None = None
        self._connections: dict[_HttpConnection, None] = {}
        """The connections, ordered by the time of their last request, oldest first."""
        self._turns = Turns(runtime.clock)

    async def start(self, host: str, port: int) -> tuple[str, int]:
        """Start to listen. Returns the bound address. Raises OSError that names the control port."""
        try:
            self._listener = await self._runtime.network.listen(host, port, self._accept)
        except OSError as error:
            raise OSError(error.errno, f"the control port: {error.strerror or error}") from error
        return self._listener.host, self._listener.port

    def stop(self) -> None:
        if self._listener is not None:
            self._listener.close()
            self._listener = None
        for connection in list(self._connections):
            connection.abort()

    def _accept(self) -> tuple[Framer, ConnectionHandler]:
        if len(self._connections) >= MAX_CONNECTIONS:
            next(iter(self._connections)).abort()
        handler = _HttpConnection(self._pages, self._connections, self._turns)
        return _HttpFramer(), handler


class _HttpFramer:
    """Splits the stream at the blank line that ends a request's headers."""

    def __init__(self) -> None:
        self._buffer = bytearray(MAX_REQUEST)
        self._filled = 0

    def get_buffer(self) -> memoryview:
        return memoryview(self._buffer)[self._filled :]

    def buffer_updated(self, count: int) -> Iterator[memoryview]:
        self._filled += count
        while (end := self._buffer.find(b"\r\n\r\n", 0, self._filled)) >= 0:
            frame = bytearray(self._buffer[:end])
            remaining = self._buffer[end + 4 : self._filled]
            self._buffer[: len(remaining)] = remaining
            self._filled = len(remaining)
            yield memoryview(frame)
        if self._filled == MAX_REQUEST:
            raise FrameError("HTTP request longer than 8 KiB")

    def closed(self) -> None:
        self._filled = 0


class _HttpConnection:
    """Handler of one HTTP connection. ``register`` is the ordered set of all connections."""

    def __init__(self, pages: Mapping[str, Page], register: dict[_HttpConnection, None], turns: Turns) -> None:
        self._pages = pages
        self._register = register
        self._turns = turns
        self._requests: deque[str] = deque()
        self._connection: Connection | None = None

    def connection_made(self, connection: Connection) -> None:
        self._connection = connection
        self._register[self] = None

    def frame_received(self, frame: memoryview) -> None:
        assert self._connection is not None
        self._connection.pause_reading()
        self._register.pop(self, None)
        self._register[self] = None
        self._requests.append(bytes(frame).decode("latin-1"))
        self._continue()

    def take_turn(self, units: int) -> int:
        """Render one page, then let the loop poll its sockets."""
        connection = self._connection
        assert connection is not None
        if not self._requests:
            return 0
        try:
            self._answer(connection, self._requests.popleft())
        except BaseException:
            self.abort()
            raise
        if self._requests:
            self._continue()
        elif self in self._register:
            connection.resume_reading()
        return UNITS_PER_POLL

    def _continue(self) -> None:
        assert self._connection is not None
        if self._requests and self._connection.unsent() <= HIGH_WATER:
            self._turns.join(self)

    def _answer(self, connection: Connection, text: str) -> None:
        request, *headers = text.split("\r\n")
        words = request.split(" ")
        if len(words) != 3 or not words[2].startswith("HTTP/1."):
            self.abort()
            return
        method, target, version = words
        if method != "GET":
            status, kind, page_text = 405, "text/plain", "only GET is served here\n"
        elif (page := self._pages.get(target.partition("?")[0])) is None:
            status, kind, page_text = 404, "text/plain", f"the pages here are {', '.join(sorted(self._pages))}\n"
        else:
            status, kind, page_text = page()
        last = (
            status == 405
            or version == "HTTP/1.0"
            or any(header.lower().replace(" ", "") == "connection:close" for header in headers)
        )
        body = page_text.encode()
        head = (
            f"HTTP/1.1 {status} {_REASONS[status]}\r\nContent-Type: {kind}\r\nContent-Length: {len(body)}\r\n"
            f"Connection: {'close' if last else 'keep-alive'}\r\n\r\n"
        )
        connection.send([head.encode() + body])
        if last:
            self._requests.clear()
            connection.close()

    def writable(self) -> None:
        self._continue()

    def connection_lost(self, error: Exception | None) -> None:
        self._requests.clear()
        self._register.pop(self, None)

    def abort(self) -> None:
        """Close immediately and drop unanswered requests."""
        self._requests.clear()
        self._register.pop(self, None)
        assert self._connection is not None
        self._connection.abort()
