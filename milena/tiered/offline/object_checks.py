"""Checks that the objects of one stored segment are complete and agree with its metadata."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from struct import Struct
from typing import Final

from milena.storage.files.checkpoints import CorruptCheckpoint, decode_epochs
from milena.storage.files.index_file import CorruptIndex
from milena.storage.files.producer_snapshot import CorruptSnapshot, decode_snapshot
from milena.storage.files.txn_index import decode_aborted
from milena.storage.state.epoch_cache import EpochEntry, LeaderEpochCache
from milena.tiered.metadata.descriptions import CorruptDescription, described
from milena.tiered.reading.log_contents import LogContents, read_contents
from milena.tiered.rebuilding.epoch_chains import epochs_within, wrong_epochs
from milena.tiered.segments.lineage import filtered
from milena.tiered.segments.segment_metadata import RemoteLogSegmentMetadata
from milena.tiered.store.remote_storage import (
    LOG_SUFFIX,
    REQUIRED,
    IndexType,
    RemoteResourceNotFound,
    RemoteStorage,
    RemoteStorageError,
    StoredSegment,
)
from milena.tiered.store.tier_names import DESCRIPTIONS

Problem = tuple[str, str]
"""(kind, description)."""

CRC: Final = "crc"
TRUNCATED: Final = "truncated"
DAMAGED: Final = "damaged"
OFFSETS: Final = "offsets"
EPOCHS: Final = "epochs"
INDEX: Final = "index"
MISSING: Final = "missing"
UNREADABLE: Final = "unreadable"

CLOSINGS: Final = 8
"""The maximum number of times that a segment is assumed to have been closed and reopened while it was written."""

_OFFSET_ENTRY: Final = Struct(">ii")
_TIME_ENTRY: Final = Struct(">qi")


async def check_objects(
    storage: RemoteStorage,
    metadata: RemoteLogSegmentMetadata,
    stored: StoredSegment,
    contents: LogContents | None = None,
) -> list[Problem]:
    """Return all problems of a segment that should be readable. Reads all objects completely, but the log only if its
    ``contents`` are not known."""
    problems = [(MISSING, f"there is no {suffix}") for suffix in sorted(_wanted(metadata) - stored.objects.keys())]
    found = stored.objects.get(LOG_SUFFIX)
    if found is not None and found < metadata.size:
        problems.append((TRUNCATED, f"the log has {found} of {metadata.size} bytes"))
    elif found is not None:
        if found > metadata.size:
            problems.append((DAMAGED, f"the log has {found} bytes, its metadata says {metadata.size}"))
        try:
            contents = contents or await read_contents(storage, metadata)
        except RemoteStorageError as error:
            problems.append((UNREADABLE, str(error)))
        else:
            problems += _check_log(metadata, contents)
    for index in IndexType:
        if index.value in stored.objects:
            problems += await _check_index(storage, metadata, index, contents or LogContents())
    return [*problems, *_offsets_lost(stored)]


async def check_description(storage: RemoteStorage, metadata: RemoteLogSegmentMetadata) -> list[Problem]:
    """Check that the description of a cleaned segment agrees with its metadata: a restoration may need it."""
    try:
        data = await storage.description(metadata.segment_id, metadata.start_offset)
        if data is None:
            return [(MISSING, f"nothing is kept of it in {DESCRIPTIONS}")] if metadata.cleaned else []
        known = described(data, metadata.segment_id)
    except CorruptDescription as error:
        return [(DAMAGED, f"what is kept of it in {DESCRIPTIONS}: {error}")]
    except RemoteStorageError as error:
        return [(UNREADABLE, str(error))]
    same = (known.cleaned, known.replaces, known.end_offset) == (
        metadata.cleaned,
        metadata.replaces,
        metadata.end_offset,
    )
    return [] if same else [(DAMAGED, f"what is kept of it in {DESCRIPTIONS} differs from its metadata")]


def _wanted(metadata: RemoteLogSegmentMetadata) -> frozenset[str]:
    return REQUIRED if metadata.txn_index_empty else REQUIRED | {IndexType.TRANSACTION.value}


def _check_log(metadata: RemoteLogSegmentMetadata, contents: LogContents) -> Iterator[Problem]:
    yield from ((CRC, f"{where} has a wrong checksum") for where in contents.bad_checksums)
    yield from ((DAMAGED, what) for what in contents.damage)
    if contents.first_offset is None or contents.last_offset is None:
        if not metadata.cleaned or metadata.size:  # a cleaning may remove all records
            yield OFFSETS, "the log has no batch"
        return
    if contents.first_offset < metadata.start_offset:
        yield OFFSETS, f"the log begins at {contents.first_offset}, its metadata says {metadata.start_offset}"
    compacted = bool(metadata.cleaned or contents.gap)  # its last records may have been removed
    ends = contents.last_offset <= metadata.end_offset if compacted else contents.last_offset == metadata.end_offset
    if not contents.damage and not ends:
        yield OFFSETS, f"the log ends at {contents.last_offset}, its metadata says {metadata.end_offset}"
    known = LeaderEpochCache(metadata.epochs)
    for epoch, start in wrong_epochs(known, contents.epochs):
        yield EPOCHS, f"offset {start} was written in epoch {epoch}, which is not so in the metadata"


async def _check_index(
    storage: RemoteStorage, metadata: RemoteLogSegmentMetadata, index: IndexType, contents: LogContents
) -> list[Problem]:
    try:
        data = await storage.fetch_index(metadata, index)
    except RemoteResourceNotFound:
        return [(MISSING, f"there is no {index.value}")]
    except RemoteStorageError as error:
        return [(UNREADABLE, str(error))]
    kind = EPOCHS if index is IndexType.LEADER_EPOCH else INDEX
    return [(kind, f"{index.value}: {what}") for what in _CHECKS[index](data, metadata, contents)]


def _offset_index(data: bytes, metadata: RemoteLogSegmentMetadata, contents: LogContents) -> Iterator[str]:
    yield from _length(data, _OFFSET_ENTRY)
    last, last_position = -1, -1
    for relative, position in _OFFSET_ENTRY.iter_unpack(data[: len(data) - len(data) % _OFFSET_ENTRY.size]):
        offset = metadata.start_offset + relative
        if relative <= last or position < last_position or not 0 <= position < max(metadata.size, 1):
            yield f"the entry of offset {offset}, position {position}, is not in order or not in the log"
            return
        last, last_position = relative, position
        base = contents.base_offset_at(position) if contents.batches and not contents.damage else offset
        if base is None or base > offset:
            yield f"no batch with offset {offset} begins at position {position}"
            return


def _time_index(data: bytes, metadata: RemoteLogSegmentMetadata, contents: LogContents) -> Iterator[str]:
    yield from _length(data, _TIME_ENTRY)
    last, last_relative = -1, -1
    span = metadata.end_offset - metadata.start_offset
    for timestamp, relative in _TIME_ENTRY.iter_unpack(data[: len(data) - len(data) % _TIME_ENTRY.size]):
        if timestamp <= last or relative < last_relative or not 0 <= relative <= span:
            yield f"the entry of timestamp {timestamp}, offset {metadata.start_offset + relative}, is not in order"
            return
        last, last_relative = timestamp, relative
    if contents.batches and last > contents.max_timestamp_ms:
        yield f"timestamp {last} is none of the log's"
    elif not contents.damage and last < contents.max_timestamp_ms:
        # When a segment is closed, its largest timestamp becomes the last entry.
        ends = f"it ends with timestamp {last}" if last >= 0 else "it is empty"
        yield f"{ends}, the log's largest is {contents.max_timestamp_ms}"


def _offsets_lost(stored: StoredSegment) -> Iterator[Problem]:
    """Yield a problem if the offset index has too few entries for the number of entries of the time index. Each time
    index entry is written together with an offset index entry, except when a segment is closed, which also happens when
    a broker stops. The distance between entries, and whether there are any, depends on ``index.interval.bytes``."""
    sizes = stored.objects
    if IndexType.OFFSET.value in sizes and IndexType.TIMESTAMP.value in sizes:
        offsets = sizes[IndexType.OFFSET.value] // _OFFSET_ENTRY.size
        times = sizes[IndexType.TIMESTAMP.value] // _TIME_ENTRY.size
        if times > offsets + CLOSINGS:
            yield INDEX, f".index: it has {offsets} entries, where the .timeindex has {times}"


def _txn_index(data: bytes, metadata: RemoteLogSegmentMetadata, contents: LogContents) -> Iterator[str]:
    try:
        decode_aborted(data, IndexType.TRANSACTION.value)
    except CorruptIndex as error:
        yield str(error)


def _producers(data: bytes, metadata: RemoteLogSegmentMetadata, contents: LogContents) -> Iterator[str]:
    try:
        decode_snapshot(data)
    except CorruptSnapshot as error:
        yield str(error)


def _leader_epochs(data: bytes, metadata: RemoteLogSegmentMetadata, contents: LogContents) -> Iterator[str]:
    try:
        known = LeaderEpochCache(decode_epochs(data))
    except CorruptCheckpoint as error:
        yield str(error)
        return
    own = epochs_within(known, metadata.start_offset, metadata.end_offset)
    if filtered(own) != filtered(_clipped(metadata)):
        yield f"it has {_epochs_text(own)}, and should have {_epochs_text(metadata.epochs)}"


def _clipped(metadata: RemoteLogSegmentMetadata) -> list[EpochEntry]:
    return [EpochEntry(epoch, max(first, metadata.start_offset)) for epoch, first in metadata.epochs]


def _epochs_text(epochs: tuple[EpochEntry, ...] | list[EpochEntry]) -> str:
    return ", ".join(f"{epoch} from {start}" for epoch, start in epochs) or "nothing"


def _length(data: bytes, entry: Struct) -> Iterator[str]:
    if len(data) % entry.size:
        yield f"{len(data)} bytes are no multiple of {entry.size}"


_CHECKS: Final[dict[IndexType, Callable[[bytes, RemoteLogSegmentMetadata, LogContents], Iterator[str]]]] = {
    IndexType.OFFSET: _offset_index,
    IndexType.TIMESTAMP: _time_index,
    IndexType.TRANSACTION: _txn_index,
    IndexType.PRODUCER_SNAPSHOT: _producers,
    IndexType.LEADER_EPOCH: _leader_epochs,
}
