"""A compacted log whose closed segments are in the tier, and what a consumer finds there."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from typing import Any, NamedTuple

from milena.protocol.records.batch import BatchView, iter_batches
from milena.protocol.records.records import iter_records, offset_of
from milena.protocol.records.validation import Origin
from milena.protocol.types import LeaderEpoch
from milena.tiered.metadata.metadata_cache import RemoteLogMetadataCache
from milena.tiered.segments.cleaner_offsets import CleanedTo
from milena.tiered.segments.segment_metadata import RemoteLogSegmentMetadata
from milena.tiered.work.copying import copy_round
from milena.tiered.work.expiration import expire_round
from milena.tiered.work.tier_cleaner import TierCleaner
from tests.unit.storage.logs import batch_of, marker
from tests.unit.tiered.tiered_log import Bench, on_bench

HOUR_MS = 3_600_000
Write = tuple[bytes, bytes | None]


class Kept(NamedTuple):
    offset: int
    key: bytes | None
    value: bytes | None


class CleanedTier:
    """``bench``, with keyed records."""

    def __init__(self, bench: Bench) -> None:
        self.bench = bench
        self.log = bench.log
        self.role = bench.role()
        self.cleaner = TierCleaner(bench.tier)
        self.epoch = 0

    @property
    def cache(self) -> RemoteLogMetadataCache:
        return self.bench.metadata.cache(self.role.partition)

    def cleaned_to(self) -> CleanedTo | None:
        return self.cache.cleaned_to

    def batch(self, *records: Write, producer: tuple[int, int, int] | None = None, transactional: bool = False) -> None:
        data = batch_of(
            *(value for _, value in records),  # type: ignore[arg-type]
            keys=[key for key, _ in records],
            timestamp=self.bench.runtime.clock.time_ms(),
            producer=producer,
            transactional=transactional,
        )
        self.log.append_as_leader(data, leader_epoch=LeaderEpoch(self.epoch))
        self._committed()

    def end(self, producer: tuple[int, int], *, commit: bool) -> None:
        data = marker(producer, commit=commit, timestamp=self.bench.runtime.clock.time_ms())
        self.log.append_as_leader(data, leader_epoch=LeaderEpoch(self.epoch), origin=Origin.COORDINATOR)
        self._committed()

    def _committed(self) -> None:
        self.log.raise_high_watermark(self.log.log_end_offset)

    def segment(self, *records: Write) -> None:
        """A closed segment with a batch for each record."""
        for record in records:
            self.batch(record)
        self.log.roll()

    def lead_again(self, epoch: int) -> None:
        self.bench.replica.term += 1
        self.bench.replica.leader_epoch = LeaderEpoch(epoch)
        self.epoch = epoch
        self.role.end()
        self.role = self.bench.role()

    async def copy(self) -> None:
        await copy_round(self.bench.tier, self.role)

    async def clean(self) -> None:
        await self.cleaner.round(self.bench.tier, self.role)

    async def expire(self) -> None:
        await expire_round(self.bench.tier, self.role)

    async def wait(self, seconds: float) -> None:
        await self.bench.runtime.clock.sleep(seconds)

    def listed(self) -> list[tuple[int, int, str]]:
        """First and last offset and state of each segment, in order."""
        return [
            (one.start_offset, one.end_offset, one.state.name.split("_SEGMENT_")[0]) for one in self.cache.segments()
        ]

    def served(self) -> list[RemoteLogSegmentMetadata]:
        """Those that are read, in order."""
        every = self.cache.served(
            self.log.log_start_offset, leader_epochs=self.log.epochs.entries, log_end=self.log.log_end_offset
        )
        return [one.segment for one in every]

    def ranges(self) -> list[tuple[int, int]]:
        return [(one.start_offset, one.end_offset) for one in self.served()]

    async def batches(self) -> list[BatchView]:
        """Of the segments that are read, each offset once."""
        found: list[BatchView] = []
        every = self.cache.served(
            self.log.log_start_offset, leader_epochs=self.log.epochs.entries, log_end=self.log.log_end_offset
        )
        for served in every:
            data = await (await self.bench.store.fetch(served.segment, 0)).read()
            assert len(data) == served.segment.size
            found += [
                one
                for one in iter_batches(memoryview(data))
                if one.base_offset <= served.last and one.last_offset >= served.first
            ]
        return found

    async def records(self) -> list[Kept]:
        """All but markers."""
        return [
            Kept(offset_of(batch, record), record.key, record.value)
            for batch in await self.batches()
            if not batch.is_control
            for record in iter_records(batch)
        ]

    async def offsets(self) -> list[int]:
        return [record.offset for record in await self.records()]


def on_tier(scenario: Callable[[CleanedTier], Awaitable[None]], *, seed: int = 1, **config: Any) -> None:
    """Run ``scenario`` with a compacted log; ``config`` are fields of its TopicConfig."""
    given: dict[str, Any] = {"cleanup_policy": ("compact",), "min_cleanable_dirty_ratio": 0.01, "segment_bytes": 400}

    async def run(bench: Bench) -> None:
        await scenario(CleanedTier(bench))

    on_bench(run, seed=seed, **(given | config))


def keyed(*pairs: tuple[str, str | None]) -> Sequence[Write]:
    return [(key.encode(), None if value is None else value.encode()) for key, value in pairs]
