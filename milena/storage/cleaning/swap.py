"""Replaces segments by the cleaned segment, while the log is in use, like ``LocalLog.replaceSegments``.

A reader of an old segment keeps its file open. All files are renamed in one step of the loop, in the order that
``storage.files.swap_recovery`` relies on.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from milena.protocol.types import Offset
from milena.storage.cleaning.cleaning_round import NewSegment
from milena.storage.files.names import CLEANED, LOG, OFFSET_INDEX, SEGMENT_SUFFIXES, SWAP, TIME_INDEX, segment_file
from milena.storage.log.guard import guarded
from milena.storage.log.segment import Segment

if TYPE_CHECKING:
    from milena.storage.log.unified_log import UnifiedLog


class Generation(NamedTuple):
    """The state of a log at the start of a round; a round is aborted if it changes."""

    folder: str
    truncations: int
    log_start: Offset
    segments: dict[Offset, Segment]


class CleaningAborted(Exception):
    """The log has changed, so that the cleaned segments cannot be used."""


def generation_of(log: UnifiedLog) -> Generation:
    return Generation(
        log.folder, log.truncations, log.log_start_offset, {segment.base_offset: segment for segment in log.segments}
    )


def check_generation(log: UnifiedLog, generation: Generation) -> None:
    """Raise CleaningAborted if the log was truncated at either end, moved, deleted, is offline, or has ended."""
    if log.context.offline:
        raise CleaningAborted(f"{log} is offline")
    if log.retired or log.folder != generation.folder:
        raise CleaningAborted(f"{log} was moved or deleted")
    if log.truncations != generation.truncations:
        raise CleaningAborted(f"{log} was truncated")
    if log.log_start_offset != generation.log_start:
        raise CleaningAborted(f"{log} begins at {log.log_start_offset} now")


@guarded
def swap_in(log: UnifiedLog, generation: Generation, new: NewSegment) -> None:
    """Replace segments by ``new``. Raises KafkaError, and CleaningAborted after the files of ``new`` are removed."""
    old = [generation.segments[base] for base in new.replaced]
    try:
        check_generation(log, generation)
        first = next((number for number, segment in enumerate(log.segments) if segment is old[0]), -1)
        if first < 0 or [log.segments[first + number] for number in range(len(old))] != old:
            raise CleaningAborted(f"{log} has other segments now")
        _check_files(log, new)
    except CleaningAborted:
        discard(log, generation, new)
        raise
    # From the first .swap file on, the swap is completed after a crash; before, the old segments remain.
    for before, after in ((CLEANED, SWAP), (SWAP, "")):
        if after == "":
            log.drop(old[:1], producers=False)
            log.drop(old[1:])
        for suffix in SEGMENT_SUFFIXES:
            path = f"{log.folder}/{segment_file(new.base_offset, suffix)}"
            if log.context.disk.exists(path + before):
                log.context.disk.rename(path + before, path + after, sync=False)
    segment = Segment(log.context, log.folder, new.base_offset, size=new.size, indexes_exist=True)
    log.segments.replace(first, len(old), segment)
    log.folder_changed()


def _check_files(log: UnifiedLog, new: NewSegment) -> None:
    """Raise CleaningAborted if files of ``new`` are missing: its records would be lost with the old segments."""
    disk = log.context.disk
    paths = [
        f"{log.folder}/{segment_file(new.base_offset, suffix)}{CLEANED}" for suffix in (LOG, OFFSET_INDEX, TIME_INDEX)
    ]
    if not all(disk.exists(path) for path in paths) or disk.size(paths[0]) != new.size:
        raise CleaningAborted(f"{paths[0]} and its indexes are not what was written")


def discard(log: UnifiedLog, generation: Generation, new: NewSegment) -> None:
    """Remove the files of a new segment that is not swapped in. Raises OSError."""
    for suffix in SEGMENT_SUFFIXES:
        log.context.disk.remove(f"{generation.folder}/{segment_file(new.base_offset, suffix)}{CLEANED}")
