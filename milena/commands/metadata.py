"""`milena metadata`: look at a node's metadata log while the node is down, and mend it."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING

from milena.command_line.choosing import chosen
from milena.command_line.errors import UserError, reason_of
from milena.command_line.options import CommandLine, Option, Positional, Values

if TYPE_CHECKING:
    from milena.commands.metadata_repair import Mended
    from milena.node.metadata.committed_offset import CommittedOffsetFile
    from milena.node.metadata.snapshots import MetadataSnapshotId
    from milena.protocol.types import Offset
    from milena.runtime.disk import Disk
    from milena.storage.log.survey import Survey

PLACE = Positional("FOLDER", "a __cluster_metadata-0 folder, or the log directory that holds it")
CHECK = CommandLine(
    "metadata check",
    "Read a metadata log and say which offsets are sound and where it is damaged. Nothing is changed. Ends with\n"
    "code 1 where records are lost that no snapshot covers.",
    [],
    [PLACE],
    ["milena metadata check milena-data/controller-100/data"],
)
REPAIR = CommandLine(
    "metadata repair",
    "Mend the metadata log of a node that is down. Damaged and missing records come from copies of the log, which\n"
    "each broker of the cluster keeps; so does a snapshot that is missing. Where no copy has them, --cut ends the log\n"
    "before them: topics, configurations and registrations from there on are forgotten, and brokers that know of them\n"
    "say so and wait. The files as they were stay beside the new one, as *.log.damaged.",
    [
        Option(
            "--from", "a copy: another node's __cluster_metadata-0 folder, or its log directory", "FOLDER", many=True
        ),
        Option("--cut", "give up what no copy has, and everything behind it"),
    ],
    [PLACE],
    [
        "milena metadata repair milena-data/controller-100/data --from milena-data/broker-1/data",
        "milena metadata repair milena-data/controller-100/data --cut",
    ],
)


def main(arguments: Sequence[str]) -> int:
    commands: dict[str, tuple[CommandLine, Callable[[Values], int]]] = {
        "check": (CHECK, _check),
        "repair": (REPAIR, _repair),
    }
    meant = chosen("metadata", commands, arguments)
    if meant is None:
        return 0
    body, values = meant
    try:
        return body(values)
    except OSError as error:
        raise UserError(reason_of(error)) from None


def _check(values: Values) -> int:
    from milena.controller.log.log_damage import MetadataLost, judge
    from milena.node.metadata.committed_offset import CommittedOffsetFile
    from milena.protocol.types import Offset
    from milena.runtime.files import RealDisk

    folder, disk = _folder(values.folder), RealDisk()
    found, latest, damaged = _look(disk, folder)
    for damage in found.damages:
        print(f"damaged: {damage.path} at byte {damage.position}, from offset {damage.offset} on: {damage.reason}")
    for run in found.runs:
        print(f"sound: offsets {run.start} to {run.end - 1}")
    if latest is not None:
        print(f"snapshot: {latest.file_name}, for what is before offset {latest.end_offset}")
    try:
        judge(found, folder, _end_of(latest), _committed(CommittedOffsetFile(disk, folder), damaged) or Offset(0))
    except MetadataLost as lost:
        print(lost)
        return 1
    return 0


def _repair(values: Values) -> int:
    from milena.commands.metadata_repair import OtherLog, mend
    from milena.node.metadata.committed_offset import CommittedOffsetFile
    from milena.runtime.files import RealDisk
    from milena.storage.log.segment_swap import finish_swap, swap_segments
    from milena.storage.log.survey import survey

    disk = RealDisk()
    folder = _folder(values.folder)
    copies = [_folder(path) for path in getattr(values, "from")]
    with _locked(disk, folder):
        for copy in copies:
            _same_cluster(disk, folder, copy)
        finish_swap(disk, folder)
        found, latest, damaged = _look(disk, folder)
        surveys = [(copy, survey(disk, copy)) for copy in copies]
        try:
            for start in _starts(found, latest):
                mended = mend(disk, found, start, surveys)
                if mended.pieces:
                    break
        except OtherLog as other:
            raise UserError(str(other)) from None
        committed = CommittedOffsetFile(disk, folder)
        if not values.cut:
            _check_whole(mended, _committed(committed, damaged))
        if latest is None and mended.start > 0:
            _take_snapshot(disk, folder, mended, copies)
        _give_up(disk, folder, mended.end, committed, damaged)
        for first, end, source in mended.taken:
            print(f"offsets {first} to {end - 1}: taken from {source}")
        if not found.damages and not mended.taken and mended.missing is None:
            print("the log is sound: nothing to mend in it")
        else:
            committed.forget()
            for path in swap_segments(disk, folder, mended.start, mended.pieces):
                print(f"set aside: {path}")
        print(f"the log holds offsets {mended.start} to {mended.end - 1}")
    return 0


def _committed(known: CommittedOffsetFile, damaged: Sequence[MetadataSnapshotId]) -> Offset | None:
    """What is before it was committed, as far as that is known: a snapshot that cannot be used says so too."""
    return max((end for end in (known.read(), *map(_end_of, damaged)) if end is not None), default=None)


def _give_up(
    disk: Disk, folder: str, end: Offset, known: CommittedOffsetFile, damaged: Sequence[MetadataSnapshotId]
) -> None:
    """A controller would refuse to start without what is said to be committed behind ``end``."""
    from milena.node.metadata.snapshots import SET_ASIDE

    if (known.read() or 0) > end:
        known.forget()
        print(f"what was committed from offset {end} on is given up")
    for snapshot in damaged:
        path = f"{folder}/{snapshot.file_name}"
        if snapshot.end_offset > end and not _is_sound(disk, folder, snapshot):  # else a copy has taken its place
            disk.rename(path, path + SET_ASIDE)
            print(f"set aside: {path}{SET_ASIDE}")


def _check_whole(mended: Mended, committed: Offset | None) -> None:
    """Raises UserError where records are still missing."""
    missing = mended.missing if mended.missing is not None else committed
    if missing is not None and mended.end < missing:
        raise UserError(
            f"the offsets {mended.end} to {missing - 1} are in no copy: --from names more of them, --cut gives up "
            f"everything from offset {mended.end} on"
        )


def _take_snapshot(disk: Disk, folder: str, mended: Mended, copies: Sequence[str]) -> None:
    """A log that does not begin at 0 needs the snapshot of what is before it. Raises UserError."""
    for copy in copies:
        for snapshot in reversed(_snapshots(disk, copy)):
            if mended.start <= snapshot.end_offset <= mended.end and _is_sound(disk, copy, snapshot):
                disk.write_atomic(f"{folder}/{snapshot.file_name}", disk.read(f"{copy}/{snapshot.file_name}"))
                print(f"snapshot {snapshot.file_name}: taken from {copy}")
                return
    raise UserError(
        f"{folder} begins at offset {mended.start} and has no snapshot of what is before; "
        "--from names a copy that has one"
    )


def _folder(path: str) -> str:
    """Raises UserError."""
    from milena.protocol.types import METADATA_TOPIC

    name = f"{METADATA_TOPIC}-0"
    path = os.path.abspath(path)
    found = path if os.path.basename(path) == name else os.path.join(path, name)
    if not os.path.isdir(found):
        raise UserError(f"{found}: no such folder")
    return found


@contextmanager
def _locked(disk: Disk, folder: str) -> Iterator[None]:
    """Raises UserError while a node uses the log directory."""
    from milena.storage.files.names import LOCK

    parent = os.path.dirname(folder)
    try:
        unlock = disk.lock(f"{parent}/{LOCK}")
    except BlockingIOError:
        raise UserError(f"{parent} is in use: stop the node first") from None
    try:
        yield
    finally:
        unlock()


def _same_cluster(disk: Disk, folder: str, copy: str) -> None:
    """Raises UserError."""
    from milena.storage.files.meta_properties import CorruptMetaProperties, decode_meta_properties
    from milena.storage.files.names import META_PROPERTIES

    ids = []
    for path in (folder, copy):
        try:
            data = disk.read(f"{os.path.dirname(path)}/{META_PROPERTIES}")
            ids.append(decode_meta_properties(data).cluster_id)
        except (FileNotFoundError, CorruptMetaProperties):
            return  # what it holds is compared all the same
    if ids[0] != ids[1]:
        raise UserError(f"{copy} is of cluster {ids[1]}, not {ids[0]}")


def _look(disk: Disk, folder: str) -> tuple[Survey, MetadataSnapshotId | None, list[MetadataSnapshotId]]:
    """The log from its latest sound snapshot on, that, and the damaged ones after it."""
    from milena.storage.log.survey import survey

    damaged: list[MetadataSnapshotId] = []
    latest = None
    for snapshot in reversed(_snapshots(disk, folder)):
        if _is_sound(disk, folder, snapshot):
            latest = snapshot
            break
        damaged.append(snapshot)
    return survey(disk, folder, since=_end_of(latest)), latest, damaged


def _snapshots(disk: Disk, folder: str) -> list[MetadataSnapshotId]:
    from milena.node.metadata.snapshots import parse_file_name

    return sorted(found for name in disk.list(folder) if (found := parse_file_name(name)) is not None)


def _is_sound(disk: Disk, folder: str, snapshot: MetadataSnapshotId) -> bool:
    from milena.node.metadata.snapshots import image_of

    try:
        image_of(snapshot, disk.read(f"{folder}/{snapshot.file_name}"))
    except ValueError as error:  # damaged batches and records that contradict each other are of this kind
        print(f"damaged: {folder}/{error}")
        return False
    return True


def _end_of(snapshot: MetadataSnapshotId | None) -> Offset:
    from milena.protocol.types import Offset

    return Offset(0) if snapshot is None else snapshot.end_offset


def _starts(found: Survey, latest: MetadataSnapshotId | None) -> list[Offset]:
    """Where the mended log may begin: with what no snapshot covers, or before it; the first with which anything is
    found counts."""
    from milena.protocol.types import Offset

    end = _end_of(latest)
    run = found.run_with(end)
    if run is not None:
        return [run.start]
    return [end] if latest is not None or not found.bases else [Offset(0), found.bases[0]]
