"""Delays the response to a forwarded request until this broker has applied the change, so that the client's next
request to this broker sees it.

The controller's response has no offset, but its changes are committed. So the broker requests the high watermark of the
metadata log (DescribeQuorum, which Kafka's controllers support too), and waits until it has applied everything below.
New partitions are in its metadata then; their logs may follow (``broker.hosting.applier``), and requests for partitions
without a log are answered with NOT_LEADER_OR_FOLLOWER, as in Kafka. Kafka's broker does not wait.
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

CHANGES_METADATA: Final = frozenset(
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
        ApiKey.UNREGISTER_CONTROLLER,
        ApiKey.UPDATE_FEATURES,
    }
)
"""Forwarded requests that may change metadata."""

CREATES_LOGS: Final = frozenset({ApiKey.CREATE_TOPICS, ApiKey.CREATE_PARTITIONS})
"""Of these, the ones that are answered before all logs are created, which takes long for thousands of partitions."""

RETRY_SECONDS: Final = 0.02
"""Seconds until a controller that does not know its high watermark yet is queried again."""
TIMEOUT: Final = "forwarded.request.visible.timeout.ms"
_LOG: Final = [{"topic_name": METADATA_TOPIC, "partitions": [{"partition_index": 0}]}]


class Progress(Protocol):
    """The progress of applying the metadata (``broker.hosting.applier``)."""

    @property
    def known_offset(self) -> int:
        """The offset of the last record in the metadata image; -1 for none."""
        ...

    @property
    def applied_offset(self) -> int:
        """The offset of the last applied record; -1 for none."""
        ...

    def on_progress(self, callback: Callable[[], None]) -> None:
        """Call ``callback`` whenever one of these offsets has risen."""
        ...


class OwnChanges:
    """Waits until this broker has applied the metadata up to the controller's high watermark."""

    def __init__(self, link: RequestSender, get_int: Callable[[str], int], progress: Progress, clock: Clock) -> None:
        self._link = link
        self._get_int = get_int
        self._progress = progress
        self._clock = clock
        self._waiting: dict[asyncio.Future[None], Callable[[], bool]] = {}
        """For each wait: whether the broker is far enough."""
        progress.on_progress(self._on_progress)

    async def wait_visible(self, change: ApiKey) -> bool:
        """``caught_up`` with the configured timeout, for a request ``change``; False if that is 0."""
        seconds = self._get_int(TIMEOUT) / 1000
        return seconds > 0 and await self.caught_up(seconds, with_logs=change not in CREATES_LOGS)

    async def caught_up(self, seconds: float, *, with_logs: bool = True) -> bool:
        """Return True once this broker has applied everything that the controller had committed at the call, or, unless
        ``with_logs``, has it in its metadata image; False after ``seconds``, or if the controller does not return its
        high watermark."""
        with contextlib.suppress(KafkaError, ChannelError, TimeoutError):
            async with asyncio.timeout(seconds):
                while (end := await self._high_watermark()) is not None:
                    if end >= 0:
                        await self._wait(end - 1, with_logs=with_logs)
                        return True
                    await self._clock.sleep(RETRY_SECONDS)
        return False

    async def wait_applied(self, offset: int) -> None:
        """Wait until this broker has applied the metadata record at ``offset``."""
        await self._wait(offset, with_logs=True)

    def _on_progress(self) -> None:
        """Complete the waits that have ended."""
        for future, has_ended in self._waiting.items():
            if has_ended() and not future.done():
                future.set_result(None)

    async def _high_watermark(self) -> int | None:
        """Request the quorum's high watermark. Returns -1 if the controller does not know it yet, as one of Kafka's
        that was just elected; None if the response has an error.

        The timeout of ``caught_up`` must not be that of the link: a link that times out closes its connection, and so
        fails the requests of other callers."""
        response: DescribeQuorumResponse = await self._link.request(ApiKey.DESCRIBE_QUORUM, topics=_LOG)
        partitions = [partition for topic in response.topics for partition in topic.partitions]
        if int(response.error_code) or len(partitions) != 1 or int(partitions[0].error_code):
            return None
        return int(partitions[0].high_watermark)

    async def _wait(self, offset: int, *, with_logs: bool) -> None:
        progress = self._progress

        def has_ended() -> bool:
            return (progress.applied_offset if with_logs else progress.known_offset) >= offset

        if has_ended():
            return
        future: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._waiting[future] = has_ended
        try:
            await future
        finally:
            del self._waiting[future]
