"""Logs for tests of the cleaner: keyed writes, cleanings, and the remaining records."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from itertools import pairwise
from pathlib import Path
from typing import NamedTuple

from milena.protocol.records.batch import BatchView, Codec, iter_batches
from milena.protocol.records.record_cursor import DEFAULT_LIMIT
from milena.protocol.records.records import iter_records, offset_of, timestamp_of
from milena.protocol.records.validation import Origin
from milena.protocol.types import LeaderEpoch, Offset
from milena.runtime.disk import Disk
from milena.runtime.files import RealDisk
from milena.storage.cleaning.bounds import Cleanable, cleanable
from milena.storage.cleaning.cleaning_round import NewSegment, Round
from milena.storage.cleaning.swap import generation_of, swap_in
from milena.storage.cleaning.work import work_on
from milena.storage.files.names import LOG
from milena.storage.log.unified_log import UnifiedLog
from tests.unit.storage.logs import START_MS, LogFolder, batch_of, marker

SECRET = b"secret of a test"
DEDUPE_BYTES = 1 << 20
DAY_MS = 24 * 3_600_000


class Kept(NamedTuple):
    """A record as a consumer reads it."""

    offset: int
    key: bytes | None
    value: bytes | None
    timestamp: int


@dataclass
class KeyedLog:
    """A log with methods to write keyed records and to clean it."""

    folder: LogFolder
    log: UnifiedLog = field(init=False)
    now: int = START_MS
    dirty: int | None = None

    def __post_init__(self) -> None:
        self.log = self.folder.open()

    @classmethod
    def at(cls, path: Path, **config: object) -> KeyedLog:
        return cls(LogFolder(path, **({"segment_bytes": 400, "index_interval_bytes": 0} | config)))

    def write(
        self,
        *records: tuple[bytes | None, bytes | None],
        epoch: int = 0,
        producer: tuple[int, int, int] | None = None,
        codec: Codec = Codec.NONE,
        transactional: bool = False,
    ) -> None:
        """Append one batch of keys and values, one millisecond after the last one."""
        self.now += 1
        self.folder.clock.now = self.now
        data = batch_of(
            *(value for _, value in records),  # type: ignore[arg-type]
            keys=[key for key, _ in records],
            timestamp=self.now,
            producer=producer,
            codec=codec,
            transactional=transactional,
        )
        self.log.append_as_leader(data, leader_epoch=LeaderEpoch(epoch))
        self.log.raise_high_watermark(self.log.log_end_offset)

    def end(self, producer: tuple[int, int], *, commit: bool, epoch: int = 0) -> None:
        """Append the marker that ends a transaction."""
        data = marker(producer, commit=commit, timestamp=self.now)
        self.log.append_as_leader(data, leader_epoch=LeaderEpoch(epoch), origin=Origin.COORDINATOR)
        self.log.raise_high_watermark(self.log.log_end_offset)

    def range(self) -> Cleanable:
        self.log.flush()
        dirty = None if self.dirty is None else Offset(self.dirty)
        return cleanable(self.log, cleaned_to=dirty, replicated_to=self.log.log_end_offset, now=self.now)

    def clean(
        self, *, memory: int = DEDUPE_BYTES, load_factor: float = 0.9, limit: int = DEFAULT_LIMIT
    ) -> list[NewSegment]:
        """Clean all closed segments; returns the new segments."""
        round_ = self.round(self.range(), memory=memory, load_factor=load_factor, limit=limit)
        since = generation_of(self.log)
        round_.map_keys()
        done = []
        for new in round_.new_segments():
            swap_in(self.log, since, new)
            done.append(new)
        self.dirty = round_.cleaned_to
        return done

    def round(
        self,
        found: Cleanable,
        *,
        memory: int = DEDUPE_BYTES,
        load_factor: float = 0.9,
        check: Callable[[int], None] = lambda _count: None,
        limit: int = DEFAULT_LIMIT,
    ) -> Round:
        work = work_on(self.log, found, now=self.now, memory=memory, load_factor=load_factor, chunk=1 << 20)
        return Round(self.folder.disk, work._replace(limit=limit), SECRET, check)

    def batches(self) -> list[BatchView]:
        return batches_in(self.folder.path, self.folder.disk)

    def records(self) -> list[Kept]:
        """The records of all batches except control batches."""
        return [record for batch in self.batches() if not batch.is_control for record in records_of(batch)]


def batches_in(folder: str, disk: Disk | None = None) -> list[BatchView]:
    """All batches of a log; checks that they are complete and in order."""
    disk = disk or RealDisk()
    found: list[BatchView] = []
    for name in disk.list(folder):
        if name.endswith(LOG):
            data = disk.read(f"{folder}/{name}")
            some = list(iter_batches(memoryview(data)))
            assert sum(batch.size_in_bytes for batch in some) == len(data), name
            found += some
    for batch, following in pairwise(found):
        assert batch.last_offset < following.base_offset
        assert batch.leader_epoch <= following.leader_epoch
    for batch in found:
        batch.verify_crc()
        assert batch.count or not list(iter_records(batch))
    return found


def records_of(batch: BatchView) -> list[Kept]:
    return [
        Kept(offset_of(batch, record), record.key, record.value, timestamp_of(batch, record))
        for record in iter_records(batch)
    ]
