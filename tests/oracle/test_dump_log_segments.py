"""Kafka's DumpLogSegments reads what Milena writes: data, the metadata log, committed offsets."""

from __future__ import annotations

import json
import random
import re
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final

import pytest
from confluent_kafka import Consumer, Producer

from milena.commands.dump import Range
from milena.commands.dump import dump as described
from milena.testing.local_cluster import LocalCluster
from tests.oracle.complaints import COMPLAINTS
from tests.oracle.tools import DUMP, TOPICS, Tools

CODECS: Final = ("none", "gzip", "snappy", "lz4", "zstd")
PER_CODEC: Final = 60
TOPIC, ROLLED, PAID, GROUP, TRANSACTIONAL_ID = "dumped", "rolled", "paid", "dumpers", "dumping"


@pytest.fixture(scope="module")
def stopped(tools: Tools, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """The directory of a cleanly stopped cluster with batches of each codec and with committed offsets."""
    folder = tmp_path_factory.mktemp("dump")
    overrides = {
        "log.index.interval.bytes": "300",
        "log.segment.bytes": "1048576",
        "metadata.log.max.record.bytes.between.snapshots": "3000",
    }
    options = {"brokers": 1, "overrides": overrides, "topics": [f"{TOPIC}:1:1", f"{PAID}:1:1"]}
    with LocalCluster.start(folder, **options) as cluster:  # type: ignore[arg-type]
        for codec in CODECS:
            write(cluster.bootstrap, codec)
        roll(tools, cluster.bootstrap)
        consumer = Consumer(
            {"bootstrap.servers": cluster.bootstrap, "group.id": GROUP, "auto.offset.reset": "earliest"}
        )
        consumer.subscribe([TOPIC])
        assert len(consumer.consume(33, timeout=20)) == 33
        consumer.commit(asynchronous=False)
        consumer.close()
        transact(cluster.bootstrap)
        for node in ("controller", "broker"):
            wait_for(folder, f"{node}-*/data/__cluster_metadata-0/*.checkpoint")
    yield folder


def transact(bootstrap: str) -> None:
    """Commit one transaction."""
    producer = Producer({"bootstrap.servers": bootstrap, "transactional.id": TRANSACTIONAL_ID})
    producer.init_transactions(20)
    producer.begin_transaction()
    producer.produce(PAID, b"in a transaction")
    producer.commit_transaction(20)


def roll(tools: Tools, bootstrap: str) -> None:
    """Write three segments or more of batches that the broker recompresses, with unordered timestamps."""
    config = {"segment.bytes": "1048576", "compression.type": "lz4", "retention.ms": "-1"}
    words = [word for key, value in config.items() for word in ("--config", f"{key}={value}")]
    tools(TOPICS, "--bootstrap-server", bootstrap, "--create", "--topic", ROLLED, *words)
    producer = Producer({"bootstrap.servers": bootstrap, "compression.type": "gzip", "batch.num.messages": 20})
    noise = random.Random(1)
    for _ in range(400):
        producer.produce(ROLLED, value=noise.randbytes(10_000), timestamp=noise.randrange(10**12))
    assert producer.flush(20) == 0


def wait_for(folder: Path, pattern: str) -> None:
    deadline = time.monotonic() + 20
    while not list(folder.glob(pattern)):
        assert time.monotonic() < deadline, f"no {pattern} below {folder}"
        time.sleep(0.05)


def write(bootstrap: str, codec: str) -> None:
    """Write several batches with one idempotent producer."""
    settings = {"bootstrap.servers": bootstrap, "compression.type": codec, "batch.num.messages": 10}
    producer = Producer(settings | {"enable.idempotence": True, "linger.ms": 20})
    for number in range(PER_CODEC):
        producer.produce(TOPIC, key=f"{codec}-{number}", value=f"value {number}", headers=[("codec", codec)])
    assert producer.flush(20) == 0


def dump(tools: Tools, *arguments: str) -> str:
    """Run the tool and check its output, which has most errors although the exit code is 0."""
    ran = tools.run(DUMP, *arguments)
    assert ran.status == 0, ran
    # The tool expects each file to begin with offset 0, also Kafka's own files.
    said = re.sub(r"Non-consecutive offsets in \S+/0*(\d+)\.log\n  -1 is followed by \1\n", "", ran.out + ran.err)
    for complaint in COMPLAINTS:
        assert complaint not in said, said
    return ran.out


def the_only(folder: Path, pattern: str) -> str:
    (found,) = folder.glob(pattern)
    return str(found)


def payloads(shown: str) -> list[dict[str, Any]]:
    return [json.loads(found) for found in re.findall(r"payload: (\{.*\})$", shown, re.MULTILINE)]


def test_data_segments(tools: Tools, stopped: Path) -> None:
    file = the_only(stopped, f"broker-*/data/{TOPIC}-0/*.log")
    shown = dump(tools, "--deep-iteration", "--print-data-log", "--files", file)
    for codec in CODECS:
        assert len(re.findall(rf"compresscodec: {codec} ", shown)) >= PER_CODEC / 10
        records = re.findall(rf"headerKeys: \[codec\] key: {codec}-(\d+) payload: value (\d+)", shown)
        assert records == [(str(number), str(number)) for number in range(PER_CODEC)]
    assert len(set(re.findall(r"producerId: (\d+) producerEpoch: 0", shown))) == len(CODECS)
    offsets = [int(found) for found in re.findall(r"^\| offset: (\d+)", shown, re.MULTILINE)]
    assert offsets == list(range(PER_CODEC * len(CODECS)))


def test_segments_of_a_log_that_has_rolled(tools: Tools, stopped: Path) -> None:
    files = sorted(map(str, stopped.glob(f"broker-*/data/{ROLLED}-0/*.log")))
    assert len(files) > 3
    shown = dump(tools, "--deep-iteration", "--files", ",".join(files))
    assert [int(found) for found in re.findall(r"^\| offset: (\d+)", shown, re.MULTILINE)] == list(range(400))
    assert set(re.findall(r"compresscodec: (\S+)", shown)) == {"lz4"}
    for suffix in (".index", ".timeindex", ".snapshot"):
        others = sorted(map(str, stopped.glob(f"broker-*/data/{ROLLED}-0/*{suffix}")))
        assert len(others) >= len(files)
        dump(tools, "--files", ",".join(others))


def test_indexes_are_checked_against_the_segment(tools: Tools, stopped: Path) -> None:
    for suffix in ("index", "timeindex"):
        file = the_only(stopped, f"broker-*/data/{TOPIC}-0/*.{suffix}")
        assert "passed sanity check" in dump(tools, "--index-sanity-check", "--files", file)
        dump(tools, "--verify-index-only", "--files", file)
        assert len(re.findall(r"(?:^|\s)offset: \d+", dump(tools, "--files", file))) > 3


def test_producer_snapshots(tools: Tools, stopped: Path) -> None:
    shown = dump(tools, "--files", the_only(stopped, f"broker-*/data/{TOPIC}-0/*.snapshot"))
    last = re.findall(r"producerEpoch: 0 coordinatorEpoch: -1 .*lastSequence: (\d+) lastOffset: (\d+)", shown)
    ends = [(str(PER_CODEC - 1), str(PER_CODEC * (index + 1) - 1)) for index in range(len(CODECS))]
    assert sorted(last) == sorted(ends)


@pytest.mark.parametrize("node", ["controller", "broker"])
def test_the_metadata_log(tools: Tools, stopped: Path, node: str) -> None:
    file = the_only(stopped, f"{node}-*/data/__cluster_metadata-0/00000000000000000000.log")
    shown = dump(tools, "--cluster-metadata-decoder", "--files", file)
    assert "LeaderChange" in shown
    records = payloads(shown)
    types = {record["type"] for record in records}
    assert types >= {"REGISTER_BROKER_RECORD", "TOPIC_RECORD", "PARTITION_RECORD", "FEATURE_LEVEL_RECORD"}
    assert TOPIC in [record["data"]["name"] for record in records if record["type"] == "TOPIC_RECORD"]
    (registered,) = [record["data"] for record in records if record["type"] == "REGISTER_BROKER_RECORD"]
    assert registered["brokerId"] == 1 and registered["endPoints"][0]["name"] == "PLAINTEXT"


@pytest.mark.parametrize("node", ["controller", "broker"])
def test_snapshots_of_the_metadata(tools: Tools, stopped: Path, node: str) -> None:
    files = sorted(stopped.glob(f"{node}-*/data/__cluster_metadata-0/*.checkpoint"))
    shown = dump(tools, "--cluster-metadata-decoder", "--files", str(files[-1]))
    assert "SnapshotHeader" in shown and "SnapshotFooter" in shown
    records = payloads(shown)
    levels = {
        one["data"]["name"]: one["data"]["featureLevel"] for one in records if one["type"] == "FEATURE_LEVEL_RECORD"
    }
    assert levels == {"metadata.version": 33, "transaction.version": 2}
    topics = {
        record["data"]["name"]: record["data"]["topicId"] for record in records if record["type"] == "TOPIC_RECORD"
    }
    assert topics.keys() == {TOPIC, ROLLED, PAID, "__consumer_offsets", "__transaction_state"}
    counted = [record["data"]["topicId"] for record in records if record["type"] == "PARTITION_RECORD"]
    assert (counted.count(topics[TOPIC]), counted.count(topics["__consumer_offsets"])) == (1, 50)


def test_the_bootstrap_checkpoint(tools: Tools, stopped: Path) -> None:
    file = the_only(stopped, "controller-*/data/bootstrap.checkpoint")
    shown = dump(tools, "--cluster-metadata-decoder", "--files", file)
    assert '"name":"metadata.version"' in shown and "SnapshotHeader" in shown and "SnapshotFooter" in shown


def test_committed_offsets(tools: Tools, stopped: Path) -> None:
    written = [file for file in stopped.glob("broker-*/data/__consumer_offsets-*/*.log") if file.stat().st_size]
    (file,) = written
    shown = dump(tools, "--deep-iteration", "--offsets-decoder", "--files", str(file))
    found = [
        (json.loads(key), None if value == "<DELETE>" else json.loads(value))
        for key, value in re.findall(r"key: (\{.*?\}) payload: (\{.*\}|<DELETE>)", shown)
    ]
    offsets = {
        key["data"]["partition"]: value["data"]["offset"] for key, value in found if key["type"] == "1" and value
    }
    assert offsets == {0: 33}
    groups: list[dict[str, Any]] = [value["data"] for key, value in found if key["type"] == "2" and value]
    assert {key["data"]["group"] for key, _ in found} == {GROUP}
    assert groups[0]["protocolType"] == "consumer" and len(groups[0]["members"]) == 1
    assert groups[-1]["members"] == [], "the member has left"


def test_the_states_of_a_transactional_id(tools: Tools, stopped: Path) -> None:
    (file,) = [file for file in stopped.glob("broker-*/data/__transaction_state-*/*.log") if file.stat().st_size]
    shown = dump(tools, "--deep-iteration", "--transaction-log-decoder", "--files", str(file))
    found = re.findall(r"key: (\{.*?\}) payload: (\{.*\})", shown)
    assert {json.loads(key)["data"]["transactionalId"] for key, _ in found} == {TRANSACTIONAL_ID}
    states = [json.loads(value)["data"] for _, value in found]
    assert [state["transactionStatus"] for state in states] == ["Empty", "Ongoing", "PrepareCommit", "CompleteCommit"]
    assert states[1]["transactionPartitions"] == [{"topic": PAID, "partitionIds": [0]}]
    assert len({state["producerId"] for state in states}) == 1
    ours = [line for line in described(str(file), Range()) if line.startswith("|")]
    assert [json.loads(line.partition(" payload: ")[2])["data"] for line in ours] == states
