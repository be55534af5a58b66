"""The port for remote storage, which keeps segments outside of the brokers (Kafka's RemoteStorageManager, KIP-405).

A stored segment is a set of objects: the log, its indexes, a producer snapshot and the leader epochs up to its end. The
log is stored last and deleted first, so a set without a log is the remainder of a failed copy or deletion. Adapters:
``tiered.store.local_tier`` (a folder, in the layout of Kafka's LocalTieredStorage) and ``tiered.store.fsspec_tier``.
"""

from __future__ import annotations

import asyncio
import errno
from collections.abc import Callable, Collection, Coroutine, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from enum import Enum
from typing import Final, Protocol
from uuid import UUID

from milena.runtime.network import FileRange
from milena.tiered.segments.segment_metadata import (
    RemoteLogSegmentId,
    RemoteLogSegmentMetadata,
    TopicIdPartition,
)


class IndexType(Enum):
    """Kafka's RemoteStorageManager.IndexType; the value is the suffix of the object's name."""

    OFFSET = ".index"
    TIMESTAMP = ".timeindex"
    PRODUCER_SNAPSHOT = ".snapshot"
    TRANSACTION = ".txnindex"
    LEADER_EPOCH = ".leader_epoch_checkpoint"


class RemoteStorageError(Exception):
    """An error of the store that is not retriable: it needs intervention."""


class RetriableRemoteStorageError(RemoteStorageError):
    """The same call may succeed later: the store is full, slow or unavailable."""


class RemoteResourceNotFound(RemoteStorageError):
    """The store is available, and the object does not exist."""


class TruncatedObject(RemoteStorageError):
    """The object ends before the requested range does. ``size``: its size in bytes."""

    def __init__(self, what: str, size: int) -> None:
        super().__init__(what)
        self.size = size


_MISSING: Final = frozenset({errno.ENOENT, errno.ENOTDIR})
_FINAL: Final = frozenset(
    {errno.EACCES, errno.EPERM, errno.EROFS, errno.EINVAL, errno.ENAMETOOLONG, errno.EISDIR, errno.ELOOP, errno.EEXIST}
)


@contextmanager
def remote_errors(what: str) -> Iterator[None]:
    """Convert OSErrors to the port's errors. Missing objects, denied access and invalid names are not retriable; a full
    disk, an I/O error or a lost connection is."""
    try:
        yield
    except OSError as error:
        message = f"{what}: {error.strerror or error}"
        if error.errno in _MISSING or isinstance(error, FileNotFoundError):
            raise RemoteResourceNotFound(message) from error
        if error.errno in _FINAL or isinstance(error, PermissionError):
            raise RemoteStorageError(message) from error
        raise RetriableRemoteStorageError(message) from error


@contextmanager
def cancellation_errors() -> Iterator[None]:
    """Convert a CancelledError to RetriableRemoteStorageError if only a call inside the store was cancelled: the tasks
    that wait for its result must get an error. If the current task was cancelled, raise it."""
    try:
        yield
    except asyncio.CancelledError as error:
        task = asyncio.current_task()
        if task is None or task.cancelling():
            raise
        raise RetriableRemoteStorageError("the remote storage cancelled the call") from error


@dataclass(frozen=True, slots=True)
class SegmentFiles:
    """Local files of a closed segment (paths), and the text of the leader epoch checkpoint up to the segment's end."""

    log: str
    offset_index: str
    time_index: str
    txn_index: str | None
    producer_snapshot: str
    leader_epochs: bytes
    description: bytes | None = None
    """The segment's description, which is stored beside it (``tiered.metadata.descriptions``); None for a segment whose
    files are sufficient to rebuild its metadata."""


@dataclass(frozen=True, slots=True)
class RemoteRange:
    """Bytes of a stored log, from ``position`` on. A fetch creates it, possibly without having read anything yet.

    ``file`` is set if the bytes can be sent to a socket by sendfile.
    """

    position: int
    length: int
    file: FileRange | None
    reader: Callable[[], Coroutine[object, object, bytes]]

    async def read(self) -> bytes:
        """Return exactly ``length`` bytes. Raises RemoteStorageError, also if the object turns out to be truncated."""
        return await self.reader()


def length_of_range(size: int, start: int, end: int | None) -> int:
    """Return the number of bytes from ``start`` to ``end`` (inclusive) in a log of ``size`` bytes. Raises ValueError
    for a negative start or an end before it."""
    if start < 0 or (end is not None and end < start):
        raise ValueError(f"invalid range of bytes: {start} to {end}")
    last = size - 1 if end is None else min(end, size - 1)
    return max(0, last + 1 - start)


def nothing_at(position: int) -> RemoteRange:
    """Return an empty range."""

    async def read() -> bytes:
        return b""

    return RemoteRange(position, 0, None, read)


@dataclass(frozen=True, slots=True)
class StoredSegment:
    """The objects in the store under one segment's id: the size of each (bytes), by suffix."""

    segment_id: RemoteLogSegmentId
    start_offset: int
    objects: dict[str, int]
    modified_ms: int
    """The time at which the newest object was written."""

    @property
    def complete(self) -> bool:
        """Whether all objects that every segment has are there."""
        return self.objects.keys() >= REQUIRED


LOG_SUFFIX: Final = ".log"
INCOMPLETE_AGE_MS: Final = 10 * 60 * 1000
"""A set without a log is removed when it is this old: a running copy is in the metadata by then."""
REQUIRED: Final = frozenset({LOG_SUFFIX, *(index.value for index in IndexType if index is not IndexType.TRANSACTION)})
"""Suffixes of the objects that every stored segment has."""


class RemoteStorage(Protocol):
    """All calls raise RemoteStorageError or a subclass, and are safe to repeat."""

    async def start(self) -> None:
        """Create what is needed before the first copy."""
        ...

    async def check(self) -> None:
        """Check that this tier belongs to the cluster; claim a new one if that is allowed. Raises RemoteStorageError if
        it belongs to another cluster, or may not be claimed."""
        ...

    async def own(self, cluster_id: str) -> None:
        """Record this cluster as the owner of the tier, whatever its previous owner."""
        ...

    async def copy(self, metadata: RemoteLogSegmentMetadata, files: SegmentFiles) -> bytes | None:
        """Store a segment; it appears whole or not at all. Returns custom metadata for the segment's record.

        Raises RemoteStorageError if the size of the log is not ``metadata.size``.
        """
        ...

    async def fetch(self, metadata: RemoteLogSegmentMetadata, start: int, end: int | None = None) -> RemoteRange:
        """Return the bytes ``start`` to ``end`` (inclusive; None: to the last) of the log, up to ``metadata.size``.

        Raises ValueError for a negative start or an end before it. A start at or past the size gives an empty range.
        """
        ...

    def expect(self, metadata: RemoteLogSegmentMetadata, start: int = 0) -> None:
        """A hint: a reader will soon be at ``start`` of this segment. Returns at once and never fails."""
        ...

    async def fetch_index(self, metadata: RemoteLogSegmentMetadata, index: IndexType) -> bytes:
        """Return a complete index. Raises RemoteResourceNotFound for a transaction index that the segment does not
        have."""
        ...

    async def description(self, segment: RemoteLogSegmentId, start_offset: int) -> bytes | None:
        """Return the description of a segment; None if it has none."""
        ...

    async def delete(self, metadata: RemoteLogSegmentMetadata) -> None:
        """Remove all of the segment's objects, its description last. Ignores missing ones."""
        ...

    async def segments(self, partition: TopicIdPartition | None = None) -> list[StoredSegment]:
        """Return the stored segments of one partition or of all partitions, sorted. Foreign files are ignored."""
        ...

    async def foreign(self) -> list[str]:
        """Return the files in the partitions' folders that belong to no segment, as paths relative to the tier's
        folder, sorted."""
        ...

    async def sweep_incomplete(self, partition: TopicIdPartition, known: Collection[UUID]) -> list[RemoteLogSegmentId]:
        """Remove the remains of failed copies of ``partition``: sets without a log that are not in ``known`` (the
        metadata) and not recent. Returns them. Sets with a log are kept, known or not: they may be the only copy of the
        data."""
        ...

    async def remove_work_orders(self) -> bool:
        """Remove the folder in which earlier versions of Milena kept work orders
        (docs/decisions/2026-11-25-no-work-orders.md). Return whether there was one."""
        ...

    async def close(self) -> None: ...
