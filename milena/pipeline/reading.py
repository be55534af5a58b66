"""What a task does: the batches of its stretches, as Arrow.

A stretch is a promise of offsets, not of a segment: if the segment was replaced or deleted since it was planned, what
serves its offsets now is looked up again, and read from the offset on that was reached.
"""

from __future__ import annotations

import gc
from collections.abc import Iterator
from contextlib import ExitStack
from dataclasses import replace
from functools import cache
from typing import TYPE_CHECKING, Final

from pyspark import TaskContext
from pyspark.sql.datasource import InputPartition
from pyspark.sql.types import StructType

from milena.pipeline.brokers import Brokers
from milena.pipeline.columns import Assembler
from milena.pipeline.errors import DataLoss, TopicGone, loss
from milena.pipeline.locations import storage_of
from milena.pipeline.loops import LoopThread
from milena.pipeline.open_tier import Damaged, Moved, OpenTier, named
from milena.pipeline.options import SourceOptions
from milena.pipeline.planning import Gap, Stretch
from milena.pipeline.plans import TierPlan
from milena.protocol.records.batch import BatchView, CorruptBatch
from milena.protocol.uuids import to_text

if TYPE_CHECKING:
    import pyarrow as pa

ROWS: Final = 10_000
BYTES: Final = 2 << 20
"""Limits of an Arrow batch; one batch of records may pass them. Memory of this size is used again: it is not given back
to the kernel and taken from it page by page."""
MOST_LOOKS: Final = 5
"""How often one stretch is looked up again."""


class Task(InputPartition):
    """What one task reads."""

    def __init__(self, stretches: tuple[Stretch, ...], since: int | None = None) -> None:
        super().__init__(None)
        self.stretches = stretches
        self.since = since


class StretchReader:
    """Use it in a ``with``. It opens what its stretches need."""

    def __init__(self, options: SourceOptions, schema: StructType, since: int | None = None) -> None:
        self._options = options
        self._schema = schema
        self._since = since
        self._stack = ExitStack()
        self._tier: OpenTier | None = None
        self._brokers: Brokers | None = None

    def __enter__(self) -> StretchReader:
        self._loop = self._stack.enter_context(LoopThread())
        return self

    def __exit__(self, *_: object) -> None:
        self._stack.close()

    def arrow(self, stretch: Stretch) -> Iterator[pa.RecordBatch]:
        """The records of a stretch. Raises PipelineError, which names object and offset."""
        at, looks, waiting = stretch.first, 0, [stretch]
        while waiting:
            one = waiting.pop(0)
            at = max(at, one.first)
            try:
                for made, reached in self._of_one(one, at):
                    at = reached
                    if made is not None:
                        yield made
            except Moved as error:
                looks += 1
                waiting = self._again(one.part(at, one.last, 1), looks, str(error)) + waiting
            except (Damaged, DataLoss) as error:
                loss(str(error), self._options.fail_on_data_loss)
                waiting = [*(() if isinstance(error, TopicGone) else self._behind(one, at)), *waiting]

    def _behind(self, one: Stretch, at: int) -> list[Stretch]:
        """Return the rest of a stretch after a loss at the brokers: from the present start of their log on."""
        if one.segment is not None or self._brokers is None:
            return []
        first, _ = self._brokers.bounds(one.partition.topic, one.partition.partition)
        return [one.part(first, one.last, one.size)] if at < first <= one.last else []

    def _of_one(self, one: Stretch, at: int) -> Iterator[tuple[pa.RecordBatch | None, int]]:
        """Yield Arrow batches, each with the offset after it."""
        assembler = Assembler(self._schema)
        partition, segment = one.partition, one.segment
        name = None if segment is None else to_text(segment.id)

        def taken() -> pa.RecordBatch | None:
            return assembler.taken(partition.topic, partition.partition, name) if len(assembler) else None

        try:
            for batch in self._batches(one.part(at, one.last, one.size)):
                if not batch.is_control and not _is_aborted(batch, one):
                    try:
                        assembler.add(batch, at, one.last)
                    except CorruptBatch as error:
                        raise Damaged(f"{_where(one)}, the batch at offset {batch.base_offset}: {error}") from None
                at = max(at, batch.last_offset + 1)
                if len(assembler) >= ROWS or assembler.size >= BYTES:
                    yield taken(), at
        except (Moved, Damaged, DataLoss):
            yield taken(), at
            raise
        yield taken(), one.last + 1

    def _batches(self, one: Stretch) -> Iterator[BatchView]:
        if one.segment is None:
            self._brokers = self._brokers or Brokers(self._loop, self._options)
            return self._brokers.batches(one)
        if self._tier is None:
            storage = storage_of(self._loop.runtime, self._options.tier, self._options.storage_options)
            self._loop.at_end(storage.close)
            self._tier = OpenTier(self._loop, storage)
        return self._tier.batches(one, self._since)

    def _again(self, one: Stretch, looks: int, why: str) -> list[Stretch]:
        """Return stretches that serve the rest of a stretch now. Raises DataLoss."""
        if self._options.bootstrap:
            return [replace(one, segment=None, committed=self._options.committed)]
        lost = f"{_where(one)} is gone, at offset {one.first}: {why}"
        if looks > MOST_LOOKS:
            loss(lost, self._options.fail_on_data_loss)
            return []
        found: list[Stretch] = []
        with LoopThread() as loop:
            plan = TierPlan(loop, self._options)
            for now in plan.stretches(one.partition, one.first, one.last + 1) if one.partition in plan else ():
                if isinstance(now, Gap) or (one.segment is not None and now.segment == one.segment):
                    loss(lost, self._options.fail_on_data_loss)
                else:
                    found.append(now)
        if not found:
            loss(lost, self._options.fail_on_data_loss)
        # All transactions with records in the stretch had ended when it was planned.
        return [replace(now, aborted=one.aborted) for now in found]


def _is_aborted(batch: BatchView, one: Stretch) -> bool:
    return batch.is_transactional and any(
        txn.producer_id == batch.producer_id and txn.first <= batch.base_offset <= txn.last for txn in one.aborted
    )


def _where(one: Stretch) -> str:
    if one.segment is not None:
        return named(one.segment)
    return f"{one.partition.topic}-{one.partition.partition} of the brokers"


def read(options: SourceOptions, schema: StructType, task: Task) -> Iterator[pa.RecordBatch]:
    """The rows of a task. Raises PipelineError."""
    _keep_modules()
    with StretchReader(options, schema, task.since) as reader:
        for stretch in task.stretches:
            yield from reader.arrow(stretch)


@cache
def _keep_modules() -> None:
    """Exclude the objects of all modules, some 100,000, from garbage collection, once in each worker of Spark: it
    collects garbage after each task. Some objects of the first task may be kept, too."""
    if TaskContext.get() is not None:
        gc.freeze()
