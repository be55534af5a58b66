"""Waiting until the broker has applied what the controller has committed."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from milena.broker.metadata.own_changes import OwnChanges
from milena.protocol.api_keys import ApiKey
from tests.unit.broker.hand_clock import HandClock


class Quorum:
    """A controller that knows its high watermark after some requests."""

    def __init__(self, *high_watermarks: int) -> None:
        self.left = list(high_watermarks)

    async def request(self, key: ApiKey, version: int | None = None, **_: Any) -> Any:
        partition = SimpleNamespace(error_code=0, high_watermark=self.left.pop(0))
        return SimpleNamespace(error_code=0, topics=[SimpleNamespace(partitions=[partition])])


class Progress:
    applied_offset = 9
    known_offset = 19

    def on_progress(self, tell: object) -> None: ...


class Clock(HandClock):
    async def sleep(self, seconds: float) -> None: ...


async def test_a_controller_without_a_high_watermark_is_queried_again() -> None:
    quorum = Quorum(-1, -1, 10)
    own_changes = OwnChanges(quorum, lambda _: 1000, Progress(), Clock())
    assert await own_changes.wait_visible(ApiKey.ALTER_CONFIGS)
    assert not quorum.left


async def test_metadata_not_applied_in_time_return_false() -> None:
    own_changes = OwnChanges(Quorum(11), lambda _: 1, Progress(), Clock())
    assert not await own_changes.wait_visible(ApiKey.ALTER_CONFIGS)


@pytest.mark.parametrize("change", [ApiKey.CREATE_TOPICS, ApiKey.CREATE_PARTITIONS])
async def test_new_partitions_are_visible_before_their_logs_are_created(change: ApiKey) -> None:
    assert await OwnChanges(Quorum(20), lambda _: 1, Progress(), Clock()).wait_visible(change)
    assert not await OwnChanges(Quorum(21), lambda _: 1, Progress(), Clock()).wait_visible(change)
