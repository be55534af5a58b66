"""What a worker does of a pass over segments in the tier. Their files are in the folder of the work when it is told of
them: ``OFFSET.log``, with the first offset that counts; all transaction indexes from the beginning."""

from __future__ import annotations

from collections.abc import Generator
from typing import NamedTuple, TypeAlias

from milena.protocol.types import Offset
from milena.runtime.disk import Disk, Report
from milena.storage.cleaning.round import Figures, NewSegment, Round
from milena.storage.cleaning.source import SegmentToClean
from milena.storage.cleaning.work import Work


class Map(NamedTuple):
    """An order: read the keys of the next dirty segment."""

    segment: SegmentToClean


class Clean(NamedTuple):
    """An order: write what takes the place of the next segments. The map is complete."""

    group: tuple[SegmentToClean, ...]
    now: int | None
    """ms, by which tombstones and markers may go; None: none may."""


class Mapped(NamedTuple):
    """Keys were read. ``to``: where the map ends so far."""

    to: Offset
    has_room: bool


class Written(NamedTuple):
    """The files of ``segment`` end in ``.cleaned``."""

    segment: NewSegment
    figures: Figures


Command: TypeAlias = Map | Clean
Result: TypeAlias = Mapped | Written


def clean_tier(disk: Disk, report: Report, work: Work, secret: bytes) -> Generator[Result, Command, None]:
    """Follows orders: first those to map, then those to clean. Reports bytes. Raises as ``Round`` does."""
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
