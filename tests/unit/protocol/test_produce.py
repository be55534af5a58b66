"""The hand codec of Produce beside kio's, byte by byte."""

from __future__ import annotations

import random
from uuid import UUID

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from milena.protocol.api_keys import ApiKey
from milena.protocol.requests import messages
from milena.protocol.requests.leaders import CurrentLeader, NodeEndpoint
from milena.protocol.requests.produce import (
    ProducedPartition,
    ProduceRequest,
    RecordError,
    decode_produce_request,
    decode_produce_response,
    encode_produce_request,
    encode_produce_response,
)
from milena.protocol.schemas.undecodable import DecodeError
from tests.fixtures.properties import examples
from tests.unit.protocol.kio_samples import kio_bytes, kio_class, sample

VERSIONS = range(3, 14)


@pytest.mark.parametrize("version", VERSIONS)
@settings(max_examples=examples(50))
@given(seed=st.integers(0, 2**32))
def test_requests_are_read_and_written_as_kio_does(version: int, seed: int) -> None:
    data = kio_bytes(sample(kio_class(ApiKey.PRODUCE, version, "request"), random.Random(seed)))
    request = decode_produce_request(version, memoryview(data))
    assert encode_produce_request(version, request) == data
    reference = messages.decode_request(ApiKey.PRODUCE, version, data)
    assert (request.transactional_id, request.acks, request.timeout_ms) == (
        reference.transactional_id,
        reference.acks,
        reference.timeout,
    )
    for (name, topic_id, partitions), topic in zip(request.topics, reference.topic_data, strict=True):
        assert name == messages.get(topic, "name", None)
        assert topic_id == messages.get(topic, "topic_id", None)
        assert [(index, records) for index, records in partitions] == [
            (partition.index, partition.records) for partition in topic.partition_data
        ]


@pytest.mark.parametrize("version", VERSIONS)
@settings(max_examples=examples(50))
@given(seed=st.integers(0, 2**32))
def test_responses_are_read_and_written_as_kio_does(version: int, seed: int) -> None:
    data = kio_bytes(sample(kio_class(ApiKey.PRODUCE, version, "response"), random.Random(seed)))
    assert encode_produce_response(version, *decode_produce_response(version, data)) == data


def test_records_are_views_of_the_frame() -> None:
    request = ProduceRequest(None, 1, 30_000, [("t", None, [(0, memoryview(b"batch")), (1, None)])])
    frame = bytearray(encode_produce_request(9, request))
    (topic,) = decode_produce_request(9, memoryview(frame)).topics
    (_, records), (_, absent) = topic[2]
    assert records is not None
    records[:2] = b"BA"
    assert b"BAtch" in frame
    assert absent is None


@pytest.mark.parametrize("version", VERSIONS)
def test_an_old_version_drops_what_it_lacks(version: int) -> None:
    refused = ProducedPartition(
        partition=2,
        error_code=87,
        log_append_time_ms=5,
        log_start_offset=3,
        record_errors=[RecordError(0, "no"), RecordError(1)],
        error_message="bad",
        current_leader=CurrentLeader(4, 5),
    )
    topic_id = UUID(int=1)
    endpoint = NodeEndpoint(4, "host", 9092)
    data = encode_produce_response(version, [("t", topic_id, [refused])], 7, [endpoint])
    read = decode_produce_response(version, data)
    ((name, read_id, (partition,)),) = read.topics
    assert (name, read_id) == ((None, topic_id) if version >= 13 else ("t", None))
    assert partition.log_start_offset == (3 if version >= 5 else -1)
    assert (len(partition.record_errors), partition.error_message) == ((2, "bad") if version >= 8 else (0, None))
    assert partition.current_leader == (CurrentLeader(4, 5) if version >= 10 else None)
    assert read.node_endpoints == ((endpoint,) if version >= 10 else ())


def test_unknown_tags_are_skipped_at_every_level() -> None:
    request = ProduceRequest(None, -1, 1, [("t", None, [(5, memoryview(b"batch"))])])
    data = encode_produce_request(9, request)
    assert data.endswith(b"batch\x00\x00\x00")
    tag = b"\x01\x63\x03abc"
    read = decode_produce_request(9, data[:-3] + tag * 3)
    assert read.topics == request.topics


@pytest.mark.parametrize("version", [3, 9, 13])
def test_every_truncation_is_refused_and_trailing_bytes_behind_a_response_are_too(version: int) -> None:
    topic = ("topic", None) if version < 13 else (None, UUID(int=7))
    request = ProduceRequest("txn", 1, 1, [(*topic, [(0, memoryview(b"0123456789"))])])
    response = [(*topic, [ProducedPartition(0, 87, record_errors=[RecordError(1, "x")], error_message="m")])]
    for decode, data in (
        (decode_produce_request, encode_produce_request(version, request)),
        (decode_produce_response, encode_produce_response(version, response)),
    ):
        decode(version, data)
        for size in range(len(data)):
            with pytest.raises(DecodeError):
                decode(version, data[:size])
    with pytest.raises(DecodeError, match="left over"):
        decode(version, data + b"\x00")


@pytest.mark.parametrize("version", [3, 9, 13])
def test_trailing_bytes_behind_a_request_are_ignored_as_kafka_does(version: int) -> None:
    data = encode_produce_request(version, ProduceRequest(None, 1, 1, []))
    assert decode_produce_request(version, data + b"more") == decode_produce_request(version, data)


@settings(max_examples=examples(300))
@given(st.sampled_from(VERSIONS), st.binary(max_size=80))
def test_any_bytes_are_read_or_refused(version: int, data: bytes) -> None:
    for decode in (decode_produce_request, decode_produce_response):
        try:
            decode(version, data)
        except DecodeError:
            continue


@pytest.mark.parametrize(
    ("version", "data"),
    [
        (3, "ffff 0001 00000001 7fffffff"),
        (3, "ffff 0001 00000001 ffffffff"),
        (3, "ffff 0001 00000001 00000001 0001 74 00000001 00000000 7fffffff"),
        (3, "ffff 0001 00000001 00000001 0001 74 00000001 00000000 fffffffe"),
        (9, "00 0001 00000001 ffffffff0f"),
        (9, "00 0001 00000001 00"),
        (9, "00 0001 00000001 02 02 74 02 00000000 ffffffff07"),
    ],
)
def test_impossible_lengths_are_refused(version: int, data: str) -> None:
    with pytest.raises(DecodeError):
        decode_produce_request(version, bytes.fromhex(data))


def test_a_topic_must_be_named_in_the_way_of_the_version() -> None:
    with pytest.raises(ValueError, match="names topics by id"):
        encode_produce_response(13, [("t", None, [])])
    with pytest.raises(ValueError, match="names topics by name"):
        encode_produce_response(12, [(None, UUID(int=1), [])])


@pytest.mark.parametrize("version", [8, 9])
def test_errors_of_a_partition_go_out_even_where_they_quote_too_much(version: int) -> None:
    result = ProducedPartition(0, 87, record_errors=(RecordError(0, "r" * 40_000),), error_message="e" * 40_000)
    answer = encode_produce_response(version, [("t", None, [result])])
    found = decode_produce_response(version, answer).topics[0][2][0]
    assert found.error_message == "e" * 8_188 + "..." and tuple(found.record_errors) == ((0, "r" * 8_188 + "..."),)
