"""Segments in the tier that a cleaning wrote, beside those that it has cleaned."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from milena.protocol.records.batch import iter_batches
from milena.protocol.records.records import iter_records, offset_of, timestamp_of
from milena.protocol.types import Offset
from milena.storage.cleaning.bounds import Cleanable
from milena.storage.cleaning.cleaning_round import Round
from milena.storage.cleaning.swap import generation_of, swap_in
from milena.storage.cleaning.work import work_on
from milena.storage.files.names import LOG
from milena.storage.log.unified_log import UnifiedLog
from milena.tiered.segments.segment_metadata import (
    UNFENCED,
    RemoteLogSegmentMetadata,
    RemoteLogSegmentState,
)
from milena.tiered.work.deletion import update_of
from tests.unit.tiered.remote_reads import carry, lineage
from tests.unit.tiered.segments import offsets
from tests.unit.tiered.tiered_log import Bench

SECRET = b"secret of a test"


def copy_of(bench: Bench, log: UnifiedLog, name: str) -> UnifiedLog:
    """A log with the same records in the same segments."""
    copy = lineage(bench, name)
    for entry in log.epochs.entries:
        copy.epochs.assign(entry.epoch, entry.start)
    for segment in list(log.segments)[:-1]:
        data = bytearray(log.context.disk.read(segment.path(LOG)))
        if data:
            copy.append_as_follower(memoryview(data))
        copy.roll()
    copy.set_high_watermark(copy.log_end_offset)
    return copy


def clean(log: UnifiedLog, *, now: int, segment_bytes: int = 4000) -> None:
    """All closed segments, as a local cleaner does it that may drop everything."""
    found = Cleanable(Offset(0), log.segments.active.base_offset, False)
    work = work_on(log, found, now=now, memory=1 << 20, load_factor=0.9, chunk=1 << 20)
    round_ = Round(log.context.disk, work._replace(segment_bytes=segment_bytes), SECRET)
    since = generation_of(log)
    round_.map_keys()
    for new in round_.new_segments():
        swap_in(log, since, new)


async def carry_cleaned(
    bench: Bench, cleaned: UnifiedLog, sources: Sequence[RemoteLogSegmentMetadata]
) -> list[RemoteLogSegmentMetadata]:
    """Put the closed segments of a cleaned log into the tier, in the place of ``sources``."""
    end = cleaned.segments.active.base_offset

    def replacing(metadata: RemoteLogSegmentMetadata) -> RemoteLogSegmentMetadata:
        replaced = [one.id for one in sources if metadata.start_offset <= one.start_offset <= metadata.end_offset]
        return replace(metadata, cleaned=offsets({0: end}), replaces=tuple(replaced))

    return await carry(bench, cleaned, replacing)


async def retire(bench: Bench, segments: Sequence[RemoteLogSegmentMetadata]) -> None:
    """They are marked and deleted, files and all."""
    for one in segments:
        await bench.metadata.update(update_of(bench.tier, one, RemoteLogSegmentState.DELETE_SEGMENT_STARTED, UNFENCED))
        await bench.store.delete(one)
        await bench.metadata.update(update_of(bench.tier, one, RemoteLogSegmentState.DELETE_SEGMENT_FINISHED, UNFENCED))
        bench.tier.indexes.remove([one.id])


def records_in(log: UnifiedLog) -> list[tuple[int, bytes | None, int]]:
    """(offset, value, timestamp) of the records of the closed segments, but for markers."""
    found = []
    for segment in list(log.segments)[:-1]:
        for batch in iter_batches(memoryview(log.context.disk.read(segment.path(LOG)))):
            if not batch.is_control:
                for record in iter_records(batch):
                    found.append((int(offset_of(batch, record)), record.value, timestamp_of(batch, record)))
    return found
