"""Snapshots of the metadata log: names, files, content (KIP-630).

A snapshot ``<end offset>-<epoch>.checkpoint`` replaces every record below its end offset. It consists of a control
batch with SnapshotHeader, batches of metadata records, and a control batch with SnapshotFooter. While it is written or
fetched it is named ``.checkpoint.part``; it gets its final name once it is synced.
"""

from __future__ import annotations

import contextlib
import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Final

from milena.node.metadata.image import MetadataImage
from milena.node.metadata.image_records import to_records
from milena.node.metadata.replay import Replayer
from milena.protocol.metadata_records import MetadataRecord, decode_record, encode_record
from milena.protocol.records.batch import BatchView, CorruptBatch, iter_batches
from milena.protocol.records.control_records import SnapshotFooter, SnapshotHeader, control_batch, control_of
from milena.protocol.records.records import BatchBuilder, iter_records
from milena.protocol.schemas.undecodable import DecodeError
from milena.protocol.types import LeaderEpoch, Offset
from milena.runtime.disk import Disk, File

SUFFIX: Final = ".checkpoint"
PART_SUFFIX: Final = ".checkpoint.part"
SET_ASIDE: Final = ".damaged"
BATCH_BYTES: Final = 1 << 20
_NAME: Final = re.compile(r"(\d{20})-(\d{10})\.checkpoint")


class CorruptMetadataSnapshot(ValueError):
    """A snapshot file is damaged or incomplete; the message has its name."""


@dataclass(frozen=True, slots=True, order=True)
class MetadataSnapshotId:
    """``end_offset`` is the first offset that the snapshot does not include; ``epoch`` is that of the record before
    it."""

    end_offset: Offset
    epoch: LeaderEpoch

    @property
    def file_name(self) -> str:
        return f"{self.end_offset:020d}-{self.epoch:010d}{SUFFIX}"


BOOTSTRAP_ID: Final = MetadataSnapshotId(Offset(0), LeaderEpoch(0))
"""The snapshot that formatting a log directory writes; it is loaded like others, but not sent to observers."""


def parse_file_name(name: str) -> MetadataSnapshotId | None:
    """Return the id of the snapshot in a file of this name; None if the file is not a snapshot."""
    match = _NAME.fullmatch(name)
    return None if match is None else MetadataSnapshotId(Offset(int(match[1])), LeaderEpoch(int(match[2])))


class SnapshotStore:
    """The snapshots in the folder of one metadata log, oldest first. Reads and writes block."""

    def __init__(self, disk: Disk, folder: str) -> None:
        self._disk = disk
        self._folder = folder
        self._ids: list[MetadataSnapshotId] = []

    def open(self) -> None:
        """List the snapshots and remove unfinished ones. Raises OSError."""
        self._disk.make_folders(self._folder)
        names = self._disk.list(self._folder)
        self._ids = sorted(found for name in names if (found := parse_file_name(name)) is not None)
        for name in names:
            if name.endswith(PART_SUFFIX):
                self._disk.remove(f"{self._folder}/{name}")

    @property
    def ids(self) -> list[MetadataSnapshotId]:
        return list(self._ids)

    def latest(self) -> MetadataSnapshotId | None:
        return self._ids[-1] if self._ids else None

    def earliest(self) -> MetadataSnapshotId | None:
        return self._ids[0] if self._ids else None

    def __contains__(self, snapshot: MetadataSnapshotId) -> bool:
        return snapshot in self._ids

    def size(self, snapshot: MetadataSnapshotId) -> int:
        return self._disk.size(self._path(snapshot))

    def modified_ms(self, snapshot: MetadataSnapshotId) -> int:
        return self._disk.modified_ms(self._path(snapshot))

    def read(self, snapshot: MetadataSnapshotId) -> bytes:
        """The whole file. Raises FileNotFoundError."""
        return self._disk.read(self._path(snapshot))

    def read_at(self, snapshot: MetadataSnapshotId, position: int, length: int) -> bytes:
        """Up to ``length`` bytes from ``position`` (FetchSnapshot). Raises FileNotFoundError."""
        file = self._disk.open(self._path(snapshot), read_only=True)
        try:
            return file.pread(length, position)
        finally:
            file.close()

    def create(self, snapshot: MetadataSnapshotId) -> PartialSnapshot:
        """Start to write a snapshot; an unfinished file of the same snapshot is discarded."""
        path = self._path(snapshot)
        part = path + ".part"
        self._disk.remove(part)
        return PartialSnapshot(self, snapshot, self._disk.open(part, create=True))

    def write(self, snapshot: MetadataSnapshotId, batches: Iterable[bytes]) -> None:
        """Write a whole snapshot. Raises OSError; the unfinished file is then deleted."""
        partial = self.create(snapshot)
        try:
            for batch in batches:
                partial.append(batch)
            partial.finish()
        except BaseException:
            partial.abandon()
            raise

    def delete_before(self, snapshot: MetadataSnapshotId) -> None:
        """Remove the snapshots that end before ``snapshot``."""
        for old in [old for old in self._ids if old < snapshot]:
            self._disk.remove(self._path(old))
            self._ids.remove(old)

    def set_aside(self, snapshot: MetadataSnapshotId) -> None:
        """Rename a snapshot that cannot be used, so that it is ignored. Raises OSError."""
        self._disk.rename(self._path(snapshot), self._path(snapshot) + SET_ASIDE)
        self._ids.remove(snapshot)

    def finished(self, snapshot: MetadataSnapshotId) -> None:
        """Rename the complete part file to its final name."""
        path = self._path(snapshot)
        self._disk.rename(path + ".part", path)
        if snapshot not in self._ids:
            self._ids.append(snapshot)
            self._ids.sort()

    def abandoned(self, snapshot: MetadataSnapshotId) -> None:
        self._disk.remove(self._path(snapshot) + ".part")

    def _path(self, snapshot: MetadataSnapshotId) -> str:
        return f"{self._folder}/{snapshot.file_name}"


class PartialSnapshot:
    """A snapshot file that is being written, until ``finish`` or ``abandon`` is called."""

    def __init__(self, store: SnapshotStore, snapshot: MetadataSnapshotId, file: File) -> None:
        self.id = snapshot
        self._store = store
        self._file = file

    @property
    def size(self) -> int:
        return self._file.size

    def append(self, data: bytes) -> None:
        self._file.append([data])

    def check(self) -> None:
        """Verify that the written bytes can be replayed. Raises CorruptMetadataSnapshot, ReplayError."""
        image_of(self.id, self._file.pread(self._file.size, 0))

    def finish(self) -> None:
        self._file.sync()
        self._file.close()
        self._store.finished(self.id)

    def abandon(self) -> None:
        """Close and delete the part file. Raises no OSError, which would replace the exception that is being handled,
        for example a cancellation; a file that cannot be deleted is deleted at the next start."""
        with contextlib.suppress(OSError):
            self._file.close()
            self._store.abandoned(self.id)


def snapshot_batches(
    records: Iterable[MetadataRecord], epoch: LeaderEpoch, *, metadata_version: int, last_timestamp: int, now_ms: int
) -> Iterator[bytes]:
    """Yield the batches of a snapshot. ``last_timestamp`` (ms) is that of the last record in the snapshot."""
    header = SnapshotHeader(last_contained_log_timestamp=last_timestamp)
    yield control_batch([header], timestamp=now_ms, base_offset=Offset(0), leader_epoch=epoch)
    next_offset = 1
    builder = BatchBuilder()
    for record in records:
        value = encode_record(record, metadata_version)
        if builder.count and not builder.has_room_for(None, value, BATCH_BYTES):
            yield builder.build(base_offset=Offset(next_offset), leader_epoch=epoch)
            next_offset += builder.count
            builder = BatchBuilder()
        builder.append(timestamp=now_ms, value=value)
    if builder.count:
        yield builder.build(base_offset=Offset(next_offset), leader_epoch=epoch)
        next_offset += builder.count
    yield control_batch([SnapshotFooter()], timestamp=now_ms, base_offset=Offset(next_offset), leader_epoch=epoch)


def image_batches(image: MetadataImage, now_ms: int) -> Iterator[bytes]:
    """Return the batches of a snapshot of ``image``. The records are collected now; the image may change afterwards."""
    return snapshot_batches(
        list(to_records(image)),
        image.epoch,
        metadata_version=image.metadata_version,
        last_timestamp=image.timestamp_ms,
        now_ms=now_ms,
    )


def image_id(image: MetadataImage) -> MetadataSnapshotId:
    """The id of a snapshot of ``image`` taken now."""
    return MetadataSnapshotId(Offset(image.offset + 1), image.epoch)


def load_image(store: SnapshotStore, snapshot: MetadataSnapshotId) -> MetadataImage:
    """Return the image in a snapshot. Raises CorruptMetadataSnapshot, and ReplayError if its records are
    contradictory."""
    return image_of(snapshot, store.read(snapshot))


def load_latest(store: SnapshotStore) -> tuple[MetadataImage | None, dict[MetadataSnapshotId, str]]:
    """Return the image of the latest valid snapshot (None if there is none), and for each later snapshot the reason why
    it is invalid."""
    damaged: dict[MetadataSnapshotId, str] = {}
    for snapshot in reversed(store.ids):
        try:
            return load_image(store, snapshot), damaged
        except ValueError as error:  # CorruptMetadataSnapshot, and ReplayError
            damaged[snapshot] = str(error)
    return None, damaged


def image_of(snapshot: MetadataSnapshotId, data: bytes) -> MetadataImage:
    """Return the image in the bytes of a snapshot. Raises as ``load_image``."""
    image = MetadataImage()
    replayer = Replayer(image)
    last_timestamp = -1
    try:
        for record in read_records(memoryview(data)):
            if isinstance(record, SnapshotHeader):
                last_timestamp = record.last_contained_log_timestamp
            elif isinstance(record, MetadataRecord):
                replayer.replay(record, offset=image.offset, epoch=image.epoch, timestamp_ms=-1)
    except (CorruptBatch, DecodeError) as error:
        raise CorruptMetadataSnapshot(f"snapshot {snapshot.file_name}: {error}") from error
    replayer.advance(offset=Offset(snapshot.end_offset - 1), epoch=snapshot.epoch, timestamp_ms=last_timestamp)
    return image


def read_records(data: memoryview) -> Iterator[object]:
    """Yield every record of a snapshot or bootstrap file, decoded: control records and metadata records.

    Raises CorruptBatch if a batch is damaged, the footer is missing, or bytes follow the last batch.
    """
    position = 0
    finished = False
    for batch in iter_batches(data):
        batch.verify_crc()
        position += batch.size_in_bytes
        for record in batch_records(batch):
            finished = isinstance(record, SnapshotFooter)
            yield record
    if position != len(data):
        raise CorruptBatch(f"a torn batch at byte {position} of {len(data)}")
    if not finished:
        raise CorruptBatch("the footer is missing")


def batch_records(batch: BatchView) -> Iterator[object]:
    """Yield the records of one batch of the metadata log, decoded. Raises CorruptBatch and DecodeError."""
    for record in iter_records(batch):
        if batch.is_control:
            yield control_of(record)
        elif record.value is None:
            raise CorruptBatch(f"the record at offset {batch.base_offset + record.offset_delta} has no value")
        else:
            yield decode_record(record.value)
