"""The sink writes the rows of DataFrames as records, with all fields of a record."""

from __future__ import annotations

import gc
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from pyspark.errors import PySparkException
from pyspark.sql import SparkSession
from pyspark.sql.types import StructType

from milena.pipeline.columns import HEADERS
from milena.pipeline.errors import PipelineError
from milena.pipeline.options import SinkOptions, sink_options
from milena.pipeline.sink import MilenaWriter, Written, write
from milena.testing.local_cluster import LocalCluster
from tests.pipeline.in_process import rows
from tests.pipeline.made_tiers import MadeTier, run
from tests.wire.admin import create_topic


@pytest.fixture(scope="module")
def running(tmp_path_factory: pytest.TempPathFactory) -> Iterator[LocalCluster]:
    with LocalCluster.start(tmp_path_factory.mktemp("sink"), brokers=1) as found:
        create_topic(found.bootstrap, "tiny", partitions=1, config={"max.message.bytes": "1000"})
        create_topic(found.bootstrap, "compacted", partitions=1, config={"cleanup.policy": "compact"})
        yield found


def read(running: LocalCluster, topic: str) -> list[tuple[int, object, object]]:
    found = rows(kafka__bootstrap__servers=running.bootstrap, subscribe=topic)
    return [(row["partition"], row["key"], row["value"]) for row in found]


def test_a_record_keeps_key_headers_timestamp_and_partition(running: LocalCluster) -> None:
    create_topic(running.bootstrap, "kept", partitions=3)
    batch = pa.RecordBatch.from_pydict(
        {
            "key": [b"a", None],
            "value": ["text", None],
            "partition": pa.array([2, None], pa.int32()),
            "timestamp": pa.array([1_700_000_000_123_999, None], pa.timestamp("us", tz="UTC")),
            "headers": [[{"key": "h", "value": b"1"}, {"key": "n", "value": None}], None],
        }
    )
    options = sink_options({"kafka.bootstrap.servers": running.bootstrap, "topic": "kept"})
    assert write(options, iter([batch])) == Written(2)
    columns = "key,value,partition,timestamp,headers,producerId"
    found = rows(kafka__bootstrap__servers=running.bootstrap, subscribe="kept", columns=columns)
    full = next(row for row in found if row["key"] == b"a")
    assert (full["partition"], full["value"], full["timestamp"].timestamp()) == (2, b"text", 1_700_000_000.123)
    assert full["headers"] == [{"key": "h", "value": b"1"}, {"key": "n", "value": None}]
    assert full["producerId"] >= 0  # from an idempotent producer
    other = next(row for row in found if row["key"] is None)
    assert (other["value"], other["headers"]) == (None, None)


def test_many_records_keep_their_order(running: LocalCluster) -> None:
    create_topic(running.bootstrap, "many", partitions=1)
    batches = [
        pa.RecordBatch.from_pydict(
            {"value": [b"%d" % n for n in range(first, first + 30_000)], "topic": ["many"] * 30_000}
        )
        for first in (0, 30_000)
    ]
    assert write(
        SinkOptions(sink_options({"kafka.bootstrap.servers": running.bootstrap}).bootstrap), iter(batches)
    ) == (Written(60_000))
    assert [value for _, _, value in read(running, "many")] == [b"%d" % n for n in range(60_000)]


def test_records_are_split_into_batches_of_at_most_max_message_bytes(running: LocalCluster) -> None:
    create_topic(running.bootstrap, "small", partitions=1, config={"max.message.bytes": "1000"})
    times = pa.array([1_700_000_000_000_000 + n * 1000 for n in range(3000)], pa.timestamp("us", tz="UTC"))
    columns = {
        "key": [b"k%d" % n for n in range(3000)],
        "value": [b"%d" % n for n in range(3000)],
        "headers": [[{"key": "h", "value": b"%d" % n}] for n in range(3000)],
        "timestamp": times,
    }
    options = sink_options({"kafka.bootstrap.servers": running.bootstrap, "topic": "small"})
    assert write(options, iter([pa.RecordBatch.from_pydict(columns)])) == Written(3000)
    found = rows(kafka__bootstrap__servers=running.bootstrap, subscribe="small", includeHeaders="true")
    assert [(row["offset"], row["key"], row["value"], row["headers"][0]["value"]) for row in found] == [
        (n, b"k%d" % n, b"%d" % n, b"%d" % n) for n in range(3000)
    ]
    assert [row["timestamp"] for row in found] == times.to_pylist()


HEADERS_TYPE = pa.list_(pa.struct([("key", pa.string()), ("value", pa.binary())]))


@pytest.mark.parametrize(
    ("topic", "columns", "sentence"),
    [
        (
            "tiny",
            {"value": [b"x"] * 9 + [b"x" * 5000]},
            "records for tiny-0 were refused: MESSAGE_TOO_LARGE: the batch",
        ),
        ("compacted", {"value": [b"x"]}, "records for compacted-0 were refused: INVALID_RECORD: .*without key"),
        ("no name", {"value": [b"x"]}, "records for no name were refused: INVALID_TOPIC_EXCEPTION"),
        ("", {"value": [b"x", b"y"], "topic": ["tiny", None]}, "column topic is null in a row: use option topic"),
        ("tiny", {"value": [b"x"], "partition": pa.array([-1], pa.int32())}, "column partition: -1 is no partition of"),
        (
            "tiny",
            {"value": [b"x"], "partition": pa.array([4], pa.int32())},
            "there is no tiny-4, the topic has 1 partitions",
        ),
        (
            "tiny",
            {"value": [b"x"], "timestamp": pa.array([-1], pa.timestamp("us", "UTC"))},
            "timestamp: a record has -1 ms",
        ),
        ("tiny", {"value": [b"x"], "timestamp": pa.array([2**62], pa.timestamp("us", "UTC"))}, "tiny-0 .*INVALID_TIM"),
        ("tiny", {"value": [b"x"], "headers": [[{"key": None, "value": b"1"}]]}, "headers has a header without a key"),
        ("tiny", {"value": [b"x"], "headers": pa.array([[None]], HEADERS_TYPE)}, "headers has a header without a key"),
    ],
)
def test_a_refused_record_is_an_error_with_its_topic_and_without_a_stack_trace(
    running: LocalCluster, capfd: pytest.CaptureFixture[str], topic: str, columns: dict[str, Any], sentence: str
) -> None:
    named = {"topic": topic} if topic else {}
    options = sink_options({"kafka.bootstrap.servers": running.bootstrap, **named})
    with pytest.raises(PipelineError, match=sentence):
        write(options, iter([pa.RecordBatch.from_pydict(columns)]))
    gc.collect()
    assert "Traceback" not in capfd.readouterr().err


def test_a_cluster_that_does_not_answer_is_an_error_with_the_option() -> None:
    batch = pa.RecordBatch.from_pydict({"value": [b"x"]})
    with pytest.raises(PipelineError, match=r"option kafka\.bootstrap\.servers: .*127\.0\.0\.1:1"):
        write(sink_options({"kafka.bootstrap.servers": "127.0.0.1:1", "topic": "small"}), iter([batch]))


def schema_of(columns: str) -> StructType:
    schema = StructType()
    for column in columns.split(", "):
        name, kind = column.split()
        schema.add(name, kind)
    return schema


@pytest.mark.parametrize(
    ("columns", "topic", "sentence"),
    [
        ("key binary", "t", "there is no column value"),
        ("value binary", "", "by option topic or a column topic"),
        ("value integer", "t", "column value is of type int, not binary or string"),
        ("value binary, key binary, value binary", "t", "column value occurs 2 times: use select"),
        ("value binary, offset long", "t", "column offset cannot be written"),
        ("value binary, key long", "t", "column key is of type bigint, not binary or string: use cast"),
        ("value binary, topic binary", "", "column topic is of type binary, not string"),
        ("value binary, partition long", "t", "column partition is of type bigint, not int"),
        ("value binary, timestamp long", "t", "column timestamp is of type bigint, not timestamp"),
        (
            "value binary, headers string",
            "t",
            "column headers is of type string, not array<struct<key:string,value:binary>>",
        ),
    ],
)
def test_columns_that_cannot_be_written_are_named(columns: str, topic: str, sentence: str) -> None:
    with pytest.raises(PipelineError, match=sentence):
        MilenaWriter(SinkOptions((("h", 1),), topic), schema_of(columns))


def test_headers_of_the_source_are_headers_of_the_sink() -> None:
    schema = schema_of("value binary").add("headers", HEADERS, True)
    assert MilenaWriter(SinkOptions((("h", 1),), "t"), schema)


def test_spark_copies_a_tier_into_a_topic_by_batch_and_by_stream(
    spark: SparkSession, running: LocalCluster, made: MadeTier, tmp_path: Path
) -> None:
    made.add(run(0, 100, headers=(("h", b"1"),)))
    for topic in ("by-batch", "by-stream"):
        create_topic(running.bootstrap, topic, partitions=1)
    source = {"tier": str(made.folder), "subscribe": "orders", "columns": "key,value,timestamp,headers,partition"}
    sink = {"kafka.bootstrap.servers": running.bootstrap}
    frame = spark.read.format("milena").options(**source).load()
    frame.write.format("milena").options(**sink, topic="by-batch").mode("append").save()
    expected = [(0, b"k%d" % (n % 10), b"v%d" % n) for n in range(100)]
    assert read(running, "by-batch") == expected
    streamed = spark.readStream.format("milena").options(**source, startingOffsets="earliest").load()
    writing = streamed.writeStream.format("milena").options(**sink, topic="by-stream")
    query = writing.option("checkpointLocation", str(tmp_path / "marks")).trigger(availableNow=True).start()
    assert query.awaitTermination(100)
    assert read(running, "by-stream") == expected
    with pytest.raises(PySparkException, match="a topic cannot be overwritten"):
        frame.write.format("milena").options(**sink, topic="by-batch").mode("overwrite").save()
