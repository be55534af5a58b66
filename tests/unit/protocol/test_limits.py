"""What one request may hold: elements are counted while it is read, whatever their depth."""

from __future__ import annotations

from uuid import UUID

import pytest

from milena.protocol.api_keys import ApiKey
from milena.protocol.limits import DEFAULT_MAX_ELEMENTS, MAX_ELEMENTS, MAX_FETCHED, MAX_PRODUCED, max_elements
from milena.protocol.requests import messages
from milena.protocol.requests.fetch import (
    FetchPartition,
    FetchRequest,
    decode_fetch_request,
    encode_fetch_request,
)
from milena.protocol.requests.headers import parse_request_header
from milena.protocol.requests.produce import ProduceRequest, decode_produce_request, encode_produce_request
from milena.protocol.schemas.primitives import Reader, Writer
from milena.protocol.schemas.registry import Role, served
from milena.protocol.schemas.undecodable import DecodeError, TooManyElements

REAL = 100_000
"""Partitions that one request of a large cluster has."""
MANY = 20_000
"""Partitions of one Produce: twice as many as a broker is tried with."""
FOLLOWED = 10_000
"""Replicas of one broker, in as many topics."""
ID = UUID(int=7)


def produce(topics: int, partitions: int) -> ProduceRequest:
    return ProduceRequest(None, 1, 1000, [("t", None, [(at, None) for at in range(partitions)])] * topics)


def fetch(topics: int, partitions: int, *, forgotten: int = 0) -> FetchRequest:
    wanted = [FetchPartition(at, 0, 1) for at in range(partitions)]
    return FetchRequest(1, 1, 1, [(None, ID, wanted)] * topics, forgotten_topics=[(None, ID, [0])] * forgotten)


@pytest.mark.parametrize("version", [3, 12])
@pytest.mark.parametrize("shape", [(1, 2 * MANY), (MANY, 1)])
def test_a_produce_to_many_partitions_is_read(version: int, shape: tuple[int, int]) -> None:
    body = encode_produce_request(version, produce(*shape))
    assert len(decode_produce_request(version, body).topics) == shape[0]


@pytest.mark.parametrize("version", [3, 12])
@pytest.mark.parametrize("shape", [(MAX_PRODUCED + 1, 0), (1, MAX_PRODUCED), (MAX_PRODUCED // 2 + 1, 1)])
def test_a_produce_with_too_many_topics_or_partitions_is_refused(version: int, shape: tuple[int, int]) -> None:
    body = encode_produce_request(version, produce(*shape))
    with pytest.raises(TooManyElements, match=str(MAX_PRODUCED)):
        decode_produce_request(version, body)


@pytest.mark.parametrize("shape", [(1, 2 * FOLLOWED), (2 * FOLLOWED, 1)])
def test_a_fetch_of_all_replicas_of_a_large_broker_is_read(shape: tuple[int, int]) -> None:
    body = encode_fetch_request(13, fetch(*shape))
    assert len(decode_fetch_request(13, body).topics) == shape[0]


@pytest.mark.parametrize(
    "request_", [fetch(MAX_FETCHED + 1, 0), fetch(1, MAX_FETCHED), fetch(0, 0, forgotten=MAX_FETCHED // 2 + 1)]
)
def test_a_fetch_that_wants_or_forgets_too_many_is_refused(request_: FetchRequest) -> None:
    with pytest.raises(TooManyElements, match=str(MAX_FETCHED)):
        decode_fetch_request(13, encode_fetch_request(13, request_))


@pytest.mark.parametrize("key", sorted(served(Role.BROKER).keys() | served(Role.CONTROLLER).keys()))
def test_every_api_has_its_limit(key: ApiKey) -> None:
    assert 0 < max_elements(key) <= MAX_ELEMENTS


@pytest.mark.parametrize(
    ("key", "array", "element"),
    [
        (ApiKey.LIST_OFFSETS, "partitions", {"partition_index": 0, "timestamp": -1}),
        pytest.param(
            ApiKey.OFFSET_COMMIT, "partitions", {"partition_index": 0, "committed_offset": 1}, marks=pytest.mark.slow
        ),
        (ApiKey.DELETE_RECORDS, "partitions", {"partition_index": 0, "offset": 1}),
        (ApiKey.OFFSET_FOR_LEADER_EPOCH, "partitions", {"partition": 0}),
    ],
)
def test_partitions_are_counted_over_all_topics(key: ApiKey, array: str, element: dict[str, int]) -> None:
    version = {ApiKey.OFFSET_COMMIT: 9}.get(key, 4 if key == ApiKey.OFFSET_FOR_LEADER_EPOCH else 2)
    name = "topic" if key == ApiKey.OFFSET_FOR_LEADER_EPOCH else "name"

    def body(topics: int) -> bytes:
        return messages.encode_request(key, version, topics=[{name: "t", array: [element]}] * topics)

    limit = max_elements(key)
    real = REAL if limit == MAX_ELEMENTS else FOLLOWED
    assert len(messages.decode_request(key, version, body(real)).topics) == real
    with pytest.raises(TooManyElements):
        messages.decode_request(key, version, body(limit // 2 + 1))


def test_the_apis_of_large_clusters_have_room_for_all_their_partitions() -> None:
    large = {
        ApiKey.METADATA,
        ApiKey.LIST_OFFSETS,
        ApiKey.OFFSET_COMMIT,
        ApiKey.OFFSET_FETCH,
        ApiKey.DESCRIBE_CONFIGS,
        ApiKey.WRITE_TXN_MARKERS,
    }
    assert {key for key in ApiKey if max_elements(key) >= 2 * REAL} == large
    assert max_elements(ApiKey.DELETE_TOPICS) == DEFAULT_MAX_ELEMENTS
    isr = [{"broker_id": at, "broker_epoch": 1} for at in range(3)]
    topics = [
        {"topic_id": UUID(int=at + 1), "partitions": [{"partition_index": 0, "new_isr_with_epochs": isr}]}
        for at in range(FOLLOWED)
    ]
    body = messages.encode_request(ApiKey.ALTER_PARTITION, 3, broker_id=1, broker_epoch=1, topics=topics)
    assert len(messages.decode_request(ApiKey.ALTER_PARTITION, 3, body).topics) == FOLLOWED


def test_a_member_has_few_protocols() -> None:
    limit = max_elements(ApiKey.JOIN_GROUP)
    protocols = [{"name": "p", "metadata": b""}] * (limit + 1)
    body = messages.encode_request(ApiKey.JOIN_GROUP, 9, group_id="g", protocols=protocols)
    with pytest.raises(TooManyElements, match=f"more than {limit} elements"):
        messages.decode_request(ApiKey.JOIN_GROUP, 9, body)


def test_null_arrays_give_nothing_back() -> None:
    reader = Reader(bytes(30), max_elements=2)
    for _ in range(5):
        assert reader.compact_array() == -1
    reader.take(2)
    with pytest.raises(TooManyElements):
        reader.take(1)


def tagged_fields(count: int) -> bytearray:
    out = Writer()
    out.uvarint(count)
    for at in range(count):
        out.tag(at + 100, b"")
    return out.data


def test_unknown_tagged_fields_count_as_elements() -> None:
    with pytest.raises(TooManyElements):
        Reader(tagged_fields(11), max_elements=10).skip_tags()
    with pytest.raises(TooManyElements):
        list(Reader(tagged_fields(11), max_elements=10).tags())


def test_elements_within_tagged_fields_count_with_the_others() -> None:
    inner = Writer()
    inner.compact_array(6)
    inner.raw(bytes(6))
    out = Writer()
    out.uvarint(1)
    out.tag(0, inner.data)
    reader = Reader(out.data, max_elements=10)
    for _, content in reader.tags():
        assert content.compact_array() == 6
    with pytest.raises(TooManyElements):
        reader.take(4)


def test_a_header_with_a_million_tagged_fields_is_refused() -> None:
    fixed = (3).to_bytes(2) + (12).to_bytes(2) + (1).to_bytes(4) + (-1).to_bytes(2, signed=True)
    with pytest.raises(TooManyElements):
        parse_request_header(memoryview(fixed + bytes(tagged_fields(1_000_000))))


@pytest.mark.parametrize("version", [9, 12])
def test_a_partition_with_many_tagged_fields_is_refused(version: int) -> None:
    body = bytearray(encode_produce_request(version, produce(1, 1)))
    assert body[-3:] == bytes(3), "partition, topic and request have no tagged fields"
    with pytest.raises(DecodeError, match="tagged fields"):
        decode_produce_request(version, bytes(body[:-3]) + bytes(tagged_fields(1_000)) + bytes(2))
