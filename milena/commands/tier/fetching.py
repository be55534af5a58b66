"""`milena tier fetch`: print records, or copy a segment's log, from a tier."""

from __future__ import annotations

import json
import sys
from collections.abc import AsyncIterator, Sequence
from dataclasses import replace
from typing import TypeVar
from uuid import UUID

from milena.command_line.errors import UsageError, UserError
from milena.command_line.options import Values
from milena.commands.client import split_partition
from milena.commands.consume import text
from milena.commands.tier.cleaning_view import CleaningsShown, remark
from milena.commands.tier.opening import Opened
from milena.commands.tier.segment_view import find, readable_metadata
from milena.protocol.records.batch import BatchView, CorruptBatch
from milena.protocol.records.records import Record, iter_records, offset_of, timestamp_of
from milena.protocol.types import Offset
from milena.protocol.uuids import to_text
from milena.tiered.metadata.metadata_cache import RemoteLogMetadataCache
from milena.tiered.reading.log_contents import PIECE, DamagedLog, batches_of, read_contents
from milena.tiered.rebuilding.rebuilt_metadata import NotASegment, rebuilt
from milena.tiered.segments.segment_metadata import RemoteLogSegmentMetadata, TopicIdPartition
from milena.tiered.store.remote_storage import LOG_SUFFIX, StoredSegment

T = TypeVar("T")


async def fetch(values: Values, opened: Opened) -> int:
    """Print records, or copy a log to a file. Returns the exit code: 1 if some of the requested offsets are missing."""
    by_partition = ":" in values.what
    check_range(values.from_offset, values.to_offset)
    if values.out is not None:
        if by_partition:
            raise UsageError("--out copies the log of one segment: give its id")
        if (values.from_offset, values.to_offset) != (None, None):
            raise UsageError("--out copies a whole log: it cannot be combined with --from-offset and --to-offset")
        return await copy_log(values.what, values.out, opened)
    return await (print_range(values, opened) if by_partition else print_segment(values, opened))


def check_range(first: int | None, last: int | None) -> None:
    """Raises UsageError for an invalid range of offsets."""
    for option, value in (("--from-offset", first), ("--to-offset", last)):
        if value is not None and value < 0:
            raise UsageError(f"{option} {value}: offsets start at 0")
    if first is not None and last is not None and first > last:
        raise UsageError(f"--from-offset {first} is after --to-offset {last}")


async def copy_log(word: str, out: str, opened: Opened) -> int:
    """Copy a segment's log to ``out``, an absolute path of a new file. Raises UserError, also if the log is damaged; in
    that case all available bytes were copied before."""
    found = await find(opened, word)
    known = await readable_metadata(opened, found)
    metadata = _as_stored(known, found.stored)
    disk = opened.runtime.disk
    if disk.exists(out):
        raise UserError(f"{out} already exists")
    file = disk.open(out, create=True)
    try:
        for start in range(0, metadata.size, PIECE):
            part = await opened.storage.fetch(metadata, start, start + PIECE - 1)
            file.append([await part.read()])
    finally:
        file.close()
    contents = await read_contents(opened.storage, metadata)
    held = f"offsets {contents.first_offset} to {contents.last_offset}" if contents.batches else "no complete batch"
    print(f"{out}: {metadata.size} bytes, {held}")
    if metadata.size < known.size or contents.damage:
        why = contents.damage[0] if contents.damage else f"it ends at position {metadata.size}"
        raise UserError(f"{_cut(known, metadata)}{why}; the available bytes were copied")
    return 0


async def print_segment(values: Values, opened: Opened) -> int:
    """Print the records of a segment, even if it is not on the log's epoch chain."""
    found = await find(opened, values.what, or_partition=True)
    metadata = await readable_metadata(opened, found)
    start, end = metadata.start_offset, metadata.end_offset
    first, last = _or(values.from_offset, start), _or(values.to_offset, end)
    name = f"segment {to_text(metadata.id)}"
    if first > end or last < start:
        raise UserError(f"{name} only has the offsets {start} to {end}")
    _warn_of_unread(opened, metadata)
    missing = _report_missing(first, start - 1, name)
    await _print(values, opened, metadata, found.stored, (max(first, start), min(last, end)))
    return 1 if _report_missing(end + 1, last, name) or missing else 0


def _warn_of_unread(opened: Opened, metadata: RemoteLogSegmentMetadata) -> None:
    """Print why consumers do not read the segment, if a cleaning replaced or rejected it."""
    cache = opened.history.caches.get(metadata.partition) if opened.history else None
    if cache is not None and not cache.cleanings.count(metadata):
        why = remark(CleaningsShown(cache.cleanings, cache.segments()).of(metadata))
        print(f"milena: segment {to_text(metadata.id)} is not read by consumers: {why}", file=sys.stderr)


async def print_range(values: Values, opened: Opened) -> int:
    """Print records of a partition, each from the segment that serves it on the log's epoch chain."""
    partition, stored = await _partition(values.what, opened)
    cache = await _cache(opened, partition, list(stored.values()))
    lineage = await opened.lineage(partition, cache.segments())
    if lineage is None:
        raise UserError(f"no records of {values.what} can be read")
    begin, last = _or(values.from_offset, lineage.log_start), values.to_offset
    at, missing = begin, False
    for served in cache.served(Offset(begin or 0), leader_epochs=lineage.epochs, log_end=lineage.log_end):
        if last is not None and served.first > last:
            break
        missing |= _report_missing(_or(at, served.first), served.first - 1)
        bounds = served.first, served.last if last is None else min(served.last, last)
        await _print(values, opened, served.segment, stored.get(served.segment.id), bounds)
        at = served.last + 1
    if at == begin:
        raise UserError(f"offset {begin or 0} of {values.what} is not in the tier, nor are later ones")
    if last is not None and at is not None:
        missing |= _report_missing(at, last)
    return 1 if missing else 0


def _or(given: int | None, otherwise: T) -> int | T:
    return otherwise if given is None else given


def _report_missing(first: int, last: int, where: str = "the tier") -> bool:
    """Print that the offsets ``first`` to ``last`` are missing. Returns False, and prints nothing, if the range is
    empty."""
    if first > last:
        return False
    sys.stdout.flush()
    print(f"milena: offsets {first} to {last} are not in {where}", file=sys.stderr)
    return True


async def _partition(word: str, opened: Opened) -> tuple[TopicIdPartition, dict[UUID, StoredSegment]]:
    """Return the partition and its stored segments."""
    topic, number = split_partition(word)
    stored: dict[TopicIdPartition, dict[UUID, StoredSegment]] = {}
    for one in await opened.storage.segments():
        if (one.segment_id.partition.topic, one.segment_id.partition.partition) == (topic, number):
            stored.setdefault(one.segment_id.partition, {})[one.segment_id.id] = one
    if not stored:
        raise UserError(f"there is no segment of {word} in the tier")
    if len(stored) > 1:
        ids = ", ".join(sorted(to_text(one.topic_id) for one in stored))
        raise UserError(f"there are several topics {topic} in the tier ({ids}): give a segment's id instead")
    return next(iter(stored.items()))


async def _cache(opened: Opened, partition: TopicIdPartition, every: Sequence[StoredSegment]) -> RemoteLogMetadataCache:
    """Return the metadata of the partition's segments from the metadata topic, or from their files if there is no
    metadata topic."""
    if opened.history is not None:
        return opened.history.caches.get(partition) or RemoteLogMetadataCache()
    segments = []
    for stored in every:
        try:
            segments.append((await rebuilt(opened.storage, stored)).metadata)
        except NotASegment as error:
            print(f"milena: segment {to_text(stored.segment_id.id)} is skipped: {error}", file=sys.stderr)
    return RemoteLogMetadataCache.restored(segments, {})


def _as_stored(metadata: RemoteLogSegmentMetadata, stored: StoredSegment | None) -> RemoteLogSegmentMetadata:
    """Return the metadata with the size of the stored log, if that is smaller. Raises UserError."""
    if stored is None or LOG_SUFFIX not in stored.objects:
        raise UserError(f"there is no {LOG_SUFFIX} of segment {to_text(metadata.id)} in the tier")
    return replace(metadata, size=min(metadata.size, stored.objects[LOG_SUFFIX]))


async def _print(
    values: Values,
    opened: Opened,
    metadata: RemoteLogSegmentMetadata,
    stored: StoredSegment | None,
    bounds: tuple[int, int],
) -> None:
    """Print the records of a segment in a range of offsets, without control batches. Raises UserError at damage, after
    printing the records before it."""
    first, last = bounds
    whole = last >= metadata.end_offset and (values.to_offset is None or values.to_offset > last)
    async for batch, records in _batches(opened, metadata, stored, first, None if whole else last):
        for record in records:
            offset = offset_of(batch, record)
            if batch.is_control or not first <= offset <= last:
                continue
            if values.json:
                shown: dict[str, object] = {
                    "topic": metadata.partition.topic,
                    "partition": metadata.partition.partition,
                    "offset": offset,
                    "timestamp": timestamp_of(batch, record),
                    "key": text(record.key),
                    "value": text(record.value),
                    "headers": [[name, text(value)] for name, value in record.headers],
                }
                sys.stdout.write(json.dumps(shown, ensure_ascii=False) + "\n")
            else:
                sys.stdout.flush()
                sys.stdout.buffer.write((record.value or b"") + b"\n")


async def _batches(
    opened: Opened, known: RemoteLogSegmentMetadata, stored: StoredSegment | None, first: int, last: int | None
) -> AsyncIterator[tuple[BatchView, list[Record]]]:
    """Yield validated batches with offsets from ``first`` to ``last`` (None: the log's end). Raises UserError at
    damage."""
    metadata = _as_stored(known, stored)
    position, after = 0, int(known.start_offset)
    try:
        async for position, batch in batches_of(opened.storage, metadata):
            if last is not None and batch.base_offset > last:
                return
            if batch.last_offset >= first:
                batch.verify_crc()
                yield batch, list(iter_records(batch))
            position, after = position + batch.size_in_bytes, batch.last_offset + 1
            if last is not None and after > last:
                return
        if metadata.size == known.size:
            return
        why = f"it ends at position {metadata.size}"
    except DamagedLog as error:
        why = str(error)
    except CorruptBatch as error:
        why = f"the batch at position {position}: {error}"
    raise UserError(f"{_cut(known, metadata)}{why}; offsets before {after} can be read")


def _cut(known: RemoteLogSegmentMetadata, there: RemoteLogSegmentMetadata) -> str:
    """Return the beginning of the message about a damaged log."""
    size = f"its log has {there.size} of {known.size} bytes, " if there.size < known.size else ""
    return f"segment {to_text(known.id)}: {size}"
