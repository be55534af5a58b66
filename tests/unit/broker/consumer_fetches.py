"""Fetches of consumers."""

from __future__ import annotations

from typing import Any

from milena.broker.apis.fetch import handle
from milena.protocol.api_keys import ApiKey
from milena.protocol.records.batch import iter_batches
from milena.protocol.records.records import iter_records
from milena.protocol.requests.fetch_request import FetchPartition, FetchRequest, encode_fetch_request
from milena.protocol.requests.fetch_response import FetchResponse, decode_fetch_response
from tests.unit.broker.fixtures import Bench, Request


def fetch(
    bench: Bench,
    *partitions: FetchPartition,
    version: int = 12,
    topic: str = "t",
    max_wait_ms: int = 500,
    min_bytes: int = 1,
    max_bytes: int = 1 << 20,
    **options: Any,
) -> Request:
    image = bench.image.topics.get(topic)
    by_id = version >= 13
    topics = [(None if by_id else topic, image.id if image and by_id else None, partitions)] if partitions else []
    request = FetchRequest(max_wait_ms, min_bytes, max_bytes, topics, **options)
    made = Request(ApiKey.FETCH, version)
    bench.serve(made, handle, bytearray(encode_fetch_request(version, request)))
    return made


def want(index: int = 0, offset: int = 0, max_bytes: int = 1 << 20, **options: Any) -> FetchPartition:
    return FetchPartition(index, offset, max_bytes, **options)


def response(request: Request) -> FetchResponse:
    return decode_fetch_response(request.version, request.body)


def results(request: Request) -> list[Any]:
    return [one for _, _, partitions in response(request).topics for one in partitions]


def values(records: Any) -> list[bytes | None]:
    data = memoryview(bytes(records))
    return [record.value for one in iter_batches(data) for record in iter_records(one)]
