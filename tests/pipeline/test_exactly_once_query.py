"""Queries on Spark that write exactly once: killed, repeated, and repeated with other tasks."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from confluent_kafka import Producer
from pyspark.errors import PySparkException
from pyspark.sql import SparkSession

from milena.client.admin import group_commits
from milena.client.cluster import Cluster
from milena.pipeline.loops import LoopThread
from milena.pipeline.options import addresses
from milena.testing.local_cluster import LocalCluster
from tests.pipeline.in_process import rows
from tests.pipeline.once_query import TASKS, started
from tests.wire.admin import create_topic
from tests.wire.waiting import wait_until

COUNT = 2000
SIZE = 2000
"""The size of a value in bytes: rows reach the sink only when buffers between Spark's processes are full."""


@pytest.fixture
def running(tmp_path: Path) -> Iterator[LocalCluster]:
    with LocalCluster.start(tmp_path / "cluster", brokers=1) as found:
        create_topic(found.bootstrap, "orders", partitions=2)
        create_topic(found.bootstrap, "to", partitions=2)
        produce(found, range(COUNT))
        yield found


def produce(running: LocalCluster, numbers: range) -> None:
    producer = Producer({"bootstrap.servers": running.bootstrap})
    for number in numbers:
        producer.produce("orders", b"%d".ljust(SIZE) % number, b"%d" % number)
    assert producer.flush(60) == 0


def written(running: LocalCluster, level: str = "read_committed") -> Counter[int]:
    found = rows(subscribe="to", kafka__bootstrap__servers=running.bootstrap, isolation__level=level)
    return Counter(int(row["key"]) for row in found)


@contextmanager
def held(running: LocalCluster, folder: Path) -> Iterator[subprocess.Popen[bytes]]:
    """Run the query as a process until its last task waits, in the middle of its rows."""
    mark = folder / "mark"
    words = [running.bootstrap, str(folder / "checkpoint"), str(mark)]
    environment = os.environ | {"PYTHONPATH": str(Path(__file__).parents[2])}
    with (folder / "query.log").open("wb") as log:
        command = [sys.executable, "-m", "tests.pipeline.once_query", *words]
        query = subprocess.Popen(command, stdout=log, stderr=log, env=environment, start_new_session=True)
    try:
        wait_until(lambda: mark.exists() or query.poll() is not None, "the last task to wait", 200)
        assert query.poll() is None, (folder / "query.log").read_text()[-3000:]
        yield query
    finally:
        os.killpg(query.pid, signal.SIGKILL)
        query.wait()


def tasks_committed(running: LocalCluster, query: str) -> list[int]:
    """Return the number of rows that each task has committed in its last batch, as the tasks' groups tell."""
    with LoopThread() as loop:
        return loop.run(_tasks_committed(Cluster(loop.runtime, addresses(running.bootstrap), "test"), query))


async def _tasks_committed(cluster: Cluster, query: str) -> list[int]:
    try:
        commits = [await group_commits(cluster, f"milena-spark-{query}-{task}") for task in range(TASKS)]
        return [json.loads(found["to", 0].metadata)["rows"] for found in commits if found]
    finally:
        cluster.close()


def repeat(checkpoint: Path, batch: int) -> None:
    """Make the next run repeat its last batch: as if the query had been killed before it noted the end of the batch."""
    for name in (f"{batch}", f".{batch}.crc"):
        (checkpoint / "commits" / name).unlink()


@pytest.mark.costly
def test_a_query_that_is_killed_and_started_again_writes_each_row_once(
    spark: SparkSession, running: LocalCluster, tmp_path: Path
) -> None:
    checkpoint = tmp_path / "checkpoint"
    with held(running, tmp_path):
        query = json.loads((checkpoint / "metadata").read_text())["id"]
        wait_until(lambda: len(tasks_committed(running, query)) == TASKS - 1, "the other tasks to commit")
        finished = sum(tasks_committed(running, query))
        wait_until(lambda: len(written(running, "read_uncommitted")) > finished, "the held task to write")
    before = written(running, "read_uncommitted")
    assert started(spark, running.bootstrap, checkpoint).awaitTermination(200)
    assert written(running) == dict.fromkeys(range(COUNT), 1)
    after = written(running, "read_uncommitted")
    twice = {number for number, count in after.items() if count == 2}
    assert len(before) == finished + len(twice) and twice <= set(before)

    produce(running, range(COUNT, COUNT + 100))
    assert started(spark, running.bootstrap, checkpoint).awaitTermination(200)
    assert written(running) == dict.fromkeys(range(COUNT + 100), 1)
    after = written(running, "read_uncommitted")

    repeat(checkpoint, 1)
    assert started(spark, running.bootstrap, checkpoint).awaitTermination(200)
    assert written(running, "read_uncommitted") == after

    repeat(checkpoint, 1)
    with pytest.raises(PySparkException, match=r"of batch 1: it was written before with other rows.*repartition\(\)"):
        started(spark, running.bootstrap, checkpoint, tasks=2).awaitTermination(200)
    assert written(running, "read_uncommitted") == after
