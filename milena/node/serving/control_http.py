"""A small HTTP server for ``/metrics``, ``/health`` and ``/ready`` (``--control PORT``).

HTTP/1.1 over the network port, without a framework: GET only, no bodies, keep-alive. A request line and its headers may
take 8 KiB; longer or invalid requests close the connection.

Rendering a page may take long. So one page, or one step of a page that is rendered cooperatively, is rendered per
iteration of the loop. One such page is under construction at a time, which bounds the memory; the others wait in the
order in which they were asked for, and pages of one step do not wait for them. None is rendered for a connection with
more than HIGH_WATER unread bytes. Beyond ``MAX_CONNECTIONS`` the connection with the oldest request is closed.
"""

from __future__ import annotations

import json
from collections import deque
from collections.abc import Callable, Iterator, Mapping
from typing import Final, TypeAlias

from milena.node.metric_names import UnknownNames, names_of
from milena.node.metrics import Metrics
from milena.node.metrics_text import Names, rendering
from milena.node.serving.turns import UNITS_PER_POLL, Turns
from milena.protocol.cooperative import Cooperative
from milena.runtime.context import Runtime
from milena.runtime.network import HIGH_WATER, Connection, ConnectionHandler, FrameError, Framer, Listener

MAX_REQUEST: Final = 8192
MAX_CONNECTIONS: Final = 100
METRICS_TYPE: Final = "text/plain; version=0.0.4; charset=utf-8"
JSON_TYPE: Final = "application/json"

Answer: TypeAlias = tuple[int, str, str]
"""(status, content type, body)."""
Page: TypeAlias = Callable[[str], "Answer | Cooperative[Answer]"]
"""Answers a request, given the query of its address."""

_REASONS: Final = {
    200: "OK",
    400: "Bad Request",
    404: "Not Found",
    405: "Method Not Allowed",
    503: "Service Unavailable",
}


def metrics_page(metrics: Metrics, default: str) -> Page:
    """Return the page with all metrics, under the set of names that ``?names=`` selects, or ``default``."""

    def page(query: str) -> Answer | Cooperative[Answer]:
        selected = [value for key, _, value in (pair.partition("=") for pair in query.split("&")) if key == "names"]
        try:
            names = names_of(selected[-1] if selected else default)
        except UnknownNames as error:
            return 400, "text/plain", f"{error}\n"
        return _metrics(metrics, names)

    return page


def _metrics(metrics: Metrics, names: Names) -> Cooperative[Answer]:
    text = yield from rendering(metrics, names)
    return 200, METRICS_TYPE, text


def health_page(health: Callable[[], Mapping[str, object]], key: str) -> Page:
    """Return a page with ``health()`` as JSON; its status is 200 if ``health()[key]`` is true, else 503."""

    def page(_query: str) -> Answer:
        state = health()
        return (200 if state[key] else 503), JSON_TYPE, json.dumps(state) + "\n"

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
        self._under_construction: deque[_HttpConnection] = deque()

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
        handler = _HttpConnection(self._pages, self._connections, self._turns, self._under_construction)
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
    """Handler of one HTTP connection."""

    def __init__(
        self,
        pages: Mapping[str, Page],
        register: dict[_HttpConnection, None],
        turns: Turns,
        under_construction: deque[_HttpConnection],
    ) -> None:
        """``register`` is the ordered set of all connections, ``under_construction`` the queue of those whose page is
        rendered cooperatively: that of the first is being rendered, the others wait."""
        self._pages = pages
        self._register = register
        self._turns = turns
        self._under_construction = under_construction
        self._requests: deque[str] = deque()
        self._work: Cooperative[Answer] | None = None
        self._closes = False
        """Whether the connection is closed after the answer under construction."""
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
        """Render one page or one step of it, then let the loop poll its sockets."""
        connection = self._connection
        assert connection is not None
        if not self._may_continue(connection):
            return 0
        try:
            if self._work is None:
                self._begin(connection, self._requests.popleft())
            else:
                self._step(connection, self._work)
        except BaseException:
            self.abort()
            raise
        if self._work is not None or self._requests:
            self._continue()
        elif self in self._register:
            connection.resume_reading()
        return UNITS_PER_POLL

    def _continue(self) -> None:
        assert self._connection is not None
        if self._may_continue(self._connection):
            self._turns.join(self)

    def _may_continue(self, connection: Connection) -> bool:
        if self._work is not None:
            return self._under_construction[0] is self
        return bool(self._requests) and connection.unsent() <= HIGH_WATER

    def _begin(self, connection: Connection, text: str) -> None:
        """Answer a request, or begin to render its page."""
        request, *headers = text.split("\r\n")
        words = request.split(" ")
        if len(words) != 3 or not words[2].startswith("HTTP/1."):
            self.abort()
            return
        method, target, version = words
        path, _, query = target.partition("?")
        self._closes = (
            method != "GET"
            or version == "HTTP/1.0"
            or any(header.lower().replace(" ", "") == "connection:close" for header in headers)
        )
        page = self._pages.get(path)
        if method != "GET":
            self._answer(connection, (405, "text/plain", "only GET is served here\n"))
        elif page is None:
            self._answer(connection, (404, "text/plain", f"the pages here are {', '.join(sorted(self._pages))}\n"))
        else:
            answer = page(query)
            if isinstance(answer, tuple):
                self._answer(connection, answer)
            else:
                self._work = answer
                self._under_construction.append(self)

    def _step(self, connection: Connection, work: Cooperative[Answer]) -> None:
        try:
            next(work)
        except StopIteration as done:
            answer: Answer = done.value
            self._drop_work()
            self._answer(connection, answer)

    def _drop_work(self) -> None:
        if self._work is None:
            return
        self._work = None
        first = self._under_construction[0] is self
        self._under_construction.remove(self)
        if first and self._under_construction:
            self._under_construction[0]._continue()

    def _answer(self, connection: Connection, answer: Answer) -> None:
        status, kind, text = answer
        body = text.encode()
        head = (
            f"HTTP/1.1 {status} {_REASONS[status]}\r\nContent-Type: {kind}\r\nContent-Length: {len(body)}\r\n"
            f"Connection: {'close' if self._closes else 'keep-alive'}\r\n\r\n"
        )
        connection.send([head.encode(), body])
        if self._closes:
            self._requests.clear()
            connection.close()

    def writable(self) -> None:
        self._continue()

    def connection_lost(self, error: Exception | None) -> None:
        self._requests.clear()
        self._drop_work()
        self._register.pop(self, None)

    def abort(self) -> None:
        """Close immediately and drop unanswered requests."""
        self._requests.clear()
        self._drop_work()
        self._register.pop(self, None)
        assert self._connection is not None
        self._connection.abort()
