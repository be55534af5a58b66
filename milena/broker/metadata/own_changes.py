"""A client that changed something through this broker finds it changed here with its next request.

The controller's answer to a forwarded request names no offset, but what it answers is committed. So the broker asks for
the high watermark of the metadata log (DescribeQuorum, which Kafka's controllers answer too), and keeps the answer back
until what lies below is carried out here. Kafka's broker does not wait.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Callable
from typing import TYPE_CHECKING, Final, Protocol

from milena.node.links.outgoing import ChannelError
from milena.node.links.request_sender import RequestSender
from milena.protocol.api_keys import ApiKey
from milena.protocol.errors import KafkaError
from milena.protocol.types import METADATA_TOPIC
from milena.runtime.clock import Clock

if TYPE_CHECKING:
    from milena.protocol.apis import DescribeQuorumResponse

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

AGAIN: Final = 0.02
"""Seconds until a controller that does not know its high watermark yet is asked again."""
TIMEOUT: Final = "forwarded.request.visible.timeout.ms"
_LOG: Final = [{"topic_name": METADATA_TOPIC, "partitions": [{"partition_index": 0}]}]


class Progress(Protocol):
    """How far the metadata is carried out (``broker.hosting.applier``)."""

    @property
    def applied_offset(self) -> int:
        """The last offset, -1 before there is one."""
        ...

    def on_progress(self, tell: Callable[[], None]) -> None: ...


class OwnChanges:
    """Who waits until this broker has carried out the metadata up to some offset."""

    def __init__(self, link: RequestSender, get_int: Callable[[str], int], progress: Progress, clock: Clock) -> None:
        self._link = link
        self._get_int = get_int
        self._progress = progress
        self._clock = clock
        self._waiting: dict[asyncio.Future[None], int] = {}
        progress.on_progress(self._progressed)

    async def seen(self) -> bool:
        """As ``caught_up``, within the time that the configuration allows."""
        seconds = self._get_int(TIMEOUT) / 1000
        return seconds > 0 and await self.caught_up(seconds)

    async def caught_up(self, seconds: float) -> bool:
        """Return True once all that the controller has committed by now is carried out here; False if that took
        longer, or the controller does not tell."""
        with contextlib.suppress(KafkaError, ChannelError, TimeoutError):
            async with asyncio.timeout(seconds):
                while (end := await self._committed()) is not None:
                    if end >= 0:
                        await self._applied(end - 1)
                        return True
                    await self._clock.sleep(AGAIN)
        return False

    def _progressed(self) -> None:
        """More is carried out."""
        if self._waiting:
            applied = self._progress.applied_offset
            for future, offset in self._waiting.items():
                if offset <= applied and not future.done():
                    future.set_result(None)

    async def _committed(self) -> int | None:
        """The high watermark that the quorum's leader has: -1 for one of Kafka's that was just elected and does not
        know it yet, though what was answered before is committed; None if it does not say.

        Who gives up waiting must not make the link do so: a link that times out drops its connection, and with it what
        others have asked there."""
        response: DescribeQuorumResponse = await self._link.request(ApiKey.DESCRIBE_QUORUM, topics=_LOG)
        partitions = [partition for topic in response.topics for partition in topic.partitions]
        if int(response.error_code) or len(partitions) != 1 or int(partitions[0].error_code):
            return None
        return int(partitions[0].high_watermark)

    async def _applied(self, offset: int) -> None:
        if self._progress.applied_offset >= offset:
            return
        future: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._waiting[future] = offset
        try:
            await future
        finally:
            del self._waiting[future]
