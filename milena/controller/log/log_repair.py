"""Mends the metadata log of a node that is down, with what is sound of it and of copies of it on brokers."""

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
    """The log stays as it was; the text says why, and what can be done."""


class FoundLog(NamedTuple):
    """A log from its ``latest`` sound snapshot on, and the ``damaged`` snapshots after that with the reasons."""

    survey: Survey
    latest: MetadataSnapshotId | None
    damaged: dict[MetadataSnapshotId, str]

    @property
    def start(self) -> Offset:
        """What is before it is in the snapshot."""
        return _end_of(self.latest)


def look(disk: Disk, folder: str) -> FoundLog:
    """Nothing is changed. Blocks. Raises OSError."""
    damaged: dict[MetadataSnapshotId, str] = {}
    latest = None
    for snapshot in reversed(_snapshots(disk, folder)):
        reason = _damage(disk, folder, snapshot)
        if reason is None:
            latest = snapshot
            break
        damaged[snapshot] = reason
    return FoundLog(survey(disk, folder, since=_end_of(latest)), latest, damaged)


def committed(disk: Disk, folder: str, found: FoundLog) -> Offset | None:
    """What is before it was committed, as far as that is known: a snapshot that cannot be used says so too."""
    known = CommittedOffsetFile(disk, folder).read()
    return max((end for end in (known, *map(_end_of, found.damaged)) if end is not None), default=None)


def repair(disk: Disk, folder: str, copies: Sequence[str], *, cut: bool, say: Callable[[str], object]) -> None:
    """Mend the log in ``folder`` with ``copies``, folders of other nodes; ``cut``: give up what none of them has.
    ``say`` takes a sentence for each thing that was found or done. Blocks. Raises RepairRefused, OSError."""
    with _locked(disk, folder):
        for copy in copies:
            _same_cluster(disk, folder, copy)
        finish_swap(disk, folder)
        found = look(disk, folder)
        for reason in found.damaged.values():
            say(f"damaged: {folder}/{reason}")
        mended = _mended(disk, found, copies)
        if not cut:
            _check_whole(mended, committed(disk, folder, found))
        if found.latest is None and mended.start > 0:
            _take_snapshot(disk, folder, mended, copies, say)
        _give_up(disk, folder, mended.end, found, say)
        for first, end, source in mended.taken:
            say(f"offsets {first} to {end - 1}: taken from {source}")
        if not found.survey.damages and not mended.taken and mended.missing is None:
            say("the log is sound: nothing to mend in it")
        else:
            CommittedOffsetFile(disk, folder).forget()
            for path in swap_segments(disk, folder, mended.start, mended.pieces):
                say(f"set aside: {path}")
        say(f"the log holds offsets {mended.start} to {mended.end - 1}")


def _mended(disk: Disk, found: FoundLog, copies: Sequence[str]) -> Mended:
    """Raises RepairRefused, OSError."""
    surveys = [(copy, survey(disk, copy)) for copy in copies]
    try:
        for start in _starts(found):
            mended = mend(disk, found.survey, start, surveys)
            if mended.pieces:
                break
    except OtherLog as other:
        raise RepairRefused(str(other)) from None
    return mended


def _starts(found: FoundLog) -> list[Offset]:
    """Where the mended log may begin: with what no snapshot covers, or before it; the first with which anything is
    found counts."""
    run = found.survey.run_with(found.start)
    if run is not None:
        return [run.start]
    bases = found.survey.bases
    return [found.start] if found.latest is not None or not bases else [Offset(0), bases[0]]


def _check_whole(mended: Mended, known: Offset | None) -> None:
    """Raises RepairRefused where records are still missing."""
    missing = mended.missing if mended.missing is not None else known
    if missing is not None and mended.end < missing:
        raise RepairRefused(
            f"the offsets {mended.end} to {missing - 1} are in no copy: --from names more of them, --cut gives up "
            f"everything from offset {mended.end} on"
        )


def _take_snapshot(
    disk: Disk, folder: str, mended: Mended, copies: Sequence[str], say: Callable[[str], object]
) -> None:
    """A log that does not begin at 0 needs the snapshot of what is before it. Raises RepairRefused."""
    for copy in copies:
        for snapshot in reversed(_snapshots(disk, copy)):
            if mended.start <= snapshot.end_offset <= mended.end:
                reason = _damage(disk, copy, snapshot)
                if reason is None:
                    disk.write_atomic(f"{folder}/{snapshot.file_name}", disk.read(f"{copy}/{snapshot.file_name}"))
                    say(f"snapshot {snapshot.file_name}: taken from {copy}")
                    return
                say(f"damaged: {copy}/{reason}")
    raise RepairRefused(
        f"{folder} begins at offset {mended.start} and has no snapshot of what is before; "
        "--from names a copy that has one"
    )


def _give_up(disk: Disk, folder: str, end: Offset, found: FoundLog, say: Callable[[str], object]) -> None:
    """A controller would refuse to start without what is said to be committed behind ``end``."""
    known = CommittedOffsetFile(disk, folder)
    if (known.read() or 0) > end:
        known.forget()
        say(f"what was committed from offset {end} on is given up")
    for snapshot in found.damaged:
        path = f"{folder}/{snapshot.file_name}"
        if snapshot.end_offset > end and _damage(disk, folder, snapshot) is not None:  # else a copy has replaced it
            disk.rename(path, path + SET_ASIDE)
            say(f"set aside: {path}{SET_ASIDE}")


def _same_cluster(disk: Disk, folder: str, copy: str) -> None:
    """Raises RepairRefused."""
    ids = []
    for path in (folder, copy):
        try:
            data = disk.read(f"{os.path.dirname(path)}/{META_PROPERTIES}")
            ids.append(decode_meta_properties(data).cluster_id)
        except (FileNotFoundError, CorruptMetaProperties):
            return  # what it holds is compared all the same
    if ids[0] != ids[1]:
        raise RepairRefused(f"{copy} is of cluster {ids[1]}, not {ids[0]}")


@contextmanager
def _locked(disk: Disk, folder: str) -> Iterator[None]:
    """Raises RepairRefused while a node uses the log directory."""
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
    return sorted(found for name in disk.list(folder) if (found := parse_file_name(name)) is not None)


def _damage(disk: Disk, folder: str, snapshot: MetadataSnapshotId) -> str | None:
    """Why a snapshot cannot be used, None if it can."""
    try:
        image_of(snapshot, disk.read(f"{folder}/{snapshot.file_name}"))
    except ValueError as error:  # damaged batches and records that contradict each other are of this kind
        return str(error)
    return None


def _end_of(snapshot: MetadataSnapshotId | None) -> Offset:
    return Offset(0) if snapshot is None else snapshot.end_offset
