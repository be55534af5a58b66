"""Repairs the metadata log of a stopped node from its own intact parts and from copies of it on brokers."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import NamedTuple

from milena.controller.log.log_mending import Mended, OtherLog, mend
from milena.node.metadata.committed_offset import CommittedOffsetFile
from milena.node.metadata.snapshots import SET_ASIDE, MetadataSnapshotId, image_of, parse_file_name
from milena.protocol.types import Offset
from milena.runtime.disk import Disk
from milena.storage.files.meta_properties import CorruptMetaProperties, decode_meta_properties
from milena.storage.files.names import LOCK, META_PROPERTIES
from milena.storage.log.segment_swap import finish_swap, swap_segments
from milena.storage.log.survey import Survey, survey


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
    """Raises RepairRefused if records are still missing."""
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
    """Raises RepairRefused if the copy is of another cluster."""
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
