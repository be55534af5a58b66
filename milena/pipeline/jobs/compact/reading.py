"""What tasks read of a work order's sources: the keys that count, and the batches of a group."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from pyspark.sql.types import BinaryType, IntegerType, LongType, StructField, StructType

from milena.pipeline.errors import PipelineError
from milena.pipeline.jobs.rows import as_columns
from milena.pipeline.loops import LoopThread
from milena.pipeline.opened import Moved, OpenTier
from milena.pipeline.places import storage_of
from milena.pipeline.planning import Stretch
from milena.protocol.records.batch import BatchView
from milena.storage.files.txn_index import AbortedTxn
from milena.tiered.cleaning.window import Source
from milena.tiered.orders.carrying_out import CannotBeCarriedOut, Scan, Scanned
from milena.tiered.orders.order import Order

if TYPE_CHECKING:
    import pyarrow as pa

ROWS: Final = 20_000
"""Of an Arrow batch."""
NONE: Final = -1
SCANNED: Final = StructType(
    [
        StructField("group", IntegerType()),
        StructField("source", IntegerType()),
        StructField("offset", LongType()),
        StructField("hash", BinaryType()),
        StructField("open", BinaryType()),
        StructField("ended", BinaryType()),
        StructField("epoch", IntegerType()),
    ]
)
"""A record with a key that counts: the hash of that. And at the end of each source a row with the offset NONE: the
producers (8 bytes each) whose transactions are open and have ended, and the last leader epoch. ``source``: its number
in the order."""


@dataclass(frozen=True, slots=True)
class Place:
    """Where the tier is, see ``SourceOptions``."""

    tier: str
    storage_options: str


def batches_of(tier: OpenTier, source: Source) -> Iterator[BatchView]:
    """Raises PipelineError."""
    segment = source.segment
    stretch = Stretch(segment.partition, source.first, source.last, segment.size, segment)
    try:
        for batch in tier.batches(stretch):
            if batch.base_offset < source.first or batch.last_offset > source.last:
                raise PipelineError(f"a batch of segment {segment.id} has offsets on both sides of a source's end")
            yield batch
    except Moved as moved:
        raise PipelineError(f"{moved}: the order is void") from None


@dataclass(frozen=True, slots=True)
class KeyScan:
    """For ``mapInArrow`` on numbers of sources (``id``), as the order has them: rows of SCANNED."""

    place: Place
    order: Order
    aborted: tuple[AbortedTxn, ...]

    def __call__(self, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        with LoopThread() as loop:
            storage = storage_of(loop.runtime, self.place.tier, self.place.storage_options)
            loop.at_end(storage.close)
            tier = OpenTier(loop, storage)
            every = [(number, source) for number, group in enumerate(self.order.groups) for source in group.sources]
            for rows in batches:
                for at in rows.column(0).to_pylist():
                    yield from self._scan(tier, at, *every[at])

    def _scan(self, tier: OpenTier, at: int, group: int, source: Source) -> Iterator[pa.RecordBatch]:
        scan = Scan(self.order, source, self.aborted)
        found: list[tuple[int, bytes]] = []
        try:
            for batch in batches_of(tier, source):
                found.extend(scan.of(batch))
                if len(found) >= ROWS:
                    yield _arrow(group, at, found)
                    found = []
        except CannotBeCarriedOut as error:
            raise PipelineError(str(error)) from None
        yield _arrow(group, at, found)
        yield _last(group, at, scan.scanned)


def _arrow(group: int, source: int, found: list[tuple[int, bytes]]) -> pa.RecordBatch:
    count = len(found)
    empty = [None] * count
    return as_columns(
        (
            [group] * count,
            [source] * count,
            [offset for offset, _ in found],
            [hashed for _, hashed in found],
            empty,
            empty,
            empty,
        ),
        SCANNED,
    )


def _last(group: int, source: int, scanned: Scanned) -> pa.RecordBatch:
    values = (group, source, NONE, None, _packed(scanned.open), _packed(scanned.ended), int(scanned.epoch))
    return as_columns([[one] for one in values], SCANNED)


def _packed(producers: frozenset[int]) -> bytes:
    return b"".join(one.to_bytes(8, signed=True) for one in sorted(producers))


def unpacked(data: bytes) -> frozenset[int]:
    """The producers in a row of SCANNED."""
    return frozenset(int.from_bytes(data[at : at + 8], signed=True) for at in range(0, len(data), 8))
