"""Groups segments that are merged into one, like ``Cleaner.groupSegmentsBySize``, so that segments do not shrink with
each cleaning."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from milena.protocol.types import Offset
from milena.storage.cleaning.source import SegmentToClean
from milena.storage.log.segment import MAX_RELATIVE_OFFSET

MOST_SEGMENTS: Final = 32
"""The maximum size of a group. Kafka has no such limit, since a cleaner thread renames the files. Here the event loop
renames them in one step. A later cleaning merges the rest."""


def grouped(
    segments: Sequence[SegmentToClean], *, segment_bytes: int, index_bytes: int, end: Offset
) -> list[list[SegmentToClean]]:
    """Return ``segments`` in groups, each of which fits into one segment: a log file of at most ``segment_bytes``,
    indexes of at most ``index_bytes`` each, and relative offsets of 31 bits. ``end``: the first uncleanable offset."""
    groups: list[list[SegmentToClean]] = []
    size = offsets = times = 0
    for number, segment in enumerate(segments):
        size += segment.size
        offsets += segment.offset_index_size
        times += segment.time_index_size
        # The last offset of a segment is not known without reading it.
        following = segments[number + 1].base_offset if number + 1 < len(segments) else end
        if (
            groups
            and len(groups[-1]) < MOST_SEGMENTS
            and size <= segment_bytes
            and offsets <= index_bytes
            and times <= index_bytes
            and (not segment.size or following - 1 - groups[-1][0].base_offset <= MAX_RELATIVE_OFFSET)
        ):
            groups[-1].append(segment)
        else:
            groups.append([segment])
            size, offsets, times = segment.size, segment.offset_index_size, segment.time_index_size
    return groups
