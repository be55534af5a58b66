"""Single Fetch requests of a consumer: one attempt at one broker, without retries."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, NamedTuple

from milena.client.cluster import Cluster
from milena.lab.cluster import host_of
from milena.protocol.api_keys import ApiKey
from milena.protocol.errors import ErrorCode
from milena.protocol.records.batch import iter_batches
from milena.protocol.records.records import iter_records
from milena.protocol.requests.fetch_request import FetchPartition, FetchRequest, encode_fetch_request
from milena.protocol.requests.fetch_response import FetchedPartition, FetchResponse, decode_fetch_response
from milena.protocol.types import TopicPartition

VERSION = 12


class Fetched(NamedTuple):
    """One partition of a Fetch response. ``values`` are the numbers that ``steps.write`` wrote, of whole batches."""

    error: ErrorCode
    values: list[int]
    high_watermark: int
    log_start: int


class FetchAnswer(NamedTuple):
    session: int
    partitions: dict[TopicPartition, Fetched]


async def fetch(
    client: Cluster,
    offsets: Mapping[TopicPartition, int],
    *,
    broker: int = 1,
    session: tuple[int, int] = (0, -1),
    partition_bytes: int = 1 << 20,
    max_wait_ms: int = 500,
    min_bytes: int = 1,
    max_bytes: int = 50 << 20,
    epoch: int = -1,
    **options: Any,
) -> FetchAnswer:
    """Send one Fetch. ``epoch``: the leader epoch that the consumer knows; ``session``: its id and epoch."""
    topics = [
        (topic, None, [FetchPartition(index, offset, partition_bytes, current_leader_epoch=epoch)])
        for (topic, index), offset in offsets.items()
    ]
    request = FetchRequest(
        max_wait_ms, min_bytes, max_bytes, topics, session_id=session[0], session_epoch=session[1], **options
    )

    def decode(body: memoryview) -> FetchAnswer:
        response: FetchResponse = decode_fetch_response(VERSION, body)
        assert not response.error_code, ErrorCode(response.error_code)
        found = {
            (topic or "", one.partition): _fetched(one)
            for topic, _, partitions in response.topics
            for one in partitions
        }
        return FetchAnswer(response.session_id, found)

    channel = client.to(host_of(broker), 9092)
    await channel.connect()
    return await channel.request_raw(ApiKey.FETCH, VERSION, [encode_fetch_request(VERSION, request)], decode)


def _fetched(one: FetchedPartition) -> Fetched:
    assert one.records is None or isinstance(one.records, bytes | bytearray | memoryview)
    values = [
        int(record.value or b"-1")
        for batch in iter_batches(memoryview(bytearray(one.records or b"")))
        for record in iter_records(batch)
    ]
    return Fetched(ErrorCode(one.error_code), values, one.high_watermark, one.log_start_offset)
