"""Source and sink on a Spark cluster: no record is lost when a worker is killed in the middle of a job."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from pathlib import Path
from zlib import crc32

import pytest

from milena.testing.local_cluster import LocalCluster
from tests.pipeline.held_jobs import Job
from tests.pipeline.in_process import rows
from tests.pipeline.made_tiers import MadeTier, run
from tests.pipeline.s3 import URL, s3
from tests.pipeline.standalone import Standalone
from tests.wire.admin import create_topic
from tests.wire.waiting import wait_until

pytestmark = pytest.mark.timeout(400)
PARTITIONS, SEGMENTS, COUNT, SIZE = 3, 8, 500, 1000
WRITTEN = 900
"""Records of a task that go to the sink before it is held."""

JOB = """
from pyspark.sql.functions import col, count, crc32, sum

master, options = sys.argv[2], json.loads(sys.argv[3])
spark = on_cluster(master, "killed")
frame = spark.read.format("milena").options(**options, columns="partition,offset,value").load()
rows = spark.createDataFrame(frame.rdd.mapPartitions(held), frame.schema).groupBy("partition")
found = rows.agg(count("*").alias("n"), sum("offset").alias("o"), sum(crc32(col("value"))).alias("c")).collect()
print(json.dumps(sorted([row.partition, row.n, row.o, row.c] for row in found)))
spark.stop()
"""

WRITING = """
master, options, bootstrap = sys.argv[2], json.loads(sys.argv[3]), sys.argv[4]
spark = on_cluster(master, "killed")
spark.conf.set("spark.sql.execution.arrow.maxRecordsPerBatch", "100")
frame = spark.read.format("milena").options(**options, columns="partition,offset,value").load()
made = frame.selectExpr("cast(partition || '-' || offset as binary) as key", "value")

def late(found):
    # Those of an executor are held when a part of them has gone to the sink.
    for number, one in enumerate(found):
        yield from held([one]) if number == WRITTEN else [one]

rows = spark.createDataFrame(made.rdd.mapPartitions(late), made.schema)
rows.write.format("milena").mode("append").options(**{"kafka.bootstrap.servers": bootstrap, "topic": "to"}).save()
spark.stop()
""".replace("WRITTEN", str(WRITTEN))


@pytest.fixture
def tier(tmp_path: Path) -> MadeTier:
    made = MadeTier(tmp_path / "tier")
    for number in range(PARTITIONS):
        for first in range(0, SEGMENTS * COUNT, COUNT):
            made.add(run(first, first + COUNT, by=50, size=SIZE), number=number)
    return made


def expected() -> list[list[int]]:
    offsets = range(SEGMENTS * COUNT)
    sums = [len(offsets), sum(offsets), sum(crc32((b"v%d" % offset).ljust(SIZE, b".")) for offset in offsets)]
    return [[number, *sums] for number in range(PARTITIONS)]


@contextmanager
def by_path(made: MadeTier, folder: Path) -> Iterator[dict[str, str]]:
    yield {"tier": str(made.folder), "metadata": str(made.metadata(folder / "data"))}


@contextmanager
def by_s3(made: MadeTier, folder: Path) -> Iterator[dict[str, str]]:
    with s3(folder, made.folder) as options:
        yield {"tier": URL, "storageOptions": options}


@pytest.mark.parametrize("reached", [by_path, by_s3])
def test_a_job_has_the_right_result_although_a_worker_is_killed(
    tier: MadeTier,
    tmp_path: Path,
    standalone: Standalone,
    reached: Callable[[MadeTier, Path], AbstractContextManager[dict[str, str]]],
) -> None:
    with reached(tier, tmp_path) as options:
        given = json.dumps({**options, "subscribe": "orders", "maxPartitionBytes": "300k"})
        with Job(tmp_path, JOB, standalone.master, given) as job:
            job.wait_until_held(2)
            standalone.kill(1)
            output, errors = job.let_go()
    assert json.loads(output) == expected()
    assert "Lost executor" in errors


def test_records_of_a_killed_worker_are_written_again_and_none_is_missing(
    tier: MadeTier, tmp_path: Path, standalone: Standalone
) -> None:
    with LocalCluster.start(tmp_path / "cluster", brokers=1) as to, by_path(tier, tmp_path) as options:
        create_topic(to.bootstrap, "to", partitions=2)
        given = json.dumps({**options, "subscribe": "orders", "maxPartitionBytes": "2m"})

        def written() -> Counter[bytes]:
            return Counter(row["key"] for row in rows(kafka__bootstrap__servers=to.bootstrap, subscribe="to"))

        with Job(tmp_path, WRITING, standalone.master, given, to.bootstrap) as job:
            job.wait_until_held(2)
            wait_until(lambda: len(written()) > WRITTEN, "both executors to have written")
            standalone.kill(1)
            job.let_go()
        keys = written()
    assert set(keys) == {b"%d-%d" % (number, at) for number in range(PARTITIONS) for at in range(SEGMENTS * COUNT)}
    assert max(keys.values()) == 2
