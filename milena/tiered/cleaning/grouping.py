"""Groups neighbouring segments of the tier that are merged into one: Kafka's ``Cleaner.groupSegmentsBySize``."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from milena.config.topic_config import TopicConfig
from milena.protocol.records.batch import HEADER_SIZE
from milena.protocol.types import Offset
from milena.storage.cleaning.grouping import grouped
from milena.storage.cleaning.source import SegmentToClean
from milena.storage.files.offset_index import ENTRY_SIZE as OFFSET_ENTRY_SIZE
from milena.storage.files.time_index import ENTRY_SIZE as TIME_ENTRY_SIZE
from milena.tiered.cleaning.window import Source

_LEAST_BATCH: Final = HEADER_SIZE


def groups(sources: Sequence[Source], config: TopicConfig, *, end: Offset) -> list[list[Source]]:
    """Return ``sources`` in groups, each of which fits in one segment of the topic. ``end``: the end of the window."""
    by_first = {source.first: source for source in sources}
    found = grouped(
        [_measured(source, config) for source in sources],
        segment_bytes=config.segment_bytes,
        index_bytes=config.segment_index_bytes,
        end=end,
    )
    return [[by_first[one.base_offset] for one in group] for group in found]


def _measured(source: Source, config: TopicConfig) -> SegmentToClean:
    """Return the sizes of a segment's files. Those of the indexes are estimates, since they are written again with at
    most one entry per ``index.interval.bytes``."""
    size = source.segment.size
    entries = size // max(config.index_interval_bytes, _LEAST_BATCH) + 1
    return SegmentToClean(source.first, size, entries * OFFSET_ENTRY_SIZE, entries * TIME_ENTRY_SIZE)
