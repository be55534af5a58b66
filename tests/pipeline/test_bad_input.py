"""Errors name object and offset; with ``failOnDataLoss=false`` the affected records are left out instead."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import fsspec
import pyarrow as pa
import pytest
from pyspark.errors import PySparkException
from pyspark.sql import SparkSession

from milena.pipeline import PUSHDOWN
from milena.pipeline.errors import DataLoss, PipelineError
from milena.pipeline.options import sink_options
from milena.pipeline.sink import write
from milena.pipeline.source import MilenaDataSource
from milena.testing.local_cluster import LocalCluster
from tests.pipeline.in_process import offsets, reader_of, tasks
from tests.pipeline.made_tiers import TIME, Batch, MadeTier, run
from tests.wire.admin import create_topic

BATCH = len(Batch(100, 10).bytes())


@pytest.mark.parametrize(
    ("cut", "left"),
    [
        (lambda data: data[:-1], 190),
        (lambda data: data[: 5 * BATCH], 150),
        (lambda data: data[: 5 * BATCH + 7], 150),
        (lambda data: data[: 9 * BATCH], 190),
        (lambda data: data + b"\0\0\0", 200),
    ],
)
@pytest.mark.parametrize("last", [True, False])
def test_a_truncated_log_without_metadata_is_an_error_and_not_a_shorter_segment(
    made: MadeTier, cut: Callable[[bytes], bytes], left: int, last: bool
) -> None:
    made.add(run(0, 100))
    log = made.log(made.add(run(100, 200)))
    if not last:
        made.add(run(200, 300))
    log.write_bytes(cut(log.read_bytes()))
    with pytest.raises(DataLoss, match=rf"orders-0-.*/0{{17}}100-.*\.log, at offset {left}: .*failOnDataLoss=false"):
        offsets(tier=made.folder)
    rest = [] if last else list(range(200, 300))
    assert offsets(tier=made.folder, failOnDataLoss="false") == [*range(left), *rest]


@pytest.mark.parametrize("fail", ["true", "false"])
def test_a_segment_that_is_deleted_between_its_pieces_is_named_with_the_offset(made: MadeTier, fail: str) -> None:
    segment = made.add(run(0, 60_000, by=500, size=1000))
    made.add(run(60_000, 60_100))
    store = fsspec.filesystem("memory")
    store.put(str(made.folder), f"/deleted-{fail}", recursive=True)
    reader = reader_of(tier="memory://deleted-" + fail, subscribe="orders", columns="offset", failOnDataLoss=fail)
    (task,) = tasks(reader)
    reading = reader.read(task)
    found: list[int] = next(reading).column("offset").to_pylist()
    store.rm(f"/deleted-{fail}/{made.log(segment).relative_to(made.folder)}")

    def rest() -> None:
        for batch in reading:
            found.extend(batch.column("offset").to_pylist())

    if fail == "true":
        with pytest.raises(DataLoss) as raised:
            rest()
        assert found == list(range(len(found))) and 0 < len(found) < 60_000
        assert f"{made.log(segment).name} does not exist any more, at offset {len(found)}" in str(raised.value)
    else:
        rest()
        reached = found.index(60_000)
        assert found == [*range(reached), *range(60_000, 60_100)] and 0 < reached < 60_000
    store.rm(f"/deleted-{fail}", recursive=True)


@pytest.mark.parametrize(
    "bounds",
    [
        {
            "startingOffsets": json.dumps({"orders": {"0": 50}}),
            "endingOffsets": json.dumps({"orders": {"0": 20}}),
        },
        {"startingTimestamp": TIME + 50_000, "endingTimestamp": TIME + 20_000},
        {"startingTimestamp": TIME + 50_000, "endingOffsets": json.dumps({"orders": {"0": 20}})},
    ],
)
def test_an_end_offset_before_the_start_offset_is_refused(made: MadeTier, bounds: dict[str, object]) -> None:
    made.add(run(0, 100))
    options = (
        "options starting.* and ending.* contradict each other: orders-0 would be read from offset 50 up to offset 19"
    )
    with pytest.raises(PipelineError, match=options) as raised:
        offsets(tier=made.folder, failOnDataLoss="false", **bounds)
    assert not isinstance(raised.value, DataLoss)


def test_the_sink_reports_a_partition_that_does_not_exist(tmp_path: Path) -> None:
    with LocalCluster.start(tmp_path, brokers=1) as running:
        create_topic(running.bootstrap, "two", partitions=2)
        where = {"kafka.bootstrap.servers": running.bootstrap}
        batch = pa.RecordBatch.from_pydict({"value": [b"x"], "partition": pa.array([7], pa.int32())})
        with pytest.raises(PipelineError, match="two-7"):
            write(sink_options({**where, "topic": "two"}), iter([batch]))
        with pytest.raises(PipelineError, match="column partition: -1 is no partition of two"):
            negative = pa.RecordBatch.from_pydict({"value": [b"x"], "partition": pa.array([-1], pa.int32())})
            write(sink_options({**where, "topic": "two"}), iter([negative]))
        with pytest.raises(PipelineError, match="column topic is null in a row: use option topic"):
            write(sink_options(where), iter([pa.RecordBatch.from_pydict({"value": [b"x"], "topic": [None]})]))


def test_the_error_of_an_unregistered_session_names_the_missing_setting(spark: SparkSession, made: MadeTier) -> None:
    made.add(run(0, 10))
    stock = spark.newSession()
    stock.createDataFrame([], "a int")  # makes this session the active one, in which Spark registers the source
    stock.conf.set(PUSHDOWN, "false")
    stock.dataSource.register(MilenaDataSource)
    reading = stock.read.format("milena").option("tier", str(made.folder)).option("subscribe", "orders")
    reading = reading.option("pushFilters", "true")
    with pytest.raises(PySparkException, match=PUSHDOWN.replace(".", r"\.")):
        reading.load().where("offset > 5").collect()
    stock.conf.set(PUSHDOWN, "true")
    assert reading.load().where("offset > 5").count() == 4
