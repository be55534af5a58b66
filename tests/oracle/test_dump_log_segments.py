"""Kafka's DumpLogSegments reads what Milena writes: data, the metadata log, committed offsets."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

import pytest
from confluent_kafka import Consumer, Producer

from milena.local_cluster import LocalCluster
from tests.oracle.kafka import tool

DUMP = "org.apache.kafka.tools.DumpLogSegments"
CODECS = ("none", "gzip", "snappy", "lz4", "zstd")
TOPIC, GROUP = "dumped", "dumpers"

pytestmark = pytest.mark.timeout(180)


@pytest.fixture(scope="module")
def stopped(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """The directory of a cluster that has produced with each codec, committed offsets, and stopped in order."""
    folder = tmp_path_factory.mktemp("dump")
    with LocalCluster.start(folder, topics=[f"{TOPIC}:1:1"], overrides={"log.index.interval.bytes": "100"}) as cluster:
        for codec in CODECS:
            producer = Producer({"bootstrap.servers": cluster.bootstrap, "compression.type": codec, "linger.ms": 20})
            for number in range(20):
                producer.produce(TOPIC, key=f"{codec}-{number}", value=f"value {number}", headers=[("codec", codec)])
            assert producer.flush(20) == 0
        consumer = Consumer(
            {"bootstrap.servers": cluster.bootstrap, "group.id": GROUP, "auto.offset.reset": "earliest"}
        )
        consumer.subscribe([TOPIC])
        assert len(consumer.consume(33, timeout=20)) == 33
        consumer.commit(asynchronous=False)
        consumer.close()
    yield folder


def dump(*arguments: str) -> str:
    """The tool tells most errors on its standard output and ends with 0."""
    shown = tool(DUMP, *arguments)
    for complaint in ("Found timestamp mismatch", "Non-consecutive", "Mismatches in", "Exception", "Could not"):
        assert complaint not in shown, shown
    return shown


def test_data_segments(stopped: Path) -> None:
    (segment,) = stopped.glob(f"broker-*/data/{TOPIC}-0/*.log")
    shown = dump("--deep-iteration", "--print-data-log", "--files", str(segment))
    assert "isvalid: false" not in shown
    for codec in CODECS:
        assert f"compresscodec: {codec}" in shown
        assert len(re.findall(rf"key: {codec}-\d+ payload: value \d+", shown)) == 20
    offsets = [int(found) for found in re.findall(r"^\| offset: (\d+)", shown, re.MULTILINE)]
    assert offsets == list(range(20 * len(CODECS)))


def test_indexes_and_producer_snapshots(stopped: Path) -> None:
    folder = next(stopped.glob(f"broker-*/data/{TOPIC}-0"))
    segment = next(folder.glob("*.log"))
    for suffix in (".index", ".timeindex"):
        shown = dump("--index-sanity-check", "--files", str(segment.with_suffix(suffix)))
        assert "passed sanity check" in shown
    for snapshot in folder.glob("*.snapshot"):
        assert "producerId" in dump("--files", str(snapshot))


def test_the_metadata_log(stopped: Path) -> None:
    (segment,) = stopped.glob("controller-*/data/__cluster_metadata-0/00000000000000000000.log")
    shown = dump("--cluster-metadata-decoder", "--files", str(segment))
    assert "isvalid: false" not in shown
    for record in ("REGISTER_BROKER_RECORD", "TOPIC_RECORD", "PARTITION_RECORD", "FEATURE_LEVEL_RECORD"):
        assert f'"type":"{record}"' in shown
    assert "LeaderChange" in shown
    observed = next(stopped.glob("broker-*/data/__cluster_metadata-0/*.log"))
    assert '"type":"REGISTER_BROKER_RECORD"' in dump("--cluster-metadata-decoder", "--files", str(observed))


def test_the_bootstrap_checkpoint(stopped: Path) -> None:
    (checkpoint,) = stopped.glob("controller-*/data/bootstrap.checkpoint")
    shown = dump("--cluster-metadata-decoder", "--files", str(checkpoint))
    assert '"name":"metadata.version"' in shown and "SnapshotHeader" in shown


def test_committed_offsets(stopped: Path) -> None:
    shown = "".join(
        dump("--offsets-decoder", "--files", str(segment))
        for segment in stopped.glob("broker-*/data/__consumer_offsets-*/*.log")
        if segment.stat().st_size
    )
    assert re.search(rf'"group":"{GROUP}","topic":"{TOPIC}","partition":0', shown)
    assert '"offset":33' in shown
    assert '"protocolType":"consumer"' in shown or "group_metadata" in shown.lower()
