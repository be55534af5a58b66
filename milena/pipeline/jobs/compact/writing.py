"""What tasks write of a work order: cleaned groups with their winners, and sorted keys.

An object is written to this machine's disk, and then put into the staging prefix whole. A group's receipt comes last:
a job that goes on does not write it again.
"""

from __future__ import annotations

import json
import os
import tempfile
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from itertools import groupby
from operator import itemgetter
from typing import TYPE_CHECKING, Final
from uuid import uuid4

from pyspark import TaskContext
from pyspark.sql.types import IntegerType, LongType, StringType, StructField, StructType

from milena.pipeline.errors import PipelineError
from milena.pipeline.jobs.compact.reading import NONE, Place, batches_of
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
from milena.tiered.orders.order import Order
from milena.tiered.store.staging import Staging

if TYPE_CHECKING:
    import pyarrow as pa

WRITTEN: Final = StructType(
    [
        StructField("group", IntegerType()),
        StructField("name", StringType()),
        StructField("size", LongType()),
        StructField("crc", LongType()),
    ]
)
"""An object of keys; ``group``: the number of its part. Of a group the receipt alone has the objects."""


def receipt_name(group: int) -> str:
    return f"group-{group}.receipt"


def encode_receipt(made: MadeGroup) -> bytes:
    log = None if made.log is None else made.log._asdict()
    return json.dumps({"log": log, "winners": made.winners._asdict()}).encode()


def decode_receipt(data: bytes) -> MadeGroup:
    """Raises PipelineError."""
    try:
        found = json.loads(data)
        log = None if found["log"] is None else StagedObject(**found["log"])
        return MadeGroup(log, StagedObject(**found["winners"]))
    except (ValueError, KeyError, TypeError) as error:
        raise PipelineError(f"a receipt in the staging prefix cannot be read: {error}") from None


@dataclass(frozen=True, slots=True)
class GroupTask:
    """For ``mapInArrow`` on rows of ``in_groups``: writes each group. ``befores``: what each has before it."""

    place: Place
    order: Order
    aborted: tuple[AbortedTxn, ...]
    producers: Mapping[ProducerId, LastRecord]
    befores: Mapping[int, Before]

    def __call__(self, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        rows = _rows(batches)
        with LoopThread() as loop, tempfile.TemporaryDirectory(prefix="milena-compact-") as folder:
            storage = storage_of(loop.runtime, self.place.tier, self.place.storage_options)
            loop.at_end(storage.close)
            staging = staging_of(loop.runtime, self.place.tier, self.place.storage_options, uuid4().hex)
            for group, those in groupby(rows, itemgetter(0)):
                winners = ((offset, winner) for _, offset, winner in those if offset != NONE)
                self._write(loop, OpenTier(loop, storage), staging, folder, group, winners)
                yield as_arrow([{"group": group, "name": receipt_name(group), "size": 0, "crc": 0}], WRITTEN)

    def _write(
        self,
        loop: LoopThread,
        tier: OpenTier,
        staging: Staging,
        folder: str,
        number: int,
        winners: Iterator[tuple[int, int]],
    ) -> None:
        order, disk = self.order, loop.runtime.disk
        group = order.groups[number]
        log, told = os.path.join(folder, "log"), os.path.join(folder, "winners")

        def batches() -> Iterator[BatchView]:
            for source in group.sources:
                yield from batches_of(tier, source)

        writer = GroupWriter(order, self.producers, self.aborted)
        made = writer.write(group, self.befores[number], batches(), winners, Written(disk, log), Written(disk, told))
        names = f"group-{number}.log", f"group-{number}.winners"
        if made.log is not None:
            loop.run(staging.write(order.path(names[0]), log))
        loop.run(staging.write(order.path(names[1]), told))
        receipt = MadeGroup(
            None if made.log is None else StagedObject(names[0], *made.log), StagedObject(names[1], *made.winners)
        )
        loop.run(staging.write(order.path(receipt_name(number)), encode_receipt(receipt)))


@dataclass(frozen=True, slots=True)
class KeysTask:
    """For ``mapInArrow`` on rows of ``sorted_keys``: writes an object for each part. ``attempt``: of the job, whose
    parts others' must not replace."""

    place: Place
    order: Order
    attempt: str

    def __call__(self, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        context = TaskContext.get()
        assert context is not None
        part, size = context.partitionId(), 0
        with LoopThread() as loop, tempfile.TemporaryDirectory(prefix="milena-compact-") as folder:
            path = os.path.join(folder, "keys")
            written = Written(loop.runtime.disk, path)
            for batch in batches:
                hashes, offsets = (column.to_pylist() for column in batch.columns)
                for hashed, offset in zip(hashes, offsets, strict=True):
                    written.add(entry_of(hashed, offset))
            written.close()
            size = written.size
            if size:
                name = f"keys-{self.attempt}-{part:05d}.keys"
                staging = staging_of(loop.runtime, self.place.tier, self.place.storage_options, uuid4().hex)
                loop.run(staging.write(self.order.path(name), path))
                row: Row = {"group": part, "name": name, "size": size, "crc": written.crc}
                yield as_arrow([row], WRITTEN)


def _rows(batches: Iterator[pa.RecordBatch]) -> Iterator[tuple[int, int, int]]:
    for batch in batches:
        yield from zip(*(column.to_pylist() for column in batch.columns), strict=True)
