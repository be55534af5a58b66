"""The part of a cleaning that a worker does: it reads segments, and writes files with the suffix ``.cleaned``."""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

from milena.protocol.types import Offset
from milena.runtime.disk import Disk, Report
from milena.storage.cleaning.cleaning_round import Figures, NewSegment, Round
from milena.storage.cleaning.work import Work
from milena.storage.files.names import CLEANED


class Cleaned(NamedTuple):
    """The end of a round."""

    cleaned_to: Offset
    figures: Figures


def clean_segments(disk: Disk, report: Report, work: Work, secret: bytes) -> Iterator[NewSegment | Cleaned]:
    """Do a round (see ``Round``). The caller swaps each new segment in before it takes the next one. Reports the bytes
    that were read or written."""
    round_ = Round(disk, work, secret, report)
    round_.map_keys()
    yield from round_.new_segments()
    yield Cleaned(round_.cleaned_to, round_.figures)


def remove_unfinished(disk: Disk, folder: str) -> None:
    """Remove the files of a killed worker. If they stayed, ``.swap`` files of a later round would be taken for
    incomplete ones when the log is opened (see ``files.swap_recovery``). Raises OSError."""
    for name in disk.list(folder):
        if name.endswith(CLEANED):
            disk.remove(f"{folder}/{name}")
