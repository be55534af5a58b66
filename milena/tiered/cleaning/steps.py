"""The part of a pass over segments in the tier that runs in a worker process. Before the caller sends a command that
names a segment, it writes the segment's log into the work's folder as ``OFFSET.log``, where OFFSET is the first offset
that is cleaned. The transaction indexes of all segments are in the folder from the beginning."""

from __future__ import annotations

from collections.abc import Generator
from typing import NamedTuple, TypeAlias

from milena.protocol.types import Offset
from milena.runtime.disk import Disk, Report
from milena.storage.cleaning.cleaning_round import Figures, NewSegment, Round
from milena.storage.cleaning.source import SegmentToClean
from milena.storage.cleaning.work import Work


class Map(NamedTuple):
    """Command: read the keys of the next dirty segment."""

    segment: SegmentToClean


class Clean(NamedTuple):
    """Command: write the segment that replaces the next group. The map is complete."""

    group: tuple[SegmentToClean, ...]
    now: int | None
    """The time (ms) by which expired tombstones and markers are removed; None: none is removed."""


class Mapped(NamedTuple):
    """Result of ``Map``. ``to``: the offset up to which the map has keys so far (exclusive); ``has_room``: whether the
    map has room for the next segment."""

    to: Offset
    has_room: bool


class Written(NamedTuple):
    """Result of ``Clean``. The names of the files of ``segment`` end in ``.cleaned``."""

    segment: NewSegment
    figures: Figures


Command: TypeAlias = Map | Clean
Result: TypeAlias = Mapped | Written


def clean_tier(disk: Disk, report: Report, work: Work, secret: bytes) -> Generator[Result, Command, None]:
    """Execute commands: first ``Map``, then ``Clean``. Reports the bytes that were read and written. Raises the errors
    of ``Round``."""
    round_ = Round(disk, work, secret, report)
    order = yield Mapped(round_.cleaned_to, has_room=True)
    while isinstance(order, Map):
        has_room = round_.map_segment(order.segment)
        order = yield Mapped(round_.cleaned_to, has_room)
    round_.begin_cleaning()
    while True:
        order = yield Written(round_.clean(order.group, order.now), round_.figures)
        if isinstance(order, Map):
            raise ValueError("the map is complete")
