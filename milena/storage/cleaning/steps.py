"""What a worker does of a cleaning: it reads segments, and writes files with the suffix ``.cleaned``."""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

from milena.protocol.types import Offset
from milena.runtime.disk import Disk, Report
from milena.storage.cleaning.round import Figures, NewSegment, Round
from milena.storage.cleaning.work import Work
from milena.storage.files.names import CLEANED


class Cleaned(NamedTuple):
    """The end of a round."""

    cleaned_to: Offset
    figures: Figures


def clean_segments(disk: Disk, report: Report, work: Work, secret: bytes) -> Iterator[NewSegment | Cleaned]:
    """A round (see ``Round``). Each new segment must be swapped in before the next is asked for. Reports bytes."""
    round_ = Round(disk, work, secret, report)
    round_.map_keys()
    yield from round_.new_segments()
    yield Cleaned(round_.cleaned_to, round_.figures)


def remove_unfinished(disk: Disk, folder: str) -> None:
    """Remove what a killed worker has left. When a log is opened, a new segment that was about to take its place
    would count as unfinished beside it. Raises OSError."""
    for name in disk.list(folder):
        if name.endswith(CLEANED):
            disk.remove(f"{folder}/{name}")
