"""Tasks of the sink that write exactly once, in this process: repeated, fenced and failed attempts."""

from __future__ import annotations

from collections.abc import Iterator

import pyarrow as pa
import pytest
from pyspark.sql.types import StructType

from milena.pipeline.errors import PipelineError
from milena.pipeline.exactly_once import StreamTask, WrittenOnce
from milena.pipeline.options import SinkOptions, sink_options
from milena.pipeline.sink import MilenaStreamWriter, MilenaWriter, write_once
from milena.pipeline.source import MilenaDataSource
from milena.testing.local_cluster import LocalCluster
from tests.oracle import kafka
from tests.oracle.kafka_cluster import running_kafka_cluster
from tests.pipeline.in_process import rows
from tests.wire.admin import create_topic
from tests.wire.waiting import wait_until

SCHEMA = StructType().add("value", "binary")
OF_ONE_BROKER = {
    "offsets.topic.replication.factor": "1",
    "transaction.state.log.replication.factor": "1",
    "transaction.state.log.min.isr": "1",
}


@pytest.fixture(scope="module")
def milena(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    often = {"transaction.abort.timed.out.transaction.cleanup.interval.ms": "100"}
    with LocalCluster.start(tmp_path_factory.mktemp("once"), brokers=1, overrides=often) as running:
        yield running.bootstrap


@pytest.fixture(scope="module", params=["milena", pytest.param("kafka", marks=pytest.mark.costly)])
def either(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """The address of a Milena cluster, and of a Kafka cluster."""
    if request.param == "milena":
        yield request.getfixturevalue("milena")
        return
    try:
        kafka.jars()
    except kafka.NoKafka as reason:
        pytest.skip(f"Kafka cannot be run: {reason}")
    folder = tmp_path_factory.mktemp("kafka")
    with running_kafka_cluster(folder, features={}, overrides=OF_ONE_BROKER, brokers=1) as running:
        yield running.bootstrap


@pytest.fixture
def topic(request: pytest.FixtureRequest) -> str:
    """A topic that no other test uses, and that the first record creates."""
    return "".join(one if one.isalnum() else "-" for one in request.node.name)


def options_of(bootstrap: str, topic: str, **more: str) -> SinkOptions:
    given = {"kafka.bootstrap.servers": bootstrap, "topic": topic, "deliveryGuarantee": "exactly-once"}
    return sink_options(given | more)


def task_of(topic: str, batch: int, number: int = 0, run: str = "first run") -> StreamTask:
    """A task of the query that writes to ``topic``."""
    return StreamTask(f"query-{topic}", run, batch, number)


def some(*values: int) -> pa.RecordBatch:
    return pa.RecordBatch.from_pydict({"value": [b"%d" % value for value in values]})


def written(bootstrap: str, topic: str, level: str = "read_committed") -> list[int]:
    found = rows(subscribe=topic, kafka__bootstrap__servers=bootstrap, isolation__level=level)
    return sorted(int(row["value"]) for row in found)


def test_a_repeated_batch_is_skipped_and_the_next_one_is_written(milena: str, topic: str) -> None:
    options = options_of(milena, topic)
    query = task_of(topic, 0).query
    assert write_once(options, iter([some(1, 2), some(3)]), task_of(topic, 0)) == WrittenOnce(3, query, first=True)
    assert written(milena, topic) == [1, 2, 3]
    # Spark promises neither the order of rows nor their division into Arrow's batches.
    again = write_once(options, iter([some(3, 2, 1)]), task_of(topic, 0, run="second run"))
    assert again == WrittenOnce(0, query, first=True)
    assert write_once(options, iter([some(4)]), task_of(topic, 1)) == WrittenOnce(1, query, first=False)
    assert written(milena, topic, "read_uncommitted") == [1, 2, 3, 4]


def test_tasks_of_a_batch_do_not_know_of_each_other(milena: str, topic: str) -> None:
    options = options_of(milena, topic)
    for task in range(3):
        assert write_once(options, iter([some(task)]), task_of(topic, 0, task)).records == 1
    assert written(milena, topic) == [0, 1, 2]


def test_a_later_attempt_fences_the_earlier_one(either: str, topic: str) -> None:
    options = options_of(either, topic)

    def zombie() -> Iterator[pa.RecordBatch]:
        yield some(1, 2)
        assert write_once(options, iter([some(1, 2, 3)]), task_of(topic, 0)).records == 3
        yield some(3)

    with pytest.raises(PipelineError, match="another attempt of this task has begun"):
        write_once(options, zombie(), task_of(topic, 0))
    assert written(either, topic) == [1, 2, 3]


def test_an_attempt_that_begins_after_a_later_one_has_ended_writes_nothing(milena: str, topic: str) -> None:
    options = options_of(milena, topic)
    write_once(options, iter([some(1)]), task_of(topic, 0))
    write_once(options, iter([some(2)]), task_of(topic, 1))
    with pytest.raises(PipelineError, match="task 0 of batch 0: batch 1 was written before"):
        write_once(options, iter([some(1)]), task_of(topic, 0))
    assert written(milena, topic, "read_uncommitted") == [1, 2]


def test_a_failed_attempt_leaves_neither_rows_nor_an_open_transaction(milena: str, topic: str) -> None:
    options = options_of(milena, topic)

    def failing() -> Iterator[pa.RecordBatch]:
        yield some(*range(100))
        raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        write_once(options, failing(), task_of(topic, 0))
    # An open transaction would hide the records of another task, which are behind its own.
    write_once(options, iter([some(*range(100, 200))]), task_of(topic, 0, number=1))
    assert written(milena, topic) == list(range(100, 200))
    write_once(options, iter([some(*range(100))]), task_of(topic, 0))
    assert written(milena, topic) == list(range(200))


def test_a_repeated_batch_with_other_rows_is_refused(milena: str, topic: str) -> None:
    options = options_of(milena, topic)
    write_once(options, iter([some(1, 2, 3)]), task_of(topic, 0))
    for other in (some(1, 2), some(1, 2, 4), some(1, 2, 3, 3), some()):
        with pytest.raises(PipelineError, match=f"other rows: 3 then, {other.num_rows} now.* failOnChangedBatch=false"):
            write_once(options, iter([other]), task_of(topic, 0))
    assert written(milena, topic, "read_uncommitted") == [1, 2, 3]


def test_rows_with_other_keys_times_or_headers_are_other_rows(milena: str, topic: str) -> None:
    create_topic(milena, topic, partitions=2)
    options = options_of(milena, topic)
    headers = [{"key": "a", "value": b"1"}, {"key": "b", "value": None}]
    row = {"key": [b"k"], "value": [b"v"], "partition": pa.array([1], pa.int32()), "headers": [headers]}
    row["timestamp"] = pa.array([1000], pa.timestamp("us", tz="UTC"))
    write_once(options, iter([pa.RecordBatch.from_pydict(row)]), task_of(topic, 0))
    assert write_once(options, iter([pa.RecordBatch.from_pydict(row)]), task_of(topic, 0)).records == 0
    others = {
        "key": [b""],
        "value": [None],
        "partition": pa.array([0], pa.int32()),
        "headers": [[{"key": "a", "value": b"1"}, {"key": "b", "value": b""}]],
        "timestamp": pa.array([None], pa.timestamp("us", tz="UTC")),
    }
    for name, value in others.items():
        with pytest.raises(PipelineError, match="other rows: 1 then, 1 now"):
            write_once(options, iter([pa.RecordBatch.from_pydict(row | {name: value})]), task_of(topic, 0))


def test_a_changed_batch_is_written_again_if_the_job_asks_for_it(milena: str, topic: str) -> None:
    options = options_of(milena, topic, failOnChangedBatch="false")
    write_once(options, iter([some(1, 2)]), task_of(topic, 0))
    assert write_once(options, iter([some(2, 1)]), task_of(topic, 0)).records == 0
    assert written(milena, topic) == [1, 2]
    assert write_once(options, iter([some(2, 3)]), task_of(topic, 0)).records == 2
    assert written(milena, topic) == [1, 2, 2, 3]
    assert write_once(options, iter([some(2, 3)]), task_of(topic, 0)).records == 0


def test_a_batch_without_its_last_task_of_an_earlier_run_is_refused(milena: str, topic: str) -> None:
    options = options_of(milena, topic)
    for task in (1, 2, 11):
        write_once(options, iter([some(task)]), task_of(topic, 4, task))
    writer = MilenaStreamWriter(options, SCHEMA)
    first = WrittenOnce(0, task_of(topic, 4).query, first=True)
    writer.commit([first] * 12, 4)
    writer.commit([first] * 11, 5)
    with pytest.raises(PipelineError, match="batch 4: it was written before with a task 11, and has 11 now"):
        writer.commit([first] * 11, 4)
    # A later batch of the same run needs no look at the groups.
    writer.commit([WrittenOnce(1, first.query, first=False)] * 11, 4)
    MilenaStreamWriter(options_of(milena, topic, failOnChangedBatch="false"), SCHEMA).commit([first] * 11, 4)


def test_a_group_that_another_program_has_committed_is_refused(milena: str, topic: str) -> None:
    from confluent_kafka import Consumer, TopicPartition

    create_topic(milena, topic, partitions=1)
    options = options_of(milena, topic)
    consumer = Consumer({"bootstrap.servers": milena, "group.id": task_of(topic, 0).name})
    consumer.commit(offsets=[TopicPartition(topic, 0, 0)], asynchronous=False)
    consumer.close()
    with pytest.raises(PipelineError, match="was committed by another program: ''"):
        write_once(options, iter([some(1)]), task_of(topic, 0))


def test_a_task_that_takes_longer_than_its_transaction_says_so(milena: str, topic: str) -> None:
    create_topic(milena, topic, partitions=1)
    options, patient = options_of(milena, topic, transactionTimeout="100ms"), options_of(milena, topic)

    def slow() -> Iterator[pa.RecordBatch]:
        yield some(*range(100))
        write_once(patient, iter([some(100)]), task_of(topic, 0, number=1))  # behind the open transaction
        wait_until(lambda: written(milena, topic) == [100], "the coordinator to abort the slow transaction")
        yield some(101)

    with pytest.raises(PipelineError, match=r"it took too long \(option transactionTimeout is 0\.1 s\)"):
        write_once(options, slow(), task_of(topic, 0))
    assert written(milena, topic) == [100]


def test_a_time_out_that_brokers_do_not_accept_is_an_error_with_its_option(milena: str, topic: str) -> None:
    options = options_of(milena, topic, transactionTimeout="1h")
    with pytest.raises(PipelineError, match=r"transactionTimeout is 3600 s, more than transaction\.max\.timeout\.ms"):
        write_once(options, iter([some(1)]), task_of(topic, 0))


def test_what_cannot_be_exactly_once_is_refused() -> None:
    given = {"kafka.bootstrap.servers": "h:1", "topic": "t", "deliveryGuarantee": "exactly-once"}
    with pytest.raises(PipelineError, match="exactly-once is for streams: a batch query has no batch ids"):
        MilenaWriter(sink_options(given), SCHEMA)
    with pytest.raises(PipelineError, match="exactly-once requires option topic"):
        MilenaStreamWriter(sink_options(given | {"topic": ""}), SCHEMA.add("topic", "string"))
    with pytest.raises(PipelineError, match="deliveryGuarantee=once is neither at-least-once nor exactly-once"):
        sink_options(given | {"deliveryGuarantee": "once"})
    with pytest.raises(PipelineError, match="this task belongs to none"):
        MilenaDataSource(given).streamWriter(StructType().add("value", "binary"), False).write(iter([]))
    ignored = sink_options(given | {"deliveryGuarantee": "at-least-once", "transactionTimeout": "1m"}).ignored
    assert ignored == ("transactionTimeout",)
