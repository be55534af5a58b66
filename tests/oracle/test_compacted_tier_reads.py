"""Clients read a topic that Milena has cleaned in the tier. Kafka has no such topics, but its clients see no difference
from other compacted topics."""

from __future__ import annotations

import re
import shutil
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Final, NamedTuple

import pytest
from confluent_kafka import KafkaError, Message, Producer

from milena.testing.local_cluster import LocalCluster
from tests.oracle.readers import READERS, Record
from tests.oracle.tools import DUMP, OFFSETS, Tools
from tests.wire.admin import alter_topic, create_topic
from tests.wire.compacted import cleaned_in_tier
from tests.wire.tiers import TIERED, logs, settings
from tests.wire.waiting import wait_until

CODECS: Final = ("none", "gzip", "snappy", "lz4", "zstd")
TOPIC: Final = "cleaned"
KEYS, UPDATES, WITHOUT_KEY = 60, 15, 20


class Written(NamedTuple):
    records: Sequence[Record]
    """The records with a key."""
    end: int
    """The log end offset, after the records without a key."""


class Cleaned(NamedTuple):
    """A topic of one partition that is completely in the tier."""

    cluster: LocalCluster
    written: Written
    tier: Path


@pytest.fixture(scope="module")
def cleaned(kafka_answers: None, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cleaned]:
    folder = tmp_path_factory.mktemp("tier-reads")
    overrides = settings(folder / "tier") | {"remote.log.compaction.enable": "true"}
    with LocalCluster.start(folder / "cluster", brokers=1, overrides=overrides) as running:
        # Records without a key are accepted as long as the topic is not compacted.
        create_topic(running.bootstrap, TOPIC, 1, config=TIERED | {"min.cleanable.dirty.ratio": "0.01"})
        written = write(running.bootstrap)
        alter_topic(running.bootstrap, TOPIC, {"cleanup.policy": "compact"})
        wait_until(lambda: cleaned_in_tier(running, f"{TOPIC}-0") == written.end, "the tier to be cleaned")
        yield Cleaned(running, written, folder / "tier" / "kafka-tiered-storage")


def write(bootstrap: str) -> Written:
    records: list[Record] = []
    for codec in CODECS:
        settings = {"compression.type": codec, "enable.idempotence": True, "batch.num.messages": 10, "linger.ms": 5}
        producer = Producer({"bootstrap.servers": bootstrap, **settings})
        for number in range(KEYS * UPDATES // len(CODECS)):
            key = f"key-{number * 7 % KEYS}"
            value = None if number % 11 == 5 else f"{codec} {number} " + "x" * 50
            producer.produce(TOPIC, value, key, 0, on_delivery=check)
            records.append((len(records), key, value))
        assert producer.flush(20) == 0
    last = Producer({"bootstrap.servers": bootstrap, "linger.ms": 5})
    for number in range(WITHOUT_KEY):
        last.produce(TOPIC, f"without a key {number}", on_delivery=check)
    assert last.flush(20) == 0
    return Written(records, len(records) + WITHOUT_KEY)


def check(error: KafkaError | None, _message: Message) -> None:
    assert error is None, error


def test_the_tier_keeps_the_last_values(cleaned: Cleaned) -> None:
    found, end = READERS["librdkafka"](cleaned.cluster.bootstrap, TOPIC)
    records = cleaned.written.records
    assert end == cleaned.written.end
    assert set(found) <= set(records)
    assert {key: value for _, key, value in found} == {key: value for _, key, value in records}
    assert len(found) == KEYS


@pytest.mark.parametrize("name", READERS)
def test_a_client_reads_all_records_and_finds_the_end(cleaned: Cleaned, name: str) -> None:
    if name == "kcat" and shutil.which("kcat") is None:
        pytest.skip("kcat is not installed")
    reference = READERS["librdkafka"](cleaned.cluster.bootstrap, TOPIC)
    assert READERS[name](cleaned.cluster.bootstrap, TOPIC) == reference


def test_tools_return_its_first_and_last_offset(tools: Tools, cleaned: Cleaned) -> None:
    server, end = ("--bootstrap-server", cleaned.cluster.bootstrap), cleaned.written.end
    for moment, offset in {
        "earliest": 0,
        "latest": end,
        "earliest-local": end,
        "latest-tiered": end - 1,
    }.items():
        assert tools(OFFSETS, *server, "--topic", TOPIC, "--time", moment).split() == [f"{TOPIC}:0:{offset}"], moment


def test_kafkas_dump_reads_the_cleaned_segments(tools: Tools, cleaned: Cleaned, tmp_path: Path) -> None:
    """Replaced segments may still be beside the cleaned ones."""
    left = {offset for offset, _, _ in READERS["librdkafka"](cleaned.cluster.bootstrap, TOPIC)[0]}
    found: set[int] = set()
    for number, log in enumerate(logs(cleaned.tier, f"{TOPIC}-0-*")):
        # The tool takes the base offset from the file name.
        file = tmp_path / str(number) / f"{log.name.partition('-')[0]}.log"
        file.parent.mkdir()
        shutil.copy(log, file)
        ran = tools.run(DUMP, "--deep-iteration", "--print-data-log", "--files", str(file))
        assert "baseOffset" in ran.out or not file.stat().st_size
        assert "isvalid: false" not in ran.out and "Exception" not in ran.out + ran.err
        offsets = set(map(int, re.findall(r"^\| offset: (\d+) ", ran.out, re.MULTILINE)))
        found |= offsets if offsets <= left else set()
    assert found == left
