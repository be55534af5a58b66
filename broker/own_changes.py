"""A client that changed something through this broker finds it changed here with its next request.

The controller's answer to a forwarded request names no offset, but what it answers is committed. So the broker asks for
the high watermark of the metadata log (DescribeQuorum, which Kafka's controllers answer too), and keeps the answer back
until what lies below is carried out here. Kafka's broker does not wait.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Callable
from typing import Any, Final, Protocol

from node.outgoing import ChannelError
from protocol.api_keys import ApiKey
from protocol.errors import KafkaError
from protocol.types import METADATA_TOPIC

CHANGING: Final = frozenset(
    {
        ApiKey.CREATE_TOPICS,
        ApiKey.DELETE_TOPICS,
        ApiKey.CREATE_PARTITIONS,
        ApiKey.ALTER_CONFIGS,
        ApiKey.INCREMENTAL_ALTER_CONFIGS,
        ApiKey.ELECT_LEADERS,
        ApiKey.ALTER_PARTITION_REASSIGNMENTS,
        ApiKey.ALTER_CLIENT_QUOTAS,
        ApiKey.UNREGISTER_BROKER,
        ApiKey.UPDATE_FEATURES,
    }
)
"""Forwarded requests after which the metadata may be another."""

TIMEOUT: Final = "forwarded.request.visible.timeout.ms"
_LOG: Final = [{"topic_name": METADATA_TOPIC, "partitions": [{"partition_index": 0}]}]


class Link(Protocol):
    """The way to the controller."""

    async def request(
        self, key: ApiKey, version: int | None = None, *, timeout: float | None = None, **fields: Any
    ) -> Any: ...


class Progress(Protocol):
    """How far the metadata is carried out (``broker.applier``)."""

    @property
    def applied_offset(self) -> int:
        """The last offset, -1 before there is one."""
        ...

    def on_progress(self, tell: Callable[[], None]) -> None: ...


class OwnChanges:
    """Who waits until this broker has carried out the metadata up to some offset."""

    def __init__(self, link: Link, get_config: Callable[[str], Any], progress: Progress) -> None:
        self._link = link
        self._get = get_config
        self._progress = progress
        self._waiting: dict[asyncio.Future[None], int] = {}
        progress.on_progress(self._progressed)

    async def seen(self) -> bool:
        """Return once all that the controller has committed by now is carried out here; False where that took longer
        than the time that the configuration allows, or the controller does not tell."""
        seconds = self._get(TIMEOUT) / 1000
        if seconds <= 0:
            return False
        with contextlib.suppress(KafkaError, ChannelError, TimeoutError):
            async with asyncio.timeout(seconds):
                end = await self._committed()
                if end is not None:
                    await self._carried_out(end - 1)
                    return True
        return False

    def _progressed(self) -> None:
        """More is carried out."""
        if self._waiting:
            applied = self._progress.applied_offset
            for future, offset in self._waiting.items():
                if offset <= applied and not future.done():
                    future.set_result(None)

    async def _committed(self) -> int | None:
        """The high watermark that the quorum's leader has, None where it does not say. Who gives up waiting must not
        make the link do so: a link that times out drops its connection, and with it what others have asked there."""
        response = await self._link.request(ApiKey.DESCRIBE_QUORUM, topics=_LOG)
        partitions = [partition for topic in response.topics for partition in topic.partitions]
        if int(response.error_code) or len(partitions) != 1 or int(partitions[0].error_code):
            return None
        return int(partitions[0].high_watermark)

    async def _carried_out(self, offset: int) -> None:
        if self._progress.applied_offset >= offset:
            return
        future: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._waiting[future] = offset
        try:
            await future
        finally:
            del self._waiting[future]
