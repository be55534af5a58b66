"""One client connection: frames in, slots out.

Answers leave in the order of the requests. Each request holds a slot in a queue; an answer that comes early waits
there until all before it are filled.

Order of effects: Kafka handles one request of a connection at a time and reads the next one after the answer. Here
RAW APIs (Produce, Fetch) are pipelined: their handlers act at once in order of arrival (an append is synchronous) and
only their answers may wait, so a produce with acks=all does not hold up the next one. Where such a handler cannot act
at once, it holds the connection until it has. Any other request that is not answered when its handler returns stops
the dispatch until it is. So do ``MAX_PIPELINED`` requests under way, and
``HIGH_WATER`` bytes that wait for a slow reader. The first frame that comes while the dispatch stands still is
copied, with what else was read with it, and no more is read: that bounds a connection's memory.
"""

from __future__ import annotations

from collections import deque
from typing import TYPE_CHECKING, Final

from node.api import Caller, RequestContext
from protocol.headers import parse_request_header
from protocol.primitives import DecodeError
from runtime.network import HIGH_WATER, Connection

if TYPE_CHECKING:
    from node.server import Server

MAX_PIPELINED: Final = 64


class ServerConnection:
    """Handler of one accepted connection."""

    __slots__ = (
        "_backlog",
        "_blocking",
        "_connection",
        "_drain_scheduled",
        "_server",
        "_slots",
        "_unsent_at_sweep",
        "caller",
        "closed",
        "last_active",
    )

    def __init__(self, server: Server, listener_name: str) -> None:
        self._server = server
        self._connection: Connection | None = None
        self._slots: deque[RequestContext] = deque()
        self._backlog: deque[bytearray] = deque()
        self._blocking: RequestContext | None = None
        self._drain_scheduled = False
        self._unsent_at_sweep = 0
        self.caller = Caller(listener_name, "")
        self.closed = False
        self.last_active = 0.0

    def connection_made(self, connection: Connection) -> None:
        self._connection = connection
        self.caller.client_host = connection.peer.rpartition(":")[0]
        self.last_active = self._server.monotonic()
        self._server.admit(self)

    def frame_received(self, frame: memoryview) -> None:
        if self.closed:
            return
        if not self._backlog and not self._held():
            self._dispatch(frame)
            return
        if not self._backlog:
            assert self._connection is not None
            self._connection.pause_reading()
        self._backlog.append(bytearray(frame))

    def writable(self) -> None:
        self.last_active = self._server.monotonic()
        self._continue()

    def connection_lost(self, error: Exception | None) -> None:
        self.closed = True
        self._slots.clear()
        self._backlog.clear()
        self._server.forget(self)
        self.caller.gone()

    def answered(self, ctx: RequestContext) -> None:
        """A slot was filled: send it if it is the first, with all filled ones that follow."""
        if self.closed:
            return
        slots = self._slots
        if slots[0] is ctx:
            now = self._server.monotonic()
            self.last_active = now
            connection = self._connection
            assert connection is not None
            while slots and (parts := slots[0].parts) is not None:
                done = slots.popleft()
                done.api.requests.value += 1
                done.api.total_time.record((now - done.received_at) * 1000)
                if parts:
                    connection.send(parts)
        if self._blocking is ctx:
            self._blocking = None
        if self._backlog:
            self._continue()

    def hold(self, ctx: RequestContext) -> None:
        self._blocking = ctx

    def release(self, ctx: RequestContext) -> None:
        if self._blocking is ctx:
            self._blocking = None
            self._continue()

    def released(self) -> None:
        """The server serves from now on."""
        self._continue()

    def close(self, reason: str) -> None:
        """Send what is queued, then close. Idempotent."""
        if self.closed:
            return
        self.closed = True
        self._server.note_close(self, reason)
        assert self._connection is not None
        self._connection.close()

    def abort(self) -> None:
        """Close at once, without a word."""
        self.closed = True
        if self._connection is not None:
            self._connection.abort()

    def stuck_since_last_sweep(self) -> bool:
        """Whether the peer owes us something: nothing is under way, or it has taken no byte since the last sweep."""
        assert self._connection is not None
        unsent = self._connection.unsent()
        stuck = not self._slots if not unsent else unsent == self._unsent_at_sweep
        self._unsent_at_sweep = unsent
        return stuck

    def _dispatch(self, frame: memoryview) -> None:
        server = self._server
        self.last_active = now = server.monotonic()
        try:
            header, body = parse_request_header(frame)
        except DecodeError as error:
            self.close(f"undecodable request header: {error}")
            return
        api = server.dispatcher.find(header.api_key, header.api_version)
        if api is None:
            self.close(f"API key {header.api_key} version {header.api_version} is not served here")
            return
        ctx = RequestContext(header, api, self.caller, self, now)
        self._slots.append(ctx)
        rules = server.rules
        if rules.active and rules.intercepts(ctx, body, server.dispatcher):
            if rules.blocks(ctx):
                self._blocking = ctx
            return
        server.dispatcher.run(ctx, body)
        if not api.raw and ctx.parts is None:
            self._blocking = ctx

    def _held(self) -> bool:
        """Whether the next request must wait."""
        assert self._connection is not None
        return (
            self._blocking is not None
            or self._server.holding
            or len(self._slots) >= MAX_PIPELINED
            or self._connection.unsent() > HIGH_WATER
        )

    def _continue(self) -> None:
        """Something was freed: go on in a call of its own, never inside of the one that answered."""
        if self._backlog and not self._drain_scheduled and not self.closed and not self._held():
            self._drain_scheduled = True
            self._server.runtime.clock.call_later(0, self._drain)

    def _drain(self) -> None:
        self._drain_scheduled = False
        while self._backlog and not self.closed and not self._held():
            self._dispatch(memoryview(self._backlog.popleft()))
        if self.closed:
            self._backlog.clear()
        elif not self._backlog:
            assert self._connection is not None
            self._connection.resume_reading()
