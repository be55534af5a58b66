"""`milena tier fetch`: get a log, or records, out of a tier."""

from __future__ import annotations

import json
import sys
from collections.abc import AsyncIterator
from typing import Any

from milena.client import split_partition
from milena.consume import text
from milena.errors import UsageError, UserError
from milena.options import Values
from milena.tier.places import Opened
from milena.tier.segment_view import find, readable_metadata
from protocol.batch import BatchView, CorruptBatch
from protocol.records import iter_records, offset_of, timestamp_of
from protocol.types import Offset
from protocol.uuids import to_text
from tiered.log_contents import PIECE, DamagedLog, batches_of
from tiered.metadata_cache import RemoteLogMetadataCache
from tiered.rebuilding import NotASegment, rebuilt
from tiered.segment_metadata import RemoteLogSegmentMetadata, TopicIdPartition


async def fetch(values: Values, opened: Opened) -> int:
    """Print records, or copy a log to a file."""
    by_partition = ":" in values.what
    if values.out is not None:
        if by_partition:
            raise UsageError("--out copies the log of one segment: name it by its id")
        return await copy_log(values.what, values.out, opened)
    if by_partition:
        return await print_range(values, opened)
    found = await find(opened, values.what)
    metadata = await readable_metadata(opened, found)
    first, last = values.from_offset or metadata.start_offset, metadata.end_offset
    if values.to_offset is not None:
        last = min(last, values.to_offset)
    await _print(values, opened, metadata, Offset(first), Offset(last))
    return 0


async def copy_log(word: str, out: str, opened: Opened) -> int:
    """Copy a segment's log to ``out``, an absolute path where nothing is yet. Raises UserError."""
    metadata = await readable_metadata(opened, await find(opened, word))
    disk = opened.runtime.disk
    if disk.exists(out):
        raise UserError(f"{out} is there already")
    file = disk.open(out, create=True)
    try:
        for start in range(0, metadata.size, PIECE):
            part = await opened.storage.fetch(metadata, start, start + PIECE - 1)
            file.append([await part.read()])
    finally:
        file.close()
    print(f"{out}: {metadata.size} bytes, offsets {metadata.start_offset} to {metadata.end_offset}")
    return 0


async def print_range(values: Values, opened: Opened) -> int:
    """The records of a partition, each from the segment that serves it under the log's leader epochs."""
    partition = await _partition(values.what, opened)
    cache = await _cache(opened, partition)
    lineage = await opened.lineage(partition, cache.segments())
    if lineage is None:
        raise UserError(f"nothing of {values.what} can be read")
    last = lineage.log_end - 1 if values.to_offset is None else values.to_offset
    begin = Offset(values.from_offset or (lineage.log_start or lineage.epochs[0].start))
    at = begin
    for served in cache.served(begin, leader_epochs=lineage.epochs, log_end=lineage.log_end):
        if served.first > last:
            break
        if served.first > at:
            print(f"milena: offsets {at} to {served.first - 1} are not in the tier", file=sys.stderr)
        at = max(at, served.first)
        await _print(values, opened, served.segment, at, Offset(min(served.last, last)))
        at = Offset(served.last + 1)
    if at == begin:
        raise UserError(f"offset {begin} of {values.what} is not in the tier, nor is what follows")
    return 0


async def _partition(word: str, opened: Opened) -> TopicIdPartition:
    topic, number = split_partition(word)
    known = {one.segment_id.partition for one in await opened.storage.segments()}
    found = [one for one in known if (one.topic, one.partition) == (topic, number)]
    if not found:
        raise UserError(f"there is no segment of {word} in the tier")
    if len(found) > 1:
        ids = ", ".join(sorted(to_text(one.topic_id) for one in found))
        raise UserError(f"there are several topics {topic} in the tier ({ids}): name a segment instead")
    return found[0]


async def _cache(opened: Opened, partition: TopicIdPartition) -> RemoteLogMetadataCache:
    """What is known of the partition's segments; without a metadata topic what their files say."""
    if opened.history is not None:
        return opened.history.caches.get(partition) or RemoteLogMetadataCache()
    segments = []
    for stored in await opened.storage.segments(partition):
        try:
            segments.append((await rebuilt(opened.storage, stored))[0])
        except NotASegment as error:
            print(f"milena: segment {to_text(stored.segment_id.id)} is left out: {error}", file=sys.stderr)
    return RemoteLogMetadataCache.restored(segments, {})


async def _print(
    values: Values, opened: Opened, metadata: RemoteLogSegmentMetadata, first: Offset, last: Offset
) -> None:
    """The records of a segment from ``first`` to ``last``, control batches left out. Raises UserError at damage."""
    try:
        async for batch in _batches(opened, metadata, first, last):
            batch.verify_crc()
            for record in iter_records(batch):
                offset = offset_of(batch, record)
                if not batch.is_control and first <= offset <= last:
                    shown: dict[str, Any] = {
                        "topic": metadata.partition.topic,
                        "partition": metadata.partition.partition,
                        "offset": offset,
                        "timestamp": timestamp_of(batch, record),
                        "key": text(record.key),
                        "value": text(record.value),
                        "headers": [[name, text(value)] for name, value in record.headers],
                    }
                    if values.json:
                        sys.stdout.write(json.dumps(shown, ensure_ascii=False) + "\n")
                    else:
                        sys.stdout.flush()
                        sys.stdout.buffer.write((record.value or b"") + b"\n")
    except (CorruptBatch, DamagedLog) as error:
        raise UserError(f"segment {to_text(metadata.id)}: {error}") from None


async def _batches(
    opened: Opened, metadata: RemoteLogSegmentMetadata, first: Offset, last: Offset
) -> AsyncIterator[BatchView]:
    async for _, batch in batches_of(opened.storage, metadata):
        if batch.base_offset > last:
            return
        if batch.last_offset >= first:
            yield batch
