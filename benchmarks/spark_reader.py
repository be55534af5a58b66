"""Reads topics with Spark, each again and again, in a process of its own.

``python -m benchmarks.spark_reader JSON``: the object has ``master``, ``jars`` and ``frames``, which have ``format``,
``options`` and ``rounds``. The answer is a list with an object for each frame: ``rows``, ``seconds`` and ``cpu``
(seconds of all processes) of each round but the first, which warms up, and ``mib``, the most resident memory so far of
the driver's JVM and the workers together.
"""

from __future__ import annotations

import json
import os
import sys
import time
from typing import TYPE_CHECKING, Any

from benchmarks.families import family, peak_of, seconds_of
from milena.pipeline.session import session

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

COLUMNS = ("key", "value", "topic", "partition", "offset", "timestamp", "timestampType")


def main(text: str) -> int:
    asked = json.loads(text)
    settings = {"spark.driver.memory": "2g", "spark.jars": asked["jars"]}
    spark = session(asked["master"], "bench", settings)
    spark.sparkContext.setLogLevel("ERROR")
    from benchmarks.spark_made import MadeSource  # needs pyarrow, which only the extra spark has

    spark.dataSource.register(MadeSource)
    print(json.dumps([read(spark, **frame) for frame in asked["frames"]]))
    spark.stop()
    return 0


def read(spark: SparkSession, format: str, options: dict[str, str], rounds: int) -> dict[str, Any]:
    from pyspark.sql import Observation
    from pyspark.sql import functions as f

    frame = spark.read.format(format).options(**options).load().select(*COLUMNS)
    observed = Observation("warm")
    _run(frame.observe(observed, f.count(f.lit(1)).alias("rows")))
    seconds, cpu = [], []
    for _ in range(rounds):
        before, begin = seconds_of(family(os.getpid())), time.perf_counter()
        _run(frame)
        seconds.append(time.perf_counter() - begin)
        cpu.append(seconds_of(family(os.getpid())) - before)
    mib = peak_of(member for member in family(os.getpid()) if member.pid != os.getpid())
    return {"rows": observed.get["rows"], "seconds": seconds, "cpu": cpu, "mib": mib}


def _run(frame: DataFrame) -> None:
    frame.write.format("noop").mode("overwrite").save()


if __name__ == "__main__":
    sys.exit(main(sys.argv[1]))
