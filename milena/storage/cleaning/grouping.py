"""Which segments become one, like ``Cleaner.groupSegmentsBySize``: so that segments do not become ever smaller."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from milena.protocol.types import Offset
from milena.storage.cleaning.source import SegmentToClean
from milena.storage.log.segment import MAX_RELATIVE_OFFSET

MOST_SEGMENTS: Final = 32
"""In one group. Kafka has no such bound: its cleaner's thread renames the files of all of them, a few for each segment;
here the event loop does, in one go. A later cleaning joins what is left."""


def grouped(
    segments: Sequence[SegmentToClean], *, segment_bytes: int, index_bytes: int, end: Offset
) -> list[list[SegmentToClean]]:
    """``segments`` in groups, each of which fits in one segment: its file has at most ``segment_bytes``, each index at
    most ``index_bytes``, and its offsets fit in 31 bits. ``end``: the offset after the last that may be cleaned."""
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
