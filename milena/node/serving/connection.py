"""One client connection: receives requests, dispatches them, and sends the responses.

Responses are sent in the order of the requests. Each request has a slot in a queue; a response waits there until all
earlier slots have theirs.

Order of effects: Kafka handles one request of a connection at a time and reads the next one after the response. Here
RAW APIs (Produce, Fetch) are pipelined: their handlers act immediately in order of arrival (an append is synchronous)
and only their responses may wait, so a produce with acks=all does not delay the next one. If such a handler cannot act
immediately, it holds the connection until it has acted. Any other request that is not answered when its handler returns
pauses the dispatch until it is answered. ``MAX_PIPELINED`` requests in flight, and ``HIGH_WATER`` unsent bytes, pause
the dispatch, too. The first frame that arrives while the dispatch is paused is stored with the remaining frames of the
same read, and reading stops: that bounds a connection's memory.

Fairness: of the frames of one read, as many as fit one turn (``node.serving.turns``) are handled at once. The others
are stored, too, and wait until the other connections had their turns.
"""

from __future__ import annotations

from collections import deque
from typing import TYPE_CHECKING, Final, TypeAlias

from milena.node.api import Caller, RequestContext
from milena.node.framing import TurnFramer
from milena.node.request_meters import Phases, RequestTimes
from milena.protocol.invariants import BrokenInvariant
from milena.protocol.requests.frames import BadFrame, part_length
from milena.protocol.requests.headers import parse_request_header
from milena.protocol.requests.memory_budget import BudgetExceeded, BudgetShare
from milena.protocol.schemas.undecodable import DecodeError
from milena.runtime.network import HIGH_WATER, Connection, FrameError

if TYPE_CHECKING:
    from milena.node.serving.server import Server

MAX_PIPELINED: Final = 64
DECODED: Final = 4
"""The cost of a decoded request in units of a turn (``node.serving.turns``), without one more unit for each KiB of the
request and its response."""
UNBOUNDED: Final = 1 << 60
_Sending: TypeAlias = tuple[RequestTimes, Phases]
"""An answer that is being sent: its meters, and its phases with the time at which sending began as the last."""


class ServerConnection:
    """Handler of one accepted connection."""

    __slots__ = (
        "_arrived_at",
        "_blocking",
        "_connection",
        "_paused",
        "_sending",
        "_server",
        "_slots",
        "_units_left",
        "_unread_answers",
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
        """The request that pauses the dispatch until it is answered or released."""
        self._units_left = UNBOUNDED
        """The units of the present turn that are not used yet."""
        self._paused = False
        """Whether frames are stored, and reading is paused."""
        self._arrived_at = -1.0
        """When the stored frames were read; -1 if there are none."""
        self._sending: list[_Sending] = []
        """The answers that the kernel has not accepted yet."""
        self._unread_answers: BudgetShare | None = None
        """The memory of unread responses, once they have exceeded HIGH_WATER."""
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
        self._units_left = self._server.turns.share

    def read_ends(self) -> None:
        self._units_left = UNBOUNDED

    def frame_received(self, frame: memoryview) -> None:
        if self.closed:
            return
        if not self._paused and self._units_left > 0 and not self._must_wait():
            self._dispatch(frame)
        else:
            self._store(frame)

    def writable(self) -> None:
        self.last_active = self._server.monotonic()
        if self._unread_answers is not None:
            self._unread_answers.hold(0)
        self._continue()

    def connection_lost(self, error: Exception | None) -> None:
        if isinstance(error, FrameError) and not self.closed:
            self._server.note_close(self, str(error))
        self.closed = True
        for ctx in self._slots:
            if ctx.forget is not None:
                ctx.forget()
        self._slots.clear()
        self._sending.clear()
        if self._unread_answers is not None:
            self._unread_answers.close()
        self._server.forget(self)
        self.caller.disconnected()

    def answered(self, ctx: RequestContext) -> None:
        """A request has its response: if it is the first in the queue, send its response and those that directly
        follow."""
        if self.closed:
            return
        ctx.answered_at = now = self._server.monotonic()
        slots = self._slots
        if slots[0] is ctx:
            self.last_active = now
            connection = self._connection
            assert connection is not None
            while slots and (parts := slots[0].parts) is not None:
                self._note_answer(slots.popleft(), now)
                if parts:
                    connection.send(parts)
            if connection.unsent():
                connection.when_sent(self._sent)
            else:
                self._sent()
            if connection.unsent() > HIGH_WATER:
                self._count_unread_answers()
        if self._blocking is ctx:
            self._blocking = None
        if self._paused:
            self._continue()

    def _note_answer(self, done: RequestContext, now: float) -> None:
        """Count a request whose answer is sent now. A request that was handled cooperatively has no remote time."""
        api, answered = done.api, done.answered_at
        handled = answered if done.is_large or done.handled_at < 0 else done.handled_at
        phases = (
            done.started_at - done.received_at,
            handled - done.started_at,
            answered - handled,
            now - answered,
            now,
        )
        api.meters.requests.value += 1
        self._sending.append((api.meters.times, phases))
        if done.origin is not None:
            done.origin.requests.value += 1
            self._sending.append((done.origin.times, phases))
        elif self._server.event_times is not None:
            self._sending.append((self._server.event_times, phases))

    def _sent(self) -> None:
        """The kernel has accepted all answers."""
        now = self._server.monotonic()
        for times, (queue, local, remote, response_queue, sent_from) in self._sending:
            times.record(queue, local, remote, response_queue, now - sent_from)
        self._sending.clear()

    def hold(self, ctx: RequestContext) -> None:
        self._blocking = ctx

    def release(self, ctx: RequestContext) -> None:
        if self._blocking is ctx:
            self._blocking = None
            self._continue()

    @property
    def has_stored_requests(self) -> bool:
        """Whether requests were read that wait for their turn, or for an earlier request."""
        return self._paused

    @property
    def waiting_answers(self) -> int:
        """The number of answers that wait for those of earlier requests."""
        return sum(ctx.parts is not None for ctx in self._slots)

    def serving_started(self) -> None:
        """The server has started to run requests: continue with stored frames."""
        self._continue()

    def close(self, reason: str) -> None:
        """Close after the queued bytes have been sent, and log the reason. Idempotent."""
        if self.closed:
            return
        self.closed = True
        self._server.note_close(self, reason)
        assert self._connection is not None
        self._connection.close()

    def cut_off(self, reason: str) -> None:
        """Close immediately, with a warning: the peer uses memory that other connections need, or makes no progress."""
        if not self.closed:
            self._server.note_cut_off(self, reason)
            self.abort()

    def check_progress(self) -> None:
        """Close the connection if its peer has begun to send a request and makes no progress."""
        if self._paused:
            self.framer.unfinished_share.restart_progress_timer()
        elif self.framer.unfinished_share.overdue():
            self.cut_off("an unfinished request makes no progress")

    def abort(self) -> None:
        """Close immediately, without a log event."""
        self.closed = True
        if self._connection is not None:
            self._connection.abort()

    def stalled_since_last_sweep(self) -> bool:
        """Whether the connection is idle: no request is in flight, or the peer has accepted no byte since the last
        sweep. If reading is paused, a closed connection is not noticed; so a request in flight does not keep it open,
        as in Kafka."""
        assert self._connection is not None
        unsent = self._connection.unsent()
        stalled = self._paused or not self._slots if not unsent else unsent == self._unsent_at_sweep
        self._unsent_at_sweep = unsent
        return stalled

    def _dispatch(self, frame: memoryview) -> None:
        """Parse the header of a request and run it, or let a rule intercept it."""
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
        ctx = RequestContext(header, api, self.caller, self, self._arrived_at if self._arrived_at >= 0 else now)
        ctx.started_at = now
        if len(self._slots) >= MAX_PIPELINED:
            raise BrokenInvariant(f"{len(self._slots)} requests are in flight where {MAX_PIPELINED} may be")
        self._slots.append(ctx)
        rules = server.rules
        if rules.active and rules.intercepts(ctx, body, server.dispatcher):
            if rules.blocks(ctx):
                self._blocking = ctx
            return
        server.dispatcher.run(ctx, body)
        if ctx.parts is None:
            ctx.handled_at = server.monotonic()
        if api.raw:
            self._units_left -= 1
        elif ctx.parts is None:
            self._blocking = ctx
        else:
            size = len(frame) + sum(map(part_length, ctx.parts))
            self._units_left -= DECODED + (size >> 10)

    def _must_wait(self) -> bool:
        """Whether the dispatch is paused."""
        assert self._connection is not None
        return (
            self._blocking is not None
            or self._server.holding
            or len(self._slots) >= MAX_PIPELINED
            or self._connection.unsent() > HIGH_WATER
        )

    def _store(self, frame: memoryview) -> None:
        """Store a frame, and the remaining frames of its read, for a later turn; stop to read."""
        try:
            self.framer.store(frame)
        except BadFrame:  # the framer has closed this connection
            return
        if not self._paused:
            self._paused = True
            if self._arrived_at < 0:
                self._arrived_at = self._server.monotonic()
            assert self._connection is not None
            self._connection.pause_reading()
            self._continue()

    def _count_unread_answers(self) -> None:
        """Charge unread responses to the memory budget, since the peer reads them more slowly than it sends
        requests."""
        connection = self._connection
        assert connection is not None
        if self._unread_answers is None:
            self._unread_answers = BudgetShare(self._server.answers, self.cut_off, connection.unsent_in_memory)
        try:
            self._unread_answers.hold(connection.unsent_in_memory())
        except BudgetExceeded as error:
            self.cut_off(f"unread answers: {error}")

    def _continue(self) -> None:
        """Join the queue for a turn if the dispatch is no longer paused. The turn comes later, never inside the call
        that answered a request."""
        if self._paused and not self.closed and not self._must_wait():
            self._server.turns.join(self)

    def take_turn(self, units: int) -> int:
        """Handle stored frames. Returns the units used."""
        if not self._paused or self.closed or self._must_wait():
            return 0
        self._units_left = units
        self._paused = False
        try:
            self._handle_stored()
        except BaseException:  # as after an error in a read: a connection that is no longer read must not stay open
            self.abort()
            raise
        finally:
            used, self._units_left = units - self._units_left, UNBOUNDED
            self._after_turn()
        return used

    def _after_turn(self) -> None:
        if self.closed:
            self.framer.closed()
        elif self._paused:
            self._continue()
        else:
            assert self._connection is not None
            self._arrived_at = -1.0
            self.framer.unfinished_share.restart_progress_timer()
            self._connection.resume_reading()

    def _handle_stored(self) -> None:
        try:
            for frame in self.framer.stored_frames():
                self.frame_received(frame)
                if self.closed:
                    return
        except BadFrame as error:
            self.close(str(error))
