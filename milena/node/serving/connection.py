"""One client connection: requests in, responses out.

Answers leave in the order of the requests. Each request has a slot in a queue; an early answer waits there until all
slots before it are filled.

Order of effects: Kafka handles one request of a connection at a time and reads the next one after the answer. Here RAW
APIs (Produce, Fetch) are pipelined: their handlers act immediately in order of arrival (an append is synchronous) and
only their answers may wait, so a produce with acks=all does not delay the next one. If such a handler cannot act
immediately, it holds the connection until it has. Any other request that is not answered when its handler returns
pauses the dispatch until it is. So do ``MAX_PIPELINED`` requests in flight, and ``HIGH_WATER`` unsent bytes of a slow
reader. The first frame that arrives while the dispatch is paused is stored, with the rest of its read, and reading
stops: that bounds a connection's memory.

Fairness: of the frames that arrived in one read, as many as fit one turn (``node.serving.turns``) are handled at once;
the others are stored, too, and wait until the other connections had their turns. A frame that arrived alone is handled
at once.
"""

from __future__ import annotations

from collections import deque
from typing import TYPE_CHECKING, Final

from milena.node.api import Caller, RequestContext
from milena.node.framing import TurnFramer
from milena.protocol.invariants import BrokenInvariant
from milena.protocol.requests.frames import BadFrame, part_length
from milena.protocol.requests.headers import parse_request_header
from milena.protocol.requests.memory_budget import Holding, NoRoom
from milena.protocol.schemas.undecodable import DecodeError
from milena.runtime.network import HIGH_WATER, Connection, FrameError

if TYPE_CHECKING:
    from milena.node.serving.server import Server

MAX_PIPELINED: Final = 64
DECODED: Final = 4
"""The cost in units of a turn (``node.serving.turns``) of a decoded request, plus one for each KiB of it and of its
answer."""
UNBOUNDED: Final = 1 << 60


class ServerConnection:
    """Handler of one accepted connection."""

    __slots__ = (
        "_blocking",
        "_connection",
        "_left",
        "_owed",
        "_paused",
        "_server",
        "_slots",
        "_unsent_at_sweep",
        "caller",
        "closed",
        "framer",
        "last_active",
    )

    def __init__(self, server: Server, listener_name: str) -> None:
        self._server = server
        self._connection: Connection | None = None
        self._slots: deque[RequestContext] = deque()
        self._blocking: RequestContext | None = None
        self._left = UNBOUNDED
        self._paused = False
        """Frames are stored, and reading is paused."""
        self._owed: Holding | None = None
        self._unsent_at_sweep = 0
        self.framer = TurnFramer(server.buffers, server.limits.max_request_bytes, self)
        self.caller = Caller(listener_name, "")
        self.closed = False
        self.last_active = 0.0

    def connection_made(self, connection: Connection) -> None:
        self._connection = connection
        self.caller.client_host = connection.peer.rpartition(":")[0]
        self.last_active = self._server.monotonic()
        self._server.admit(self)

    def read_begins(self) -> None:
        self._left = self._server.turns.share

    def read_ends(self) -> None:
        self._left = UNBOUNDED

    def frame_received(self, frame: memoryview) -> None:
        if self.closed:
            return
        if not self._paused and self._left > 0 and not self._held():
            self._dispatch(frame)
        else:
            self._put_by(frame)

    def writable(self) -> None:
        self.last_active = self._server.monotonic()
        if self._owed is not None:
            self._owed.hold(0)
        self._continue()

    def connection_lost(self, error: Exception | None) -> None:
        if isinstance(error, FrameError) and not self.closed:
            self._server.note_close(self, str(error))
        self.closed = True
        for ctx in self._slots:
            if ctx.forget is not None:
                ctx.forget()
        self._slots.clear()
        if self._owed is not None:
            self._owed.close()
        self._server.forget(self)
        self.caller.gone()

    def answered(self, ctx: RequestContext) -> None:
        """A slot was filled: if it is the first, send it and all filled ones that follow."""
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
            if connection.unsent() > HIGH_WATER:
                self._owe()
        if self._blocking is ctx:
            self._blocking = None
        if self._paused:
            self._continue()

    def hold(self, ctx: RequestContext) -> None:
        self._blocking = ctx

    def release(self, ctx: RequestContext) -> None:
        if self._blocking is ctx:
            self._blocking = None
            self._continue()

    def released(self) -> None:
        """The server now runs requests."""
        self._continue()

    def close(self, reason: str) -> None:
        """Send what is queued, then close. Idempotent."""
        if self.closed:
            return
        self.closed = True
        self._server.note_close(self, reason)
        assert self._connection is not None
        self._connection.close()

    def cut_off(self, reason: str) -> None:
        """The peer holds resources that others need, or makes no progress: close immediately, with a warning."""
        if not self.closed:
            self._server.note_cut(self, reason)
            self.abort()

    def look_at_progress(self) -> None:
        """Cut off a peer that has started a request and makes no progress with it."""
        if self._paused:
            self.framer.holding.excuse()
        elif self.framer.holding.overdue():
            self.cut_off("an unfinished request makes no progress")

    def abort(self) -> None:
        """Close immediately, without a log event."""
        self.closed = True
        if self._connection is not None:
            self._connection.abort()

    def stuck_since_last_sweep(self) -> bool:
        """Whether the peer has stalled: nothing is in flight, or it has accepted no byte since the last sweep. A
        connection whose reading is paused may have been closed unnoticed, so it is not kept longer, as in Kafka."""
        assert self._connection is not None
        unsent = self._connection.unsent()
        stuck = self._paused or not self._slots if not unsent else unsent == self._unsent_at_sweep
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
        if len(self._slots) >= MAX_PIPELINED:
            raise BrokenInvariant(f"{len(self._slots)} requests are in flight where {MAX_PIPELINED} may be")
        self._slots.append(ctx)
        rules = server.rules
        if rules.active and rules.intercepts(ctx, body, server.dispatcher):
            if rules.blocks(ctx):
                self._blocking = ctx
            return
        server.dispatcher.run(ctx, body)
        if api.raw:
            self._left -= 1
        elif ctx.parts is None:
            self._blocking = ctx
        else:
            size = len(frame) + sum(map(part_length, ctx.parts))
            self._left -= DECODED + (size >> 10)

    def _held(self) -> bool:
        """Whether the next request must wait."""
        assert self._connection is not None
        return (
            self._blocking is not None
            or self._server.holding
            or len(self._slots) >= MAX_PIPELINED
            or self._connection.unsent() > HIGH_WATER
        )

    def _put_by(self, frame: memoryview) -> None:
        try:
            self.framer.put_by(frame)
        except BadFrame:  # which has cut this connection off
            return
        if not self._paused:
            self._paused = True
            assert self._connection is not None
            self._connection.pause_reading()
            self._continue()

    def _owe(self) -> None:
        """The peer does not read its answers as fast as it sends requests."""
        connection = self._connection
        assert connection is not None
        if self._owed is None:
            self._owed = Holding(self._server.answers, self.cut_off, connection.unsent_in_memory)
        try:
            self._owed.hold(connection.unsent_in_memory())
        except NoRoom as error:
            self.cut_off(f"unread answers: {error}")

    def _continue(self) -> None:
        """Something was freed: continue at this connection's turn, never inside the call that answered."""
        if self._paused and not self.closed and not self._held():
            self._server.turns.join(self)

    def take_turn(self, units: int) -> int:
        """Handle stored frames. Returns the units used."""
        if not self._paused or self.closed or self._held():
            return 0
        self._left = units
        self._paused = False
        try:
            self._handle_again()
        except BaseException:  # as in a read: a connection that is not read any more must not stay open
            self.abort()
            raise
        finally:
            used, self._left = units - self._left, UNBOUNDED
            self._go_on()
        return used

    def _go_on(self) -> None:
        if self.closed:
            self.framer.closed()
        elif self._paused:
            self._continue()
        else:
            assert self._connection is not None
            self.framer.holding.excuse()
            self._connection.resume_reading()

    def _handle_again(self) -> None:
        try:
            for frame in self.framer.again():
                self.frame_received(frame)
                if self.closed:
                    return
        except BadFrame as error:
            self.close(str(error))
