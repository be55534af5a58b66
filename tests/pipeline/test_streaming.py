"""Micro-batches read each offset once, also after restarts, with limits, and up to a fixed end."""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
import sys
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from uuid import UUID

import pytest
from pyspark.sql import SparkSession
from pyspark.sql.streaming.datasource import ReadAllAvailable, ReadMaxRows, ReadMinRows

from milena.pipeline.errors import DataLoss, PipelineError
from milena.pipeline.options import IDS, source_options
from milena.pipeline.position import Json, Position
from milena.pipeline.source import MilenaDataSource
from milena.pipeline.streaming import MilenaStreamReader, stream_reader
from milena.protocol.uuids import to_text
from milena.tiered.segments.segment_metadata import TopicIdPartition
from tests.pipeline.made_tiers import TIME, MadeTier, run

ALL = ReadAllAvailable()


def stream(made: MadeTier, **options: object) -> MilenaStreamReader:
    given = {name: str(value) for name, value in ({"startingOffsets": "earliest"} | options).items()}
    parsed = source_options(given | {"tier": str(made.folder), "subscribe": "orders"}, streaming=True)
    return stream_reader(
        parsed, MilenaDataSource({"tier": "x", "subscribe": "x", "columns": "partition,offset"}).schema()
    )


def ends(position: Json) -> dict[int, int]:
    """Return the offset of each partition of ``orders``."""
    return {number: end for (_, number), end in Position.of(position).ends.items()}


def read(reader: MilenaStreamReader, start: Json, end: Json) -> list[int]:
    found = [batch for task in reader.partitions(start, end) for batch in reader.read(task)]
    return [row["offset"] for batch in found for row in batch.to_pylist()]


def test_a_stream_begins_at_the_log_end_by_default(made: MadeTier) -> None:
    made.add(run(0, 100))
    known = {IDS: {"orders": to_text(made.partition().topic_id)}}
    assert stream(made).initialOffset() == {"orders": {"0": 0}} | known
    assert stream(made, startingOffsets="").initialOffset() == {"orders": {"0": 100}} | known
    assert ends(stream(made, startingOffsets='{"orders": {"0": 42}}').initialOffset()) == {0: 42}
    assert ends(stream(made, startingTimestamp=TIME + 9500).initialOffset()) == {0: 10}
    with pytest.raises(PipelineError, match="must name all partitions that are read and no others"):
        stream(made, startingOffsets='{"orders": {"1": 42}}').initialOffset()


def test_micro_batches_follow_added_records(made: MadeTier) -> None:
    made.add(run(0, 100))
    reader = stream(made)
    start = reader.initialOffset()
    end = reader.latestOffset(start, ALL)
    assert read(reader, start, end) == list(range(100))
    assert reader.latestOffset(end, ALL) == end and list(reader.partitions(end, end)) == []
    made.add(run(100, 150))
    made.add(run(0, 10), number=1)
    following = reader.latestOffset(end, ALL)
    assert ends(following) == {0: 150, 1: 10} and following == reader.reportLatestOffset()
    assert read(reader, end, following) == [*range(100, 150), *range(10)]


def test_a_trigger_reads_so_many_offsets_at_most(made: MadeTier) -> None:
    made.add(run(0, 100))
    made.add(run(0, 50), number=1)
    reader = stream(made, maxOffsetsPerTrigger=30)
    assert reader.getDefaultReadLimit() == ReadMaxRows(30)
    at, found = reader.initialOffset(), 0
    while (end := reader.latestOffset(at, ReadMaxRows(30))) != at:
        found += len(read(reader, at, end))
        assert found <= 150 and sum(ends(end).values()) - sum(ends(at).values()) <= 30
        at = end
    assert (found, ends(at)) == (150, {0: 100, 1: 50})


def test_available_now_ignores_records_after_its_start(made: MadeTier) -> None:
    made.add(run(0, 100))
    reader = stream(made)
    reader.prepareForTriggerAvailableNow()
    made.add(run(100, 150))
    made.add(run(0, 10), number=1)
    start: Json = {"orders": {"0": 40}}
    end = reader.latestOffset(start, ALL)
    assert ends(end) == {0: 100}  # the next trigger reads the new partition, from its first offset on
    assert reader.latestOffset(end, ALL) == end
    again = stream(made)
    again.prepareForTriggerAvailableNow()
    assert read(again, end, again.latestOffset(end, ALL)) == [*range(100, 150), *range(10)]


def test_available_now_from_the_log_end_does_not_end_beyond_it(made: MadeTier) -> None:
    made.add(run(0, 100))
    reader = stream(made, startingOffsets="latest")
    reader.prepareForTriggerAvailableNow()  # Spark calls this method first
    made.add(run(100, 150))
    start = reader.initialOffset()
    assert ends(start) == {0: 100} and reader.latestOffset(start, ALL) == start


def test_a_log_that_is_truncated_during_available_now_is_a_loss(made: MadeTier) -> None:
    made.add(run(0, 100))
    gone = made.add(run(100, 200))
    for fail in ("true", "false"):
        reader = stream(made, failOnDataLoss=fail)
        reader.prepareForTriggerAvailableNow()
        made.remove(gone)
        start: Json = {"orders": {"0": 150}}
        if fail == "true":
            with pytest.raises(DataLoss, match="orders-0 was read up to offset 150, and ends at 100 now"):
                reader.latestOffset(start, ALL)
            gone = made.add(run(100, 200))
        else:
            assert ends(reader.latestOffset(start, ALL)) == {0: 150}  # the offset does not go back


def recreated(made: MadeTier, end: int) -> MadeTier:
    """Delete the topic and create it again with the offsets up to ``end``."""
    shutil.rmtree(made.folder)
    other = OtherIds(made.folder)
    other.add(run(0, end))
    return other


class OtherIds(MadeTier):
    def partition(self, topic: str = "orders", number: int = 0) -> TopicIdPartition:
        return replace(super().partition(topic, number), topic_id=UUID(int=99))


@pytest.mark.parametrize("end", [50, 100, 150])
def test_a_recreated_topic_is_a_loss_whatever_its_end_offset(made: MadeTier, end: int) -> None:
    made.add(run(0, 100))
    start = stream(made).latestOffset(stream(made).initialOffset(), ALL)
    recreated(made, end)
    with pytest.raises(DataLoss, match=r"topic orders was deleted and created again: it had the id .*, and has .* now"):
        stream(made).latestOffset(start, ALL)
    reader = stream(made, failOnDataLoss="false")
    reader.prepareForTriggerAvailableNow()
    following = reader.latestOffset(start, ALL)
    assert ends(following) == {0: end} and following != start
    assert read(reader, start, following) == list(range(end))
    assert reader.latestOffset(following, ALL) == following
    assert read(reader, {"orders": {"0": 40}}, following) == list(range(40, end))  # from a checkpoint without topic ids


def test_a_topic_recreated_during_a_trigger_is_read_by_the_next_one(made: MadeTier) -> None:
    made.add(run(0, 100))
    reader = stream(made, failOnDataLoss="false")
    reader.prepareForTriggerAvailableNow()
    start = reader.initialOffset()
    planned = reader.latestOffset(start, ALL)
    recreated(made, 150)
    with pytest.raises(DataLoss, match="created again"):
        stream(made).partitions(start, planned)
    assert read(reader, start, planned) == []
    assert reader.latestOffset(start, ALL) == start
    again = stream(made, failOnDataLoss="false")
    again.prepareForTriggerAvailableNow()
    assert read(again, start, again.latestOffset(start, ALL)) == list(range(150))


def test_a_deleted_topic_is_a_loss_and_not_a_wrong_option(made: MadeTier) -> None:
    made.add(run(0, 100))
    start = stream(made).initialOffset()
    end = stream(made).latestOffset(start, ALL)
    shutil.rmtree(made.folder)
    made.add(run(0, 10), topic="others")
    calls: list[Callable[[MilenaStreamReader], object]] = [
        lambda one: one.latestOffset(start, ALL),
        lambda one: one.partitions(start, end),
    ]
    for call in calls:
        with pytest.raises(DataLoss, match="topic orders does not exist any more"):
            call(stream(made))
        assert not call(stream(made, failOnDataLoss="false"))
    with pytest.raises(PipelineError, match="option subscribe: there is no topic orders"):
        stream(made, failOnDataLoss="false").initialOffset()


def test_a_new_partition_that_does_not_start_from_zero_is_a_loss(made: MadeTier) -> None:
    made.add(run(0, 100))
    start = stream(made).latestOffset({}, ALL)
    made.add(run(30, 40), number=1)
    with pytest.raises(DataLoss, match="added partition orders-1 starts from 30 instead of 0"):
        read(stream(made), start, stream(made).latestOffset(start, ALL))
    reader = stream(made, failOnDataLoss="false")
    assert read(reader, start, reader.latestOffset(start, ALL)) == list(range(30, 40))


def test_a_log_that_ends_before_the_last_read_offset_is_a_loss(made: MadeTier) -> None:
    made.add(run(0, 100))
    start: Json = {"orders": {"0": 170}}
    with pytest.raises(DataLoss, match="orders-0 was read up to offset 170, and ends at 100 now"):
        stream(made).latestOffset(start, ALL)
    assert ends(stream(made, failOnDataLoss="false").latestOffset(start, ALL)) == {0: 170}
    with pytest.raises(DataLoss, match="orders-9 does not exist any more"):
        stream(made).latestOffset({"orders": {"0": 1, "9": 5}}, ALL)


def emptied(made: MadeTier, data: Path) -> None:
    """Delete the segments of ``orders`` as retention does; the active segment remains with the replica."""
    made.deleted(made.add(run(0, 100)))
    made.replica(data, run(100, 130), log_start=100)
    made.metadata(data)


@pytest.mark.parametrize("fail", ["true", "false"])
def test_a_stream_keeps_the_offsets_of_a_topic_that_retention_has_emptied(
    made: MadeTier, tmp_path: Path, fail: str
) -> None:
    emptied(made, tmp_path / "data")
    reader = stream(made, metadata=tmp_path / "data", failOnDataLoss=fail)
    start = reader.initialOffset()
    assert ends(start) == {0: 100}
    assert reader.latestOffset(start, ALL) == start and list(reader.partitions(start, start)) == []
    reader.prepareForTriggerAvailableNow()
    assert reader.latestOffset(start, ALL) == start
    made.add(run(100, 120))
    made.metadata(tmp_path / "data")
    again = stream(made, metadata=tmp_path / "data", failOnDataLoss=fail)
    following = again.latestOffset(start, ALL)
    assert ends(following) == {0: 120} and read(again, start, following) == list(range(100, 120))


def test_records_that_retention_deleted_before_a_stream_read_them_are_a_loss(made: MadeTier, tmp_path: Path) -> None:
    emptied(made, tmp_path / "data")
    start: Json = {"orders": {"0": 60}}
    reader = stream(made, metadata=tmp_path / "data")
    end = reader.latestOffset(start, ALL)
    assert ends(end) == {0: 100}
    with pytest.raises(DataLoss, match="orders-0: offsets 60 to 99 are asked for, and none is there"):
        reader.partitions(start, end)
    assert read(stream(made, metadata=tmp_path / "data", failOnDataLoss="false"), start, end) == []


def test_a_stream_waits_for_enough_records_or_for_its_longest_delay(made: MadeTier) -> None:
    made.add(run(0, 100))
    reader, now = stream(made, minOffsetsPerTrigger=50, maxOffsetsPerTrigger=60, maxTriggerDelay="1m"), [0.0]
    reader = MilenaStreamReader(reader._options, reader._schema, lambda: now[0])
    limit = reader.getDefaultReadLimit()
    assert limit == ReadMinRows(50)
    start = reader.initialOffset()
    at = reader.latestOffset(start, limit)
    assert ends(at) == {0: 60}  # the first trigger is not delayed, and the maximum holds, too
    assert reader.latestOffset(at, limit) == at
    now[0] = 60.0
    assert ends(reader.latestOffset(at, limit)) == {0: 100}
    assert ends(reader.latestOffset(at, ALL)) == {0: 100}
    reader.prepareForTriggerAvailableNow()
    assert ends(reader.latestOffset(at, limit)) == {0: 100}, "such a query must end"


def test_a_stream_begins_at_the_timestamps_of_its_partitions(made: MadeTier) -> None:
    made.add(run(0, 100))
    made.add(run(0, 50), number=1)
    times = json.dumps({"orders": {"0": TIME + 9500, "1": TIME + 60_000}})
    with pytest.raises(PipelineError, match=r"startingOffsetsByTimestamp=.*: orders-1 has no record of this time"):
        stream(made, startingOffsetsByTimestamp=times).initialOffset()
    latest = {"startingOffsetsByTimestamp": times, "startingOffsetsByTimestampStrategy": "latest"}
    assert ends(stream(made, **latest).initialOffset()) == {0: 10, 1: 50}
    with pytest.raises(PipelineError, match="option startingOffsetsByTimestamp must name all partitions"):
        stream(made, startingOffsetsByTimestamp=json.dumps({"orders": {"0": TIME}})).initialOffset()


def test_a_query_reads_available_records_and_continues_from_its_checkpoint(
    spark: SparkSession, made: MadeTier, tmp_path: Path
) -> None:
    made.add(run(0, 100))
    made.add(run(100, 200))

    def run_query() -> list[int]:
        reading = spark.readStream.format("milena").option("tier", str(made.folder)).option("subscribe", "orders")
        frame = reading.option("startingOffsets", "earliest").option("maxOffsetsPerTrigger", "70").load()
        writing = frame.select("offset").writeStream.format("parquet").option("path", str(tmp_path / "out"))
        query = writing.option("checkpointLocation", str(tmp_path / "marks")).trigger(availableNow=True).start()
        assert query.awaitTermination(100)
        return sorted(row.offset for row in spark.read.parquet(str(tmp_path / "out")).collect())

    assert run_query() == list(range(200))
    assert len(list((tmp_path / "marks" / "offsets").glob("[0-9]"))) == 3
    made.add(run(200, 230))
    assert run_query() == list(range(230))


KILLED = """
import sys
from milena.pipeline.session import session
spark = session("local[1]", settings={"spark.sql.shuffle.partitions": "1"})
tier, out, marks = sys.argv[1:]
reading = spark.readStream.format("milena").option("tier", tier).option("subscribe", "orders")
frame = reading.option("startingOffsets", "earliest").option("maxOffsetsPerTrigger", "50").load()
writing = frame.select("offset").writeStream.format("parquet").option("path", out).option("checkpointLocation", marks)
writing.start().awaitTermination()
"""


def test_a_killed_query_loses_and_repeats_no_record(spark: SparkSession, made: MadeTier, tmp_path: Path) -> None:
    from tests.wire.waiting import wait_until

    made.add(run(0, 600))
    out, marks = tmp_path / "out", tmp_path / "marks"
    places = [str(made.folder), str(out), str(marks)]
    process = subprocess.Popen([sys.executable, "-c", KILLED, *places], start_new_session=True)
    try:
        wait_until(lambda: len(list(marks.glob("commits/[0-9]*"))) >= 2, "two micro-batches", 100)
    finally:
        os.killpg(process.pid, signal.SIGKILL)
        process.wait()
    reading = spark.readStream.format("milena").option("tier", str(made.folder)).option("subscribe", "orders")
    frame = reading.option("startingOffsets", "earliest").option("maxOffsetsPerTrigger", "400").load()
    writing = frame.select("offset").writeStream.format("parquet").option("path", str(out))
    query = writing.option("checkpointLocation", str(marks)).trigger(availableNow=True).start()
    assert query.awaitTermination(100)
    assert sorted(row.offset for row in spark.read.parquet(str(out)).collect()) == list(range(600))
