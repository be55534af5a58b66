"""ListOffsets, OffsetForLeaderEpoch, DeleteRecords, DescribeProducers, InitProducerId, DescribeLogDirs."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

import pytest

from milena.protocol.api_keys import ApiKey
from milena.protocol.records.batch import Codec
from milena.protocol.records.records import Record
from tests.oracle.differential.batches import THEN, batch
from tests.oracle.differential.pair import Answers, Pair, versions

SPECIAL: Final = (-1, -2, -3, -4, -5, -6, -7, -100)


def list_offsets(pair: Pair, version: int, topic: str, *partitions: Mapping[str, Any], **fields: Any) -> Answers:
    base: dict[str, Any] = {"partition_index": 0, "current_leader_epoch": -1, "timestamp": -1}
    asked: dict[str, Any] = {"replica_id": -1, "isolation_level": 0, **fields}
    topics = [{"name": topic, "partitions": [{**base, **one} for one in partitions]}]
    return pair.same(ApiKey.LIST_OFFSETS, version, topics=topics, **asked)


@pytest.fixture
def timed(pair: Pair, topic: str) -> str:
    """A topic with unordered timestamps, in uncompressed and compressed batches; partition 1 is empty."""
    pair.create(topic, partitions=2)
    for base, codec in ((0, Codec.NONE), (100, Codec.GZIP), (50, Codec.ZSTD), (300, Codec.NONE), (300, Codec.LZ4)):
        steps = [Record(0, 0, b"k", b"v"), Record(1, 20, b"k", b"v"), Record(2, 10, b"k", b"v")]
        pair.produce(topic, batch(steps, base_timestamp=THEN + base, codec=codec))
    return topic


@pytest.mark.parametrize("version", versions(ApiKey.LIST_OFFSETS))
def test_list_offsets(pair: Pair, timed: str, version: int) -> None:
    for timestamp in SPECIAL:
        for replica in (-1, -2):
            fields = {"replica_id": replica}
            list_offsets(pair, version, timed, {"timestamp": timestamp}, **fields)
            list_offsets(pair, version, timed, {"timestamp": timestamp, "partition_index": 1}, **fields)
        list_offsets(pair, version, timed, {"timestamp": timestamp}, isolation_level=1)
    for offset in (-THEN, -1, 0, 5, 10, 15, 20, 21, 50, 60, 100, 101, 110, 120, 121, 299, 300, 310, 320, 321, THEN):
        list_offsets(pair, version, timed, {"timestamp": THEN + offset})
    list_offsets(pair, version, timed, {}, {"partition_index": 1}, {"partition_index": 2}, {"partition_index": -1})
    list_offsets(pair, version, timed, {}, {})
    list_offsets(pair, version, timed, {}, {"timestamp": -2}, {"partition_index": 1})
    list_offsets(pair, version, "nowhere", {})
    list_offsets(pair, version, "a b", {})
    list_offsets(pair, version, timed)
    for epoch in (0, 1, 7, -1, -2):
        list_offsets(pair, version, timed, {"current_leader_epoch": epoch})
    list_offsets(pair, version, timed, {"timestamp": -1}, replica_id=7)


def test_time_in_log_append_time(pair: Pair, topic: str) -> None:
    pair.create(topic, message_timestamp_type="LogAppendTime")
    pair.produce(topic, batch(3))
    list_offsets(pair, 7, topic, {"timestamp": -3})  # two batches may have the same append time or different ones
    pair.produce(topic, batch(3, codec=Codec.GZIP))
    for timestamp in (0, THEN, THEN * 5000):
        list_offsets(pair, 7, topic, {"timestamp": timestamp})


@pytest.mark.parametrize("version", versions(ApiKey.OFFSET_FOR_LEADER_EPOCH))
def test_offset_for_leader_epoch(pair: Pair, topic: str, version: int) -> None:
    pair.create(topic, partitions=2)
    pair.produce(topic, batch(), batch())

    def ask(name: str, replica: int = -1, **partition: int) -> None:
        asked = {"partition": 0, "current_leader_epoch": -1, "leader_epoch": 0, **partition}
        topics = [{"topic": name, "partitions": [asked]}]
        pair.same(ApiKey.OFFSET_FOR_LEADER_EPOCH, version, replica_id=replica, topics=topics)

    for epoch in (0, 1, 5, -1):
        ask(topic, leader_epoch=epoch)
        ask(topic, leader_epoch=epoch, partition=1)
        ask(topic, leader_epoch=epoch, replica=-2)
        ask(topic, current_leader_epoch=epoch)
    ask(topic, partition=7)
    ask("nowhere")
    pair.same(ApiKey.OFFSET_FOR_LEADER_EPOCH, version, replica_id=-1, topics=[])


@pytest.mark.parametrize("version", versions(ApiKey.DELETE_RECORDS))
def test_delete_records(pair: Pair, topic: str, version: int) -> None:
    pair.create(topic, partitions=2)
    pair.create(f"{topic}-compacted", cleanup_policy="compact")
    pair.create(f"{topic}-both", cleanup_policy="compact,delete")
    pair.produce(topic, *[batch()] * 5)
    pair.produce(f"{topic}-compacted", batch())
    pair.produce(f"{topic}-both", batch())

    def delete(name: str, *wanted: tuple[int, int]) -> None:
        partitions = [{"partition_index": index, "offset": offset} for index, offset in wanted]
        topics = [{"name": name, "partitions": partitions}]
        pair.same(ApiKey.DELETE_RECORDS, version, topics=topics, timeout_ms=5000)

    delete(topic, (0, 2), (1, 0), (0, 1))
    delete("nowhere", (0, 0), (0, 0))
    for offset in (0, 3, 2, -2, 11, 10, 11, -1):
        delete(topic, (0, offset))
        list_offsets(pair, 7, topic, {"timestamp": -2}, {"partition_index": 1, "timestamp": -2})
        list_offsets(pair, 7, topic, {"timestamp": THEN})
        for first in (0, 2, 3, 10):
            part = {"partition": 0, "fetch_offset": first, "partition_max_bytes": 1 << 20}
            asked: dict[str, Any] = {"replica_id": -1, "min_bytes": 1, "max_bytes": 1 << 20, "session_epoch": -1}
            pair.same(ApiKey.FETCH, 11, topics=[{"topic": topic, "partitions": [part]}], **asked)
    delete(topic, (1, -1), (2, 0), (-1, 0))
    delete(topic, (1, 1))
    delete("nowhere", (0, 0))
    delete("__consumer_offsets", (0, 0))
    delete(f"{topic}-compacted", (0, 1))
    delete(f"{topic}-compacted", (0, -1))
    delete(f"{topic}-both", (0, 1))
    delete(topic)
    pair.same(ApiKey.DELETE_RECORDS, version, topics=[], timeout_ms=5000)


def test_describe_producers(pair: Pair, topic: str) -> None:
    pair.create(topic, partitions=2)
    for producer, epoch, sequence in ((40, 0, 0), (40, 0, 2), (41, 3, 9), (40, 1, 0)):
        pair.produce(topic, batch(producer_id=producer, producer_epoch=epoch, base_sequence=sequence))
    pair.produce(topic, batch())
    asked: dict[str, Any] = {"topics": [{"name": topic, "partition_indexes": [0, 1, 2, -1]}]}
    answers = pair.ask(ApiKey.DESCRIBE_PRODUCERS, 0, **asked)
    for answer in answers.both:
        for partition in answer["topics"][0]["partitions"]:
            partition["active_producers"].sort(key=lambda one: one["producer_id"])
    answers.check("DescribeProducers")
    pair.same(ApiKey.DESCRIBE_PRODUCERS, 0, topics=[{"name": "nowhere", "partition_indexes": [0]}])
    pair.same(ApiKey.DESCRIBE_PRODUCERS, 0, topics=[{"name": "a b", "partition_indexes": [0]}])
    pair.same(ApiKey.DESCRIBE_PRODUCERS, 0, topics=[])


@pytest.mark.parametrize("version", versions(ApiKey.INIT_PRODUCER_ID))
def test_init_producer_id(pair: Pair, version: int) -> None:
    def ask(transactional_id: str | None = None, **fields: int) -> None:
        asked: dict[str, Any] = {"transaction_timeout_ms": 60_000, "producer_id": -1, "producer_epoch": -1, **fields}
        asked["transactional_id"] = transactional_id
        pair.same(ApiKey.INIT_PRODUCER_ID, version, ignore={"producer_id"}, **asked)

    for known, epoch in ((-1, -1), (5, 3), (5, -1), (-1, 3), (-2, 0)):
        ask(producer_id=known, producer_epoch=epoch)
    for timeout in (0, -1, 2**31 - 1):
        ask(transaction_timeout_ms=timeout)
    ask("")


@pytest.mark.parametrize("version", versions(ApiKey.DESCRIBE_LOG_DIRS))
def test_describe_log_dirs(pair: Pair, topic: str, version: int) -> None:
    pair.create(topic, partitions=2)
    pair.produce(topic, batch())
    sizes = {"log_dir", "total_bytes", "usable_bytes"}
    for asked in ([{"topic": topic, "partitions": [0, 1]}], [{"topic": topic, "partitions": [1, 7]}], []):
        pair.same(ApiKey.DESCRIBE_LOG_DIRS, version, topics=asked, ignore=sizes)
    pair.same(ApiKey.DESCRIBE_LOG_DIRS, version, topics=[{"topic": "nowhere", "partitions": [0]}], ignore=sizes)
    answers = pair.ask(ApiKey.DESCRIBE_LOG_DIRS, version, topics=None)
    for answer in answers.both:
        answer["results"][0]["topics"] = [one for one in answer["results"][0]["topics"] if one["name"] == topic]
    answers.check("DescribeLogDirs of all topics", sizes)
