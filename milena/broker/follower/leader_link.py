"""The requests of a fetcher to its leader, over its own connection.

Fetch is encoded by hand, and its response is applied while it is in the receive buffer; the rare requests
(OffsetForLeaderEpoch, ListOffsets) use the generated codecs. Each request uses the highest version that both sides and
the metadata.version allow.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final, NamedTuple, TypeAlias
from uuid import UUID

from milena.broker.follower.follower_state import FollowerState
from milena.broker.follower.session import SessionFetch
from milena.config.node_config import NodeConfig
from milena.node.links.outgoing import Channel, Unreachable
from milena.protocol.api_keys import ApiKey
from milena.protocol.requests import messages
from milena.protocol.requests.fetch_request import (
    FetchPartition,
    FetchRequest,
    FetchTopic,
    encode_fetch_request,
)
from milena.protocol.requests.fetch_response import FetchResponse, decode_fetch_response
from milena.protocol.types import BrokerEpoch, LeaderEpoch, NodeId
from milena.runtime.context import Runtime

if TYPE_CHECKING:
    from milena.protocol.apis import ListOffsetsResponse, OffsetForLeaderEpochResponse

BUFFER_BYTES: Final = 2 << 20
"""An upper limit for ``replica.fetch.response.max.bytes``, because a whole response is held in memory. (A single larger
batch is still received.)"""
NO_EPOCH: Final = -1
NO_BROKER_EPOCH: Final = BrokerEpoch(-1)
CONNECT_TIMEOUT: Final = 10.0
"""Seconds."""
SHORT_WAIT: Final = 0.03
"""Seconds that a fetch waits at the leader while ``LeaderLink.short_wait`` is set."""

_FETCH_BY_METADATA_VERSION: Final = ((27, 18), (21, 17), (19, 16), (10, 15), (9, 14))
"""The feature levels of 4.1-IV1, 3.9-IV0, 3.7-IV4, 3.5-IV1 and 3.5-IV0, with their versions of Fetch."""
_OLDEST_FETCH: Final = 13


class EpochEnd(NamedTuple):
    """One result of OffsetForLeaderEpoch; epoch and end are -1 if the leader does not know the epoch."""

    error_code: int
    epoch: int
    end: int


AskEnds: TypeAlias = Callable[
    [Channel, Mapping[FollowerState, LeaderEpoch]], Awaitable[dict[tuple[str, int], EpochEnd]]
]
"""Asks a leader for the ends of leader epochs, one per follower; the result is by topic and partition."""


class ListedOffset(NamedTuple):
    """One result of ListOffsets; offset and epoch are -1 if there is none."""

    error_code: int
    offset: int
    epoch: int = NO_EPOCH


@dataclass(frozen=True, slots=True)
class LinkSettings:
    """The settings of fetches. Sizes in bytes, times in seconds."""

    min_bytes: int
    wait: float
    partition_bytes: int
    response_bytes: int
    backoff: float
    timeout: float

    @classmethod
    def of(cls, config: NodeConfig) -> LinkSettings:
        """The settings from ``replica.fetch.*`` and ``replica.socket.timeout.ms``."""
        return cls(
            config.get_int("replica.fetch.min.bytes"),
            config.get_int("replica.fetch.wait.max.ms") / 1000,
            config.get_int("replica.fetch.max.bytes"),
            min(config.get_int("replica.fetch.response.max.bytes"), BUFFER_BYTES),
            config.get_int("replica.fetch.backoff.ms") / 1000,
            config.get_int("replica.socket.timeout.ms") / 1000,
        )


def highest_fetch_version(metadata_version: int) -> int:
    """The highest Fetch version for a metadata.version (Kafka's ``MetadataVersion.fetchRequestVersion``)."""
    return next((fetch for level, fetch in _FETCH_BY_METADATA_VERSION if metadata_version >= level), _OLDEST_FETCH)


class LeaderLink:
    """Sends requests to one leader. ``address`` is called before each: the leader may restart with another one."""

    def __init__(
        self,
        runtime: Runtime,
        node_id: NodeId,
        client_id: str,
        settings: LinkSettings,
        *,
        address: Callable[[], tuple[str, int] | None],
        metadata_version: Callable[[], int],
        broker_epoch: Callable[[], BrokerEpoch | None],
        ask_ends: AskEnds | None = None,
    ) -> None:
        """``ask_ends`` replaces OffsetForLeaderEpoch, as test peers do."""
        self._runtime = runtime
        self._node_id = node_id
        self._client_id = client_id
        self._settings = settings
        self._address = address
        self._metadata_version = metadata_version
        self._broker_epoch = broker_epoch
        self._ask_ends = ask_ends
        self._channel: Channel | None = None
        self.short_wait = False
        """Whether fetches wait only briefly at the leader: a partition is about to be added, which is impossible while
        a fetch waits."""

    async def fetch(
        self, get_fetch: Callable[[], SessionFetch | None], handle: Callable[[FetchResponse, bool], SessionFetch | None]
    ) -> None:
        """Send Fetch requests as long as there is a next one.

        ``get_fetch`` returns the first one, or None; it is called when the link is connected, since the partitions may
        change until then. ``handle`` gets each response, whose memory is valid only during the call, and whether it may
        return a next fetch, which is then sent in the same step of the event loop. It may not after a change of the
        metadata.version, which may change the version of requests.

        Raises ChannelError, KafkaError REQUEST_TIMED_OUT or UNSUPPORTED_VERSION.
        """
        channel = await self._connected()
        fetch = get_fetch()
        if fetch is None:
            return
        level = self._metadata_version()
        version = channel.choose(ApiKey.FETCH, at_most=highest_fetch_version(level))

        def answered(body: memoryview) -> list[bytes] | None:
            next_fetch = handle(decode_fetch_response(version, body), self._metadata_version() == level)
            return None if next_fetch is None else [self._encode(version, next_fetch)]

        await channel.repeat(
            ApiKey.FETCH, version, [self._encode(version, fetch)], answered, timeout=self._settings.timeout
        )

    def _encode(self, version: int, fetch: SessionFetch) -> bytes:
        settings = self._settings
        epoch = self._broker_epoch()
        request = FetchRequest(
            max_wait_ms=round(1000 * min(settings.wait, SHORT_WAIT if self.short_wait else settings.wait)),
            min_bytes=settings.min_bytes,
            max_bytes=settings.response_bytes,
            topics=_topics(fetch.partitions, settings.partition_bytes),
            session_id=fetch.session_id,
            session_epoch=fetch.session_epoch,
            forgotten_topics=[(topic, topic_id, (index,)) for topic, topic_id, index in fetch.forgotten],
            replica_id=self._node_id,
            replica_epoch=NO_BROKER_EPOCH if epoch is None else epoch,
        )
        return encode_fetch_request(version, request)

    async def epoch_ends(self, followers: Mapping[FollowerState, LeaderEpoch]) -> dict[tuple[str, int], EpochEnd]:
        """Request the ends of leader epochs, one per follower (OffsetForLeaderEpoch). Raises like ``fetch``."""
        if self._ask_ends is not None:
            return await self._ask_ends(await self._connected(), followers)
        topics = [
            {
                "topic": topic,
                "partitions": [
                    {
                        "partition": follower.partition.index,
                        "current_leader_epoch": follower.leader_epoch,
                        "leader_epoch": followers[follower],
                    }
                    for follower in grouped
                ],
            }
            for topic, grouped in _by_topic(followers)
        ]
        response: OffsetForLeaderEpochResponse = await self._request(
            ApiKey.OFFSET_FOR_LEADER_EPOCH, replica_id=self._node_id, topics=topics
        )
        return {
            (topic.topic, partition.partition): EpochEnd(
                int(partition.error_code),
                int(messages.get(partition, "leader_epoch", NO_EPOCH)),
                int(partition.end_offset),
            )
            for topic in response.topics
            for partition in topic.partitions
        }

    async def offsets(self, followers: Sequence[FollowerState], timestamp: int) -> dict[tuple[str, int], ListedOffset]:
        """Request the offsets of a special timestamp (ListOffsets) as a replica. Raises like ``fetch``."""
        topics = [
            {
                "name": topic,
                "partitions": [
                    {
                        "partition_index": follower.partition.index,
                        "current_leader_epoch": follower.leader_epoch,
                        "timestamp": timestamp,
                    }
                    for follower in grouped
                ],
            }
            for topic, grouped in _by_topic(followers)
        ]
        response: ListOffsetsResponse = await self._request(
            ApiKey.LIST_OFFSETS, replica_id=self._node_id, isolation_level=0, topics=topics
        )
        return {
            (topic.name, partition.partition_index): ListedOffset(
                int(partition.error_code), int(partition.offset), int(messages.get(partition, "leader_epoch", NO_EPOCH))
            )
            for topic in response.topics
            for partition in topic.partitions
        }

    def close(self) -> None:
        if self._channel is not None:
            self._channel.close()

    async def _request(self, key: ApiKey, **fields: object) -> Any:  # noqa: ANN401 - decoded response; callers annotate it
        channel = await self._connected()
        return await channel.request(key, timeout=self._settings.timeout, **fields)

    async def _connected(self) -> Channel:
        address = self._address()
        if address is None:
            raise Unreachable("the metadata has no address of the leader")
        channel = self._channel
        if channel is None or (channel.host, channel.port) != address:
            self.close()
            timeout = min(CONNECT_TIMEOUT, self._settings.timeout)
            channel = Channel(self._runtime, *address, self._client_id, connect_timeout=timeout)
            self._channel = channel
        await channel.connect()
        return channel


def _topics(followers: Sequence[FollowerState], max_bytes: int) -> list[FetchTopic]:
    topics: list[FetchTopic] = []
    last: UUID | None = None
    partitions: list[FetchPartition] = []
    for follower in followers:
        partition, sent = follower.partition, follower.sent
        assert sent is not None
        if partition.topic_id != last:
            last, partitions = partition.topic_id, []
            topics.append((partition.topic, partition.topic_id, partitions))
        epoch = NO_EPOCH if sent.last_fetched_epoch is None else sent.last_fetched_epoch
        partitions.append(
            FetchPartition(partition.index, sent.offset, max_bytes, follower.leader_epoch, epoch, sent.log_start)
        )
    return topics


def _by_topic(grouped: Iterable[FollowerState]) -> list[tuple[str, list[FollowerState]]]:
    topics: dict[str, list[FollowerState]] = {}
    for follower in grouped:
        topics.setdefault(follower.partition.topic, []).append(follower)
    return list(topics.items())
