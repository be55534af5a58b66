"""Reading a partition as its leader keeps it: whole batches, and the leader epochs of its log."""

from __future__ import annotations

from collections.abc import Callable, Coroutine, Iterable, Sequence
from typing import TYPE_CHECKING, Final, NamedTuple, TypeVar
from uuid import UUID

from milena.client.cluster import Cluster
from milena.node.links.outgoing import ChannelError, only
from milena.protocol.api_keys import ApiKey
from milena.protocol.errors import ErrorCode, KafkaError, retriable
from milena.protocol.requests.fetch import (
    AbortedTransaction,
    FetchedPartition,
    FetchPartition,
    FetchRequest,
    decode_fetch_response,
    encode_fetch_request,
)
from milena.protocol.uuids import to_text

if TYPE_CHECKING:
    from milena.protocol.apis import OffsetForLeaderEpochResponse

T = TypeVar("T")

PATIENCE: Final = 60.0
"""Seconds in which a partition without a leader, or a node that does not answer, is asked again."""
WAIT_MS: Final = 500
MOST_MISMATCHES: Final = 5
"""How often brokers may name another id of a topic until that counts: one of them may know of the past alone."""


class MadeAnew(Exception):
    """The topic was deleted and created again: ``id`` is its present one."""

    def __init__(self, topic: str, topic_id: UUID) -> None:
        super().__init__(f"topic {topic} has the id {to_text(topic_id)} now")
        self.id = topic_id


class RawRecords(NamedTuple):
    """``data``: batches, of which the last may be incomplete. ``aborted``: None where uncommitted records are read.
    ``end``: the offset before which all that may be read is, the high watermark or the last stable offset."""

    data: bytes
    aborted: Sequence[AbortedTransaction] | None
    high_watermark: int
    end: int
    log_start: int


async def retried(cluster: Cluster, topic: str, work: Callable[[], Coroutine[object, object, T]]) -> T:
    """Its result; it is repeated while its errors are such that this helps. Raises KafkaError, ChannelError."""
    clock = cluster.runtime.clock
    end, attempt = clock.monotonic() + PATIENCE, 0
    while True:
        try:
            return await work()
        except (KafkaError, ChannelError) as error:
            final = isinstance(error, KafkaError) and not retriable(error.code)
            if final or clock.monotonic() >= end:
                raise
            cluster.forget_topic(topic)
        await cluster.pause(attempt)
        attempt += 1


async def read_raw(
    cluster: Cluster,
    topic: str,
    partition: int,
    offset: int,
    *,
    committed: bool,
    max_bytes: int,
    topic_id: UUID | None = None,
) -> RawRecords:
    """What the leader has from ``offset`` on; nothing at the end of the log. ``committed``: up to the last stable
    offset alone. ``topic_id``: that of the topic which is meant, if it is known.

    Raises KafkaError, for example OFFSET_OUT_OF_RANGE, and ChannelError, MadeAnew."""
    mismatches = 0

    async def once() -> RawRecords:
        nonlocal mismatches
        channel, view, topic_view = await cluster.leader(topic, partition)
        if topic_id is not None and topic_view.id is not None and topic_view.id != topic_id:
            mismatches += 1
            if mismatches > MOST_MISMATCHES:
                raise MadeAnew(topic, topic_view.id)
            raise KafkaError(ErrorCode.INCONSISTENT_TOPIC_ID, topic)
        await channel.connect()
        version = channel.choose(ApiKey.FETCH, at_most=12 if topic_view.id is None else None)
        wanted = FetchPartition(partition, offset, max_bytes, current_leader_epoch=view.leader_epoch)
        request = FetchRequest(WAIT_MS, 1, max_bytes, [(topic, topic_view.id, [wanted])], int(committed))
        found: list[RawRecords] = []

        def take(body: memoryview) -> None:
            """Runs inside the read: the records are views of the receive buffer."""
            response = decode_fetch_response(version, body)
            if response.error_code:
                raise KafkaError(ErrorCode(response.error_code))
            found.append(_taken(only(only(response.topics)[2]), topic, offset, committed))

        data = [encode_fetch_request(version, request)]
        await channel.request_raw(ApiKey.FETCH, version, data, take, timeout=WAIT_MS / 1000 + 30)
        return found[0]

    return await retried(cluster, topic, once)


def _taken(fetched: FetchedPartition, topic: str, offset: int, committed: bool) -> RawRecords:
    if fetched.error_code:
        where = f"{topic}-{fetched.partition} cannot be read from offset {offset} on"
        raise KafkaError(ErrorCode(fetched.error_code), where)
    records = fetched.records
    assert records is None or isinstance(records, bytes | bytearray | memoryview)
    high_watermark = fetched.high_watermark
    end = min(high_watermark, fetched.last_stable_offset) if committed else high_watermark
    return RawRecords(bytes(records or b""), fetched.aborted, high_watermark, end, fetched.log_start_offset)


async def epoch_ends(cluster: Cluster, topic: str, partition: int, epochs: Iterable[int]) -> dict[int, int]:
    """Of each of ``epochs``: the largest epoch of the leader's log that is not above it, and where that ends there
    (KIP-320). Raises KafkaError, ChannelError."""
    found: dict[int, int] = {}
    for epoch in epochs:

        async def once(epoch: int = epoch) -> tuple[int, int]:
            channel, view, _ = await cluster.leader(topic, partition)
            wanted = {"partition": partition, "current_leader_epoch": view.leader_epoch, "leader_epoch": epoch}
            response: OffsetForLeaderEpochResponse = await channel.request(
                ApiKey.OFFSET_FOR_LEADER_EPOCH, replica_id=-1, topics=[{"topic": topic, "partitions": [wanted]}]
            )
            partition_end = only(only(response.topics).partitions)
            if partition_end.error_code:
                raise KafkaError(ErrorCode(partition_end.error_code), f"{topic}-{partition}")
            return int(partition_end.leader_epoch), int(partition_end.end_offset)

        at_most, end = await retried(cluster, topic, once)
        if at_most >= 0:
            found[at_most] = end
    return found
