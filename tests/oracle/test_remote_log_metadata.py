"""Remote log segment metadata compared with Kafka's own classes, and in the topic read by Kafka's DumpLogSegments."""

from __future__ import annotations

import asyncio
import random
import subprocess
from collections.abc import Iterator, Sequence
from dataclasses import replace
from itertools import pairwise
from pathlib import Path
from typing import Final
from uuid import UUID

import pytest

from milena.protocol.types import LeaderEpoch, NodeId, Offset
from milena.runtime.process import real_runtime
from milena.storage.state.epoch_cache import EpochEntry
from milena.testing.local_cluster import LocalCluster
from milena.tiered.metadata.metadata_cache import RemoteLogMetadataCache
from milena.tiered.metadata.metadata_partitioner import REMOTE_LOG_METADATA_TOPIC, metadata_partition
from milena.tiered.metadata.serialization import MetadataEvent, serialize
from milena.tiered.metadata.settings import MetadataTopicSettings
from milena.tiered.metadata.topic_based_manager import TopicMetadataManager
from milena.tiered.segments.lineage import filtered, is_within_leader_epochs
from milena.tiered.segments.segment_metadata import (
    RemoteLogSegmentMetadata,
    RemoteLogSegmentState,
    TopicIdPartition,
)
from tests.oracle.kafka import java
from tests.oracle.tools import DUMP, Tools
from tests.unit.tiered.segments import EPOCHS_OF_KIP405_5, KIP405_5, epochs, fence, offsets, segment, update

PROGRAM: Final = Path(__file__).with_name("RemoteLogOracle.java")
AT_ONCE: Final = 100
"""Number of lines that are written before the answers are read, limited by the buffers of the pipes."""
STARTED, FINISHED, DELETING, DELETED = RemoteLogSegmentState


class Kafka:
    """A running RemoteLogOracle.java."""

    def __init__(self) -> None:
        self.process = subprocess.Popen(java(str(PROGRAM)), stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)

    def __call__(self, *questions: str) -> list[str]:
        assert self.process.stdin is not None and self.process.stdout is not None
        answers: list[str] = []
        for first in range(0, len(questions), AT_ONCE):
            some = questions[first : first + AT_ONCE]
            self.process.stdin.write("".join(f"{question}\n" for question in some))
            self.process.stdin.flush()
            answers += [self.process.stdout.readline().rstrip("\n") for _ in some]
        return answers


@pytest.fixture(scope="module")
def kafka() -> Iterator[Kafka]:
    running = Kafka()
    yield running
    running.process.kill()
    running.process.communicate()


def copied(segments: Sequence[RemoteLogSegmentMetadata]) -> list[MetadataEvent]:
    return [event for one in segments for event in (one, update(one, FINISHED))]


def apply(event: MetadataEvent) -> str:
    return f"apply {serialize(event).hex()}"


def test_kafka_reads_milenas_records_and_writes_the_same_bytes(kafka: Kafka) -> None:
    full = segment(7, 6, 9, {2: 6, 3: 8}, txn_index_empty=False)
    events: list[MetadataEvent] = [*copied(KIP405_5), full, *(update(full, state) for state in (DELETING, DELETED))]
    written = [serialize(event).hex() for event in events]
    assert kafka(*(f"reencode {data}" for data in written)) == written


def test_kafka_ignores_milenas_own_fields_in_a_record_and_drops_fences(kafka: Kafka) -> None:
    plain = segment(7, 6, 9, {2: 6, 3: 8}, txn_index_empty=False)
    cleaned = replace(plain, leader_epoch=LeaderEpoch(3), cleaned=offsets({2: 7, 3: None}), replaces=(UUID(int=8),))
    finished, deleting = update(plain, FINISHED), update(plain, DELETING)
    ours: list[MetadataEvent] = [
        cleaned,
        replace(finished, leader_epoch=LeaderEpoch(3)),
        replace(finished, leader_epoch=LeaderEpoch(3), republishes=True),
        fence(4),
    ]
    without: list[MetadataEvent] = [plain, finished, finished, replace(fence(4), leader_epoch=LeaderEpoch(-1))]
    assert kafka(*(f"reencode {serialize(event).hex()}" for event in ours)) == [
        serialize(event).hex() for event in without
    ]
    fenced, void_mark = replace(deleting, leader_epoch=LeaderEpoch(3)), ours[2]
    answers = kafka("new", *map(apply, [*ours[:2], fence(4)]), "find 2 6", *map(apply, [fenced, void_mark]), "find 2 6")
    assert answers[:3] == ["new", "applied", "applied"]
    assert answers[3] == "refused", "RemoteResourceNotFoundException: it is logged, and the reader continues"
    assert answers[4] == "7"
    assert answers[5:] == ["applied", "applied", "none"], "a void mark counts there, and no one republishes it"


def test_kafka_finds_records_in_the_same_metadata_partition(kafka: Kafka) -> None:
    chosen = random.Random(1)
    asked, ours = [], []
    for _ in range(300):
        topic_id, number, count = UUID(int=chosen.getrandbits(128)), chosen.randrange(200), chosen.randrange(1, 60)
        asked.append(f"partition {topic_id.int >> 64:x} {topic_id.int & (1 << 64) - 1:x} {number} {count}")
        ours.append(str(metadata_partition(TopicIdPartition(topic_id, "t", number), count)))
    assert kafka(*asked) == ours


def test_in_kip405_5_kafkas_cache_hides_a_segment_that_milena_serves(kafka: Kafka) -> None:
    """The control for a deliberate difference: with Kafka's cache offsets 2 and 3 of the log would be lost."""
    offsets = range(6)
    history = [apply(event) for event in copied(KIP405_5)]
    answers = kafka("new", *history, *(f"find 0 {offset}" for offset in offsets), "find 2 5", "highest 0", "list")
    assert answers[: 1 + len(history)] == ["new"] + ["applied"] * 6
    assert answers[1 + len(history) :] == ["2", "2", "none", "none", "3", "none", "3", "4", "[1, 2, 3]"]

    cache = RemoteLogMetadataCache()
    for event in copied(KIP405_5):
        assert cache.apply(event)
    found = [cache.find(LeaderEpoch(0), Offset(offset)) for offset in offsets]
    assert [[one.id.int for one in candidates] for candidates in found] == [[1, 2], [1, 2], [1], [1], [3], []]
    served = [cache.segment_for(Offset(n), leader_epochs=EPOCHS_OF_KIP405_5, log_end=Offset(7)) for n in offsets]
    assert [None if one is None else one.segment.id.int for one in served] == [1, 1, 1, 1, 3, 3]
    assert cache.highest_offset_for_epoch(LeaderEpoch(0)) == 4


def lineage(chosen: random.Random, *, distinct: bool) -> tuple[EpochEntry, ...]:
    numbers = sorted(chosen.sample(range(7), chosen.randrange(1, 6)))
    starts = chosen.sample(range(14), len(numbers)) if distinct else chosen.choices(range(14), k=len(numbers))
    return epochs(dict(zip(numbers, sorted(starts), strict=True)))


def test_kafka_and_milena_find_the_same_segments_on_a_leader_epoch_lineage(kafka: Kafka) -> None:
    chosen = random.Random(2)
    asked, ours = [], []
    for number in range(3000):
        leader, own = lineage(chosen, distinct=number % 3 > 0), lineage(chosen, distinct=number % 4 > 0)
        if number % 2:  # on the lineage except for small differences
            own = tuple(leader[chosen.randrange(len(leader)) :])
        start = own[0].start + (chosen.randrange(3) if len(own) == 1 else 0)
        end = max(own[-1].start, start) + chosen.randrange(5)
        log_end = chosen.randrange(24)
        one = segment(1, start, end, dict(((own[0].epoch, start), *own[1:])))
        within = is_within_leader_epochs(one, log_end=Offset(log_end), leader_epochs=filtered(leader))
        ours.append(str(within).lower())
        asked.append(f"within {serialize(one).hex()} {log_end} {','.join(f'{e}:{o}' for e, o in leader)}")
    assert kafka(*asked) == ours
    assert 300 < ours.count("true") < 2700


def test_on_one_lineage_both_caches_find_the_same_segments(kafka: Kafka) -> None:
    chosen = random.Random(3)
    for _ in range(20):
        bounds = sorted(chosen.sample(range(60), 9))
        leader = epochs(dict(enumerate([0, *sorted(chosen.sample(range(1, 60), 4))])))
        events: list[MetadataEvent] = []
        for number, (start, end) in enumerate(pairwise(bounds), start=1):
            held = [one for one in leader if one.start < end]
            first = max(index for index, one in enumerate(held) if one.start <= start)
            one = segment(number, start, end - 1, dict(((held[first].epoch, start), *held[first + 1 :])))
            states = (FINISHED, DELETING, DELETED)[: chosen.choice((0, 1, 1, 1, 2, 3))]
            events += [one, *(update(one, state) for state in states)]
        questions = [f"find {epoch} {offset}" for epoch in range(5) for offset in range(62)]
        answers = kafka("new", *map(apply, events), *questions, *(f"highest {n}" for n in range(5)), "list")
        cache = RemoteLogMetadataCache()
        for event in events:
            assert cache.apply(event)
        found = [cache.find(LeaderEpoch(epoch), Offset(offset)) for epoch in range(5) for offset in range(62)]
        ours = ["none" if not candidates else str(candidates[0].id.int) for candidates in found]
        highest = [cache.highest_offset_for_epoch(LeaderEpoch(epoch)) for epoch in range(5)]
        ours += ["none" if one is None else str(one) for one in highest]
        assert answers[1 + len(events) :] == [*ours, str(sorted(one.id.int for one in cache.segments()))]


# -- the topic


async def publish(bootstrap: str, folder: Path, events: Sequence[MetadataEvent]) -> list[int]:
    """Publish with a metadata manager as in a broker; return the numbers of the segments that it knows afterwards."""
    host, _, port = bootstrap.partition(",")[0].rpartition(":")
    runtime = real_runtime()
    settings = MetadataTopicSettings(partitions=2, replication_factor=1, min_isr=1)
    manager = TopicMetadataManager(runtime, NodeId(1), settings, lambda: [(host, int(port))], lambda _: str(folder))
    manager.start()
    try:
        partition = KIP405_5[0].partition
        manager.assign([partition], [])
        assert await manager.wait_ready(partition, 30)
        for event in events:
            await (manager.add(event) if isinstance(event, RemoteLogSegmentMetadata) else manager.update(event))
        return [one.id.int for one in manager.cache(partition).segments()]
    finally:
        await manager.stop()


def test_dump_log_segments_reads_the_topic_that_milena_writes(tmp_path: Path, tools: Tools) -> None:
    events = [*copied(KIP405_5), update(KIP405_5[1], DELETING), update(KIP405_5[1], DELETED)]
    (tmp_path / "snapshots").mkdir()
    with LocalCluster.start(tmp_path / "cluster") as cluster:
        assert asyncio.run(publish(cluster.bootstrap, tmp_path / "snapshots", events)) == [1, 3]
        assert asyncio.run(publish(cluster.bootstrap, tmp_path / "snapshots", [])) == [1, 3]
    number = metadata_partition(KIP405_5[0].partition, 2)
    (log,) = tmp_path.glob(f"cluster/broker-*/data/{REMOTE_LOG_METADATA_TOPIC}-{number}/*.log")
    text = tools(DUMP, "--remote-log-metadata-decoder", "--files", str(log))
    records = [line for line in text.splitlines() if "payload:" in line]
    assert len(records) == len(events)
    assert [line.partition("payload: ")[2].partition("{")[0] for line in records] == [
        "RemoteLogSegmentMetadata" if isinstance(event, RemoteLogSegmentMetadata) else "RemoteLogSegmentMetadataUpdate"
        for event in events
    ]
    assert "Could not" not in text and "Exception" not in text
