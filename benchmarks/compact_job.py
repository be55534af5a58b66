"""Carries out the work orders of a tier with Spark on local[2], in a process of its own.

``python -m benchmarks.compact_job TIER`` writes a line when Spark is there, and the ``seconds`` from then on as JSON.
"""

from __future__ import annotations

import json
import sys
import time

from milena.pipeline.jobs.compact.job import Compacted, compact
from milena.pipeline.session import session


def main(tier: str) -> int:
    spark = session("local[2]", "bench", {"spark.driver.host": "127.0.0.1", "spark.log.level": "ERROR"})
    print("begun", flush=True)
    begin = time.perf_counter()
    found = compact(spark, tier, told=lambda sentence: print(sentence, file=sys.stderr))
    print(json.dumps({"seconds": time.perf_counter() - begin}))
    spark.stop()
    return 0 if found == Compacted(1, 0, found.segments) else 1


if __name__ == "__main__":
    sys.exit(main(sys.argv[1]))
