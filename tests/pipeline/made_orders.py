"""Work orders of tiers that were made without any broker, and whether what was made of them is right."""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from uuid import UUID, uuid4

import pyarrow as pa

from milena.pipeline.jobs.compact.reading import Place
from milena.pipeline.loops import LoopThread
from milena.pipeline.places import staging_of, storage_of
from milena.protocol.records.crc import crc32c
from milena.protocol.types import LeaderEpoch, Offset
from milena.storage.files.producer_snapshot import encode_snapshot
from milena.storage.state.producer_state import ProducerState
from milena.tiered.cleaning.window import Source
from milena.tiered.orders.manifest import Manifest, StagedObject, decode_manifest
from milena.tiered.orders.order import MANIFEST, ORDER, PRODUCERS, Order, OrderedGroup, encode_order
from milena.tiered.segments.cleaner_offsets import CleanerOffset
from milena.tiered.segments.segment_metadata import RemoteLogSegmentMetadata
from milena.tiered.store.staging import WORK, Staging
from tests.fixtures.order_worker import OrderWorker
from tests.pipeline.made_tiers import MadeTier

EPOCH = LeaderEpoch(0)
HOUR_MS = 3_600_000


def ordered(tier: Path, segments: list[RemoteLogSegmentMetadata], number: int = 1) -> Order:
    """A new order of these segments, each a group of its own. Its time is over the later the higher its ``number``."""
    now, end = time.time_ns() // 1_000_000, Offset(segments[-1].end_offset + 1)
    every = (Source(one, one.start_offset, one.end_offset, True) for one in segments)
    groups = tuple(OrderedGroup((source,), None) for source in every)
    of = segments[0].partition
    cleaned = (CleanerOffset(EPOCH, end),)
    times = now, now + HOUR_MS + number * 1000
    order = Order(
        UUID(int=number), of, EPOCH, EPOCH, cleaned, *times, groups[0].first, 1, 1000, 100, 1 << 20, bytes(32), groups
    )
    folder = tier / WORK / order.folder
    folder.mkdir(parents=True)
    (folder / PRODUCERS).write_bytes(encode_snapshot(ProducerState()))
    (folder / ORDER).write_bytes(encode_order(order))
    return order


def folder_of(made: MadeTier, order: Order) -> Path:
    return made.folder / WORK / order.folder


def place_of(made: MadeTier) -> Place:
    return Place(str(made.folder), "")


def check_result(made: MadeTier, order: Order, other: Path) -> None:
    """Whether the manifest and what it names is what a worker with dictionaries makes. ``other``: an empty folder."""
    folder = folder_of(made, order)
    manifest = decode_manifest((folder / MANIFEST).read_bytes(), order)
    expected = other / WORK / order.folder
    expected.mkdir(parents=True)
    (other / "kafka-tiered-storage").mkdir()
    (expected / PRODUCERS).write_bytes((folder / PRODUCERS).read_bytes())
    with _open(other) as (loop, staging):
        storage = storage_of(loop.runtime, str(made.folder), "")
        worker = OrderWorker(loop.runtime.disk, storage, staging, str(other / "files"))
        wanted = loop.run(worker.make(order))
        loop.run(storage.close())
    assert contents(folder, manifest) == contents(expected, wanted)


def contents(folder: Path, manifest: Manifest) -> list[bytes | None]:
    """Logs and winners of the groups, and the keys."""

    def read(one: StagedObject) -> bytes:
        data = (folder / one.name).read_bytes()
        assert (len(data), crc32c(data)) == (one.size, one.crc), one.name
        return data

    found = [None if one is None else read(one) for group in manifest.groups for one in group]
    return [*found, b"".join(map(read, manifest.keys))]


@contextmanager
def _open(tier: Path) -> Iterator[tuple[LoopThread, Staging]]:
    with LoopThread() as loop:
        yield loop, staging_of(loop.runtime, str(tier), "", uuid4().hex)


def rows_of_group(order: Order, number: int, winners: list[tuple[int, int]]) -> pa.RecordBatch:
    """As ``in_groups`` has them."""
    rows = [(-1, -1), *winners]
    columns = [[number] * len(rows), [offset for offset, _ in rows], [winner for _, winner in rows]]
    return pa.RecordBatch.from_arrays(
        [pa.array(one, kind) for one, kind in zip(columns, (pa.int32(), pa.int64(), pa.int64()), strict=True)],
        names=["group", "offset", "winner"],
    )
