"""A group request whose client is cancelled may take effect, so the history has it with an unknown outcome."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from milena.lab.chaos.groups import client as group_client
from milena.lab.chaos.groups.client import GroupClient
from milena.lab.histories.events import Event, RequestOutcome
from milena.lab.histories.group_events import OffsetCommit

AT = ("plain", 0)


class Silent:
    """A fake that is cluster and channel. No request is answered."""

    host, port = "broker-1", 9092

    def __init__(self) -> None:
        self.asked = asyncio.Event()

    def separate_channel(self, host: str, port: int) -> Silent:
        return self

    async def connect(self) -> None: ...

    def choose(self, key: object, at_most: int | None = None) -> int:
        return 9

    async def request(self, *_: object, **__: object) -> object:
        self.asked.set()
        return await asyncio.Future()

    def close(self) -> None: ...


async def _coordinator(cluster: object, group: str) -> tuple[str, int]:
    return "broker-1", 9092


async def _asked(noted: list[Event]) -> asyncio.Task[object]:
    silent: Any = Silent()
    client = GroupClient(silent, "team-0", noted.append, lambda: 5.0, rebalance_ms=1, session_ms=1, patience=1.0)

    async def commit_twice() -> None:
        await client.commit({AT: (7, "first")})
        await client.commit({AT: (8, "second")})

    task: asyncio.Task[Any] = asyncio.ensure_future(commit_twice())
    await silent.asked.wait()
    return task


async def test_a_cancelled_commit_is_recorded_and_no_other_request_follows(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(group_client, "find_coordinator", _coordinator)
    noted: list[Event] = []
    task = await _asked(noted)
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    head = ("team-0", "broker-1:9092", 5.0, 5.0, RequestOutcome.UNKNOWN, "", -1)
    assert noted == [OffsetCommit(*head, partition=AT, offset=7, metadata="first")]


async def test_a_timeout_around_a_request_is_raised_as_timeout_error(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(group_client, "find_coordinator", _coordinator)
    noted: list[Event] = []
    silent: Any = Silent()
    client = GroupClient(silent, "team-0", noted.append, lambda: 5.0, rebalance_ms=1, session_ms=1, patience=1.0)
    with pytest.raises(TimeoutError):
        async with asyncio.timeout(0.01):
            while True:
                await client.commit({AT: (7, "first")})
    assert len(noted) == 1
