"""A stream from topic ``orders`` to topic ``to`` that writes exactly once. As a process, one of its tasks waits in the
middle for ever: ``python -m tests.pipeline.once_query BOOTSTRAP CHECKPOINT MARK``."""

from __future__ import annotations

import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING

from milena.pipeline.session import session

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql import SparkSession
    from pyspark.sql.streaming.query import StreamingQuery

TASKS = 4
HELD = TASKS - 1
"""The task that waits; Spark starts it last."""
ROWS_BEFORE = 200
"""The rows that a held task has written."""


def started(
    spark: SparkSession, bootstrap: str, checkpoint: Path, *, tasks: int = TASKS, mark: Path | None = None
) -> StreamingQuery:
    """Start the query, which ends with the present records. With ``mark`` one task waits, and says so there."""
    brokers = {"kafka.bootstrap.servers": bootstrap}
    source = spark.readStream.format("milena").options(**brokers, subscribe="orders", startingOffsets="earliest")
    frame = source.load().select("key", "value").repartition(tasks, "key")
    if mark is not None:
        frame = frame.mapInArrow(_waiting(str(mark)), frame.schema)
    writing = frame.writeStream.format("milena").options(**brokers, topic="to", deliveryGuarantee="exactly-once")
    return writing.option("checkpointLocation", str(checkpoint)).trigger(availableNow=True).start()


def _waiting(mark: str) -> Callable[[Iterator[pa.RecordBatch]], Iterator[pa.RecordBatch]]:
    held, before = HELD, ROWS_BEFORE

    def rows(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        from pyspark import TaskContext

        context = TaskContext.get()
        seen = 0
        for batch in batches:
            if context is not None and context.partitionId() == held and seen >= before:
                Path(mark).touch()
                while True:
                    time.sleep(0.1)
            seen += batch.num_rows
            yield batch

    return rows


if __name__ == "__main__":
    bootstrap, checkpoint, mark = sys.argv[1:]
    spark = session("local[2]", "held", {"spark.sql.execution.arrow.maxRecordsPerBatch": "20"})
    started(spark, bootstrap, Path(checkpoint), mark=Path(mark)).awaitTermination()
