"""Kafka's consumers and tools on a Milena topic that is in the tier except for its last segment."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path

import pytest
from confluent_kafka import Producer

from milena.testing.local_cluster import LocalCluster
from tests.oracle.tools import CONSOLE_CONSUMER, CONSUMER_PERFORMANCE, DELETE_RECORDS, OFFSETS, Tools
from tests.wire.admin import create_topic
from tests.wire.tiers import logs, settings
from tests.wire.waiting import wait_until

RECORDS, FIRST_MS = 300, 1_700_000_000_000
TIERED = {
    "remote.storage.enable": "true",
    "internal.segment.bytes": "10000",
    "local.retention.bytes": "1",
    "retention.ms": "-1",
}


@pytest.fixture(scope="module")
def tiered(kafka_answers: None, tmp_path_factory: pytest.TempPathFactory) -> Iterator[LocalCluster]:
    """A broker with a topic ``t``. Record n has a timestamp n seconds after the first; ten records fill a segment."""
    folder = tmp_path_factory.mktemp("tiered")
    with LocalCluster.start(folder / "cluster", brokers=1, overrides=settings(folder / "tier")) as running:
        create_topic(running.bootstrap, "t", partitions=1, config=TIERED)
        producer = Producer({"bootstrap.servers": running.bootstrap, "linger.ms": 0, "acks": "all"})
        for number in range(RECORDS):
            producer.produce("t", b"%-900d" % number, partition=0, timestamp=FIRST_MS + 1000 * number)
            producer.flush(10)
        data = Path(running.brokers[0].log_dirs[0])
        wait_until(lambda: len(logs(data, "t-0")) == 1, "closed segments are in the tier")
        yield running


def offset(tools: Tools, cluster: LocalCluster, time: str) -> str:
    """Return the output of GetOffsetShell: ``topic:partition:offset``."""
    shown = tools(OFFSETS, "--bootstrap-server", cluster.bootstrap, "--topic", "t", "--time", time)
    return shown.strip().removeprefix("t:0:")


@pytest.mark.parametrize("isolation", ["read_uncommitted", "read_committed"])
def test_the_console_consumer_reads_all_from_the_beginning(tools: Tools, tiered: LocalCluster, isolation: str) -> None:
    shown = tools(
        CONSOLE_CONSUMER, "--bootstrap-server", tiered.bootstrap, "--topic", "t", "--partition", "0",
        "--offset", "earliest", "--max-messages", str(RECORDS), "--timeout-ms", "20000",
        "--command-property", f"isolation.level={isolation}",
    )  # fmt: skip
    assert [int(line) for line in shown.split()] == list(range(RECORDS))


def test_consumer_performance_reads_it_in_a_group(tools: Tools, tiered: LocalCluster) -> None:
    shown = tools(
        CONSUMER_PERFORMANCE, "--bootstrap-server", tiered.bootstrap, "--topic", "t",
        "--num-records", str(RECORDS), "--timeout", "20000",
    )  # fmt: skip
    header, row = [line.split(", ") for line in shown.splitlines() if ", " in line][-2:]
    assert dict(zip(header, row, strict=True))["data.consumed.in.nMsg"] == str(RECORDS)


def test_offsets_are_found_in_both_tiers(tools: Tools, tiered: LocalCluster) -> None:
    local = int(offset(tools, tiered, "earliest-local"))
    assert 250 < local < RECORDS
    assert offset(tools, tiered, "earliest") == "0"
    assert offset(tools, tiered, "latest") == str(RECORDS)
    assert offset(tools, tiered, "max-timestamp") == str(RECORDS - 1)
    assert offset(tools, tiered, "latest-tiered") == str(local - 1)
    assert offset(tools, tiered, "earliest-pending-upload") == str(local)
    for number in (0, 1, 137, local - 1, local, RECORDS - 1):
        assert offset(tools, tiered, str(FIRST_MS + 1000 * number - 500)) == str(number)
        assert offset(tools, tiered, str(FIRST_MS + 1000 * number)) == str(number)


def test_records_are_deleted_in_the_tier(tools: Tools, tiered: LocalCluster, tmp_path: Path) -> None:
    create_topic(tiered.bootstrap, "u", partitions=1, config=TIERED)
    producer = Producer({"bootstrap.servers": tiered.bootstrap, "linger.ms": 0})
    for number in range(60):
        producer.produce("u", b"%-900d" % number, partition=0)
        producer.flush(10)
    data = Path(tiered.brokers[0].log_dirs[0])
    wait_until(lambda: len(logs(data, "u-0")) == 1, "closed segments are in the tier")
    plan = tmp_path / "plan.json"
    plan.write_text(json.dumps({"partitions": [{"topic": "u", "partition": 0, "offset": 15}], "version": 1}))
    shown = tools(DELETE_RECORDS, "--bootstrap-server", tiered.bootstrap, "--offset-json-file", str(plan))
    assert "low_watermark: 15" in shown
    read = tools(
        CONSOLE_CONSUMER, "--bootstrap-server", tiered.bootstrap, "--topic", "u", "--partition", "0",
        "--offset", "earliest", "--max-messages", "45", "--timeout-ms", "20000",
    )  # fmt: skip
    assert [int(line) for line in read.split()] == list(range(15, 60))
