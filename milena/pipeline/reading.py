"""Reads the stretches of a task and returns their records as Arrow batches.

A task has to read the offsets of its stretches, but not necessarily from the planned segments. If a segment was
replaced or deleted after the plan was made, the task looks up which segment has the offsets now, and continues there at
the offset that it has reached.
"""

from __future__ import annotations

import gc
from collections.abc import Iterator
from contextlib import ExitStack
from dataclasses import replace
from functools import cache, partial
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
"""The limits of an Arrow batch (ROWS and BYTES); a single record batch may exceed them. With this limit the allocator
reuses the memory of a batch and does not return it to the kernel."""
MAX_LOOKUPS: Final = 5
"""How often the segments of a stretch are looked up again before it counts as lost."""


class Task(InputPartition):
    """The stretches that one task reads. ``since``: a timestamp in ms; records before it may be left out."""

    def __init__(self, stretches: tuple[Stretch, ...], since: int | None = None) -> None:
        super().__init__(None)
        self.stretches = stretches
        self.since = since


class StretchReader:
    """A context manager that reads stretches. It opens the tier and connects to brokers when the first stretch needs
    them."""

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
        """Yield the records of a stretch. Raises PipelineError, whose message names the object and the offset."""
        at, lookups, pending = stretch.first, 0, [stretch]
        while pending:
            one = pending.pop(0)
            at = max(at, one.first)
            try:
                for made, reached in self._read(one, at):
                    at = reached
                    if made is not None:
                        yield made
            except Moved as error:
                lookups += 1
                pending = self._look_up_again(one.part(at, one.last, 1), lookups, str(error)) + pending
            except (Damaged, DataLoss) as error:
                loss(str(error), self._options.fail_on_data_loss)
                pending = [*(() if isinstance(error, TopicGone) else self._still_at_brokers(one, at)), *pending]

    def _still_at_brokers(self, one: Stretch, at: int) -> list[Stretch]:
        """Return the part of a stretch that the brokers still have, after the records from offset ``at`` on were lost:
        it begins at their present log start."""
        if one.segment is not None or self._brokers is None:
            return []
        first, _ = self._brokers.bounds(one.partition.topic, one.partition.partition)
        return [one.part(first, one.last, one.size)] if at < first <= one.last else []

    def _read(self, one: Stretch, at: int) -> Iterator[tuple[pa.RecordBatch | None, int]]:
        """Yield the records of a stretch from offset ``at`` on as Arrow batches, each with the next offset to read; the
        batch is None if there are no more records."""
        assembler = Assembler(self._schema)
        partition, segment = one.partition, one.segment
        name = None if segment is None else to_text(segment.id)

        def taken() -> pa.RecordBatch | None:
            return assembler.take(partition.topic, partition.partition, name) if len(assembler) else None

        try:
            for batch in self._batches(one.part(at, one.last, one.size)):
                if not batch.is_control and not _is_aborted(batch, one):
                    try:
                        assembler.add(batch, at, one.last)
                    except CorruptBatch as error:
                        what = f"{_where(one)}, the batch at offset {batch.base_offset}: {error}"
                        if self._options.fail_on_data_loss:
                            raise Damaged(what) from None
                        loss(what, fail=False)
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
        skip = None if self._options.fail_on_data_loss else partial(loss, fail=False)
        return self._tier.batches(one, self._since, skip)

    def _look_up_again(self, one: Stretch, lookups: int, why: str) -> list[Stretch]:
        """Return the stretches that now have the offsets of a stretch whose segment no longer exists. ``why``: the
        error, for the message. Raises DataLoss."""
        if self._options.bootstrap:
            return [replace(one, segment=None, committed=self._options.committed)]
        lost = f"{_where(one)} does not exist any more, at offset {one.first}: {why}"
        if lookups > MAX_LOOKUPS:
            loss(lost, self._options.fail_on_data_loss)
            return []
        found: list[Stretch] = []
        with LoopThread() as loop:
            plan = TierPlan(loop, replace(self._options, fail_on_data_loss=False))  # what is missing is reported below
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
    """Yield the rows of a task. Raises PipelineError."""
    _keep_modules()
    with StretchReader(options, schema, task.since) as reader:
        for stretch in task.stretches:
            yield from reader.arrow(stretch)


@cache
def _keep_modules() -> None:
    """Exclude the objects of all imported modules, some 100,000, from garbage collection, once in each Python worker:
    Spark's worker collects garbage after each task. Some objects of the first task may be excluded, too."""
    if TaskContext.get() is not None:
        gc.freeze()
