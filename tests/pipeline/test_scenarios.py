"""After each step of a scenario, the source reads the same records from the tier as a consumer from the leader."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import Consumer, TopicPartition
from pyspark.sql import SparkSession

from milena.client.consumer import ConsumedRecord
from milena.lab.scenarios.played import PlayedStep
from milena.lab.scenarios.script import load, source, variants_of
from milena.pipeline.errors import PipelineError
from milena.pipeline.live import plan_of
from milena.pipeline.loops import LoopThread
from milena.pipeline.options import source_options
from milena.protocol.types import Offset
from milena.testing.scenario_processes import play_on_processes
from milena.tiered.metadata.metadata_cache import RemoteLogMetadataCache
from milena.tiered.metadata.snapshot import FILE_NAME, Snapshot, encode_snapshot
from milena.tiered.offline.metadata_history import read_history
from milena.up import nodes_file
from milena.up.layout import ClusterDir
from tests.pipeline.in_process import Row, rows
from tests.pipeline.played_scenarios import Stand, stand_after, stands

SCENARIOS = (
    "kip405_1",
    "kip405_2",
    "kip405_3",
    "kip405_4",
    "kip405_5",
    "cleaner_compacted",
    "cleaner_fencing",
    "cleaner_unclean",
    "delete_fencing",
    "fence_lost",
)
CONTROLS = {"unfenced", "draft_by_former_leader", "draft_by_leader"}
"""Variants in which records are lost, or not read."""
RUNS = [(one, variant) for one in SCENARIOS for variant in variants_of(source(one)) if variant not in CONTROLS]
LEADER_ALONE = {
    ("kip405_3", 2),
    ("kip405_3", 3),
    ("kip405_4", 2),
    ("cleaner_compacted", 2),
    ("cleaner_fencing", 2),
    ("delete_fencing", 2),
}
"""Steps after which the source needs the new leader's own directory: the leader was elected uncleanly and has copied
nothing to the tier yet, or its deletions were not published yet."""
ReadRecord = tuple[int, int, Any, Any, int, object]


def of_consumer(one: ConsumedRecord) -> ReadRecord:
    return one.offset, one.leader_epoch, one.key, one.value, one.timestamp, list(one.headers)


def of_source(row: Row) -> ReadRecord:
    headers = [(one["key"], one["value"]) for one in row["headers"] or ()]
    time = round(row["timestamp"].timestamp() * 1000)
    return row["offset"], row["leaderEpoch"], row["key"], row["value"], time, headers


def read(state: Stand, metadata: str | None) -> tuple[list[ReadRecord], int]:
    """Read ``t`` with the source; return the records and the end offset. No records if the tier has none of ``t``."""
    options = {"tier": str(state.tier), "subscribe": "t", "includeHeaders": "true"}
    options |= {} if metadata is None else {"metadata": metadata}
    try:
        with LoopThread() as loop:
            plan = plan_of(loop, source_options(options))
            (one,) = plan.partitions()
            end = plan.bounds(one)[1]
    except PipelineError as error:
        assert "there is no topic t" in str(error) or "has no partition of the topic" in str(error), state.place
        return [], 0
    return [of_source(row) for row in rows(**options)], end


def same(state: Stand, found: list[ReadRecord], end: int) -> str | None:
    """Return how the records differ from the consumer's; None if not. The leader's local log may be uncleaned."""
    consumed = [of_consumer(one) for one in state.consumed or () if one.offset < end]
    expected = [one for one in consumed if one[0] < state.local or one in found or not state.cleaned]
    if found != expected:
        return f"found up to {end - 1} {found}, consumed {expected}"
    if end <= state.tiered and state.tiered >= state.log_start:
        return f"found up to {end - 1}, and the leader knows of {state.tiered} in the tier"
    return None


@pytest.mark.parametrize(("scenario", "variant"), RUNS)
def test_the_source_reads_what_the_leader_serves(scenario: str, variant: str, tmp_path: Path) -> None:
    counted = 0
    wrong = []
    for state in stands(scenario, variant, tmp_path):
        places = {None, state.directories(*state.running), state.directories(*(["C"] if "C" in state.running else []))}
        for metadata in places - {""}:
            found, end = read(state, metadata)
            counted += len(found)
            differs = same(state, found, end)
            must_agree = (metadata is not None and "," in metadata) or (
                scenario,
                state.step,
            ) not in LEADER_ALONE
            if (differs is None) != must_agree:
                wrong.append(f"{state.place}, metadata {metadata}: {differs}")
    assert not wrong, "\n".join(wrong)
    assert counted


def with_snapshots(state: Stand) -> str:
    """Return directories of the replicas only, with snapshots of their metadata caches. C has the metadata topic."""
    with LoopThread() as loop:
        disk = loop.runtime.disk
        history = read_history(disk, [state.directories("C")])
    for partition, cache in history.caches.items():
        for broker, taken in (("A", Snapshot.of(RemoteLogMetadataCache(), None, Offset(0))), ("B", None)):
            folder = state.folder / broker / f"{partition.topic}-{partition.partition}"
            if folder.is_dir():  # A had stopped before the first event was published
                made = encode_snapshot(partition, taken or Snapshot.of(cache, None, Offset(1000)))
                folder.joinpath(FILE_NAME).write_bytes(made)
    return state.directories("B", *(one for one in state.running if one == "A"))


@pytest.mark.parametrize("variant", ["plain", "seg_1_first", "no_fences_seg_1_first"])
def test_a_brokers_snapshot_has_the_same_segments_as_the_metadata_topic(variant: str, tmp_path: Path) -> None:
    script = load("cleaner_fencing", variant)
    state = stand_after(script, len(script.steps), tmp_path)
    assert state is not None
    directories = with_snapshots(state)
    found, end = read(state, directories)
    assert [one[0] for one in found] == [1, 2, 4] and same(state, found, end) is None
    for path in state.folder.glob(f"[AB]/t-0/{FILE_NAME}"):
        path.write_bytes(path.read_bytes()[:-1])
    with pytest.raises(PipelineError, match=rf"option metadata: .*/t-0/{FILE_NAME}: "):
        rows(tier=state.tier, subscribe="t", metadata=directories)


def test_the_source_fences_cleanings_that_a_leader_does_not(tmp_path: Path) -> None:
    script = load("cleaner_fencing", "unfenced")
    state = stand_after(script, len(script.steps), tmp_path)
    assert state is not None and [one.offset for one in state.consumed or ()] == [2, 4, 5]
    for metadata in (None, state.directories("C"), state.directories("A", "B", "C")):
        assert [one[0] for one in read(state, metadata)[0]] == [1, 2, 4]


def test_directories_without_the_metadata_topic_are_named(tmp_path: Path) -> None:
    state = stand_after(load("kip405_4"), 1, tmp_path)
    assert state is not None
    with pytest.raises(
        PipelineError, match=r"option metadata: .*/A has no partition of the topic __remote_log_metadata"
    ):
        rows(tier=state.tier, subscribe="t", metadata=state.directories("A"))


def consume(bootstrap: str, topic: str) -> list[tuple[int | None, bytes | None]]:
    """Return offset and value of all records in partition 0 of the topic."""
    consumer = Consumer({"bootstrap.servers": bootstrap, "group.id": "x", "enable.auto.commit": False})
    try:
        first, end = consumer.get_watermark_offsets(TopicPartition(topic, 0), timeout=20)
        consumer.assign([TopicPartition(topic, 0, first)])
        found: list[tuple[int | None, bytes | None]] = []
        while not found or (found[-1][0] or 0) < end - 1:
            for one in consumer.consume(100, timeout=20):
                assert one.error() is None
                found.append((one.offset(), one.value()))
        return found
    finally:
        consumer.close()


def test_a_spark_session_reads_the_same_as_a_consumer_of_real_processes(spark: SparkSession, tmp_path: Path) -> None:
    script, cluster = load("kip405_5"), tmp_path / "cluster"
    compared = []

    def compare(played: PlayedStep) -> None:
        if f"step {len(script.steps)}:" not in played.place:
            return
        nodes = nodes_file.read(ClusterDir(str(cluster)).nodes)
        bootstrap = ",".join(host for one in nodes if "broker" in one["roles"] for host in one["listeners"].values())
        consumed = consume(bootstrap, "t")
        of_tier = {"tier": str(cluster / "tier"), "subscribe": "t"}
        of_all = {"kafka.bootstrap.servers": bootstrap}
        for more, count in (({}, 6), ({"metadata": str(cluster)}, 6), (of_all, 7)):
            frame = spark.read.format("milena").options(**of_tier, **more).load().select("offset", "value")
            assert [(row.offset, bytes(row.value)) for row in frame.collect()] == consumed[:count], more
        compared.append(len(consumed))

    asyncio.run(play_on_processes(script, str(cluster), watch=compare))
    assert compared == [7]
