"""A response that arrives in the loop iteration of its timeout counts: a long iteration may have delayed both."""

from __future__ import annotations

import asyncio
from types import SimpleNamespace
from typing import Any

import pytest

from milena.broker.controller_link.controller_link import ControllerLink
from milena.lab.world.loop import SimulatedLoop
from milena.node.links.outgoing import Channel
from milena.protocol.api_keys import ApiKey
from milena.protocol.errors import ErrorCode, KafkaError

ANSWER = SimpleNamespace(error_code=0)


class Peer:
    """Answers every request after two seconds. The loop is blocked from second 1 to second 20."""

    alive = True

    def __init__(self, loop: SimulatedLoop, *, answers: bool) -> None:
        self._loop = loop
        self._answers = answers
        self.aborted = False
        loop.call_at(1.0, loop.advance, 19.0)

    def send(self, *_: object) -> asyncio.Future[Any]:
        future: asyncio.Future[Any] = self._loop.create_future()
        if self._answers:
            self._loop.call_at(2.0, future.set_result, ANSWER)
        return future

    def abort(self) -> None:
        self.aborted = True


def ask(monkeypatch: pytest.MonkeyPatch, *, answers: bool) -> tuple[object, Peer]:
    """The result of a request with a timeout of five seconds."""
    loop = SimulatedLoop()
    clock = SimpleNamespace(monotonic=loop.time)
    runtime: Any = SimpleNamespace(clock=clock)
    link = ControllerLink(runtime, lambda: [("c", 1)], "b", request_timeout=5.0)
    peer = Peer(loop, answers=answers)
    channel = Channel(runtime, "c", 1, "b")
    monkeypatch.setattr(channel, "_connection", peer)
    monkeypatch.setattr(channel, "choose", lambda *_: 0)
    monkeypatch.setattr(link, "_open", lambda: channel)
    try:
        return loop.run_until_complete(link.request(ApiKey.DESCRIBE_CLUSTER)), peer
    except KafkaError as error:
        return error.code, peer
    finally:
        loop.close()


def test_a_response_in_the_iteration_of_the_timeout_counts(monkeypatch: pytest.MonkeyPatch) -> None:
    found, peer = ask(monkeypatch, answers=True)
    assert (found, peer.aborted) == (ANSWER, False)


def test_without_a_response_the_connection_is_closed_at_the_timeout(monkeypatch: pytest.MonkeyPatch) -> None:
    found, peer = ask(monkeypatch, answers=False)
    assert (found, peer.aborted) == (ErrorCode.REQUEST_TIMED_OUT, True)
