"""Reads a topic with Spark on local[2] again and again, in a process of its own.

``python -m benchmarks.spark_reader JSON``: the object has ``format``, ``options``, ``rounds`` and ``jars``; the answer
is one too: ``rows``, ``seconds`` of each round but the first, which warms up, and ``mib``, the most resident memory of
all processes together.
"""

from __future__ import annotations

import json
import os
import sys
import time
from contextlib import suppress

from benchmarks.process_tree import descendants, most_resident_mib
from milena.pipeline.session import session

COLUMNS = ("key", "value", "topic", "partition", "offset", "timestamp", "timestampType")


def main(text: str) -> int:
    asked = json.loads(text)
    settings = {"spark.driver.memory": "2g", "spark.jars": asked["jars"]}
    spark = session("local[2]", "bench", settings)
    spark.sparkContext.setLogLevel("ERROR")
    frame = spark.read.format(asked["format"]).options(**asked["options"]).load().select(*COLUMNS)
    seconds = []
    for _ in range(asked["rounds"] + 1):
        begin = time.perf_counter()
        frame.write.format("noop").mode("overwrite").save()
        seconds.append(time.perf_counter() - begin)
    print(json.dumps({"rows": frame.count(), "seconds": seconds[1:], "mib": most_resident_mib_of_all()}))
    spark.stop()
    return 0


def most_resident_mib_of_all() -> float:
    """Of this process's descendants together."""
    found = 0.0
    for pid in descendants(os.getpid()) - {os.getpid()}:
        with suppress(OSError):  # it has just ended
            found += most_resident_mib(pid)
    return found


if __name__ == "__main__":
    sys.exit(main(sys.argv[1]))
