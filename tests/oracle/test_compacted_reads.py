"""Kafka's tools and consumer, a worker of Connect and other clients read a topic that Milena has cleaned.

The log has gaps, tombstones and batches without records, also at its end: the active segment is empty.
"""

from __future__ import annotations

import json
import re
import shutil
import time
from collections.abc import Iterator, Sequence
from itertools import count
from pathlib import Path
from typing import Final, NamedTuple

import pytest
from confluent_kafka import Producer
from kafka import KafkaConsumer, TopicPartition

from milena.testing.local_cluster import LocalCluster
from tests.oracle.complaints import COMPLAINTS
from tests.oracle.readers import READERS, Record, program
from tests.oracle.tools import CONFIGS, DUMP, GROUPS, LOG_DIRS, OFFSETS, TOPICS, Tools
from tests.wire.compacted import is_clean
from tests.wire.waiting import wait_until

CODECS: Final = ("none", "gzip", "snappy", "lz4", "zstd")
TOPIC: Final = "cleaned"
PARTITION: Final = TopicPartition(TOPIC, 0)
SETTINGS: Final = {
    "log.cleaner.backoff.ms": "100",
    "log.cleaner.min.cleanable.ratio": "0.01",
    "replica.high.watermark.checkpoint.interval.ms": "300",
    "offsets.topic.num.partitions": "1",
    "group.initial.rebalance.delay.ms": "0",
}


class Cleaned(NamedTuple):
    """A topic of one partition."""

    cluster: LocalCluster
    folder: Path
    records: Sequence[Record]
    """The records of its segments in the output of Kafka's DumpLogSegments."""
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
    # Records without a key are accepted as long as the topic is not compacted.
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
    # The log is in the state after a crash right after a segment was rolled.
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
    """Write records. Each producer's last batch is kept for its sequence, even if all its keys have later values."""
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


# -- Kafka's tools


def test_the_cleaned_log_has_gaps_tombstones_and_empty_batches(tools: Tools, cleaned: Cleaned) -> None:
    offsets = [offset for offset, _, _ in cleaned.records]
    keys = [key for _, key, _ in cleaned.records]
    assert len(keys) == len(set(keys)) == 24 + len(CODECS) and None in [value for *_, value in cleaned.records]
    assert offsets == sorted(offsets) and offsets[-1] < cleaned.end - 20
    for suffix in (".index", ".timeindex"):
        files = sorted(map(str, cleaned.folder.glob(f"*{suffix}")))
        shown = tools(DUMP, "--index-sanity-check", "--files", ",".join(files))
        assert shown.count("passed sanity check") > 0
        assert shown.count("passed sanity check") + shown.count("is empty") == len(files)


def test_tools_return_its_offsets_and_size(tools: Tools, cleaned: Cleaned) -> None:
    for moment, offset in {"earliest": 0, "latest": cleaned.end, "max-timestamp": cleaned.records[-1][0]}.items():
        shown = tools(OFFSETS, *cleaned.server, "--topic", TOPIC, "--time", moment)
        assert shown.split() == [f"{TOPIC}:0:{offset}"], moment
    shown = tools(LOG_DIRS, *cleaned.server, "--describe", "--topic-list", TOPIC)
    (broker,) = json.loads(next(line for line in shown.splitlines() if line.startswith("{")))["brokers"]
    (partition,) = (one for found in broker["logDirs"] for one in found["partitions"])
    assert partition["size"] == sum(path.stat().st_size for path in cleaned.folder.glob("*.log"))


# -- clients


@pytest.mark.parametrize("name", READERS)
def test_a_client_reads_all_records_and_finds_the_end(cleaned: Cleaned, name: str) -> None:
    if name == "kcat" and shutil.which("kcat") is None:
        pytest.skip("kcat is not installed")
    assert READERS[name](cleaned.cluster.bootstrap, TOPIC) == (cleaned.records, cleaned.end)


def test_a_group_at_the_end_has_no_lag(tools: Tools, cleaned: Cleaned) -> None:
    consumer = KafkaConsumer(
        TOPIC,
        bootstrap_servers=cleaned.cluster.bootstrap,
        group_id="readers",
        auto_offset_reset="earliest",
        enable_auto_commit=False,
    )
    while not consumer.assignment() or consumer.position(PARTITION) != cleaned.end:
        consumer.poll(timeout_ms=100)
    consumer.commit()
    consumer.close()
    described = tools(GROUPS, *cleaned.server, "--describe", "--group", "readers")
    assert re.search(rf"readers\s+{TOPIC}\s+0\s+{cleaned.end}\s+{cleaned.end}\s+0\s", described), described


def test_a_worker_of_connect(cleaned: Cleaned) -> None:
    expected = {f"key-{number % 20}": f"value {number}" for number in range(280, 300) if number % 20 != 7}
    (broker,) = cleaned.cluster.brokers
    for _ in range(2):
        connect_lines = program("connect", cleaned.cluster.bootstrap, "configurations")
        assert connect_lines[0] == ["compacted", "true"]
        assert {key: value for _, key, value in connect_lines[1:]} == expected
        wait_until(lambda: is_clean(broker.log_dirs[0], "configurations-0"), "the topic to be cleaned")
