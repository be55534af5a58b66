"""Connections take turns of counted units, and no requests are handled for a client that does not read."""

from __future__ import annotations

import heapq
import struct
from collections.abc import Callable, Sequence
from dataclasses import replace

import pytest

from milena.node.api import Answer, ApiTable, RequestContext
from milena.node.framing import KafkaFramer
from milena.node.metrics import Metrics
from milena.node.request_meters import request_times
from milena.node.rules.rules import Rules
from milena.node.serving.connection import DECODED, ServerConnection
from milena.node.serving.server import Server, ServerLimits
from milena.node.serving.turns import SHARED_TURN, TURN, UNITS_PER_POLL
from milena.protocol.api_keys import ApiKey
from milena.protocol.requests import messages
from milena.protocol.requests.headers import request_header
from milena.protocol.requests.memory_budget import STALL_SECONDS
from milena.protocol.schemas.registry import Role
from milena.runtime.clock import Timer
from milena.runtime.network import HIGH_WATER, Part
from milena.runtime.process import real_runtime
from tests.unit.node.peers import APIS, PACKAGE, Endpoint, FakeNode

FRAMING = 9
"""Bytes of a response's length and header."""


class HandClock:
    """Time stands still until ``step``, one round of a loop: what is due by then, and nothing that it asks for."""

    def __init__(self) -> None:
        self.now = 0.0
        self._timers: list[tuple[float, int, Callable[[], object]]] = []
        self._count = 0

    def time_ms(self) -> int:
        return int(self.now * 1000)

    def monotonic(self) -> float:
        return self.now

    def call_later(self, delay: float, callback: Callable[[], object]) -> Timer:
        self._count += 1
        heapq.heappush(self._timers, (self.now + delay, self._count, callback))
        return NoTimer()

    async def sleep(self, seconds: float) -> None:
        raise NotImplementedError

    def step(self, seconds: float = 0.0) -> None:
        self.now += seconds
        last = self._count
        due = [one for one in self._timers if one[0] <= self.now and one[1] <= last]
        self._timers = [one for one in self._timers if one not in due]
        heapq.heapify(self._timers)
        for _when, _count, callback in sorted(due):
            callback()


class NoTimer:
    def cancel(self) -> None:
        raise NotImplementedError


class Peer:
    """A client's end: what it sends is read whole by one wake-up; it takes what is sent to it only where it reads."""

    def __init__(self, site: Site, name: str, *, reads: bool = True) -> None:
        self.name = name
        self.peer = f"{name}:1"
        self.reads = reads
        self.taken = self.waiting = 0
        self.reading, self.gone = True, False
        self.when_all_is_sent: Callable[[], None] | None = None
        self._sent = 0
        framer, handler = site.server._accept("PLAINTEXT")
        assert isinstance(framer, KafkaFramer) and isinstance(handler, ServerConnection)
        self.framer, self.handler = framer, handler
        handler.connection_made(self)

    # -- as the server's connection

    def send(self, parts: Sequence[Part]) -> None:
        size = sum(map(len, parts))  # type: ignore[arg-type]
        if self.reads:
            self.taken += size
        else:
            self.waiting += size

    def unsent(self) -> int:
        return self.waiting

    def when_sent(self, callback: Callable[[], None]) -> None:
        self.when_all_is_sent = callback

    def unsent_in_memory(self) -> int:
        return self.waiting

    def pause_reading(self) -> None:
        self.reading = False

    def resume_reading(self) -> None:
        self.reading = True

    def close(self) -> None:
        self.gone = True

    def abort(self) -> None:
        self.gone = True

    # -- as the client

    def ask(self, count: int, key: ApiKey = ApiKey.LIST_GROUPS, version: int = 0, body: bytes = b"") -> None:
        data = b""
        for _ in range(count):
            frame = request_header(key, version, self._sent, self.name) + body
            data += struct.pack(">i", len(frame)) + frame
            self._sent += 1
        self.put(data)

    def put(self, data: bytes) -> None:
        """One wake-up."""
        assert self.reading
        room = self.framer.get_buffer()
        room[: len(data)] = data
        for frame in self.framer.buffer_updated(len(data)):
            self.handler.frame_received(frame)
            if self.gone:
                return

    def take_all(self) -> None:
        self.taken += self.waiting
        self.waiting = 0
        if self.when_all_is_sent is not None:
            callback, self.when_all_is_sent = self.when_all_is_sent, None
            callback()
        self.handler.writable()


class Site:
    """A server without sockets, a clock moved by hand, and whose requests were begun, in order."""

    def __init__(self, limits: ServerLimits | None = None) -> None:
        self.clock = HandClock()
        self.begun: list[str] = []
        self.answer = b"x"
        self.metrics = Metrics()
        runtime = replace(real_runtime(), clock=self.clock)
        node = FakeNode(cold=self._cold, raw=self._raw)
        self.server = Server(
            runtime,
            node,
            node_id=1,
            role=Role.BROKER,
            endpoints=[Endpoint()],
            apis=ApiTable(PACKAGE, APIS),
            limits=limits or ServerLimits(),
            metrics=self.metrics,
            rules=Rules(self.clock),
        )

    def _cold(self, ctx: RequestContext, _request: object) -> Answer:
        self.begun.append(str(ctx.client_id))
        return {"groups": ()}

    def _raw(self, ctx: RequestContext, _body: memoryview) -> None:
        self.begun.append(str(ctx.client_id))
        ctx.respond([self.answer])

    def round(self) -> list[str]:
        """One look at the timers: whose requests were begun in it."""
        before = len(self.begun)
        self.clock.step()
        return self.begun[before:]


async def test_a_ping_waits_for_one_slice_and_not_for_all_that_300_clients_have_asked_for() -> None:
    site = Site()
    flooders = [Peer(site, f"f{number}", reads=False) for number in range(300)]
    for one in flooders:
        one.ask(5000)
    at_once = len(site.begun)
    assert at_once <= (TURN + 300 * (SHARED_TURN + DECODED)) // DECODED
    ping = Peer(site, "ping")
    for _ in range(20):
        asked = len(site.begun)
        site.round()
        assert len(site.begun) - asked <= (UNITS_PER_POLL + SHARED_TURN + DECODED) // DECODED
        ping.ask(1)
        assert site.begun[-1] == "ping"


async def test_no_connection_has_a_second_turn_before_all_others_had_theirs() -> None:
    site = Site()
    peers = [Peer(site, name) for name in "abcdefghijklmnop"]
    for one in peers:
        one.ask(100)
    site.begun.clear()
    while len(site.begun) < 400:
        site.round()
    turns = [name for before, name in zip(["", *site.begun], site.begun, strict=False) if name != before]
    assert turns[:48] == 3 * list("abcdefghijklmnop")


async def test_everything_that_was_asked_is_answered_in_the_end() -> None:
    site = Site()
    peers = [Peer(site, name) for name in "abc"]
    for one in peers:
        one.ask(1000)
        assert not one.reading
    while site.round():
        pass
    assert [site.begun.count(one.name) for one in peers] == [1000] * 3
    assert [one.reading for one in peers] == [True] * 3
    assert site.server.buffers.budget.used == 0


async def test_a_request_that_arrives_alone_is_handled_at_once() -> None:
    site = Site()
    peer = Peer(site, "a")
    for _ in range(1000):
        peer.ask(1, ApiKey.PRODUCE, 9)
    assert (len(site.begun), peer.reading) == (1000, True)
    peer.ask(TURN, ApiKey.PRODUCE, 9)
    assert (len(site.begun), peer.reading) == (1000 + TURN, True)


async def test_a_large_request_is_a_turn_of_its_own() -> None:
    site = Site()
    peer, other = Peer(site, "a"), Peer(site, "b")
    other.ask(1000)
    site.begun.clear()
    body = messages.encode_request(ApiKey.LIST_GROUPS, 4, states_filter=["x" * 16_000])
    peer.ask(5, ApiKey.LIST_GROUPS, 4, body)
    assert site.begun == ["a"]
    assert site.round().count("a") == 1


async def test_a_client_that_does_not_read_is_not_worked_for() -> None:
    site = Site()
    site.answer = bytes(HIGH_WATER // 4)
    peer = Peer(site, "deaf", reads=False)
    peer.ask(TURN, ApiKey.PRODUCE, 9)
    while site.round():
        pass
    assert len(site.begun) == 4, "of 64"
    peer.take_all()
    while site.round():
        pass
    assert len(site.begun) == 8


@pytest.mark.parametrize("deaf", [4, 40])
async def test_unread_answers_are_bounded_over_all_connections(deaf: int) -> None:
    limit = 3 * (2 * HIGH_WATER + FRAMING)
    site = Site(ServerLimits(unsent_bytes=limit))
    site.answer = bytes(2 * HIGH_WATER)
    peers = [Peer(site, f"{number}", reads=False) for number in range(deaf)]
    for one in peers:
        one.ask(1, ApiKey.PRODUCE, 9)
        site.clock.now += STALL_SECONDS / 100
        assert site.server.answers.used <= limit
    assert [one.gone for one in peers] == [True] * (deaf - 3) + [False] * 3
    peers[-1].take_all()
    assert site.server.answers.used == limit - 2 * HIGH_WATER - FRAMING


async def test_requests_that_wait_are_bounded_together_with_unfinished_ones(
    capsys: pytest.CaptureFixture[str],
) -> None:
    site = Site(ServerLimits(queued_bytes=300_000))
    site.server.holding = True
    peers = [Peer(site, f"host{number}") for number in range(4)]
    for one in peers:
        one.ask(1, ApiKey.PRODUCE, 9, bytes(100_000))
        site.clock.now += 1
    assert [one.gone for one in peers] == [True, True, False, False]
    assert site.server.buffers.budget.used < 300_000
    assert "connection cut" in capsys.readouterr().err


async def test_a_request_without_progress_is_cut_with_a_warning_unless_the_node_delays_it(
    capsys: pytest.CaptureFixture[str],
) -> None:
    site = Site(ServerLimits(idle_ms=-1))
    site.server._schedule_sweep()
    trickler, held_up = Peer(site, "trickler"), Peer(site, "held up")
    trickler.put(struct.pack(">i", 1000))
    site.server.holding = True
    frame = request_header(ApiKey.PRODUCE, 9, 0, "held up")
    held_up.put(struct.pack(">i", len(frame)) + frame + struct.pack(">i", 1000) + b"a beginning")
    for _ in range(4):
        trickler.put(b"x")
        site.clock.step(30)
        if trickler.gone:
            break
    assert (trickler.gone, held_up.gone) == (True, False)
    assert "an unfinished request makes no progress" in capsys.readouterr().err
    site.server.serve()
    site.round()
    site.clock.step(31)
    assert not held_up.gone, "its minute begins when it is read again"


async def test_a_request_that_fails_in_its_turn_ends_only_its_connection(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    site = Site()
    first, other = Peer(site, "first"), Peer(site, "other")
    for one in (first, other):
        one.ask(1000)
    with monkeypatch.context() as patch:
        patch.setattr(site.server.dispatcher, "run", _fails)
        with pytest.raises(ZeroDivisionError):
            site.round()
    assert (first.gone, other.gone) == (True, False)
    while site.round():
        pass
    assert site.begun.count("other") == 1000
    assert site.server.buffers.budget.used == 0


async def test_pending_operations_are_notified_when_their_client_disconnects() -> None:
    site = Site()
    forgotten: list[int] = []

    def wait(ctx: RequestContext, _body: memoryview) -> None:
        number = ctx.header.correlation_id
        ctx.forget = lambda: forgotten.append(number)
        if number == 0:
            ctx.respond([b"x"])

    site.server.dispatcher._node.raw = wait
    peer = Peer(site, "a")
    peer.ask(3, ApiKey.PRODUCE, 9)
    peer.framer.closed()
    peer.handler.connection_lost(None)
    assert forgotten == [1, 2]


async def test_a_connection_that_is_not_read_is_not_kept_for_longer_than_an_idle_one() -> None:
    """It may have gone: one that waits for its answer is read meanwhile, so that its end is seen."""
    site = Site(ServerLimits(idle_ms=600_000))
    site.server._schedule_sweep()
    site.server.dispatcher._node.raw = lambda ctx, _body: ctx.hold()
    patient, pipelining = Peer(site, "patient"), Peer(site, "pipelining")
    patient.ask(1, ApiKey.PRODUCE, 9)
    pipelining.ask(2, ApiKey.PRODUCE, 9)
    for _ in range(19):
        site.clock.step(31)
    assert (patient.gone, pipelining.gone) == (False, False)
    for _ in range(2):
        site.clock.step(31)
    assert (patient.gone, pipelining.gone) == (False, True)


def _fails(*_: object) -> None:
    raise ZeroDivisionError


class TestPhasesOfARequest:
    """The times of requests by phase, with a clock that is moved by hand."""

    def site(self) -> Site:
        site = Site()
        self.waiting: list[RequestContext] = []
        site.server.dispatcher._node.raw = lambda ctx, _body: self.waiting.append(ctx)
        return site

    def times(self, site: Site, request: str = "Produce") -> list[list[float]]:
        """The phases of each request, in seconds: queue, local, remote, response queue, send."""
        return [list(phases) for phases in request_times(site.metrics, request).recent]

    async def test_a_request_that_waits_is_remote_until_its_answer(self) -> None:
        site = self.site()
        peer = Peer(site, "p")
        peer.ask(1, ApiKey.PRODUCE, 9)
        site.clock.now += 2
        self.waiting[0].respond([b"x"])
        assert self.times(site) == [[0, 0, 2, 0, 0]]

    async def test_the_time_in_the_handler_is_local(self) -> None:
        site = self.site()

        def slow(ctx: RequestContext, _body: memoryview) -> None:
            site.clock.now += 3
            ctx.respond([b"x"])

        site.server.dispatcher._node.raw = slow
        Peer(site, "p").ask(1, ApiKey.PRODUCE, 9)
        assert self.times(site) == [[0, 3, 0, 0, 0]]

    async def test_an_answer_waits_for_those_before_it(self) -> None:
        site = self.site()
        Peer(site, "p").ask(2, ApiKey.PRODUCE, 9)
        first, second = self.waiting
        second.respond([b"x"])
        site.clock.now += 5
        first.respond([b"x"])
        assert self.times(site) == [[0, 0, 5, 0, 0], [0, 0, 0, 5, 0]]

    async def test_an_answer_is_being_sent_until_the_kernel_has_taken_it(self) -> None:
        site = self.site()
        peer = Peer(site, "p", reads=False)
        peer.ask(1, ApiKey.PRODUCE, 9)
        self.waiting[0].respond([b"x"])
        assert self.times(site) == []
        site.clock.now += 4
        peer.take_all()
        assert self.times(site) == [[0, 0, 0, 0, 4]]

    async def test_a_request_behind_another_is_queued_since_it_was_read(self) -> None:
        site = self.site()

        def holding(ctx: RequestContext, _body: memoryview) -> None:
            self.waiting.append(ctx)
            ctx.hold()

        site.server.dispatcher._node.raw = holding
        Peer(site, "p").ask(2, ApiKey.PRODUCE, 9)
        (first,) = self.waiting
        site.clock.now += 7
        first.respond([b"x"])
        site.clock.step()
        self.waiting[1].respond([b"x"])
        assert self.times(site) == [[0, 0, 7, 0, 0], [7, 0, 0, 0, 0]]

    async def test_fetches_of_followers_and_consumers_are_also_counted_apart(self) -> None:
        site = self.site()

        def answer(ctx: RequestContext, _body: memoryview) -> None:
            ctx.set_origin(follower=ctx.client_id == "broker")
            ctx.respond([b"x"])

        site.server.dispatcher._node.raw = answer
        for name in ("broker", "consumer", "broker"):
            Peer(site, name).ask(1, ApiKey.FETCH, 12)
        counts = {name: len(self.times(site, name)) for name in ("Fetch", "FetchFollower", "FetchConsumer")}
        assert counts == {"Fetch": 3, "FetchFollower": 2, "FetchConsumer": 1}
