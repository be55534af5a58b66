"""Produce: invalid batches of all kinds, and requests that producers may not send."""

from __future__ import annotations

import time
from collections.abc import Mapping
from itertools import combinations
from typing import Any, Final

import pytest

from milena.protocol.api_keys import ApiKey
from milena.protocol.errors import ErrorCode
from milena.protocol.records.batch import Codec, TimestampType
from milena.protocol.records.records import Record
from tests.oracle.differential.batches import THEN, batch, forged, old_message, records, with_body
from tests.oracle.differential.pair import Answers, Pair, versions
from tests.oracle.differential.sides import Name

VERSIONS: Final = list(versions(ApiKey.PRODUCE))
GOOD: Final = batch()
HOUR: Final = 3_600_000
BIG: Final = batch(records(1, value=b"x" * 1_100_000))


def produce(
    pair: Pair,
    version: int,
    topic: str,
    *batches: bytes,
    partition: int = 0,
    acks: int = -1,
    transactional_id: str | None = None,
    topic_id: Any = None,
    client_id: str | None = "differ",
) -> Answers:
    """Send one request with each batch in its own partition and return both responses, which must be the same."""
    data = [{"index": partition + index, "records": one} for index, one in enumerate(batches)]
    return pair.same(
        ApiKey.PRODUCE,
        version,
        client_id=client_id,
        transactional_id=transactional_id,
        acks=acks,
        timeout_ms=10_000,
        topic_data=[
            {
                "name": topic,
                "topic_id": Name(f"id of {topic}") if topic_id is None else topic_id,
                "partition_data": data,
            }
        ],
    )


WRONG: Final[Mapping[str, bytes]] = {
    "empty": b"",
    "ten bytes": GOOD[:10],
    "sixteen bytes": GOOD[:16],
    "the header alone": GOOD[:61],
    "cut short": GOOD[:-1],
    "one byte more": GOOD + b"\0",
    "two batches": GOOD + GOOD,
    "a batch and a half": GOOD + GOOD[:-5],
    "wrong checksum": forged(GOOD, crc=1),
    "length 0": forged(GOOD, length=0),
    "length negative": forged(GOOD, length=-5),
    "length too small": forged(GOOD, length=13),
    "length of a header less one": forged(GOOD, length=48),
    "length too large": forged(GOOD, length=10_000),
    "magic 0 in a v2 batch": forged(GOOD, magic=0),
    "magic 1 in a v2 batch": forged(GOOD, magic=1),
    "magic 3": forged(GOOD, magic=3),
    "magic -1": forged(GOOD, magic=-1),
    "magic 0": old_message(0),
    "magic 1": old_message(1),
    "base offset 5": forged(GOOD, base_offset=5),
    "base offset -1": forged(GOOD, base_offset=-1),
    "count 0": forged(GOOD, count=0),
    "count -1": forged(GOOD, count=-1),
    "count 1 of 2": forged(GOOD, count=1),
    "count 3 of 2": forged(GOOD, count=3),
    "count and delta of 3": forged(GOOD, count=3, last_offset_delta=2),
    "count and delta of 1": forged(GOOD, count=1, last_offset_delta=0),
    "count and delta of 0": forged(GOOD, count=0, last_offset_delta=-1),
    "last offset delta 5": forged(GOOD, last_offset_delta=5),
    "last offset delta -1": forged(GOOD, last_offset_delta=-1),
    "a control batch": forged(GOOD, attributes=0x20),
    "transactional": forged(GOOD, attributes=0x10),
    "transactional control": forged(GOOD, attributes=0x30, producer_id=7, producer_epoch=0, base_sequence=0),
    "delete horizon": forged(GOOD, attributes=0x40),
    "unknown attributes": forged(GOOD, attributes=0x4000),
    "LogAppendTime": forged(GOOD, attributes=8),
    "no records in it": forged(GOOD[:61], length=49, count=0, last_offset_delta=-1),
    "records cut short": with_body(GOOD, GOOD[61:-3]),
    "records and more": with_body(GOOD, GOOD[61:] + b"\1\2\3"),
    "records of zeros": with_body(GOOD, bytes(20)),
    "record length negative": with_body(GOOD, b"\x01" + GOOD[62:]),
    "a record of 2 GiB": with_body(batch(1), b"\xfe\xff\xff\xff\x0f" + b"x" * 20),
    "a header key that is no UTF-8": with_body(batch(1), b"\x16\0\0\0\x02k\x02v\x02\x02\xff\x01"),
    "record attributes": with_body(batch(1), b"\x10\x07\0\0\x02k\x02v\0"),
    "a varint of eleven bytes": with_body(batch(1), b"\x2a\0" + b"\xff" * 11 + b"\0\0\0\0\0\0\0\0"),
    "offset gaps": batch([Record(0, 0, b"k", b"v"), Record(2, 0, b"k", b"v")]),
    "offset gaps but counted": forged(batch([Record(0, 0, b"k", b"v"), Record(2, 0, b"k", b"v")]), last_offset_delta=1),
    "offsets backwards": forged(batch([Record(1, 0, b"k", b"v"), Record(0, 0, b"k", b"v")]), last_offset_delta=1),
    "sequence -1 with a producer": forged(GOOD, producer_id=7, producer_epoch=0, base_sequence=-1),
    "sequence -5 with a producer": forged(GOOD, producer_id=7, producer_epoch=0, base_sequence=-5),
    "epoch -1 with a producer": forged(GOOD, producer_id=7, producer_epoch=-1, base_sequence=0),
    "sequence without a producer": forged(GOOD, base_sequence=3),
    "producer id -2": forged(GOOD, producer_id=-2, producer_epoch=0, base_sequence=0),
    "max timestamp too small": forged(GOOD, max_timestamp=5),
    "max timestamp too large": forged(GOOD, max_timestamp=THEN * 2),
    "no timestamps": batch(base_timestamp=-1, max_timestamp=-1),
    "negative timestamps": batch(base_timestamp=-50),
    "too large": BIG,
    "too large and damaged": forged(BIG, crc=3),
    "leader epoch 9": forged(GOOD, leader_epoch=9),
    "no key": batch(records(2, key=None)),
    "no value": batch(records(2, value=None)),
}
GOOD_ONES: Final[Mapping[str, bytes]] = {
    "one": batch(1),
    **{codec.name.lower(): batch(5, codec=codec) for codec in Codec},
    "headers": batch([Record(0, 0, b"k", b"v", (("a", b"1"), ("b", None)))]),
    "a producer's": batch(producer_id=8, producer_epoch=0, base_sequence=0),
}


@pytest.mark.parametrize("name", [*WRONG, *GOOD_ONES])
def test_batches(pair: Pair, topic: str, name: str) -> None:
    pair.create(topic)
    for version in (3, 7, 8, 10, 13):
        produce(pair, version, topic, {**WRONG, **GOOD_ONES}[name])


FAULTS: Final[Mapping[str, dict[str, Any]]] = {
    "base offset": {"base_offset": 5},
    "max.message.bytes": {"size": 6_000},
    "segment": {"size": 3_000},
    "checksum": {"crc": 1},
    "count": {"count": 3},
    "control batch": {"attributes": 0x20},
    "no key": {"key": None},
    "timestamp": {"base_timestamp": THEN},
    "sequence": {"base_sequence": 5},
    "duplicate": {"base_sequence": 0},
    "negative sequence": {"base_sequence": -1},
    "epoch": {"producer_epoch": 0},
    "unknown producer": {"producer_id": 70_001},
}
"""Fields of a batch that a topic refuses."""
_BUILT: Final = ("base_timestamp", "base_sequence", "producer_id", "producer_epoch")


def faulty(fields: Mapping[str, Any]) -> bytes:
    """Return a batch of the producer 70,000 in its epoch 1, with these faults."""
    good: dict[str, Any] = {"producer_id": 70_000, "producer_epoch": 1, "base_sequence": 1}
    good["base_timestamp"] = int(time.time() * 1000)
    built = good | {name: value for name, value in fields.items() if name in _BUILT}
    one = records(1, key=fields.get("key", b"k"), value=b"x" * fields.get("size", 5))
    changed = {name: value for name, value in fields.items() if name not in (*_BUILT, "key", "size")}
    return forged(batch(one, **built), **changed)


def test_two_faults_in_one_batch(pair: Pair, topic: str) -> None:
    """The error shows which of two checks comes first."""
    limits = {"internal_segment_bytes": 1_500, "max_message_bytes": 5_000, "message_timestamp_before_max_ms": HOUR}
    pair.create(topic, cleanup_policy="compact", **limits)
    produce(pair, 9, topic, faulty({"base_sequence": 0}))
    for first, second in combinations(FAULTS, 2):
        produce(pair, 9, topic, faulty(FAULTS[first] | FAULTS[second]))
        produce(pair, 9, topic, faulty(FAULTS[second] | FAULTS[first]))


@pytest.mark.parametrize(
    ("wrong", "kafka", "milena"),
    [
        (forged(GOOD, length=2**31 - 1), ErrorCode.UNKNOWN_SERVER_ERROR, ErrorCode.INVALID_RECORD),
        (forged(GOOD, attributes=5), ErrorCode.UNKNOWN_SERVER_ERROR, ErrorCode.UNSUPPORTED_COMPRESSION_TYPE),
        (forged(GOOD, attributes=7), ErrorCode.UNKNOWN_SERVER_ERROR, ErrorCode.UNSUPPORTED_COMPRESSION_TYPE),
    ],
    ids=["length of 2 GiB", "codec 5", "codec 7"],
)
def test_where_kafka_fails_milena_has_a_code(
    pair: Pair, topic: str, wrong: bytes, kafka: ErrorCode, milena: ErrorCode
) -> None:
    pair.create(topic)
    assert _codes(_ask(pair, topic, wrong)) == (kafka, milena)


def _ask(pair: Pair, topic: str, records: bytes) -> Answers:
    data = [{"name": topic, "partition_data": [{"index": 0, "records": records}]}]
    return pair.ask(ApiKey.PRODUCE, 9, acks=-1, timeout_ms=10_000, topic_data=data)


def _codes(answers: Answers) -> tuple[int, ...]:
    return tuple(answer["responses"][0]["partition_responses"][0]["error_code"] for answer in answers.both)


@pytest.mark.parametrize("version", VERSIONS)
def test_partitions_and_topics(pair: Pair, topic: str, version: int) -> None:
    pair.create(topic, partitions=2)
    produce(pair, version, topic, GOOD, GOOD)
    produce(pair, version, topic, GOOD, GOOD, GOOD)
    produce(pair, version, topic, GOOD, forged(GOOD, crc=1))
    produce(pair, version, topic, GOOD, partition=-1)
    produce(pair, version, topic, GOOD, partition=9)
    for name in ("nowhere-to-be-found", "", "a b", "x" * 250, "__cluster_metadata"):
        pair.same(
            ApiKey.PRODUCE,
            version,
            acks=1,
            timeout_ms=1000,
            topic_data=[
                {"name": name, "topic_id": _unknown(version), "partition_data": [{"index": 0, "records": GOOD}]}
            ],
        )
    produce(pair, version, "__consumer_offsets", GOOD, topic_id=pair.id_of("__consumer_offsets"))
    produce(pair, version, topic, GOOD, acks=2)
    produce(pair, version, topic, GOOD, acks=-2)
    produce(pair, version, topic, GOOD, acks=1)


def _unknown(version: int) -> Any:
    from uuid import UUID

    return UUID(int=77 if version == 13 else 0)


@pytest.mark.parametrize(
    "configs",
    [
        {"cleanup_policy": "compact"},
        {"cleanup_policy": "compact,delete"},
        {"message_timestamp_type": "LogAppendTime"},
        {"message_timestamp_before_max_ms": HOUR},
        {"message_timestamp_after_max_ms": 10 * HOUR},
        {"compression_type": "gzip"},
        {"compression_type": "lz4"},
        {"compression_type": "uncompressed"},
        {"max_message_bytes": 80},
        {"min_insync_replicas": 2},
        {"max_message_bytes": 2_000_000, "segment_bytes": 1_048_576},
        {"cleanup_policy": "compact", "compression_type": "zstd"},
    ],
    ids=str,
)
def test_topics_with_configs(pair: Pair, topic: str, configs: Mapping[str, Any]) -> None:
    name = f"{topic[:60]}-{abs(hash(str(configs)))}"
    pair.create(name, **configs)
    now = int(time.time() * 1000)
    later = now + 2 * HOUR
    for one in (
        GOOD,
        batch(5, codec=Codec.GZIP),
        batch(5, codec=Codec.LZ4, base_timestamp=now),
        batch(records(2, key=None)),
        batch(records(2, key=None), codec=Codec.SNAPPY, base_timestamp=now),
        batch([Record(0, 0, b"k", b"v"), Record(1, 0, None, b"v"), Record(2, 0, None, b"v")]),
        batch(base_timestamp=later),
        batch(base_timestamp=later, codec=Codec.ZSTD),
        batch([Record(0, 0, b"k", b"v"), Record(1, 4 * HOUR, b"k", b"v")], base_timestamp=now),
        batch(base_timestamp=now + 11 * HOUR),
        batch(base_timestamp=now),
        batch(base_timestamp=-1, max_timestamp=-1),
        batch(timestamp_type=TimestampType.LOG_APPEND_TIME),
        batch(timestamp_type=TimestampType.LOG_APPEND_TIME, codec=Codec.GZIP, base_timestamp=now),
        batch(1, codec=Codec.ZSTD),
        batch(records(1, value=b"x" * 100_000), codec=Codec.GZIP),
        BIG,
        batch(records(1, key=None, value=b"x" * 1_100_000), codec=Codec.GZIP),
    ):
        for version in (3, 8, 12):
            produce(pair, version, name, one)


def test_sequences(pair: Pair, topic: str) -> None:
    pair.create(topic)

    def send(epoch: int, sequence: int, count: int = 2, producer: int = 500) -> None:
        one = batch(count, producer_id=producer, producer_epoch=epoch, base_sequence=sequence)
        for version in (3, 9, 12):
            produce(pair, version, topic, one)

    send(0, 0)
    send(0, 0)
    send(0, 0, 3)
    send(0, 0, 1)
    send(0, 1)
    send(0, 2)
    send(0, 5)
    send(0, 3)
    for sequence in range(4, 20, 2):
        send(0, sequence)
    send(0, 2)
    send(0, 12)
    send(0, 10)
    send(1, 20)
    send(1, 5)
    send(1, 0)
    send(0, 20)
    send(0, 0)
    send(1, 2)
    send(3, 1)
    send(3, 0)
    send(2, 0)
    send(0, 7, producer=501)
    send(0, 9, producer=501)
    send(0, 0, producer=501)
    send(5, 2**31 - 3, producer=502)
    send(5, 2**31 - 1, producer=502)
    send(5, 0, producer=502)
    send(5, 1, producer=502)
    send(0, 2**31 - 2, 4, producer=503)
    send(0, 2, 4, producer=503)
    send(0, 2**31 - 2, 4, producer=503)
    send(-1, 0, producer=504)
    send(0, 0, producer=504)
    send(32767, 0, producer=505)


def test_two_producers_in_one_request(pair: Pair, topic: str) -> None:
    pair.create(topic, partitions=2)
    one = batch(producer_id=600, producer_epoch=0, base_sequence=0)
    other = batch(producer_id=601, producer_epoch=0, base_sequence=0)
    for version in VERSIONS:
        produce(pair, version, topic, one, other)
        produce(pair, version, topic, one, one)
        produce(pair, version, topic, GOOD, other)


def test_internal_topics_are_for_the_admin_client(pair: Pair) -> None:
    offsets = pair.id_of("__consumer_offsets")
    for version in (9, 13):
        for client_id in ("differ", "__admin_client", None, ""):
            data = forged(GOOD, crc=1)
            produce(pair, version, "__consumer_offsets", data, topic_id=offsets, client_id=client_id)


def test_no_acks(pair: Pair, topic: str) -> None:
    pair.create(topic)
    for data in (GOOD, forged(GOOD, crc=1), b"", BIG):
        for where, index in ((topic, 0), (topic, 7), ("nowhere-at-all", 0)):
            partitions = [{"index": index, "records": data}]
            topics = [{"name": where, "partition_data": partitions}]
            pair.send(ApiKey.PRODUCE, 9, acks=0, timeout_ms=1000, topic_data=topics)
            pair.send(ApiKey.METADATA, 9, topics=[], allow_auto_topic_creation=False)
            pair.receive(ApiKey.METADATA, 9).check(f"after acks=0 {where} {index}")
    pair.same(ApiKey.LIST_OFFSETS, 7, replica_id=-1, topics=[{"name": topic, "partitions": [{"timestamp": -1}]}])


def test_stored_batches(pair: Pair, topic: str) -> None:
    """Fetched batches are the appended ones, with the timestamps, codecs and epochs that the broker sets."""
    choices: list[dict[str, Any]] = [
        {},
        {"message_timestamp_type": "LogAppendTime"},
        *({"compression_type": name} for name in ("uncompressed", "gzip", "snappy", "lz4", "zstd")),
    ]
    for configs in choices:
        name = f"{topic}-{'-'.join(configs.values())}"
        pair.create(name, **configs)
        for good in (
            *GOOD_ONES.values(),
            forged(GOOD, leader_epoch=7),
            forged(GOOD, attributes=0x4000),
            forged(GOOD, attributes=0x40),
            forged(GOOD, base_sequence=3),
        ):
            produce(pair, 9, name, good)
        asked = {"partition": 0, "fetch_offset": 0, "partition_max_bytes": 1 << 20}
        pair.same(
            ApiKey.FETCH,
            11,
            max_wait_ms=0,
            min_bytes=1,
            max_bytes=1 << 20,
            session_epoch=-1,
            topics=[{"topic": name, "partitions": [asked]}],
            ignore={"records"} if "message_timestamp_type" in configs else (),
        )
