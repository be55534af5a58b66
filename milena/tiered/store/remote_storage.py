"""The remote storage port: where segments lie once they have left the brokers (Kafka's RemoteStorageManager, KIP-405).

A stored segment is a set of objects: the log, its indexes, a producer snapshot and the leader epochs up to its end.
The log is the last to appear and the first to go, so a set without one is what a failed copy, or delete, left behind.
Adapters: ``tiered.store.local_tier`` (a folder, as Kafka's LocalTieredStorage keeps it) and
``tiered.store.fsspec_tier``.
"""

from __future__ import annotations

import asyncio
import errno
from collections.abc import Callable, Collection, Coroutine, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from enum import Enum
from typing import Any, Final, Protocol
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
    """The store refuses, and would refuse again: somebody has to act first."""


class RetriableRemoteStorageError(RemoteStorageError):
    """The same call may succeed later: the store is full, slow or away."""


class RemoteResourceNotFound(RemoteStorageError):
    """The store answers, and the object is not there."""


_MISSING: Final = frozenset({errno.ENOENT, errno.ENOTDIR})
_FINAL: Final = frozenset(
    {errno.EACCES, errno.EPERM, errno.EROFS, errno.EINVAL, errno.ENAMETOOLONG, errno.EISDIR, errno.ELOOP, errno.EEXIST}
)


@contextmanager
def remote_errors(what: str) -> Iterator[None]:
    """Turn OSErrors into the port's errors. Missing objects, refused access and wrong names will not mend by
    themselves; a full disk, an I/O error or a lost connection may."""
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
def cancelled_calls() -> Iterator[None]:
    """Turn a CancelledError into an error of the store, unless the current task really was cancelled: then a call into
    the store was, and who waits for its result must hear of that."""
    try:
        yield
    except asyncio.CancelledError as error:
        task = asyncio.current_task()
        if task is None or task.cancelling():
            raise
        raise RetriableRemoteStorageError("the remote storage gave the call up") from error


@dataclass(frozen=True, slots=True)
class SegmentFiles:
    """Local files of a closed segment (paths), and the leader epoch checkpoint's text up to the segment's end."""

    log: str
    offset_index: str
    time_index: str
    txn_index: str | None
    producer_snapshot: str
    leader_epochs: bytes


@dataclass(frozen=True, slots=True)
class RemoteRange:
    """Bytes of a stored log, from ``position`` on. Made by a fetch, which may not have read anything yet.

    ``file`` is there where the bytes can go to a socket by sendfile.
    """

    position: int
    length: int
    file: FileRange | None
    reader: Callable[[], Coroutine[Any, Any, bytes]]

    async def read(self) -> bytes:
        """Exactly ``length`` bytes. Raises RemoteStorageError, also where the object turns out to be cut short."""
        return await self.reader()


def length_of_range(size: int, start: int, end: int | None) -> int:
    """Bytes from ``start`` to ``end`` (inclusive) in a log of ``size`` bytes. Raises ValueError as a fetch does."""
    if start < 0 or (end is not None and end < start):
        raise ValueError(f"no range of bytes is {start} to {end}")
    last = size - 1 if end is None else min(end, size - 1)
    return max(0, last + 1 - start)


def nothing_at(position: int) -> RemoteRange:
    """An empty range."""

    async def read() -> bytes:
        return b""

    return RemoteRange(position, 0, None, read)


@dataclass(frozen=True, slots=True)
class StoredSegment:
    """What lies in the store under one segment's id: the size of each object (bytes), by suffix."""

    segment_id: RemoteLogSegmentId
    start_offset: int
    objects: dict[str, int]
    modified_ms: int
    """When the youngest object was written."""

    @property
    def complete(self) -> bool:
        """Whether a reader finds all that every segment has."""
        return self.objects.keys() >= REQUIRED


LOG_SUFFIX: Final = ".log"
ORPHAN_AGE_MS: Final = 10 * 60 * 1000
"""So old is a segment without a log at least when it is swept. Its copy, if it goes on, is in the metadata by then."""
REQUIRED: Final = frozenset({LOG_SUFFIX, *(index.value for index in IndexType if index is not IndexType.TRANSACTION)})
"""Suffixes of the objects that every stored segment has."""


class RemoteStorage(Protocol):
    """All calls raise RemoteStorageError or one of its kinds, and are safe to repeat."""

    async def start(self) -> None:
        """Make what must be there before the first copy."""
        ...

    async def check(self) -> None:
        """That this is the cluster's tier, which begins here if it may. Raises RemoteStorageError where it is not."""
        ...

    async def own(self, cluster_id: str) -> None:
        """The tier belongs to this cluster from now on, whoever's it was."""
        ...

    async def copy(self, metadata: RemoteLogSegmentMetadata, files: SegmentFiles) -> bytes | None:
        """Store a segment; it appears whole or not at all. Returns custom metadata for the segment's record.

        Raises RemoteStorageError where the log has not ``metadata.size`` bytes.
        """
        ...

    async def fetch(self, metadata: RemoteLogSegmentMetadata, start: int, end: int | None = None) -> RemoteRange:
        """Bytes ``start`` to ``end`` (inclusive; None: to the last) of the log, cut at ``metadata.size``.

        Raises ValueError for a negative start or an end before it. A start at or past the size gives an empty range.
        """
        ...

    def expect(self, metadata: RemoteLogSegmentMetadata, start: int = 0) -> None:
        """A hint: a reader will soon be at ``start`` of this segment. Returns at once and never fails."""
        ...

    async def fetch_index(self, metadata: RemoteLogSegmentMetadata, index: IndexType) -> bytes:
        """A whole index. Raises RemoteResourceNotFound for a transaction index that the segment has not."""
        ...

    async def delete(self, metadata: RemoteLogSegmentMetadata) -> None:
        """Remove all of the segment's objects. Missing ones are no error."""
        ...

    async def segments(self, partition: TopicIdPartition | None = None) -> list[StoredSegment]:
        """What lies in the store, of one partition or of all, sorted. Foreign files are passed over."""
        ...

    async def foreign(self) -> list[str]:
        """What lies among the segments and is none's, as paths below the tier's own folder, sorted."""
        ...

    async def sweep_orphans(self, partition: TopicIdPartition, known: Collection[UUID]) -> list[RemoteLogSegmentId]:
        """Remove what failed copies left of ``partition``: sets without a log, not ``known`` to the metadata and of no
        recent date. Returns them. Those with a log stay, known or not: they may be all that is left of the data."""
        ...

    async def close(self) -> None: ...
