"""The source on a Spark cluster: a worker that is killed in the middle takes nothing with it."""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from importlib.util import find_spec
from pathlib import Path
from zlib import crc32

import pytest

from tests.pipeline.made_tiers import MadeTier, run
from tests.pipeline.standalone import standalone
from tests.wire.waiting import wait_until

pytestmark = pytest.mark.timeout(400)
PARTITIONS, SEGMENTS, COUNT, SIZE = 3, 8, 500, 1000

JOB = """
import json, os, sys, time
from pathlib import Path
from pyspark.sql.functions import col, count, crc32, sum
from milena.pipeline.session import session

master, options, marks = sys.argv[1], json.loads(sys.argv[2]), Path(sys.argv[3])

def wait(rows):
    # Each task says on which executor it runs, and goes on when the test lets it.
    for number, row in enumerate(rows):
        if number == 0:
            (marks / f"{os.getppid()}-{os.getpid()}").touch()
            while not (marks / "go").exists():
                time.sleep(0.05)
        yield row

settings = {"spark.driver.host": "127.0.0.1", "spark.executor.memory": "600m", "spark.executor.cores": "1",
            "spark.executorEnv.PYTHONPATH": os.environ["PYTHONPATH"], "spark.sql.shuffle.partitions": "2"}
spark = session(master, "killed", settings)
frame = spark.read.format("milena").options(**options, columns="partition,offset,value").load()
rows = spark.createDataFrame(frame.rdd.mapPartitions(wait), frame.schema).groupBy("partition")
found = rows.agg(count("*").alias("n"), sum("offset").alias("o"), sum(crc32(col("value"))).alias("c")).collect()
print(json.dumps(sorted([row.partition, row.n, row.o, row.c] for row in found)))
spark.stop()
"""


ADDRESS = re.compile(r"http://127\.0\.0\.1:\d+")
UPLOAD = """
import fsspec, json, sys
store = fsspec.filesystem("s3", **json.loads(sys.argv[1]))
store.mkdir("bucket")
store.put(sys.argv[2], "bucket/tier", recursive=True)
"""


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
    if not (find_spec("moto") and find_spec("s3fs")):
        pytest.skip("needs moto[server] and s3fs")
    log = folder / "moto.log"
    with log.open("wb") as out:
        server = subprocess.Popen([sys.executable, "-m", "moto.server", "-p", "0"], stdout=out, stderr=out)
    try:
        wait_until(lambda: ADDRESS.search(log.read_text()) is not None, "moto's server listens", 60)
        found = ADDRESS.search(log.read_text())
        assert found is not None
        options = json.dumps({"key": "x", "secret": "x", "client_kwargs": {"endpoint_url": found[0]}})
        subprocess.run([sys.executable, "-c", UPLOAD, options, str(made.folder)], check=True)
        yield {"tier": "s3://bucket/tier", "storageOptions": options}
    finally:
        server.kill()
        server.wait()


@pytest.mark.parametrize("reached", [by_path, by_s3])
def test_a_job_ends_with_the_right_result_though_a_worker_is_killed(
    tier: MadeTier, tmp_path: Path, reached: Callable[[MadeTier, Path], AbstractContextManager[dict[str, str]]]
) -> None:
    if shutil.which("java") is None:
        pytest.skip("Spark needs a JDK")
    marks, errors = tmp_path / "marks", tmp_path / "job.log"
    marks.mkdir()
    with reached(tier, tmp_path) as options, standalone(tmp_path, 2) as cluster, errors.open("w") as log:
        given = json.dumps({**options, "subscribe": "orders", "maxPartitionBytes": "300k"})
        command = [sys.executable, "-c", JOB, cluster.master, given, str(marks)]
        environment = os.environ | {"PYTHONPATH": str(Path(__file__).parents[2])}
        job = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=log, text=True, env=environment)

        def begun() -> bool:
            return len({one.name.partition("-")[0] for one in marks.iterdir()}) == 2 or job.poll() is not None

        try:
            wait_until(begun, "both workers have begun", 150)
            assert job.poll() is None, errors.read_text()[-3000:]
            cluster.kill(1)
            (marks / "go").touch()
            told, _ = job.communicate(timeout=200)
            assert job.returncode == 0, errors.read_text()[-3000:]
        finally:
            job.kill()
            job.communicate()
    assert json.loads(told) == expected()
    assert "Lost executor" in errors.read_text()
