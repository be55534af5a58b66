"""Spark's own Kafka connector works with Milena's brokers: batch and streaming, source and sink."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path

import pytest
from pyspark.sql import DataFrame, SparkSession

from milena.testing.local_cluster import LocalCluster
from tests.pipeline.connector import NoConnector, connector_jars
from tests.wire.admin import create_topic

COUNT = 1000


@pytest.fixture(scope="module", autouse=True)
def _connector_is_there() -> None:
    try:
        connector_jars()
    except NoConnector as reason:
        pytest.skip(str(reason))


@pytest.fixture(scope="module")
def bootstrap(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    with LocalCluster.start(tmp_path_factory.mktemp("connector"), brokers=2) as running:
        yield running.bootstrap


def records(spark: SparkSession) -> DataFrame:
    columns = [
        "cast(id as string) key",
        "concat('v', id) value",
        "array(struct('h' key, cast('1' as binary) value)) headers",
    ]
    return spark.range(COUNT).selectExpr(*columns, "cast(id % 3 as int) partition")


def all_of(frame: DataFrame) -> list[tuple[int, int, str, str]]:
    columns = ["partition", "offset", "cast(key as string) key", "cast(value as string) value"]
    return sorted((row.partition, row.offset, row.key, row.value) for row in frame.selectExpr(*columns).collect())


def test_spark_writes_and_reads_with_its_own_connector(spark: SparkSession, bootstrap: str, tmp_path: Path) -> None:
    create_topic(bootstrap, "first", partitions=3)
    create_topic(bootstrap, "second", partitions=3)
    where = {"kafka.bootstrap.servers": bootstrap}
    records(spark).write.format("kafka").options(**where, topic="first").save()
    reading = {**where, "subscribe": "first", "startingOffsets": "earliest", "includeHeaders": "true"}
    found = spark.read.format("kafka").options(**reading).load()
    assert sorted(int(key) for _, _, key, _ in all_of(found)) == list(range(COUNT))
    assert {row.headers[0].key for row in found.select("headers").collect()} == {"h"}

    stream = spark.readStream.format("kafka").options(**reading, maxOffsetsPerTrigger="400").load()
    writing = stream.select("key", "value", "partition").writeStream.format("kafka").options(**where, topic="second")
    query = writing.option("checkpointLocation", str(tmp_path / "marks")).trigger(availableNow=True).start()
    assert query.awaitTermination(110)
    second = all_of(spark.read.format("kafka").options(**where, subscribe="second").load())
    assert [(number, key, value) for number, _, key, value in second] and len(second) == COUNT
    assert {(number, key) for number, _, key, _ in second} == {(number, key) for number, _, key, _ in all_of(found)}

    ours = spark.read.format("milena").options(**where, subscribe="first").load()
    assert all_of(ours) == all_of(found)
    theirs, mine = (one.select("timestamp", "timestampType", "topic").distinct() for one in (found, ours))
    assert theirs.schema.simpleString() == mine.schema.simpleString()
    assert theirs.exceptAll(mine).count() == 0


def test_a_job_for_sparks_connector_runs_with_another_name_of_the_format(
    spark: SparkSession, bootstrap: str, tmp_path: Path
) -> None:
    create_topic(bootstrap, "job", partitions=3)
    given = {
        "kafka.bootstrap.servers": bootstrap,
        "kafka.group.id": "job",
        "kafka.max.poll.records": "100",
        "kafkaConsumer.pollTimeoutMs": "60000",
        "subscribe": "job",
        "minPartitions": "5",
        "maxRecordsPerPartition": "150",
        "failOnDataLoss": "false",
        "maxOffsetsPerTrigger": "700",
    }
    records(spark).write.format("milena").options(**given, topic="job", **{"kafka.acks": "all"}).mode("append").save()
    times = json.dumps({"job": dict.fromkeys("012", 1)})
    by_time = {"startingOffsetsByTimestamp": times, "endingOffsetsByTimestamp": times.replace(": 1", ": 4000000000000")}
    for options in (given, given | by_time):
        theirs, ours = (spark.read.format(name).options(**options).load() for name in ("kafka", "milena"))
        assert ours.schema.simpleString() == theirs.schema.simpleString()
        assert all_of(ours) == all_of(theirs) and ours.count() == COUNT
        assert ours.rdd.getNumPartitions() >= 7
    found: list[int] = []
    for name in ("kafka", "milena"):  # the second query continues from the checkpoint of the first
        stream = spark.readStream.format(name).options(**given, startingOffsets="earliest").load()
        writing = stream.writeStream.format("parquet").option("path", str(tmp_path / "out"))
        writing = writing.option("checkpointLocation", str(tmp_path / "marks"))
        trigger = writing.trigger(once=True) if name == "kafka" else writing.trigger(availableNow=True)
        assert trigger.start().awaitTermination(110)
        found.append(spark.read.parquet(str(tmp_path / "out")).select("partition", "offset").distinct().count())
        records(spark).write.format("milena").options(**given, topic="job").mode("append").save()
    assert found == [COUNT, 2 * COUNT]
