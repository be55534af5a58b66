"""Produce: batches with a valid checksum and invalid records, in every codec.

Milena returns INVALID_RECORD for all invalid records: an error code on which no client retries.
"""

from __future__ import annotations

import re
import time
from collections.abc import Callable, Mapping
from functools import partial
from typing import Any, Final

import cramjam
import pytest

from milena.protocol.api_keys import ApiKey
from milena.protocol.errors import ErrorCode
from milena.protocol.records.batch import HEADER_SIZE, Codec
from milena.protocol.records.compression import compress
from milena.protocol.records.records import Record
from tests.oracle.differential.batches import THEN, batch, forged, records, with_body
from tests.oracle.differential.pair import Answers, Pair, eventually

COMPRESSORS: Final[Mapping[str, tuple[Codec, Callable[[bytes], bytes]]]] = {
    **{codec.name.lower(): (codec, partial(compress, codec)) for codec in Codec},
    "bare snappy": (Codec.SNAPPY, lambda data: bytes(cramjam.snappy.compress_raw(data))),
}
GOOD: Final = batch(5)
BODY: Final = GOOD[HEADER_SIZE:]
ONE: Final = batch(1)


def one_record(hexadecimal: str) -> tuple[bytes, bytes]:
    return ONE, bytes.fromhex(hexadecimal)


WRONG: Final[Mapping[str, tuple[bytes, bytes]]] = {
    "fewer than counted": (forged(GOOD, count=6, last_offset_delta=5), BODY),
    "more than counted": (forged(GOOD, count=4, last_offset_delta=3), BODY),
    "a thousand claimed": (forged(GOOD, count=1000, last_offset_delta=999), BODY),
    "cut short": (GOOD, BODY[:-3]),
    "a byte behind": (GOOD, BODY + b"\0"),
    "more behind": (GOOD, BODY + b"\1\2\3"),
    "zeros": (GOOD, bytes(20)),
    "nothing": (GOOD, b""),
    "rubbish": (GOOD, b"\xff" * 50),
    "a record without fields": one_record("00"),
    "a negative length": one_record("01"),
    "a key length of -2 and a value cut": one_record("0c00000003 0276"),
    "a key beyond the record": one_record("0e0000007e6b0276"),
    "a value beyond the record": one_record("0e000000026b7e76"),
    "a header count of -1": one_record("10000000026b027601"),
    "a header count beyond the record": one_record("10000000026b027602"),
    "a header without a key": one_record("14000000026b0276020101"),
    "a varint of six bytes": one_record("18000000ffffffffffff0100"),
    "a varint of eleven bytes": one_record("2a00ffffffffffffffffffffff0000000000000000"),
    "a record of 2 GiB": one_record("feffffff0f00"),
}
STORED: Final[Mapping[str, bytes]] = {
    "a key length of -2": with_body(ONE, bytes.fromhex("0c000000030100")),
    "a header key that is no UTF-8": with_body(ONE, bytes.fromhex("16000000026b02760202ff01")),
    "a largest timestamp that is too small": forged(GOOD, max_timestamp=5),
    "a largest timestamp that is too large": forged(GOOD, max_timestamp=THEN + 10**6),
    "negative timestamps": batch(base_timestamp=-50),
}
OUT_OF_ORDER: Final[Mapping[str, tuple[int, ...]]] = {
    "gaps": (0, 2, 7),
    "backwards": (2, 1, 0),
    "one number": (0, 0, 0),
}
SPOILED: Final[Mapping[str, Callable[[bytes], bytes]]] = {
    "rubbish": lambda stream: b"rubbish that is no stream",
    "cut": lambda stream: stream[:-3],
    "cut by one": lambda stream: stream[:-1],
    "half": lambda stream: stream[: len(stream) // 2],
    "empty": lambda stream: b"",
    "bytes behind": lambda stream: stream + b"\1\2\3",
    "twice": lambda stream: stream + stream,
}
KAFKA_READS_NO_FURTHER: Final = {
    ("gzip", "bytes behind"),
    ("snappy", "bytes behind"),
    ("lz4", "bytes behind"),
    ("lz4", "twice"),
}
COMPRESSED: Final = [name for name in COMPRESSORS if name != "none"]


def in_codec(name: str, header: bytes, body: bytes) -> bytes:
    codec, packed = COMPRESSORS[name]
    return with_body(forged(header, attributes=codec), packed(body))


def ask(pair: Pair, topic: str, data: bytes) -> Answers:
    partitions = [{"index": 0, "records": data}]
    return pair.ask(
        ApiKey.PRODUCE, 9, acks=-1, timeout_ms=10_000, topic_data=[{"name": topic, "partition_data": partitions}]
    )


def codes(answers: Answers) -> tuple[ErrorCode, ...]:
    return tuple(ErrorCode(answer["responses"][0]["partition_responses"][0]["error_code"]) for answer in answers.both)


def read_alike(pair: Pair, topic: str) -> None:
    """Assert that stored records, and offsets found by timestamp, are the same on both sides."""
    asked = {"partition": 0, "fetch_offset": 0, "partition_max_bytes": 1 << 20}
    pair.same(
        ApiKey.FETCH,
        11,
        max_wait_ms=0,
        min_bytes=1,
        max_bytes=1 << 20,
        session_epoch=-1,
        topics=[{"topic": topic, "partitions": [asked]}],
    )
    for timestamp in (-3, 0, 5, THEN, THEN + 3, THEN + 100):
        topics = [{"name": topic, "partitions": [{"timestamp": timestamp}]}]
        pair.same(ApiKey.LIST_OFFSETS, 7, replica_id=-1, topics=topics)


@pytest.mark.parametrize("codec", list(COMPRESSORS))
@pytest.mark.parametrize("name", list(WRONG))
def test_bytes_that_are_no_records_are_refused(pair: Pair, topic: str, name: str, codec: str) -> None:
    pair.create(topic)
    kafka, milena = codes(ask(pair, topic, in_codec(codec, *WRONG[name])))
    assert milena is ErrorCode.INVALID_RECORD
    fails = (name, codec) == ("rubbish", "none")
    assert kafka is (ErrorCode.UNKNOWN_SERVER_ERROR if fails else ErrorCode.INVALID_RECORD)


@pytest.mark.parametrize("codec", list(COMPRESSORS))
@pytest.mark.parametrize("name", list(STORED))
def test_a_stored_batch_has_the_largest_timestamp_of_its_records(pair: Pair, topic: str, name: str, codec: str) -> None:
    pair.create(topic)
    data = STORED[name]
    assert codes(ask(pair, topic, in_codec(codec, data, data[HEADER_SIZE:]))) == (ErrorCode.NONE, ErrorCode.NONE)
    read_alike(pair, topic)


@pytest.mark.parametrize("codec", COMPRESSED)
@pytest.mark.parametrize("name", list(SPOILED))
def test_invalid_compressed_streams_are_refused(pair: Pair, topic: str, name: str, codec: str) -> None:
    """Kafka fails on most of them. It stores bytes after the end of a stream, which only Java's decompressors read."""
    pair.create(topic)
    good = in_codec(codec, GOOD, BODY)
    kafka, milena = codes(ask(pair, topic, with_body(good, SPOILED[name](good[HEADER_SIZE:]))))
    assert milena is ErrorCode.INVALID_RECORD
    assert (kafka is ErrorCode.NONE) == ((codec, name) in KAFKA_READS_NO_FURTHER)


@pytest.mark.parametrize("codec", list(COMPRESSORS))
def test_records_above_the_decompressed_limit(pair: Pair, topic: str, codec: str) -> None:
    """``max.decompressed.message.bytes`` counts a compressed record without its length."""
    pair.create(topic, max_decompressed_message_bytes=500)
    without_value = 8  # attributes, deltas, the lengths of key and value, the key, the number of headers
    for size in (499 - without_value, 500 - without_value, 501 - without_value):
        one = batch([Record(0, 0, b"k", b"v"), Record(1, 1, b"k", b"x" * size), Record(2, 2, b"k", b"v")])
        kafka, milena = codes(ask(pair, topic, in_codec(codec, one, one[HEADER_SIZE:])))
        assert kafka is milena, size
    read_alike(pair, topic)


@pytest.mark.parametrize("codec", list(COMPRESSORS))
def test_a_lowered_limit_holds_for_the_search_by_time(pair: Pair, topic: str, codec: str) -> None:
    pair.create(topic)
    one = batch([Record(0, 0, b"k", b"v"), Record(1, 1, b"k", b"x" * 600), Record(2, 2, b"k", b"v")])
    assert codes(ask(pair, topic, in_codec(codec, one, one[HEADER_SIZE:]))) == (ErrorCode.NONE, ErrorCode.NONE)
    change = {"name": "max.decompressed.message.bytes", "config_operation": 0, "value": "500"}
    resources = [{"resource_type": 2, "resource_name": topic, "configs": [change]}]
    pair.same(ApiKey.INCREMENTAL_ALTER_CONFIGS, 1, resources=resources)
    limited = ErrorCode.NONE if codec == "none" else ErrorCode.INVALID_RECORD

    def found(timestamp: int) -> tuple[ErrorCode, ...]:
        topics = [{"name": topic, "partitions": [{"timestamp": timestamp}]}]
        answers = pair.same(ApiKey.LIST_OFFSETS, 7, replica_id=-1, topics=topics)
        return tuple(ErrorCode(answer["topics"][0]["partitions"][0]["error_code"]) for answer in answers.both)

    def look() -> None:
        assert found(THEN + 1) == (limited, limited)

    eventually(look)
    assert found(THEN) == (ErrorCode.NONE, ErrorCode.NONE)
    assert found(-3) == (limited, limited)


@pytest.mark.parametrize("codec", COMPRESSED)
def test_the_length_of_a_compressed_record_is_that_of_its_fields(pair: Pair, topic: str, codec: str) -> None:
    """Kafka's broker does not check the length; its consumers fail at that offset."""
    pair.create(topic)
    wrong = in_codec(codec, *one_record("20000000026b027600"))
    assert codes(ask(pair, topic, wrong)) == (ErrorCode.NONE, ErrorCode.INVALID_RECORD)


@pytest.mark.parametrize("codec", list(COMPRESSORS))
@pytest.mark.parametrize("name", list(OUT_OF_ORDER))
def test_offsets_that_are_not_in_order(pair: Pair, topic: str, name: str, codec: str) -> None:
    """Kafka stores such records in uncompressed batches. In compressed ones it tries to reassign offsets, and fails."""
    pair.create(topic)
    one = batch([Record(at, 0, b"k", b"v") for at in OUT_OF_ORDER[name]], last_offset_delta=2)
    answers = ask(pair, topic, in_codec(codec, one, one[HEADER_SIZE:]))
    if codec == "none":
        assert codes(answers) == (ErrorCode.NONE, ErrorCode.NONE)
        read_alike(pair, topic)
    else:
        assert codes(answers) == (ErrorCode.UNKNOWN_SERVER_ERROR, ErrorCode.INVALID_RECORD)


@pytest.mark.parametrize("codec", list(COMPRESSORS))
@pytest.mark.parametrize("name", list(OUT_OF_ORDER))
def test_offsets_are_assigned_again_if_the_topic_has_another_codec(
    pair: Pair, topic: str, name: str, codec: str
) -> None:
    pair.create(topic, compression_type="lz4" if codec != "lz4" else "gzip")
    one = batch([Record(at, 0, b"k", b"v") for at in OUT_OF_ORDER[name]], last_offset_delta=2)
    assert codes(ask(pair, topic, in_codec(codec, one, one[HEADER_SIZE:]))) == (ErrorCode.NONE, ErrorCode.NONE)
    read_alike(pair, topic)


@pytest.mark.parametrize("codec", list(COMPRESSORS))
def test_refused_records_are_named_in_the_response(pair: Pair, topic: str, codec: str) -> None:
    pair.create(topic, cleanup_policy="compact", message_timestamp_before_max_ms=3_600_000)
    mixed = batch(
        [Record(0, 0, b"k", b"v"), Record(1, 0, None, b"v"), Record(2, 5, b"k", b"v"), Record(3, 0, None, b"")]
    )
    for one in (mixed, batch(records(3, key=None), base_timestamp=-1, max_timestamp=-1)):
        data = in_codec(codec, one, one[HEADER_SIZE:])
        topics = [{"name": topic, "partition_data": [{"index": 0, "records": data}]}]
        pair.same(ApiKey.PRODUCE, 9, acks=-1, timeout_ms=10_000, topic_data=topics)


@pytest.mark.parametrize("codec", ["none", "zstd"])
@pytest.mark.parametrize("policy", ["compact", "compact,delete"])
def test_records_without_a_key_are_refused_with_kafkas_message(pair: Pair, topic: str, policy: str, codec: str) -> None:
    """The user of a producer to a compacted topic reads this message."""
    pair.create(topic, cleanup_policy=policy, message_timestamp_before_max_ms=3_600_000)
    now = int(time.time() * 1000)
    one = [Record(0, 0, b"k", b"v"), Record(1, 0, None, b"v"), Record(2, 0, b"", b"v")]
    old = [Record(0, 0, None, b"v"), Record(1, -4_000_000, b"k", b"v"), Record(2, -4_000_000, None, b"v")]
    for some in (one, records(5, key=None), old):
        data = batch(some, base_timestamp=now)
        kafka, milena = (
            _refusal(answer) for answer in ask(pair, topic, in_codec(codec, data, data[HEADER_SIZE:])).both
        )
        assert milena == kafka


def _refusal(answer: Any) -> object:
    """Return the refusal without timestamps, which differ between the brokers."""
    found = answer["responses"][0]["partition_responses"][0]
    errors = [(one["batch_index"], one["batch_index_error_message"]) for one in found["record_errors"]]
    return found["error_code"], re.sub(r"\d{6,}", "N", f"{found['error_message']} {errors}")
