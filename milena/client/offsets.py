"""Looks up offsets at a partition's leader (ListOffsets)."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, NamedTuple

from milena.client.cluster import Cluster
from milena.node.links.outgoing import ChannelError, only
from milena.protocol.api_keys import ApiKey
from milena.protocol.errors import ErrorCode, KafkaError

if TYPE_CHECKING:
    from milena.protocol.apis import ListOffsetsResponse

READ_UNCOMMITTED: Final = 0
READ_COMMITTED: Final = 1
"""Isolation levels (KIP-98)."""
EARLIEST: Final = -2
LATEST: Final = -1
MAX_TIMESTAMP: Final = -3
EARLIEST_LOCAL: Final = -4
LATEST_TIERED: Final = -5
EARLIEST_PENDING_UPLOAD: Final = -6


class FoundOffset(NamedTuple):
    """``offset`` and ``timestamp`` (ms) are -1 if no record matches."""

    offset: int
    timestamp: int


async def find_offset(
    cluster: Cluster, topic: str, partition: int, timestamp: int, *, isolation: int = READ_UNCOMMITTED
) -> FoundOffset:
    """The offset for a time in ms, or for one of the above. Raises KafkaError, ChannelError."""
    channel, view, _ = await cluster.leader(topic, partition)
    try:
        response: ListOffsetsResponse = await channel.request(
            ApiKey.LIST_OFFSETS,
            replica_id=-1,
            isolation_level=isolation,
            topics=[
                {
                    "name": topic,
                    "partitions": [
                        {
                            "partition_index": partition,
                            "current_leader_epoch": view.leader_epoch,
                            "timestamp": timestamp,
                        }
                    ],
                }
            ],
        )
    except ChannelError:
        cluster.forget_topic(topic)  # another broker may be the leader now
        raise
    found = only(only(response.topics).partitions)
    if found.error_code:
        cluster.forget_topic(topic)
        raise KafkaError(ErrorCode(found.error_code), f"{topic}-{partition}")
    return FoundOffset(int(found.offset), int(found.timestamp))
