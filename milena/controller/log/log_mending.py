"""Merges the intact parts of a metadata log with those of copies of it."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import Final, NamedTuple

from milena.protocol.types import Offset
from milena.runtime.disk import Disk
from milena.storage.log.batch_scan import ScannedBatch
from milena.storage.log.survey import Piece, Run, Survey, batches_of

_ENDLESS: Final = 1 << 63


class Batch(NamedTuple):
    """An intact batch. Two batches with one offset are equal if their CRCs are. (No CRC covers the leader epoch.)"""

    piece: Piece
    end: Offset
    crc: int


class OtherLog(Exception):
    """A copy has other records than the log at the same offset; the message says where."""


@dataclass(slots=True)
class Mended:
    """The merged log from ``start`` to ``end``. ``taken``: ranges of offsets and the folder that they are copied
    from."""

    start: Offset
    end: Offset
    pieces: list[Piece] = field(default_factory=list)
    taken: list[tuple[Offset, Offset, str]] = field(default_factory=list)
    missing: Offset | None = None
    """The end of the first gap that no copy fills; the log ends before that gap. None if there is no gap."""


def mend(disk: Disk, log: Survey, start: Offset, copies: Sequence[tuple[str, Survey]]) -> Mended:
    """Merge a log from ``start`` on: fill its gaps and extend its end with batches of the copies (folder, survey).

    Blocks. Raises OtherLog, OSError.
    """
    runs = [run for run in log.runs if run.end > start]
    gaps = _gaps(runs, start)
    edges = _edges(disk, runs)
    found = [(folder, _batches(disk, copy.runs, gaps, edges)) for folder, copy in copies]
    for folder, batches in found:
        for base, edge in edges.items():
            if base in batches and batches[base].crc != edge.crc:
                raise OtherLog(f"{folder} holds another record at offset {base}: it is no copy of this log")
    mended = Mended(start, start)
    for run, (_, end) in zip([*runs, None], gaps, strict=True):
        _fill(mended, end, found)
        if run is None:
            break
        if mended.end < run.start:
            mended.missing = run.start
            break
        mended.pieces += run.pieces
        mended.end = run.end
    return mended


def _gaps(runs: Sequence[Run], start: Offset) -> list[tuple[int, int]]:
    """Return the gaps before each run and after the last."""
    ends = [start, *(run.end for run in runs)]
    return list(zip(ends, [*(run.start for run in runs), _ENDLESS], strict=True))


def _edges(disk: Disk, runs: Iterable[Run]) -> dict[int, Batch]:
    """Return the first and the last batch of each run, by base offset."""
    edges: dict[int, Batch] = {}
    for run in runs:
        last = None
        for path, batch in batches_of(disk, run):
            last = (path, batch)
            if batch.base_offset == run.start:
                edges[batch.base_offset] = _noted(path, batch)
        if last is not None:
            edges[last[1].base_offset] = _noted(*last)
    return edges


def _noted(path: str, batch: ScannedBatch) -> Batch:
    piece = Piece(path, batch.position, batch.size)
    return Batch(piece, Offset(batch.last_offset + 1), batch.crc)


def _batches(
    disk: Disk, runs: Iterable[Run], gaps: Sequence[tuple[int, int]], edges: dict[int, Batch]
) -> dict[int, Batch]:
    """Return the batches in gaps, and the edge batches that are compared."""
    found = {}
    for run in runs:
        for path, batch in batches_of(disk, run):
            base = batch.base_offset
            if base in edges or any(start <= base < end for start, end in gaps):
                found[base] = _noted(path, batch)
    return found


def _fill(mended: Mended, end: int, copies: Sequence[tuple[str, dict[int, Batch]]]) -> None:
    """Append batches of the copies, up to offset ``end`` at most."""
    while mended.end < end:
        found = next(((folder, batches[mended.end]) for folder, batches in copies if mended.end in batches), None)
        if found is None or found[1].end > end:
            return
        folder, batch = found
        before = mended.end
        mended.end = batch.end
        last = mended.pieces[-1] if mended.pieces else None
        if last is not None and last.path == batch.piece.path and last.position + last.size == batch.piece.position:
            mended.pieces[-1] = Piece(last.path, last.position, last.size + batch.piece.size)
        else:
            mended.pieces.append(batch.piece)
        if mended.taken and mended.taken[-1][1:] == (before, folder):
            mended.taken[-1] = (mended.taken[-1][0], batch.end, folder)
        else:
            mended.taken.append((before, batch.end, folder))
