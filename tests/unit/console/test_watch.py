"""When nodes are asked, and what a slow client gets."""

from __future__ import annotations

from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager, closing
from types import SimpleNamespace
from typing import Any, cast

import anyio
import pytest

from milena.client.cluster import Cluster
from milena.console import reading, watch
from milena.console.context import Context
from milena.console.model import Delta, Model
from milena.console.node_link import NodeAway
from milena.console.places import Session, Watched
from milena.console.watch import QUEUED, Subscriber, TooManySubscribers, Watch

NODE = {"state": "up", "epoch": 1, "fenced": False}


class Node:
    """A node whose only state is how often it was asked."""

    name = "broker-1"

    def __init__(self) -> None:
        self.asked = 0
        self.sessions = 0
        self.fails = False
        self.unexpected: Exception | None = None
        self.answering = True

    def is_answering(self) -> bool:
        return self.answering

    @asynccontextmanager
    async def session(self, model: Model) -> AsyncIterator[Session]:
        self.sessions += 1
        yield cast("Session", SimpleNamespace(round=lambda: self._round(model)))

    async def _round(self, model: Model) -> None:
        self.asked += 1
        await anyio.lowlevel.checkpoint()
        if self.fails:
            self.fails = False
            raise NodeAway("gone")
        if self.unexpected is not None:
            raise self.unexpected
        model.set_topic("asked", str(self.asked), 1, internal=False)


class OneNode:
    """A cluster of one node."""

    def __init__(self) -> None:
        self.node = Node()
        self.pid = 1
        self.client = cast("Cluster", None)

    def nodes(self) -> Mapping[str, Watched]:
        return {self.node.name: self.node}

    def describe(self, watched: Watched, model: Model) -> None:
        model.set_node(watched.name, {**NODE, "pid": self.pid})

    async def read_groups(self, model: Model) -> None: ...


@asynccontextmanager
async def watching(place: OneNode, errors: list[Exception] | None = None) -> AsyncIterator[Watch]:
    noted = [] if errors is None else errors
    model = Model(lambda: 0)
    async with anyio.create_task_group() as tasks:
        running = Watch(place, model, anyio.current_time, lambda place, error: noted.append(error))
        tasks.start_soon(running.run)
        yield running
        tasks.cancel_scope.cancel()


async def test_without_a_client_no_node_is_asked() -> None:
    place = OneNode()
    async with watching(place):
        await anyio.wait_all_tasks_blocked()
        assert place.node.sessions == 0


async def test_a_request_for_the_state_asks_each_node_now(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(watch, "SHORTEST", 1000.0)  # no round but those that are asked for
    place = OneNode()
    async with watching(place) as running:
        for _ in range(3):
            before = place.node.asked
            await running.fresh()
            assert place.node.asked > before
            assert running.model.topics["asked"]["id"] == str(place.node.asked)


async def test_a_node_whose_connection_broke_is_asked_over_a_new_one() -> None:
    place = OneNode()
    async with watching(place) as running:
        await running.fresh()
        place.node.fails = True
        await running.fresh()
        await running.fresh()
        assert place.node.sessions == 2


async def test_an_unexpected_error_at_a_node_does_not_end_the_watch() -> None:
    place, noted = OneNode(), list[Exception]()
    async with watching(place, noted) as running:
        await running.fresh()
        place.node.unexpected = error = KeyError("rows")
        await running.fresh()
        place.node.unexpected = None
        await running.fresh()
        assert running.model.topics["asked"]["id"] == str(place.node.asked)
    assert error in noted


async def test_the_state_does_not_wait_for_a_node_that_is_down() -> None:
    place = OneNode()
    place.node.answering = False
    async with watching(place) as running:
        await running.fresh()
        assert place.node.asked == 0


async def test_the_state_has_the_process_that_runs_now(monkeypatch: pytest.MonkeyPatch) -> None:
    """Also after a time in which no client wanted the state."""
    place = OneNode()
    async with watching(place) as running:
        await running.fresh()
        monkeypatch.setattr(watch, "LOOKED_AT", -1.0)
        await anyio.wait_all_tasks_blocked()
        place.pid, place.node.answering = 2, False
        await running.fresh()
        assert running.model.nodes["broker-1"]["pid"] == 2


async def test_a_subscriber_keeps_the_watch_going_and_gets_the_deltas() -> None:
    place = OneNode()
    async with watching(place) as running, running.subscribed() as subscriber:
        first, second = await subscriber.receiving.receive(), await subscriber.receiving.receive()
        assert second.number == first.number + 1


async def test_there_are_so_many_subscribers_at_most(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(watch, "MOST_SUBSCRIBERS", 1)
    running = Watch(OneNode(), Model(lambda: 0), anyio.current_time, lambda *_: None)
    async with running.subscribed():
        with pytest.raises(TooManySubscribers):
            async with running.subscribed():
                pass


async def parts_of(subscriber: Subscriber, count: int) -> list[bytes]:
    context: Any = SimpleNamespace(model=SimpleNamespace(stream="s"))
    stream = reading._stream(cast("Context", context), subscriber)
    return [await anext(stream) for _ in range(count)]


async def test_a_slow_client_loses_deltas_and_is_asked_to_read_the_state_again() -> None:
    with closing(Subscriber()) as subscriber:
        await overflow(subscriber)


async def overflow(subscriber: Subscriber) -> None:
    for number in range(QUEUED + 5):
        subscriber.offer(Delta(number, b"%d" % number))
    assert subscriber.receiving.statistics().current_buffer_used == QUEUED
    parts = await parts_of(subscriber, QUEUED + 1)
    assert parts[0] == b"event: delta\nid: s-0\ndata: 0\n\n"
    assert parts[-1].startswith(b"event: reset\n")
    subscriber.offer(Delta(99, b"99"))
    assert await parts_of(subscriber, 1) == [b"event: delta\nid: s-99\ndata: 99\n\n"]


async def test_an_idle_stream_has_pings(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(reading, "PING_SECONDS", 0.01)
    with closing(Subscriber()) as subscriber:
        assert await parts_of(subscriber, 2) == [b": ping\n\n"] * 2
