"""A Kafka Streams application counts words, loses its state, and restores it from changelogs that Milena cleaned."""

from __future__ import annotations

import random
import re
import shutil
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Final

import pytest
from confluent_kafka import Consumer, ConsumerGroupTopicPartitions, Producer, TopicPartition
from confluent_kafka.admin import AdminClient

from milena.testing.local_cluster import LocalCluster
from tests.oracle.conftest import RECORDS
from tests.oracle.kafka import java
from tests.oracle.programs import Member, running
from tests.oracle.tools import CONFIGS, TOOLS, TOPICS, Tools
from tests.wire.admin import Places
from tests.wire.compacted import cleaned_in_tier, closed_to, is_clean, read
from tests.wire.tiers import settings
from tests.wire.waiting import wait_until

PROGRAM: Final = Path(__file__).with_name("StreamsCounts.java")
RESETTER: Final = f"{TOOLS}.StreamsResetter"
INPUT, APPLICATION = "lines", "count"
REPARTITIONED: Final = f"{APPLICATION}-words-repartition"
CHANGELOGS: Final = (f"{APPLICATION}-counts-changelog", f"{APPLICATION}-windows-changelog")
PARTITIONS: Final = (0, 1)
HOUR_MS: Final = 3_600_000
GIVEN: Final = {
    "internal.segment.bytes": "50000",
    "min.cleanable.dirty.ratio": "0.01",
    "segment.ms": "100000",
    "message.timestamp.type": "CreateTime",
}
"""Configurations of all internal topics; Streams adds the last ones."""
TAKEN: Final = {
    CHANGELOGS[0]: GIVEN | {"cleanup.policy": "compact"},
    # The retention of the window plus one day.
    CHANGELOGS[1]: GIVEN | {"cleanup.policy": "compact,delete", "retention.ms": str(50 * HOUR_MS - HOUR_MS)},
    REPARTITIONED: GIVEN | {"cleanup.policy": "delete", "retention.ms": "-1", "segment.bytes": "52428800"},
}
SETTINGS: Final = {
    "default.replication.factor": "3",
    "min.insync.replicas": "2",
    "offsets.topic.num.partitions": "1",
    "group.initial.rebalance.delay.ms": "0",
    "group.min.session.timeout.ms": "500",
    "broker.session.timeout.ms": "2000",
    "broker.heartbeat.interval.ms": "300",
    "log.cleaner.backoff.ms": "200",
    "replica.high.watermark.checkpoint.interval.ms": "300",
}

EXACTLY_ONCE: Final = {"processing.guarantee": "exactly_once_v2", "commit.interval.ms": "2000"}
"""With so rare commits the application is killed with uncommitted counts."""

TIER: Final = {
    "remote.log.compaction.enable": "true",
    "rlmm.config.remote.log.metadata.topic.replication.factor": "3",
}
TIERED: Final = {"remote.storage.enable": "true", "local.retention.bytes": "0"}
"""Additional configurations of internal topics, if they are tiered."""


@pytest.fixture(
    params=[
        "local",
        pytest.param("tiered", marks=pytest.mark.skipif(RECORDS <= 2000, reason="only without SHORT=1")),
    ]
)
def tiered(request: pytest.FixtureRequest) -> bool:
    return bool(request.param == "tiered")


@pytest.fixture
def own(tmp_path: Path, tiered: bool) -> Iterator[LocalCluster]:
    overrides = SETTINGS | (settings(tmp_path / "tier") | TIER if tiered else {})
    options = {"brokers": 3, "overrides": overrides, "topics": [f"{INPUT}:1:3"]}
    with LocalCluster.start(tmp_path / "cluster", **options) as started:  # type: ignore[arg-type]
        yield started


class Lines:
    """The input lines. A word with "-" removes the count of that word: its changelog gets a tombstone."""

    def __init__(self, bootstrap: str) -> None:
        self._random = random.Random(7)
        self._producer = Producer({"bootstrap.servers": bootstrap, "enable.idempotence": True, "linger.ms": 20})
        self._first_ms = int(time.time() * 1000) - 12 * HOUR_MS
        self.words: dict[str, int] = {}
        self.windows: dict[tuple[int, str], int] = {}
        self.count = 0

    def send(self, lines: int) -> None:
        for number in range(self.count, self.count + lines):
            timestamp = self._first_ms + number * 4000
            words = [(self._random.random() < 0.02, f"word{self._random.randrange(40)}") for _ in range(10)]
            for is_end, word in words:
                window = timestamp // HOUR_MS * HOUR_MS, word
                self.windows[window] = self.windows.get(window, 0) + 1
                if is_end:
                    self.words.pop(word, None)
                else:
                    self.words[word] = self.words.get(word, 0) + 1
            line = " ".join("-" * is_end + word for is_end, word in words)
            self._producer.produce(INPUT, line, timestamp=timestamp)
        self.count += lines
        assert self._producer.flush(30) == 0


def application(
    own: LocalCluster, folder: Path, topics: Mapping[str, str], changed: Mapping[str, str] | None = None
) -> list[str]:
    serde = "org.apache.kafka.common.serialization.Serdes$StringSerde"
    options = {
        "bootstrap.servers": own.bootstrap,
        "application.id": APPLICATION,
        "state.dir": folder,
        "processing.guarantee": "at_least_once",
        "statestore.cache.max.bytes": 0,
        "commit.interval.ms": 200,
        "repartition.purge.interval.ms": 300,
        "default.key.serde": serde,
        "default.value.serde": serde,
        "session.timeout.ms": 2000,
        "heartbeat.interval.ms": 300,
        **{f"topic.{name}": value for name, value in topics.items()},
        **(changed or {}),
    }
    return java(str(PROGRAM), INPUT, *(f"{name}={value}" for name, value in options.items()))


def counts(program: Member) -> tuple[Mapping[str, int], Mapping[tuple[int, str], int]]:
    """Return the counts of all words and all windows from the program's state stores."""
    assert program.process.stdin is not None
    program.process.stdin.write("counts\n")
    program.process.stdin.flush()
    words: dict[str, int] = {}
    windows: dict[tuple[int, str], int] = {}
    while (line := program.line("word|window|end").split())[0] != "end":
        if line[0] == "word":
            words[line[1]] = int(line[2])
        else:
            windows[int(line[1]), line[2]] = int(line[3])
    return words, windows


class Progress:
    """The application's progress, from offsets in the cluster. It uses a new client after each restart of the cluster,
    because librdkafka continues to ask a killed coordinator."""

    def __init__(self, admin: AdminClient, consumer: Consumer) -> None:
        self._admin = admin
        self._consumer = consumer

    def bounds(self, topic: str, partition: int) -> tuple[int, int]:
        first, end = self._consumer.get_watermark_offsets(TopicPartition(topic, partition), timeout=20)
        return first, end

    def all_counted(self, lines: int) -> bool:
        """Whether the words of so many lines are counted, and the counts are in changelogs and offsets committed."""
        group = self._admin.list_consumer_group_offsets([ConsumerGroupTopicPartitions(APPLICATION)])[APPLICATION]
        found = {(one.topic, one.partition): one.offset for one in group.result(20).topic_partitions}
        ends = [self.bounds(REPARTITIONED, partition)[1] for partition in PARTITIONS]
        committed = [found.get((REPARTITIONED, partition)) for partition in PARTITIONS]
        return found.get((INPUT, 0)) == lines and ends == committed and sum(ends) == lines * 10

    def all_purged(self) -> bool:
        """Whether the records that were read from the repartition topic are deleted."""
        return all(first == end for first, end in (self.bounds(REPARTITIONED, one) for one in PARTITIONS))


class Committed:
    """The counts of words that a consumer with read_committed finds in their changelog."""

    def __init__(self, bootstrap: str) -> None:
        settings = {"bootstrap.servers": bootstrap, "group.id": "none", "log_level": 0, "enable.auto.commit": False}
        self._consumer = Consumer({**settings, "isolation.level": "read_committed"})
        self._consumer.assign([TopicPartition(CHANGELOGS[0], partition, 0) for partition in PARTITIONS])
        self.words: dict[str, int] = {}

    def reach(self, words: Mapping[str, int]) -> bool:
        """Read further, and return whether the counts are these."""
        for message in self._consumer.consume(10_000, 0.2):
            assert message.error() is None, message.error()
            key, value = message.key(), message.value()
            assert isinstance(key, bytes)
            if value is None:
                self.words.pop(key.decode(), None)
            else:
                self.words[key.decode()] = int.from_bytes(value, "big")
        return self.words == words

    def close(self) -> None:
        self._consumer.close()


@contextmanager
def watching(bootstrap: str) -> Iterator[Progress]:
    consumer = Consumer({"bootstrap.servers": bootstrap, "log_level": 0, "group.id": "none"})
    yield Progress(AdminClient({"bootstrap.servers": bootstrap, "log_level": 0}), consumer)
    consumer.close()


def are_clean(own: LocalCluster, tiered: bool) -> bool:
    """Whether all brokers have cleaned the changelogs; with a tier, whether the leaders have cleaned them there."""
    partitions = [f"{topic}-{partition}" for topic in CHANGELOGS for partition in PARTITIONS]
    folders = [broker.log_dirs[0] for broker in own.brokers]
    if not tiered:
        return all(is_clean(folder, partition) for folder in folders for partition in partitions)
    cleaned = {name: cleaned_in_tier(own, name) for name in partitions}
    return all(cleaned[name] == max(closed_to(folder, name) for folder in folders) > 0 for name in partitions)


def configured(tools: Tools, own: LocalCluster, topic: str) -> Mapping[str, str]:
    output = tools(
        CONFIGS, "--bootstrap-server", own.bootstrap, "--describe", "--entity-type", "topics", "--entity-name", topic
    )
    return dict(re.findall(r"^  (\S+?)=(\S+) ", output, re.MULTILINE))


def test_counts_are_restored_from_cleaned_changelogs(
    tools: Tools, own: LocalCluster, tmp_path: Path, tiered: bool
) -> None:
    more = TIERED if tiered else {}
    lines, state = Lines(own.bootstrap), tmp_path / "state"
    with running(application(own, state, GIVEN | more)) as program, watching(own.bootstrap) as progress:
        program.line("running")
        lines.send(1500)
        wait_until(lambda: progress.all_counted(lines.count), "all words to be counted")
        assert counts(program) == (lines.words, lines.windows)
        program.process.kill()
    assert {topic: configured(tools, own, topic) for topic in TAKEN} == {
        topic: taken | more for topic, taken in TAKEN.items()
    }
    shutil.rmtree(state)
    wait_until(lambda: are_clean(own, tiered), "the changelogs to be cleaned")
    # Counts that are restored from a local log were cleaned by a follower.
    own.kill(Places(own.bootstrap, CHANGELOGS[0]).now()[0].leader)
    with running(application(own, state, GIVEN | more)) as program, watching(own.bootstrap) as progress:
        program.line("running")
        restored = {
            (f"{APPLICATION}-{store}-changelog", int(partition)): int(total)
            for _, store, partition, total in (line.split() for line in program.lines if line.startswith("restored"))
        }
        assert counts(program) == (lines.words, lines.windows)
        for topic, partition in ((topic, partition) for topic in CHANGELOGS for partition in PARTITIONS):
            kept, _ = read(own.bootstrap, topic, partition)
            _, end = progress.bounds(topic, partition)
            assert restored[topic, partition] == kept < end / 4
        lines.send(500)
        wait_until(lambda: progress.all_counted(lines.count), "all words to be counted")
        assert counts(program) == (lines.words, lines.windows)
        wait_until(progress.all_purged, "the repartition topic to be purged")
    server = ("--bootstrap-server", own.bootstrap)
    tools(RESETTER, *server, "--application-id", APPLICATION, "--input-topics", INPUT, "--force")
    assert not [topic for topic in tools(TOPICS, *server, "--list").split() if topic.startswith(APPLICATION)]


@pytest.mark.parametrize("tiered", [False], ids=["local"])
def test_counts_are_exact_although_brokers_and_the_application_are_killed(
    own: LocalCluster, tmp_path: Path, tiered: bool
) -> None:
    lines, command = Lines(own.bootstrap), application(own, tmp_path / "state", GIVEN, EXACTLY_ONCE)
    for killed in own.brokers:
        with running(command) as program:
            program.line("running")
            lines.send(200)
            own.kill(killed.id)
            lines.send(100)
            program.process.kill()
        own.restart(killed.id)
    committed = Committed(own.bootstrap)
    with running(command) as program:
        program.line("running")
        wait_until(lambda: committed.reach(lines.words), "all words to be counted once")
        lines.send(100)
        wait_until(lambda: committed.reach(lines.words), "all words to be counted once")
        assert counts(program) == (lines.words, lines.windows)
    committed.close()
