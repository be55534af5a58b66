"""What others make of a topic that Milena has cleaned: Kafka's tools, its consumer, a worker of Connect, other clients.

The log has gaps, tombstones and batches without records, at its end, too: the active segment is empty.
"""

from __future__ import annotations

import asyncio
import json
import re
import shutil
import subprocess
import time
from collections.abc import Iterator, Sequence
from itertools import count
from pathlib import Path
from typing import Final, NamedTuple

import kafka as kafka_python
import pytest
from aiokafka import AIOKafkaConsumer
from aiokafka import TopicPartition as AioPartition
from confluent_kafka import OFFSET_BEGINNING, Consumer, KafkaError, Producer, TopicPartition

from milena.testing.local_cluster import LocalCluster
from tests.oracle.complaints import COMPLAINTS
from tests.oracle.kafka import java
from tests.oracle.tools import CONFIGS, DUMP, GROUPS, LOG_DIRS, OFFSETS, TOPICS, Tools
from tests.wire.compacted import is_clean
from tests.wire.waiting import wait_until

PROGRAM: Final = Path(__file__).with_name("CompactedReader.java")
CODECS: Final = ("none", "gzip", "snappy", "lz4", "zstd")
TOPIC: Final = "cleaned"
SETTINGS: Final = {
    "log.cleaner.backoff.ms": "100",
    "log.cleaner.min.cleanable.ratio": "0.01",
    "replica.high.watermark.checkpoint.interval.ms": "300",
    "offsets.topic.num.partitions": "1",
    "group.initial.rebalance.delay.ms": "0",
}

pytestmark = pytest.mark.timeout(60)

Record = tuple[int, str, str | None]
"""Offset, key, value."""


class Cleaned(NamedTuple):
    """A topic of one partition."""

    cluster: LocalCluster
    folder: Path
    records: Sequence[Record]
    """What its segments hold, as Kafka's DumpLogSegments shows it."""
    end: int

    @property
    def server(self) -> tuple[str, str]:
        return "--bootstrap-server", self.cluster.bootstrap


@pytest.fixture(scope="module")
def own(kafka_answers: None, tmp_path_factory: pytest.TempPathFactory) -> Iterator[LocalCluster]:
    with LocalCluster.start(tmp_path_factory.mktemp("reads"), brokers=1, overrides=SETTINGS) as running:
        yield running


@pytest.fixture(scope="module")
def cleaned(tools: Tools, own: LocalCluster) -> Cleaned:
    server = ("--bootstrap-server", own.bootstrap)
    # Records without a key are let in as long as it is not compacted.
    tools(
        TOPICS,
        *server,
        "--create",
        "--topic",
        TOPIC,
        "--config",
        "internal.segment.bytes=3000",
        "--config",
        "index.interval.bytes=100",
    )
    write(own.bootstrap)
    (broker,) = own.brokers
    folder = Path(broker.log_dirs[0]) / f"{TOPIC}-0"
    end = int(tools(OFFSETS, *server, "--topic", TOPIC).split(":")[2])
    policy = ("--alter", "--entity-type", "topics", "--entity-name", TOPIC, "--add-config", "cleanup.policy=compact")
    tools(CONFIGS, *server, *policy)
    # As a crash leaves it that comes right after a segment was rolled.
    own.stop_node(broker.id)
    (folder / f"{end:020}.log").touch()
    own.start_node(broker.id)
    wait_until(lambda: is_clean(str(folder.parent), folder.name), "all segments to be cleaned")
    shown = dump(tools, sorted(map(str, folder.glob("*.log"))))
    counts = [int(found) for found in re.findall(r"^baseOffset: .* count: (\d+) ", shown, re.MULTILINE)]
    assert counts.count(0) > 1 and counts[-1] == 0 and f"lastOffset: {end - 1} count: 0 " in shown, shown
    found = re.findall(r"^\| offset: (\d+) .*? key: (\S+)(?: payload: (.*))?$", shown, re.MULTILINE)
    return Cleaned(own, folder, [(int(offset), key, value or None) for offset, key, value in found], end)


def write(bootstrap: str) -> None:
    """Each producer's last batch is kept for its sequence, even if others have written all of its keys anew."""
    times = count(int(time.time() * 1000) - 60_000)
    for codec in (*CODECS, *CODECS):
        settings = {"bootstrap.servers": bootstrap, "enable.idempotence": True, "linger.ms": 20}
        producer = Producer(settings | {"compression.type": codec, "batch.num.messages": 10})
        for number in range(200):
            value = None if number % 8 == 3 else f"{codec} {number}"
            producer.produce(TOPIC, value, key=f"key-{number % 24}", timestamp=next(times))
        producer.produce(TOPIC, codec, key=f"only-{codec}", timestamp=next(times))
        assert producer.flush(20) == 0
    last = Producer({"bootstrap.servers": bootstrap, "linger.ms": 20})
    for number in range(20):
        last.produce(TOPIC, f"without a key {number}", timestamp=next(times))
    assert last.flush(20) == 0


def dump(tools: Tools, files: Sequence[str]) -> str:
    ran = tools.run(DUMP, "--deep-iteration", "--print-data-log", "--files", ",".join(files))
    # A cleaned log has gaps.
    said = re.sub(r"Non-consecutive offsets in \S+\n(  -?\d+ is followed by \d+\n)+", "", ran.out + ran.err)
    for complaint in COMPLAINTS:
        assert complaint not in said, said
    return ran.out


def program(*arguments: str) -> list[list[str]]:
    done = subprocess.run(java(str(PROGRAM), *arguments), capture_output=True, text=True, timeout=50, check=False)
    assert done.returncode == 0, done.stderr
    return [line.split("\t") for line in done.stdout.splitlines()]


def record(offset: int, key: bytes | str | None, value: bytes | str | None) -> Record:
    assert key is not None
    text = [one.decode() if isinstance(one, bytes) else one for one in (key, value)]
    assert text[0] is not None
    return offset, text[0], text[1]


# -- Kafka's tools


def test_the_log_is_as_it_should_be(tools: Tools, cleaned: Cleaned) -> None:
    offsets = [offset for offset, _, _ in cleaned.records]
    keys = [key for _, key, _ in cleaned.records]
    assert len(keys) == len(set(keys)) == 24 + len(CODECS) and None in [value for *_, value in cleaned.records]
    assert offsets == sorted(offsets) and offsets[-1] < cleaned.end - 20
    for suffix in (".index", ".timeindex"):
        files = sorted(map(str, cleaned.folder.glob(f"*{suffix}")))
        shown = tools(DUMP, "--index-sanity-check", "--files", ",".join(files))
        assert shown.count("passed sanity check") > 0
        assert shown.count("passed sanity check") + shown.count("is empty") == len(files)


def test_tools_tell_its_bounds_and_size(tools: Tools, cleaned: Cleaned) -> None:
    for moment, offset in {"earliest": 0, "latest": cleaned.end, "max-timestamp": cleaned.records[-1][0]}.items():
        shown = tools(OFFSETS, *cleaned.server, "--topic", TOPIC, "--time", moment)
        assert shown.split() == [f"{TOPIC}:0:{offset}"], moment
    shown = tools(LOG_DIRS, *cleaned.server, "--describe", "--topic-list", TOPIC)
    (broker,) = json.loads(next(line for line in shown.splitlines() if line.startswith("{")))["brokers"]
    (partition,) = (one for found in broker["logDirs"] for one in found["partitions"])
    assert partition["size"] == sum(path.stat().st_size for path in cleaned.folder.glob("*.log"))


# -- clients


def test_kafkas_consumer(cleaned: Cleaned) -> None:
    told = program("consume", cleaned.cluster.bootstrap, TOPIC)
    found = [
        (int(offset), key, None if value == "null" else value)
        for name, offset, key, value in (line for line in told if line[0] == "record")
    ]
    assert found == cleaned.records
    assert ["end", str(cleaned.end), "0"] in told
    for _, start, landed in (line for line in told if line[0] == "from"):
        later = [offset for offset, _, _ in cleaned.records if offset >= int(start)]
        assert landed == (str(later[0]) if later else "none")


def test_a_worker_of_connect(cleaned: Cleaned) -> None:
    expected = {f"key-{number % 20}": f"value {number}" for number in range(480, 500) if number % 20 != 7}
    (broker,) = cleaned.cluster.brokers
    for _ in range(2):
        told = program("connect", cleaned.cluster.bootstrap, "configurations")
        assert told[0] == ["compacted", "true"]
        assert {key: value for _, key, value in told[1:]} == expected
        wait_until(lambda: is_clean(broker.log_dirs[0], "configurations-0"), "the topic to be cleaned")


@pytest.mark.skipif(shutil.which("kcat") is None, reason="kcat is not installed")
def test_kcat(cleaned: Cleaned) -> None:
    command = ["kcat", "-b", cleaned.cluster.bootstrap, "-C", "-t", TOPIC, "-o", "beginning", "-e", "-J"]
    done = subprocess.run(command, capture_output=True, text=True, timeout=30, check=True)
    found = [json.loads(line) for line in done.stdout.splitlines()]
    assert [record(one["offset"], one["key"], one["payload"]) for one in found] == cleaned.records
    assert f"Reached end of topic {TOPIC} [0] at offset {cleaned.end}" in done.stderr


def test_librdkafka_and_a_group_without_lag(tools: Tools, cleaned: Cleaned) -> None:
    settings = {"bootstrap.servers": cleaned.cluster.bootstrap, "group.id": "readers", "enable.partition.eof": True}
    consumer = Consumer(settings | {"enable.auto.commit": False, "check.crcs": True})
    consumer.assign([TopicPartition(TOPIC, 0, OFFSET_BEGINNING)])
    found: list[Record] = []
    while (message := consumer.poll(20)) is not None and message.error() is None:
        offset = message.offset()
        assert offset is not None
        found.append(record(offset, message.key(), message.value()))
    assert message is not None and (error := message.error()) is not None
    assert (error.code(), message.offset()) == (KafkaError._PARTITION_EOF, cleaned.end)
    assert found == cleaned.records
    consumer.commit(offsets=[TopicPartition(TOPIC, 0, cleaned.end)], asynchronous=False)
    consumer.close()
    described = tools(GROUPS, *cleaned.server, "--describe", "--group", "readers")
    assert re.search(rf"readers\s+{TOPIC}\s+0\s+{cleaned.end}\s+{cleaned.end}\s+0\s", described)


def test_kafka_python(cleaned: Cleaned) -> None:
    consumer = kafka_python.KafkaConsumer(bootstrap_servers=cleaned.cluster.bootstrap, enable_auto_commit=False)
    partition = kafka_python.TopicPartition(TOPIC, 0)
    consumer.assign([partition])
    consumer.seek_to_beginning(partition)
    found: list[Record] = []
    while consumer.position(partition) < consumer.end_offsets([partition])[partition]:
        for messages in consumer.poll(timeout_ms=500).values():
            found += [record(one.offset, one.key, one.value) for one in messages]
    assert (found, consumer.position(partition)) == (cleaned.records, cleaned.end)
    consumer.close()


async def test_aiokafka(cleaned: Cleaned) -> None:
    consumer = AIOKafkaConsumer(bootstrap_servers=cleaned.cluster.bootstrap, enable_auto_commit=False)
    partition = AioPartition(TOPIC, 0)
    consumer.assign([partition])
    await consumer.start()
    found: list[Record] = []
    async with asyncio.timeout(20):
        await consumer.seek_to_beginning(partition)
        end = (await consumer.end_offsets([partition]))[partition]
        while await consumer.position(partition) < end:
            for messages in (await consumer.getmany(timeout_ms=500)).values():
                found += [record(one.offset, one.key, one.value) for one in messages]
        assert (found, await consumer.position(partition)) == (cleaned.records, cleaned.end)
    await consumer.stop()
