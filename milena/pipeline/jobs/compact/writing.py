"""What tasks write of a work order: cleaned groups with their winners, and sorted keys.

An object is written to this machine's disk, and then put into the staging prefix whole, under a name of its own: who
has read a receipt finds what that tells, also if another job or another attempt writes the same group.
"""

from __future__ import annotations

import os
import tempfile
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from itertools import groupby
from operator import itemgetter
from typing import TYPE_CHECKING, Final
from uuid import uuid4

from pyspark import TaskContext
from pyspark.sql.types import BinaryType, IntegerType, LongType, StringType, StructField, StructType

from milena.pipeline.errors import PipelineError
from milena.pipeline.jobs.compact.reading import NONE, Place, batches_of
from milena.pipeline.jobs.compact.receipts import encode_receipt, receipt_name
from milena.pipeline.jobs.rows import Row, as_arrow
from milena.pipeline.loops import LoopThread
from milena.pipeline.opened import OpenTier
from milena.pipeline.places import staging_of, storage_of
from milena.protocol.records.batch import BatchView
from milena.protocol.types import ProducerId
from milena.storage.cleaning.retained import LastRecord
from milena.storage.files.txn_index import AbortedTxn
from milena.tiered.orders.carrying_out import Before, GroupWriter, Written
from milena.tiered.orders.keys import entry_of
from milena.tiered.orders.manifest import MadeGroup, StagedObject
from milena.tiered.orders.order import ORDER, Order
from milena.tiered.store.staging import Staging, is_there

if TYPE_CHECKING:
    import pyarrow as pa

GROUPS: Final = StructType([StructField("group", IntegerType()), StructField("receipt", BinaryType())])
"""A group that was written."""
KEYS: Final = StructType(
    [
        StructField("part", IntegerType()),
        StructField("name", StringType()),
        StructField("size", LongType()),
        StructField("crc", LongType()),
    ]
)
"""An object of keys."""


@dataclass(frozen=True, slots=True)
class GroupTask:
    """For ``mapInArrow`` on rows of ``in_groups``: writes each group, rows of GROUPS. ``befores``: what each has before
    it."""

    place: Place
    order: Order
    aborted: tuple[AbortedTxn, ...]
    producers: Mapping[ProducerId, LastRecord]
    befores: Mapping[int, Before]

    def __call__(self, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        rows = _rows(batches)
        with LoopThread() as loop, _own_folder() as folder:
            storage = storage_of(loop.runtime, self.place.tier, self.place.storage_options)
            loop.at_end(storage.close)
            staging = staging_of(loop.runtime, self.place.tier, self.place.storage_options, uuid4().hex)
            for group, those in groupby(rows, itemgetter(0)):
                winners = ((offset, winner) for _, offset, winner in those if offset != NONE)
                receipt = self._write(loop, OpenTier(loop, storage), staging, folder, group, winners)
                yield as_arrow([{"group": group, "receipt": receipt}], GROUPS)

    def _write(
        self,
        loop: LoopThread,
        tier: OpenTier,
        staging: Staging,
        folder: str,
        number: int,
        winners: Iterator[tuple[int, int]],
    ) -> bytes:
        """The receipt."""
        order, disk = self.order, loop.runtime.disk
        group = order.groups[number]
        log, told = os.path.join(folder, "log"), os.path.join(folder, "winners")

        def batches() -> Iterator[BatchView]:
            for source in group.sources:
                yield from batches_of(tier, source)

        writer = GroupWriter(order, self.producers, self.aborted)
        made = writer.write(group, self.befores[number], batches(), winners, Written(disk, log), Written(disk, told))
        name = f"group-{number}-{uuid4().hex[:12]}"
        receipt = MadeGroup(
            None if made.log is None else StagedObject(f"{name}.log", *made.log),
            StagedObject(f"{name}.winners", *made.winners),
        )
        check_stands(loop, staging, order.folder)
        if receipt.log is not None:
            loop.run(staging.write(order.path(receipt.log.name), log))
        loop.run(staging.write(order.path(receipt.winners.name), told))
        data = encode_receipt(receipt)
        loop.run(staging.write(order.path(receipt_name(number)), data))
        return data


@dataclass(frozen=True, slots=True)
class KeysTask:
    """For ``mapInArrow`` on rows of ``sorted_keys``: writes an object for each part, a row of KEYS. ``folder``: the
    order's. ``attempt``: of the job, whose parts others' must not replace."""

    place: Place
    folder: str
    attempt: str

    def __call__(self, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        context = TaskContext.get()
        assert context is not None
        part = context.partitionId()
        with LoopThread() as loop, _own_folder() as folder:
            path = os.path.join(folder, "keys")
            written = Written(loop.runtime.disk, path)
            for batch in batches:
                hashes, offsets = (column.to_pylist() for column in batch.columns)
                for hashed, offset in zip(hashes, offsets, strict=True):
                    written.add(entry_of(hashed, offset))
            written.close()
            if written.size:
                name = f"keys-{self.attempt}-{part:05d}.keys"
                staging = staging_of(loop.runtime, self.place.tier, self.place.storage_options, uuid4().hex)
                check_stands(loop, staging, self.folder)
                loop.run(staging.write(f"{self.folder}/{name}", path))
                row: Row = {"part": part, "name": name, "size": written.size, "crc": written.crc}
                yield as_arrow([row], KEYS)


def _own_folder() -> tempfile.TemporaryDirectory[str]:
    """Where Spark's own files are: it has room there, and removes what an executor leaves that is killed."""
    spark = os.environ.get("SPARK_LOCAL_DIRS", "").split(",")
    return tempfile.TemporaryDirectory(prefix="milena-compact-", dir=spark[os.getpid() % len(spark)] or None)


def check_stands(loop: LoopThread, staging: Staging, folder: str) -> None:
    """Raises PipelineError if the order was taken back: nobody would take what is written, nor remove it."""
    if not loop.run(is_there(staging, f"{folder}/{ORDER}")):
        raise PipelineError(f"{folder}: the order was taken back")


def _rows(batches: Iterator[pa.RecordBatch]) -> Iterator[tuple[int, int, int]]:
    for batch in batches:
        yield from zip(*(column.to_pylist() for column in batch.columns), strict=True)
