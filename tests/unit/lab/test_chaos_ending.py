"""At its end a run repeats failed requests, because it needs thousands of answers and one may be late."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from milena.client.cluster import ClusterView
from milena.lab.chaos.ending import Ending
from milena.lab.chaos.runner import READING, Order, reading_of
from milena.lab.histories.events import AllTopics, Event
from milena.node.links.outgoing import ChannelError
from milena.protocol.errors import ErrorCode, KafkaError


class Run:
    """A fake that is client, clock and journal. ``failures`` are raised before the answer is returned."""

    def __init__(self, *failures: Exception) -> None:
        self.runtime: Any = self
        self.clock = self
        self.failures = list(failures)
        self.noted: list[Event] = []
        self.said: list[str] = []

    async def metadata(self) -> ClusterView:
        if self.failures:
            raise self.failures.pop(0)
        return ClusterView(None, -1, {}, {})

    async def sleep(self, seconds: float) -> None:
        await asyncio.sleep(0)

    def note(self, event: Event) -> None:
        self.noted.append(event)

    def say(self, text: str) -> None:
        self.said.append(text)

    def look(self) -> None:
        ports: Any = self
        asyncio.run(Ending(ports, ports).topics(("made-",)))


def test_a_request_that_timed_out_or_reached_the_wrong_broker_is_repeated() -> None:
    run = Run(ChannelError("no answer in 3 s"), KafkaError(ErrorCode.NOT_LEADER_OR_FOLLOWER, "plain-0"))
    run.look()
    assert run.noted == [AllTopics(0)]
    assert len(run.said) == 2, "run.log has a line for each"


def test_an_error_that_is_not_retriable_is_raised() -> None:
    run = Run(KafkaError(ErrorCode.INVALID_REQUEST, "no"))
    with pytest.raises(KafkaError):
        run.look()
    assert run.noted == []


def test_a_longer_run_has_more_time_for_its_end() -> None:
    """A longer run has more records, segments of the tier, and groups to read."""
    assert reading_of(Order(1, 0)) == READING
    assert reading_of(Order(1, 3600)) >= 3 * READING
