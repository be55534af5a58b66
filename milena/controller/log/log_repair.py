"""Repairs the metadata log of a stopped node from its own intact parts and from copies of it on brokers."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Final, NamedTuple

from milena.node.metadata.committed_offset import CommittedOffsetFile
from milena.node.metadata.snapshots import SET_ASIDE, MetadataSnapshotId, image_of, parse_file_name
from milena.protocol.types import Offset
from milena.runtime.disk import Disk
from milena.storage.files.meta_properties import CorruptMetaProperties, decode_meta_properties
from milena.storage.files.names import LOCK, META_PROPERTIES
from milena.storage.log.batch_scan import ScannedBatch
from milena.storage.log.segment_swap import finish_swap, swap_segments
from milena.storage.log.survey import Piece, Run, Survey, batches_of, survey

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


class RepairRefused(Exception):
    """The log is left unchanged; the message says why, and what can be done."""


class ExistingLog(NamedTuple):
    """A log after its ``latest`` intact snapshot, and the later ``damaged`` snapshots with the reasons."""

    survey: Survey
    latest: MetadataSnapshotId | None
    damaged: dict[MetadataSnapshotId, str]

    @property
    def start(self) -> Offset:
        """The offset at which the log must start: the end of the latest intact snapshot."""
        return _end_of(self.latest)


def inspect(disk: Disk, folder: str) -> ExistingLog:
    """Survey the log and its snapshots without changing anything. Blocking. Raises OSError."""
    damaged: dict[MetadataSnapshotId, str] = {}
    latest = None
    for snapshot in reversed(_snapshots(disk, folder)):
        reason = _damage(disk, folder, snapshot)
        if reason is None:
            latest = snapshot
            break
        damaged[snapshot] = reason
    return ExistingLog(survey(disk, folder, since=_end_of(latest)), latest, damaged)


def committed(disk: Disk, folder: str, existing: ExistingLog) -> Offset | None:
    """Return the offset below which records are known to be committed. A damaged snapshot's end offset counts too."""
    known = CommittedOffsetFile(disk, folder).read()
    return max((end for end in (known, *map(_end_of, existing.damaged)) if end is not None), default=None)


def repair(disk: Disk, folder: str, copies: Sequence[str], *, cut: bool, say: Callable[[str], object]) -> None:
    """Repair the log in ``folder`` from ``copies``, folders of other nodes. ``cut``: discard what no copy has. ``say``
    is called with a line for each finding and each change. Blocking. Raises RepairRefused, OSError."""
    with _locked(disk, folder):
        for copy in copies:
            _same_cluster(disk, folder, copy)
        finish_swap(disk, folder)
        existing = inspect(disk, folder)
        for reason in existing.damaged.values():
            say(f"damaged: {folder}/{reason}")
        mended = _mended(disk, existing, copies)
        if not cut:
            _check_whole(mended, committed(disk, folder, existing))
        if existing.latest is None and mended.start > 0:
            _take_snapshot(disk, folder, mended, copies, say)
        _discard(disk, folder, mended.end, existing, say)
        for first, end, source in mended.taken:
            say(f"offsets {first} to {end - 1}: copied from {source}")
        if not existing.survey.damages and not mended.taken and mended.missing is None:
            say("the log is intact, nothing to repair")
        else:
            CommittedOffsetFile(disk, folder).forget()
            for path in swap_segments(disk, folder, mended.start, mended.pieces):
                say(f"renamed: {path}")
        say(f"the log holds offsets {mended.start} to {mended.end - 1}")


def _mended(disk: Disk, existing: ExistingLog, copies: Sequence[str]) -> Mended:
    """Return the merged log. Raises RepairRefused, OSError."""
    surveys = [(copy, survey(disk, copy)) for copy in copies]
    try:
        for start in _starts(existing):
            mended = mend(disk, existing.survey, start, surveys)
            if mended.pieces:
                break
    except OtherLog as other:
        raise RepairRefused(str(other)) from None
    return mended


def _starts(existing: ExistingLog) -> list[Offset]:
    """Return the offsets at which the repaired log may start: at or before the end of the snapshot. The first for which
    any batch is existing is used."""
    run = existing.survey.run_with(existing.start)
    if run is not None:
        return [run.start]
    bases = existing.survey.bases
    return [existing.start] if existing.latest is not None or not bases else [Offset(0), bases[0]]


def _check_whole(mended: Mended, known: Offset | None) -> None:
    """Raise RepairRefused if records are still missing."""
    missing = mended.missing if mended.missing is not None else known
    if missing is not None and mended.end < missing:
        raise RepairRefused(
            f"the offsets {mended.end} to {missing - 1} are in no copy: name more copies with --from, or discard "
            f"everything from offset {mended.end} on with --cut"
        )


def _take_snapshot(
    disk: Disk, folder: str, mended: Mended, copies: Sequence[str], say: Callable[[str], object]
) -> None:
    """Copy the snapshot before the log's start, if the log does not start at 0. Raises RepairRefused."""
    for copy in copies:
        for snapshot in reversed(_snapshots(disk, copy)):
            if mended.start <= snapshot.end_offset <= mended.end:
                reason = _damage(disk, copy, snapshot)
                if reason is None:
                    disk.write_atomic(f"{folder}/{snapshot.file_name}", disk.read(f"{copy}/{snapshot.file_name}"))
                    say(f"snapshot {snapshot.file_name}: copied from {copy}")
                    return
                say(f"damaged: {copy}/{reason}")
    raise RepairRefused(
        f"{folder} begins at offset {mended.start} and has no snapshot of the records before that; "
        "name a copy that has one with --from"
    )


def _discard(disk: Disk, folder: str, end: Offset, existing: ExistingLog, say: Callable[[str], object]) -> None:
    """Remove what says that records from ``end`` on were committed; a controller would refuse to start otherwise."""
    known = CommittedOffsetFile(disk, folder)
    if (known.read() or 0) > end:
        known.forget()
        say(f"committed records from offset {end} on are discarded")
    for snapshot in existing.damaged:
        path = f"{folder}/{snapshot.file_name}"
        if snapshot.end_offset > end and _damage(disk, folder, snapshot) is not None:  # else a copy has replaced it
            disk.rename(path, path + SET_ASIDE)
            say(f"renamed: {path}{SET_ASIDE}")


def _same_cluster(disk: Disk, folder: str, copy: str) -> None:
    """Raise RepairRefused if the copy is of another cluster."""
    ids = []
    for path in (folder, copy):
        try:
            data = disk.read(f"{os.path.dirname(path)}/{META_PROPERTIES}")
            ids.append(decode_meta_properties(data).cluster_id)
        except (FileNotFoundError, CorruptMetaProperties):
            return  # the records are compared anyway
    if ids[0] != ids[1]:
        raise RepairRefused(f"{copy} is of cluster {ids[1]}, not {ids[0]}")


@contextmanager
def _locked(disk: Disk, folder: str) -> Iterator[None]:
    """Lock the log directory. Raises RepairRefused while a node uses it."""
    parent = os.path.dirname(folder)
    try:
        unlock = disk.lock(f"{parent}/{LOCK}")
    except BlockingIOError:
        raise RepairRefused(f"{parent} is in use: stop the node first") from None
    try:
        yield
    finally:
        unlock()


def _snapshots(disk: Disk, folder: str) -> list[MetadataSnapshotId]:
    return sorted(existing for name in disk.list(folder) if (existing := parse_file_name(name)) is not None)


def _damage(disk: Disk, folder: str, snapshot: MetadataSnapshotId) -> str | None:
    """Return why a snapshot cannot be used, or None if it is intact."""
    try:
        image_of(snapshot, disk.read(f"{folder}/{snapshot.file_name}"))
    except ValueError as error:  # damaged batches and contradictory records raise subclasses of it
        return str(error)
    return None


def _end_of(snapshot: MetadataSnapshotId | None) -> Offset:
    return Offset(0) if snapshot is None else snapshot.end_offset
